#!/bin/bash
# What docs/extending.md and docs/names.md say of the sources: code, files, symbols, options.
source tests/cli/claims.bash

DOCS='docs/extending.md docs/names.md'
# prose: both pages without their code blocks. quoted: what stands there in backquotes.
prose() { sed '/^```/,/^```/d' $DOCS; }
quoted() { prose | grep -o '`[^`]*`' | tr -d '`'; }
# files TEXT: paths of the tree that it names.
files() { grep -oE '\b(src|include|tests|tools|examples|docs)/[A-Za-z0-9_./-]*\.[a-z]+' <<< "$1" || true; }
# symbols TEXT: um_name, and um_name.field as two lines.
symbols() { grep -oE '\bum_[a-z0-9_]+(\.[a-z_]+)?|\bUM_[A-Z0-9_]+[A-Z0-9]' <<< "$1" | tr . '\n' || true; }

claims_begin

code_blocks_of_extending_md_are_the_files() {
    for f in examples/extending/*.c; do
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
every_option_exists() {
    options=help$'\n'$("$UNMASK" list options | sed -nE 's/^  ([a-z0-9_]+) .*/\1/p')
    for o in $(quoted | grep -oE '^--[a-z0-9-]+' | sort -u); do
        o=${o#--}
        grep -qx "${o//-/_}" <<< "$options" || { echo "there is no option --$o"; return 1; }
    done
}
a_program_with_tables_of_its_own_has_their_rows() {
    own=$BUILD/examples/extending/unmask
    for row in strategies:left_to_right samplers:annealed retentions:nearest families:lantern; do
        "$own" list "${row%:*}" | grep -q "^  ${row#*:} "
        ! "$UNMASK" list "${row%:*}" | grep -q "^  ${row#*:} "
    done
    ! "$own" list strategies | grep -q '^  dmax '
    "$own" run --model models/tiny-block --sampler annealed 'What is 12 + 30?' | grep -q 42
}

claims_all
