#!/bin/bash
# Models that several ranks compute together: no schedule, batch or adapter may change an answer there either.
#
# `make check` names the tests in UM_RANKS_TESTS, each as PROGRAM:RANKS. A test of the output is one program.
set -euo pipefail
: "${BUILD:=build}" "${UM_RANKS_TESTS:?is set by make check}"
unset CMOCKA_MESSAGE_OUTPUT
output=$(mktemp)
trap 'rm -f "$output"' EXIT

n=0 failed=0
for test in $UM_RANKS_TESTS; do
    program=${test%:*} ranks=${test#*:} status=0
    n=$((n + 1))
    UM_TEST_RANKS=$ranks "$BUILD/tests/${program}_test" > "$output" 2>&1 < /dev/null || status=$?
    if [ $status = 0 ]; then echo "ok $n - $program in $ranks ranks"
    else
        echo "not ok $n - $program in $ranks ranks, exit status $status"
        tail -n 60 "$output" | sed 's/^/# /'
        failed=1
    fi
done
echo "1..$n"
exit $failed
