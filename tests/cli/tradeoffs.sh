#!/bin/bash
# bench/tradeoffs.sh: a short run of the measurement for docs/tradeoffs.md, and plots of invented rows; bench/batching.sh.
source tests/cli/claims.bash
export UNMASK

bench/tradeoffs.sh --quick --out "$work/out" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# member NAME PART VALUE: prints a member of the row of PART that was measured at VALUE.
member() { grep "\"part\":\"$2\".*\"value\":\"$3\"" "$work/out/table.json" | grep -o "\"$1\":[^,}]*" | cut -d: -f2; }
holds() { awk "BEGIN { exit !($1) }"; }

# row PART MODEL STRATEGY SAMPLER PARAMETER VALUE ACCURACY TOKENS-PER-FORWARD
row() { printf '%s\t' "$@" | awk -F'\t' -v OFS='\t' '{ print $1, $2, $3, $4, $5, $6, 50, $7, $8, 900, 800, 1000, 4096, 3 }'; }
# drawn FILE SERIES: checks that the plot is complete and has this many series.
drawn() {
    grep '^</svg>' "$work/drawn/$1.svg"
    [ "$(grep -c '<g id="gnuplot_plot_[0-9]*"' "$work/drawn/$1.svg")" = "$2" ]
}

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

every_series_is_in_its_plot() {
    cp -r "$work/out" "$work/drawn"
    {
        row sampler tiny-block multi_bd factor factor 1 0.9 4
        row sampler tiny-block multi_bd factor factor 2 0.7 6
        row buffer tiny-block multi_bd confidence buffer_size 2 0.9 8
        row steps tiny-full full random steps 24 0.5 4
        row cache tiny-full dual_cache factor "" "" 0.8 9
        row sparse tiny-full sparse low_confidence 'delay_step 1, retention_ratio' 0.3 0.9 1
        row sparse tiny-full sparse low_confidence 'delay_step 1 head_select, retention_ratio' 0.3 0.8 1
        row sparse tiny-full sparse low_confidence 'delay_step 1 head_select, retention_ratio' 0.5 1 1
    } >> "$work/drawn/rows.tsv"
    bench/tradeoffs.sh --draw --out "$work/drawn"
    [ "$(grep -c '^| tiny-' "$work/drawn/table.md")" = 12 ]
    drawn block 3 # confidence (threshold), confidence (buffer), factor
    drawn whole 2 # random, factor (dual_cache)
    drawn buffer 1
    drawn retention 3
    grep -F '>factor (dual_cache)<' "$work/drawn/whole.svg"
}

points_that_lie_together_have_a_panel_of_their_own() {
    local i
    cp -r "$work/out" "$work/together"
    {
        for i in 0 1 2 3 4; do
            row sampler tiny-block multi_bd credit credit_alpha $i 0.96 13.$i
            row sampler tiny-block multi_bd factor factor $i 0.9$((5 + i % 2)) 13.$i
        done
        row sampler tiny-block multi_bd static denoising_steps 8 0.4 2
        row buffer tiny-block multi_bd confidence buffer_size 2 0.9 20
        row steps tiny-full full random steps 24 0.5 4
        row steps tiny-full full random steps 48 0.6 2
    } >> "$work/together/rows.tsv"
    bench/tradeoffs.sh --draw --out "$work/together"
    grep -F '>the part in the box<' "$work/together/block.svg"
    [ "$(grep -c '<g id="gnuplot_plot_[0-9]*a"' "$work/together/block.svg")" = 5 ]
    [ "$(grep -c '<g id="gnuplot_plot_[0-9]*b"' "$work/together/block.svg")" = 5 ]
    for i in 'confidence (threshold)' 'confidence (buffer)' credit factor static; do
        grep -F ">$i<" "$work/together/block.svg"
    done
    not grep -F '>the part in the box<' "$work/together/whole.svg"
}

unknown_arguments_are_refused() {
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
