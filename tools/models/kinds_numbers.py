"""Task kinds about numbers: arithmetic with the working shown, word problems, comparisons."""
import words as W
from kinds import STRICT, ask, called, expression, kind, listing, number, numbers, numeral, person, plain, plural

# Openings of a sum in any wording; the expression follows.
SUMS = ("[What is|What's|Whats|How much is|Calculate|Compute|Work out|Solve|Evaluate|Tell me|Find|Do the sum|What does|Give me]",
        "[what do you get for|what is the result of|what is the answer to|what is the value of|the result of|how much makes]",
        "[can you|could you|please] [calculate|compute|work out|solve|tell me]", "[I need|give me] the [result|answer] [of|for|to]",
        "[sum|problem|exercise|calculation|math|arithmetic] :")
SUMS_HELD = ("[please work this out:|what would be|what do I get for|let me know|show me|I need to know]",)


def sums(x):
    """Loose and held-out wordings that ask for the expression x."""
    bare = (f"{x}", f"{x}=", f"{x} =", f"{x} = ?", f"{x}?", f"{x}=?", f"{x} [is|equals|makes|is what|is how much] ?")
    loose = bare + tuple(f"{s} {x}[ | =|=|?| ?]" for s in SUMS)
    return dict(loose=loose, held=tuple(f"{s} {x}[ | =|?]" for s in SUMS_HELD) + (f"so {x} [is|equals|gives]", f"{x} gives what?"))


def with_more(wordings, loose, held):
    return dict(loose=wordings["loose"] + loose, held=wordings["held"] + held)


@kind(1.6)
def add(rng):
    if rng.random() < 0.6:
        return add_several(rng)
    a, b = number(rng), number(rng)
    x, p, q = expression(rng, "+", a, b), numeral(rng, a), numeral(rng, b)
    more = with_more(sums(x), (
        f"[Add|Sum|Add up|Add together|Total|Sum up] {p} [and|with|to|plus|,] {q}[ |.]", f"{p} [plus|and] {q}",
        f"[what is|give me|find|calculate|compute|work out|tell me] the [sum|total] of {p} [and|,] {q}",
        f"[put|take] {p} and {q} together", f"[what do {p} and {q} make|how much do {p} and {q} make] ?",
        f"if you add {p} [and|to] {q}, what do you get?", f"{p} added to {q}", f"add {q} to {p}", f"[sum|total] of {p} [and|,] {q}"),
        (f"What [total|sum] do {p} and {q} give?", f"please add {p} and {q} together", f"the sum of {p} plus {q}"))
    q = ask(rng, f"What is {x}?", f"Add {p} and {q}.", f"Compute {x}.", f"What is the sum of {p} and {q}?",
            f"How much is {p} plus {q}?", **more)
    return q, f"{a} + {b} = {a + b}."


def add_several(rng):
    count = 3 if rng.style == STRICT else rng.choice((3, 3, 3, 4, 5))
    ns = [rng.randint(1, 99 if count == 3 else 30) for _ in range(count)]
    x, listed = expression(rng, "+", *ns), listing(rng, ns)
    more = with_more(sums(x), (
        f"[Add|Sum|Sum up|Add up|Total|Tally] [these|the|all|these numbers:|the numbers|up] {listed}[ |.]",
        f"[what is|give me|find|calculate|compute|work out|tell me] the [sum|total] of [the numbers|these numbers:|these|] {listed}",
        f"[sum|total|add up] : {listed}", f"[how much|what] is {listed} [together|in total|added up|summed up] ?",
        f"{listed} - [add them|sum them|what is the sum|the total]", f"what do you get when you add {listed}?"),
        (f"please add all of these: {listed}", f"What total do {listed} give?", f"add together {listed}", f"the sum of {listed}, please"))
    tail = (f"{listed}", f"{', '.join(map(str, ns[:-1]))} and {ns[-1]}") if rng.style == STRICT else (listed, listed)
    q = ask(rng, f"What is {x}?", f"Add {tail[1]}.", f"Find the sum of {tail[1]}.", **more)
    total, steps = ns[0], []
    for n in ns[1:]:
        steps.append(f"{total} + {n} = {total + n}.")
        total += n
    return q, f"First, {' Then '.join(steps)} The sum is {total}."


