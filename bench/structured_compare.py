#!/usr/bin/env python3
"""Compares which JSON schemas constrained decoding accepts, and how long compiling takes:

    python bench/structured_compare.py SUITE [TOKENIZER]

SUITE is the folder draft2020-12 of the JSON-Schema-Test-Suite; the source distribution of jsonschema has it below
json/tests. TOKENIZER is a tokenizer.json. Needs the packages llguidance, xgrammar and transformers, and
build/bench/compile_times, which takes its vocabulary from the folder of TOKENIZER. The time is that of one schema, with the vocabulary prepared.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import time

import llguidance
import llguidance.hf
import transformers
import xgrammar

suite = pathlib.Path(sys.argv[1])
path = sys.argv[2] if len(sys.argv) > 2 else 'models/tiny-block/tokenizer.json'
schemas = [case['schema'] for file in sorted(suite.glob('*.json')) for case in json.loads(file.read_text())]
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=path)
vocabulary = llguidance.hf.from_tokenizer(tokenizer, eos_token=0)
compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer, stop_token_ids=[0]),
                                    max_threads=1, cache_enabled=False)


def guidance(schema):
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
    matcher = llguidance.LLMatcher(vocabulary, grammar)
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    matcher.compute_bitmask()


def print_row(name, times):
    print(f'| {name} | {len(times)} of {len(schemas)} | {statistics.median(times):.2f} ms | {max(times):.1f} ms |')


def row(name, build):
    times = []
    for schema in schemas:
        start = time.perf_counter()
        try:
            build(json.dumps(schema))
        except Exception:
            continue
        times.append(1000 * (time.perf_counter() - start))
    print_row(name, times)


def own_row():
    lines = ''.join(json.dumps(schema) + '\n' for schema in schemas)
    out = subprocess.run(['build/bench/compile_times', pathlib.Path(path).parent], input=lines, capture_output=True,
                         text=True, check=True).stdout.splitlines()[1:]
    print_row('unmask', [float(line.split()[1]) for line in out if line.startswith('ok ')])


print('| program | accepted | median | longest |\n| --- | --- | --- | --- |')
own_row()
row('llguidance', guidance)
row('xgrammar', compiler.compile_json_schema)
