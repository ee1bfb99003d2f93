#!/usr/bin/env python3
"""Times one denoising pass in PyTorch, for comparison with `unmask bench engine`.

A pass feeds a block of each request behind a stored context, with random weights in a released shape. It ends with the
best token of every position and its probability. The layers are compiled by torch.compile and replayed as a CUDA graph.
The time includes no host work between passes. The rates of the GPU's memory are measured first.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

CASES = {
    "llada-8b": dict(layers=32, hidden=4096, heads=32, kv_heads=32, ff=12288, vocab=126464, theta=5e5),
    "sdar-8b": dict(layers=36, hidden=4096, heads=32, kv_heads=8, ff=12288, vocab=151936, theta=1e6, qk_norm=True),
    "sdar-1.7b": dict(layers=28, hidden=2048, heads=16, kv_heads=8, ff=6144, vocab=151936, theta=1e6, qk_norm=True),
    "llada2-mini": dict(layers=20, hidden=2048, heads=16, kv_heads=4, ff=5120, vocab=157184, theta=6e5, qk_norm=True,
                        rotary=64, experts=256, active=8, expert_ff=512, dense_layers=1, groups=8, active_groups=4,
                        scale=2.5),
}
HEAD = 128
LOAD_SECONDS = 0.5
REPLAYS_LEAST = 50


def fail(why):
    sys.exit(f"torch_reference: {why}")


# ---- Times ---------------------------------------------------------------------------------------------------------


def sm_clock():
    """Returns the clock of the multiprocessors in MHz, or None without nvidia-smi."""
    try:
        out = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"],
                             capture_output=True, text=True, check=True, timeout=10).stdout
        return int(out.split()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def summary(ms, clock):
    return dict(median_ms=statistics.median(ms), min_ms=min(ms), max_ms=max(ms), runs=len(ms), sm_mhz=clock)


def time_runs(run, n):
    """Times n runs in a row on the device. The clock is read while they run."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    clock = sm_clock()
    torch.cuda.synchronize()
    return summary([a.elapsed_time(b) for a, b in zip(marks, marks[1:])], clock)


def load(run):
    """Keeps the device busy, until its clock has settled."""
    end = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < end:
        for _ in range(4):
            run()
        torch.cuda.synchronize()


def burst_and_sustained(run, n):
    torch.cuda.synchronize()
    time.sleep(1)
    burst = time_runs(run, n)
    load(run)
    return dict(burst=burst, sustained=time_runs(run, n))