@kind(1.8)
def subtract(rng):
    if rng.random() < 0.5:
        b, c = rng.randint(1, 60), rng.randint(1, 60)
        a = b + c + rng.randint(0, 150)
        x, n, p, q = expression(rng, "-", a, b, c), *(numeral(rng, i) for i in (a, b, c))
        more = with_more(sums(x), (
            f"[Subtract|Take|Deduct|Take away|Remove] {p} and [then|] {q} from {n}", f"from {n} [subtract|take|take away] {p} and {q}",
            f"{n} take away {p} take away {q}", f"[start with|take] {n}, subtract {p}, then subtract {q}",
            f"what is left [of|from] {n} [if|when] you [subtract|take away] {p} and [then|] {q}?"),
            (f"What remains of {n} after taking away {p} and {q}?", f"How much is {n} when you take away {p} and then {q}?"))
        q = ask(rng, f"What is {x}?", f"Subtract {p} and {q} from {n}.", f"Take {p} and then {q} away from {n}.", **more)
        return q, f"First, {a} - {b} = {a - b}. Then {a - b} - {c} = {a - b - c}. The result is {a - b - c}."
    a, b = sorted((number(rng), number(rng)), reverse=True)
    if rng.style != STRICT and rng.random() < 0.12:
        a, b = b, a
    x, n, p = expression(rng, "-", a, b), numeral(rng, a), numeral(rng, b)
    forms = [f"What is {x}?", f"Subtract {p} from {n}.", f"Compute {x}.", f"How much is {n} minus {p}?"]
    loose = (f"[Subtract|Take|Deduct|Take away|Remove] {p} from {n}", f"from {n} [subtract|take|take away] {p}", f"{n} [minus|less] {p}",
             f"[take|start with] {n} and [subtract|take away] {p}", f"what is left [of|from] {n} [if|when] you [subtract|take away] {p}?",
             f"reduce {n} by {p}", f"[lower|decrease] {n} by {p}", f"[how much|what] [remains|is left] of {n} without {p}?")
    if a >= b:
        forms.insert(3, f"What is the difference between {n} and {p}?")
        loose += (f"[find|compute|give me|tell me|what is|calculate] the difference [between|of] {n} and {p}",
                  f"[the|] difference [between|of] {n} and {p}")
    more = with_more(sums(x), loose, (f"What remains of {n} after taking away {p}?", f"How much is {n} when you take away {p}?", f"{p} subtracted from {n}"))
    return ask(rng, *forms, **more), f"{a} - {b} = {a - b}, because {a - b} + {b} = {a}."


@kind(0.9)
def multiply(rng):
    small = rng.random() < 0.2
    if rng.style == STRICT:
        a, b = (rng.randint(2, 12), rng.randint(2, 12)) if small else (rng.randint(13, 99), rng.randint(2, 9))
    else:
        a, b = (rng.randint(0, 12), rng.randint(0, 12)) if small else (rng.randint(13, 99), rng.choice((rng.randint(2, 9), rng.randint(2, 12))))
    s, t = (a, b) if rng.style == STRICT or small or rng.random() < 0.75 else (b, a)
    x, p, q = expression(rng, "x", s, t), numeral(rng, s), numeral(rng, t)
    more = with_more(sums(x), (
        f"[Multiply|Times] {p} [by|with|and|times|,] {q}", f"[what is|find|give me|calculate|compute|tell me] the product of {p} [and|,] {q}",
        f"{p} [times|multiplied by|x] {q}", f"[the|] product of {p} and {q}", f"what do you get [if|when] you multiply {p} [by|and] {q}?",
        f"how much is {p} times {q}", f"[what are|how much are] {p} times {q}"),
        (f"please multiply {p} and {q} together", f"Find out what {p} times {q} is", f"{p} and {q} multiplied"))
    q = ask(rng, f"What is {x}?", f"Multiply {p} by {q}.", f"Compute {p} times {q}.", f"What is the product of {p} and {q}?",
            f"How much is {p} times {q}?", **more)
    if small:
        return q, f"{a} x {b} = {a * b}."
    tens, ones = a // 10 * 10, a % 10
    return q, f"{a} x {b} = {tens} x {b} + {ones} x {b} = {tens * b} + {ones * b} = {a * b}."


