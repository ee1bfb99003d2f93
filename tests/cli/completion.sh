#!/bin/bash
# zsh and fish complete commands, options and values with the scripts of completion/, in the shells themselves. docs.sh
# tests the script for bash.
source tests/cli/claims.bash

# zsh_completes LINE..., fish_completes LINE...: print the completions of the last word of each line, sorted, with spaces
# between them.
zsh_completes() {
    mkdir -p "$work/functions"
    cp completion/unmask.zsh "$work/functions/_unmask"
    timeout 120 zsh -f tests/cli/complete.zsh "$work/functions" "$@"
}
fish_completes() {
    HOME=$work timeout 120 fish --no-config -c '
        source completion/unmask.fish
        for line in $argv
            echo (complete -C $line | string replace -r "\t.*" "" | sort -u)
        end' -- "$@"
}
# Each line of these tables has a command line and its completions, separated by |.
lines_of_both='unmask in|inspect
unmask run --max-n|--max-nfe --max-num-batched-tokens --max-num-reqs
unmask run --no-v|--no-view
unmask list --j|--json
unmask bench serve --request|--request-rate --requests
unmask bench serve --endpoint |auto chat completions generate
unmask bench |engine ops serve
unmask bench --request-r|
unmask run --device |cpu cuda cuda:N ref
unmask run --quiet --decoding-strategy m|multi_bd
unmask list sa|samplers
unmask help to|tokenize
unmask nonsense wh|
unmask run --model org/s|org/small
unmask run -m org/s|org/small
unmask run -q --no-v|--no-view'
lines_of_zsh='unmask run --device=c|cpu cuda cuda:N
unmask inspect models/tiny-b|tiny-block'
lines_of_fish='unmask run --device=c|--device=cpu --device=cuda --device=cuda:N
unmask inspect models/tiny-b|models/tiny-block/'

# completes_in SHELL TABLE: checks the lines of lines_of_both and TABLE. Skips the claim if the shell is missing.
completes_in() {
    command -v "$1" > /dev/null || skip "$1 is not installed: make deps"
    "$1" -n "completion/unmask.$1"
    local line lines=() table=$lines_of_both$'\n'$2
    while read -r line; do lines+=("${line%|*}"); done <<< "$table"
    mkdir -p "$work/hub/models--org--small"
    HF_HUB_CACHE=$work/hub "${1}_completes" "${lines[@]}" > "$work/found"
    diff <(cut -d '|' -f 2 <<< "$table") "$work/found"
}

claims_begin

zsh_completes_commands_options_and_values() { completes_in zsh "$lines_of_zsh"; }
fish_completes_commands_options_and_values() { completes_in fish "$lines_of_fish"; }
scripts_have_every_option_of_every_command_once() {
    # Options that commands share belong to the command "*". The lists don't have the shared options that single
    # commands take.
    { "$UNMASK" list --json commands | jq -r '.commands[] | .name as $c | .options[] | "\($c):\(.name)"'
      "$UNMASK" list --json options | jq -r '.options[] | "*:\(.name)"'; } | tr _ - | sort > "$work/options"
    [ "$(wc -l < "$work/options")" -gt 200 ]
    awk '/^_unmask_shared/ { name = "*" }
        /^    .*\)( _unmask_shared)?$/ { name = $0; sub(/^    ./, "", name); sub(/.\).*/, "", name) }
        /^ *.--/ && name { flag = $0; sub(/^ *.--(no-)?/, "", flag); sub(/[^a-z0-9-].*/, "", flag)
            print name ":" flag }' completion/unmask.zsh | grep -v ':help$\|:config$\|:plugin$\|:print-config$' | sort > "$work/zsh"
    diff /dev/null <(comm -23 "$work/options" "$work/zsh")
    diff /dev/null <(uniq -d "$work/zsh")
    sed -nE "s/.*__unmask_is ([^']*)'( -s .)? -l (no-)?([^ ]+) .*/\1:\4/p" completion/unmask.fish |
        awk -F '"' '{ print (NF > 3 ? "*" : $2) $NF }' | grep -v '^:\|:config$\|:plugin$\|:print-config$' | sort > "$work/fish"
    diff "$work/zsh" "$work/fish"
}

claims_all
