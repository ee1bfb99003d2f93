"""Training chats as token matrices, by length, made by worker processes while the training runs.

A row is prompt + answer + end token, filled up with end-of-text tokens; the fill is part of what the models learn, since
decoding starts from a canvas longer than the answer.
"""
import os
from contextlib import nullcontext
from multiprocessing import Pool, TimeoutError

import numpy as np
import torch

import tasks
from checkpoint import load_tokenizer, render

BUCKETS = (64, 96, 128, 160, 224, 448)      # the longest twentieth of the chats takes the last two
PART = 5000                                 # chats of a job


class Bucket:
    """Rows of one length: ids [N, length], prompt and answer lengths [N]; the answer's includes its end token."""

    def __init__(self, length, capacity, device):
        self.length, self.size = length, 0
        self.ids = torch.empty(capacity, length, dtype=torch.int16, device=device)
        self.prompt, self.answer = (torch.empty(capacity, dtype=torch.int16, device=device) for _ in range(2))

    def add(self, rows):
        """Takes rows over, as many as there is room for."""
        count = min(len(rows[0]), len(self.ids) - self.size)
        for mine, more in zip((self.ids, self.prompt, self.answer), rows):
            mine[self.size:self.size + count].copy_(torch.from_numpy(more[:count]))
        self.size += count

    def sample(self, count):
        index = torch.randint(self.size, (count,), device=self.ids.device)
        return self.ids[index].long(), self.prompt[index].long(), self.answer[index].long()


def encode_chats(job):
    """Worker: `count` chats of one seed, packed: (ids, prompt lengths, answer lengths) for each bucket."""
    folder, family, seed, count = job
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tok, ids = load_tokenizer(folder, family)
    rng = tasks.Source(seed)
    chats = [tasks.conversation(rng) for _ in range(count)]
    prompts = tok.encode_batch([render(family, c[:-1]) for c in chats], add_special_tokens=False)
    answers = tok.encode_batch([c[-1][1] for c in chats], add_special_tokens=False)
    rows = [[] for _ in BUCKETS]
    for p, a in zip(prompts, answers):
        total = len(p.ids) + len(a.ids) + 1
        room = total + 32 * rng.choice((0, 0, 1, 2))        # some rows get whole blocks of fill
        fits = [i for i, n in enumerate(BUCKETS) if room <= n]
        if fits:
            rows[fits[0]].append((p.ids, a.ids + [ids.end]))
    return [pack(r, n, ids.eos) for r, n in zip(rows, BUCKETS)]


def pack(rows, length, fill):
    ids = np.full((len(rows), length), fill, np.int16)
    for i, (p, a) in enumerate(rows):
        ids[i, :len(p)], ids[i, len(p):len(p) + len(a)] = p, a
    lengths = np.array([(len(p), len(a)) for p, a in rows], np.int16).reshape(-1, 2)
    return ids, lengths[:, 0].copy(), lengths[:, 1].copy()


class Feed:
    """`count` chats of all ranks: worker processes make this rank's, and `take` moves what is ready into buckets.

    Starts the workers at once: make it before the process uses a GPU.
    """

    def __init__(self, folder, family, count, seed, workers, rank=0, ranks=1):
        jobs = [(str(folder), family, seed * 100_003 + i, min(PART, count - i * PART)) for i in range(-(-count // PART))]
        jobs = jobs[rank::ranks] or jobs[:1]
        self.left = len(jobs)
        self.pool = Pool(workers, os.nice, (10,))           # the training goes first
        self.parts = self.pool.imap_unordered(encode_chats, jobs)
        self.buckets, self.stream = [], None

    def begin(self, parts, device):
        """Waits for some parts, and makes buckets with room for all chats by the shares of these."""
        first = [next(self.parts) for _ in range(min(parts, self.left))]
        self.stream = torch.cuda.Stream() if device == "cuda" else None
        for i, length in enumerate(BUCKETS):
            seen = sum(len(p[i][0]) for p in first)
            room = seen if len(first) == self.left else int(1.02 * seen / len(first) * (self.left + 1))
            self.buckets.append(Bucket(length, room, device))
        for part in first:
            self.add(part)

    def add(self, part):
        """Copies on a stream of its own, so that the copies don't wait for the training."""
        with torch.cuda.stream(self.stream) if self.stream else nullcontext():
            for bucket, rows in zip(self.buckets, part):
                bucket.add(rows)
        if self.stream:
            self.stream.synchronize()
        self.left -= 1

    def take(self):
        """Takes over one part if one is ready."""
        if self.left:
            try:
                self.add(self.parts.next(0))
            except TimeoutError:
                pass

    def made(self):
        """Chats that are in the buckets."""
        return sum(b.size for b in self.buckets)

    def close(self):
        self.pool.terminate()
