"""Writes an evaluation set.

    python3 make_eval.py strict|loose|foreign OUT.jsonl [COUNT]

    strict    the kinds in the plain templates, prompts held out
    loose     the same kinds as people type them: wordings that training never sees, and strangers.py
    foreign   prompts of no kind, from templates and words that training never sees, and strangers.py; all have the one
              honest answer

Kinds are balanced. Round by round, each round holds every kind once in a new order, so any prefix is a fair sample of the
whole. Kinds without a held-out side (small talk) come in every third round.
"""
import json
import sys

import strangers
import tasks


def rounds(rng, names, sample, count, fixed=()):
    """`count` rows of the kinds, in rounds. sample(name) returns (prompt, answer)."""
    seen, rows, turn = set(strangers.PROMPTS), [], 0
    while len(rows) < count:
        order = [n for n in names if n not in fixed or turn % 3 == 0]
        rng.shuffle(order)
        for name in order:
            prompt, answer = sample(name)
            tries = 0
            while prompt in seen and tries < 200:
                prompt, answer = sample(name)
                tries += 1
            seen.add(prompt)
            rows.append(dict(kind=name, prompt=prompt, answer=answer))
        turn += 1
    return rows[:count]


def mixed(rows, own):
    """Both lists, the second spread evenly over the first."""
    every = (len(rows) + len(own)) // len(own)
    for i, row in enumerate(own):
        rows.insert(i * every, row)
    return rows


FIXED = [n for n, (_, _, is_fixed) in tasks.KINDS.items() if is_fixed]


def kinds(rng, count):
    return rounds(rng, list(tasks.KINDS), lambda n: tasks.draw_kind(rng, n, held_out=True), count, FIXED)


def loose(rng, count):
    rng.style = tasks.HELD
    own = [dict(kind=k, prompt=p, answer=a) for k, p, a in strangers.LOOSE]
    return mixed(kinds(rng, count - len(own)), own)


def held_foreign(rng, name):
    """A prompt whose text is held out, too, so that no training chat has it."""
    while True:
        prompt = tasks.FOREIGN[name][0](rng, True)
        if prompt.strip() and tasks.is_held_out(prompt):
            return prompt, tasks.HONEST


def foreign(rng, count):
    own = [dict(kind="foreign_stranger", prompt=p, answer=tasks.HONEST) for p in strangers.FOREIGN]
    return mixed(rounds(rng, list(tasks.FOREIGN), lambda n: held_foreign(rng, n), count - len(own)), own)


def main():
    kind, path = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    rng = tasks.Source(20)
    rows = dict(strict=kinds, loose=loose, foreign=foreign)[kind](rng, count)
    with open(path, "w") as f:
        for i, row in enumerate(rows):
            f.write(json.dumps(dict(id=f"{row['kind']}-{i:03d}", **row), ensure_ascii=False) + "\n")
    print(f"{path}: {len(rows)} prompts")


if __name__ == "__main__":
    main()
