"""Trains one of the bundled models and writes its checkpoint.

    python3 train.py --family block --out DIR --wall 560 --state state.pt --eval ../../models/eval*.jsonl

DIR must hold the tokenizer. The run ends within --wall seconds: it compiles while worker processes make the first data,
trains while they make more, and evaluates in the last --reserve seconds. With several GPUs each has a process, a rank, that
makes its own data and computes its share of each step. The learning rate follows the clock, so the training always reaches
its end. A longer training (--seconds) takes several runs. Such a training, and one that was cut off, goes on from the file
--state when the same command is run again. The weights written are an exponential moving average.

--from DIR begins with the weights of another folder, for a short training at a lower rate:

    python3 train.py --family block --out DIR --from ../../models/tiny-block --lr 1e-3 --wall 560
"""
import argparse
import json
import math
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from checkpoint import load_model, load_tokenizer, save_weights, write_config
from data import Feed
from decode import evaluate_sets, show
from model import SHAPES, Transformer, shape_of, shape_of_config
from objectives import BATCH
from optimizer import Optimizer

SAVE_INTERVAL = 60          # seconds between two files of state
CLOCK_STEPS = 5             # steps between two looks at the clock
FIRST_PARTS = 16            # parts of the data to wait for: each has 5,000 chats


def options():
    opt = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    opt.add_argument("--family", choices=SHAPES, required=True)
    opt.add_argument("--out", required=True)
    opt.add_argument("--from", dest="source", metavar="DIR", help="begin with the weights of this folder, which also gives the shape")
    opt.add_argument("--shape", help="layers x hidden size x feed-forward size, such as 5x320x768")
    opt.add_argument("--seconds", type=float, default=0, help="duration of the training, over all runs; 0: what this run has")
    opt.add_argument("--wall", type=float, default=560, help="duration of this run, with compilation and evaluation")
    opt.add_argument("--begin", type=float, default=time.time(), help="when --wall began, in seconds since 1970; now by default")
    opt.add_argument("--reserve", type=float, help="seconds of --wall that the evaluation needs; 70 by default, 5 without evaluation")
    opt.add_argument("--state", help="file to go on from; it is written each minute")
    opt.add_argument("--eval", nargs="*", default=[], help="evaluation sets; results go to OUT/training.json")
    opt.add_argument("--no-eval", dest="eval", action="store_const", const=[], help="no evaluation; give it behind --eval")
    opt.add_argument("--eval-count", type=int, help="prompts of each set; all by default")
    opt.add_argument("--samples", type=int, default=16_000_000, help="chats at most, over all ranks")
    opt.add_argument("--tokens", type=int, default=65536, help="tokens per step over all ranks (one stream)")
    opt.add_argument("--lr", type=float, default=3e-3)
    opt.add_argument("--ema", type=float, default=0.998)
    opt.add_argument("--seed", type=int, default=1)
    opt.add_argument("--ranks", type=int, help="processes that train together; the number of GPUs by default")
    opt.add_argument("--workers", type=int, help="processes of a rank that make data; two less than it has cores by default")
    opt.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    opt.add_argument("--no-compile", dest="compile", action="store_false")
    a = opt.parse_args()
    a.ranks = a.ranks or (torch.cuda.device_count() if a.device == "cuda" else 1)
    a.workers = a.workers or max(os.cpu_count() // a.ranks - 2, 1)
    a.reserve = a.reserve if a.reserve is not None else 70 if a.eval else 5
    if a.source and a.shape:
        opt.error("--from gives the shape: leave out --shape")
    return a


def shape_to_train(a):
    """The shape that --from or --shape gives, or the family's own."""
    if not a.source:
        return shape_of(a.family, a.shape)
    shape = shape_of_config(json.loads((Path(a.source) / "config.json").read_text()))
    if shape.family != a.family:
        raise SystemExit(f"--from {a.source}: expected weights of the family {a.family}, found {shape.family}")
    return shape


def agreed(*values):
    """The numbers that rank 0 has."""
    if not dist.is_initialized():
        return values
    numbers = torch.tensor(values, dtype=torch.float64)
    dist.broadcast(numbers, 0)
    return numbers.tolist()


class Trainer:
    def __init__(self, a, rank, shape, feed, ids):
        self.a, self.rank, self.shape, self.ids, self.feed = a, rank, shape, ids, feed
        self.steps, self.rows, self.seconds, self.total, self.runs = 0, 0, 0.0, a.seconds, 0
        self.dtype = torch.float32 if a.device == "cpu" else torch.bfloat16
        self.model = Transformer(shape).to(a.device)
        if a.source:
            self.model.load_state_dict(load_model(a.source, a.device)[1].state_dict())
        self.optimizer = Optimizer(self.model, a.lr)
        self.batch, self.tail = BATCH[a.family], self.tail_loss
        if a.compile:           # all layers share their compiled code: that compiles much faster than the whole model
            torch._dynamo.config.recompile_limit = 64
            for layer in self.model.layers:
                layer.compile(dynamic=False)
            self.batch, self.tail = (torch.compile(f, dynamic=False) for f in (self.batch, self.tail))

    def tail_loss(self, x, weight, target):
        loss = F.cross_entropy(self.model.logits(x).float().flatten(0, 1), target.flatten(), reduction="none")
        return (loss * weight.flatten()).sum() / weight.sum().clamp(min=1)

    def gradient(self, bucket):
        """One batch of a bucket, forward and backward. Returns its loss."""
        row, prompt, answer = bucket.sample(self.batch_size(bucket))
        noisy, bias, clean_bias, weight = self.batch(row, prompt, answer, self.ids, self.dtype)
        with torch.autocast(self.a.device, torch.bfloat16, enabled=self.a.device != "cpu"):
            loss = self.tail(self.model.hidden(noisy, bias, clean_bias), weight, row)
        loss.backward()
        self.optimizer.gather()
        return loss.detach()

    def batch_size(self, bucket):
        """Rows of this rank in a step."""
        return max(self.a.tokens // self.a.ranks // bucket.length, 1)

    def step(self, bucket, rate):
        loss = self.gradient(bucket)
        self.optimizer.step(rate)
        self.optimizer.update_average(min(self.a.ema, (1 + self.steps) / (10 + self.steps)))
        self.steps, self.rows = self.steps + 1, self.rows + self.batch_size(bucket) * self.a.ranks
        return loss

    def save(self):
        """Writes the weights, and the state from which a later run goes on."""
        if self.rank > 0:
            return
        save_weights(self.a.out, self.shape, self.optimizer.averages())
        if self.a.state:
            counts = (self.steps, self.rows, self.seconds, self.total, self.runs)
            torch.save(dict(self.optimizer.state(), counts=counts), f"{self.a.state}.new")
            os.replace(f"{self.a.state}.new", self.a.state)

    def load(self):
        state = torch.load(self.a.state, map_location=self.a.device)
        self.optimizer.load(state)
        self.steps, self.rows, self.seconds, self.total, self.runs = state["counts"]

    def usable(self):
        """The buckets that hold rows on every rank, and their shares."""
        sizes = torch.tensor([float(b.size) for b in self.feed.buckets])
        if dist.is_initialized():
            dist.all_reduce(sizes, dist.ReduceOp.MIN)
        return [b for b, n in zip(self.feed.buckets, sizes) if n], sizes[sizes > 0]

    def run(self):
        """Trains until the training or the time of this run is over. Returns whether the training is over."""
        self.feed.begin(FIRST_PARTS, self.a.device)
        buckets, share = self.usable()
        begun = time.time() - self.a.begin
        for b in buckets:                               # compile outside the clock, with no step
            self.gradient(b)
        if self.a.state and Path(self.a.state).exists():
            self.load()
        end = self.a.begin + self.a.wall - self.a.reserve
        self.total, = agreed(self.total or end - time.time())
        if self.total <= 0:
            raise SystemExit("data and compilation leave no time for the training: raise --wall")
        if self.rank == 0:
            print(f"first data after {begun:.0f} s: {[(b.length, b.size) for b in buckets]}; first step after "
                  f"{time.time() - self.a.begin:.0f} s; {self.seconds:.0f} of {self.total:.0f} s are trained", flush=True)
        self.runs += 1
        self.loop(buckets, share, end)
        self.save()
        return self.seconds >= 0.99 * self.total      # the clock may strike between two looks

    def loop(self, buckets, share, end):
        before, begin, saved = self.seconds, time.time(), time.time()
        choice = torch.Generator().manual_seed(self.a.seed + self.steps)        # the same on all ranks
        is_over = False
        while not is_over:
            loss = self.step(buckets[int(torch.multinomial(share, 1, generator=choice))], schedule(self.seconds / self.total))
            self.feed.take()
            if self.steps % CLOCK_STEPS == 0:
                self.seconds, is_over = agreed(before + time.time() - begin, time.time() >= end)
                is_over = is_over or self.seconds >= self.total
            if self.steps % 500 == 0 and self.rank == 0:
                print(f"step {self.steps} loss {loss.item():.4f} {100 * self.seconds / self.total:.0f} %, "
                      f"{self.feed.made()} chats made", flush=True)
            if time.time() - saved > SAVE_INTERVAL:
                self.save()
                saved = time.time()


def schedule(progress):
    """Short warm-up, then a cosine to zero."""
    return min(1.0, progress / 0.02) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def train(rank, a, meeting):
    """One rank: its data, its share of the training, and, on rank 0, the files."""
    tok, ids = load_tokenizer(a.out, a.family)
    resumed = bool(a.state and Path(a.state).exists())
    feed = Feed(a.out, a.family, a.samples, a.seed + 1000 * resumed, a.workers, rank, a.ranks)
    if meeting:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("cpu:gloo,cuda:nccl" if a.device == "cuda" else "gloo", init_method=meeting, rank=rank, world_size=a.ranks)
    if a.device == "cuda":
        torch.cuda.set_device(rank)
    torch.manual_seed(a.seed)                                   # the same weights on all ranks
    trainer = Trainer(a, rank, shape_to_train(a), feed, ids)
    torch.manual_seed(a.seed + 1000 * resumed + rank)           # other rows
    done = trainer.run()
    made = feed.made()
    feed.close()
    if meeting:
        dist.destroy_process_group()
    if rank == 0:
        finish(a, trainer, tok, ids, made, done)


def finish(a, trainer, tok, ids, chats, done):
    """Writes the record, and evaluates what was trained."""
    optimizer = trainer.optimizer
    made = dict(steps=trainer.steps, rows=trainer.rows, seconds=round(trainer.seconds), runs=trainer.runs, samples=chats,
                learning_rate=a.lr, seed=a.seed, parameters=optimizer.flat.numel(), ranks=a.ranks,
                device=torch.cuda.get_device_name() if a.device == "cuda" else a.device, complete=done)
    print(f"{a.family}: {made}, {time.time() - a.begin:.0f} s in all", flush=True)
    record = Path(a.out) / "training.json"
    record.write_text(json.dumps(dict(training=made), indent=1))
    if not done:
        print(f"the time is over before the training: run the same command again to go on from {a.state}", flush=True)
        return
    if not a.eval:
        return
    model = Transformer(trainer.shape).to(a.device).eval()
    model.load_state_dict({n: t.bfloat16().float() for n, t in optimizer.averages().items()})
    results = evaluate_sets(a.family, model, tok, ids, a.eval, a.device, a.eval_count)
    show(results)
    record.write_text(json.dumps(dict(training=made, results=results), indent=1))


def main():
    a = options()
    write_config(a.out, a.family, load_tokenizer(a.out, a.family)[1], shape_to_train(a))
    if a.ranks == 1:
        return train(0, a, None)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (a, f"file://{folder}/ranks"), a.ranks)


if __name__ == "__main__":
    main()
