#!/bin/bash
# Runs test programs (cmocka) and scripts in parallel, and counts single tests: tests/run.sh BUILD TEST...
#
# A program prints TAP. A test of its plan that is not reported as passed has failed, so crashes and hangs count. A
# script without TAP is one test, and its exit status is the result. The output goes to BUILD/log; that of a failed test
# is printed. The environment has the program under test in UNMASK and the build folder in BUILD. The last line is "N
# passed, N failed".
set -euo pipefail
BUILD=$1
shift
[ $# -gt 0 ] || { echo "no tests found" >&2; exit 1; }
export BUILD UNMASK=$BUILD/unmask CMOCKA_MESSAGE_OUTPUT=tap LOG=$BUILD/log LIMIT_SECONDS=${LIMIT_SECONDS:-900}
export ASAN_OPTIONS=allocator_may_return_null=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/tsan.supp:${TSAN_OPTIONS:-}

for path in models/tiny-block models/tiny-full build/data/golden/cases examples/hello.c; do
    [ -e "$path" ] || { echo "$path is missing; the tests need it" >&2; exit 1; }
done

# "build/tests/unit/base_json_test" -> "unit/base_json"
label() {
    local name=${1##*tests/}
    name=${name%_test}
    echo "${name%.sh}"
}

run_one() {
    local name rc=0 start=$EPOCHREALTIME
    name=$(label "$1")
    mkdir -p "$LOG/$(dirname "$name")"
    timeout "$LIMIT_SECONDS" "$1" > "$LOG/$name.out" 2> "$LOG/$name.err" < /dev/null || rc=$?
    echo "$rc $(awk "BEGIN { print $EPOCHREALTIME - $start }")" > "$LOG/$name.end"
}

# Runs the tests, JOBS at a time, each in the background.
run_all() {
    local running=0 test
    for test in "$@"; do
        run_one "$test" &
        if [ $((++running)) -ge "${JOBS:-$(nproc)}" ]; then
            wait -n
            running=$((running - 1))
        fi
    done
    wait
}

# count FILE STATUS: sets planned, passed and skipped from the output and the exit status of a test.
count() {
    local out=$1 rc=$2
    planned=$(awk -F'[.][.]' '/^1[.][.][0-9]+$/ { n += $2 } END { print n + 0 }' "$out")
    skipped=$(grep -c '^not ok [0-9]* # SKIP' "$out" || true)
    passed=$(grep -c '^ok [0-9]' "$out" || true)
    if [ "$planned" = 0 ]; then
        planned=1 skipped=0 passed=$((rc == 0))
    elif [ "$rc" != 0 ] && [ $((passed + skipped)) = "$planned" ]; then
        planned=$((planned + 1)) # all tests passed, but the program failed: a leak, a race, a crash at exit
    fi
}

rm -rf "$LOG"
mkdir -p "$LOG"
run_all "$@"

total_passed=0 total_failed=0 total_skipped=0
for test in "$@"; do
    name=$(label "$test")
    read -r rc seconds < "$LOG/$name.end"
    count "$LOG/$name.out" "$rc"
    failed=$((planned - passed - skipped))
    total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
    printf '%-6s %-40s %3d passed %8.2f s\n' "$([ $failed = 0 ] && echo ok || echo FAILED)" "$name" "$passed" "$seconds"
    grep -h '^not ok [0-9]* # SKIP' "$LOG/$name.out" | sed 's/^not ok [0-9]* # SKIP/       skipped:/' || true
    if [ $failed != 0 ]; then
        echo "       exit status $rc$([ "$rc" = 124 ] && echo ": stopped after $LIMIT_SECONDS s" || true)"
        grep -v '^ok ' "$LOG/$name.out" | tail -n 40 | sed 's/^/       /' || true
        tail -n 60 "$LOG/$name.err" | sed 's/^/       /'
    fi
done
[ $total_skipped = 0 ] || echo "$total_skipped skipped: this machine cannot run them"
echo "$total_passed passed, $total_failed failed"
[ $total_failed = 0 ]
