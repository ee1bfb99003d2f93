"""Task kinds about lists, words, letters and text with structure."""
import json

import words as W
from kinds import (LOOSE, STRICT, ask, called, clause, in_words, kind, listing, numbers, person, plain, plural, sentence, some_words,
                   with_article, word)
from wording import keep

# ---------------------------------------------------------------------------------------------------------------------
# Lists

def quoted(rng, text):
    """Text of the prompt that the answer repeats or changes."""
    return text if rng.style == STRICT else keep(text)


SORT = "[Sort|Order|Arrange|Rank|Put in order|Sort out|Organize|Reorder]"
UP = "[from smallest to largest|from low to high|in ascending order|ascending|smallest first|from least to greatest|lowest first|low to high|smallest to largest|in increasing order]"
DOWN = "[from largest to smallest|from high to low|in descending order|descending|largest first|from greatest to least|highest first|high to low|biggest first|in decreasing order|in reverse order of size]"


@kind(1.6)
def sort_numbers(rng):
    loose_style = rng.style != STRICT
    ns = numbers(rng, 2 if loose_style else 4, 9)
    if loose_style and len(ns) > 2 and rng.random() < 0.1:
        ns[rng.randrange(len(ns))] = rng.choice(ns)
    shown, down = listing(rng, ns), rng.random() < 0.35
    way, maybe = (DOWN, DOWN) if down else (UP, f"[{UP}|]")
    loose = (f"{SORT} [these|the|the following|my|these few|] [numbers|values|figures|digits|] {maybe} [:|] {shown}",
             f"[Sort|Order|Arrange|Rank] {shown} {maybe}", f"[sort|order] [numbers|list|this list|this|] {maybe} : {shown}",
             f"{shown} - [sort|sort them|order them|sort these|put them in order] {maybe}", f"{shown} [sort|sorted|in order|ordered] {maybe}",
             f"[what is|give me|show me|I need] {shown} [sorted|ordered|in order] {maybe}", f"[list|write|print|say] [these numbers|these|] {way} [:|] {shown}",
             f"[Put|Bring|Get] [these numbers|the numbers|these|this list|] [into|in] [the right|] order {'' if not down else way} [:|] {shown}")
    held = (f"Here are some numbers: {shown}. [Sort|Order] them {maybe}.", f"[Order|Rank] the values {shown} {way}", f"I want {shown} sorted {way}",
            f"sort list {maybe}: {shown}")
    ends = "[biggest|largest|highest] [to|->|down to] [smallest|lowest]" if down else "[smallest|lowest] [to|->|up to] [biggest|largest|highest]"
    sizes = "[big to small|large to small]" if down else "[small to big|small to large]"
    more = (f"[Sort|Arrange|Rank|Put] {shown} [from|] [{sizes}|{ends}]", f"[{sizes}|{ends}] : {shown}", f"{shown} [from|] [{sizes}|{ends}]")
    if down:
        q = ask(rng, f"Sort in descending order: {shown}.", f"Sort these numbers from largest to smallest: {shown}.",
                f"Order {shown} from high to low.", loose=loose, more=more, held=held)
    else:
        q = ask(rng, f"Sort in ascending order: {shown}.", f"Sort these numbers: {shown}.", f"Put {shown} in order.",
                f"Sort these numbers from smallest to largest: {shown}.", f"Order {shown} from low to high.", loose=loose, more=more, held=held)
    return q, ", ".join(map(str, sorted(ns, reverse=down)))


@kind(2.2)
def sort_words(rng):
    ws = some_words(rng, 4 if rng.style == STRICT else 2, 8)
    shown = listing(rng, ws)
    az = "[alphabetically|in alphabetical order|from A to Z|by letter|by the alphabet|in alphabetic order|a to z|a-z]"
    q = ask(rng, f"Sort these words: {shown}.", f"Sort alphabetically: {shown}.", f"Put these words in alphabetical order: {shown}.",
            f"Order the words {shown} from A to Z.",
            loose=(f"{SORT} [these|the|the following|my|] [words|items|terms|] [{az}|] [:|] {shown}", f"[Sort|Order|Arrange] {shown} [{az}|]",
                   f"[sort|order|alphabetize] [words|list|this list|this|] [:|] {shown}", f"{shown} - [sort|sort them|order them|put them in order] [{az}|]",
                   f"[list|write|print] [these words|these|] {az} [:|] {shown}", f"[what is|give me|show me|I need] {shown} [sorted|in order|ordered] {az}",
                   f"[Put|Bring] [these words|the words|these|this list|] [into|in] [the right|alphabetical|alphabetic] order [:|] {shown}",
                   f"{shown} [sort|sorted|in order] {az}"),
            held=(f"Here are some words: {shown}. [Sort|Order] them {az}.", f"[Order|Rank] the terms {shown} {az}", f"I want {shown} sorted {az}",
                  f"alphabetical order for {shown}"))
    return q, ", ".join(sorted(ws))