@kind(0.5)
def divide(rng):
    a, b = rng.randint(2, 12 if rng.style == STRICT else 25), rng.randint(2, 12)
    x, p, q = expression(rng, "/", a * b, b), numeral(rng, a * b), numeral(rng, b)
    more = with_more(sums(x), (
        f"[Divide|Split] {p} [by|into|through] {q}", f"[what is|find|give me|calculate|compute|tell me] the quotient of {p} and {q}",
        f"{p} [divided by|over] {q}", f"how [often|many times] does {q} [go into|fit into|fit in|go in] {p}?",
        f"how many {q}s are [there|] in {p}?", f"what do you get [if|when] you divide {p} by {q}?",
        f"{p} [shared|split] [by|between|among] {q}", f"[divide|split|share] {p} into {q} [equal parts|parts|groups]"),
        (f"please divide {p} into {q} equal pieces", f"Find out what {p} divided by {q} is", f"{p} split into {q} parts"))
    q = ask(rng, f"What is {x}?", f"Divide {p} by {q}.", f"Compute {p} divided by {q}.", f"How many times does {q} go into {p}?",
            f"How much is {p} over {q}?", **more)
    return q, f"{a * b} / {b} = {a}, because {a} x {b} = {a * b}."


@kind(0.5)
def times_table(rng):
    n, first = rng.randint(2, 12), rng.randint(1, 6)
    last = first + rng.randint(2, 6)
    p = numeral(rng, n)
    span = f"[from|] {first} [to|up to|until|through|-] {last}"
    q = ask(rng, f"Write the {p} times table from {first} to {last}.", f"Multiply {p} by each number from {first} to {last}.",
            f"List the multiples of {p} from {first} to {last} with the working.",
            loose=(f"[Write|Show|Give me|List|Print|Say|Recite|What is] the {p} times table {span}",
                   f"[the|] times table [of|for] {p} {span}", f"multiplication table [of|for] {p} {span}", f"{p} times table {span}",
                   f"[write|show|give me|list|print] [the|a] multiplication table [of|for] {p} {span}",
                   f"multiply {p} [by|with] [every number|all numbers|the numbers|each number] {span}",
                   f"[list|show|give me|write] [the|all] multiples of {p} {span} [with the working|]"),
            more=(f"[table|multiples|the multiples|times table|multiplication] [of|for|with] {p} [, |]{span}", f"[write|show|make|list] [me|] [a|the] [table|multiplication] [of|for|with] {p} {span}",
                  f"{span} times {p}", f"[the|] {p} table {span}"),
            held=(f"Please recite the times table for {p}, {first} to {last}", f"the table of {p} {span}",
                  f"I need the {p} times table {span}"))
    return q, ", ".join(f"{i} x {n} = {i * n}" for i in range(first, last + 1))


@kind(4.2)
def word_problem(rng):
    return rng.choice((shop_problem, gift_problem, box_problem, book_problem, trip_problem, garden_problem))(rng)


# Openings of the first sentence. The evaluation set has others.
WHEN = "[Today|Yesterday|One day|On Monday|Last week|In spring|In the evening|This morning|Once|Now|At noon]"


def people(rng, n):
    names = []
    while len(names) < n:
        name = person(rng)
        if name not in names:
            names.append(name)
    return names


def pool(rng, strict, more):
    return strict if rng.style == STRICT else strict + more


