"""The rules that choose which masks of a block become tokens. A rule gets the logits of the masked positions in ascending
order and returns the accepted ones. All rules are greedy: the token is the most likely one. Each also returns its margin:
the distance, in log-probability, of the closest decision from the opposite one. The mask itself can't be chosen: its
logit is -inf."""

import numpy as np


def log_softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def largest(score, n):
    """Returns the indices of the n largest, largest first, and the distance to the next one."""
    order = sorted(range(len(score)), key=lambda i: (-score[i], i))
    margin = score[order[n - 1]] - score[order[n]] if 0 < n < len(order) else np.inf
    return order[:n], margin


def transfers(masks, steps, step):
    """Returns how many positions step `step` of `steps` writes if `masks` are left: an even split, the remainder first."""
    return min(-(-masks // max(steps - step, 1)), masks)


def low_confidence(z, block, options):
    confidence = log_softmax(z).max(axis=-1)
    return largest(confidence, transfers(len(z), block.steps, block.step))


def entropy(z, block, options):
    """Dream's rule: a time grid from 1 to eps gives the number of positions. The smallest entropies win."""
    p = np.maximum(log_softmax(z), -700)  # where p is 0, p ln p is 0 too
    eps = options.get("eps", 1e-3)
    if block.step + 1 >= block.steps:
        n = len(z)
    else:
        now, then = (1 + (eps - 1) * i / block.steps for i in (block.step, block.step + 1))
        n = int(len(z) * (1 - then / now))
    return largest((np.exp(p) * p).sum(axis=-1), n)


def confidence(z, block, options):
    """Accepts everything above the threshold, or the best if nothing is above."""
    score = log_softmax(z).max(axis=-1)
    limit = np.log(options["accept_threshold"])
    best, margin = largest(score, 1)
    chosen = [i for i in range(len(z)) if score[i] > limit]
    if chosen:
        margin = np.inf
    return chosen or best, min(margin, np.abs(score - limit).min())


def factor(z, block, options):
    """Accepts the longest run of falling confidences with c_j >= 1 - f / (j + 1), and always the best."""
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
