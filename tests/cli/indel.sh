#!/bin/bash
# LLaDA2.2 in the program: answers of its strategies that delete and insert tokens, parameters that are refused, and the
# facts that `inspect` prints.
source tests/cli/claims.bash
MODEL=build/data/families/llada22/models/llada22_a # its vocabulary is t0..t499 and named tokens

ask() { try run --model "$MODEL" --ignore-eos --max-tokens 20 "$@" t5 t6 t7; }
answer() {
    ask "$@"
    [ "$rc" = 0 ]
}
refuses() {
    local word=$1
    shift
    ask "$@"
    [ "$rc" != 0 ]
    grep -qF -- "$word" "$work/err"
}

claims_begin

levenshtein_is_the_default() {
    answer --json
    grep -q '"completion_tokens":20,' "$work/out"
    answer
    cp "$work/out" "$work/default"
    answer --decoding-strategy levenshtein
    cmp "$work/default" "$work/out"
}
both_strategies_keep_to_their_limits() {
    local strategy
    for strategy in levenshtein joint_indel; do
        answer --decoding-strategy "$strategy" --json --temperature 1 --seed 3
        grep -q '"completion_tokens":20,' "$work/out"
        cp "$work/out" "$work/one"
        answer --decoding-strategy "$strategy" --json --temperature 1 --seed 3
        [ "$(grep -o '"text":"[^"]*"' "$work/one")" = "$(grep -o '"text":"[^"]*"' "$work/out")" ]
    done
}
one_pass_for_each_block_ends_early() {
    answer --json --max-steps-per-block 1
    # Two passes for each of three blocks: one that writes and one that stores.
    grep -q '"nfe":6,' "$work/out"
}
unread_parameters_are_refused() {
    refuses 'max_steps_per_block' --decoding-strategy joint_indel --max-steps-per-block 5
    refuses "--max-steps-per-block: 0 is outside 1..65536" --max-steps-per-block 0
    refuses 'buffer_size' --buffer-size 2
    refuses 'groups of 8 positions' --block-size 12
}
no_block_ends_behind_the_last_position() {
    local prompt strategy
    prompt=$(printf 't%d ' {1..490})
    for strategy in levenshtein multi_bd; do
        try run --raw --model "$MODEL" --max-tokens 22 --block-size 24 --decoding-strategy "$strategy" "$prompt"
        [ "$rc" != 0 ]
        grep -qF 'the last block of this request ends at position 528, but the model has 512 positions' "$work/err"
        try run --raw --model "$MODEL" --max-tokens 22 --block-size 16 --decoding-strategy "$strategy" "$prompt"
        [ "$rc" = 0 ]
    done
}
other_models_refuse_the_strategies() {
    try run --model models/tiny-block --decoding-strategy levenshtein hello
    [ "$rc" != 0 ]
    grep -qF 'levenshtein is not for models of the family sdar' "$work/err"
}
inspect_tells_the_family_apart() {
    try inspect --json "$MODEL"
    [ "$rc" = 0 ]
    grep -q '"family":"llada2_2"' "$work/out"
    grep -q '"pool":6' "$work/out"
    grep -q '"strategies":\["levenshtein","joint_indel","multi_bd","dmax"\]' "$work/out"
}
the_family_can_be_named_only_with_its_fields() {
    try inspect --model-name llada2_2 build/data/golden/models/llada2
    [ "$rc" != 0 ]
    grep -qF '"expert_capacity" is missing; LLaDA2.2 needs it' "$work/err"
}

claims_all
