# Sourced by the scripts that test one subcommand: a scratch folder, and its exit status and words checked.
# Before sourcing: command=NAME.
set -euo pipefail
: "${UNMASK:=build/unmask}"
golden=tests/golden/models/sdar # a word-level vocabulary, t0 to t511
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect STATUS ARGUMENT...: runs the command; what it prints is in $dir/out and $dir/err.
expect() {
    local want=$1 rc=0
    shift
    "$UNMASK" "$command" "$@" > "$dir/out" 2> "$dir/err" || rc=$?
    [ "$rc" = "$want" ] || fail "$command $* ended with $rc, not $want: $(cat "$dir/err")"
}

has() { grep -qF -- "$1" "$dir/out" || fail "the report lacks '$1': $(cat "$dir/out")"; }
says() { grep -qF -- "$1" "$dir/err" || fail "the message lacks '$1': $(cat "$dir/err")"; }
