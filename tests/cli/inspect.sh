#!/bin/bash
# `unmask inspect`: mixtures of experts, special ids, incomplete folders; and weights that are not numbers.
source tests/cli/claims.bash
GOLDEN=build/data/golden/models

# Makes a folder of links to the files of a golden model, so that single files can be replaced.
folder_like() {
    mkdir -p "$work/$2"
    ln -sf "$PWD/$GOLDEN/$1"/* "$work/$2/"
}
# Replaces links in the folder by copies, which can be changed.
own() {
    for f in "${@:2}"; do
        cp --remove-destination "$(readlink "$work/$1/$f")" "$work/$1/$f"
        chmod u+w "$work/$1/$f"
    done
}
tells() { grep -qE "^ *$1 +$2\$" "$work/out"; }

claims_begin

experts_are_printed_with_their_routing() {
    try inspect $GOLDEN/llada2
    [ "$rc" = 0 ]
    tells family llada2
    tells routed 16
    tells 'per token' 4
    tells 'dense layers' 1
    tells score sigmoid
    tells 'correction bias' 'of the choice'
    tells groups 4
    tells 'groups kept' 2
    tells 'shared width' 64
    tells scale 2.5
    try inspect $GOLDEN/sdar
    not grep -q experts "$work/out"
}
active_parameters_leave_out_inactive_experts() {
    try inspect --json $GOLDEN/sdar_moe
    # In each of three layers, 6 of 8 experts of 3 * 128 * 64 parameters are inactive.
    total=$(grep -oE '"parameters":[0-9]+' "$work/out" | cut -d: -f2)
    grep -q "\"active_parameters\":$((total - 3 * 6 * 3 * 128 * 64))," "$work/out"
    grep -q "\"active_without_tables\":$((total - 3 * 6 * 3 * 128 * 64 - 2 * 512 * 128))}" "$work/out"
}
counted_parameters_are_those_stored() {
    for m in dream dream_reasoner llada2 sdar_moe; do
        try inspect --json $GOLDEN/$m
        counted=$(grep -oE '"parameters":[0-9]+' "$work/out" | cut -d: -f2)
        grep -q "\"elements\":$counted," "$work/out"
        grep -q "\"weights\":$((2 * counted))," "$work/out"
        [ ! -s "$work/err" ]
    done
}
memory_is_printed_for_each_type_of_weights() {
    try inspect --json models/tiny-block
    jq -e '.sizes.parameters as $n | .memory | .float32.weights == 4 * $n and .bfloat16.weights == 2 * $n
        and .q8.weights == ($n * 34 / 32 | ceil) and .q4.weights == ($n * 18 / 32 | ceil)' "$work/out"
    jq -e '.memory.bfloat16 | .kv_of_longest_request == 1024 * .kv_per_token' "$work/out"
}
special_ids_are_printed_with_their_source() {
    try inspect $GOLDEN/dream
    tells mask '500 <mask>, from config.json'
    tells stop '501 <eos>, from config.json'
    tells bos '501 <eos>, from config.json'
    folder_like dream unnamed
    own unnamed config.json
    sed -i '/mask_token_id/d' "$work/unnamed/config.json"
    try inspect "$work/unnamed"
    tells mask '500 <mask>, from the tokenizer'
    try inspect $GOLDEN/dream --mask-token-id 7
    tells mask '7 t7, from the user'
    try inspect $GOLDEN/dream --mask-token-id 512
    [ "$rc" = 2 ]
    grep -q 'ids up to 511' "$work/err"
}
tensors_win_over_the_name_of_the_architecture() {
    folder_like dream_reasoner twin
    own twin config.json
    sed -i 's/DreamForCausalLM/DreamModel/' "$work/twin/config.json"
    try inspect "$work/twin"
    tells family dream_reasoner
    tells 'recognised by' 'norms of queries among the tensors'
    grep -q 'the tensors are those of dream_reasoner; the tensors decide' "$work/err"
    try inspect "$work/twin" --model-name dream
    tells family dream
}
folder_without_tokenizer_can_be_inspected() {
    mkdir "$work/bare"
    cp $GOLDEN/llada2/config.json "$work/bare/"
    try inspect "$work/bare"
    [ "$rc" = 0 ]
    tells parameters '1.22 M'
    tells mask '500, from config.json'
    grep -q tokenizer.json "$work/err"
    grep -q model.safetensors "$work/err"
}
missing_shards_are_named() {
    mkdir "$work/shards"
    cp $GOLDEN/dream/{config,tokenizer,tokenizer_config}.json "$work/shards/"
    echo '{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}' \
        > "$work/shards/model.safetensors.index.json"
    cp $GOLDEN/dream/model.safetensors "$work/shards/model-00001-of-00002.safetensors"
    try inspect "$work/shards"
    [ "$rc" = 0 ]
    grep -q 'does not hold model-00002-of-00002.safetensors' "$work/err"
    tells family dream
}
weights_may_be_holes() {
    folder_like llada2 sparse
    own sparse model.safetensors
    size=$(stat -c %s "$work/sparse/model.safetensors")
    header=$(od -An -tu8 -N8 "$work/sparse/model.safetensors")
    truncate -s $((8 + header)) "$work/sparse/model.safetensors"
    truncate -s "$size" "$work/sparse/model.safetensors"
    try inspect "$work/sparse"
    [ "$rc" = 0 ]
    tells parameters '1.22 M'
}
tensors_of_too_many_dimensions_are_refused() {
    local n header
    folder_like dream deep
    for n in 6 2000000; do
        header="{\"a\":{\"dtype\":\"F32\",\"shape\":[1$(head -c $((2 * (n - 1))) < <(yes ,1 | tr -d '\n'))],\"data_offsets\":[0,4]}}"
        rm "$work/deep/model.safetensors"
        { bytes_of ${#header}; printf '%s\0\0\0\0' "$header"; } > "$work/deep/model.safetensors"
        try inspect "$work/deep"
        [ "$rc" = 0 ]
        grep -q "model.safetensors: tensor a has $n dimensions, unmask reads at most 4" "$work/err"
        tells family dream
        not grep -q elements "$work/out"
        try run --model "$work/deep" t5
        [ "$rc" = 3 ]
        grep -q "tensor a has $n dimensions" "$work/err"
    done
}
nan_and_infinite_weights_are_reported() {
    folder_like dream broken
    own broken model.safetensors
    # The last two bytes of the file are a bf16 value: infinity.
    truncate -s -2 "$work/broken/model.safetensors"
    printf '\x80\x7f' >> "$work/broken/model.safetensors"
    answer=(run --model "$work/broken" --max-tokens 4 t5)
    try "${answer[@]}" --check-weights error
    [ "$rc" = 3 ]
    grep -qE '1 values in 1 tensors are NaN or infinite, the first is [a-z0-9_.]+\[' "$work/err"
    try "${answer[@]}"
    [ "$rc" = 0 ]
    grep -q 'warning: .*NaN or infinite' "$work/err"
    try "${answer[@]}" --check-weights off
    [ "$rc" = 0 ]
    not grep -q 'NaN' "$work/err"
}
# The whole head is NaN, so no token is the best one. A request ends with this as its finish reason.
a_model_without_predictions_fails_its_requests() {
    folder_like dream nothing
    own nothing model.safetensors
    file=$work/nothing/model.safetensors header=$(od -An -tu8 -N8 "$work/nothing/model.safetensors")
    read -r from to < <(head -c $((8 + header)) "$file" | grep -aoE '"lm_head.weight":\{[^}]*' |
        sed 's/.*"data_offsets":\[\([0-9]*\), *\([0-9]*\).*/\1 \2/')
    head -c $((to - from)) /dev/zero | tr '\0' '\377' |
        dd of="$file" bs=4096 seek=$((8 + header + from)) oflag=seek_bytes conv=notrunc status=none
    try run --model "$work/nothing" --max-tokens 4 t5
    [ "$rc" = 1 ]
    grep -q 'predicts no token' "$work/err"
    echo '{"id": "a", "prompt": "t5", "max_tokens": 4}' > "$work/in.jsonl"
    try generate --model "$work/nothing" --input "$work/in.jsonl" --output "$work/out.jsonl"
    [ "$rc" = 1 ]
    grep -qE '"finish_reason": ?"no_prediction"' "$work/out.jsonl"
}