def gift_problem(rng):
    x, y, z = people(rng, 3)
    item, a, b = rng.choice(W.ITEMS), rng.randint(2, 60), rng.randint(2, 40)
    c = rng.randint(1, a + b - 1)
    get, give = rng.choice((("buys", "gives"), ("finds", "sells"), ("gets", "lends")))
    k, to = called(rng, x), called(rng, z)
    left = f"[how many|what number of] {item} [does {k} have now|does {k} have left|does {k} have|are left|has {k} now|remain] ?"
    q = plain(rng, f"{k} has {a} {item}. {k} {get} {b} more and then {give} {c} to {to}. How many {item} does {k} have now?",
              loose=(f"{k} [has|had|owns|starts with] {a} {item}. [{k}|She|He] {get} {b} more[ and then|, then| and] {give} {c} to {to}. {left}",
                     f"{k} [has|had] {a} {item}, {get} {b} more and {give} {c} to {to}. {left}",
                     f"if {k} has {a} {item}, {get} {b} more and [then|] {give} {to} {c}, {left}"),
              more=(f"[{WHEN}, |]{k} [has|had|owns|holds|keeps] {a} {item}. [After that|Later|Soon|Next|Afterwards], {k} {get} {b} [more|new ones|extra|extra {item}|new {item}|more of them] and {give} {c} [of them|] to {to}. {left}",
                    f"{k} {get} {b} {item}. Before[ that|], {k} had {a}. [Now|Then|Later] {k} {give} {c} to {to}. {left}", f"{a} {item} [belong to|are with] {k}. {k} {get} {b} [more|extra] and {give} {c} [of them|] to {to}. {left}",
                    f"{left} {k} [had|has|owns] {a}, {get} {b} [more|extra] and {give} {c} to {to}.", f"{k}: {a} {item}, {get} {b} more, {give} {c} to {to}. {left}"),
              held=(f"[At first|In the morning] {k} has {a} {item}. Then {k} {get} {b} [more|others] and {give} {c} to {to}. {left}",))
    return q, f"{x} starts with {a} and {get} {b}: {a} + {b} = {a + b}. " \
              f"{x} {give} {c}: {a + b} - {c} = {a + b - c}. {x} has {plural(a + b - c, item)} now."


def shop_problem(rng):
    x, item, a, p = person(rng), rng.choice(W.ITEMS), rng.randint(2, 9), rng.randint(2, 9)
    pay = rng.choice([m for m in (20, 50, 100) if m > a * p])
    k = called(rng, x)
    change = f"[How much change|How much money|What change] does {k} [get|get back|receive] ?"
    q = plain(rng, f"{k} buys {a} {item} for {p} dollars each and pays with {pay} dollars. How much change does {k} get?",
              loose=(f"{k} [buys|bought|gets|orders] {a} {item} [for|at] [{p} dollars|${p}] [each|a piece|apiece] and pays [with|] [{pay} dollars|${pay}|a {pay} dollar bill]. {change}",
                     f"[One of the|The] {item} cost [{p} dollars|${p}] each. {k} buys {a} and pays with {pay} dollars. {change}",
                     f"if {k} buys {a} {item} for {p} dollars each and pays with {pay} dollars, [how much change does {k} get|what is the change] ?"),
              more=(f"[{WHEN}, |]{k} [buys|takes|needs|gets] {a} {item}. [Each|Every one|Each one|One] [costs|is] [{p} dollars|${p}]. {k} [pays with|gives|hands over|has] [{pay} dollars|${pay}]. {change}",
                    f"{k} [has|pays with|brings] [{pay} dollars|${pay}] and [buys|takes] {a} {item} [for|at] [{p} dollars|${p}] [each|apiece]. {change}",
                    f"[In the shop|At the market|In a store][,|] {item} are [{p} dollars|${p}] [each|apiece]. {k} [buys|takes|pays for] {a} [of them|] with [{pay} dollars|${pay}]. {change}",
                    f"{change} {k} [buys|bought] {a} {item} for {p} dollars each with a {pay} dollar bill."),
              held=(f"{k} wants {a} {item}, they cost {p} dollars each. {k} pays with {pay} dollars. {change}",))
    return q, f"The {item} cost {a} x {p} = {a * p} dollars. The change is {pay} - {a * p} = {pay - a * p}. " \
              f"{x} gets {plural(pay - a * p, 'dollars')} back."


