"""Task kinds about numbers: arithmetic with the working shown, word problems, comparisons."""
import words as W
from kinds import ask, kind, number, numbers, plural


@kind()
def add(rng):
    if rng.random() < 0.6:
        a, b, c = (rng.randint(1, 99) for _ in range(3))
        q = ask(rng, f"What is {a} + {b} + {c}?", f"Add {a}, {b} and {c}.", f"Find the sum of {a}, {b} and {c}.")
        return q, f"First, {a} + {b} = {a + b}. Then {a + b} + {c} = {a + b + c}. The sum is {a + b + c}."
    a, b = number(rng), number(rng)
    q = ask(rng, f"What is {a} + {b}?", f"Add {a} and {b}.", f"Compute {a} + {b}.", f"What is the sum of {a} and {b}?",
            f"How much is {a} plus {b}?")
    return q, f"{a} + {b} = {a + b}."


@kind()
def subtract(rng):
    if rng.random() < 0.5:
        b, c = rng.randint(1, 60), rng.randint(1, 60)
        a = b + c + rng.randint(0, 150)
        q = ask(rng, f"What is {a} - {b} - {c}?", f"Subtract {b} and {c} from {a}.", f"Take {b} and then {c} away from {a}.")
        return q, f"First, {a} - {b} = {a - b}. Then {a - b} - {c} = {a - b - c}. The result is {a - b - c}."
    a, b = sorted((number(rng), number(rng)), reverse=True)
    q = ask(rng, f"What is {a} - {b}?", f"Subtract {b} from {a}.", f"Compute {a} - {b}.",
            f"What is the difference between {a} and {b}?", f"How much is {a} minus {b}?")
    return q, f"{a} - {b} = {a - b}, because {a - b} + {b} = {a}."


@kind(0.9)
def multiply(rng):
    small = rng.random() < 0.2
    a, b = (rng.randint(2, 12), rng.randint(2, 12)) if small else (rng.randint(13, 99), rng.randint(2, 9))
    q = ask(rng, f"What is {a} x {b}?", f"Multiply {a} by {b}.", f"Compute {a} times {b}.",
            f"What is the product of {a} and {b}?", f"How much is {a} times {b}?")
    if small:
        return q, f"{a} x {b} = {a * b}."
    tens, ones = a // 10 * 10, a % 10
    return q, f"{a} x {b} = {tens} x {b} + {ones} x {b} = {tens * b} + {ones * b} = {a * b}."


@kind(0.5)
def divide(rng):
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    q = ask(rng, f"What is {a * b} / {b}?", f"Divide {a * b} by {b}.", f"Compute {a * b} divided by {b}.",
            f"How many times does {b} go into {a * b}?", f"How much is {a * b} over {b}?")
    return q, f"{a * b} / {b} = {a}, because {a} x {b} = {a * b}."


@kind(0.5)
def times_table(rng):
    n, first = rng.randint(2, 12), rng.randint(1, 6)
    last = first + rng.randint(2, 6)
    q = ask(rng, f"Write the {n} times table from {first} to {last}.", f"Multiply {n} by each number from {first} to {last}.",
            f"List the multiples of {n} from {first} to {last} with the working.")
    return q, ", ".join(f"{i} x {n} = {i * n}" for i in range(first, last + 1))


@kind(2.0)
def word_problem(rng):
    return rng.choice((shop_problem, gift_problem, box_problem, book_problem, trip_problem, garden_problem))(rng)


def gift_problem(rng):
    x, y, z = rng.sample(W.NAMES, 3)
    item, a, b = rng.choice(W.ITEMS), rng.randint(2, 60), rng.randint(2, 40)
    c = rng.randint(1, a + b - 1)
    get, give = rng.choice((("buys", "gives"), ("finds", "sells"), ("gets", "lends")))
    q = f"{x} has {a} {item}. {x} {get} {b} more and then {give} {c} to {z}. How many {item} does {x} have now?"
    return q, f"{x} starts with {a} and {get} {b}: {a} + {b} = {a + b}. " \
              f"{x} {give} {c}: {a + b} - {c} = {a + b - c}. {x} has {plural(a + b - c, item)} now."


