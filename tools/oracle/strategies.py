"""Decodes a sequence of prompt and masks block by block, and records what each pass feeds."""

import numpy as np

from samplers import RULES, SCHEDULED, log_softmax


class Block:
    """The position and the progress of a block."""

    def __init__(self, start, end, steps):
        self.start, self.end, self.steps, self.step = start, end, steps, 0


class Run:
    """One request: the sequence, its history, and the margin of the closest decision."""

    def __init__(self, model, prompt, options):
        self.model, self.options = model, options
        self.ids = list(prompt) + [model.mask] * options["gen_length"]
        self.masked = [False] * len(prompt) + [True] * options["gen_length"]
        self.written = [0] * len(self.ids)  # the pass that wrote each position, from 1
        self.prompt = len(prompt)
        self.passes, self.fed, self.taken_back, self.margin = 0, 0, 0, np.inf

    def blocks(self):
        length = self.options["block_size"]
        total = self.options.get("steps", self.options["gen_length"])
        for start in range(self.prompt, len(self.ids), length):
            end = min(start + length, len(self.ids))
            yield Block(start, end, max(1, round(total * (end - start) / self.options["gen_length"])))

    def has_masks(self, block):
        return any(self.masked[block.start : block.end])

    def copies(self):
        """Returns the fed sequences: the request's and, under guidance, its twin with a masked prompt."""
        if not self.options.get("cfg_scale"):
            return [self.ids]
        return [self.ids, [self.model.mask] * self.prompt + self.ids[self.prompt :]]

    def feed(self, positions, others=None):
        """Runs a pass over the tokens at these positions. Returns the logits by position, and the projections of each
        layer for each copy. others: further keys and values that each copy sees."""
        self.passes += 1
        logits, projected = [], []
        for i, ids in enumerate(self.copies()):
            seen = self.model.forward([ids[p] for p in positions], positions, others[i] if others else None)
            logits.append(seen[0])
            projected.append(seen[1])
            self.fed += len(positions)
        z = logits[0]
        if len(logits) > 1:
            z = logits[1] + (self.options["cfg_scale"] + 1) * (logits[0] - logits[1])
        shift = self.model.shift
        return {p: z[max(i - shift, 0)] for i, p in enumerate(positions)}, projected

    def accept(self, block, predicted, first=False):
        """Writes the masks of the block that the rule accepts. first: always writes the block's first position, which
        counts if the rule has a fixed number."""
        for logits in predicted.values():
            logits[self.model.mask] = -np.inf
        at = [p for p in range(block.start, block.end) if self.masked[p]]
        filled = [p for p in range(block.start, block.end) if not self.masked[p]]
        z = np.array([predicted[p] for p in at])
        chosen, margin = RULES[self.options["sampler"]](z, block, self.options)
        if first and at[0] == block.start and 0 not in chosen:
            chosen = [0] + (chosen[:-1] if self.options["sampler"] in SCHEDULED else chosen)
        self.margin = min(self.margin, margin)
        for i in chosen:
            best = int(z[i].argmax())
            self.margin = min(self.margin, z[i][best] - np.delete(z[i], best).max())
            self.ids[at[i]], self.masked[at[i]], self.written[at[i]] = best, False, self.passes
        if len(chosen) < len(at):
            self.take_back(filled, predicted, len(chosen) - 1)
        block.step += 1

    def take_back(self, filled, predicted, most):
        """Masks tokens again that were written before this pass and are now less probable than the threshold, the least
        probable first. Keeps a first position whose logits no later pass computes."""
        limit = self.options.get("remask_threshold")
        if not limit:
            return
        if self.model.shift and self.options["strategy"] != "full":
            filled = filled[1:]
        doubt = sorted((log_softmax(predicted[p])[self.ids[p]], p) for p in filled)
        below = [p for score, p in doubt if score < np.log(limit)]
        self.margin = min([self.margin] + [abs(score - np.log(limit)) for score, _ in doubt])
        if most < len(below):
            self.margin = min(self.margin, doubt[most][0] - doubt[most - 1][0] if most else np.inf)
        for p in below[:most]:
            self.ids[p], self.masked[p] = self.model.mask, True
            self.taken_back += 1


