"""Compares constraints with independent programs: oracles.py MATCH_TEST

Regular expressions and grammars that are not recursive are compared with Python's re, JSON schemas with the package
jsonschema. Constraints and texts are random, with the seed of the environment variable SEED. MATCH_TEST is the program
tests/grammar/match_test. A difference is printed, and ends the run.
"""
import json
import os
import random
import re
import subprocess
import sys

import jsonschema

SEED = int(os.environ.get("SEED", "20250611"))
ROUNDS = int(os.environ.get("ROUNDS", "400"))


class Matcher:
    def __init__(self, program):
        self.process = subprocess.Popen([program, "lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, constraint, texts=(), samples=0, seed=0, space_max=0):
        line = dict(kind=kind, constraint=constraint, texts=list(texts), samples=samples, seed=seed, space_max=space_max)
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def require(claim, *details):
    if not claim:
        print("seed", SEED, *[repr(d) for d in details])
        sys.exit(1)


# ---- Regular expressions and grammars ------------------------------------------------------------------------------ #

LETTERS = "ab0_ é\n"
SETS = ["\\d", "\\w", "\\s", "\\D", "\\W", "\\S"]


def random_class(r):
    items, gbnf = "", ""
    for _ in range(r.randint(1, 3)):
        kind = r.randrange(3)
        if kind == 0:
            items += r.choice(["a-c", "0-5", "à-ÿ", "\\x41-\\u005a", "\\]", "\\-"])
        elif kind == 1:
            items += r.choice(SETS)
        else:
            items += r.choice("ab0_é")
    return "[" + r.choice(["", "", "^"]) + items + "]"


def random_expression(r, depth):
    """Returns a pair: a regular expression, and the same in GBNF or None where it has nothing of the kind."""
    kind = r.randrange(9 if depth else 4)
    if kind < 3:
        c = r.choice("ab0_ é")
        return c, json.dumps(c, ensure_ascii=False)
    if kind == 3:
        if r.random() < 0.3:
            return ".", "[^\\n]"
        if r.random() < 0.5:
            c = r.choice(["[a-c]", "[^a0]", "[à-ÿ_]", "[^a-z\\n]"])
            return c, c
        return r.choice([random_class(r), r.choice(SETS)]), None
    if kind in (4, 5):
        parts = [random_expression(r, depth - 1) for _ in range(r.randint(0, 4))]
        gbnf = None if any(g is None for _, g in parts) else " ".join(g for _, g in parts)
        return "(?:" + "".join(p for p, _ in parts) + ")", gbnf and "(" + gbnf + ")" or (gbnf if gbnf is None else '""')
    if kind == 6:
        parts = [random_expression(r, depth - 1) for _ in range(r.randint(2, 3))]
        gbnf = None if any(g is None for _, g in parts) else " | ".join(g for _, g in parts)
        return r.choice(["(", "(?:", "(?P<n%d>" % r.randrange(10**9)]) + "|".join(p for p, _ in parts) + ")", gbnf and "(" + gbnf + ")"
    part, gbnf = random_expression(r, depth - 1)
    low = r.randint(0, 3)
    mark = r.choice(["*", "+", "?", "{%d}" % low, "{%d,}" % low, "{%d,%d}" % (low, low + r.randint(0, 2))])
    return "(?:" + part + ")" + mark + r.choice(["", "", "?"]), gbnf and "(" + gbnf + ")" + mark


def mutate(r, text):
    at = r.randint(0, len(text))
    return r.choice([text[:at] + r.choice(LETTERS) + text[at:], text[:at] + text[at + 1:], text[:at]])


def random_texts(r):
    return ["".join(r.choice(LETTERS) for _ in range(r.randint(0, 6))) for _ in range(8)] + [""]


def compare_expressions(m, r):
    n_match = n_grammars = 0
    for i in range(ROUNDS):
        pattern, gbnf = random_expression(r, 3)
        compiled = re.compile(pattern, re.ASCII)
        # Python's matcher may take exponential time; short texts keep it short.
        made = [t for t in m.ask("regex", pattern, samples=8, seed=i)["samples"] if len(t) < 16]
        for t in made:
            require(compiled.fullmatch(t), "not of the expression", pattern, t)
        texts = random_texts(r) + [mutate(r, t) for t in made] + made
        expected = [bool(compiled.fullmatch(t)) for t in texts]
        got = m.ask("regex", pattern, texts)
        require("matches" in got, "refused", pattern, got)
        for text, is_match, want in zip(texts, got["matches"], expected):
            require(is_match == want, "re says", want, pattern, text)
        n_match += sum(expected)
        if gbnf is None:
            continue
        n_grammars += 1
        got = m.ask("gbnf", "root ::= part | part\npart ::=\n  " + gbnf, texts)
        require(got.get("matches") == expected, "the grammar differs from re", gbnf, texts, expected, got)
    require(n_match > 2 * ROUNDS and n_grammars > ROUNDS // 10, "too few comparisons", n_match, n_grammars)
    print(f"{ROUNDS} expressions and {n_grammars} grammars agree with re; {n_match} texts match")


# ---- JSON schemas -------------------------------------------------------------------------------------------------- #


def random_number_keywords(r, s):
    number = lambda: r.choice([r.randint(-30, 130), round(r.uniform(-5, 5), 2), r.randint(-9, 9)])
    if r.random() < 0.5:
        s[r.choice(["minimum", "exclusiveMinimum"])] = number()
    if r.random() < 0.5:
        s[r.choice(["maximum", "exclusiveMaximum"])] = number()
    if s["type"] == "integer" and r.random() < 0.3:
        s["multipleOf"] = r.choice([1, 2, 3, 5, 7, 10, 12])
    return s


def random_string_keywords(r, s):
    kind = r.randrange(5)
    if kind == 0:
        s["minLength"] = r.randint(0, 3)
        s["maxLength"] = s["minLength"] + r.randint(0, 4)
    elif kind == 1:
        s["pattern"] = r.choice(["^a", "b$", "^[a-z]{1,4}$", "x", "^(foo|bar)-[0-9]+$", '["\\\\]', "^\\S+\\s\\d$", "^.{2}$"])
    elif kind == 2:
        s["format"] = r.choice(["date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "regex"])
    elif kind == 3:
        s["pattern"] = r.choice(["^[a-c]*$", "^[A-Z][a-z]*$", "^ab"])
        s["maxLength"] = r.randint(2, 5)
    return s


NAMES = ["a", "b", "name", 'q"uote', "é", "a/b", "ab"]


def random_object(r, depth, defs):
    s = {"type": "object"}
    names = r.sample(NAMES, r.randint(0, 4))
    if names:
        s["properties"] = {n: random_schema(r, depth - 1, defs) for n in names}
    if r.random() < 0.6:
        s["required"] = r.sample(names, r.randint(0, len(names))) + r.sample(["z", "a"], r.randint(0, 1))
    extra = r.randrange(4)
    if extra == 0:
        s["additionalProperties"] = False
    elif extra == 1:
        s["additionalProperties"] = random_schema(r, depth - 1, defs)
    if r.random() < 0.15:
        s["patternProperties"] = {"^x": random_schema(r, 0, defs)}
    if names and r.random() < 0.15:
        s["dependentRequired"] = {r.choice(names): r.sample(NAMES, r.randint(0, 2))}
    if names and r.random() < 0.1:
        s["dependentSchemas"] = {r.choice(names): random_object(r, 0, defs)}
    if r.random() < 0.1:
        s["unevaluatedProperties"] = r.choice([False, {"type": "integer"}])
    if r.random() < 0.2:
        s["maxProperties"] = r.randint(0, 4)
    if r.random() < 0.2:
        s["minProperties"] = r.randint(0, 2)
    return s


def random_array(r, depth, defs):
    s = {"type": "array"}
    if r.random() < 0.3:
        s["prefixItems"] = [random_schema(r, depth - 1, defs) for _ in range(r.randint(1, 3))]
    if r.random() < 0.7:
        s["items"] = random_schema(r, depth - 1, defs) if r.random() < 0.9 else False
    if r.random() < 0.1:
        s["unevaluatedItems"] = r.choice([False, {"type": "integer"}])
    if r.random() < 0.15:
        s.pop("prefixItems", None)
        s["items"], s["uniqueItems"] = {"enum": ["a", 1, None, True, "b"][: r.randint(1, 5)]}, True
    if r.random() < 0.5:
        s["minItems"] = r.randint(0, 2)
    if r.random() < 0.5:
        s["maxItems"] = r.randint(1, 4)
    return s


def random_schema(r, depth, defs):
    kind = r.randrange(13 if depth > 0 else 6)
    if kind == 0:
        return {"enum": r.sample([1, 2.5, "a", "b", None, True, [1], {"k": "v"}, 'x"y\\'], r.randint(1, 4))}
    if kind == 1:
        return {"type": r.choice(["null", "boolean", ["string", "integer"], ["number", "null"]])}
    if kind in (2, 3):
        return random_number_keywords(r, {"type": r.choice(["integer", "number"])})
    if kind in (4, 5):
        return random_string_keywords(r, {"type": "string"})
    if kind in (6, 7, 8):
        return random_object(r, depth, defs)
    if kind == 9:
        return random_array(r, depth, defs)
    if kind == 10:
        return {r.choice(["anyOf", "oneOf"]): [random_schema(r, depth - 1, defs) for _ in range(r.randint(1, 3))]}
    if kind == 11:
        return {"allOf": [random_schema(r, depth - 1, defs), random_schema(r, depth - 1, defs)]}
    return {"$ref": "#/$defs/" + r.choice(defs)}


def compare_schemas(m, r):
    counts = {"ok": 0, "samples": 0}
    for i in range(ROUNDS * 3):
        defs = ["one", "two"]
        schema = dict(random_schema(r, 3, defs))
        schema["$defs"] = {d: random_schema(r, 2, defs) for d in defs}
        text = json.dumps(schema, ensure_ascii=r.random() < 0.5)
        got = m.ask("schema", text, samples=8, seed=i, space_max=i % 3)
        counts["ok" if "samples" in got else got["status"]] = counts.get("ok" if "samples" in got else got["status"], 0) + 1
        if "error" in got:
            require(got["status"] in ("UM_EINVAL", "UM_EUNSUPPORTED"), text, got)
            continue
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for sample in got["samples"]:
            value = json.loads(sample)
            errors = [e.message for e in validator.iter_errors(value)]
            require(not errors, "jsonschema finds invalid", text, sample, errors)
            counts["samples"] += 1
        require(all(m.ask("schema", text, got["samples"], space_max=i % 3)["matches"]), "no match", text, got["samples"])
    require(counts["ok"] > ROUNDS and counts["samples"] > 5 * ROUNDS, "too few comparisons", counts)
    print(f"jsonschema finds the texts of schemas valid: {counts}")


def main():
    m = Matcher(sys.argv[1])
    compare_expressions(m, random.Random(SEED))
    compare_schemas(m, random.Random(SEED + 1))


main()
