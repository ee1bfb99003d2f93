#!/bin/bash
# The files that are generated from the option tables (manual page, reference, completion) are correct and up to date.
# Every block of commands in the documents is run by a test.
source tests/cli/claims.bash
source tests/cli/pages.bash
source completion/unmask.bash

# complete_words WORD...: prints the completions of the last word, sorted, on one line.
complete_words() {
    COMP_WORDS=(unmask "$@") COMP_CWORD=$# COMPREPLY=()
    _unmask
    printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd' '
}
names_in() { "$UNMASK" list "$1" | sed -nE 's/^  ([a-z0-9_-]+) .*/\1/p'; }

claims_begin

committed_files_are_those_that_the_program_prints() {
    for f in man:docs/unmask.1 markdown:docs/options.md {bash:completion/unmask.bash,zsh:completion/unmask.zsh,fish:completion/unmask.fish}; do
        "$UNMASK" help --format "${f%%:*}" | diff "${f#*:}" - || { echo "run make docs"; return 1; }
    done
}
formats_other_than_text_take_no_command() {
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
    [ "$(complete_words bench serve --endpoint '')" = 'auto chat completions generate' ]
    [ -z "$(complete_words bench --request-r)" ]
}
overview_fits_a_terminal() {
    try --help
    [ "$rc" = 0 ]
    [ -z "$(sed -n '/^Examples/,/^$/d; p' "$work/out" | awk 'length > 80')" ]
    [ "$(grep -cE '^  [a-z-]+( [a-z]+)?  +[a-z]' "$work/out")" = "$(names_in commands | wc -l)" ]
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
    grep -q 'unexpected argument "sever"' "$work/err"
}
completes_options_of_the_command_alone() {
    [ "$(complete_words run --max-n)" = '--max-nfe --max-num-batched-tokens --max-num-reqs' ]
    [ "$(complete_words run --no-v)" = --no-view ]
    [ "$(complete_words list --)" = '--config --help --json --plugin --print-config' ]
}
completes_values() {
    [ "$(complete_words run --device '')" = 'cpu cuda cuda:N ref' ]
    [ "$(complete_words run --device = r)" = ref ]
    [ "$(complete_words run --device =)" = 'cpu cuda cuda:N ref' ]
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
examples_of_the_manual_are_answered() {
    local command n=0
    mkdir "$work/bin" "$work/folder"
    ln -s "$(realpath "$UNMASK")" "$work/bin/unmask"
    ln -s "$PWD/models" "$PWD/examples" "$PWD/include" "$work/folder"
    mkdir "$work/folder/build"
    # One command per line. Leaves out commands that start or need a server, show a manual or change the shell.
    sed -n '/^\.SH EXAMPLES/,$p' docs/unmask.1 | sed 's/\\-/-/g; s/\\e/\\/g; s/\\&//g' |
        grep -E '^ *(unmask [^s]|unmask serve .*--print-config|echo |printf |cc )' |
        grep -vE 'unmask (worker|health)|--url|man -l' > "$work/examples"
    while read -r command; do
        echo "---- $command"
        (cd "$work/folder" && PATH=$work/bin:$PATH UNMASK_LIMIT=2 UNMASK_REQUESTS=1 \
            bash -euo pipefail -c "$command" < /dev/null > "$work/out")
        n=$((n + 1))
        case $command in
            *'unmask run '*'12 + 30'* | *'12 + 30'*'unmask run '* | printf*'unmask chat'*)
                grep -q '12 + 30 = 42\.' "$work/out" ;;
            *'unmask run '*'Sort these numbers'*) grep -qx '3, 7, 19, 42' "$work/out" ;;
            *'unmask run '*) echo "its answer is unknown"; return 1 ;;
            *'2 + 3'*'unmask generate'*) grep -q '"2 + 3 = 5\."' "$work/out" ;;
            *'unmask generate'*) [ "$(jq -r 'select(.text != "").id' "$work/folder/results.jsonl" | wc -l)" = 5 ] ;;
            *'> options.md' | *'> _unmask' | *'> unmask.fish' | 'unmask chat'* | 'cc '*) ;;
            *) [ -s "$work/out" ] ;;
        esac
    done < "$work/examples"
    [ $n -ge 24 ]
}
every_block_of_commands_is_run_by_a_test() {
    local p line mark run=" ${pages_without_server[*]} ${pages_with_server[*]} docs/extending.md "
    for p in README.md CONTRIBUTING.md docs/*.md docs/*/*.md models/*/README.md; do
        fences "$p" > "$work/fences"
        while read -r line mark; do
            case $mark in
                sh | 'sh server' | 'text output')
                    grep -qF " $p " <<< "$run" || { echo "$p:$line: no test runs it"; return 1; } ;;
                console) grep -qF " $p " <<< " ${pages_with_console[*]} " || { echo "$p:$line: console"; return 1; } ;;
                text | c | json | yaml) ;;
                'python vllm') [ "$p" = docs/python.md ] || { echo "$p:$line: no test runs it"; return 1; } ;; # tests/soak/vllm
                python) grep -qxE 'docs/(clients|cluster|python)\.md' <<< "$p" || { echo "$p:$line: no test runs it"; return 1; } ;;
                *) echo "$p:$line: unknown mark \"$mark\""; return 1 ;;
            esac
        done < "$work/fences"
    done
}
every_list_of_pages_is_run_by_a_script() {
    local p
    for p in "${pages_with_server[@]}"; do
        grep -qx "    run_page $p" tests/server/docs.sh
    done
    grep -qF 'in "${pages_without_server[@]}"; do' tests/server/docs.sh
    grep -qx '    page=docs/extending.md n=0' tests/extending/docs.sh
}
no_other_text_of_a_page_is_a_block_of_commands() {
    local command='^ *(\$ )?(unmask|build/unmask|make|curl|cc|gcc|python3|docker|sudo) '
    for p in README.md CONTRIBUTING.md docs/*.md docs/*/*.md models/*/README.md; do
        awk -v command="$command" '
            /^ *```/ { inside = !inside; mark = $0; sub(/^ *```/, "", mark); next }
            inside ? mark !~ /^(sh|sh server|console)$/ && $0 ~ command : /^(    |\t)/ && $0 ~ command {
                print FILENAME ":" FNR ": " $0 }' "$p"
    done > "$work/out"
    diff /dev/null "$work/out"
}

claims_all