def memory_rates():
    """Measures GB/s of a copy (bytes read and written) and of a sum (bytes read)."""
    x = torch.randn(2 << 30, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    size = x.numel() * x.element_size()
    copy = time_runs(lambda: y.copy_(x), 20)["min_ms"]
    read = time_runs(lambda: torch.sum(x.view(torch.float32)), 20)["min_ms"]
    return dict(copy_gb_s=2 * size / copy / 1e6, read_gb_s=size / read / 1e6)


# ---- The model -----------------------------------------------------------------------------------------------------


def weight(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02


def ones(n):
    return torch.ones(n, device="cuda", dtype=torch.bfloat16)


class Layer:
    """The weights of a layer, with its stored keys and values."""

    def __init__(self, c, number, batch, length):
        self.attention_norm, self.ff_norm = ones(c["hidden"]), ones(c["hidden"])
        self.q_norm, self.k_norm = (ones(HEAD), ones(HEAD)) if c.get("qk_norm") else (None, None)
        self.qkv = weight((c["heads"] + 2 * c["kv_heads"]) * HEAD, c["hidden"])
        self.o = weight(c["hidden"], c["heads"] * HEAD)
        self.routed = "experts" in c and number >= c["dense_layers"]
        ff = c["expert_ff"] if self.routed else c["ff"]  # the shared expert has the size of the others
        self.gate_up, self.down = weight(2 * ff, c["hidden"]), weight(c["hidden"], ff)
        if self.routed:
            self.router = torch.randn(c["experts"], c["hidden"], device="cuda") * 0.02
            self.expert_gate_up = weight(c["experts"], 2 * ff, c["hidden"])
            self.expert_down = weight(c["experts"], c["hidden"], ff)
        self.keys = weight(batch, c["kv_heads"], length, HEAD)
        self.values = weight(batch, c["kv_heads"], length, HEAD)


def rotate(x, cos, sin):
    n = cos.shape[-1]
    a, b, rest = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


def attend(c, y, x, cos, sin, context):
    batch, n, _ = x.shape
    heads, kv_heads = c["heads"], c["kv_heads"]
    qkv = F.linear(F.rms_norm(x, (c["hidden"],), y.attention_norm, 1e-6), y.qkv)
    qkv = qkv.view(batch, n, heads + 2 * kv_heads, HEAD).transpose(1, 2)
    q, k, v = qkv.split((heads, kv_heads, kv_heads), 1)
    if y.q_norm is not None:
        q, k = F.rms_norm(q, (HEAD,), y.q_norm, 1e-6), F.rms_norm(k, (HEAD,), y.k_norm, 1e-6)
    y.keys[:, :, context:] = rotate(k, cos, sin)
    y.values[:, :, context:] = v
    out = F.scaled_dot_product_attention(rotate(q, cos, sin), y.keys, y.values, enable_gqa=heads != kv_heads)
    return x + F.linear(out.transpose(1, 2).reshape(batch, n, heads * HEAD), y.o)


def gated(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def route(c, y, h):
    """Returns the experts of each token [T, active] and their weights. Only the best groups of experts take part; the
    score of a group is that of its two best experts."""
    scores = torch.sigmoid(F.linear(h.float(), y.router))
    groups = scores.view(-1, c["groups"], c["experts"] // c["groups"])
    best = groups.topk(2, -1).values.sum(-1).topk(c["active_groups"], -1).indices
    open_groups = torch.zeros_like(groups[..., 0]).scatter_(1, best, 1)
    allowed = groups * open_groups[..., None]
    w, expert = allowed.flatten(1).topk(c["active"], -1)
    return expert, w / w.sum(-1, keepdim=True) * c["scale"]


def experts(c, y, h):
    """Computes the experts of the tokens as two grouped products over tokens in the order of their experts."""
    expert, w = route(c, y, h)
    ordered, order = expert.flatten().sort(stable=True)
    ends = torch.searchsorted(ordered, torch.arange(c["experts"], device=h.device), right=True).to(torch.int32)
    token = order // c["active"]
    inner = gated(torch._grouped_mm(h[token], y.expert_gate_up.transpose(1, 2), offs=ends))
    out = torch._grouped_mm(inner, y.expert_down.transpose(1, 2), offs=ends)
    out = out.float() * w.flatten()[order][:, None]
    return torch.zeros(h.shape, device=h.device).index_add_(0, token, out).to(h.dtype)


def feed_forward(c, y, x):
    h = F.rms_norm(x, (c["hidden"],), y.ff_norm, 1e-6)
    out = x + F.linear(gated(F.linear(h, y.gate_up)), y.down)
    if y.routed:
        out = out + experts(c, y, h.flatten(0, 1)).view(x.shape)
    return out


def make_pass(c, batch, block, context, compiled):
    """Returns a function without arguments that runs a pass."""
    rotary = c.get("rotary", HEAD)
    steps = torch.arange(0, rotary, 2, device="cuda").float() / rotary
    angles = torch.arange(context, context + block, device="cuda")[:, None].float() * c["theta"] ** -steps
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    layers = [Layer(c, i, batch, context + block) for i in range(c["layers"])]
    embedding, head, norm = weight(c["vocab"], c["hidden"]), weight(c["vocab"], c["hidden"]), ones(c["hidden"])
    ids = torch.randint(0, c["vocab"], (batch, block), device="cuda")

    def layer(y, x):
        return feed_forward(c, y, attend(c, y, x, cos, sin, context))

    def answer(x):
        logits = F.linear(F.rms_norm(x, (c["hidden"],), norm, 1e-6), head).float()
        most, best = logits.max(-1)
        return torch.exp(most - torch.logsumexp(logits, -1)), best

    if compiled:
        torch.compiler.reset()
        layer, answer = torch.compile(layer, dynamic=False), torch.compile(answer, dynamic=False)

    def run():
        x = F.embedding(ids, embedding)
        for y in layers:
            x = layer(y, x)
        return answer(x)

    return run


def record(run):
    """Returns the CUDA graph of a function."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


# ---- The program ---------------------------------------------------------------------------------------------------


def measure(name, batch, a):
    run = make_pass(CASES[name], batch, a.block, a.context, not a.no_compile)
    graph = record(run)
    result = dict(case=name, batch=batch, block=a.block, context=a.context, compiled=not a.no_compile)
    result.update(burst_and_sustained(graph.replay, a.replays))
    seconds = result["sustained"]["median_ms"] / 1e3
    result["positions_per_second"] = batch * a.block / seconds
    return result


def say(r):
    for kind in ("burst", "sustained"):
        t = r[kind]
        clock = f", SM {t['sm_mhz']} MHz" if t["sm_mhz"] else ""
        print(f"{r['case']:12} batch {r['batch']:3} {kind:9}: median {t['median_ms']:7.3f} ms, min {t['min_ms']:7.3f}, "
              f"max {t['max_ms']:7.3f}, {t['runs']} replays{clock}", file=sys.stderr, flush=True)


def numbers(text):
    return [int(n) for n in text.split(",")]


def names(text):
    for name in text.split(","):
        if name not in CASES:
            raise argparse.ArgumentTypeError(f"unknown case {name}; the cases are {', '.join(CASES)}")
    return text.split(",")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--case", type=names, default=list(CASES), metavar="NAMES",
                   help=f"of {','.join(CASES)}; default: all")
    p.add_argument("--batch", type=numbers, default=[1, 4, 16, 64], metavar="NUMBERS",
                   help="requests; default: 1,4,16,64")
    p.add_argument("--block", type=int, default=32, help="tokens of a block; default: 32")
    p.add_argument("--context", type=int, default=512, help="stored tokens of a request; default: 512")
    p.add_argument("--replays", type=int, default=60, help=f"timed replays, at least {REPLAYS_LEAST}; default: 60")
    p.add_argument("--no-compile", action="store_true", help="without torch.compile")
    p.add_argument("--json", metavar="FILE", help="write the results to a file; default: standard output")
    a = p.parse_args()
    if a.replays < REPLAYS_LEAST:
        p.error(f"--replays must be at least {REPLAYS_LEAST}")
    if min(a.batch + [a.block]) < 1 or a.context < 0:
        p.error("--batch and --block must be at least 1, --context at least 0")
    return a


def check_machine(a):
    if torch is None:
        fail("PyTorch is not installed; install a build of it with CUDA")
    if not torch.cuda.is_available():
        fail("PyTorch finds no NVIDIA GPU")
    if any("experts" in CASES[name] for name in a.case) and not hasattr(torch, "_grouped_mm"):
        fail(f"PyTorch {torch.__version__} has no grouped products; 2.8 or newer is needed for llada2-mini")


def main():
    a = arguments()
    check_machine(a)
    torch.manual_seed(0)
    out = dict(torch=torch.__version__, gpu=torch.cuda.get_device_name(), rates=memory_rates(), results=[])
    print(f"PyTorch {out['torch']}, {out['gpu']}: copies {out['rates']['copy_gb_s']:.0f} GB/s, "
          f"reads {out['rates']['read_gb_s']:.0f} GB/s", file=sys.stderr, flush=True)
    with torch.no_grad():
        for name in a.case:
            for batch in a.batch:
                torch.cuda.empty_cache()
                try:
                    out["results"].append(measure(name, batch, a))
                    say(out["results"][-1])
                except torch.cuda.OutOfMemoryError:
                    print(f"{name:12} batch {batch:3}: too little memory", file=sys.stderr, flush=True)
    text = json.dumps(out, indent=1)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            f.write(text + "\n")
    else:
        print(text)
    if not all(math.isfinite(r["sustained"]["median_ms"]) for r in out["results"]):
        fail("a time is not finite")


if __name__ == "__main__":
    main()
