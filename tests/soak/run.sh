#!/bin/bash
# Runs the tests that take long, one after the other: tests/soak/run.sh BUILD SECONDS [PART...]
#
# Each part ends with a line that says how it ended and how long it took. A part that fails stops no other. The last
# line is "N passed, N failed". Random requests and the server under load run for SECONDS each.
set -uo pipefail
build=$1 seconds=$2
shift 2
export BUILD=$build UNMASK=$build/unmask

parts='pressure constraints engine load lm_eval hostile openapi clients python ray slurm verify vllm'
run_part() {
    case $1 in
    pressure) UM_TEST_REQUESTS=100000 "$build/tests/engine/pressure_test" ;;
    constraints) UM_TEST_TRIALS=1000000 UM_TEST_SEED=2 tests/grammar/trials.sh ;;
    engine) "$build/tests/soak/engine_soak" "$seconds" ;;
    load) UM_TEST_SECONDS=$seconds "$build/tests/server/mixed_load_test" ;;
    hostile) python3 tests/soak/hostile.py ;;
    lm_eval | openapi | clients | python | slurm) "tests/soak/$1.sh" "$build" ;;
    ray | verify | vllm) tests/soak/pypi.sh "$build" "$1" ;;
    *)
        echo "expected one of $parts"
        return 2
        ;;
    esac
}

passed=0 failed=0
[ $# -gt 0 ] || set -- $parts
for part; do
    echo "==== $part"
    started=$SECONDS
    if run_part "$part"; then
        end=ok passed=$((passed + 1))
    else
        end='not ok' failed=$((failed + 1))
    fi
    echo "$end - $part ($((SECONDS - started)) s)"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
