"""Loose wording: alternatives in templates, then changes of case, spacing, punctuation and courtesy.

A template has alternatives in brackets, which may be nested: "[Sort|Order] [these|the|] numbers". Payload (the numbers to
sort, the word to reverse) stands between two marks that `keep` sets; nothing between the marks is changed.

Every eighth wording, chosen by a hash of the template's text without its payload, is held out: training never sees it.
"""
import re
import zlib

OPEN, CLOSE = "\x01", "\x02"
ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
PAYLOAD = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
TRIES = 40
CURLY = "\u201c\u201d"


def keep(text):
    """Marks payload."""
    return f"{OPEN}{text}{CLOSE}"


def expand(rng, template):
    """The template with one choice for each group of alternatives. Payload may contain brackets."""
    payload = []

    def put_aside(match):
        payload.append(match.group(0))
        return f"{OPEN}{len(payload) - 1}{CLOSE}"
    text = PAYLOAD.sub(put_aside, template)
    while ALTERNATIVES.search(text):
        text = ALTERNATIVES.sub(lambda m: rng.choice(m.group(1).split("|")), text)
    text = re.sub(" +", " ", text).strip()
    return PAYLOAD.sub(lambda m: payload[int(m.group(1))], text)


def is_held_wording(text):
    return zlib.crc32(PAYLOAD.sub("@", text).lower().encode()) % 8 == 0


def wordings(rng, forms, loose, held, is_held):
    """A wording from the side of the split that is asked for. Forms are never held out."""
    if not is_held:
        for _ in range(TRIES):
            template = rng.choice(loose) if loose and rng.random() < 0.8 else rng.choice(forms)
            text = expand(rng, template)
            if template in forms or not is_held_wording(text):
                return text
        return expand(rng, rng.choice(forms))
    if held and rng.random() < 0.4:
        return expand(rng, rng.choice(held))
    for _ in range(TRIES):
        text = expand(rng, rng.choice(loose)) if loose else expand(rng, rng.choice(forms))
        if is_held_wording(text):
            return text
    return expand(rng, rng.choice(held or loose or forms))


# ---------------------------------------------------------------------------------------------------------------------
# The surface

QUESTION = re.compile(r"(?i)^(what|which|how|whats|who|is|are|if|when|where|does|do)\b")
REQUESTS = ("please ", "please, ", "pls ", "can you ", "could you ", "can you please ", "could you please ", "would you ", "now ",
            "ok, ", "okay now ", "hey, ", "hi, ", "hello, ", "i want you to ", "i need you to ", "i'd like you to ", "help me ",
            "help me to ", "let's ", "go ahead and ", "just ", "quickly ", "kindly ", "so, ", "task: ", "your task: ",
            "unmask, ", "hey unmask, ", "next, ", "then ", "i would like you to ", "would you please ", "can u ", "plz ")
REQUESTS_HELD = ("could you kindly ", "ok now please ", "hi, can you ", "hey, please ", "i want you to please ", "right, now ")
QUESTIONS = ("hey, ", "hi, ", "so ", "so, ", "and ", "ok, ", "quick question: ", "question: ", "q: ", "tell me, ", "please tell me, ",
             "hello, ", "can you tell me: ", "do you know ", "i wonder, ", "well, ", "um, ", "unmask, ", "now ", "please: ")
QUESTIONS_HELD = ("ok so ", "hey unmask, ", "please tell me: ", "hi, quick question: ")
ENDS = (" please", ", please", " please.", " thanks", ", thanks", " thx", " for me", " now", ", thank you", " pls", " thank you!")
ENDS_HELD = (" please, thanks", " for me please", " right now")


def pieces(text):
    """[(is payload, text), ...]"""
    out, at = [], 0
    for m in PAYLOAD.finditer(text):
        out += [(False, text[at:m.start()]), (True, m.group(1))]
        at = m.end()
    return [p for p in out + [(False, text[at:])] if p[1] or p[0]]


def surface(rng, text, is_held):
    """The text as people type it: courtesy, case, quotes, colons, final marks, spaces, slips."""
    asks = bool(QUESTION.match(text))
    if rng.random() < 0.3 and text[:1].isalpha() and not text.startswith(("I ", "Here ")):
        starts = QUESTIONS if asks else REQUESTS
        if is_held and rng.random() < 0.5:
            starts = QUESTIONS_HELD if asks else REQUESTS_HELD
        start = rng.choice(starts)
        text = (start.capitalize() if rng.random() < 0.5 else start) + text[0].lower() + text[1:]
    parts = end_mark(rng, pieces(text), is_held)
    change = rng.choices((str, str.lower, str.upper), (50, 45, 5))[0]
    quote = rng.choice(('"', '"', "'", "", "`", CURLY))
    colon = rng.choice((": ", ": ", ":", " ", " : ", " - ", ":\n", "\n", ":\n\n"))
    slips = rng.random() < 0.06
    out = []
    for is_payload, part in parts:
        if not is_payload:
            part = slip(rng, part) if slips and len(part) > 5 else part
            part = change(quotes(part, quote, not out).replace(": ", colon))
        out.append(part)
    text = "".join(out)
    if rng.random() < 0.04:
        text = rng.choice((" ", "  ", "\n")) + text
    if rng.random() < 0.06:
        text += rng.choice((" ", "  ", "\n", "\n\n"))
    return text


def end_mark(rng, parts, is_held):
    """Replaces the final mark, and adds courtesy behind the instruction. Nothing is added behind payload."""
    is_payload, last = parts[-1]
    if is_payload:
        return parts
    mark = last[-1:] if last[-1:] in (".", "?") else ""
    if mark:
        parts[-1] = (False, last[:-1])
    roll, end = rng.random(), mark
    if roll < 0.45:
        end = ""
    elif roll < 0.55:
        end = rng.choice(("!", "?", ".", "??", "...", " ?", " .", "?!", "!!"))
    elif roll < 0.63:
        end = rng.choice(ENDS_HELD if is_held and rng.random() < 0.5 else ENDS)
    return parts + [(False, end)] if end else parts


def quotes(part, quote, is_first):
    """Replaces the straight quotes around payload. A quote that opens a later part closes the payload before it."""
    if quote != CURLY:
        return part.replace('"', quote)
    if part.startswith('"') and not is_first:
        part = CURLY[1] + part[1:]
    return re.sub('"([^"]*)"', CURLY[0] + r"\1" + CURLY[1], part).replace('"', CURLY[0])


def slip(rng, part):
    """A typing slip in one word of the instruction: a letter twice, or two letters swapped."""
    spots = [m for m in re.finditer(r"[a-z]{5,}", part)]
    if not spots:
        return part
    m = rng.choice(spots)
    i = rng.randint(m.start() + 1, m.end() - 2)
    if rng.random() < 0.5:
        return part[:i] + part[i] + part[i:]
    return part[:i] + part[i + 1] + part[i] + part[i + 2:]
