#!/bin/bash
# bench/tradeoffs.sh: a short run of the measurement behind docs/tradeoffs.md, without its plots; bench/batching.sh.
source tests/cli/claims.bash
export UNMASK

bench/tradeoffs.sh --quick --out "$work/out" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# member NAME PART VALUE: of the row of a part that was measured at a value.
member() { grep "\"part\":\"$2\".*\"value\":\"$3\"" "$work/out/table.json" | grep -o "\"$1\":[^,}]*" | cut -d: -f2; }
holds() { awk "BEGIN { exit !($1) }"; }

claims_begin

every_row_of_the_json_has_every_member_and_the_numbers_are_numbers() {
    local number='-\?[0-9][0-9.e+-]*' word='"[^"]*"' row
    row="{\"part\":$word,\"model\":$word,\"strategy\":$word,\"sampler\":$word,\"parameter\":$word,\"value\":$word"
    row+=",\"questions\":$number,\"accuracy\":$number,\"tokens_per_forward\":$number,\"tokens_per_second\":$number"
    row+=",\"tokens_per_second_min\":$number,\"tokens_per_second_max\":$number,\"kv_bytes\":$number,\"runs\":$number}"
    cat "$work/out/table.json"
    [ "$(grep -c "^$row,\?\$" "$work/out/table.json")" = 4 ]
    head -n 1 "$work/out/table.json" | grep '^{"cpu":".*","cores":[0-9]*,"threads":[0-9]*,"isa":".*","commit":".*",$'
    sed -n 2p "$work/out/table.json" | grep '^"dense_kv_bytes":[0-9]*,"rows":\[$'
    [ "$(tail -n 1 "$work/out/table.json")" = ']}' ]
}

the_three_tables_have_the_same_rows() {
    [ "$(grep -c '^| tiny-' "$work/out/table.md")" = 4 ]
    [ "$(grep -c 'tiny-' "$work/out/table.csv")" = 4 ]
    head -n 1 "$work/out/table.csv" | grep '^part,model,strategy,'
}

eleven_of_twelve_answers_are_right_at_the_threshold_of_the_model_card() {
    member accuracy threshold 0.95
    holds "$(member accuracy threshold 0.95) >= 0.9"
}

a_lower_threshold_takes_more_tokens_per_forward() {
    holds "$(member tokens_per_forward threshold 0.5) > $(member tokens_per_forward threshold 0.95)"
}

sparse_at_half_the_keys_stores_half_the_bytes() {
    member kv_bytes sparse 0.5
    member kv_bytes dense 48
    holds "$(member kv_bytes sparse 0.5) <= 0.51 * $(member kv_bytes dense 48)"
    holds "$(member kv_bytes sparse 0.5) >= 0.49 * $(member kv_bytes dense 48)"
}

what_it_does_not_understand_is_refused() {
    not bench/tradeoffs.sh --runs none --out "$work/refused"
    not bench/tradeoffs.sh --fast --out "$work/refused"
    not test -e "$work/refused"
}

batching_has_a_line_for_each_block_length_and_a_profile() {
    bench/batching.sh --runs 1 --max-tokens 32 | tee "$work/batching"
    [ "$(grep -c '^ *[0-9][0-9]* .*%$' "$work/batching")" = 4 ]
    grep -x 'plan, build and apply (with output): [0-9.]* % of the steps' "$work/batching"
}

claims_all
