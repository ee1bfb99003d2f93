#!/bin/bash
# `unmask quantize`: packed folders give the answers of their checkpoints, and damaged ones are refused by name.
source tests/cli/claims.bash
GOLDEN=build/data/golden/models MODEL=$GOLDEN/sdar
source tests/cli/adapter.bash
for name in a b c d; do
    echo "{\"id\": \"$name\", \"prompt\": \"t1 t2 t3 t$((${#name} + 4))\", \"max_tokens\": 24, \"logprobs\": 0, \"seed\": 5}"
done > "$work/requests"

# Writes the answers of a model to the file $1, with the state after each pass and the log-probabilities of the tokens.
answers() {
    rm -f "$1"
    try generate --input "$work/requests" --output "$1" --trace --quiet "${@:2}"
    [ "$rc" = 0 ]
}
# Packs the model $1 as type $2 into $work/packed.
pack() {
    rm -rf "$work/packed"
    try quantize --model "$1" --type "$2" --out "$work/packed" --quiet "${@:3}"
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
}
# Writes the byte $1 at the offset $2 of the packed weights.
poke() { printf "\\x$1" | dd of="$work/packed/packed.safetensors" bs=1 seek="$2" conv=notrunc status=none; }

claims_begin

packed_models_answer_as_models_that_are_rounded_while_loading() {
    local model type
    for model in $GOLDEN/*; do
        for type in q8 q4 bf16; do
            pack "$model" $type
            answers "$work/got" --model "$work/packed"
            answers "$work/want" --model "$model" --dtype bfloat16 --quantization ${type/bf16/none}
            cmp "$work/got" "$work/want"
        done
    done
}
every_backend_and_type_reads_a_packed_model() {
    pack models/tiny-block q8
    for more in '--device ref' '--quantization q4' '--quantization none' '--dtype float32' '--data-parallel-size 2'; do
        try run --model "$work/packed" $more 'What is 12 + 30?'
        [ "$rc" = 0 ]
        grep -q 42 "$work/out"
    done
    answers "$work/got" --model "$work/packed" --quantization q4
    pack models/tiny-block q4
    answers "$work/other" --model "$work/packed"
    not cmp -s "$work/got" "$work/other" # rounded twice
}
a_packed_model_can_be_packed_again() {
    pack $MODEL q8
    mv "$work/packed" "$work/first"
    pack "$work/first" q8
    cmp "$work/first/packed.safetensors" "$work/packed/packed.safetensors"
    rm -r "$work/first"
}
rounding_twice_is_said() {
    try quantize --model $MODEL --type q8 --out "$work/once"
    grep -q 'rounding error [0-9.]* %, ' "$work/out"
    not grep -q 'rounded before' "$work/once/README.md"
    try quantize --model "$work/once" --type q4 --out "$work/twice"
    grep -q 'rounding error [0-9.]* % against weights that were rounded before, ' "$work/out"
    grep -q 'the source was rounded before, and its own error is not known' "$work/twice/README.md"
    rm -r "$work/once" "$work/twice"
}
a_second_rounding_is_warned_of_unless_it_changes_nothing() {
    local from to matrices
    for from in bf16 q8 q4; do
        pack $MODEL $from
        mv "$work/packed" "$work/$from"
        for to in bf16 q8 q4; do
            try quantize --model "$work/$from" --type $to --out "$work/packed" --overwrite
            [ "$rc" = 0 ]
            if [ $from = bf16 ] || [ $from = $to ]; then
                [ ! -s "$work/err" ]
                continue
            fi
            matrices=$(sed -nE 's/.*rounding ([0-9]+) of ([0-9]+) matrices.*/\1 \2/p' "$work/err")
            [ "${matrices% *}" -gt 2 ]
            [ "${matrices% *}" -le "${matrices#* }" ]
            sed -E 's/[0-9]+ of [0-9]+/N of N/' "$work/err" > "$work/line"
            [ "$(cat "$work/line")" = "unmask quantize: rounding N of N matrices a second time, from $from panels to \
${to/bf16/bfloat16}, adds to their error; quantize the original weights instead" ]
        done
    done
    pack "$work/q8" q4 # is quiet
    rm -r "$work/bf16" "$work/q8" "$work/q4"
}
a_missing_file_of_weights_is_named() {
    pack $MODEL q8
    mv "$work/packed/packed.safetensors" "$work/packed/elsewhere"
    try run --model "$work/packed" --raw 't1 t2'
    [ "$rc" = 3 ]
    grep -q 'packed.safetensors is missing; its README.md says that unmask quantize wrote the folder' "$work/err"
}
the_folder_has_the_small_files_and_a_card() {
    pack models/tiny-full q8
    local f
    for f in config.json generation_config.json tokenizer.json tokenizer_config.json; do
        cmp models/tiny-full/$f "$work/packed/$f"
    done
    cmp models/tiny-full/README.md "$work/packed/README.original.md"
    [ ! -e "$work/packed/model.safetensors" ]
    [ "$(find "$work/packed" -name '*.part')" = '' ]
    grep -q '^# tiny-full, q8$' "$work/packed/README.md"
    grep -qF '  - "Reverse the word \"lamp\"."' "$work/packed/README.md"
    grep -q 'unmask quantize --model tiny-full --type q8' "$work/packed/README.md"
    try inspect --json "$work/packed"
    [ "$(jq -r '.weights.types[] | select(.name == "q8 panels") | .elements > 5000000' "$work/out")" = true ]
    [ "$(jq .sizes.parameters "$work/out")" = "$("$UNMASK" inspect --json models/tiny-full | jq .sizes.parameters)" ]
}
the_licence_goes_into_the_card() {
    mkdir "$work/licensed"
    ln -s "$PWD/$MODEL"/* "$work/licensed/"
    printf -- '---\nlicense: apache-2.0\ntags: [x]\n---\n# A model\nlicense: none\n' > "$work/licensed/README.md"
    pack "$work/licensed" q4
    [ "$(sed -n '2p' "$work/packed/README.md")" = 'license: apache-2.0' ]
    [ "$(grep -c '^license' "$work/packed/README.md")" = 1 ]
}
an_adapter_is_packed_when_it_is_merged() {
    make_adapter "$work/shift"
    try quantize --model $MODEL --lora "$work/shift" --out "$work/with_adapter"
    [ "$rc" = 2 ]
    grep -q -- '--lora-merge' "$work/err"
    pack $MODEL q8 --lora "$work/shift" --lora-merge
    answers "$work/got" --model "$work/packed"
    answers "$work/want" --model $MODEL --dtype bfloat16 --quantization q8 --lora "$work/shift" --lora-merge
    cmp "$work/got" "$work/want"
    answers "$work/want" --model $MODEL --dtype bfloat16 --quantization q8
    not cmp -s "$work/got" "$work/want"
}
an_adapter_can_be_chosen_for_a_packed_model() {
    make_adapter "$work/shift"
    pack $MODEL bf16
    answers "$work/got" --model "$work/packed" --lora "$work/shift" --adapter shift
    answers "$work/want" --model $MODEL --dtype bfloat16 --lora "$work/shift" --adapter shift
    cmp "$work/got" "$work/want"
}
a_folder_that_is_not_empty_is_kept() {
    pack $MODEL q8
    try quantize --model $MODEL --out "$work/packed"
    [ "$rc" = 2 ]
    grep -q 'is not empty: name another folder, or use --overwrite' "$work/err"
    try quantize --model $MODEL --type q4 --out "$work/packed" --overwrite
    [ "$rc" = 0 ]
    grep -q 'rounding error' "$work/out"
    try inspect --json "$work/packed"
    jq -e '.weights.types[] | select(.name == "q4 panels")' "$work/out"
    try quantize --model "$work/packed" --out "$work/packed" --overwrite
    [ "$rc" = 2 ]
    grep -q 'is the folder of the model itself' "$work/err"
    try run --model "$work/packed" --raw 't1 t2'
    [ "$rc" = 0 ]
}
other_models_are_not_overwritten() {
    mkdir "$work/other_model"
    cp $MODEL/* "$work/other_model/"
    try quantize --model models/tiny-full --out "$work/other_model" --overwrite
    [ "$rc" = 2 ]
    grep -q 'holds other weights, model.safetensors: name another folder' "$work/err"
    diff -r $MODEL "$work/other_model"
}
nothing_is_left_of_a_model_that_was_there() {
    pack models/tiny-full q8
    echo nonsense > "$work/packed/chat_template.jinja"
    echo '{}' > "$work/elsewhere"
    ln -sf "$work/elsewhere" "$work/packed/generation_config.json"
    try quantize --model $MODEL --out "$work/packed" --overwrite
    [ "$rc" = 0 ]
    [ "$(cat "$work/elsewhere")" = '{}' ]
    [ ! -e "$work/packed/chat_template.jinja" ]
    [ ! -e "$work/packed/README.original.md" ]
    cmp $MODEL/config.json "$work/packed/config.json"
}
the_dtype_of_the_source_is_kept() {
    local dtype
    mkdir "$work/declared"
    cp $MODEL/* "$work/declared/"
    chmod u+w "$work/declared/config.json"
    # The tensors are bf16, whatever the field says.
    sed -i 's/"bfloat16"/"float32"/' "$work/declared/config.json"
    pack "$work/declared" q8
    answers "$work/got" --model "$work/packed"
    answers "$work/want" --model "$work/declared" --quantization q8
    cmp "$work/got" "$work/want"
}
two_processes_do_not_write_one_file() {
    mkdir "$work/shared"
    "$UNMASK" quantize --model models/tiny-block --type q8 --out "$work/shared" --overwrite --quiet 2> "$work/a" &
    local pid=$! a=0 b=0
    "$UNMASK" quantize --model models/tiny-block --type q4 --out "$work/shared" --overwrite --quiet 2> "$work/b" || b=$?
    wait $pid || a=$?
    [ $a = 0 ] || grep -q 'another process writes this file' "$work/a"
    [ $b = 0 ] || grep -q 'another process writes this file' "$work/b"
    try run --model "$work/shared" --check-weights error 'What is 12 + 30?'
    [ "$rc" = 0 ]
    grep -q 42 "$work/out"
}
wrong_arguments_are_named() {
    try quantize --model $MODEL
    [ "$rc" = 2 ]
    grep -q -- '--out is missing' "$work/err"
    try quantize --model $MODEL --out "$work/x" --type q5
    [ "$rc" = 2 ]
    grep -q 'expected q8, q4 or bf16, found "q5"' "$work/err"
    try quantize --model $MODEL --out "$work/missing/x"
    [ "$rc" = 1 ]
    grep -q "$work/missing/x: cannot make the folder: No such file or directory" "$work/err"
    try quantize --model $MODEL --out "$work/requests" --overwrite
    [ "$rc" = 2 ]
    grep -q 'expected a folder, found a file' "$work/err"
    try quantize $MODEL --out "$work/x"
    [ "$rc" = 2 ]
    grep -q -- '--model' "$work/err"
}
weights_that_are_not_numbers_are_refused() {
    mkdir "$work/nan"
    ln -s "$PWD/$MODEL"/* "$work/nan/"
    cp --remove-destination $MODEL/model.safetensors "$work/nan/model.safetensors"
    chmod u+w "$work/nan/model.safetensors"
    printf '\377\377\377\377' | dd of="$work/nan/model.safetensors" bs=1 conv=notrunc status=none \
        seek=$(($(stat -c %s "$work/nan/model.safetensors") - 4))
    try quantize --model "$work/nan" --out "$work/refused"
    [ "$rc" = 3 ]
    grep -q 'NaN or infinite' "$work/err"
    not grep -q 'check-weights' "$work/err"
    [ ! -e "$work/refused" ]
    # The value is in a matrix that an adapter changes.
    cp $MODEL/model.safetensors "$work/nan/model.safetensors"
    chmod u+w "$work/nan/model.safetensors"
    local at
    at=$(head -c 20000 $MODEL/model.safetensors | grep -aoE '"model.layers.0.self_attn.o_proj.weight":\{[^}]*' |
        grep -oE '"data_offsets":\[[0-9]+' | grep -oE '[0-9]+$')
    printf '\377\377\377\377' | dd of="$work/nan/model.safetensors" bs=1 conv=notrunc status=none \
        seek=$((at + 8 + $(od -An -t u8 -N 8 $MODEL/model.safetensors)))
    make_adapter "$work/shift"
    try quantize --model "$work/nan" --out "$work/refused" --lora "$work/shift" --lora-merge
    [ "$rc" = 3 ]
    grep -q 'the first is model.layers.0.self_attn.o_proj.weight\[0, 0\]' "$work/err"
}
a_damaged_file_is_noticed_on_request() {
    pack $MODEL q8
    poke 07 "$(($(stat -c %s "$work/packed/packed.safetensors") / 2))"
    try run --model "$work/packed" --raw 't1 t2'
    [ "$rc" = 0 ]
    try run --model "$work/packed" --raw 't1 t2' --check-weights error
    [ "$rc" = 3 ]
    grep -qE 'is damaged: the checksums of these tensors are wrong: model\.layers\.[0-9]+\.[a-z_.]+; make it again' "$work/err"
}
a_truncated_file_and_another_version_are_refused() {
    pack $MODEL q8
    local file=$work/packed/packed.safetensors
    cp "$file" "$work/whole"
    truncate -s -100 "$file"
    try run --model "$work/packed" --raw 't1 t2'
    [ "$rc" = 3 ]
    grep -q 'it is truncated or its header is wrong' "$work/err"
    sed 's/"version":"1"/"version":"9"/' "$work/whole" > "$file"
    try run --model "$work/packed" --raw 't1 t2'
    [ "$rc" = 3 ]
    grep -q 'has version 9 of the packed format, this program reads version 1' "$work/err"
}

claims_all