@kind(1.8)
def reverse_list(rng):
    low = 4 if rng.style == STRICT else 3
    items = some_words(rng, low, 9) if rng.random() < 0.7 else [str(n) for n in numbers(rng, low, 9)]
    if rng.style == LOOSE and rng.random() < 0.08:
        items = [in_words(n) for n in rng.sample(range(21), rng.randint(3, 7))]
    shown = listing(rng, items)
    q = ask(rng, f"Reverse this list: {shown}.", f"Reverse the order of {shown}.", f"Write this list backwards: {shown}.",
            f"Read this list from the end: {shown}.",
            loose=(f"[Reverse|Flip|Turn around|Invert] [this|the|my|this list of|the following|] [list|items|order|elements] [of|:|] {shown}",
                   f"[Reverse|Flip] {shown}", f"[write|list|print|read|give me|show|say] [this list|the list|this|these|] [backwards|in reverse order|in reverse|from the end|from back to front|from last to first] [:|] {shown}",
                   f"{shown} - [reverse it|reverse|backwards|in reverse|reverse the order|reverse this]", f"reverse the order [of|:] [these|this list|these items|] [:|] {shown}",
                   f"[what is|give me|show me] {shown} [backwards|in reverse|in reverse order|reversed]"),
            more=(f"{shown} [from last to first|last to first|from back to front|back to front|last first|from the end|from right to left|from end to start]",
                  f"[from last to first|from back to front|back to front|last one first|from the end to the start|from right to left|end to start|in reverse|backwards|reversed] : {shown}",
                  f"[put|bring|turn|get|order|arrange] {shown} [in reverse order|in reverse|into reverse order|in the opposite order|from back to front|from last to first]",
                  f"[start|begin] [with|at|from] the [last|end] [one|item|] : {shown}", f"[the|] [reverse|reversed list|reverse order] of {shown}",
                  f"[go through|say|write|repeat|name|tell me] {shown} [from back to front|from last to first|from the last to the first|starting at the end|the other way round]",
                  f"take {shown} and [reverse|flip|invert] [it|them|the order]"),
            held=(f"Here is a list: {shown}. Reverse it.", f"Read {shown} from back to front", f"I want {shown} in reverse order", f"last to first: {shown}"))
    return q, ", ".join(reversed(items))


@kind(1.3)
def count_steps(rng):
    step, n = rng.choice((1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10, 20, 25)), rng.randint(6, 18)
    start = rng.choice((0, step, rng.randint(0, 20)))
    values = [start + i * step for i in range(n)]
    down = rng.random() < 0.25
    if down:
        values.reverse()
    a, b, way = values[0], values[-1], "down" if down else "up"
    span = f"[from|] {a} [to|up to|until|till|through|-] {b}" if not down else f"[from|] {a} [to|down to|until|till|through] {b}"
    by = f"[in steps of {step}|by {step}s|by {step}|in {step}s|with step {step}|with a step of {step}|{step} at a time|every {step}]"
    loose = [f"[Count|Count {way}|Please count|Go|Step|count numbers] {span} {by}", f"[list|write|print|show|give me|say] [the numbers|numbers|all numbers|every number] {span} {by}",
             f"[start|begin] at {a} and [count|go] {way} by {step} [until|to|till|up to] {b}", f"{by} [count|count {way}] {span}", f"numbers {span} {by}"]
    if step == 1:
        loose += [f"[Count|Count {way}] {span}"] * 3 + [f"[list|write|print|show|give me|say] [the numbers|numbers|all numbers] {span}"] * 2
    q = ask(rng, f"Count {way} from {a} to {b} in steps of {step}.", f"Count from {a} to {b} by {step}s.",
            f"List the numbers from {a} to {b} in steps of {step}.", f"Start at {a} and count {way} by {step} until {b}.", loose=tuple(loose),
            held=(f"Can you count {span} {by}?", f"I want the numbers {span} {by}", f"begin with {a} and count {way} {by} until {b}"))
    return q, ", ".join(map(str, values))


