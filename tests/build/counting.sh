#!/bin/bash
# tests/run.sh counts single tests. Tests that crash, hang, leak or can't be started count as failed.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tests"

# script NAME LINE...: makes a test that runs the lines
script() {
    printf '%s\n' '#!/bin/bash' "${@:2}" > "$dir/tests/$1.sh"
    chmod +x "$dir/tests/$1.sh"
}
script passes 'echo 1..2; echo ok 1 - a; echo ok 2 - b'
script fails 'echo 1..2; echo ok 1 - a; echo not ok 2 - b; exit 1'
script stops 'echo 1..3; echo ok 1 - a; kill -SEGV $$'
script leaks 'echo 1..1; echo ok 1 - a; exit 23'
script skips 'echo 1..2; echo ok 1 - a; echo "not ok 2 # SKIP b"'
script succeeds 'exit 0'
script refuses 'echo sorry >&2; exit 1'
script hangs 'exec sleep 30'
script starts 'exit 0'
chmod -x "$dir/tests/starts.sh"

# expect NAME "N passed, N failed": checks the last line of a run and its exit status
expect() {
    local status=0 wanted=1 last
    LIMIT_SECONDS=1 tests/run.sh "$dir/build" "$dir/tests/$1.sh" > "$dir/out" 2>&1 || status=$?
    last=$(tail -n 1 "$dir/out")
    [ "$last" = "$2" ] || { echo "$1: expected \"$2\", found \"$last\"" >&2; return 1; }
    [[ $2 != *" 0 failed" ]] || wanted=0
    [ $status = $wanted ] || { echo "$1: exit status $status" >&2; return 1; }
}
expect passes "2 passed, 0 failed"
expect fails "1 passed, 1 failed"
expect stops "1 passed, 2 failed"
expect leaks "1 passed, 1 failed"
expect skips "1 passed, 0 failed"
expect succeeds "1 passed, 0 failed"
expect refuses "0 passed, 1 failed"
expect hangs "0 passed, 1 failed"
expect starts "0 passed, 1 failed"

# Results are files with the names of the tests.
cp "$dir/tests/passes.sh" "$dir/tests/passes_test"
status=0
tests/run.sh "$dir/build" "$dir/tests/passes_test" "$dir/tests/passes.sh" > "$dir/out" 2>&1 || status=$?
[ $status = 2 ] || { echo "two tests of one name: exit status $status" >&2; exit 1; }
grep -q 'two tests are named passes' "$dir/out"
