#!/bin/bash
# Runs test programs (cmocka) and scripts in parallel, and counts single tests: tests/run.sh BUILD TEST...
#
# A program prints TAP. A test of its plan that is not reported as passed has failed, so crashes and hangs count. A
# script without TAP is one test, and its exit status is the result. The output goes to BUILD/log; that of a failed test
# is printed, and so are lines that begin with "# note: ". The environment has the program under test in UNMASK and the
# build folder in BUILD. Standard error tells how many have ended. The ten slowest tests are listed with the CPU time of
# their processes. The last line is "N passed, N failed". Two tests of one name are refused.
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

# Slow tests, the slowest first. They start before all others, so that none of them ends alone.
slow='engine/ranks golden/recordings server/batches build/arm64 cli/accuracy web/page python/package server/apis golden/scores
engine/schedule engine/pressure cli/gguf server/server server/score server/faults cli/bench_serve engine/instruction_sets
cli/docs server/openai cli/queue cli/tradeoffs engine/whole_invariance golden/oracle build/package cli/bench_ops
cli/bench_engine server/mixed_load'

# "build/tests/unit/base_json_test" -> "unit/base_json"
label() {
    local name=${1##*tests/}
    name=${name%_test}
    echo "${name%.sh}"
}

# Prints the tests in the order in which they start.
in_order() {
    local test
    for test in "$@"; do echo "$(label "$test") $test"; done |
        awk -v slow="$slow" 'BEGIN { for (n = split(slow, name); n; n--) rank[name[n]] = n }
                             { print $1 in rank ? rank[$1] : 1000, $2 }' | sort -s -n -k 1,1 | cut -d ' ' -f 2-
}

run_one() {
    local name rc=0 TIMEFORMAT='%R %U %S'
    name=$(label "$1")
    mkdir -p "$LOG/$(dirname "$name")"
    { time timeout "$LIMIT_SECONDS" "$1" > "$LOG/$name.out" 2> "$LOG/$name.err" < /dev/null; } 2> "$LOG/$name.time" || rc=$?
    echo "$rc $(tail -n 1 "$LOG/$name.time")" > "$LOG/$name.end"
}

# show_progress ENDED ALL: on a terminal in place after each test, else after every twentieth.
show_progress() {
    if [ -t 2 ]; then
        printf '\r%d of %d test programs have ended ' "$1" "$2" >&2
    elif [ $(($1 % 20)) = 0 ]; then
        echo "$1 of $2 test programs have ended" >&2
    fi
}

# Runs the tests, JOBS at a time, each in the background. By default this is one more than there are processors, because
# some tests mainly wait.
run_all() {
    local running=0 ended=0 test
    show_progress 0 $#
    for test in "$@"; do
        run_one "$test" &
        if [ $((++running)) -ge "${JOBS:-$(($(nproc) + 1))}" ]; then
            wait -n
            running=$((running - 1))
            show_progress $((++ended)) $#
        fi
    done
    while [ $ended -lt $# ]; do
        wait -n
        show_progress $((++ended)) $#
    done
    if [ -t 2 ]; then echo >&2; fi
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

same=$(for test in "$@"; do label "$test"; done | sort | uniq -d)
if [ "$same" ]; then
    echo "two tests are named $same: the result of one would hide that of the other" >&2
    exit 2
fi
rm -rf "$LOG"
mkdir -p "$LOG"
run_all $(in_order "$@")

total_passed=0 total_failed=0 total_skipped=0
for test in "$@"; do
    name=$(label "$test")
    read -r rc seconds user system < "$LOG/$name.end"
    awk "BEGIN { print $user + $system }" | xargs echo "$seconds $name" >> "$LOG/times"
    count "$LOG/$name.out" "$rc"
    failed=$((planned - passed - skipped))
    total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
    printf '%-6s %-40s %3d passed %8.2f s\n' "$([ $failed = 0 ] && echo ok || echo FAILED)" "$name" "$passed" "$seconds"
    sed -n 's/^# note: /       /p' "$LOG/$name.out"
    grep -h '^not ok [0-9]* # SKIP' "$LOG/$name.out" | sed 's/^not ok [0-9]* # SKIP/       skipped:/' || true
    if [ $failed != 0 ]; then
        echo "       exit status $rc$([ "$rc" = 124 ] && echo ": stopped after $LIMIT_SECONDS s" || true)"
        grep -v '^ok ' "$LOG/$name.out" | tail -n 40 | sed 's/^/       /' || true
        tail -n 60 "$LOG/$name.err" | sed 's/^/       /'
    fi
done
echo "the slowest:"
sort -rn "$LOG/times" | awk 'NR <= 10 { printf "       %-40s %8.2f s, %.2f s of CPU time\n", $2, $1, $3 }'
[ $total_skipped = 0 ] || echo "$total_skipped skipped: this machine cannot run them"
echo "$total_passed passed, $total_failed failed"
[ $total_failed = 0 ]