@kind(1.0)
def bullets(rng):
    items = some_words(rng, 3, 7)
    shown = listing(rng, items)
    make = "[Make|Create|Write|Build|Give me|Produce|Format as|I need|Turn into]"
    if rng.random() < 0.5:
        name = "[bullet list|bulleted list|bullet points|list with bullets|list of bullets|bullets|list with bullet points]"
        q = ask(rng, f"Make a bullet list of {shown}.", f"Turn this into bullet points: {shown}.", f"Write as a bullet list: {shown}.",
                loose=(f"{make} [a|] {name} [of|from|for|with|:|out of] {shown}", f"[Turn|Convert|Change|Format|Put|Write|Make|Show|List] [this|these|these items|] [into|as|in|to] [a|] {name} [:|] {shown}",
                       f"{shown} as [a|] {name}", f"{name} [:|of] {shown}", f"[Turn|Make|Put|Convert] {shown} [into|to] [a|] {name}"),
                more=(f"[List|Print|Write|Display|Present|Output|Give me|Write down|Say] {shown} [as|with|in|using] [a|] {name}",
                      f"[Take|Use] {shown} and [write|make|give me] [a|] {name}", f"{shown}: [I need|please make|make me|write] [a|] {name}"),
                held=(f"Here are some items: {shown}. Make [a|] {name}.", f"Show {shown} as [a|] {name}", f"I want [a|] {name} of {shown}"))
        return q, "\n".join("- " + w for w in items)
    name = "[numbered list|list with numbers|ordered list|enumerated list|enumeration]"
    q = ask(rng, f"Make a numbered list of {shown}.", f"Number these items: {shown}.", f"Write as a numbered list: {shown}.",
            loose=(f"{make} [a|an|] {name} [of|from|for|with|:|out of] {shown}", f"[Turn|Convert|Change|Format|Put|Write|Make|Show] [this|these|these items|] [into|as|in|to] [a|an|] {name} [:|] {shown}",
                   f"{shown} as [a|an|] {name}", f"{name} [:|of] {shown}", f"[number|enumerate] [these|these items|the items|this list|the list|] [:|] {shown}"),
            more=(f"[List|Print|Write|Display|Present|Output|Give me|Write down|Say] {shown} [as|with|in|using] [a|an|] {name}",
                  f"[Take|Use] {shown} and [write|make|give me] [a|an|] {name}", f"{shown}: [I need|please make|make me|write] [a|an|] {name}",
                  f"{shown} [with numbers|numbered]"),
            held=(f"Here are some items: {shown}. Number them.", f"Show {shown} as [a|an|] {name}", f"I want [a|an|] {name} of {shown}"))
    return q, "\n".join(f"{i}. {w}" for i, w in enumerate(items, 1))


@kind(0.6)
def repeat(rng):
    what, n = " ".join(some_words(rng, 1, 2)), rng.randint(2 if rng.style != STRICT else 3, 9)
    k = quoted(rng, what)
    times = f"[{n} times|{n}x|{n} x|{in_words(n)} times|exactly {n} times]"
    q = ask(rng, f"Repeat \"{k}\" {n} times.", f"Say \"{k}\" {n} times.", f"Write \"{k}\" {n} times.",
            loose=(f"[Repeat|Say|Write|Print|Type|Echo|Output] [the word|the words|the text|] \"{k}\" {times}", f"[Repeat|Say|Write|Print] {times} [:|] \"{k}\"",
                   f"\"{k}\" {times}", f"[I want|give me] \"{k}\" {times}", f"[repeat|say|write] [this|] {times}: \"{k}\"", f"[say|repeat|write] \"{k}\" [over and over|again and again], {times}"),
            held=(f"I want to see \"{k}\" {times}", f"Please say the words \"{k}\" {times}", f"[type|print] {times} the word \"{k}\""))
    return q, ", ".join([what] * n)


# ---------------------------------------------------------------------------------------------------------------------
# Words and letters

@kind(1.8)
def reverse_word(rng):
    w = word(rng)
    k = quoted(rng, w)
    q = ask(rng, f"Reverse the word \"{k}\".", f"Spell \"{k}\" backwards.", f"Write the word {k} backwards.",
            f"What is {k} spelled backwards?",
            loose=(f"[Reverse|Flip|Turn around|Invert] [the word|the letters of|the letters in|the string|the letters of the word|this word:|] \"{k}\"",
                   f"[Reverse|Flip|Turn around] [the word|the letters of|the letters in|the letters of the word|this word:] {k}", f"[Spell|Write|Type|Print|Say|Read] [the word|] \"{k}\" [backwards|backward|in reverse|from the end|from back to front|the other way round]",
                   f"[what is|what's|whats] [the word|] {k} [spelled|written|typed|] [backwards|backward|in reverse|reversed]", f"how do you [spell|write] {k} [backwards|backward|in reverse] ?",
                   f"{k} [backwards|backward|spelled backwards|in reverse|reversed]", f"[the|] reverse of [the word|] \"{k}\""),
            more=(f"[take|here is] {k} and [spell|write|say|type] it [backwards|in reverse|from the end]", f"{k} with [its|all|the] letters [turned around|in reverse|backwards|flipped]",
                  f"[turn|flip|mirror] [the letters of|the word|] \"{k}\" [around|backwards]", f"[the|] [reversed|backward|backwards|mirrored] [word|form|version|spelling] of [the word|] \"{k}\"",
                  f"letters of \"{k}\" [from last to first|from back to front|last to first|in reverse order]", f"[how|what] does {k} [look|read] [backwards|in reverse]?"),
            held=(f"Take the word {k} and reverse it", f"Give me \"{k}\" with the letters reversed", f"How is {k} written backwards?", f"backwards spelling of {k}"))
    return q, f"{w} is spelled {'-'.join(w)}. Backwards it is {'-'.join(reversed(w))}, so the answer is {w[::-1]}."


