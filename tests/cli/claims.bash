# For scripts that test the program by its command line. Sourced from the repository root:
#
#   source tests/cli/claims.bash
#   helpers ...
#   claims_begin
#   each_claim_is_a_function() { ... }
#   claims_all
#
# claims_all runs every function defined since claims_begin, prints TAP and exits. A claim fails at its first command
# that fails; one behind "!" or before "&&" does not count, so each stands on a line of its own, after `not` if need be.
# A claim is left out, and the run says so, where it calls `skip WHY` because the machine lacks what it needs.
set -euo pipefail
UNMASK=${UNMASK:-build/unmask}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in $(compgen -e UNMASK_); do unset "$name"; done
unset NO_COLOR COLUMNS LINES
export LC_ALL=C.UTF-8 TERM=xterm

claims_begin() { claims_helpers=" $(compgen -A function | xargs) "; }

claims_all() {
    local name file status n=0 failed=0
    for name in $(compgen -A function); do
        [[ $claims_helpers != *" $name "* ]] || continue
        n=$((n + 1))
        # A claim that waits for words must not find those of the one before.
        for file in out err; do
            [ ! -f "$work/$file" ] || rm "$work/$file"
        done
        # Not as a condition, and not called from one: bash would ignore -e in all of it, and a claim would be worth no
        # more than its last command.
        set +e
        (set -e && "$name") > "$work/claim.log" 2>&1
        status=$?
        set -e
        if [ $status = 0 ]; then
            echo "ok $n - $name"
        elif [ $status = 77 ]; then
            echo "not ok $n # SKIP $name: $(tail -n 1 "$work/claim.log")"
        else
            echo "not ok $n - $name"
            sed 's/^/# /' "$work/claim.log"
            failed=1
        fi
    done
    echo "1..$n"
    exit $failed
}

skip() {
    echo "$*"
    exit 77
}
# Fails where a command succeeds: bash ignores -e for a plain "!".
not() { if "$@"; then return 1; fi; }

# Runs the program: output in $work/out and $work/err, its exit status in rc.
try() {
    rc=0
    "$UNMASK" "$@" > "$work/out" 2> "$work/err" < /dev/null || rc=$?
    tail -n 20 "$work/out" "$work/err"
}

# Runs it on a terminal of $columns columns and $rows rows; what it wrote, escape sequences and all, is in $work/out.
# Fails when the program fails.
columns=60 rows=20
on_terminal() {
    local command
    printf -v command '%q ' "$UNMASK" "$@"
    rc=0
    script -qec "stty cols $columns rows $rows; $command" /dev/null < /dev/null > "$work/out" || rc=$?
    cat -v "$work/out"
    [ "$rc" = 0 ]
}

# The lines of that terminal as they stood last.
screen() { awk -v COLS=$columns -v ROWS=$rows -f tests/cli/screen.awk "$work/out"; }

# Waits until a file holds a pattern, a minute at most.
wait_for() {
    local pattern=$1 file=$2
    for _ in $(seq 1200); do
        ! grep -q -- "$pattern" "$file" || return 0
        sleep 0.05
    done
    echo "no \"$pattern\" in $file within a minute"
    return 1
}
