"""Checks the answers of build/tests/grammar/trials with other programs: trials.py CONSTRAINTS < ANSWERS

Schemas are checked with jsonschema, regular expressions with re, grammars with lark, which reads the grammar that stands
beside the GBNF. Prints the number of answers of each kind. Exits with status 1 at the first answer that is wrong.
"""
import collections
import datetime
import decimal
import ipaddress
import json
import re
import sys
import uuid

import jsonschema
import lark

LABEL = r'[a-z0-9]([a-z0-9-]*[a-z0-9])?'
HOST = rf'{LABEL}(\.{LABEL})*'
CLOCK = r'([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)'
TIME = r'(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)'
FORMS = {
    'time': CLOCK,
    'hostname': HOST,
    'email': rf'[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@{HOST}',
    'uri': r"[a-z][a-z0-9+.-]*:[A-Za-z0-9._~!$&'()*+,;=:@/?#-]*",
    'duration': rf'P(\d+W|(?=.)(\d+Y)?(\d+M)?(\d+D)?(T{TIME})?)',
    'json-pointer': r'(/[^/~]*)*',
}


def parses(function):
    def check(text):
        try:
            function(text)
        except ValueError:
            return False
        return True
    return check


def is_date_time(text):
    day, clock = text.split('T')
    return parses(datetime.date.fromisoformat)(day) and bool(re.fullmatch(CLOCK, clock))


def formats():
    """Returns a checker of the formats: jsonschema itself leaves many of them to other packages."""
    checker = jsonschema.FormatChecker(formats=())
    own = {name: lambda text, form=re.compile(form): bool(form.fullmatch(text)) for name, form in FORMS.items()}
    own |= {'date': parses(datetime.date.fromisoformat), 'date-time': is_date_time, 'uuid': parses(uuid.UUID),
            'ipv4': parses(ipaddress.IPv4Address), 'ipv6': parses(ipaddress.IPv6Address)}
    for name, check in own.items():
        checker.checkers[name] = (lambda text, check=check: not isinstance(text, str) or check(text), ())
    return checker


def is_valid(validator):
    def check(text):
        try:
            validator.validate(json.loads(text, parse_float=decimal.Decimal))
        except (ValueError, jsonschema.ValidationError):
            return False
        return True
    return check


def is_sentence(grammar):
    """LALR is fast, but does not know all grammars. What it refuses is parsed again by Earley's algorithm."""
    slow = lark.Lark(grammar, parser='earley', lexer='dynamic')
    try:
        parsers = [lark.Lark(grammar, parser='lalr', lexer='contextual'), slow]
    except lark.exceptions.LarkError:
        parsers = [slow]

    def check(text):
        for parser in parsers:
            try:
                parser.parse(text)
                return True
            except lark.exceptions.LarkError:
                pass
        return False
    return check


def oracle(line):
    """Returns the kind of a constraint, and the function that checks a text."""
    if 'regex' in line:
        return 're', re.compile(line['regex'], re.ASCII).fullmatch
    if 'gbnf' in line:
        return 'lark', is_sentence(line['lark'])
    if 'choice' in line:
        return 'choice', line['choice'].__contains__
    schema = line.get('schema', {'type': 'object'})
    return 'jsonschema', is_valid(jsonschema.Draft202012Validator(schema, format_checker=formats()))


def main():
    with open(sys.argv[1]) as f:
        lines = [json.loads(line, parse_float=decimal.Decimal) for line in f]
    oracles = [oracle(line) for line in lines]
    seen, counts = set(), collections.Counter()
    for answer in sys.stdin:
        line = json.loads(answer)
        kind, check = oracles[line['constraint']]
        counts[kind] += 1
        if answer not in seen and not check(line['text']):
            sys.exit(f'{lines[line["constraint"]]}: wrong answer {line["text"]!r}')
        seen.add(answer)
    print(f'{sum(counts.values())} answers, {len(seen)} different ones:',
          ', '.join(f'{counts[kind]} {kind}' for kind in sorted(counts)))


main()
