"""Reference decoders and evaluation.

    python3 decode.py --model DIR --eval eval.jsonl eval-loose.jsonl [--device cuda]

tiny-block: several blocks in flight (`multi_bd`), greedy, with 1, 2 and 4 blocks in the buffer. A pass recomputes the
whole sequence under the block-causal mask, with the same result as a cache of committed blocks.
tiny-full: low-confidence remasking with a fixed number of tokens per step.

Tokens per forward: the tokens of the answers, without the end token, divided by all passes. The prefill counts, and so
do passes that only commit a block. `unmask eval` counts the same way.
"""
import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from checkpoint import BLOCK, load_model, load_tokenizer, render
from foreign import HONEST
from model import additive, block_causal

ACTIVE, TO_CACHE = 1, 2


class Request:
    """The state of one prompt: its tokens, and the blocks in flight after the cached ones."""

    def __init__(self, prompt, ids, buffer, threshold, max_tokens, grow_at=0.1, ready_at=0.9):
        self.ids, self.buffer, self.threshold, self.grow_at, self.ready_at = ids, buffer, threshold, grow_at, ready_at
        self.P, self.limit = len(prompt), len(prompt) + max_tokens
        blocks = -(-self.limit // BLOCK)
        self.x = np.full(blocks * BLOCK, ids.mask, np.int64)
        self.x[:self.P] = prompt
        self.head, self.status = self.P // BLOCK, [ACTIVE] if self.P % BLOCK else []
        self.passes, self.total, self.prefilled, self.done = 0, 0, False, False

    def masked(self, block):
        at = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.limit))
        return at[self.x[at] == self.ids.mask]

    def progress(self, block):
        return 1 - len(self.masked(block)) / BLOCK

    def prepare(self):
        """Starts at most one more block."""
        run, next_block = len(self.status), self.head + len(self.status)
        grow = 0 < run < self.buffer and self.progress(next_block - 1) >= self.grow_at
        kick = run == 0 and self.prefilled
        if (grow or kick) and next_block * BLOCK < self.limit and not np.isin(self.x[self.P:], list(self.ids.stop)).any():
            self.status.append(ACTIVE)

    @property
    def end(self):
        return (self.head + len(self.status)) * BLOCK

    def apply(self, token, confidence):
        """Accepts predictions of one pass. The decisions depend on the tokens before the pass."""
        accepted = []
        for i, status in enumerate(self.status):
            block = self.head + i
            at = self.masked(block)
            if status != ACTIVE or len(at) == 0:
                continue
            take = at[confidence[at] > self.threshold]
            if len(take) == 0 and (block == 0 or self.progress(block - 1) >= self.ready_at):
                take = at[[np.argmax(confidence[at])]]
            accepted.append(take)
        for take in accepted:
            self.x[take] = token[take]
        self.advance()
        self.passes += 1
        self.prefilled = True
        self.finish()

    def advance(self):
        """Drops committed blocks from the window, and schedules the commit pass of finished ones."""
        while self.status and self.status[0] == TO_CACHE:
            self.head, self.status = self.head + 1, self.status[1:]
        for i in range(len(self.status)):
            if len(self.masked(self.head + i)):
                break
            self.status[i] = TO_CACHE

    def finish(self):
        answer = self.x[self.P:self.limit]
        gaps, stops = np.flatnonzero(answer == self.ids.mask), np.flatnonzero(np.isin(answer, list(self.ids.stop)))
        filled = gaps[0] if len(gaps) else len(answer)
        if (len(stops) and stops[0] < filled) or filled == len(answer):
            self.done = True
            self.total = stops[0] if len(stops) and stops[0] < filled else filled


@torch.no_grad()
def best_tokens(model, x, bias, ids):
    """Most probable token (mask id and padding rows of the vocabulary excluded) and its probability, [B, T] each."""
    logits = model(x, bias).float()
    logits[..., ids.mask] = float("-inf")
    logits[..., ids.mask + 1:] = float("-inf")
    confidence, token = logits.softmax(-1).max(-1)
    return token, confidence


def decode_block(model, prompts, ids, device, buffer=1, threshold=0.95, max_tokens=128):
    requests = [Request(p, ids, buffer, threshold, max_tokens) for p in prompts]
    while live := [r for r in requests if not r.done]:
        for r in live:
            r.prepare()
        length = max(max(r.end for r in live), BLOCK)
        x = np.stack([np.pad(r.x, (0, length))[:length] for r in live])
        bias = additive(block_causal(length, BLOCK, device)[None, None])
        token, confidence = (t.cpu().numpy() for t in best_tokens(model, torch.from_numpy(x).to(device), bias, ids))
        for r, t, c in zip(live, token, confidence):
            r.apply(t, c)
    return requests


