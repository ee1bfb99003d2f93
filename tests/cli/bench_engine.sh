#!/bin/bash
# unmask bench engine: one run on a single layer, its report and its chart; options that it refuses.
source tests/cli/claims.bash

# The smallest shape, in a quiet run; the claims read its report.
"$UNMASK" bench engine --shape sdar-1.7b --layers 1 --dtype bfloat16 --context 6 --passes 10 --warm-up 0 --batch 2 \
    --operations --tokens-per-forward 2 --svg "$work/chart.svg" --json > "$work/report" 2> "$work/progress"

# holds EXPRESSION: checks that the expression of jq is true for the report.
holds() {
    jq -e "$1" "$work/report" || { jq . "$work/report"; return 1; }
}
# refuses TEXT OPTION...: checks that the options are a usage error whose message has the text.
refuses() {
    local text=$1
    shift
    try bench engine "$@"
    [ "$rc" = 2 ]
    grep -qF -- "$text" "$work/err"
}

claims_begin

the_report_is_one_object_per_point() {
    [ "$(wc -l < "$work/report")" = 1 ]
    holds '.commit != "" and .cpu != "" and .device == "cpu" and .device_name != "" and .timed != ""'
    holds '.shape == "sdar-1.7b" and .layers == 1 and .all_layers == 28 and .dtype == "bfloat16" and .batch == 2'
    holds '.ranks == 1 and .expert_parallel == false'
    holds '.block == 4 and .context == 8 and .strategy == "multi_bd" and .sampler == "confidence"'
}
steps_are_those_of_all_requests() {
    holds '.steps | keys == ["commit", "denoise", "prefill"]'
    holds '.steps.denoise | .n >= 10 and .tokens == 8 and .keys >= 24'
    holds '.steps.commit.tokens == 16'
    holds '.steps.prefill.tokens == 24'
    holds '[.steps[].ms | .min > 0 and .min <= .median and .median <= .max] | all'
    holds '.burst_ms > 0 and .burst_clock_mhz == null' # a CPU does not tell its clock
}
the_gap_is_a_part_of_the_step() {
    holds '.steps.denoise | .gap_us.median > 0 and .gap_us.median < 1000 * .ms.median and .device_ms == null and .clock_mhz == null'
}
the_limit_follows_from_the_measured_rates() {
    holds '.read_bytes_per_second > 0 and .operations_per_second > 0 and .rates_from == "device"'
    holds '. as $p | .steps.denoise |
        (1000 * (.weight_bytes + .kv_bytes) / $p.read_bytes_per_second) as $read |
        (1000 * .operations / $p.operations_per_second) as $compute |
        ((.limit_ms - ([$read, $compute] | max) | fabs) < 1e-6) and
        (($read >= $compute) == (.limited_by == "reading"))'
    holds '.steps.denoise | (.share_of_limit - .limit_ms / .ms.median | fabs) < 1e-9'
    # One layer of 50331648 weights, the head, and the rows of 8 tokens in the embedding.
    holds '.steps.denoise.weight_bytes == 2 * (50331648 + 151936 * 2048 + 8 * 2048)'
}
tokens_per_second_follow_from_the_times() {
    holds '(.tokens_per_second - 2 * 2 / (.steps.denoise.ms.median / 1000) | fabs) < 1e-6'
    holds '(.tokens_per_second_with_block_starts -
        2 * 4 / ((.steps.denoise.ms.median + .steps.commit.ms.median) / 1000) | fabs) < 1e-6'
}
# With --no-deterministic the program below reports passes of half the time.
the_table_shows_the_faster_order() {
    local cells ms
    jq -c '.steps.denoise.clock_mhz = 1530.4 | .burst_clock_mhz = 1980' "$work/report" > "$work/ordered"
    jq -c '.steps.denoise.ms.median /= 2' "$work/report" > "$work/any_order"
    printf '#!/bin/sh\ncase "$*" in *--no-deterministic) cat "%s" ;; *) cat "%s" ;; esac\n' "$work/any_order" \
        "$work/ordered" > "$work/program_of_orders"
    chmod +x "$work/program_of_orders"
    cells=(bench/cuda_table.py --unmask "$work/program_of_orders" --shapes sdar-1.7b --no-torch --quantization none)
    "${cells[@]}" > "$work/out"
    ms=$(jq .steps.denoise.ms.median "$work/any_order" | awk '{ printf $1 < 1000 ? "%.3g" : "%.0f", $1 }')
    grep -q '| MHz | ms after a pause | MHz after a pause | ms in any order |' "$work/out"
    grep -qE "\| 1530 \| [0-9.]+ \| 1980 \| $ms \|" "$work/out"
    "${cells[@]}" --no-any-order > "$work/out"
    not grep -q 'any order' "$work/out"
}
the_table_has_the_numbers_of_the_report() {
    local ms
    printf '#!/bin/sh\ncat "%s"\n' "$work/report" > "$work/program"
    chmod +x "$work/program"
    bench/cuda_table.py --unmask "$work/program" --shapes sdar-1.7b --no-torch --quantization none > "$work/out"
    [ "$(grep -c '^|' "$work/out")" = 3 ]
    ms=$(jq .steps.denoise.ms.median "$work/report" | awk '{ printf $1 < 1000 ? "%.3g" : "%.0f", $1 }')
    grep -qE "^\| sdar-1.7b \| [a-z0-9]+ \| 2 \| $ms \|" "$work/out"
    not grep -q 'exchanges' "$work/out"
    grep -qE '\| – \| [0-9.]+ \| – \| – \|' "$work/out" # no clocks, and any order takes as long
    bench/cuda_table.py --unmask "$work/program" --shapes sdar-1.7b --no-torch > "$work/out"
    [ "$(grep -c '^|' "$work/out")" = 4 ] # in both types of weights
    jq -c '.ranks = 4 | .operations |= . + [{name: "sum_norm", us: 1, share: 0.25}, {name: "sum_ranks", us: 1, share: 0.125}]' \
        "$work/report" > "$work/report_of_ranks"
    printf '#!/bin/sh\necho "$*" > "%s"\ncat "%s"\n' "$work/options" "$work/report_of_ranks" > "$work/program"
    bench/cuda_table.py --unmask "$work/program" --tensor-parallel-size 4 --shapes llada2-flash --quantization none > "$work/out"
    grep -q -- '--batch 1,16,64 .*--tensor-parallel-size 4 --operations' "$work/options"
    grep -q '^4 ' "$work/out"
    grep -q '| exchanges |$' "$work/out"
    grep -q '| 38 % |$' "$work/out"
    rc=0
    bench/cuda_table.py --unmask "$work/program" --shapes no-such-shape --no-torch || rc=$?
    [ "$rc" = 2 ]
}
operations_add_up_to_the_step() {
    holds '[.operations[].share] | add - 1 | fabs < 1e-6'
    holds '[.operations[].name] | contains(["head", "linear", "attention", "plan", "apply"])'
}
the_chart_has_a_bar_and_its_limit() {
    [ "$(grep -c '<rect x=' "$work/chart.svg")" = 2 ]
    grep -q '>sdar-1.7b, 2 at once<' "$work/chart.svg"
    [ "$(tail -n 1 "$work/chart.svg")" = '</svg>' ]
}
a_chart_that_cannot_be_written_is_refused_at_the_start() {
    try bench engine --shape sdar-1.7b --layers 1 --svg "$work/none/chart.svg"
    [ "$rc" = 2 ]
    [ "$(cat "$work/err")" = "unmask bench engine: --svg: $work/none/chart.svg: cannot write: No such file or directory" ]
}
progress_goes_to_standard_error() {
    grep -q '^sdar-1.7b: .* GB of random weights in ' "$work/progress"
}
help_says_what_is_timed() {
    try bench engine --help
    [ "$rc" = 0 ]
    tr '\n' ' ' < "$work/out" > "$work/err"
    grep -q 'plan, forward pass, sampling, apply, and the gap' "$work/err"
    grep -q -- '--kv-cache-dtype' "$work/out"
    not grep -q -- '--model' "$work/out"
}
unknown_shapes_are_refused_with_the_list() {
    local shapes
    refuses 'unknown shape "llama"; the shapes are llada-8b, sdar-8b, sdar-1.7b, sdar-30b, llada2-mini' --shape llama
    shapes=$(sed -n 's/.*the shapes are //p' "$work/err")
    refuses 'unknown shape ""' --shape llada-8b,
    refuses '--shape is missing; the shapes are llada-8b' --batch 1
    # The row of --shape names the same shapes.
    "$UNMASK" bench engine --help | tr -s ' \n' ' ' > "$work/out"
    grep -qF "$shapes" "$work/out"
}
numbers_out_of_range_are_refused() {
    refuses '--layers' --shape sdar-1.7b --layers 0
    refuses 'sdar-1.7b has 28 layers, found 29' --shape sdar-1.7b --layers 29
    for batch in '' 0 1, x 5000; do refuses '--batch: expected' --shape sdar-1.7b --batch "$batch"; done
    refuses '--passes' --shape sdar-1.7b --passes 9
    refuses '--block' --shape sdar-1.7b --block 1
    refuses '--block: llada-8b needs a block of at least 3, found 2' --shape llada-8b --block 2
    refuses 'so at most 4064 fit, found 4065' --shape llada-8b --context 4065
    refuses '--max-num-batched-tokens: llada-8b with 8 requests feeds 576 in a step, found 512' --shape llada-8b \
        --batch 8 --max-num-batched-tokens 512
    refuses 'unexpected argument "sdar-1.7b"' sdar-1.7b
}
options_of_models_and_decoding_are_unknown() {
    refuses '--model' --shape sdar-1.7b --model models/tiny-block
    refuses '--temperature' --shape sdar-1.7b --temperature 1
}

claims_all
