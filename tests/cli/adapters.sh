#!/bin/bash
# Adapters on the command line: loaded by name, chosen for a run or a line, shown.
source tests/cli/claims.bash
MODEL=tests/golden/models/sdar

source tests/cli/adapter.bash
make_adapter "$work/shift"
ids_of() { sed -n "s/^{\"id\":\"$1\",\"token_ids\":\(\[[^]]*\]\).*/\1/p" "$work/results"; }

claims_begin

a_line_chooses_its_adapter() {
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
the_flag_is_the_default_of_lines() {
    echo '{"id": "none", "prompt": "t1 t2 t3", "max_tokens": 12}' > "$work/lines"
    echo '{"id": "plain", "prompt": "t1 t2 t3", "max_tokens": 12, "adapter": ""}' >> "$work/lines"
    rm -f "$work/results"
    try generate --model $MODEL --lora "x=$work/shift" --adapter x --input "$work/lines" --output "$work/results"
    [ "$rc" = 0 ]
    [ "$(ids_of none)" != "$(ids_of plain)" ]
}
merged_or_chosen_the_answer_is_the_same() {
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
what_is_wrong_with_an_adapter_is_the_models_fault() {
    try run --model $MODEL --lora "$work/nowhere" x
    [ "$rc" = 3 ]
    grep -q "adapter nowhere: $work/nowhere is no folder" "$work/err"
    try run --model $MODEL --adapter x x
    [ "$rc" = 2 ]
    grep -q 'adapter "x" is not loaded' "$work/err"
}
inspect_shows_and_checks_adapters() {
    try inspect --lora "x=$work/shift" $MODEL
    [ "$rc" = 0 ]
    grep -q "x *$work/shift" "$work/out"
    try inspect --json --lora "x=$work/shift" --lora-merge $MODEL
    grep -q '"adapters":\[{"name":"x",' "$work/out"
    grep -q "\"rank\":1,\"parameters\":$((layers * (in + out))),\"merged\":true" "$work/out"
    try inspect --lora "x=$work/shift" tests/golden/models/llada
    [ "$rc" = 3 ]
    grep -q 'names o_proj, which is no linear layer of this llada model: it has ff_out, q_proj' "$work/err"
}

claims_all