def decode_full(model, prompts, ids, device, gen_length=128, block_length=32, steps=128):
    """Answers [B, gen_length]: each step writes the positions of the current block with the highest confidence."""
    B, length = len(prompts), max(map(len, prompts)) + gen_length
    start = torch.tensor([len(p) for p in prompts], device=device)[:, None]
    rel = torch.arange(length, device=device) - start
    x = torch.full((B, length), ids.mask, device=device)
    for i, p in enumerate(prompts):
        x[i, :len(p)] = torch.tensor(p, device=device)
    bias = additive((rel < gen_length)[:, None, None, :].expand(B, 1, length, length))
    blocks = gen_length // block_length
    for b in range(blocks):
        current = (rel >= b * block_length) & (rel < (b + 1) * block_length)
        per_block = steps // blocks
        for s in range(per_block):
            count = block_length // per_block + (s < block_length % per_block)
            token, confidence = best_tokens(model, x, bias, ids)
            confidence[~current | (x != ids.mask)] = -1
            chosen = confidence.topk(count, -1).indices
            x.scatter_(1, chosen, token.gather(1, chosen))
    return torch.stack([x[i, len(p):len(p) + gen_length] for i, p in enumerate(prompts)]).cpu().numpy()


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation

def answer_text(tok, ids, tokens):
    stop = next((i for i, t in enumerate(tokens) if t in ids.stop), len(tokens))
    return tok.decode([int(t) for t in tokens[:stop]])


def score(rows, texts):
    kinds = defaultdict(list)
    for row, text in zip(rows, texts):
        kinds[row["kind"]].append(text == row["answer"])
    wrong = [dict(prompt=r["prompt"], answer=r["answer"], got=t) for r, t in zip(rows, texts) if t != r["answer"]]
    return dict(exact=float(np.mean([ok for v in kinds.values() for ok in v])), honest=sum(t == HONEST for t in texts),
                by_kind={k: float(np.mean(v)) for k, v in sorted(kinds.items())}, wrong=wrong)


def evaluate_block(model, tok, ids, rows, device, buffers=(1, 4), threshold=0.95):
    prompts = [tok.encode(render("block", [("user", r["prompt"])]), add_special_tokens=False).ids for r in rows]
    out = {}
    for k in buffers:
        done = decode_block(model, prompts, ids, device, k, threshold)
        result = score(rows, [answer_text(tok, ids, r.x[r.P:r.limit]) for r in done])
        tokens, passes = int(sum(r.total for r in done)), sum(r.passes for r in done)
        result.update(tokens=tokens, passes=passes, tokens_per_forward=tokens / passes)
        out[f"{k} block{'s' if k > 1 else ''}, threshold {threshold}"] = result
    return out


FULL_SETTINGS = ((128, 32, 64),)        # canvas, block, passes: what `unmask eval --steps 64` does


def evaluate_full(model, tok, ids, rows, device, settings=FULL_SETTINGS):
    out = {}
    for gen_length, block_length, steps in settings:
        part = [r for r in rows if len(tok.encode(r["answer"]).ids) < gen_length]
        prompts = [tok.encode(render("full", [("user", r["prompt"])]), add_special_tokens=False).ids for r in part]
        answers = decode_full(model, prompts, ids, device, gen_length, block_length, steps)
        result = score(part, [answer_text(tok, ids, a) for a in answers])
        tokens = sum(next((i for i, t in enumerate(a) if t in ids.stop), len(a)) for a in answers)
        result.update(tokens=tokens, passes=steps * len(part), tokens_per_forward=tokens / (steps * len(part)))
        out[f"canvas {gen_length}, block {block_length}, {steps} passes"] = result
    return out


EVALUATE = {"block": evaluate_block, "full": evaluate_full}


def evaluate_sets(family, model, tok, ids, paths, device, count=None):
    """{name of the set: {decoding: result}}. `honest` counts the honest answers of a set."""
    out = {}
    for path in paths:
        rows = [json.loads(line) for line in open(path)][:count]
        out[Path(path).stem] = EVALUATE[family](model, tok, ids, rows, device)
    return out


def show(results):
    for name, decodings in results.items():
        for decoding, r in decodings.items():
            print(f"{name}, {decoding}: exact {100 * r['exact']:.1f} %, {r['honest']} honest answers, "
                  f"{r['tokens_per_forward']:.2f} tokens/forward")
            print("   " + ", ".join(f"{k} {100 * v:.0f}" for k, v in r["by_kind"].items() if v < 1), flush=True)


def main():
    opt = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    opt.add_argument("--model", required=True)
    opt.add_argument("--eval", nargs="+", required=True)
    opt.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    opt.add_argument("--count", type=int)
    opt.add_argument("--out", help="write the results as JSON")
    a = opt.parse_args()
    family, model = load_model(a.model, a.device)
    tok, ids = load_tokenizer(a.model, family)
    results = evaluate_sets(family, model, tok, ids, a.eval, a.device, a.count)
    show(results)
    if a.out:
        Path(a.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