def full(run):
    everything = range(len(run.ids))
    for block in run.blocks():
        while run.has_masks(block):
            predicted, _ = run.feed(everything)
            run.accept(block, predicted)


def reuse(run, last):
    """Fast-dLLM: the first pass of a block feeds everything. Later passes feed [start, last) and see the keys of the first
    pass for the other stored positions."""
    everything = range(len(run.ids))
    for block in run.blocks():
        predicted, projected = run.feed(everything)
        run.accept(block, predicted, first=run.model.shift > 0)
        window = range(block.start, last(run, block))
        kept = [p for p in everything if p not in window]
        others = [[(k[kept].swapaxes(0, 1), v[kept].swapaxes(0, 1)) for _, k, v in copy] for copy in projected]
        while run.has_masks(block):
            predicted, _ = run.feed(window, others)
            run.accept(block, predicted)


def prefix_cache(run):
    reuse(run, lambda run, block: len(run.ids))


def dual_cache(run):
    reuse(run, lambda run, block: block.end)


# ---- Sparse keys ----------------------------------------------------------------------------------------------------


def pool(score, width):
    half = width // 2
    padded = np.concatenate([np.full(half, -np.inf), score, np.full(half, -np.inf)])
    return np.array([padded[i : i + width].max() for i in range(len(score))])


def keep(score, n):
    """Returns the indices of the n largest, ties lower index first, and the margin of the choice. Pooled scores are often
    equal. Equal ones come from the same key, and stay equal in any arithmetic."""
    order = sorted(range(len(score)), key=lambda i: (-score[i], i))
    if n == len(order):
        return order, np.inf
    last, next_ = score[order[n - 1]], score[order[n]]
    if last != next_:
        return order[:n], last - next_
    apart = np.abs(score - last)
    apart = apart[apart > 0]
    return order[:n], apart.min() if len(apart) else np.inf


def select(run, block, projected):
    """Returns, for each layer, the keys and values [KV heads, n, d] of other positions that a block keeps."""
    options, model = run.options, run.model
    inside = range(block.start, block.end)
    outside = [p for p in range(len(run.ids)) if p not in inside]
    n = min(max(1, int(np.floor(len(outside) * options["retention_ratio"]))), len(outside))
    group = model.n_heads // model.n_kv_heads
    others = []
    for q, k, v in projected:
        mean = q[inside].mean(axis=0)
        score = np.stack([k[outside, h // group] @ mean[h] for h in range(model.n_heads)]) / np.sqrt(model.head_dim)
        if options["head_select"]:
            score = score.reshape(model.n_kv_heads, group, -1).max(axis=1)
        else:
            score = np.tile(score.sum(axis=0), (model.n_kv_heads, 1))
        keys, values = [], []
        for c in range(model.n_kv_heads):
            index, margin = keep(pool(score[c], options["pool_kernel"]), n)
            run.margin = min(run.margin, margin)
            rows = [outside[i] for i in index]
            keys.append(k[rows, c])
            values.append(v[rows, c])
        others.append((np.stack(keys), np.stack(values)))
    return others


def sparse(run):
    """Passes of a block up to number `delay_step` feed everything. That pass also chooses the kept keys. Later passes feed
    only the block."""
    everything = range(len(run.ids))
    for block in run.blocks():
        others, done = None, 0
        while run.has_masks(block):
            if done <= run.options["delay_step"]:
                predicted, projected = run.feed(everything)
                if done == run.options["delay_step"]:
                    others = [select(run, block, copy) for copy in projected]
                run.accept(block, predicted, first=True)
            else:
                predicted, _ = run.feed(range(block.start, block.end), others)
                run.accept(block, predicted)
            done += 1


STRATEGIES = {strategy.__name__: strategy for strategy in (full, prefix_cache, dual_cache, sparse)}