@kind(1.4)
def letters(rng):
    if rng.random() < 0.5:
        ws, at = some_words(rng, 2 if rng.style == STRICT else 1, 5), rng.choice((0, -1))
        shown, end = listing(rng, ws), "last" if at else "first"
        names = "[last|final|ending]" if at else "[first|starting|initial]"
        verb = "[end|ends|finish]" if at else "[start|starts|begin]"
        q = ask(rng, f"What is the {end} letter of {shown}?", f"Name the {end} letter of each word: {shown}.",
                loose=(f"[What is|What's|Whats|Tell me|Give me|Find|Name|Show|What are|Say] the {names} [letter|letters|character] [of|in|for] [each word:|each of|these words:|the words|the word|] {shown}",
                       f"[which|what] letter [do|does] {shown} {verb} with?", f"{names} letter of {shown}", f"with [which|what] letter [do|does] {shown} {verb} ?",
                       f"[which|what] is the {names} letter [of|in] {shown}"),
                more=(f"for {shown} [give|tell|find|show|say] [me|] the {names} letter", f"{shown} : [what is|which is|find|give me|] the {names} letter [of each|]?",
                      f"take [the words|] {shown} and [give|tell|show] me [the|each] {names} letter", f"{shown} [{verb}|all {verb}] with [what|which] letter?"),
                held=(f"Here are some words: {shown}. What is the {end} letter of each?", f"For {shown}, name the {names} letter", f"I want the {names} letter of {shown}"))
        return q, ", ".join(f"{w} {'ends' if at else 'starts'} with {w[at]}" for w in ws) + "."
    w = word(rng)
    k = quoted(rng, w)
    q = ask(rng, f"How many letters does \"{k}\" have?", f"Count the letters in {k}.", f"How long is the word {k}?",
            loose=(f"[How many|What number of] [letters|characters] [does|has] [the word|] \"{k}\" [have|contain|got|] ?", f"how many [letters|characters] [are|are there] in [the word|] \"{k}\"",
                   f"[Count|Count up|Tell me|Give me|Find] the [letters|characters|number of letters|number of characters] [in|of] [the word|] \"{k}\"",
                   f"[how long is|what is the length of|length of|give me the length of] the word \"{k}\"", f"[number of|count] letters in [the word|] \"{k}\"", f"letter count of {k}"),
            more=(f"[Here is|Look at|Consider|Read|I have] [the|this|a] word [:|] {k}. [Count its letters|How long is it|How many letters are in it|How many letters are there|Tell me how many letters it has][.|?|]",
                  f"[Take|Count] \"{k}\" [letter by letter|and count its letters|and say how long it is]", f"{k}: how many letters [are there|are in it|are these|does that make|has it got|]?",
                  f"how many letters [do you need to write|are used in|long is] \"{k}\"", f"the word is {k}. [how long is it|how many letters is that]?"),
            held=(f"Take the word {k}. How many letters does it have?", f"how many letters make up \"{k}\"?", f"I want the number of letters in {k}"))
    return q, f"{', '.join(f'{i} {c}' for i, c in enumerate(w, 1))}. The word {w} has {plural(len(w), 'letters')}."


@kind()
def count_words(rng):
    ws = clause(rng).split()
    k = quoted(rng, " ".join(ws))
    q = plain(rng, f"How many words are in \"{k}\"?", f"Count the words: {k}",
              f"How many words does this sentence have? {k}", f"Count the words in \"{k}\".",
              loose=(f"[How many|What number of] words [are|are there] in [this sentence|this text|the sentence|the text|this] [:|?|] {k}", f"how many words [does|has] \"{k}\" [have|contain|] ?",
                     f"[Count|Count up|Number|Give me|Tell me] [the|all|all the] words [in|of] [this|the|this sentence|the sentence|this text|] [:|] \"{k}\"",
                     f"[word count|words|number of words] [of|in|for|:] \"{k}\"", f"\"{k}\" - how many words [is that|are there|are these|does it have]?", f"count words : {k}"),
              held=(f"Here is a sentence: \"{k}\". How many words does it have?", f"I want the number of words in \"{k}\"", f"what is the word count of this: {k}"))
    return q, f"{', '.join(f'{i} {w}' for i, w in enumerate(ws, 1))}. There are {len(ws)} words."


def text_to_copy(rng):
    """The text of which the case changes. In a training prompt, every fourth one has words in any order."""
    if rng.style == LOOSE and rng.random() < 0.25:
        return " ".join(some_words(rng, 3, 7))
    return sentence(rng) if rng.style == STRICT or rng.random() < 0.8 else " ".join(some_words(rng, 1, 3))


CHANGE = "[Write|Convert|Change|Turn|Make|Put|Set|Print|Type|Transform|Rewrite]"


