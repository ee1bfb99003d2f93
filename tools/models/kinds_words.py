"""Task kinds about lists, words, letters and text with structure."""
import json

import words as W
from kinds import ask, clause, kind, numbers, plural, sentence, some_words, word

# ---------------------------------------------------------------------------------------------------------------------
# Lists

@kind(1.3)
def sort_numbers(rng):
    ns = numbers(rng, 4, 9)
    text, down = ", ".join(map(str, ns)), rng.random() < 0.35
    if down:
        q = ask(rng, f"Sort in descending order: {text}.", f"Sort these numbers from largest to smallest: {text}.",
                f"Order {text} from high to low.")
    else:
        q = ask(rng, f"Sort in ascending order: {text}.", f"Sort these numbers: {text}.", f"Put {text} in order.",
                f"Sort these numbers from smallest to largest: {text}.", f"Order {text} from low to high.")
    return q, ", ".join(map(str, sorted(ns, reverse=down)))


@kind(2.0)
def sort_words(rng):
    ws = some_words(rng, 4, 8)
    text = ", ".join(ws)
    q = ask(rng, f"Sort these words: {text}.", f"Sort alphabetically: {text}.", f"Put these words in alphabetical order: {text}.",
            f"Order the words {text} from A to Z.")
    return q, ", ".join(sorted(ws))


@kind(1.3)
def reverse_list(rng):
    items = some_words(rng, 4, 9) if rng.random() < 0.7 else [str(n) for n in numbers(rng, 4, 9)]
    text = ", ".join(items)
    q = ask(rng, f"Reverse this list: {text}.", f"Reverse the order of {text}.", f"Write this list backwards: {text}.",
            f"Read this list from the end: {text}.")
    return q, ", ".join(reversed(items))


@kind()
def count_steps(rng):
    step, n = rng.choice((1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10, 20, 25)), rng.randint(6, 18)
    start = rng.choice((0, step, rng.randint(0, 20)))
    values = [start + i * step for i in range(n)]
    down = rng.random() < 0.25
    if down:
        values.reverse()
    a, b, way = values[0], values[-1], "down" if down else "up"
    q = ask(rng, f"Count {way} from {a} to {b} in steps of {step}.", f"Count from {a} to {b} by {step}s.",
            f"List the numbers from {a} to {b} in steps of {step}.", f"Start at {a} and count {way} by {step} until {b}.")
    return q, ", ".join(map(str, values))


@kind(0.6)
def bullets(rng):
    items = some_words(rng, 3, 7)
    text = ", ".join(items)
    if rng.random() < 0.5:
        q = ask(rng, f"Make a bullet list of {text}.", f"Turn this into bullet points: {text}.", f"Write as a bullet list: {text}.")
        return q, "\n".join("- " + w for w in items)
    q = ask(rng, f"Make a numbered list of {text}.", f"Number these items: {text}.", f"Write as a numbered list: {text}.")
    return q, "\n".join(f"{i}. {w}" for i, w in enumerate(items, 1))


@kind(0.6)
def repeat(rng):
    what, n = " ".join(some_words(rng, 1, 2)), rng.randint(3, 9)
    q = ask(rng, f"Repeat \"{what}\" {n} times.", f"Say \"{what}\" {n} times.", f"Write \"{what}\" {n} times.")
    return q, ", ".join([what] * n)


# ---------------------------------------------------------------------------------------------------------------------
# Words and letters

@kind(1.5)
def reverse_word(rng):
    w = word(rng)
    q = ask(rng, f"Reverse the word \"{w}\".", f"Spell \"{w}\" backwards.", f"Write the word {w} backwards.",
            f"What is {w} spelled backwards?")
    return q, f"{w} is spelled {'-'.join(w)}. Backwards it is {'-'.join(reversed(w))}, so the answer is {w[::-1]}."


@kind(1.0)
def letters(rng):
    if rng.random() < 0.5:
        ws, at = some_words(rng, 2, 5), rng.choice((0, -1))
        text, end = ", ".join(ws), "last" if at else "first"
        q = ask(rng, f"What is the {end} letter of {text}?", f"Name the {end} letter of each word: {text}.")
        return q, ", ".join(f"{w} {'ends' if at else 'starts'} with {w[at]}" for w in ws) + "."
    w = word(rng)
    q = ask(rng, f"How many letters does \"{w}\" have?", f"Count the letters in {w}.", f"How long is the word {w}?")
    return q, f"{', '.join(f'{i} {c}' for i, c in enumerate(w, 1))}. The word {w} has {plural(len(w), 'letters')}."


@kind()
def count_words(rng):
    ws = clause(rng).split()
    text = " ".join(ws)
    q = rng.choice((f"How many words are in \"{text}\"?", f"Count the words: {text}",
                    f"How many words does this sentence have? {text}", f"Count the words in \"{text}\"."))
    return q, f"{', '.join(f'{i} {w}' for i, w in enumerate(ws, 1))}. There are {len(ws)} words."


@kind(1.2)
def upper_case(rng):
    text = sentence(rng)
    q = rng.choice((f"Write in upper case: {text}", f"Convert to upper case: {text}", f"Make this upper case: \"{text}\"",
                    f"Put \"{text}\" in capital letters.", f"Shout this: {text}"))
    return q, text.upper()


