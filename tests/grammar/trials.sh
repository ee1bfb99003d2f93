#!/bin/bash
# Fills 20,000 random answers, or UM_TEST_TRIALS, under the constraints of tests/data/structured, and lets programs that
# know nothing of this one check them. UM_TEST_SEED chooses others.
set -euo pipefail
constraints=tests/data/structured/constraints.jsonl
"${BUILD:-build}/tests/grammar/trials" "$constraints" "${UM_TEST_TRIALS:-20000}" "${UM_TEST_SEED:-1}" |
    /usr/bin/python3 tests/grammar/trials.py "$constraints"
