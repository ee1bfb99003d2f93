#!/bin/bash
# Every line of a test script can fail. tests/build/unfailing.awk finds lines that can't.
source tests/cli/claims.bash

unfailing() { awk -f tests/build/unfailing.awk "$@"; }
# reported LINE...: fails unless each line is reported, and the lines around it are not.
reported() {
    for line in "$@"; do
        printf '%s\n' 'claim() {' "    $line" '    true' '}' > "$work/script"
        [ "$(unfailing "$work/script")" = "$work/script:2:     $line" ] || { echo "not reported: $line"; return 1; }
    done
}

claims_begin

lines_that_cannot_fail_are_reported() {
    reported '[ a = b ] && [ b = b ]' 'call /ping && [ "$status" = 200 ]' '[ a = b ] || [ b = c ] && true' \
        '! grep -q x "$work/out"' '[ -s x ] || ! grep -q x y' 'for x in 1 2; do ! cmp $x y; done' \
        '{ one && two; } > "$work/out"' 'if true; then one && two; fi' "local n=\${2:-'{}'} && [ \"\${n#x}\" ] # it's" \
        '[ "$(jq ".a && \"b\"" x)" = "it is )" ] && [ b = b ]' "[ 'a' = \$'b\"' ] && ! cmp x y"
}
lines_that_can_fail_are_not_reported() {
    cat > "$work/script" << 'END'
if one && two; then three; fi
while [ -s a ] && ! two; do sleep 1; done
one && two || fail "that's (two"
! one || return 0
(cd folder && two) 2> log
x=$(one && two)
[[ $x = a && $x != b ]] || exit 1
awk '/a/ && !b { print }
     a && b' "$x" # one && two
cat << LINES
one && two
LINES
[ ! -s a ]
echo "a && b"
END
    unfailing "$work/script" > "$work/out"
    diff /dev/null "$work/out"
}
a_script_that_is_not_understood_is_reported() {
    echo "x='" > "$work/script"
    unfailing "$work/script" | grep -q 'unclosed at the end of the file'
}
all_lines_of_the_tests_can_fail() {
    find tests -name '*.sh' -o -name '*.bash' > "$work/scripts"
    [ "$(wc -l < "$work/scripts")" -gt 30 ]
    unfailing $(cat "$work/scripts") > "$work/out"
    diff /dev/null "$work/out"
}

claims_all
