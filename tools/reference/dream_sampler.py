"""Dream's decoding of a whole sequence, greedy: which positions each pass fixes, with which token.

    python3 dream_sampler.py    the worked example of the schedule

The canvas is the prompt and gen_length masks, and every pass feeds all of it. Times run in equal steps from 1 to eps. The
pass from time t to s writes the share 1 - s/t of the remaining masks, rounded down, perhaps none. The last pass writes all
of them. A pass predicts every mask from the row to its left and writes those of the largest confidence:

    maskgit_plus    probability of the token
    topk_margin     that probability minus the probability of the second best token
    entropy         sum of p ln(p + 1e-10): minus the entropy
    origin          each mask is written with that share as its probability; only the schedule is recorded

Nothing ends a sequence early, and no recorded answer has a token that could. The mask token is never predicted. A recording
is kept only if it is the same with and without the mask token's share of the probability, and if no comparison in it is
closer than GAP.
"""
import json
import random
from itertools import count

import torch

from transformer import shifted

CHECKPOINTS = ("dream", "rnd1")
RULES = ("maskgit_plus", "topk_margin", "entropy")
# (prompt tokens, gen_length, steps, eps)
RUNS = ((5, 8, 4, 1e-3), (3, 24, 24, 1e-3), (9, 32, 7, 1e-3), (1, 12, 20, 1e-3), (6, 16, 5, 0.1), (12, 20, 1, 1e-3))
GAP = 1e-4
SHARE_GAP = 1e-4    # of the number of masks to write, before rounding down


def shares(steps, eps):
    """Returns the share of the remaining masks that each pass writes; 1 for the last pass."""
    time = [1 + (eps - 1) * i / steps for i in range(steps + 1)]
    return [1 - time[i + 1] / time[i] for i in range(steps - 1)] + [1.0]


def confidence(p, rule):
    if rule == "maskgit_plus":
        return p.amax(-1)
    if rule == "topk_margin":
        best = p.topk(2, -1).values
        return best[:, 0] - best[:, 1]
    return (p * (p + 1e-10).log()).sum(-1)


def decode(model, prompt, mask, gen_length, steps, eps, rule, ban_mask):
    """Returns ([[position, token], ...] per pass, the closest comparison, the rounding margin of the counts)."""
    x, passes, gap, share_gap = prompt + [mask] * gen_length, [], float("inf"), float("inf")
    for share in shares(steps, eps):
        masked = [i for i, token in enumerate(x) if i >= len(prompt) and token == mask]
        wanted = share * len(masked)
        n = len(masked) if share == 1 else int(wanted)
        if share < 1 and masked:
            share_gap = min(share_gap, abs(wanted - round(wanted)))
        fixed = []
        if n:
            logits = shifted(model(x)[0])[masked]
            if ban_mask:
                logits[:, mask] = -torch.inf
            best = logits.topk(2, -1)
            order = confidence(logits.softmax(-1), rule).sort(descending=True)
            if n < len(masked):
                gap = min(gap, float(order.values[n - 1] - order.values[n]))
            for i in sorted(order.indices[:n].tolist()):
                gap = min(gap, float(best.values[i, 0] - best.values[i, 1]))
                fixed.append([masked[i], int(best.indices[i, 0])])
        for position, token in fixed:
            x[position] = token
        passes.append(fixed)
    return passes, gap, share_gap


def recorded_run(model, mask, eos, run, rule):
    """Returns the first random prompt whose decoding does not depend on rounding."""
    ordinary = [i for i in range(model.shape.vocab) if i not in (mask, eos)]
    n_prompt, gen_length, steps, eps = run
    for seed in count():
        rng = random.Random(f"{run} {rule} {seed}")
        prompt = [rng.choice(ordinary) for _ in range(n_prompt)]
        passes, gap, share_gap = decode(model, prompt, mask, gen_length, steps, eps, rule, True)
        with_mask, gap2, _ = decode(model, prompt, mask, gen_length, steps, eps, rule, False)
        assert share_gap > SHARE_GAP, f"{run}: the number of masks to fix is too close to a whole number"
        ends = any(token == eos for fixed in passes for _, token in fixed)
        if passes == with_mask and min(gap, gap2) > GAP and not ends:
            return {"alg": rule, "prompt": prompt, "gen_length": gen_length, "steps": steps, "eps": eps,
                    "passes": passes}


def schedule(run):
    _, gen_length, steps, eps = run
    return {"alg": "origin", "gen_length": gen_length, "steps": steps, "eps": eps, "share": shares(steps, eps)}


def record(model, special, path):
    mask, eos = special
    runs = [recorded_run(model, mask, eos, run, rule) for run in RUNS for rule in RULES]
    lines = ",\n  ".join(json.dumps(r) for r in runs + [schedule(run) for run in RUNS])
    path.write_text(f'{{"mask": {mask}, "runs": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    left = 8
    for share in shares(4, 1e-3):
        n = int(left * share)
        print(f"{left} masks, share {share:.5f}: {n} fixed")
        left -= n
