#!/usr/bin/env python3
"""Writes tests/data/oracle: the expected runs of each strategy on the tiny checkpoints. It needs only NumPy:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy
    /tmp/venv/bin/python make.py
"""

import json
from pathlib import Path

import numpy as np

from model import Model
from scores import Score, greedy_answer
from strategies import STRATEGIES, Run
from sub_blocks import fast_dllm_v2

ROOT = Path(__file__).resolve().parents[2]
MARGIN = 5e-4  # skips prompts with a closer decision: float32 rounding could change it

# The last block of some canvases is short. In these, every position has its own pass.
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
    {"sampler": "factor", "factor": 2.5, "cfg_scale": 0.75},
    {"sampler": "confidence", "accept_threshold": 0.35, "remask_threshold": 0.3},
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
SUB_BLOCKS = [  # gen_length, block_size, buffer_size
    (40, 8, 4),
    (24, 4, 2),
    (17, 4, 3),
    (30, 5, 2),
    (33, 8, 2),
    (9, 2, 4),
    (6, 1, 4),
]
SUB_BLOCK_RULES = [
    {"sampler": "confidence", "accept_threshold": 0.9},
    {"sampler": "confidence", "accept_threshold": 0.3},
    {"sampler": "low_confidence", "denoising_steps": 2},
    {"sampler": "factor", "factor": 1.5},
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


def sub_block_cases():
    for gen_length, block_size, buffer_size in SUB_BLOCKS:
        shape = {"gen_length": gen_length, "block_size": block_size, "buffer_size": buffer_size}
        for rule in SUB_BLOCK_RULES:
            for block_cache in (True, False):
                yield {**shape, "block_cache": block_cache, **rule}


def whole_sequences():
    """Yields each strategy, its options, and a divisor of the length of its prompts."""
    for strategy in STRATEGIES.values():
        for options in sparse_cases() if strategy.__name__ == "sparse" else plain_cases():
            yield strategy, options, 1


def blocks():
    """Yields prompts that end inside a block, and prompts that end with a block."""
    for i, options in enumerate(sub_block_cases()):
        yield fast_dllm_v2, options, options["block_size"] * options["buffer_size"] if i % 3 == 0 else 1


# Scores: the model, its block length (0: none), lengths of prompt and answer. The last tokens of some prompts are in the
# first block of the answer, some answers end inside a block, and some blocks have one token.
SCORES = [
    ("llada", 0, [(9, 12), (1, 1), (30, 5), (3, 33)]),
    ("dream", 0, [(9, 12), (1, 2), (17, 40)]),
    ("sdar", 4, [(9, 12), (8, 9), (1, 1), (21, 30)]),
    ("sdar", 16, [(9, 12), (32, 17), (15, 40)]),
    ("fast_dllm_v2", 8, [(9, 12), (16, 25), (7, 2)]),
]
SCORE_RULES = [
    {},
    {"samples": 32, "seed": 5, "check_greedy": True},
    {"samples": 12, "batch": 12, "seed": 1},
    {"samples": 30, "batch": 3, "seed": 9007199254740991},
    {"method": "confidence"},
    {"method": "left_to_right"},
    {"samples": 16, "cfg_scale": 0.75},
    {"method": "confidence", "cfg_scale": 2.5},
]

CASES = {"llada": whole_sequences, "dream": whole_sequences, "fast_dllm_v2": blocks}


def said(strategy, options):
    """Returns the options of the engine. Block strategies have no canvas: max_tokens limits the answer."""
    return {name: value for name, value in options.items() if strategy is not fast_dllm_v2 or name != "gen_length"}


def record(model, strategy, options, multiple, random):
    """Returns the first of a few prompts whose decisions all have a margin of MARGIN, or None."""
    for _ in range(12):
        size = -(-int(random.integers(1, 41)) // multiple) * multiple
        prompt = [int(i) for i in random.integers(0, 490, size=size)]
        run = Run(model, prompt, {**options, "strategy": strategy.__name__})
        strategy(run)
        if run.margin >= MARGIN:
            return {"strategy": strategy.__name__, "options": said(strategy, options), "prompt": prompt,
                    "tokens": run.ids[run.prompt :], "pass": run.written[run.prompt :], "fed": run.fed, "margin": round(float(run.margin), 5)}
    return None


def record_score(model, prompt, answer, options):
    batch = {"batch": max(b for b in range(1, max(options["samples"] // 8, 1) + 1) if options["samples"] % b == 0)}
    score = Score(model, prompt, answer, {**batch, **options})
    result = score.result()
    if score.margin < MARGIN:
        return None
    return {"options": options, "prompt": prompt, "answer": answer, **result, "sets": score.sets[:40]}


def scores_of(model, block, sizes, random):
    """Yields scores of random answers, and of those that greedy decoding writes."""
    for n_prompt, n_answer in sizes:
        for rule in SCORE_RULES:
            if block and "cfg_scale" in rule:
                continue
            options = {"samples": 128, **rule, **({"block_size": block} if block else {})}
            prompt, answer = ([int(i) for i in random.integers(0, 490, size=n)] for n in (n_prompt, n_answer))
            yield record_score(model, prompt, answer, options)
            if rule.get("check_greedy") or "method" in rule:
                yield record_score(model, prompt, greedy_answer(model, prompt, n_answer, options)[0], options)


def write_scores(out):
    random, lines, dropped = np.random.default_rng(11), [], 0
    for name, block, sizes in SCORES:
        scores = list(scores_of(Model(ROOT / "build/data/golden/models" / name), block, sizes, random))
        dropped += sum(score is None for score in scores)
        for score in scores:
            if score:
                lines.append(json.dumps({"model": name, **score}, separators=(",", ":")))
    (out / "scores.json").write_text("[\n%s\n]\n" % ",\n".join(lines))
    print("scores", len(lines), "scores,", dropped, "without a clear order")


def main():
    out = ROOT / "tests/data/oracle"
    out.mkdir(exist_ok=True)
    for name, cases in CASES.items():
        model, random, runs, dropped = Model(ROOT / "build/data/golden/models" / name), np.random.default_rng(7), [], 0
        for case in cases():
            run = record(model, *case, random)
            dropped += run is None
            runs += [run] if run else []
        lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
        (out / f"{name}.json").write_text('{"model":"build/data/golden/models/%s","runs":[\n%s\n]}\n' % (name, lines))
        print(name, len(runs), "runs,", dropped, "without a clear prompt")
    write_scores(out)


main()