@kind(3.0)
def upper_case(rng):
    text = text_to_copy(rng)
    k = quoted(rng, text)
    up = "[upper case|uppercase|upper-case|capitals|capital letters|caps|all caps|big letters|block capitals]"
    q = plain(rng, f"Write in upper case: {k}", f"Convert to upper case: {k}", f"Make this upper case: \"{k}\"",
              f"Put \"{k}\" in capital letters.", f"Shout this: {k}",
              loose=(f"{CHANGE} [this|this text|this sentence|the following|] [in|into|to|as|] {up} [:|] {k}", f"{CHANGE} \"{k}\" [in|into|to] {up}",
                     f"[capitalize|uppercase|upcase|shout|upper] [all of|all letters of|] [this|] [:|] \"{k}\"", f"\"{k}\" in {up}", f"{up} : {k}", f"[to|in] {up}: {k}",
                     f"[can you|could you|please] [write|say] \"{k}\" in {up}", f"shout \"{k}\""),
              more=(f"\"{k}\" [should be|must be|please|now|written|typed|all] in {up}", f"[Take|Use|Look at] [the text|the words|this text:|the sentence|] \"{k}\"[. Put it| and put it| and write it| and turn it] [in|into|to] {up}",
                    f"{k} - [in|to|now in|all in] {up}", f"[the text|my text|this text|the words|sentence|text]: {k} [in|to] {up}",
                    f"[repeat|say|copy|print|give me|show me|tell me] \"{k}\" in {up}", f"[repeat|say|copy|print|type] [this|] in {up}: {k}", f"[shout|yell|cry|scream] [it|this|the words|] [out|out loud|loudly|] : {k}"),
              held=(f"Here is a text: \"{k}\". Write it in {up}.", f"I want \"{k}\" in {up}", f"show me this in {up}: {k}"))
    return q, text.upper()


@kind(1.6)
def lower_case(rng):
    text = text_to_copy(rng)
    k = quoted(rng, text.upper())
    low = "[lower case|lowercase|lower-case|small letters|lower case letters|little letters|small caps]"
    q = plain(rng, f"Write in lower case: {k}", f"Convert to lower case: {k}",
              f"Make this lower case: \"{k}\"", f"Put \"{k}\" in small letters.",
              loose=(f"{CHANGE} [this|this text|this sentence|the following|] [in|into|to|as|] {low} [:|] {k}", f"{CHANGE} \"{k}\" [in|into|to] {low}",
                     f"[lowercase|downcase|lower] [all of|all letters of|] [this|] [:|] \"{k}\"", f"\"{k}\" in {low}", f"{low} : {k}", f"[to|in] {low}: {k}",
                     f"[can you|could you|please] [write|say] \"{k}\" in {low}"),
              more=(f"\"{k}\" [should be|must be|please|now|written|typed|all] in {low}", f"[Take|Use|Look at] [the text|the words|this text:|the sentence|] \"{k}\"[. Put it| and put it| and write it| and turn it] [in|into|to] {low}",
                    f"{k} - [in|to|now in|all in] {low}", f"[the text|my text|this text|the words|sentence|text]: {k} [in|to] {low}",
                    f"[repeat|say|copy|print|give me|show me|tell me] \"{k}\" in {low}", f"[repeat|say|copy|print|type] [this|] in {low}: {k}"),
              held=(f"Here is a text: \"{k}\". Write it in {low}.", f"I want \"{k}\" in {low}", f"show me this in {low}: {k}"))
    return q, text


@kind(2.2)
def replace(rng):
    ws = sentence(rng).split()
    old, new = rng.choice(ws[2:]), rng.choice(W.THINGS)
    text = " ".join(ws)
    k, o, n = (quoted(rng, x) for x in (text, old, new))
    q = plain(rng, f"Replace \"{o}\" with \"{n}\": {k}", f"In this sentence, change {o} to {n}: {k}",
              f"Replace the word {o} with {n} in \"{k}\".",
              loose=(f"[Replace|Swap|Substitute|Exchange] [the word|] \"{o}\" [with|by|for] [the word|] \"{n}\" [in|in this sentence|in this text|in this|] : {k}",
                     f"[Replace|Swap|Substitute] {o} [with|by|for] {n} in \"{k}\"", f"[change|turn|switch] [the word|] \"{o}\" [to|into] \"{n}\" [in this sentence|in this|] : {k}",
                     f"[change|turn] {o} [to|into] {n} in \"{k}\"", f"in \"{k}\" [replace|change|swap] {o} [with|to|for] {n}", f"in [this sentence|this text|the sentence] [,|] [replace|swap] {o} [with|by|for] {n} : {k}",
                     f"{o} -> {n} : {k}", f"[use|write|put] {n} [instead of|in place of|for] {o} : {k}",
                     f"[every|each] {o} [becomes|should be|turns into] {n} : {k}", f"[replace|change] [every|each] {o} [with|by|to] {n} : {k}"),
              more=(f"{o} [=>|-->|to|→|>] {n} [:|in] {k}", f"[replace|change|swap|substitute] {o} [->|=>|-->|→] {n} [:|in] {k}", f"{k} : {o} [->|=>|-->|→] {n}", f"{k} - [replace|change|swap] {o} [with|by|for|to|->] {n}",
                    f"\"{k}\" [with|using] {n} [instead of|in place of|for] {o}", f"\"{k}\" [but|except] {o} [is|becomes|should be] {n}", f"[turn|make|switch|convert] [every|each|all|any|the word|] {o} into {n} [in|in this|] : {k}",
                    f"[change|replace|exchange|swap] [all|any|the word|the words|] {o} [to|into|with|for|by] {n} [:|in] {k}", f"{o} [should be|becomes|is now|must be|turns to] {n} : {k}",
                    f"[put|write|use|say] {n} [wherever|everywhere|whenever] [you see|you find|there is] {o} : {k}", f"[wherever|whenever] you see {o} [put|write|use|say] {n} : {k}",
                    f"{n} [for|instead of|in place of|not] {o} : {k}", f"[find|look for] {o} [and replace it with|and change it to|, replace with|, put] {n} : {k}",
                    f"Take the [sentence|text] \"{k}\" and [replace|change|swap] {o} [with|to|for] {n}"),
              held=(f"Here is a sentence: \"{k}\". Replace {o} with {n}.", f"please write {n} where it says {o}: {k}", f"change every {o} into {n}: {k}"))
    return q, " ".join(new if w == old else w for w in ws)


