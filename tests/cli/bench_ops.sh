#!/bin/bash
# unmask bench ops: one run of each kind of operation on the smallest shapes, its report, and the options that it refuses.
# No claim is about a time.
source tests/cli/claims.bash

quick=(--quick --window 0.001)
# Lines of all kinds, in quiet runs; the claims read them.
"$UNMASK" bench ops --shape sdar-1.7b --operation linear,gate,norm,rope_kv,attention --type float32,bfloat16,q8,q4 \
    --rows 1,5 --context 64 "${quick[@]}" --json > "$work/report"
"$UNMASK" bench ops --shape sdar-1.7b --operation norm --rows 2 "${quick[@]}" > "$work/text"

# holds EXPRESSION: checks that the expression of jq is true for the array of all lines.
holds() {
    jq -es "$1" "$work/report" || { jq . "$work/report"; return 1; }
}
# refuses TEXT OPTION...: checks that the options are a usage error whose message has the text.
refuses() {
    local text=$1
    shift
    try bench ops "${quick[@]}" "$@"
    [ "$rc" = 2 ]
    grep -qF -- "$text" "$work/err"
}

claims_begin

the_report_is_one_object_per_line() {
    # Three products in four types, two operations on keys in two, two on activations; at two numbers of rows.
    holds 'length == 2 * (3 * 4 + 2 * 2 + 2)'
    holds 'all(.commit != "" and .cpu != "" and .isa != "" and .threads >= 1 and .timed != "" and .windows == 3)'
    holds 'all(.shape == "sdar-1.7b" and (.rows == 1 or .rows == 5))'
    holds '[.[].operation] | unique == ["attention", "gate", "linear", "norm", "rope_kv"]'
    holds '[.[] | select(.operation == "linear").type] | unique == ["bfloat16", "float32", "q4", "q8"]'
}
times_have_a_spread() {
    holds 'all(.us | .min > 0 and .min <= .median and .median <= .max)'
    holds 'all(.waited >= 0)'
}
operations_and_bytes_follow_from_the_shape() {
    holds '.[] | select(.operation == "linear" and .type == "bfloat16" and .rows == 5 and (.sizes | startswith("down")))
        | .operations == 2 * 5 * 6144 * 2048 and .bytes == 2 * 6144 * 2048'
    holds '.[] | select(.operation == "linear" and .type == "q8" and .rows == 1 and (.sizes | startswith("down")))
        | .bytes == 6144 * 2048 * 34 / 32'
    holds '.[] | select(.operation == "linear" and .type == "q4" and .rows == 1 and (.sizes | startswith("down")))
        | .bytes == 6144 * 2048 * 18 / 32'
    holds '.[] | select(.operation == "attention" and .type == "float32" and .rows == 5)
        | .operations == 4 * 5 * 16 * 128 * 64 and .bytes == 2 * 8 * 128 * 64 * 4'
    holds '.[] | select(.operation == "norm" and .rows == 5)
        | .operations == 0 and .bytes == 8 * 5 * 2048'
}
the_limit_follows_from_the_measured_rates() {
    holds 'all(.read_bytes_per_second > 0)'
    holds 'all(. as $r | (1e6 * .bytes / .read_bytes_per_second) as $read |
        (if .peak_operations_per_second then 1e6 * .operations / .peak_operations_per_second else 0 end) as $compute |
        ((.limit_us - ([$read, $compute] | max) | fabs) < 1e-6 * .limit_us) and
        (($read >= $compute) == (.limited_by == "reading")) and
        ((.share_of_limit - .limit_us / .us.median | fabs) < 1e-9))'
}
a_known_instruction_set_names_its_instructions() {
    holds 'all((.instruction == null) == (.peak_operations_per_second == null))'
    holds '[.[] | select(.isa == "avx2")] | all((.type == "q8" or .type == "q4" | not) or .instruction == "vpmaddubsw ymm")'
    "$UNMASK" bench ops --shape sdar-1.7b --operation norm --type float32 --rows 1 --isa 'plain C' "${quick[@]}" --json |
        jq -e '.isa == "plain C" and .instruction == null and .limited_by == "reading"'
}
text_has_the_conditions_and_columns() {
    [ -z "$(awk 'length > 80' "$work/text")" ]
    grep -q '^machine .* threads$' "$work/text"
    grep -q '^program   unmask .*, commit ' "$work/text"
    grep -q '^measured  memory is read at .* GB/s; float32: ' "$work/text"
    grep -q '^sdar-1.7b (JetLM/SDAR-1.7B-Chat)$' "$work/text"
    grep -q '^ *rows us median .* min .* max .* limit us .* bound by$' "$work/text"
    # Activations are fp32 for all types, so there is one line.
    [ "$(grep -c '^  norm, float32: ' "$work/text")" = 1 ]
}
quick_means_few_lines() {
    "$UNMASK" bench ops --shape sdar-1.7b --operation norm --type float32 "${quick[@]}" --json |
        jq -es 'map(.rows) == [1, 32]'
}
experts_and_the_head_are_measured() {
    "$UNMASK" bench ops --shape llada-moe --operation moe,head --type q4 --rows 3 "${quick[@]}" --json > "$work/other"
    jq -es 'map(.operation) == ["moe", "head"] and .[0].operations == 6 * 3 * 8 * 2048 * 1024 and
        .[1].operations == 2 * 3 * 2048 * 157184 and all(.us.median > 0)' "$work/other"
}
help_says_what_is_timed() {
    try bench ops --help
    [ "$rc" = 0 ]
    tr -s ' \n' ' ' < "$work/out" > "$work/err"
    grep -q 'not the making of weights' "$work/err"
    grep -q -- '--threads' "$work/out"
    not grep -q -- '--model' "$work/out"
    # The rows name the operations and the shapes that exist.
    grep -q 'linear, linear_gate, gate, norm, rope_kv, attention, moe, head;' "$work/err"
    grep -q 'llada-8b, sdar-8b, sdar-1.7b, llada2-mini, dream-7b, llada-moe' "$work/err"
}
mistakes_are_refused_before_a_measurement() {
    refuses 'unknown shape "llama"; the shapes are llada-8b' --shape llama
    refuses 'of linear, linear_gate, gate, norm, rope_kv, attention, moe, head, found "multiply"' --operation multiply
    refuses 'of float32, bfloat16, q8, q4, found "float16"' --type float16
    for n in '' 0 1, x 5000; do refuses '--rows: expected' --rows "$n"; done
    refuses '--isa: this processor has ' --isa sse9
    refuses '--context' --context 0
    refuses 'unexpected argument "linear"' linear
}

claims_all
