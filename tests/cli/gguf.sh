#!/bin/bash
# GGUF files: --model FILE.gguf gives the answers of the folder that the file was made from. Python's package `gguf` writes
# the files, and computes the numbers that they store.
# The files have no generation_config.json, so the canvas of 128 tokens that tiny-full was trained with is given.
source tests/cli/claims.bash
source tests/server/serve.bash
REFERENCE=build/data/reference GOLDEN=build/data/golden/models
python=$(tools/python.sh "$(cut -d/ -f1 <<< "${BUILD:-build}")")
# Token ids, because the test tokenizers of words can't be stored in such a file.
for ids in 1,2,3 40,41,42,43,44,45 7; do
    echo "{\"id\": \"$ids\", \"prompt_token_ids\": [$ids], \"max_tokens\": 8, \"ignore_eos\": true, \"seed\": 5}"
done > "$work/requests"

# Writes the GGUF file $work/model.gguf of the folder $1 in the type $2, and the folder $work/rounded with its numbers.
make_file() {
    rm -rf "$work/rounded" "$work/model.gguf"
    "$python" tools/reference/make_gguf.py "$1" "$work/model.gguf" --type "$2" --rounded "$work/rounded"
}
# Writes the answers of a model, with the ids of each pass, to the file $1.
answers() {
    rm -f "$1" "$1.all"
    try generate --input "$work/requests" --output "$1.all" --trace --quiet "${@:2}"
    [ "$rc" = 0 ]
    # Texts differ with the tokenizer; ids and numbers don't.
    jq -c 'del(.. | .text?)' "$1.all" > "$1"
    grep -q '"token_ids":\[[0-9]' "$1"
}
same_answers() {
    answers "$work/got" --model "$work/model.gguf" "${@:2}"
    answers "$work/want" --model "$1" "${@:2}"
    cmp "$work/got" "$work/want"
}

claims_begin

