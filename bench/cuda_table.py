#!/usr/bin/env python3
"""Measures denoising passes on a GPU and prints one table: unmask, PyTorch and the limit.

Each row is measured by `unmask bench engine`, and each shape that bench/torch_reference.py knows also by PyTorch, in the
same run on the same GPU, one after the other. Nothing changes the clocks of the GPU; the table has the clock during the
passes under load, and during the first passes after a pause. "ms in any order" is the time with --no-deterministic
where it differs by more than 2 %. With --tensor-parallel-size each row also has the share of the pass in which the GPUs exchange
results, of operations that are timed one by one.
"""

import argparse
import json
import os
import subprocess
import sys

ROWS = {"llada-8b": "1,4,16,64", "sdar-8b": "1,4,16,32", "llada2-mini": "1,4,16,32", "sdar-1.7b": "1,32"}
ROWS_OF_RANKS = {"llada-8b": "1,16,64", "sdar-30b": "1,16,64", "llada2-flash": "1,16,64"}
DIFFERENCE = 0.02  # least relative difference that the column "ms in any order" shows
EXCHANGES = ("sum_norm", "sum_ranks")  # operations that add the results of the ranks
HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--unmask", default="build/unmask", help="the program (default: %(default)s)")
    p.add_argument("--device", default="cuda", help="device of unmask (default: %(default)s)")
    p.add_argument("--tensor-parallel-size", type=int, default=1, metavar="N",
                   help="GPUs that compute each model together (default: %(default)s)")
    p.add_argument("--shapes", metavar="NAME,...",
                   help=f"shapes (default: {','.join(ROWS)}; of several GPUs {','.join(ROWS_OF_RANKS)})")
    p.add_argument("--batch", metavar="N,...", help="numbers of requests for all shapes (default: those of each shape)")
    p.add_argument("--block", type=int, default=32, metavar="N", help="tokens of a block (default: %(default)s)")
    p.add_argument("--context", type=int, default=512, metavar="N", help="stored tokens (default: %(default)s)")
    p.add_argument("--quantization", default="none,fp8", metavar="TYPE,...", help="weights (default: %(default)s)")
    p.add_argument("--no-torch", action="store_true", help="leave out PyTorch")
    p.add_argument("--no-any-order", action="store_true", help="do not measure with --no-deterministic as well")
    p.add_argument("--json", metavar="FILE", help="also write all numbers to a file")
    p.add_argument("rest", nargs="*", metavar="-- OPTION", help="further options of unmask bench engine")
    a = p.parse_args()
    a.rows = ROWS if a.tensor_parallel_size == 1 else ROWS_OF_RANKS
    a.shapes = a.shapes.split(",") if a.shapes else list(a.rows)
    unknown = [s for s in a.shapes if s not in a.rows and not a.batch]
    if unknown:
        p.error(f"--batch is needed for {', '.join(unknown)}")
    return a


def run(command):
    print("+ " + " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"cuda_table: {command[0]} ended with status {done.returncode}")
    return done.stdout


def measure_unmask(a, shape, quantization, more=()):
    """Returns the points of a shape, in the form of `unmask bench engine --json`. more: further options."""
    n = a.tensor_parallel_size
    ranks = ["--tensor-parallel-size", str(n), "--operations"] if n > 1 else []
    out = run([a.unmask, "bench", "engine", "--shape", shape, "--device", a.device, "--dtype", "bfloat16",
               "--quantization", quantization, "--batch", a.batch or a.rows[shape], "--block", str(a.block), "--context",
               str(a.context), "--json"] + ranks + list(more) + a.rest)
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def measure_torch(a, shape):
    """Returns the summaries of PyTorch by number of requests."""
    out = run([sys.executable, os.path.join(HERE, "torch_reference.py"), "--case", shape, "--batch",
               a.batch or a.rows[shape], "--block", str(a.block), "--context", str(a.context)])
    return {r["batch"]: r for r in json.loads(out)["results"]}


def denoise(point):
    return point["steps"]["denoise"]


def short(v):
    return f"{v:.3g}" if v < 1000 else f"{v:.0f}"


def exchanges(point):
    """Returns the cell with the share of the operations that add the results of ranks."""
    share = sum(o["share"] for o in point.get("operations", []) if o["name"] in EXCHANGES)
    return f"{100 * share:.0f} %" if share else "–"


def clock(mhz):
    return f"{mhz:.0f}" if mhz else "–"


def row(point, any_order, torch):
    """Returns the cells of a row of the table by the names of the columns.

    any_order: the point with --no-deterministic, or None. torch: summaries of PyTorch by shape and number of requests, in
    bf16.
    """
    s = denoise(point)
    weights = {"bfloat16": "bf16", "float8_e4m3": "fp8"}.get(point["weight_type"], point["weight_type"])
    torch = torch.get(point["shape"], {}).get(point["batch"]) if weights == "bf16" else None
    ms, limit = s["ms"]["median"], s["limit_ms"]
    other = torch["sustained"]["median_ms"] if torch else None
    cells = {
        "shape": point["shape"], "weights": weights, "requests": str(point["batch"]), "ms": short(ms),
        "spread": f"{short(s['ms']['min'])} to {short(s['ms']['max'])}", "MHz": clock(s["clock_mhz"]),
        "ms after a pause": short(point["burst_ms"]), "MHz after a pause": clock(point["burst_clock_mhz"])}
    if any_order:
        free = denoise(any_order)["ms"]["median"]
        cells["ms in any order"] = short(free) if abs(free / ms - 1) > DIFFERENCE else "–"
    cells |= {"PyTorch, ms": short(other) if other else "–", "PyTorch / unmask": f"{other / ms:.2f}" if other else "–",
              "limit, ms": short(limit), "share": f"{100 * limit / ms:.0f} %",
              "gap, us": f"{s['gap_us']['median']:.0f}" if s["gap_us"] else "–"}
    if point["ranks"] > 1:
        cells["exchanges"] = exchanges(point)
    return cells


def print_table(rows):
    head = list(rows[0])
    for cells in [head, ["---"] * len(head)] + [list(r.values()) for r in rows]:
        print("| " + " | ".join(cells) + " |")


def main():
    a = arguments()
    points, any_order, torch = [], [], {}
    for shape in a.shapes:
        for quantization in a.quantization.split(","):
            now = measure_unmask(a, shape, quantization)
            points += now
            any_order += [None] * len(now) if a.no_any_order else measure_unmask(a, shape, quantization, ["--no-deterministic"])
        if not a.no_torch and a.tensor_parallel_size == 1:
            torch[shape] = measure_torch(a, shape)
    first = points[0]
    rates = ", ".join(f"{p['operations_per_second'] / 1e12:,.0f} TFLOP/s with {p['weight_type']}"
                      for p in {p["weight_type"]: p for p in points}.values())
    gpus = f"{a.tensor_parallel_size} " if a.tensor_parallel_size > 1 else ""
    print(f"{gpus}{first['device_name']}, unmask {first['version']} at {first['commit']}, {a.context} tokens of context, blocks "
          f"of {a.block}; memory is read at {first['read_bytes_per_second'] / 1e9:,.0f} GB/s, a large product runs at "
          f"{rates}\n")
    print_table([row(p, free, torch) for p, free in zip(points, any_order, strict=True)])
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(dict(unmask=points, any_order=[p for p in any_order if p], torch=torch), f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
