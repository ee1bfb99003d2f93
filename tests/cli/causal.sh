#!/bin/bash
# Nemotron-Labs-Diffusion in the program: answers of its three strategies, parameters that are refused, and the facts that
# `inspect` prints.
source tests/cli/claims.bash
MODEL=build/data/families/nemotron/models/nemotron_c # its vocabulary is t0..t511

ask() { try run --model "$MODEL" --ignore-eos --max-tokens 40 "$@" t5 t6 t7; }
answer() {
    ask "$@"
    [ "$rc" = 0 ]
    grep -qxE 't[0-9]+( t[0-9]+){39}' "$work/out"
}
refuses() {
    local word=$1
    shift
    ask "$@"
    [ "$rc" != 0 ]
    grep -qF -- "$word" "$work/err"
}

claims_begin

blocks_are_the_default() {
    answer
    cp "$work/out" "$work/default"
    answer --decoding-strategy seeded_bd
    cmp "$work/default" "$work/out"
}
self_speculation_writes_what_autoregressive_writes() {
    local more
    for more in '--temperature 0' '--temperature 1 --seed 5' '--repetition-penalty 1.2' '--temperature 0.7 --top-k 20 --seed 9'; do
        # shellcheck disable=SC2086
        answer --decoding-strategy autoregressive $more
        cp "$work/out" "$work/one"
        # shellcheck disable=SC2086
        answer --decoding-strategy self_speculation $more
        cmp "$work/one" "$work/out"
    done
}
a_result_counts_its_passes() {
    ask --json --decoding-strategy autoregressive
    grep -q '"nfe":40,' "$work/out"
}
other_strategies_and_unread_parameters_are_refused() {
    refuses 'multi_bd is not for models of the family nemotron' --decoding-strategy multi_bd
    refuses 'accept_threshold' --decoding-strategy autoregressive --accept-threshold 0.5
    refuses 'draft_threshold' --draft-threshold 0.5
    refuses 'edit edits filled positions' --sampler edit
    try run --model models/tiny-block --decoding-strategy seeded_bd hello
    [ "$rc" != 0 ]
}
compat_ends_an_answer_before_its_first_mask() {
    ask --compat checkpoint --denoising-steps 1 --accept-threshold 0.99
    [ "$rc" = 0 ]
    grep -qxE 't[0-9]+( t[0-9]+){0,6}' "$work/out"
}
inspect_names_the_stretch() {
    try inspect --json "$MODEL"
    [ "$rc" = 0 ]
    grep -q '"attention":"causal"' "$work/out"
    grep -q '"rope_stretch":16' "$work/out"
    grep -q '"strategies":\["seeded_bd","autoregressive","self_speculation"\]' "$work/out"
}

claims_all
