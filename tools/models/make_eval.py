"""Writes the evaluation set: held-out instructions, kinds balanced and interleaved.

    python3 make_eval.py OUT.jsonl [COUNT]

Round by round, each round holds every kind once in a new order, so any prefix is a fair sample of the whole. Kinds without
a held-out side (small talk) come in every third round.
"""
import json
import random
import sys

import tasks


def instructions(count, seed=20):
    rng, seen, rows, turn = random.Random(seed), set(), [], 0
    while len(rows) < count:
        names = [n for n, (_, _, fixed) in tasks.KINDS.items() if not fixed or turn % 3 == 0]
        rng.shuffle(names)
        for name in names:
            prompt, answer = tasks.draw_kind(rng, name, held_out=True)
            while prompt in seen:
                prompt, answer = tasks.draw_kind(rng, name, held_out=True)
            seen.add(prompt)
            rows.append(dict(id=f"{name}-{len(rows):03d}", kind=name, prompt=prompt, answer=answer))
        turn += 1
    return rows[:count]


def main():
    path, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with open(path, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in instructions(count))
    print(f"{path}: {count} instructions")


if __name__ == "__main__":
    main()
