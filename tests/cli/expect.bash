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
