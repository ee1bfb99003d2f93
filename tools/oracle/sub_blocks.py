"""Fast-dLLM v2: attention is causal over blocks of block_size * buffer_size positions, and the last block is filled
sub-block by sub-block. Row i of a pass predicts position i + 1."""

import numpy as np

from strategies import Block


def keys_of(projected, kept=slice(None)):
    """Returns, for each layer, the keys and values [KV heads, n, d] of the stored rows of a pass."""
    return [(k[kept].swapaxes(0, 1), v[kept].swapaxes(0, 1)) for _, k, v in projected]


def join(a, b):
    if a is None:
        return b
    return [tuple(np.concatenate(pair, axis=1) for pair in zip(x, y)) for x, y in zip(a, b)]


def feed(run, positions, others):
    logits, projected = run.model.forward([run.ids[p] for p in positions], positions, others)
    run.fed += len(positions)
    return {p + 1: z for p, z in zip(positions, logits)}, projected


def store(run, start, end, stored):
    """Feeds finished blocks. Returns the stored keys and values, and the prediction of the last row."""
    predicted = {}
    length = run.options["block_size"] * run.options["buffer_size"]
    for at in range(start, end, length):
        predicted, projected = feed(run, range(at, at + length), stored)
        stored = join(stored, keys_of(projected))
    return stored, predicted


def write_seed(run, predicted, at):
    """The first token of a block comes from the last row of the block before it."""
    run.passes += 1
    run.accept(Block(at, at + 1, 1), predicted)


def fill(run, start, end, stored):
    """Fills the block [start, end), which sees `stored` and itself."""
    opened = None
    for sub in range(start, end, run.options["block_size"]):
        window = range(sub, min(sub + run.options["block_size"], end))
        block = Block(sub, window.stop, run.options.get("denoising_steps", run.options["block_size"]))
        while run.has_masks(block):
            run.passes += 1
            if opened is None or run.masked[sub] or not run.options["block_cache"]:
                predicted, opened = feed(run, range(start, end), stored)
            else:
                others = [p - start for p in range(start, end) if p not in window]
                predicted, _ = feed(run, window, join(stored, keys_of(opened, others)))
            run.accept(block, predicted)


def fast_dllm_v2(run):
    length = run.options["block_size"] * run.options["buffer_size"]
    start, limit = run.prompt // length * length, len(run.ids)
    stored, predicted = store(run, 0, start, None)
    if start == run.prompt:
        write_seed(run, predicted, start)
    while start < limit:
        end = min(start + length, limit)
        fill(run, start, end, stored)
        if end < limit:
            stored, predicted = store(run, start, end, stored)
            write_seed(run, predicted, end)
        start = end
