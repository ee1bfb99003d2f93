#!/bin/bash
# docs/extending.md and docs/names.md agree with the sources: code, files, symbols, options. The catalogue of decoding
# rules agrees with the tests.
source tests/cli/claims.bash

DOCS='docs/extending.md docs/names.md'
# prose: prints both pages without their code blocks. quoted: prints the parts in backquotes.
prose() { sed '/^```/,/^```/d' $DOCS; }
quoted() { prose | grep -o '`[^`]*`' | tr -d '`'; }
# files TEXT: prints the paths of source files in the text.
files() { grep -oE '\b(src|include|tests|tools|examples|docs)/[A-Za-z0-9_./-]*\.[a-z]+' <<< "$1" || true; }
# symbols TEXT: prints the symbols in the text, um_name.field as two lines.
symbols() { grep -oE '\bum_[a-z0-9_]+(\.[a-z_]+)?|\bUM_[A-Z0-9_]+[A-Z0-9]' <<< "$1" | tr . '\n' || true; }

# catalogued: prints "FILE TEST" for each test in the catalogue, where TEST may end in *, and "FILE" for a whole file. The
# last column of a row is a list of "FILE: TEST, TEST" and "FILE", separated by semicolons. Other text is a remark.
catalogued() {
    sed -nE 's/^\|.*\|([^|]*[a-z][^|]*)\|$/\1/p' tests/unit/CATALOGUE.md | tr ';' '\n' | sed 's/^ *–.*: \([a-z/_]*: \)/\1/' |
        while IFS=: read -r file tests; do
            file=$(xargs <<< "$file")
            grep -qxE '[a-z0-9_/]+' <<< "$file" || continue
            echo "$file"
            tr ',' '\n' <<< "$tests" | xargs -n 1 | { grep -E '^[a-z0-9]+(_[a-z0-9*]+)+$' || true; } | sed "s|^|$file |"
        done
}
# file_of NAME: prints the source file of the tests that the catalogue calls NAME.
file_of() {
    for f in "tests/unit/decode_$1_test.c" "tests/unit/$1_test.c" "tests/$1_test.c" "tests/$1.sh"; do
        [ ! -e "$f" ] || { echo "$f"; return; }
    done
    echo "no test file is called $1"
    return 1
}

claims_begin

code_blocks_of_extending_md_are_the_files() {
    for f in examples/extending/*.c examples/plugins/*.c; do
        awk -v link="[$f](../$f)" '$0 == link { here = 1; next } here && /^```c$/ { on = 1; next }
                                   on && /^```$/ { exit } on' docs/extending.md | diff - "$f"
    done
}
every_file_that_is_named_exists() {
    for f in $(files "$(prose)" | sort -u); do
        [ -e "$f" ] || { echo "there is no $f"; return 1; }
    done
}
every_symbol_is_in_the_sources() {
    for s in $(symbols "$(quoted)" | sort -u); do
        grep -rqw -e "$s" src include || { echo "there is no $s"; return 1; }
    done
}
symbols_of_a_row_of_names_md_are_in_the_files_of_the_row() {
    grep '^| ' docs/names.md | while read -r row; do
        in=$(files "$row")
        for s in $(symbols "$(grep -o '`[^`]*`' <<< "$row")"); do
            grep -qw -e "$s" $in || { echo "$s is not in" $in; return 1; }
        done
    done
}
every_test_of_the_catalogue_is_run() {
    catalogued > "$work/catalogued"
    [ "$(grep -c ' ' "$work/catalogued")" -gt 100 ]
    while read -r file test; do
        source=$(file_of "$file") || { echo "$source"; return 1; }
        [ -z "$test" ] || grep -qE "cmocka_unit_test(_setup_teardown)?\(${test//\*/[a-z0-9_]*}[,)]" "$source" || {
            echo "$source does not run $test"
            return 1
        }
    done < "$work/catalogued"
}
the_catalogue_is_complete() {
    numbers=$(grep -oE '^\| [^|]*' tests/unit/CATALOGUE.md | grep -oE '8\.[0-9]\.[0-9]+(-[0-9]+)?|8\.[678]|5\.[0-9]|Q[0-9]+')
    for n in 5.{1..9} 8.1.{1..12} 8.2.{1,2,7,8,9} 8.3.{1..8} 8.4.{1..10} 8.5.{1..6} 8.{6,7,8} \
        Q{1..50}; do
        grep -qx "${n//./\\.}" <<< "$numbers" || { echo "there is no $n"; return 1; }
    done
}
every_option_exists() {
    options=help$'\n'plugin$'\n'$("$UNMASK" list options | sed -nE 's/^  ([a-z0-9_]+) .*/\1/p')
    for o in $(quoted | grep -oE '^--[a-z0-9-]+' | sort -u); do
        o=${o#--}
        grep -qx "${o//-/_}" <<< "$options" || { echo "there is no option --$o"; return 1; }
    done
}
a_program_with_tables_of_its_own_has_their_rows() {
    own=$BUILD/examples/extending/unmask
    for row in strategies:left_to_right samplers:annealed retentions:nearest families:lantern; do
        "$own" list "${row%:*}" | grep -q "^  ${row#*:} "
        "$UNMASK" list "${row%:*}" > "$work/list"
        not grep -q "^  ${row#*:} " "$work/list"
    done
    "$own" list strategies > "$work/list"
    not grep -q '^  dmax ' "$work/list"
    "$own" run --model models/tiny-block --sampler annealed --accept-threshold 0.9 'What is 12 + 30?' | grep -q 42
}

claims_all
