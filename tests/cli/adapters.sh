#!/bin/bash
# Adapters on the command line: loading by name, choosing for a run or a request line, inspecting.
source tests/cli/claims.bash
MODEL=build/data/golden/models/sdar

source tests/cli/adapter.bash
make_adapter "$work/shift"
ids_of() { sed -n "s/^{\"id\":\"$1\",\"token_ids\":\(\[[^]]*\]\).*/\1/p" "$work/results"; }

claims_begin

a_request_line_can_name_an_adapter() {
    local n=0 adapter
    for adapter in null '""' '"x"' '"shift"' '"other"' 7; do
        echo "{\"id\": \"a$((++n))\", \"prompt\": \"t1 t2 t3\", \"max_tokens\": 12, \"adapter\": $adapter}"
    done > "$work/lines"
    echo '{"id": "lora", "prompt": "t1 t2 t3", "max_tokens": 12, "lora": "x"}' >> "$work/lines"
    echo '{"id": "none", "prompt": "t1 t2 t3", "max_tokens": 12}' >> "$work/lines"
    try generate --model $MODEL --dtype float32 --lora "x=$work/shift,$work/shift" --input "$work/lines" \
        --output "$work/results"
    [ "$rc" = 1 ]
    [ -n "$(ids_of none)" ]
    [ "$(ids_of a1)" = "$(ids_of none)" ]
    [ "$(ids_of a2)" = "$(ids_of none)" ]
    [ "$(ids_of a3)" != "$(ids_of none)" ]
    [ "$(ids_of a4)" = "$(ids_of a3)" ]
    [ "$(ids_of lora)" = "$(ids_of a3)" ]
    grep -q '^{"id":"a5","error":{"code":"UM_EINVAL","message":"adapter \\"other\\" is not loaded: there are x, shift"' \
        "$work/results"
    grep -q '^{"id":"a6","error":{"code":"UM_EINVAL","message":"\\"adapter\\": expected a string' "$work/results"
}
adapter_option_is_the_default_of_request_lines() {
    echo '{"id": "none", "prompt": "t1 t2 t3", "max_tokens": 12}' > "$work/lines"
    echo '{"id": "plain", "prompt": "t1 t2 t3", "max_tokens": 12, "adapter": ""}' >> "$work/lines"
    rm -f "$work/results"
    try generate --model $MODEL --lora "x=$work/shift" --adapter x --input "$work/lines" --output "$work/results"
    [ "$rc" = 0 ]
    [ "$(ids_of none)" != "$(ids_of plain)" ]
}
merged_and_unmerged_adapters_give_the_same_answer() {
    ask=(run --model $MODEL --dtype float32 --raw --max-tokens 12 "t1 t2 t3")
    try "${ask[@]}"
    [ "$rc" = 0 ]
    cp "$work/out" "$work/plain"
    try "${ask[@]}" --lora "x=$work/shift" --adapter x
    [ "$rc" = 0 ]
    cp "$work/out" "$work/applied"
    try "${ask[@]}" --lora-path "x=$work/shift" --pre-merge-lora
    [ "$rc" = 0 ]
    cmp "$work/out" "$work/applied"
    not cmp -s "$work/out" "$work/plain"
}
adapter_errors_count_as_model_errors() {
    try run --model $MODEL --lora "$work/nowhere" x
    [ "$rc" = 3 ]
    grep -q "adapter nowhere: $work/nowhere is not a folder" "$work/err"
    try run --model $MODEL --adapter x x
    [ "$rc" = 2 ]
    grep -q 'adapter "x" is not loaded' "$work/err"
}
adapter_tensor_with_too_many_dimensions_is_refused() {
    name=base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight
    header="{\"$name\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1],\"data_offsets\":[0,4]}}"
    mkdir "$work/deep"
    cp "$work/shift/adapter_config.json" "$work/deep/"
    { bytes_of ${#header}; printf %s "$header"; values 1; } > "$work/deep/adapter_model.safetensors"
    try run --model $MODEL --lora "x=$work/deep" x
    [ "$rc" = 3 ]
    grep -q "adapter x: .*tensor $name has 6 dimensions, unmask reads at most 4" "$work/err"
    try inspect --lora "x=$work/deep" $MODEL
    [ "$rc" = 3 ]
    grep -q "tensor $name has 6 dimensions" "$work/err"
}
inspect_shows_and_checks_adapters() {
    try inspect --lora "x=$work/shift" $MODEL
    [ "$rc" = 0 ]
    grep -q "x *$work/shift" "$work/out"
    try inspect --json --lora "x=$work/shift" --lora-merge $MODEL
    grep -q '"adapters":\[{"name":"x",' "$work/out"
    grep -q "\"rank\":1,\"parameters\":$((layers * (in + out))),\"merged\":true" "$work/out"
    try inspect --lora "x=$work/shift" build/data/golden/models/llada
    [ "$rc" = 3 ]
    grep -q 'names o_proj, which is no linear layer of this llada model: it has ff_out, q_proj' "$work/err"
}
commands_of_the_page_run() {
    local command n=0
    mkdir "$work/page"
    echo '{"id": "chosen", "prompt": "t1 t2 t3", "max_tokens": 4, "adapter": "math"}' > "$work/page/requests.jsonl"
    sed -n '/^```console$/,/^```$/p' docs/adapters.md | grep '^unmask ' | grep -v '^unmask serve ' > "$work/commands"
    while read -r command; do
        echo "---- $command"
        command=$(sed -E "s#\\bDIR\\b#$PWD/$MODEL#; s#\\b(ADAPTER|A|B)\\b#$work/shift#g
            s#\"Hello\"#t1 t2 t3 --max-tokens 4#
            s#^unmask#$(realpath "$UNMASK")#" <<< "$command")
        (cd "$work/page" && bash -euo pipefail -c "$command" < /dev/null > "$work/out")
        [ -s "$work/out" ] || [ -s "$work/page/results.jsonl" ]
        n=$((n + 1))
    done < "$work/commands"
    [ $n = 4 ]
    [ "$(jq -r .id "$work/page/results.jsonl")" = chosen ]
    [ "$(jq -r .text "$work/page/results.jsonl")" != '' ]
}

claims_all
