#!/usr/bin/env python3
"""Writes tests/data/oracle: what each strategy over whole sequences must do on the tiny checkpoints. NumPy alone:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy
    /tmp/venv/bin/python make.py
"""

import json
from pathlib import Path

import numpy as np

from model import Model
from strategies import STRATEGIES, Run

ROOT = Path(__file__).resolve().parents[2]
MARGIN = 5e-4  # decisions closer than this are no test: rounding of float32 could turn them

# The last block of some canvases is short; then every position has a pass of its own.
CANVASES = [(16, 8), (24, 24), (20, 8), (13, 4)]  # gen_length, block_size
RULES = [
    {"sampler": "low_confidence"},
    {"sampler": "low_confidence", "steps": 8},
    {"sampler": "low_confidence", "steps": 12},
    {"sampler": "entropy", "steps": 8},
    {"sampler": "confidence", "accept_threshold": 0.1},
    {"sampler": "confidence", "accept_threshold": 0.35},
    {"sampler": "factor", "factor": 1.5},
    {"sampler": "factor", "factor": 2.5},
]
SPARSE = [  # retention_ratio, delay_step, head_select, pool_kernel
    (0.3, 0, False, 3),
    (0.3, 1, True, 3),
    (0.5, 1, False, 3),
    (0.5, 3, True, 3),
    (0.5, 0, True, 1),
    (1.0, 1, False, 3),
    (1.0, 0, True, 3),
    (0.3, 3, False, 1),
    (0.05, 1, True, 5),
]


def plain_cases():
    for gen_length, block_size in CANVASES:
        for rule in RULES:
            whole_blocks = gen_length % block_size == 0
            if "steps" not in rule or (whole_blocks and gen_length == 2 * rule["steps"]):
                yield {"gen_length": gen_length, "block_size": block_size, **rule}


def sparse_cases():
    for i, (ratio, delay, heads, pool) in enumerate(SPARSE):
        for options in list(plain_cases())[i % 5 :: 5]:
            if delay < options["block_size"]:
                yield {**options, "retention_ratio": ratio, "delay_step": delay, "head_select": heads, "pool_kernel": pool}


def decode(model, strategy, prompt, options):
    run = Run(model, prompt, options)
    STRATEGIES[strategy](run)
    return run


def record(model, strategy, options, random):
    """The first prompt of a few whose every decision is clear, or None."""
    for _ in range(12):
        prompt = [int(i) for i in random.integers(0, 490, size=random.integers(1, 41))]
        run = decode(model, strategy, prompt, options)
        if run.margin >= MARGIN:
            return {"strategy": strategy, "options": options, "prompt": prompt, "tokens": run.ids[run.prompt :],
                    "pass": run.written[run.prompt :], "fed": run.fed, "margin": round(float(run.margin), 5)}
    return None


def main():
    out = ROOT / "tests/data/oracle"
    out.mkdir(exist_ok=True)
    for name in ("llada", "dream"):
        model, random, runs, dropped = Model(ROOT / "tests/golden/models" / name), np.random.default_rng(7), [], 0
        for strategy in STRATEGIES:
            for options in sparse_cases() if strategy == "sparse" else plain_cases():
                run = record(model, strategy, options, random)
                dropped += run is None
                runs += [run] if run else []
        lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
        (out / f"{name}.json").write_text('{"model":"tests/golden/models/%s","runs":[\n%s\n]}\n' % (name, lines))
        print(name, len(runs), "runs,", dropped, "without a clear prompt")


main()
