#!/bin/bash
# WeDLM in the program: answers of its strategy, parameters and configurations that are refused, and the facts that
# `inspect` prints.
source tests/cli/claims.bash
MODELS=build/data/families/wedlm/models # their vocabulary is t0..t511; 500 is the mask

ask() { try run --model "$MODELS/wedlm_8b" --ignore-eos --max-tokens 40 "$@" t5 t6 t7; }
answer() {
    ask "$@"
    [ "$rc" = 0 ]
    grep -qxE 't[0-9]+( t[0-9]+){39}' "$work/out"
    if grep -qw t500 "$work/out"; then return 1; fi # the mask
}
refuses() {
    local word=$1
    shift
    ask "$@"
    [ "$rc" != 0 ]
    grep -qF -- "$word" "$work/err"
}
# Opens a copy of the model whose config.json sed has changed, and expects to be refused.
refuses_config() {
    local change=$1 word=$2
    rm -rf "$work/model"
    cp -R "$MODELS/wedlm_8b" "$work/model"
    chmod -R u+w "$work/model"
    sed -i "$change" "$work/model/config.json"
    try run --model "$work/model" t5
    [ "$rc" != 0 ]
    grep -qF -- "$word" "$work/err"
}

claims_begin

the_window_is_the_default() {
    answer
    cp "$work/out" "$work/default"
    answer --decoding-strategy causal_window --sampler entropy_distance --block-size 16 --entropy-threshold 0.4 \
        --position-penalty 0.02
    cmp "$work/default" "$work/out"
}
both_models_answer() {
    answer
    try run --model "$MODELS/wedlm_7b" --ignore-eos --max-tokens 40 t5 t6 t7
    [ "$rc" = 0 ]
    grep -qxE 't[0-9]+( t[0-9]+){39}' "$work/out"
}
a_seed_repeats_an_answer() {
    answer --temperature 1 --seed 5
    cp "$work/out" "$work/first"
    answer --temperature 1 --seed 5
    cmp "$work/first" "$work/out"
    answer --temperature 1 --seed 6
    if cmp -s "$work/first" "$work/out"; then return 1; fi
}
a_shorter_limit_cuts_the_same_text() {
    answer --entropy-threshold 2
    cp "$work/out" "$work/long"
    try run --model "$MODELS/wedlm_8b" --ignore-eos --max-tokens 11 --entropy-threshold 2 t5 t6 t7
    [ "$rc" = 0 ]
    [ "$(cut -d ' ' -f 1-11 "$work/long")" = "$(cat "$work/out")" ]
}
a_stop_string_ends_an_answer() {
    answer
    local word
    word=$(cut -d ' ' -f 6 "$work/out")
    cut -d ' ' -f 1-40 "$work/out" | sed "s/ *\b$word\b.*//" > "$work/want"
    ask --stop "$word"
    [ "$rc" = 0 ]
    [ "$(sed 's/ *$//' "$work/out")" = "$(cat "$work/want")" ]
}
threshold_0_fills_one_mask_a_pass() {
    ask --json --entropy-threshold 0
    [ "$rc" = 0 ]
    local nfe
    nfe=$(grep -oE '"nfe":[0-9]+' "$work/out" | cut -d : -f 2)
    [ "$nfe" -ge 40 ]
    ask --json --entropy-threshold 4
    [ "$(grep -oE '"nfe":[0-9]+' "$work/out" | cut -d : -f 2)" -lt "$nfe" ]
}
other_strategies_and_unread_parameters_are_refused() {
    refuses 'multi_bd is not for models of the family wedlm' --decoding-strategy multi_bd
    refuses 'autoregressive is not for models of the family wedlm' --decoding-strategy autoregressive
    refuses 'accept_threshold' --accept-threshold 0.5
    refuses 'no token becomes a mask again' --remask-threshold 0.5
    refuses 'edit edits filled positions' --sampler edit
    refuses 'position-penalty: -1 is outside' --position-penalty -1
    refuses 'position_penalty' --sampler confidence --position-penalty 0.5
    try run --model models/tiny-block --decoding-strategy causal_window hello
    [ "$rc" != 0 ]
}
other_samplers_fill_the_window() {
    local sampler
    for sampler in confidence entropy_threshold factor dynamic; do
        answer --sampler "$sampler"
    done
}
configurations_that_do_not_fit_are_refused() {
    refuses_config 's/"use_sliding_window": false/"use_sliding_window": true/' use_sliding_window
    refuses_config 's/"rope_scaling": null/"rope_scaling": {"type": "linear", "factor": 2}/' linear
    refuses_config 's/"qk_norm": true/"qk_norm": "yes"/' qk_norm
    refuses_config 's/"hidden_act": "silu"/"hidden_act": "gelu"/' hidden_act
    refuses_config 's/"head_dim": 32/"head_dim": 16/' q_proj
    refuses_config 's/"mask_token_id": 500/"mask_token_id": 512/' mask_token_id
}
inspect_tells_the_models_apart() {
    try inspect --json "$MODELS/wedlm_8b"
    [ "$rc" = 0 ]
    grep -q '"family":"wedlm"' "$work/out"
    grep -q '"attention":"causal"' "$work/out"
    grep -q '"strategies":\["causal_window"\]' "$work/out"
    try inspect --json "$MODELS/wedlm_7b"
    [ "$rc" = 0 ]
    grep -q '"family":"wedlm_7b"' "$work/out"
    [ ! -s "$work/err" ]
}
the_tensors_decide_where_config_json_is_wrong() {
    cp -R "$MODELS/wedlm_7b" "$work/wrong"
    chmod -R u+w "$work/wrong"
    sed -i 's/"qk_norm": false/"qk_norm": true/' "$work/wrong/config.json"
    try inspect --json "$work/wrong"
    [ "$rc" = 0 ]
    grep -q '"family":"wedlm_7b"' "$work/out"
    grep -q 'the tensors decide' "$work/err"
}

claims_all
