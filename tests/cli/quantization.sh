#!/bin/bash
# --quantization: the foreseen memory, the printed types, and the refusal of GPUs and of unknown values.
source tests/cli/claims.bash
source tests/gpu/gpu.bash
gpu_program gpu
model=models/tiny-block

# Sets $bytes to the bytes of the weights that inspect foresees.
weights_of() {
    try inspect --json $model --device cpu "$@"
    [ "$rc" = 0 ]
    bytes=$(jq .fits.weights "$work/out")
}

claims_begin

weights_take_a_half_or_a_quarter_of_the_memory() {
    weights_of --dtype bfloat16
    local whole=$bytes
    weights_of --dtype bfloat16 --quantization q8
    [ $((bytes * 100)) -gt $((whole * 52)) ]
    [ $((bytes * 100)) -lt $((whole * 56)) ]
    weights_of --dtype float32 --quantization q8
    [ $((bytes * 100)) -lt $((whole * 56)) ]
    weights_of --dtype bfloat16 --quantization q4
    [ $((bytes * 100)) -gt $((whole * 27)) ]
    [ $((bytes * 100)) -lt $((whole * 32)) ]
}
the_first_line_names_the_type_of_the_weights() {
    try eval --model $model --quantization q8 --dtype bfloat16 --limit 1
    [ "$rc" = 0 ]
    grep -q 'bfloat16 with q8 weights on cpu' "$work/err"
    try run --model $model --quantization q4 --dtype float32 --device ref 'What is 12 + 30?'
    grep -q 42 "$work/out"
}
bench_reports_the_type_of_the_weights() {
    try bench engine --shape sdar-1.7b --layers 1 --dtype bfloat16 --quantization q8 --context 4 --passes 10 \
        --warm-up 0 --json --quiet
    [ "$rc" = 0 ]
    jq -e '.dtype == "bfloat16" and .weight_type == "q8"' "$work/out"
}
other_values_are_refused_with_the_known_ones() {
    try run --model $model --quantization awq hello
    [ "$rc" = 2 ]
    grep -q -- '--quantization: expected auto, none, q8, q4 or fp8, found "awq"' "$work/err"
}
a_gpu_refuses_q8() {
    UNMASK=$work/gpu/unmask
    try run --model $model --device cuda --quantization q8 hello
    [ "$rc" != 0 ]
    [ ! -s "$work/out" ]
    grep -q 'quantization: q8 needs device cpu, found cuda' "$work/err"
}
fp8_needs_a_gpu_and_bfloat16() {
    try run --model $model --quantization fp8 hello
    [ "$rc" != 0 ]
    [ ! -s "$work/out" ]
    grep -q 'quantization: fp8 needs device cuda, found cpu' "$work/err"
    UNMASK=$work/gpu/unmask
    try run --model $model --device cuda --dtype float32 --quantization fp8 hello
    [ "$rc" != 0 ]
    grep -q 'quantization: fp8 needs --dtype bfloat16, found float32' "$work/err"
}

claims_all
