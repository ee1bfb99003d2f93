#!/bin/bash
# Random weights: --load-format dummy runs a model without its weight files.
source tests/cli/claims.bash
MODEL=models/tiny-block
source tests/cli/adapter.bash
FOLDER=$work/shape # tiny-block without its weights
mkdir -p "$FOLDER"
cp models/tiny-block/{config,tokenizer,tokenizer_config}.json "$FOLDER"

claims_begin

weights_are_not_needed() {
    try run --model "$FOLDER" --max-tokens 8 "What is 1 + 1?"
    [ "$rc" != 0 ]
    grep -qF model.safetensors "$work/err"
    try run --model "$FOLDER" --load-format dummy --ignore-eos --max-tokens 8 "What is 1 + 1?"
    [ "$rc" = 0 ]
    [ -s "$work/out" ]
    grep -qF 'the weights are random numbers' "$work/err"
}
the_same_weights_are_made_again() {
    try run --model "$FOLDER" --load-format dummy --ignore-eos --max-tokens 30 "What is 1 + 1?"
    cp "$work/out" "$work/first"
    try run --model "$FOLDER" --load-format dummy --ignore-eos --max-tokens 30 "What is 1 + 1?"
    cmp "$work/first" "$work/out"
}
weights_that_are_there_are_not_read() {
    cp -r "$FOLDER" "$work/damaged"
    echo damaged > "$work/damaged/model.safetensors"
    try run --model "$work/damaged" --load-format dummy --max-tokens 8 "What is 1 + 1?"
    [ "$rc" = 0 ]
    try run --model "$work/damaged" --load-format safetensors --max-tokens 8 "What is 1 + 1?"
    [ "$rc" != 0 ]
}
a_released_shape_needs_no_folder() {
    try run --model no-such-shape --load-format dummy t1
    [ "$rc" != 0 ]
    grep -qF 'no such folder' "$work/err"
    try run --model sdar-1.7b t1 # a name of a shape only with dummy
    [ "$rc" != 0 ]
    try run --model sdar-1.7b --load-format dummy --max-num-batched-tokens 64 --max-model-len 64 --raw --ignore-eos \
        --max-tokens 4 --json t5 t6
    [ "$rc" = 0 ]
    jq -e '.prompt_tokens == 2 and (.text | test("^t[0-9]+( t[0-9]+){3}$"))' "$work/out"
}
an_adapter_of_a_released_shape_is_loaded() {
    layers=28 out=2048 in=2048 # those of sdar-1.7b
    make_adapter "$work/mine"
    local shape=(run --model sdar-1.7b --load-format dummy --max-num-batched-tokens 64 --max-model-len 64 --raw
                 --ignore-eos --max-tokens 4 --adapter mine)
    try "${shape[@]}" --lora "mine=$work/mine" t5 t6
    [ "$rc" = 0 ]
    in=1024
    make_adapter "$work/other"
    try "${shape[@]}" --lora "mine=$work/other" t5 t6
    [ "$rc" != 0 ]
    grep -qF o_proj "$work/err"
}
an_unknown_format_is_refused() {
    try run --model "$FOLDER" --load-format bitsandbytes t1
    [ "$rc" != 0 ]
    grep -qF dummy "$work/err"
}

claims_all
