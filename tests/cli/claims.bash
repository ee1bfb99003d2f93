# For scripts that test the command line. Sourced from the repository root:
#
#   source tests/cli/claims.bash
#   helpers ...
#   claims_begin
#   each_claim_is_a_function() { ... }
#   claims_all
#
# claims_all runs every function defined since claims_begin, prints TAP and exits. A claim fails at its first failing
# command. bash ignores failures after "!" and before "&&", so each command is on a line of its own, after `not` if it
# must fail. A claim calls `skip WHY` if the machine lacks what it needs; the output then says that it was skipped.
set -euo pipefail
UNMASK=${UNMASK:-build/unmask}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in $(compgen -e UNMASK_); do unset "$name"; done
unset NO_COLOR COLUMNS LINES
export LC_ALL=C.UTF-8 TERM=xterm

# Prints a 64-bit integer as bytes, lowest byte first.
bytes_of() {
    local i
    for i in 0 8 16 24 32 40 48 56; do printf "\\x$(printf %02x $(($1 >> i & 255)))"; done
}

claims_begin() { claims_helpers=" $(compgen -A function | xargs) "; }

claims_all() {
    local name file status start n=0 failed=0
    for name in $(compgen -A function); do
        [[ $claims_helpers != *" $name "* ]] || continue
        n=$((n + 1))
        # A claim that waits for output must not find the output of an earlier claim.
        for file in out err; do
            [ ! -f "$work/$file" ] || rm "$work/$file"
        done
        # Must not be part of a condition: bash would ignore -e inside the claim, and only its last command would count.
        set +e
        start=${EPOCHREALTIME/./}
        (set -e && "$name") > "$work/claim.log" 2>&1
        status=$?
        set -e
        if [ $status = 0 ]; then
            echo "ok $n - $name # $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
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
# Fails if a command succeeds. A plain "!" would not do, because bash ignores -e there.
not() { if "$@"; then return 1; fi; }

# Runs a command that obeys the permissions of files, also as root.
with_permissions() {
    local drop=
    [ "$(id -u)" != 0 ] || drop='setpriv --bounding-set -dac_override,-dac_read_search --inh-caps -dac_override,-dac_read_search'
    $drop "$@"
}

# Runs the program: output in $work/out and $work/err, its exit status in rc.
try() {
    rc=0
    "$UNMASK" "$@" > "$work/out" 2> "$work/err" < /dev/null || rc=$?
    tail -n 20 "$work/out" "$work/err"
}

# Runs the program on a terminal of $columns columns and $rows rows. Its output, with escape sequences, is in $work/out.
# Fails if the program fails.
columns=60 rows=20
on_terminal() {
    local command
    printf -v command '%q ' "$UNMASK" "$@"
    rc=0
    script -qec "stty cols $columns rows $rows; $command" /dev/null < /dev/null > "$work/out" || rc=$?
    cat -v "$work/out"
    [ "$rc" = 0 ]
}

# Prints the final lines of that terminal.
screen() { awk -v COLS=$columns -v ROWS=$rows -f tests/cli/screen.awk "$work/out"; }

# wait_until_caught SIGNAL PID: waits until a process has a handler for the signal, at most a minute. A program that bash
# starts in the background ignores SIGINT until it has a handler.
wait_until_caught() {
    local bit=$((1 << ($(kill -l "$1") - 1)))
    for _ in $(seq 1200); do
        [ $((0x$(sed -n 's/^SigCgt:\t//p' "/proc/$2/status") & bit)) = 0 ] || return 0
        sleep 0.05
    done
    echo "no handler for SIG$1 within a minute"
    return 1
}

# Waits until a file contains a pattern, at most a minute.
wait_for() {
    local pattern=$1 file=$2
    for _ in $(seq 1200); do
        ! grep -q -- "$pattern" "$file" || return 0
        sleep 0.05
    done
    echo "no \"$pattern\" in $file within a minute"
    return 1
}