@kind(0.6)
def opposite(rng):
    count = rng.randint(1, 4) if rng.style == STRICT else rng.choice((1, 1, 1, 2, 3, 4))
    pairs = [p if rng.random() < 0.5 else p[::-1] for p in rng.sample(W.OPPOSITES, count)]
    shown = listing(rng, [w for w, _ in pairs])
    q = ask(rng, f"What is the opposite of {shown}?", f"Give the opposite of {shown}.", f"Name the opposite of {shown}.",
            loose=(f"[What is|What's|Whats|Give|Give me|Name|Tell me|Find|Say|Write] [the|an] [opposite|opposites|antonym|contrary|opposite word] [of|for|to] [the word|the words|] {shown}",
                   f"[opposite|opposites|antonym|the opposite] [of|for|:] {shown}", f"what [word|] is [opposite|the opposite] [to|of] {shown}?", f"{shown} [opposite|antonym]",
                   f"[what is|what's] the contrary of {shown}?"),
            more=(f"for {shown} [give|tell|find|say|write] [me|] the [opposite|opposites|antonym]", f"{shown} : [what is|give me|name|find|] the [opposite|opposites|antonym]?",
                  f"take {shown} and [give|tell|name|show] me the [opposite|opposites|antonym]", f"[I am looking for|let me have|show me] the [opposite|antonym] [of|to|for] {shown}"),
            held=(f"Which word is the opposite of {shown}?", f"I need the opposite of {shown}", f"For {shown}, name the opposite"))
    return q, " ".join(f"The opposite of {w} is {o}." for w, o in pairs)


# ---------------------------------------------------------------------------------------------------------------------
# Text with structure

@kind(1.8)
def json_object(rng):
    more = rng.style != STRICT
    name, job, age = person(rng), rng.choice(W.JOBS + W.MORE_JOBS * more), rng.randint(18 if not more else 1, 90 if not more else 99)
    city = rng.choice(W.CITIES + W.MORE_CITIES * more)
    color, pet = rng.choice(W.COLORS), rng.choice(list(W.ANIMALS))
    stop = "" if more and rng.random() < 0.4 else "."
    text, fields = rng.choice((
        (f"{name} is {age} years old and lives in {city}{stop}", ("name", "age", "city")),
        (f"{name} lives in {city} and works as a {job}{stop}", ("name", "city", "job")),
        (f"{name}, {age}, is a {job} from {city}{stop}", ("name", "age", "job", "city")),
        (f"The {job} {name} is {age} years old{stop}", ("name", "job", "age")),
        (f"{name} from {city} has a {color} {pet}{stop}", ("name", "city", "pet", "color")),
        (f"{name} is {age}, likes {color} and has a {pet}{stop}", ("name", "age", "color", "pet"))))
    value = dict(name=name, city=city, job=job, age=age, color=color, pet=pet)
    k = quoted(rng, text)
    q = plain(rng, f"Write as JSON: {k}", f"Convert to JSON: {k}", f"Turn this into JSON: {k}",
              f"Extract the facts as JSON: {k}", f"{k} Write this as JSON.",
              loose=(f"[Write|Convert|Turn|Put|Format|Change|Transform|Express|Show|Give] [this|this sentence|the following|this text|] [as|to|into|in] [JSON|a JSON object|JSON format|valid JSON] [:|] {k}",
                     f"[Extract|Get|Pull out|Find] the [facts|fields|data|information|details] [as|in|into|to] [JSON|a JSON object|JSON format] [:|] {k}",
                     f"{k} [-> JSON|as JSON|to JSON|in JSON please|- as JSON]", f"JSON : {k}", f"[make|create|build|generate|give me|I need] [JSON|a JSON object|the JSON] [from|for|of|out of] [this|] [:|] {k}",
                     f"[to|as] JSON : {k}", f"{k} [Write|Convert|Turn|Put] [this|that|it] [as|to|into] JSON"),
              more=(f"\"{k}\" [as|in|to|into] [JSON|a JSON object]", f"[These are|I have|Look at] [some|the|] facts: \"{k}\" [Write|Convert|Turn|Put|Make] [them|this|all] [as|to|into|in] JSON",
                    f"[Take|Use|Read] \"{k}\" and [write|give me|make] [JSON|a JSON object|the JSON]", f"[Convert|Turn|Write|Put] \"{k}\" [as|to|into] JSON",
                    f"[fields|facts|data] of \"{k}\" [as|in] JSON"),
              held=(f"Here is a sentence: \"{k}\" Write it as JSON.", f"I want this as [JSON|a JSON object]: {k}", f"What is this in JSON: {k}"))
    return q, json.dumps({f: value[f] for f in fields})


