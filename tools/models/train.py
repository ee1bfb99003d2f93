"""Trains one of the bundled models and writes its checkpoint.

    python3 train.py --family block --out DIR --wall 560 --state state.pt --eval ../../models/eval*.jsonl

DIR must hold the tokenizer. The run ends within --wall seconds: it makes the data, compiles, trains, and evaluates in
the last --reserve of them. The learning rate follows the clock, so the training always reaches its end. A longer training
(--seconds) takes several runs. Such a training, and one that was cut off, goes on from the file --state when the same
command is run again. The weights written are an exponential moving average.
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
from checkpoint import load_tokenizer, save_weights, write_config
from decode import evaluate_sets, show
from model import SHAPES, Transformer, shape_of
from objectives import BATCH

SAVE_INTERVAL = 60          # seconds between two files of state


def options():
    opt = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    opt.add_argument("--family", choices=SHAPES, required=True)
    opt.add_argument("--out", required=True)
    opt.add_argument("--shape", help="layers x hidden size x feed-forward size, such as 5x320x768")
    opt.add_argument("--seconds", type=float, default=0, help="duration of the training, over all runs; 0: what this run has")
    opt.add_argument("--wall", type=float, default=560, help="duration of this run, with data and evaluation")
    opt.add_argument("--reserve", type=float, default=70, help="seconds of --wall that the evaluation needs")
    opt.add_argument("--state", help="file to go on from; it is written each minute")
    opt.add_argument("--eval", nargs="*", default=[], help="evaluation sets; results go to OUT/training.json")
    opt.add_argument("--eval-count", type=int, help="prompts of each set; all by default")
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
    def __init__(self, a, shape, buckets, ids, begin):
        self.a, self.shape, self.ids, self.buckets, self.begin = a, shape, ids, buckets, begin
        self.steps, self.rows, self.seconds, self.total, self.runs = 0, 0, 0.0, a.seconds, 0
        self.dtype = torch.float32 if a.device == "cpu" else torch.bfloat16
        self.model = Transformer(shape).to(a.device)
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
        with torch.autocast(self.a.device, torch.bfloat16, enabled=self.a.device != "cpu"):
            logits = self.model(noisy, bias, clean_bias)
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
        return (loss * weight.flatten()).sum() / weight.sum().clamp(min=1)

    def step(self, bucket, rate):
        index = torch.randint(len(bucket.ids), (max(self.a.tokens // bucket.length, 1),), device=self.a.device)
        row, prompt, answer = bucket.rows(index)
        noisy, bias, clean_bias, weight = BATCH[self.a.family](row, prompt, answer, self.ids, self.dtype)
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

    def save(self):
        """Writes the weights, and the state from which a later run goes on."""
        save_weights(self.a.out, self.shape, self.average)
        if not self.a.state:
            return
        torch.save(dict(params={n: p.detach() for n, p in self.params.items()}, average=self.average,
                        optimizers=[o.state_dict() for o in self.optimizers],
                        counts=(self.steps, self.rows, self.seconds, self.total, self.runs)), f"{self.a.state}.new")
        os.replace(f"{self.a.state}.new", self.a.state)

    def load(self):
        state = torch.load(self.a.state, map_location=self.a.device)
        with torch.no_grad():
            for n, p in self.params.items():
                p.copy_(state["params"][n])
        self.average = state["average"]
        for o, saved in zip(self.optimizers, state["optimizers"]):
            o.load_state_dict(saved)
        self.steps, self.rows, self.seconds, self.total, self.runs = state["counts"]

    def run(self):
        """Trains until the training or the time of this run is over. Returns whether the training is over."""
        for b in self.buckets:                          # compile outside the clock; a rate of 0 changes nothing
            self.step(b, 0.0)
        if self.a.state and Path(self.a.state).exists():
            self.load()
        end = self.begin + self.a.wall - self.a.reserve
        if not self.total:
            self.total = end - time.time()
            if self.total <= 0:
                raise SystemExit("data and compilation leave no time for the training: raise --wall, or lower --samples")
        print(f"first step after {time.time() - self.begin:.0f} s; {self.seconds:.0f} of {self.total:.0f} s are trained", flush=True)
        self.runs += 1
        before, begin, saved = self.seconds, time.time(), time.time()
        while (progress := self.seconds / self.total) < 1 and time.time() < end:
            bucket = self.buckets[int(torch.multinomial(self.share, 1))]
            loss = self.step(bucket, schedule(progress))
            self.update_average(self.steps)
            self.steps, self.rows = self.steps + 1, self.rows + self.a.tokens // bucket.length
            if self.steps % 100 == 0:
                print(f"step {self.steps} loss {loss.item():.4f} {100 * progress:.0f} %", flush=True)
            self.seconds = before + time.time() - begin
            if time.time() - saved > SAVE_INTERVAL:
                self.save()
                saved = time.time()
        self.save()
        return self.seconds >= 0.99 * self.total      # the clock may strike between two steps


def schedule(progress):
    """Short warm-up, then a cosine to zero."""
    return min(1.0, progress / 0.02) * 0.5 * (1 + math.cos(math.pi * progress))


def main():
    a = options()
    begin = time.time()
    tok, ids = load_tokenizer(a.out, a.family)
    shape = shape_of(a.family, a.shape)
    write_config(a.out, a.family, ids, shape)
    resumed = bool(a.state and Path(a.state).exists())
    torch.manual_seed(a.seed + resumed)
    buckets = data.build(a.out, a.family, a.samples, a.seed + 1000 * resumed, a.workers)
    print(f"data: {[(b.length, len(b.ids)) for b in buckets]} in {time.time() - begin:.0f} s", flush=True)
    trainer = Trainer(a, shape, [b.to(a.device) for b in buckets if len(b.ids)], ids, begin)
    done = trainer.run()
    made = dict(steps=trainer.steps, rows=trainer.rows, seconds=round(trainer.seconds), runs=trainer.runs, samples=a.samples,
                learning_rate=a.lr, seed=a.seed, parameters=sum(p.numel() for p in trainer.params.values()),
                device=torch.cuda.get_device_name() if a.device == "cuda" else a.device, complete=done)
    print(f"{a.family}: {made}, {time.time() - begin:.0f} s in all", flush=True)
    record = Path(a.out) / "training.json"
    record.write_text(json.dumps(dict(training=made), indent=1))
    if not done:
        print(f"the time is over before the training: run the same command again to go on from {a.state}", flush=True)
        return
    model = Transformer(shape).to(a.device).eval()
    model.load_state_dict({n: t.bfloat16().float() for n, t in trainer.average.items()})
    results = evaluate_sets(a.family, model, tok, ids, a.eval, a.device, a.eval_count)
    show(results)
    record.write_text(json.dumps(dict(training=made, results=results), indent=1))


if __name__ == "__main__":
    main()
