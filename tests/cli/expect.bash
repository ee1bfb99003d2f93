# For scripts that test one subcommand: makes a scratch folder, and checks exit status and messages. Set command=NAME
# before sourcing it.
set -euo pipefail
: "${UNMASK:=build/unmask}"
golden=build/data/golden/models/sdar # a word-level vocabulary, t0 to t511
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect STATUS ARGUMENT...: runs the command and checks its exit status. Its output is in $dir/out and $dir/err.
expect() {
    local want=$1 rc=0
    shift
    "$UNMASK" "$command" "$@" > "$dir/out" 2> "$dir/err" || rc=$?
    [ "$rc" = "$want" ] || fail "$command $* ended with $rc, not $want: $(cat "$dir/err")"
}

has() { grep -qF -- "$1" "$dir/out" || fail "the report lacks '$1': $(cat "$dir/out")"; }
says() { grep -qF -- "$1" "$dir/err" || fail "the message lacks '$1': $(cat "$dir/err")"; }

# The report fits a terminal of 80 columns. A path may be longer.
fits() {
    local long
    long=$(sed "s|$dir|.|g" "$dir/out" | awk 'length > 80')
    [ -z "$long" ] || fail "wider than 80 columns: $long"
}

# stop_after PATTERN ARGUMENT...: runs the command and interrupts it when its output has the pattern, at most a minute
# later. The command must not have ended by then.
stop_after() {
    local pattern=$1 pid
    shift
    : > "$dir/out"
    "$UNMASK" "$command" "$@" > "$dir/out" 2> "$dir/err" &
    pid=$!
    for _ in $(seq 1200); do
        ! grep -q -- "$pattern" "$dir/out" || break
        sleep 0.05
    done
    kill -INT $pid 2> /dev/null || fail "$command $* ended before its output had '$pattern': $(cat "$dir/out")"
    wait $pid || true
    grep -q -- "$pattern" "$dir/out" || fail "no '$pattern' within a minute: $(cat "$dir/out")"
}
