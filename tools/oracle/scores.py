"""The log-likelihood of a given answer: the Monte Carlo estimate of LLaDA's evaluation, in each block of a model with
blocks, and the exact values of two orders of filling.

The sets of masks are random, but functions of the seed, the first token of the block, and the number of the sample.
"""

from math import comb, floor, sqrt

import numpy as np

EXACT = 31  # from this many tokens on, a block has more sets of masks than anybody asks for


# ---- Random numbers: SplitMix64 with a key for each draw ---------------------------------------------------------------

ALL = (1 << 64) - 1


def mixed(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & ALL
    return z ^ (z >> 31)


def number(key, counter):
    return mixed(key + 0x9E3779B97F4A7C15 * (counter + 1) & ALL)


def key_of(*parts):
    key = 0
    for part in parts:
        key = number(key, part)
    return key


def uniform(key, counter):
    return ((number(key, counter) >> 12) + 0.5) / (1 << 52)


# ---- Sets of masks -----------------------------------------------------------------------------------------------------


def masks_of_sample(n, first, sample, samples, batch, seed):
    """Returns the masks of a sample of a block of n tokens: l of them, l spread evenly over the batch."""
    start = floor(uniform(key_of(seed, first, sample // batch, 0), 0) * n)
    left = 1 + (start + sample % batch * n // batch) % n
    key, masks = key_of(seed, first, sample, 1), []
    for k in range(n):
        masks.append(uniform(key, k) * (n - k) < left)
        left -= masks[-1]
    return masks


def sets_of(n, first, samples, batch, seed):
    """Yields (masks, weight of each masked token, batch). The batch is None where all sets are taken."""
    if n < EXACT and 2**n - 1 <= samples:
        for bits in range(1, 2**n):
            masks = [bits >> k & 1 == 1 for k in range(n)]
            yield masks, 1 / (sum(masks) * comb(n, sum(masks))), None
        return
    for sample in range(samples):
        masks = masks_of_sample(n, first, sample, samples, batch, seed)
        yield masks, n / sum(masks) / samples, sample // batch


# ---- Scores ------------------------------------------------------------------------------------------------------------


def log_softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


class Score:
    """A score of `answer` behind `prompt`. block: block length, 0 for models in which all positions see each other."""

    def __init__(self, model, prompt, answer, options):
        self.model, self.prompt, self.ids = model, len(prompt), prompt + answer
        self.how = {"method": "monte_carlo", "samples": 128, "batch": 16, "seed": 0, "check_greedy": False,
                    "cfg_scale": 0, "block_size": 0, **options}
        self.block = self.how["block_size"]
        self.token, self.variance = np.zeros(len(answer)), 0.0
        self.greedy, self.known, self.passes, self.margin = True, True, 0, np.inf
        self.sets = []  # of the masks that were drawn
        self.keys = None  # of the true tokens before the block, for each layer
        self.last = None  # logits of the last of them

    def predict(self, masks):
        """Returns the log-probabilities at the positions of the block, whose masks are given."""
        m, self.passes = self.model, self.passes + 1
        end = self.start_of_grid + self.block if self.block else len(self.ids)
        ids = self.ids[self.start_of_grid : end] + [m.mask] * (end - max(len(self.ids), self.start_of_grid))
        for k, masked in enumerate(masks):
            if masked:
                ids[self.start - self.start_of_grid + k] = m.mask
        logits = self.run(ids)
        if self.how["cfg_scale"]:
            blind = [m.mask if p < self.prompt else i for p, i in enumerate(ids)]
            logits = (1 + self.how["cfg_scale"]) * logits - self.how["cfg_scale"] * self.run(blind)
        if m.shift:
            before = logits[:1] * 0 if self.last is None else self.last
            logits = np.concatenate([before, logits[:-1]])
        first = self.start - self.start_of_grid
        return log_softmax(logits[first : first + len(masks)])

    def run(self, ids):
        return self.model.forward(ids, range(self.start_of_grid, self.start_of_grid + len(ids)), self.keys)[0]

    def add(self, k, value):
        self.token[self.start - self.prompt + k] += value

    def truth(self, k):
        return self.ids[self.start + k]

    def by_confidence(self, n, counts):
        """Fills the masks in the order of confidence. Adds the log-probabilities if `counts`, else ends at the first
        token that greedy decoding would not write."""
        masks = [True] * n
        while any(masks) and (counts or self.greedy):
            logp = self.predict(masks)
            best = np.where(masks, logp.max(axis=-1), -np.inf)
            k = int(best.argmax())
            self.margin = min([self.margin, *(best[k] - np.delete(best, k))])
            self.compare(k, logp)
            if counts:
                self.add(k, logp[k, self.truth(k)])
            masks[k] = False

    def compare(self, k, logp):
        first, second = np.sort(logp[k])[-1:-3:-1]
        self.margin = min(self.margin, first - second)
        self.greedy &= int(logp[k].argmax()) == self.truth(k)

    def left_to_right(self, n):
        for t in range(n):
            logp = self.predict([k >= t for k in range(n)])
            self.compare(t, logp)
            self.add(t, logp[t, self.truth(t)])

    def monte_carlo(self, n):
        how = self.how
        batches = np.zeros(how["samples"] // how["batch"])
        for masks, weight, batch in sets_of(n, self.start - self.prompt, how["samples"], how["batch"], how["seed"]):
            logp = self.predict(masks)
            parts = [weight * logp[k, self.truth(k)] if masks[k] else 0 for k in range(n)]
            for k in range(n):
                self.add(k, parts[k])
            if batch is not None:
                self.sets.append("".join("-M"[masked] for masked in masks))
                batches[batch] += sum(parts)
        if batch is not None:
            g = len(batches)
            self.variance += ((batches - batches.mean()) ** 2).sum() * g / (g - 1) if g > 1 else np.nan

    def score_block(self, n):
        method = self.how["method"]
        if method == "confidence" or n == 1:
            return self.by_confidence(n, True)
        if method == "left_to_right":
            return self.left_to_right(n)
        if self.how["check_greedy"]:
            self.by_confidence(n, False)
        self.known &= self.how["check_greedy"]
        return self.monte_carlo(n)

    def store(self, start, end):
        """Adds the keys of the true tokens of a block."""
        logits, projected = self.model.forward(self.ids[start:end], range(start, end), self.keys)
        fresh = [(k.swapaxes(0, 1), v.swapaxes(0, 1)) for _, k, v in projected]
        old = self.keys or [(k[:, :0], v[:, :0]) for k, v in fresh]
        self.keys = [tuple(np.concatenate(pair, axis=1) for pair in zip(o, f)) for o, f in zip(old, fresh)]
        self.last = logits[-1:]

    def result(self):
        size = self.block or len(self.ids)
        for start in range(0, len(self.ids), size):
            end = min(start + size, len(self.ids))
            self.start_of_grid, self.start = start, max(start, self.prompt)
            if end > self.start:
                self.score_block(end - self.start)
            if end == start + size and end < len(self.ids):
                self.store(start, end)
        error = None if np.isnan(self.variance) else sqrt(self.variance) if self.variance else 0
        return {"logprob": self.token.sum(), "standard_error": error,
                "token_logprob": [round(float(t), 7) for t in self.token],
                "is_greedy": int(self.greedy) if self.known else -1, "passes": self.passes}


class Greedy(Score):
    """Decodes greedily: the answer becomes what the model predicts."""

    def compare(self, k, logp):
        self.ids[self.start + k] = int(logp[k].argmax())
        super().compare(k, logp)


def greedy_answer(model, prompt, n, options):
    """Returns (answer, margin) of decoding n tokens in the order of confidence."""
    run = Greedy(model, prompt, [0] * n, {"method": "confidence", **options})
    run.result()
    return run.ids[len(prompt) :], run.margin