the_memory_of_a_rank_is_printed() {
    "$UNMASK" inspect models/tiny-block --json > "$work/one"
    "$UNMASK" inspect models/tiny-block --tensor-parallel-size 2 --json > "$work/two"
    jq -e '.rank == null' "$work/one" > /dev/null
    jq -e '.rank.of == 2' "$work/two" > /dev/null
    # A rank has half of the keys, and more than half of the weights, because it looks up the whole embedding.
    jq -e '.rank.float32.kv_per_token * 2 == .memory.float32.kv_per_token' "$work/two" > /dev/null
    jq -e '.rank.bfloat16.weights * 2 > .memory.bfloat16.weights' "$work/two" > /dev/null
    jq -e '.rank.bfloat16.weights < .memory.bfloat16.weights' "$work/two" > /dev/null
    # Whole experts take as much memory as parts of all.
    local moe=build/data/golden/models/llada2
    "$UNMASK" inspect $moe --tensor-parallel-size 2 --json > "$work/width"
    "$UNMASK" inspect $moe --tensor-parallel-size 2 --enable-expert-parallel --json > "$work/whole"
    jq -e '.rank.experts == null' "$work/width" > /dev/null
    jq -e '.rank.experts == 8' "$work/whole" > /dev/null
    [ "$(jq .rank.bfloat16 "$work/width")" = "$(jq .rank.bfloat16 "$work/whole")" ]
    try inspect models/tiny-block --tensor-parallel-size 2 --enable-expert-parallel
    [ "$rc" = 3 ]
    grep -q 'enable_expert_parallel: models of the family .* have no experts to divide among ranks' "$work/err"
    try inspect models/tiny-block --tensor-parallel-size 3
    [ "$rc" != 0 ]
    grep -q 'numbers that work for this model: 1, 2, 6' "$work/err"
}

claims_all