def box_problem(rng):
    x, item, a, b, c = person(rng), rng.choice(W.ITEMS), rng.randint(2, 9), rng.randint(2, 12), rng.randint(1, 30)
    k = called(rng, x)
    total = f"How many {item} [are there in total|are there|does {k} have in total|are there all together|does {k} have] ?"
    q = plain(rng, f"{k} has {a} bags with {b} {item} in each bag and {c} more {item} on the table. How many {item} are there in total?",
              loose=(f"{k} [has|owns|carries|fills] {a} [bags|boxes|baskets] [with|of] {b} {item} [in each bag|each|in each|] and {c} more [{item}|] [on the table|]. {total}",
                     f"[There are|We have] {a} bags with {b} {item} [each|in each bag]. {k} has {c} more. {total}",
                     f"if {k} has {a} bags with {b} {item} each and {c} more on the table, how many {item} are there [in total|] ?"),
              more=(f"[{WHEN}, |]{k} [packs|fills|brings|finds|buys] {a} [bags|boxes|baskets]. [Each|Every one|Each one] [has|holds|contains] {b} {item}. [On the table|Besides|Outside] [are|there are] {c} [more|others|extra]. {total}",
                    f"{b} {item} [are|lie|fit] in [each|every one] of {a} [bags|boxes|baskets], and {k} [has|keeps|owns] {c} [more|others|extra]. {total}",
                    f"{k} has {c} {item} [on the table|] and {a} [bags|boxes|baskets] [with|of] {b} [more|] [each|in each]. {total}",
                    f"{total} {k} has {a} bags with {b} {item} in each and {c} [more|extra]."),
              held=(f"{k} puts {b} {item} in each of {a} bags and {c} more {item} on the table. {total}",))
    return q, f"In the bags there are {a} x {b} = {a * b} {item}. With the others that makes {a * b} + {c} = {a * b + c}. " \
              f"There are {a * b + c} {item} in total."


def book_problem(rng):
    x, a, d, rest = person(rng), rng.randint(3, 12), rng.randint(2, 9), rng.randint(5, 90)
    total, k = a * d + rest, called(rng, x)
    left = f"How many pages [are left|remain|are still left|does {k} still have to read] ?"
    q = plain(rng, f"A book has {total} pages. {k} reads {a} pages a day for {d} days. How many pages are left?",
              loose=(f"[A|The|One] book [has|is] {total} pages [long|]. {k} reads {a} [pages|] [a day|per day|each day|every day] for {d} days. {left}",
                     f"{k} reads a book [with|of] {total} pages, {a} pages [a day|per day]. [{left}|How many pages are left] after {d} days?",
                     f"if a book has {total} pages and {k} reads {a} pages a day for {d} days, how many pages [are left|remain] ?"),
              more=(f"[{WHEN}, |]{k} [starts|begins|opens|buys|gets|borrows] a [book|novel] [of|with|that has] {total} pages. For {d} days {k} reads {a} [pages|of them] [a day|per day|each day|every day]. {left}",
                    f"{k} reads {a} pages [a day|per day|each day] for {d} days. The [book|novel|story] has {total} [pages|]. {left}", f"{k}'s book has {total} pages. {k} reads {a} [pages|of them|] [a day|daily|every day], [for|during] {d} days. {left}",
                    f"There are {total} pages in the book [of|that belongs to] {k}, who reads {a} [pages|] a day for {d} days. {left}", f"{left} {k} reads {a} pages a day for {d} days, and the book has {total}."),
              held=(f"{k} has a book with {total} pages and reads {a} pages a day for {d} days. {left}",))
    return q, f"{x} reads {a} x {d} = {a * d} pages. Then {total} - {a * d} = {rest}. There are {rest} pages left."


