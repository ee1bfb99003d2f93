"""The registry of task kinds, the held-out split, and what the generators share.

A *kind* is a function that takes a random.Random and returns (prompt, answer); the decorator `kind` registers it.
"""
import zlib

import words as W

KINDS = {}      # name -> (generator, weight, fixed), in order of definition


def kind(weight=1.0, fixed=False):
    def register(generate):
        KINDS[generate.__name__] = (generate, weight, fixed)
        return generate
    return register


def is_held_out(prompt):
    return zlib.crc32(prompt.encode()) % 25 == 0


def draw_kind(rng, name, held_out):
    """One sample of a kind from the wanted side of the split."""
    generate, _, fixed = KINDS[name]
    while True:
        prompt, answer = generate(rng)
        if fixed or is_held_out(prompt) == held_out:
            return prompt, answer


def draw(rng, held_out=False):
    """One sample of a random kind: (kind, prompt, answer)."""
    names = list(KINDS)
    name = rng.choices(names, [KINDS[n][1] for n in names])[0]
    return (name, *draw_kind(rng, name, held_out))


def number(rng):
    """A number in 0..999, short ones about as often as long ones."""
    return rng.randint(0, 10 ** rng.randint(1, 3) - 1)


def numbers(rng, low, high):
    top = rng.choice((20, 99, 99))
    return rng.sample(range(top + 1), rng.randint(low, high))


def syllables(rng):
    return "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(("", "", "n", "r", "s", "t", "l"))
                   for _ in range(rng.randint(1, 3)))


def word(rng):
    """Mostly a common word, sometimes an invented one, so that spelling is learnt and not only remembered."""
    return syllables(rng) if rng.random() < 0.2 else rng.choice(W.THINGS + W.ADJECTIVES)


def some_words(rng, low, high):
    chosen = []
    want = rng.randint(low, high)
    while len(chosen) < want:
        w = word(rng)
        if w not in chosen:
            chosen.append(w)
    return chosen


def clause(rng):
    """Subject, verb, object: 4 to 9 words in lower case."""
    thing = lambda: (rng.choice(W.ADJECTIVES) + " " if rng.random() < 0.5 else "") + rng.choice(W.THINGS)
    who = rng.choice(("the " + thing(), "the " + thing(), "my " + thing(), rng.choice(W.NAMES).lower()))
    tail = rng.choice(("", "", " in the " + rng.choice(W.THINGS), " near the " + rng.choice(W.THINGS), " today", " every day"))
    return f"{who} {rng.choice(W.VERBS)} {rng.choice(('the', 'my', 'one', 'her'))} {thing()}{tail}"


def sentence(rng):
    """One or two clauses, without a full stop."""
    return clause(rng) if rng.random() < 0.5 else f"{clause(rng)} {rng.choice(('and', 'but', 'when'))} {clause(rng)}"


def ask(rng, *forms):
    """One of the wordings; its final mark is left off now and then, and it may be polite or in lower case."""
    text = rng.choice(forms)
    if rng.random() < 0.1 and text[-1] in ".?":
        text = text[:-1]
    if rng.random() < 0.08 and "?" not in text and text[0] != "W":
        text = "Please " + text[0].lower() + text[1:]
    elif rng.random() < 0.05:
        text = text[0].lower() + text[1:]
    return text


def plural(n, noun):
    """noun is a plural such as "apples"."""
    return f"{n} {noun[:-1] if n == 1 else noun}"