every_architecture_answers_as_its_folder() {
    local model
    for model in $GOLDEN/llada $REFERENCE/{llada_moe,dream,rnd1,llada2}; do
        echo "$model"
        make_file $model F32
        same_answers $model --dtype float32
        make_file $model BF16
        same_answers "$work/rounded" --dtype bfloat16
    done
}
every_type_is_read_as_the_numbers_that_it_stores() {
    local type types='F16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1'
    [ -z "${SAN:-}" ] || types='Q8_0 Q5_1' # sanitizers are slow, and the other types take the same paths
    for type in $types; do
        make_file models/tiny-full $type
        same_answers "$work/rounded" --dtype float32 --quantization none
    done
}
packing_warns_unless_it_keeps_the_numbers() {
    local type keeps to
    for type in Q8_0 Q4_0; do
        make_file models/tiny-full $type
        [ $type = Q8_0 ] && keeps=q8 || keeps=q4
        for to in q8 q4; do
            try quantize --model "$work/model.gguf" --type $to --out "$work/packed" --overwrite
            [ "$rc" = 0 ]
            if [ $to = $keeps ]; then
                grep -q 'rounding error 0.00 %' "$work/out"
                [ ! -s "$work/err" ]
            else
                grep -qE "^unmask quantize: rounding ([0-9]+) of \\1 matrices a second time, from $type to $to, " "$work/err"
                [ "$(wc -l < "$work/err")" = 1 ]
            fi
        done
    done
    rm -r "$work/packed"
}
products_suit_the_stored_types() {
    local type types='Q8_0 Q4_0 Q5_1'
    [ -z "${SAN:-}" ] || types=Q4_0
    for type in $types; do
        make_file models/tiny-full $type
        [ $type = Q4_0 ] && quantization=q4 || quantization=q8
        answers "$work/got" --model "$work/model.gguf"
        answers "$work/want" --model "$work/rounded" --dtype bfloat16 --quantization $quantization
        cmp "$work/got" "$work/want"
    done
    make_file models/tiny-full Q8_0
    try run --model "$work/model.gguf" --max-tokens 128 'What is 12 + 30?'
    grep -q '^12 + 30 = 42\.' "$work/out"
    grep -q 'bfloat16 with q8 weights' <("$UNMASK" eval --model "$work/model.gguf" --data models/eval.jsonl --limit 1 2>&1)
}
inspect_and_tokenize_read_the_file() {
    make_file models/tiny-full Q8_0
    try inspect --json "$work/model.gguf"
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
    jq -e '.family == "llada" and .sizes.parameters == .weights.elements' "$work/out"
    jq -e '.weights.types[] | select(.name == "Q8_0") | .tensors > 20' "$work/out"
    jq -e '.tokenizer.mask_token == "<|mdm_mask|>"' "$work/out"
    try tokenize --model "$work/model.gguf" --chat --ids 'What is 12 + 30?'
    cp "$work/out" "$work/ids"
    try tokenize --model models/tiny-full --chat --ids 'What is 12 + 30?'
    cmp "$work/out" "$work/ids"
}
a_folder_with_one_file_needs_no_name() {
    make_file models/tiny-full Q8_0
    mkdir "$work/folder"
    ln -s "$work/model.gguf" "$work/folder/a.gguf"
    try inspect "$work/folder"
    [ "$rc" = 0 ]
    grep -q "$work/folder/a.gguf" "$work/out"
    ln -s "$work/model.gguf" "$work/folder/b.gguf"
    try inspect "$work/folder"
    [ "$rc" = 2 ]
    grep -q "$work/folder holds 2 GGUF files: write $work/folder:NAME with one of a, b" "$work/err"
    try inspect "$work/folder:b"
    [ "$rc" = 0 ]
    grep -q "$work/folder/b.gguf" "$work/out"
    mkdir -p "$work/hub/models--org--small/snapshots/1"
    ln -s "$work/model.gguf" "$work/hub/models--org--small/snapshots/1/q8.gguf"
    HF_HUB_CACHE=$work/hub try inspect org/small
    [ "$rc" = 0 ]
    grep -q 'snapshots/1/q8.gguf' "$work/out"
}
a_file_of_a_snapshot_is_chosen_by_its_quantisation() {
    local snapshot=$work/cache/models--org--small/snapshots/1 type
    export HF_HUB_CACHE=$work/cache
    make_file models/tiny-full Q8_0
    mkdir -p "$snapshot"
    for type in Q8_0 Q4_0 IQ4_NL Q4_K_M Q4_K_S UD-Q4_K_M; do ln -s "$work/model.gguf" "$snapshot/Small-1B-$type.gguf"; done
    for type in Q8_0 Q4_0 iq4_nl ud-q4_k_m Small-1B-q4_k_s.gguf; do
        try inspect "org/small:$type"
        [ "$rc" = 0 ]
        grep -qi "snapshots/1/[a-z0-9-]*${type%.gguf}.gguf" "$work/out"
    done
    try run --model org/small:Q8_0 --max-tokens 128 'What is 12 + 30?'
    [ "$rc" = 0 ]
    grep -q ' = 42' "$work/out"
    try inspect org/small
    [ "$rc" = 2 ]
    grep -q 'org/small holds 6 GGUF files: write org/small:NAME with one of IQ4_NL, Q4_0, Q4_K_M' "$work/err"
    try inspect org/small:Q4_K_M
    [ "$rc" = 2 ]
    grep -q 'holds 2 GGUF files for Q4_K_M' "$work/err"
    try inspect org/small:Q4_K
    [ "$rc" = 3 ]
    grep -q 'holds no GGUF file of the name "Q4_K": write org/small:NAME with one of IQ4_NL' "$work/err"
    try inspect org/other:Q8_0
    grep -q "org/other: no such folder, and no model of that name in the Hugging Face cache" "$work/err"
    try inspect models/tiny-block:Q8_0
    grep -q 'models/tiny-block holds no GGUF files' "$work/err"
    unset HF_HUB_CACHE
}
a_file_stands_for_a_folder_that_lacks_safetensors() {
    make_file models/tiny-full Q8_0
    mkdir "$work/mixed"
    cp models/tiny-full/config.json "$work/mixed/"
    ln -s "$work/model.gguf" "$work/mixed/a.gguf"
    try run --model "$work/mixed" --max-tokens 128 'What is 12 + 30?'
    [ "$rc" = 0 ]
    grep -q ' = 42' "$work/out"
    cp models/tiny-full/*.json models/tiny-full/*.safetensors "$work/mixed/"
    try inspect "$work/mixed"
    not grep -q a.gguf "$work/out"
}
a_file_can_be_packed() {
    make_file models/tiny-full Q5_0
    rm -rf "$work/packed"
    try quantize --model "$work/model.gguf" --type q8 --out "$work/packed"
    [ "$rc" = 0 ]
    same_packed() { answers "$work/$1" --model "$work/$2" "${@:3}"; }
    same_packed got packed
    same_packed want model.gguf
    cmp "$work/got" "$work/want"
    try tokenize --model "$work/packed" --chat --ids 'What is 12 + 30?'
    cp "$work/out" "$work/ids"
    try tokenize --model "$work/model.gguf" --chat --ids 'What is 12 + 30?'
    cmp "$work/out" "$work/ids"
}
a_server_serves_the_file() {
    make_file models/tiny-full Q8_0
    serve --model "$work/model.gguf"
    post /v1/chat/completions '{"messages": [{"role": "user", "content": "What is 12 + 30?"}], "max_tokens": 128}'
    [[ $(member 'choices[0].message.content') == '12 + 30 = 42.'* ]]
    stop_server
    [ "$rc" = 0 ]
}
damaged_and_foreign_files_are_named() {
    make_file models/tiny-full Q8_0
    truncate -s -1000 "$work/model.gguf"
    try run --model "$work/model.gguf" hello
    [ "$rc" = 3 ]
    grep -q "$work/model.gguf" "$work/err"
    echo 'some text' > "$work/text"
    try run --model "$work/text" hello
    [ "$rc" = 2 ]
    grep -q 'is not a GGUF file' "$work/err"
    { printf 'GGUF\011'; printf '\0%.0s' $(seq 40); } > "$work/new.gguf"
    try run --model "$work/new.gguf" hello
    [ "$rc" = 3 ]
    grep -q 'version 9' "$work/err"
    cp models/tiny-full/model.safetensors "$work/other.gguf"
    try run --model "$work/other.gguf" hello
    [ "$rc" = 3 ]
    grep -q 'other.gguf: this is not a GGUF file but a safetensors file' "$work/err"
    try run --model models/tiny-full --lora "$work/new.gguf" hello
    [ "$rc" = 2 ]
    grep -q 'new.gguf is a GGUF file; an adapter is a folder with adapter_config.json' "$work/err"
}

claims_all