def trip_problem(rng):
    x, a, b, c = person(rng), rng.randint(5, 90), rng.randint(5, 90), rng.randint(2, 60)
    home, far = rng.sample(pool(rng, W.CITIES, W.MORE_CITIES), 2)
    k, s, t = called(rng, x), called(rng, home), called(rng, far)
    rest = "[How far is it still|How far is it|How many km are left|How many km remain|How far is the rest] ?"
    q = plain(rng, f"From {s}, {k} drives {a} km before lunch and {b} km after lunch. The way to {t} is {a + b + c} km. How far is it still?",
              loose=(f"[From|Starting in] {s}, {k} [drives|travels|rides|goes] {a} km before lunch and {b} [km|] after lunch. [The way to|The distance to|The road to] {t} is {a + b + c} km. {rest}",
                     f"{k} [drives|travels] from {s} to {t}. The way is {a + b + c} km. {k} drives {a} km before lunch and {b} km after lunch. {rest}"),
              more=(f"[{WHEN}, |]{k} [starts|begins|sets out] [in|from] {s} and [drives|goes|rides|travels] {a} km [before lunch|in the morning|before noon] and {b} [km|] [after lunch|in the afternoon|after noon]. It is {a + b + c} km [in all|] to {t}. {rest}",
                    f"[It is|There are] {a + b + c} km from {s} to {t}. {k} [drives|goes|rides|has done] {a} km before lunch and {b} [km|] after [lunch|it]. {rest}",
                    f"{k} [wants to go|is going|is on the way] from {s} to {t}, [which is|that is|a way of] {a + b + c} km. {k} [drives|rides|goes] {a} km before lunch and {b} [km|] after lunch. {rest}",
                    f"{rest} {k} drives from {s} to {t}, {a + b + c} km, {a} km before lunch and {b} km after lunch."),
              held=(f"{k} leaves {s} and drives {a} km before lunch and {b} km after lunch. The way to {t} is {a + b + c} km. {rest}",))
    return q, f"{x} has driven {a} + {b} = {a + b} km. The rest is {a + b + c} - {a + b} = {c}. It is still {c} km to {far}."


def garden_problem(rng):
    x, rows, per = person(rng), rng.randint(2, 9), rng.randint(2, 12)
    lost, color = rng.randint(1, rows * per - 1), rng.choice(W.COLORS)
    k = called(rng, x)
    left = "How many [flowers|] [remain|are left|are still there] ?"
    q = plain(rng, f"{k} plants {rows} rows of {per} {color} flowers. The wind takes {lost} of them. How many flowers remain?",
              loose=(f"{k} [plants|planted|has] {rows} rows [of|with] {per} {color} flowers [each|]. The [wind|storm|rain] takes {lost} [of them|flowers|]. {left}",
                     f"if {k} plants {rows} rows of {per} {color} flowers and the wind takes {lost} of them, how many flowers [remain|are left] ?"),
              more=(f"[{WHEN}, |]{k} [puts|sets|plants|waters|grows] {rows} rows of {color} flowers, {per} [in each|in each row|in every row|a row|per row]. [Later|Soon|At night|After that] [the wind|a storm|the rain] [takes|blows away] {lost}. {left}",
                    f"[There are|{k} has] {rows} rows [of|with] {per} {color} flowers [in the yard|by the house|]. [The wind|A storm|The rain] [takes|blows away] {lost} [of them|]. {left}",
                    f"{left} {k} [plants|planted] {rows} rows of {per} {color} flowers and the wind [takes|took] {lost}."),
              held=(f"In the garden {k} plants {rows} rows of {per} {color} flowers. Then the wind takes {lost}. {left}",))
    return q, f"There were {rows} x {per} = {rows * per} flowers. Then {rows * per} - {lost} = {rows * per - lost}. " \
              f"{plural(rows * per - lost, 'flowers')} remain{'s' if rows * per - lost == 1 else ''}."