def shop_problem(rng):
    x, item, a, p = rng.choice(W.NAMES), rng.choice(W.ITEMS), rng.randint(2, 9), rng.randint(2, 9)
    pay = rng.choice([m for m in (20, 50, 100) if m > a * p])
    q = f"{x} buys {a} {item} for {p} dollars each and pays with {pay} dollars. How much change does {x} get?"
    return q, f"The {item} cost {a} x {p} = {a * p} dollars. The change is {pay} - {a * p} = {pay - a * p}. " \
              f"{x} gets {plural(pay - a * p, 'dollars')} back."


def box_problem(rng):
    x, item, a, b, c = rng.choice(W.NAMES), rng.choice(W.ITEMS), rng.randint(2, 9), rng.randint(2, 12), rng.randint(1, 30)
    q = f"{x} has {a} bags with {b} {item} in each bag and {c} more {item} on the table. How many {item} are there in total?"
    return q, f"In the bags there are {a} x {b} = {a * b} {item}. With the others that makes {a * b} + {c} = {a * b + c}. " \
              f"There are {a * b + c} {item} in total."


def book_problem(rng):
    x, a, d, rest = rng.choice(W.NAMES), rng.randint(3, 12), rng.randint(2, 9), rng.randint(5, 90)
    total = a * d + rest
    q = f"A book has {total} pages. {x} reads {a} pages a day for {d} days. How many pages are left?"
    return q, f"{x} reads {a} x {d} = {a * d} pages. Then {total} - {a * d} = {rest}. There are {rest} pages left."


def trip_problem(rng):
    x, a, b, c = rng.choice(W.NAMES), rng.randint(5, 90), rng.randint(5, 90), rng.randint(2, 60)
    home, far = rng.sample(W.CITIES, 2)
    q = f"From {home}, {x} drives {a} km before lunch and {b} km after lunch. The way to {far} is {a + b + c} km. " \
        f"How far is it still?"
    return q, f"{x} has driven {a} + {b} = {a + b} km. The rest is {a + b + c} - {a + b} = {c}. It is still {c} km to {far}."


def garden_problem(rng):
    x, rows, per = rng.choice(W.NAMES), rng.randint(2, 9), rng.randint(2, 12)
    lost, color = rng.randint(1, rows * per - 1), rng.choice(W.COLORS)
    q = f"{x} plants {rows} rows of {per} {color} flowers. The wind takes {lost} of them. How many flowers remain?"
    return q, f"There were {rows} x {per} = {rows * per} flowers. Then {rows * per} - {lost} = {rows * per - lost}. " \
              f"{plural(rows * per - lost, 'flowers')} remain{'s' if rows * per - lost == 1 else ''}."


@kind(0.9)
def compare(rng):
    if rng.random() < 0.4:
        a, b = number(rng), number(rng)
        b = b + 1 if a == b else b
        if rng.random() < 0.5:
            q = ask(rng, f"Which is larger, {a} or {b}?", f"Which number is bigger: {a} or {b}?")
            return q, f"{max(a, b)} is larger than {min(a, b)}."
        q = ask(rng, f"Which is smaller, {a} or {b}?", f"Which number is less: {a} or {b}?")
        return q, f"{min(a, b)} is smaller than {max(a, b)}."
    ns = numbers(rng, 3, 7)
    text = ", ".join(map(str, ns))
    name, best = rng.choice((("largest", max(ns)), ("smallest", min(ns))))
    q = ask(rng, f"What is the {name} number in {text}?", f"Find the {name} of these numbers: {text}.")
    return q, f"Of the {len(ns)} numbers {text}, the {name} is {best}."


@kind(0.7)
def parity(rng):
    ns, want = numbers(rng, 2, 6), rng.choice(("odd", "even"))
    kinds = ["odd" if n % 2 else "even" for n in ns]
    text, found = ", ".join(map(str, ns)), [str(n) for n, k in zip(ns, kinds) if k == want]
    q = ask(rng, f"Which of these numbers are {want}: {text}?", f"Find the {want} numbers in {text}.",
            f"List the {want} numbers: {text}.")
    return q, f"{', '.join(f'{n} is {k}' for n, k in zip(ns, kinds))}. The {want} numbers: {', '.join(found) or 'none'}."