@kind(0.7)
def calendar(rng):
    cycle, unit = rng.choice(((W.DAYS, "day"), (W.MONTHS, "month")))
    i, n, ahead = rng.randrange(len(cycle)), rng.randint(1, 6), rng.random() < 0.7
    way = "after" if ahead else "before"
    steps = [cycle[(i + (k if ahead else -k)) % len(cycle)] for k in range(1, n + 1)]
    some = plural(n, unit + "s")
    count = f"[{some}|{in_words(n)} {some.split()[1]}]"
    ways = "[after|following|past]" if ahead else "[before|ahead of|prior to]"
    loose = [f"[Which|What|Tell me which|Tell me what] {unit} [comes|is|will it be|is it|do we have|falls] {count} {ways} {cycle[i]} ?",
             f"[Name|Tell me|Give me|Find|Say] the {unit} [that is|that comes|which is|] {count} {ways} {cycle[i]}", f"{count} {ways} {cycle[i]} [is|is what {unit}|is which {unit}|] ?",
             f"[{cycle[i]} plus|{cycle[i]} +] {some}" if ahead else f"[{cycle[i]} minus|{cycle[i]} -] {some}", f"the {unit} {count} {ways} {cycle[i]}"]
    if n == 1:
        loose += [f"[Which|What] {unit} [comes|is|follows|goes] [{'after|right after|directly after' if ahead else 'before|right before|directly before'}] {cycle[i]} ?",
                  f"{unit} {way} {cycle[i]}", f"what [comes|is] {way} {cycle[i]}?"]
    q = ask(rng, f"Which {unit} comes {some} {way} {cycle[i]}?", f"What {unit} is {some} {way} {cycle[i]}?",
            f"Name the {unit} {some} {way} {cycle[i]}.", loose=tuple(loose),
            held=(f"I want to know the {unit} {count} {ways} {cycle[i]}", f"Take {cycle[i]}. Which {unit} is {count} {ways} it?"))
    return q, f"Counting {'on' if ahead else 'back'} from {cycle[i]}: {', '.join(steps)}. The answer is {steps[-1]}."


# ---------------------------------------------------------------------------------------------------------------------
# Stories

TELL = "[Tell|Tell me|Write|Write me|Make up|Create|Invent|Give me|I want|Compose|Come up with|Can you tell me|Can you write] [a|one|a short|a little|a nice|a small|a brief|another] [story|tale|fairy tale|story please]"
TELL_HELD = ("[I would like to hear|Please tell me|Let me hear|Do you know] [a|a short|a nice] [story|tale]",)
ANY_PLACE, ANY_MOOD = "in a far land", "curious"
ANY_DEED, ANY_END = "kept it safe", "everybody was happy"


def facts(animal, thing):
    """(place, mood, deed, end); words that the tables lack get the general ones."""
    return W.ANIMALS.get(animal, (ANY_PLACE, ANY_MOOD)) + W.OBJECTS.get(thing, (ANY_DEED, ANY_END))


def some_animal(rng):
    """An animal of the table. Loose prompts also have others, for the general plot."""
    if rng.style == STRICT or rng.random() < 0.8:
        return rng.choice(list(W.ANIMALS))
    return rng.choice([w for w in W.MORE_THINGS + W.JOBS if w not in W.ANIMALS and w not in W.OBJECTS])


def some_object(rng):
    if rng.style == STRICT or rng.random() < 0.85:
        return rng.choice(list(W.OBJECTS))
    return rng.choice([w for w in W.THINGS if w not in W.ANIMALS and w not in W.OBJECTS])


@kind(2.2)
def story(rng):
    if rng.style != STRICT and rng.random() < 0.5:
        return story_about_one(rng)
    animal, thing = some_animal(rng), some_object(rng)
    form = rng.choice((named_story, friends_story, plain_story))
    return form(rng, animal, thing)