@kind(0.9)
def compare(rng):
    if rng.random() < 0.4:
        a, b = number(rng), number(rng)
        b = b + 1 if a == b else b
        p, q, larger = numeral(rng, a), numeral(rng, b), rng.random() < 0.5
        if larger:
            forms, words = (f"Which is larger, {p} or {q}?", f"Which number is bigger: {p} or {q}?"), "[larger|bigger|greater|more|the larger number|the bigger one]"
            answer = f"{max(a, b)} is larger than {min(a, b)}."
        else:
            forms, words = (f"Which is smaller, {p} or {q}?", f"Which number is less: {p} or {q}?"), "[smaller|less|lower|the smaller number|the smaller one]"
            answer = f"{min(a, b)} is smaller than {max(a, b)}."
        q = ask(rng, *forms,
                loose=(f"[Which|What|Which number|Which one] is {words}[,|:|] {p} or {q} ?", f"{p} or {q}, [which|what|which one] is {words}?",
                       f"is {p} or {q} {words}?", f"[compare|] {p} [and|with] {q}: which is {words}?", f"[what|which] is {words} of {p} and {q}?",
                       f"[tell me|say] which is {words}: {p} or {q}"),
                held=(f"of {p} and {q}, which is {words}?", f"what's {words}, {p} or {q}?", f"{words}: {p} or {q}?"))
        return q, answer
    ns = numbers(rng, 3, 7)
    text, shown = ", ".join(map(str, ns)), listing(rng, ns)
    name, best, words = rng.choice((("largest", max(ns), "[largest|biggest|highest|greatest|maximum|max]"),
                                    ("smallest", min(ns), "[smallest|lowest|least|minimum|min]")))
    q = ask(rng, f"What is the {name} number in {shown}?", f"Find the {name} of these numbers: {shown}.",
            loose=(f"[What is|What's|Whats|Find|Give me|Tell me|Show me|Name] the {words} [number|value|one|] [of|in|among|out of] [these numbers:|the numbers|the list|these|] {shown}",
                   f"[which|which one|what number] [of|in|among] [these|these numbers|] [:|] {shown} is the {words}?", f"{words} [number|value|] [of|in] {shown}",
                   f"{words}: {shown}", f"[which|which number] is [the|] {words}: {shown}", f"{shown} - [which is|what is|find] the {words}",
                   f"[Pick|Pick out|Look for|Choose|Get|Select] the {words} [number|value|one|] [of|in|from|among] {shown}"),
            held=(f"I want the {words} [number|] of {shown}", f"Here are some numbers: {shown}. Which is the {words}?", f"please pick the {words} one: {shown}"))
    return q, f"Of the {len(ns)} numbers {text}, the {name} is {best}."


@kind(0.7)
def parity(rng):
    ns, want = numbers(rng, 2, 6), rng.choice(("odd", "even"))
    kinds = ["odd" if n % 2 else "even" for n in ns]
    shown, found = listing(rng, ns), [str(n) for n, k in zip(ns, kinds) if k == want]
    q = ask(rng, f"Which of these numbers are {want}: {shown}?", f"Find the {want} numbers in {shown}.",
            f"List the {want} numbers: {shown}.",
            loose=(f"[Which|Which ones|Which numbers|Which of these|Which of the numbers] are {want}: {shown}",
                   f"[Find|List|Show|Give me|Pick|Pick out|Name|Tell me|Get|Print|Select] [all|all the|the|only the|] {want} [numbers|ones|values] [:|in|of|from|among|out of] {shown}",
                   f"{want} numbers [in|of|from|:] {shown}", f"{shown}: which [ones|] are {want}?", f"[what are|which are] the {want} numbers [in|of|:] {shown}",
                   f"which of {shown} are {want}?",
                   f"[Filter|Filter out|Extract|Keep|Keep only|Choose] the {want} [numbers|ones] [:|in|of|from|among] {shown}"),
            held=(f"Here are some numbers: {shown}. Which are {want}?", f"I want only the {want} numbers of {shown}", f"please keep the {want} ones: {shown}"))
    return q, f"{', '.join(f'{n} is {k}' for n, k in zip(ns, kinds))}. The {want} numbers: {', '.join(found) or 'none'}."
