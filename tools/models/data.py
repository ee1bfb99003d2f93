"""Training chats as token matrices.

`build` makes chats with all CPU cores and sorts them into length buckets. A row is prompt + answer + end token, filled up
with end-of-text tokens; the fill is part of what the models learn, since decoding starts from a canvas longer than the
answer.
"""
import os
from multiprocessing import Pool

import numpy as np
import torch

import tasks
from checkpoint import load_tokenizer, render

BUCKETS = (128, 192, 448)


class Bucket:
    """Rows of one length: ids [N, length], prompt and answer lengths [N]; the answer's includes its end token."""

    def __init__(self, length, ids, prompt, answer):
        self.length, self.ids, self.prompt, self.answer = length, ids, prompt, answer

    def to(self, device):
        return Bucket(self.length, *(torch.from_numpy(a).to(device) for a in (self.ids, self.prompt, self.answer)))

    def rows(self, index):
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


def build(folder, family, count, seed, workers):
    """`count` chats in all, as a list of Bucket."""
    jobs = [(str(folder), family, seed * 100_003 + i, 5000) for i in range(-(-count // 5000))]
    with Pool(workers) as pool:
        parts = pool.map(encode_chats, jobs, chunksize=1)
    return [Bucket(n, *(np.concatenate([p[i][j] for p in parts]) for j in range(3))) for i, n in enumerate(BUCKETS)]