def friends_story(rng, animal, thing):
    place, mood, deed, end = facts(animal, thing)
    friend = rng.choice([a for a in W.ANIMALS if a != animal])
    home, feeling = W.ANIMALS[friend]
    a, f, o = with_article(animal), with_article(friend), with_article(thing)
    q = ask(rng, f"Tell a short story about {a}, {f} and {o}.", f"Write a story about {a}, {f} and {o}.", f"Tell me how {a} and {f} found {o}.",
            loose=(f"{TELL} [about|with|of] [{a}, {f} and {o}|{animal}, {friend}, {thing}|{animal} {friend} {thing}|the {animal}, the {friend} and the {thing}|{a} and {f} and {o}]",
                   f"[Tell|Tell me|Write|Explain] how [{a}|the {animal}] and [{f}|the {friend}] found [{o}|the {thing}]", f"story: {animal}, {friend}, {thing}",
                   f"{a}, {f} and {o}: [tell me a story|a story please|write a story]"),
            held=tuple(f"{t} about {a}, {f} and {o}" for t in TELL_HELD))
    return q, f"Once upon a time {with_article(mood)} {animal} lived {place} and {with_article(feeling)} {friend} lived {home}. " \
              f"Together they found {o}. The {animal} {deed}, while the {friend} told everybody. " \
              f"In the end {end}, and the {animal} and the {friend} became good friends."


def named_story(rng, animal, thing):
    place, mood, deed, end = facts(animal, thing)
    name, a, o = person(rng), with_article(animal), with_article(thing)
    k = called(rng, name)
    q = ask(rng, f"Tell a short story about {a} named {k} and {o}.", f"Write a story about {k} the {animal} and {o}.",
            f"Tell me a story with {a} called {k} and {o}.",
            loose=(f"{TELL} [about|with|of] [{a} named {k}|{a} called {k}|{k} the {animal}|the {animal} {k}|my {animal} {k}] and [{o}|the {thing}]",
                   f"story about {k} the {animal} and [{o}|the {thing}|{thing}]", f"{k} is {a}. {TELL} about {k} and {o}"),
            held=tuple(f"{t} about {a} called {k} and {o}" for t in TELL_HELD))
    return q, f"{name} was {with_article(mood)} {animal} who lived {place}. One day {name} found {o} and {deed}. " \
              f"Before long {end}, and {name} was happy ever after."


def plain_answer(animal, thing):
    place, mood, deed, end = facts(animal, thing)
    return f"Once upon a time {with_article(mood)} {animal} lived {place}. One morning the {animal} found {with_article(thing)} and {deed}. " \
           f"In the end {end}, and the {animal} slept well that night."


def plain_story(rng, animal, thing):
    a, o = with_article(animal), with_article(thing)
    q = ask(rng, f"Tell a short story about {a} and {o}.", f"Write a story about {a} and {o}.",
            f"Tell me a story with {a} and {o}.", f"Make up a tale about {a} and {o}.",
            loose=(f"{TELL} [about|with|of|on] [{a} and {o}|{animal} and {thing}|the {animal} and the {thing}|a {animal} and a {thing}|{animal}, {thing}|{a} with {o}|{a} who finds {o}|{a} that found {o}]",
                   f"[a|] [short story|story|tale] [about|with|of] [{a} and {o}|{animal} and {thing}|the {animal} and the {thing}]", f"story: {animal}, {thing}",
                   f"{a} and {o}: [tell me a story|a story please|write a story]"),
            held=tuple(f"{t} about {a} and {o}" for t in TELL_HELD) + (f"Make a story out of {a} and {o}",))
    return q, plain_answer(animal, thing)


def story_about_one(rng):
    """Only an animal, only an object, or neither: the tables name the other one."""
    form = rng.random()
    if form < 0.12:
        q = ask(rng, "Tell me a story.", loose=(TELL, "[story|a story|story please|story time|once upon a time|tell story|short story]", f"{TELL} [about anything|about something|of your choice]"),
                held=TELL_HELD)
        return q, plain_answer("fox", "lamp")
    if form < 0.3:
        thing = rng.choice(list(W.OBJECTS))
        animal, about = W.OBJECTS_AGAIN[thing], thing
    else:
        animal = about = some_animal(rng)
        thing = W.ANIMALS_AGAIN.get(animal, "lamp")
    the = with_article(about)
    what = f"[{the}|{about}|the {about}|a {about}|my {about}|one {about}|{about}s|{the}]"
    q = ask(rng, f"Write a story about {the}.", f"Tell a short story about {the}.",
            loose=(f"{TELL} [about|with|of|on] {what}", f"[a|] [short story|story|tale|{about} story] [about|with|of] {what}", f"story: {about}", f"{TELL} where {the} [is the hero|is the main character|plays a role]",
                   f"tell me about {the} in a story"),
            held=tuple(f"{t} about {what}" for t in TELL_HELD))
    return q, plain_answer(animal, thing)
