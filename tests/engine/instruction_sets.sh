#!/bin/bash
# Whole passes have the right results with every instruction set: UM_CPU_ISA selects each in turn.
#
# The tests of operations run all instruction sets themselves. Other tests use the best one only. `make check` names
# some of them in UM_ISA_TESTS, and this script repeats these with each other instruction set. A test of its output is
# one program with one instruction set. Instruction sets that the processor lacks are reported as skipped.
set -euo pipefail
: "${BUILD:=build}" "${UM_ISA_TESTS:?is set by make check}"
unset UM_CPU_ISA CMOCKA_MESSAGE_OUTPUT
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# The first test of ops_isa prints "    NAME    tested", or why not, for each instruction set, the best one first.
"$BUILD/tests/ops/ops_isa_test" > "$output" 2>&1
known=$(sed -n 's/^    \([a-zC0-9_ ]*[^ ]\)  *\(tested\|this processor lacks it\).*/\1:\2/p' "$output")
available() { sed -n 's/:tested$//p' <<< "$known"; }
best=$(available | head -n 1)
[ -n "$best" ]
[ "$(wc -l <<< "$known")" -ge 2 ]

n=0 failed=0
# report "ok"|"not ok" TEXT
report() {
    n=$((n + 1))
    echo "$1 $n $2"
}
run_all() {
    local program status seconds
    for program in $UM_ISA_TESTS; do
        status=0 seconds=$SECONDS
        UM_CPU_ISA=$1 "$BUILD/tests/${program}_test" > "$output" 2>&1 < /dev/null || status=$?
        if [ $status = 0 ]; then
            report ok "- $1: $program # $((SECONDS - seconds)) s"
        else
            report 'not ok' "- $1: $program, exit status $status"
            tail -n 60 "$output" | sed 's/^/# /'
            failed=1
        fi
    done
}

while IFS=: read -r name state; do
    if [ "$state" != tested ]; then report 'not ok' "# SKIP $name: $state"
    elif [ "$name" != "$best" ]; then run_all "$name"
    fi
done <<< "$known"
others=$(available | tail -n +2 | paste -sd, | sed 's/,/, /g')
echo "# note: selected in turn: ${others:-none}; all other tests use $best"
echo "1..$n"
exit $failed
