#!/bin/bash
# The programs of examples/ do what their first comment says. On an error they print a message.
set -euo pipefail
: "${BUILD:=build}"
model=models/tiny-block
fail() { echo "FAILED: $*" >&2; exit 1; }

answer=$("$BUILD/examples/hello" $model "What is 12 + 30?")
[ "$answer" = "12 + 30 = 42." ] || fail "hello: $answer"

answers=$("$BUILD/examples/batch" $model)
[ "$(grep -c 'eos_token_generated)$' <<< "$answers")" = 3 ] || fail "batch: $answers"

film=$("$BUILD/examples/denoise" models/tiny-full "What is 12 + 30?" max_tokens 32 steps 8)
[ "$(grep -c '^ *[0-9]* ' <<< "$film")" -ge 2 ] || fail "denoise shows less than two passes: $film"
grep -q '_' <<< "$film" || fail "denoise shows no mask: $film"
grep -q '42' <<< "$film" || fail "denoise: $film"

for program in hello batch denoise; do
    ! "$BUILD/examples/$program" no/such/folder > /dev/null 2> "$BUILD/examples/err" || fail "$program accepts a missing folder"
    grep -q 'no/such/folder' "$BUILD/examples/err" || fail "$program: $(cat "$BUILD/examples/err")"
done