@kind(0.8)
def lower_case(rng):
    text = sentence(rng)
    q = rng.choice((f"Write in lower case: {text.upper()}", f"Convert to lower case: {text.upper()}",
                    f"Make this lower case: \"{text.upper()}\"", f"Put \"{text.upper()}\" in small letters."))
    return q, text


@kind(1.2)
def replace(rng):
    ws = sentence(rng).split()
    old, new = rng.choice(ws[2:]), rng.choice(W.THINGS)
    text = " ".join(ws)
    q = rng.choice((f"Replace \"{old}\" with \"{new}\": {text}", f"In this sentence, change {old} to {new}: {text}",
                    f"Replace the word {old} with {new} in \"{text}\"."))
    return q, " ".join(new if w == old else w for w in ws)


@kind(0.6)
def opposite(rng):
    pairs = [p if rng.random() < 0.5 else p[::-1] for p in rng.sample(W.OPPOSITES, rng.randint(1, 4))]
    text = ", ".join(w for w, _ in pairs)
    q = ask(rng, f"What is the opposite of {text}?", f"Give the opposite of {text}.", f"Name the opposite of {text}.")
    return q, " ".join(f"The opposite of {w} is {o}." for w, o in pairs)


# ---------------------------------------------------------------------------------------------------------------------
# Text with structure

@kind(1.8)
def json_object(rng):
    name, city, job, age = rng.choice(W.NAMES), rng.choice(W.CITIES), rng.choice(W.JOBS), rng.randint(18, 90)
    color, pet = rng.choice(W.COLORS), rng.choice(list(W.ANIMALS))
    text, fields = rng.choice((
        (f"{name} is {age} years old and lives in {city}.", ("name", "age", "city")),
        (f"{name} lives in {city} and works as a {job}.", ("name", "city", "job")),
        (f"{name}, {age}, is a {job} from {city}.", ("name", "age", "job", "city")),
        (f"The {job} {name} is {age} years old.", ("name", "job", "age")),
        (f"{name} from {city} has a {color} {pet}.", ("name", "city", "pet", "color")),
        (f"{name} is {age}, likes {color} and has a {pet}.", ("name", "age", "color", "pet"))))
    value = dict(name=name, city=city, job=job, age=age, color=color, pet=pet)
    q = rng.choice((f"Write as JSON: {text}", f"Convert to JSON: {text}", f"Turn this into JSON: {text}",
                    f"Extract the facts as JSON: {text}", f"{text} Write this as JSON."))
    return q, json.dumps({f: value[f] for f in fields})


@kind(0.7)
def calendar(rng):
    cycle, unit = rng.choice(((W.DAYS, "day"), (W.MONTHS, "month")))
    i, n, ahead = rng.randrange(len(cycle)), rng.randint(1, 6), rng.random() < 0.7
    way = "after" if ahead else "before"
    steps = [cycle[(i + (k if ahead else -k)) % len(cycle)] for k in range(1, n + 1)]
    q = ask(rng, f"Which {unit} comes {plural(n, unit + 's')} {way} {cycle[i]}?", f"What {unit} is {plural(n, unit + 's')} {way} {cycle[i]}?",
            f"Name the {unit} {plural(n, unit + 's')} {way} {cycle[i]}.")
    return q, f"Counting {'on' if ahead else 'back'} from {cycle[i]}: {', '.join(steps)}. The answer is {steps[-1]}."


@kind(2.2)
def story(rng):
    animal, thing = rng.choice(list(W.ANIMALS)), rng.choice(list(W.OBJECTS))
    place, mood = W.ANIMALS[animal]
    deed, end = W.OBJECTS[thing]
    the = lambda w: ("an " if w[0] in "aeiou" else "a ") + w
    form = rng.choice(("named", "friends", "plain"))
    if form == "friends":
        friend = rng.choice([a for a in W.ANIMALS if a != animal])
        home, feeling = W.ANIMALS[friend]
        q = ask(rng, f"Tell a short story about {the(animal)}, {the(friend)} and {the(thing)}.",
                f"Write a story about {the(animal)}, {the(friend)} and {the(thing)}.",
                f"Tell me how {the(animal)} and {the(friend)} found {the(thing)}.")
        return q, f"Once upon a time {the(mood)} {animal} lived {place} and {the(feeling)} {friend} lived {home}. " \
                  f"Together they found {the(thing)}. The {animal} {deed}, while the {friend} told everybody. " \
                  f"In the end {end}, and the {animal} and the {friend} became good friends."
    if form == "named":
        name = rng.choice(W.NAMES)
        q = ask(rng, f"Tell a short story about {the(animal)} named {name} and {the(thing)}.",
                f"Write a story about {name} the {animal} and {the(thing)}.",
                f"Tell me a story with {the(animal)} called {name} and {the(thing)}.")
        return q, f"{name} was {the(mood)} {animal} who lived {place}. One day {name} found {the(thing)} and {deed}. " \
                  f"Before long {end}, and {name} was happy ever after."
    q = ask(rng, f"Tell a short story about {the(animal)} and {the(thing)}.", f"Write a story about {the(animal)} and {the(thing)}.",
            f"Tell me a story with {the(animal)} and {the(thing)}.", f"Make up a tale about {the(animal)} and {the(thing)}.")
    return q, f"Once upon a time {the(mood)} {animal} lived {place}. One morning the {animal} found {the(thing)} and {deed}. " \
              f"In the end {end}, and the {animal} slept well that night."
