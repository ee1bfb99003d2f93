#!/bin/bash
# Constraints mean what independent programs say: Python's re for regular expressions and grammars, and the package
# jsonschema for JSON schemas. ROUNDS and SEED change the number and the choice of the random constraints.
set -euo pipefail
BUILD=${BUILD:-build}
python=$(tools/python.sh "${BUILD%%/*}")
"$python" -W ignore tests/grammar/oracles.py "$BUILD/tests/grammar/match_test"
