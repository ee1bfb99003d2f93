"""Which masks of a block become tokens. A rule gets the logits of the masked positions, in ascending position, and says
which of them it takes. All are greedy: the token is the likeliest one. Beside the choice each returns its margin: how
far, in log-probability, the nearest decision was from going the other way. The mask itself cannot be chosen: its logit
is -inf."""

import numpy as np


def log_softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def largest(score, n):
    """Indices of the n largest, largest first; and the distance to the one that just missed."""
    order = sorted(range(len(score)), key=lambda i: (-score[i], i))
    margin = score[order[n - 1]] - score[order[n]] if 0 < n < len(order) else np.inf
    return order[:n], margin


def transfers(masks, steps, step):
    """Positions that step `step` of `steps` fixes when `masks` are left: an even split, the remainder first."""
    return min(-(-masks // max(steps - step, 1)), masks)


def low_confidence(z, block, options):
    confidence = log_softmax(z).max(axis=-1)
    return largest(confidence, transfers(len(z), block.steps, block.step))


def entropy(z, block, options):
    """Dream's: how many follows a grid in time from 1 to eps; which, the smallest entropy."""
    p = np.maximum(log_softmax(z), -700)  # where p is 0, p ln p is 0 too
    eps = options.get("eps", 1e-3)
    if block.step + 1 >= block.steps:
        n = len(z)
    else:
        now, then = (1 + (eps - 1) * i / block.steps for i in (block.step, block.step + 1))
        n = int(len(z) * (1 - then / now))
    return largest((np.exp(p) * p).sum(axis=-1), n)


def confidence(z, block, options):
    """Everything above the threshold, and always the best."""
    score = log_softmax(z).max(axis=-1)
    limit = np.log(options["accept_threshold"])
    best, margin = largest(score, 1)
    chosen = [i for i in range(len(z)) if score[i] > limit]
    if chosen:
        margin = np.inf
    return chosen or best, min(margin, np.abs(score - limit).min())


def factor(z, block, options):
    """The longest run of falling confidences of which each c_j >= 1 - f / (j + 1); the best always."""
    c = np.exp(log_softmax(z).max(axis=-1))
    order, _ = largest(c, len(c))
    limit = [1 - options["factor"] / (j + 1) for j in range(1, len(c) + 1)]
    n, margin = 1, np.inf
    while n < len(c) and c[order[n]] >= limit[n]:
        margin = min(margin, c[order[n]] - limit[n])
        n += 1
    if n < len(c):
        margin = min(margin, limit[n] - c[order[n]])
    _, gap = largest(np.log(c), n)
    return order[:n], min(gap, margin)


RULES = {rule.__name__: rule for rule in (low_confidence, entropy, confidence, factor)}
SCHEDULED = {"low_confidence", "entropy"}
