"""Trains one of the bundled models and writes its checkpoint.

    python3 train.py --family block --out ../../models/tiny-block --seconds 440 --eval ../../models/eval.jsonl

The folder must hold the tokenizer already (checkpoint.py writes it). The learning rate follows the clock: training takes
--seconds after the data is made and the graphs are compiled. The weights written are an exponential moving average.
"""
import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import data
from checkpoint import load_tokenizer, save_weights
from decode import EVALUATE, show
from model import SHAPES, Transformer
from objectives import BATCH


def options():
    opt = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    opt.add_argument("--family", choices=SHAPES, required=True)
    opt.add_argument("--out", required=True)
    opt.add_argument("--seconds", type=float, default=440)
    opt.add_argument("--eval", help="evaluation set; results go to OUT/results.json")
    opt.add_argument("--samples", type=int, default=3_000_000)
    opt.add_argument("--tokens", type=int, default=65536, help="tokens per step (one stream)")
    opt.add_argument("--lr", type=float, default=3e-3)
    opt.add_argument("--ema", type=float, default=0.998)
    opt.add_argument("--seed", type=int, default=1)
    opt.add_argument("--workers", type=int, default=os.cpu_count())
    opt.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    opt.add_argument("--no-compile", dest="compile", action="store_false")
    return opt.parse_args()


class Trainer:
    def __init__(self, a, buckets, ids):
        self.a, self.ids, self.buckets = a, ids, buckets
        self.model = Transformer(SHAPES[a.family]).to(a.device)
        self.params = dict(self.model.named_parameters())
        self.average = {n: p.detach().clone() for n, p in self.params.items()}
        matrices = [p for n, p in self.params.items() if p.dim() == 2 and n.startswith("layers")]
        others = [p for n, p in self.params.items() if p.dim() != 2 or not n.startswith("layers")]
        self.optimizers = [
            torch.optim.Muon(matrices, lr=a.lr, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=a.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=a.device != "cpu")]
        self.loss = torch.compile(self.batch_loss) if a.compile else self.batch_loss
        self.share = torch.tensor([len(b.ids) for b in buckets], dtype=torch.float)

    def batch_loss(self, noisy, bias, clean_bias, weight, target):
        with torch.autocast(self.a.device, torch.bfloat16):
            logits = self.model(noisy, bias, clean_bias)
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
        return (loss * weight.flatten()).sum() / weight.sum().clamp(min=1)

    def step(self, bucket, rate):
        index = torch.randint(len(bucket.ids), (max(self.a.tokens // bucket.length, 1),), device=self.a.device)
        row, prompt, answer = bucket.rows(index)
        noisy, bias, clean_bias, weight = BATCH[self.a.family](row, prompt, answer, self.ids, torch.bfloat16)
        loss = self.loss(noisy, bias, clean_bias, weight, row)
        loss.backward()
        for o in self.optimizers:
            for group in o.param_groups:
                group["lr"] = self.a.lr * rate
            o.step()
            o.zero_grad(set_to_none=True)
        return loss.detach()

    def update_average(self, step):
        decay = min(self.a.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.average.values()), [p.detach() for p in self.params.values()], 1 - decay)

    def run(self):
        """Returns the number of steps and of rows seen."""
        for b in self.buckets:                          # compile outside the clock; a rate of 0 changes nothing
            self.step(b, 0.0)
        step, rows, begin, last = 0, 0, time.time(), time.time()
        while (progress := (time.time() - begin) / self.a.seconds) < 1:
            bucket = self.buckets[int(torch.multinomial(self.share, 1))]
            loss = self.step(bucket, schedule(progress))
            self.update_average(step)
            step, rows = step + 1, rows + self.a.tokens // bucket.length
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f} {1000 * (time.time() - last) / 100:.0f} ms/step "
                      f"{100 * progress:.0f} %", flush=True)
                last = time.time()
            if step % 1000 == 0:
                save_weights(self.a.out, self.a.family, self.average)
        save_weights(self.a.out, self.a.family, self.average)
        return step, rows, time.time() - begin


def schedule(progress):
    """Short warm-up, then a cosine to zero."""
    return min(1.0, progress / 0.02) * 0.5 * (1 + math.cos(math.pi * progress))


def main():
    a = options()
    torch.manual_seed(a.seed)
    begin = time.time()
    tok, ids = load_tokenizer(a.out, a.family)
    buckets = data.build(a.out, a.family, a.samples, a.seed, a.workers)
    print(f"data: {[(b.length, len(b.ids)) for b in buckets]} in {time.time() - begin:.0f} s", flush=True)
    trainer = Trainer(a, [b.to(a.device) for b in buckets if len(b.ids)], ids)
    step, rows, seconds = trainer.run()
    print(f"{a.family}: {step} steps, {rows} rows, {seconds:.0f} s of training, {time.time() - begin:.0f} s in all", flush=True)
    if a.eval:
        model = Transformer(SHAPES[a.family]).to(a.device).eval()
        model.load_state_dict({n: t.bfloat16().float() for n, t in trainer.average.items()})
        results = EVALUATE[a.family](model, tok, ids, [json.loads(line) for line in open(a.eval)], a.device)
        show(results)
        made = dict(steps=step, rows=rows, seconds=round(seconds), samples=a.samples, learning_rate=a.lr, seed=a.seed)
        (Path(a.out) / "results.json").write_text(json.dumps(dict(training=made, results=results), indent=1))


if __name__ == "__main__":
    main()
