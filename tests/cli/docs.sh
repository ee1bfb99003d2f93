#!/bin/bash
# What is made from the option tables: manual page, reference, completion; and that the committed files are up to date.
source tests/cli/claims.bash
source completion/unmask.bash

# complete WORD...: the completions of the last word, sorted, on one line.
complete_words() {
    COMP_WORDS=(unmask "$@") COMP_CWORD=$# COMPREPLY=()
    _unmask
    printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd' '
}
names_in() { "$UNMASK" list "$1" | sed -nE 's/^  ([a-z0-9_]+) .*/\1/p'; }

claims_begin

committed_files_are_those_that_the_program_prints() {
    for f in man:docs/unmask.1 markdown:docs/options.md bash:completion/unmask.bash; do
        "$UNMASK" help --format "${f%%:*}" | diff "${f#*:}" - || { echo "run make docs"; return 1; }
    done
}
formats_are_of_everything() {
    try help --format man run
    [ "$rc" = 2 ]
    grep -q 'leave out "run"' "$work/err"
    [ ! -s "$work/out" ]
}
manual_and_reference_hold_every_option_and_command() {
    for o in $(names_in options); do
        grep -qF -e "\\fB\\-\\-${o//_/\\-}\\fR" -e "\\fB\\-\\-[no\\-]${o//_/\\-}\\fR" docs/unmask.1
        grep -q "| \`$o\` | \`UNMASK_${o^^}\` |" docs/options.md
    done
    for c in $(names_in commands); do
        grep -q "^.SS \"unmask $c\"" docs/unmask.1
        grep -q "^## unmask $c" docs/options.md
    done
}
manual_has_no_line_that_roff_would_take_for_a_request() {
    [ -z "$(grep "^[.']" docs/unmask.1 | grep -vE '^\.(\\"|TH|SH|SS|PP|TP|RS|RE|nf|fi)')" ]
}
completes_commands() {
    [ "$(complete_words in)" = inspect ]
    [ "$(complete_words '')" = "$(printf '%s\n' $(names_in commands) --help --version | sort -u | paste -sd' ')" ]
}
completes_names_of_two_words() {
    [ "$(complete_words bench se)" = serve ]
    [ "$(complete_words bench serve --request)" = '--request-rate --requests' ]
    [ "$(complete_words bench serve --endpoint '')" = 'chat completions generate' ]
    [ -z "$(complete_words bench --request-r)" ]
}
help_knows_names_of_two_words() {
    try help bench serve bench
    [ "$rc" = 0 ]
    grep -q '^unmask bench serve: ' "$work/out"
    grep -q '^unmask bench: ' "$work/out"
    try bench serve --help
    grep -q '^unmask bench serve: ' "$work/out"
    try bench sever
    [ "$rc" = 2 ]
    grep -q 'unexpected word "sever"' "$work/err"
}
completes_options_of_the_command_alone() {
    [ "$(complete_words run --max-n)" = '--max-nfe --max-num-batched-tokens --max-num-reqs' ]
    [ "$(complete_words run --no-v)" = --no-view ]
    [ "$(complete_words list --)" = '--config --help --json --print-config' ]
}
completes_values() {
    [ "$(complete_words run --device '')" = 'cpu ref' ]
    [ "$(complete_words run --device = r)" = ref ]
    [ "$(complete_words run --device =)" = 'cpu ref' ]
    [ "$(complete_words generate --decoding-strategy m)" = multi_bd ]
    [ -z "$(complete_words run --threads '')" ]
}
completes_arguments() {
    [ "$(complete_words list sa)" = samplers ]
    [ "$(complete_words help to)" = tokenize ]
    [ "$(complete_words inspect models/tiny-b)" = models/tiny-block ]
    [ -z "$(complete_words run what)" ]
}
completes_files_and_models() {
    mkdir -p "$work/hub/models--org--small" "$work/a folder"
    touch "$work/a folder/x.yaml"
    [ "$(complete_words run --config "$work/a folder/x")" = "$work/a folder/x.yaml" ]
    [ "$(HF_HUB_CACHE=$work/hub complete_words run --model org/)" = org/small ]
    [ "$(complete_words run --model models/tiny-f)" = models/tiny-full ]
}
completes_nothing_for_an_unknown_command() {
    [ -z "$(complete_words nonsense '')" ]
    [ -z "$(complete_words nonsense --)" ]
}

claims_all
