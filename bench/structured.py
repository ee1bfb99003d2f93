#!/usr/bin/env python3
"""Measures constrained answers of the bundled models: bench/structured.py [UNMASK]

Asks the questions of models/eval.jsonl whose answer is a JSON object, without a constraint, with --json-object, and with a
schema of the wanted object, for two values of --json-space. An answer is right if it has the wanted properties and values.
Then asks one question under the 25 schemas of tests/data/structured/schemas.jsonl, with both ways of filling, and counts
the answers that jsonschema accepts. Prints
two tables in Markdown. It needs python3-jsonschema.
"""
import json
import subprocess
import sys

import jsonschema

UNMASK = sys.argv[1] if len(sys.argv) > 1 else 'build/unmask'
MODELS = {'tiny-block': [], 'tiny-full': ['--steps', '64']}


def schema_of(value):
    """Returns a schema that fixes names, order and types, but no values."""
    types = {str: {'type': 'string', 'maxLength': 20}, int: {'type': 'integer', 'minimum': 0, 'maximum': 999}}
    return {'type': 'object', 'properties': {k: types[type(v)] for k, v in value.items()}, 'required': list(value),
            'additionalProperties': False}


def ask(model, requests, *options):
    """Returns the texts, and the tokens per forward pass."""
    lines = ''.join(json.dumps({'id': i, 'max_tokens': 96, **r}) + '\n' for i, r in enumerate(requests))
    command = [UNMASK, 'generate', '--quiet', '--model', 'models/' + model, '--input', '-', '--output', '-',
               '--temperature', '0', *MODELS[model], *options]
    out = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in out.stdout.splitlines()]
    if len(answers) != len(requests) or any('error' in a for a in answers):
        sys.exit(out.stderr or out.stdout)
    return ([a['text'] for a in answers], sum(a['completion_tokens'] for a in answers) / sum(a['nfe'] for a in answers))


def is_right(text, answer):
    try:
        return json.loads(text) == json.loads(answer)
    except ValueError:
        return False


def is_valid(text, schema):
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def accuracy():
    with open('models/eval.jsonl') as f:
        questions = [q for q in map(json.loads, f) if q['kind'] == 'json_object']
    plain = [{'prompt': q['prompt']} for q in questions]
    strict = [dict(p, json_schema=schema_of(json.loads(q['answer']))) for p, q in zip(plain, questions)]
    rows = [('none', plain, ())]
    for space in '01':
        rows += [(f'--json-object --json-space {space}', plain, ('--json-object', '--json-space', space)),
                 (f'schema, --json-space {space}', strict, ('--json-space', space))]
    rows.append(('schema, --filling best', strict, ('--filling', 'best')))
    print('| constraint | model | right | tokens/forward |\n| --- | --- | --- | --- |')
    for model in MODELS:
        for name, requests, options in rows:
            texts, rate = ask(model, requests, *options)
            right = sum(is_right(t, q['answer']) for t, q in zip(texts, questions))
            print(f'| {name} | {model} | {right} of {len(questions)} | {rate:.2f} |', flush=True)


def validity():
    with open('tests/data/structured/schemas.jsonl') as f:
        schemas = [json.loads(line) for line in f]
    requests = [{'prompt': 'Write as JSON: Rosa is 26.', 'json_schema': s, 'max_tokens': 192} for s in schemas]
    print('\n| model | filling | valid | tokens/forward |\n| --- | --- | --- | --- |')
    for model in MODELS:
        for filling in ('each', 'best'):
            texts, rate = ask(model, requests, '--filling', filling)
            print(f'| {model} | {filling} | {sum(map(is_valid, texts, schemas))} of {len(schemas)} | {rate:.2f} |', flush=True)


accuracy()
validity()
