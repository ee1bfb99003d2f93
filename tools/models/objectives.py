"""Masks, visibility and loss weights of the training rows, for both families.

`block_batch` is block diffusion in two streams. The row [noisy | clean] is run once; a noisy block sees itself, the noisy
blocks before it inside its *window*, and the clean text before the window. A window of one block is plain block diffusion.
Windows of two to four blocks, noise rising to the right, are what a decoder with several blocks in flight produces.

`full_batch` masks the answer and its fill on one canvas: at a random rate everywhere, or the way decoding in blocks from
left to right does it (clean before the current block, all masked behind it).

Both return (ids, bias, clean bias, targets' weights); the targets are the unmasked row.
"""
import torch

from checkpoint import BLOCK
from model import additive, block_causal

FILL_WEIGHT = 0.2           # loss weight of end-of-text fill: easy, and too many of it


def block_batch(row, prompt, answer, ids, dtype):
    B, L = row.shape
    dev, n_blocks = row.device, L // BLOCK
    pos, block = torch.arange(L, device=dev), torch.arange(n_blocks, device=dev)
    first = (prompt // BLOCK)[:, None]                              # first block that holds an answer token
    start = window_starts(block, first)
    rate = block_rates(block, first, start)
    mask = (torch.rand(B, L, device=dev) < rate.repeat_interleave(BLOCK, 1)) & (pos >= prompt[:, None])
    noisy = row.masked_fill(mask, ids.mask)

    b, s = pos // BLOCK, start.repeat_interleave(BLOCK, 1)
    sees_noisy = (s[:, :, None] == s[:, None, :]) & (b[None, None, :] <= b[None, :, None])
    sees_clean = b[None, None, :] < s[:, :, None]
    bias = additive(torch.cat((sees_noisy, sees_clean), 2)[:, None], dtype)
    clean_bias = additive(block_causal(L, BLOCK, dev)[None, None], dtype)
    masked = mask.view(B, n_blocks, BLOCK).sum(2).repeat_interleave(BLOCK, 1)
    weight = mask * (BLOCK / masked.clamp(min=1)).sqrt() * fill_weight(pos, prompt, answer)
    return torch.cat((noisy, row), 1), bias, clean_bias, weight


def window_starts(block, first):
    """[B, blocks]: the block at which the window of each block starts. Four rows in seven have windows of one block."""
    B, dev = len(first), first.device
    size = torch.randint(-2, 5, (B, 1), device=dev).clamp(min=1)    # 1, 1, 1, 1, 2, 3, 4
    offset = torch.randint(0, 4, (B, 1), device=dev) % size
    start = block - (block - first + offset) % size
    return torch.where(block < first, block, torch.maximum(start, first))


def block_rates(block, first, start):
    """[B, blocks]: mask rates, rising inside a window; often 1, since that is how every block begins."""
    B, n = start.shape
    u = torch.rand(B, n, device=start.device)
    u = torch.where(torch.rand(B, n, device=start.device) < 0.3, 1.0, u)
    rates = [u[:, 0]]
    for i in range(1, n):
        rates.append(torch.where(start[:, i] == i, u[:, i], rates[-1] + (1 - rates[-1]) * u[:, i]))
    return torch.stack(rates, 1)


def full_batch(row, prompt, answer, ids, dtype):
    B, L = row.shape
    dev, pos = row.device, torch.arange(L, device=row.device)
    need, room = -(-answer // BLOCK), (L - prompt) // BLOCK         # canvas: from just fitting to 96 tokens more
    canvas = torch.minimum(need + torch.randint(0, 4, (B,), device=dev), torch.maximum(room, need)) * BLOCK
    rel = pos - prompt[:, None]
    inside = (rel >= 0) & (rel < canvas[:, None])
    valid = rel < canvas[:, None]

    rate = torch.rand(B, 1, device=dev)
    rate = torch.where(torch.rand(B, 1, device=dev) < 0.1, 1.0, rate)
    current = (torch.rand(B, device=dev) * (need + 1).minimum(canvas // BLOCK)).long()[:, None]
    by_blocks = torch.rand(B, 1, device=dev) < 0.5
    which = rel // BLOCK
    rates = torch.where(by_blocks, (which > current) + (which == current) * rate, rate.expand(B, L))
    mask = (torch.rand(B, L, device=dev) < rates) & inside
    noisy = row.masked_fill(mask, ids.mask)
    weight = mask * rate.clamp(min=0.05).rsqrt() * fill_weight(pos, prompt, answer)
    weight = torch.where(by_blocks & (which > current), 0.3 * weight, weight)
    bias = additive(valid[:, None, None, :].expand(B, 1, L, L), dtype)
    return noisy, bias, None, weight


def fill_weight(pos, prompt, answer):
    return torch.where(pos < (prompt + answer)[:, None], 1.0, FILL_WEIGHT)


BATCH = {"block": block_batch, "full": full_batch}
