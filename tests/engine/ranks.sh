#!/bin/bash
# Models that several ranks compute together: no schedule, batch or adapter may change an answer there either.
#
# `make check` names the tests in UM_RANKS_TESTS, each as PROGRAM:RANKS, or PROGRAM:RANKS:whole where ranks have whole
# experts. A test of the output is one program.
set -euo pipefail
: "${BUILD:=build}" "${UM_RANKS_TESTS:?is set by make check}"
unset CMOCKA_MESSAGE_OUTPUT
output=$(mktemp)
trap 'rm -f "$output"' EXIT

n=0 failed=0
for test in $UM_RANKS_TESTS; do
    IFS=: read -r program ranks whole <<< "$test"
    status=0
    n=$((n + 1))
    unset UM_TEST_EXPERT_PARALLEL
    [ -z "$whole" ] || export UM_TEST_EXPERT_PARALLEL=1
    name="$program in $ranks ranks${whole:+ with whole experts}"
    UM_TEST_RANKS=$ranks "$BUILD/tests/${program}_test" > "$output" 2>&1 < /dev/null || status=$?
    if [ $status = 0 ]; then echo "ok $n - $name"
    else
        echo "not ok $n - $name, exit status $status"
        tail -n 60 "$output" | sed 's/^/# /'
        failed=1
    fi
done
echo "1..$n"
exit $failed
