#!/bin/bash
# `unmask list`, `inspect`, help and version: commands that need no answer from a model.
source tests/cli/claims.bash
TABLES='families strategies samplers retentions options backends commands endpoints fields'

# Prints the names of the items of a table.
names_in() { "$UNMASK" list "$1" | sed -nE 's/^  ([a-z0-9_]+) .*/\1/p'; }

claims_begin

version_is_that_of_the_header() {
    try --version
    [ "$rc" = 0 ]
    version=$(sed -n 's/^.define UM_VERSION_[A-Z]* //p' include/unmask.h | paste -sd.)
    grep -qE "^unmask ${version//./\\.} \(.+\)\$" "$work/out"
}
help_names_every_command() {
    try --help
    [ "$rc" = 0 ]
    for c in $(names_in commands); do grep -qE "^  $c +[a-z]" "$work/out"; done
    [ ! -s "$work/err" ]
}
every_command_has_help_with_three_examples() {
    for c in $(names_in commands); do
        try "$c" --help
        [ "$rc" = 0 ]
        grep -q '^Usage: unmask' "$work/out"
        [ "$(sed -n '/^Examples:/,$p' "$work/out" | grep -c "$UNMASK")" -ge 3 ]
        cp "$work/out" "$work/help"
        try help "$c"
        cmp "$work/help" "$work/out"
    done
}
help_of_run_lists_every_option_with_its_default() {
    try run --help
    for o in $(names_in options); do grep -qE -- "^  (-[a-z], )?--(\[no-\])?${o//_/-}( |\$)" "$work/out"; done
    tr -s ' \n' ' ' < "$work/out" | grep 'share of the last one is filled (0..1; default 0.1)'
}
missing_command_is_a_usage_error() {
    try
    [ "$rc" = 2 ]
    grep -q '^Usage:' "$work/err"
    [ ! -s "$work/out" ]
}
unknown_command_names_the_nearest() {
    try inspekt
    [ "$rc" = 2 ]
    grep -q 'did you mean inspect' "$work/err"
    try --versoin
    grep -q 'did you mean --version' "$work/err"
}
lists_every_table() {
    try list all
    [ "$rc" = 0 ]
    for t in $TABLES; do grep -qx "$t" "$work/out"; done
    try list --json
    for t in $TABLES; do grep -q "\"$t\":\[{" "$work/out"; done
}
list_without_a_table_prints_their_sizes() {
    try list
    [ "$rc" = 0 ]
    [ "$(wc -l < "$work/out")" -lt 20 ]
    for t in $TABLES foreign; do
        n=$("$UNMASK" list --json "$t" | jq ".$t | length")
        grep -qE "^$t +$n  [a-z]" "$work/out"
    done
}
version_has_a_short_option() {
    try --version
    cp "$work/out" "$work/long"
    try -v
    cmp "$work/long" "$work/out"
}
short_options_mean_the_long_ones() {
    try run -m models/tiny-block -t 1 -q -p 'What is 12 + 30?'
    [ "$rc" = 0 ]
    grep -q 42 "$work/out"
    try run -m models/tiny-block -p a b
    [ "$rc" = 2 ]
    grep -q 'unexpected argument "b"; --prompt is the prompt already' "$work/err"
    try run --help
    for o in '-m, --model DIR' '-p, --prompt TEXT' '-t, --threads N' '-c, --config FILE' '-q, --quiet'; do
        grep -q -- "^  $o" "$work/out"
    done
    for command in generate eval quantize; do
        try help $command
        grep -q '^  -o, --out' "$work/out"
    done
}
lists_one_table_alone() {
    try list backends
    grep -q '^  ref ' "$work/out"
    not grep -q '^families' "$work/out"
}
list_shows_range_and_default_of_a_parameter() {
    try list strategies
    grep -A1 '^ *buffer_size ' "$work/out" | grep -q '1..64, or auto; default auto'
}
list_shows_which_families_support_a_strategy() {
    try list strategies
    sed -n '/^  multi_bd /,/^  [a-z]/p' "$work/out" | grep -E '^ +families +' | grep -q 'sdar'
    sed -n '/^  full /,/^  [a-z]/p' "$work/out" | grep -E '^ +families +' | grep -q 'dream'
    sed -n '/^  full /,/^  [a-z]/p' "$work/out" | grep -E '^ +aliases +' | grep -q 'whole_sequence'
}
list_shows_families_and_parameters_of_a_sampler() {
    try list samplers
    sed -n '/^  low_confidence /,/^  [a-z]/p' "$work/out" | grep -qE '^ +default of +llada'
    [ "$(grep -cE '^ +needs blocks +(yes|no)$' "$work/out")" = "$(names_in samplers | wc -l)" ]
    grep -A1 '^ *edit_threshold ' "$work/out" | grep -q '0..1'
}
parameters_are_one_list_of_each_strategy_and_sampler() {
    for table in strategies samplers; do
        try list $table --json
        grep -o '"source"' "$work/out" | wc -l > "$work/items"
        [ "$(grep -o '"parameters":\[' "$work/out" | wc -l)" = "$(cat "$work/items")" ]
    done
}
unknown_table_names_the_nearest() {
    try list strategy
    [ "$rc" = 2 ]
    grep -q 'did you mean strategies' "$work/err"
}
inspect_shows_family_rule_and_sizes() {
    try inspect build/data/golden/models/sdar
    [ "$rc" = 0 ]
    grep -qE '^family +sdar$' "$work/out"
    grep -qE '^recognised by +architectures\[0\]$' "$work/out"
    grep -qE '^attention +block-causal$' "$work/out"
    grep -qE '^ +layers +3$' "$work/out"
    grep -qE '^ +mask id +500$' "$work/out"
}
inspect_counts_the_parameters_that_are_stored() {
    for m in build/data/golden/models/sdar build/data/golden/models/llada models/tiny-block; do
        try inspect --json "$m"
        jq -e '.sizes.parameters == .weights.elements' "$work/out"
        jq -e '.weights.elements == ([.weights.types[].elements] | add)' "$work/out"
    done
}
inspect_reads_no_weights() {
    mkdir "$work/bare"
    cp build/data/golden/models/sdar/*.json "$work/bare/"
    try inspect "$work/bare"
    [ "$rc" = 0 ]
    grep -q safetensors "$work/err"
    not grep -q '^weights' "$work/out"
}
inspect_uses_the_family_of_the_option() {
    try inspect models/tiny-block --model-name sdar
    grep -q 'named by the user' "$work/out"
    try inspect models/tiny-block --model-name nonsense
    [ "$rc" = 3 ]
    grep -q nonsense "$work/err"
}
inspect_refuses_an_autoregressive_model_by_name() {
    mkdir "$work/llama"
    cp models/tiny-block/*.json "$work/llama/"
    sed -i 's/SDARForCausalLM/LlamaForCausalLM/' "$work/llama/config.json"
    try inspect "$work/llama"
    [ "$rc" = 3 ]
    grep -q autoregressive "$work/err"
}
write_to_a_full_disk_is_reported() {
    rc=0
    "$UNMASK" list > /dev/full 2> "$work/err" || rc=$?
    [ "$rc" = 1 ]
    grep -q 'standard output' "$work/err"
}
closed_pipe_is_no_error() {
    rc=0
    { sleep 0.3; "$UNMASK" list --json 2> "$work/err" || echo $? > "$work/rc"; } | true
    [ "$(cat "$work/rc")" = 1 ]
    [ ! -s "$work/err" ]
}

claims_all
