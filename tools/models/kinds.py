"""The registry of task kinds, the held-out split, and what the generators share.

A *kind* is a function that takes a Source and returns (prompt, answer); the decorator `kind` registers it. The style of
the source decides the wording of the prompt, never the answer:

    STRICT  the plain templates, with their usual punctuation
    LOOSE   any wording, case, spacing and punctuation (wording.py)
    HELD    like LOOSE, with wordings that LOOSE never yields: for evaluation
"""
import random
import zlib

import strangers
import words as W
from wording import keep, surface, wordings

STRICT, LOOSE, HELD = "strict", "loose", "held"
KINDS = {}      # name -> (generator, weight, fixed), in order of definition


class Source(random.Random):
    """A random generator with a style of wording."""
    style = STRICT


def kind(weight=1.0, fixed=False):
    def register(generate):
        KINDS[generate.__name__] = (generate, weight, fixed)
        return generate
    return register


def is_held_out(prompt):
    return zlib.crc32(prompt.encode()) % 25 == 0 or prompt in strangers.PROMPTS


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


def ask(rng, *forms, loose=(), more=(), held=()):
    """A prompt. Payload in the forms must come from `keep` or one of the functions below.

    STRICT picks a form; its final mark is left off now and then, and it may be polite or in lower case. LOOSE also picks
    from `loose` and `more`, HELD from `loose` and `held`; wording.py says how alternatives are written. `more` is younger
    than the evaluation sets, which stay the same without it.
    """
    if rng.style != STRICT:
        loose += more if rng.style == LOOSE else ()
        return surface(rng, wordings(rng, forms, loose, held, rng.style == HELD), rng.style == HELD)
    text = rng.choice(forms)
    if rng.random() < 0.1 and text[-1] in ".?":
        text = text[:-1]
    if rng.random() < 0.08 and "?" not in text and text[0] != "W":
        text = "Please " + text[0].lower() + text[1:]
    elif rng.random() < 0.05:
        text = text[0].lower() + text[1:]
    return text


def plain(rng, *forms, loose=(), more=(), held=()):
    """Like `ask`; a strict form is used as it is."""
    return rng.choice(forms) if rng.style == STRICT else ask(rng, *forms, loose=loose, more=more, held=held)


# ---------------------------------------------------------------------------------------------------------------------
# Numbers

UNITS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen""".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def number(rng):
    """A number in 0..999, short ones about as often as long ones; seldom one of four digits."""
    if rng.style != STRICT and rng.random() < 0.05:
        return rng.randint(1000, 9999)
    return rng.randint(0, 10 ** rng.randint(1, 3) - 1)


def numbers(rng, low, high):
    top = rng.choice((20, 99, 99)) if rng.style == STRICT else rng.choice((9, 20, 99, 99, 999))
    return rng.sample(range(top + 1), rng.randint(low, min(high, top)))


def in_words(n):
    """n in 0..99 as a word."""
    return UNITS[n] if n < 20 else TENS[n // 10 - 2] + (f"-{UNITS[n % 10]}" if n % 10 else "")


def numeral(rng, n):
    """A number as payload. A loose prompt writes some numbers as words."""
    if rng.style == STRICT:
        return str(n)
    return keep(in_words(n) if n < 100 and rng.random() < 0.04 else str(n))


SIGNS = {"+": ("+", "+", "+", " plus "), "-": ("-", "-", "-", " minus ", " take away ", "\u2212", "\u2013"),
         "x": ("x", "*", "*", "x", "\u00d7", " times ", " multiplied by ", "X"), "/": ("/", "/", ":", "\u00f7", " divided by ", " over ")}


def expression(rng, sign, *ns):
    """The numbers with a sign between them: 12 + 30, 12+30, 12 plus 30."""
    if rng.style == STRICT:
        return f" {sign} ".join(map(str, ns))
    mark = rng.choice(SIGNS[sign])
    if len(mark) == 1:
        mark = rng.choice((f" {mark} ", mark, mark, f"{mark} ", f" {mark}"))
    if mark.strip().isalpha():
        return mark.join(numeral(rng, n) for n in ns)
    return keep(mark.join(map(str, ns)))


# ---------------------------------------------------------------------------------------------------------------------
# Lists and words

def listing(rng, items):
    """The items of a list as payload: separated by commas in a strict prompt, by anything in a loose one."""
    items = [str(x) for x in items]
    if rng.style == STRICT:
        return ", ".join(items)
    mark = rng.choice((", ", ", ", ",", " ", " ", "; ", " , ", "\n", " | ", ",  ", "  "))
    text = mark.join(items)
    if rng.random() < 0.12 and len(items) > 1:
        text = mark.join(items[:-1]) + rng.choice((" and ", ", and ", " & ")) + items[-1]
    if rng.random() < 0.06:
        text = rng.choice(("[%s]", "(%s)", "{%s}")) % text
    return keep(text)


def syllables(rng):
    return "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(("", "", "n", "r", "s", "t", "l"))
                   for _ in range(rng.randint(1, 3)))


def word(rng):
    """Mostly a common word, sometimes an invented one, so that spelling is learnt and not only remembered."""
    if rng.style == STRICT:
        return syllables(rng) if rng.random() < 0.2 else rng.choice(W.THINGS + W.ADJECTIVES)
    if rng.random() < 0.25:
        return syllables(rng)
    if rng.style == LOOSE and rng.random() < 0.25:
        return rng.choice(W.EVERYDAY)
    return rng.choice(rng.choice((W.THINGS, W.THINGS, W.MORE_THINGS, W.ADJECTIVES, W.VERBS, W.ITEMS, W.JOBS, W.COLORS)))


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
    things = W.THINGS if rng.style == STRICT else W.THINGS + W.MORE_THINGS
    thing = lambda: (rng.choice(W.ADJECTIVES) + " " if rng.random() < 0.5 else "") + rng.choice(things)
    who = rng.choice(("the " + thing(), "the " + thing(), "my " + thing(), person(rng).lower()))
    tail = rng.choice(("", "", " in the " + rng.choice(things), " near the " + rng.choice(things), " today", " every day"))
    text = f"{who} {rng.choice(W.VERBS)} {rng.choice(('the', 'my', 'one', 'her'))} {thing()}{tail}"
    return other_words(rng, text) if rng.style == LOOSE and rng.random() < 0.3 else text


def other_words(rng, text):
    """A few words of the text, some of them others that need not fit: what is copied should be read, not guessed."""
    words = text.split()
    if rng.random() < 0.4:
        words = words[:rng.randint(3, 5)]
    return " ".join(word(rng) if rng.random() < 0.3 else w for w in words)


def sentence(rng):
    """One or two clauses, without a full stop."""
    return clause(rng) if rng.random() < 0.5 else f"{clause(rng)} {rng.choice(('and', 'but', 'when'))} {clause(rng)}"


def person(rng):
    """A first name; a loose prompt has more of them, and invented ones."""
    if rng.style == STRICT:
        return rng.choice(W.NAMES)
    return syllables(rng).capitalize() if rng.random() < 0.1 else rng.choice(W.NAMES + W.MORE_NAMES)


def called(rng, name):
    """A name as payload; seldom in lower case."""
    if rng.style == STRICT:
        return name
    return keep(name.lower() if rng.random() < 0.12 else name)


def plural(n, noun):
    """noun is a plural such as "apples"."""
    return f"{n} {noun[:-1] if n == 1 else noun}"


def with_article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun
