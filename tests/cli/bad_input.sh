#!/bin/bash
# Invalid parameters: flags of run, generate and bench, and keys of request lines. The options are those of
# `unmask list options`, so new options are tested too.
source tests/cli/claims.bash
WORDS=build/data/golden/models/sdar

# Prints "name type low high" for every engine option with a range; high is "-" if there is no upper end.
ranges() {
    "$UNMASK" list options | awk '
        /^  [a-z]/ { name = $1; next }
        /^    -?[0-9.]+\.\.[0-9.]+/ { split($1, r, "\\.\\.|[,;]"); print name, r[1], r[2]; next }
        /^    [0-9]+ or more/ { print name, $1, "-" }'
}

# Prints "name value" with values just outside these ranges. Leaves out -1, which means auto in many rows.
outside() {
    ranges | awk '{
        step = $2 $3 ~ /\./ || $3 <= 1 ? 0.25 : 1
        print $1, $2 - step == -1 ? -2 : $2 - step
        if ($3 != "-") printf "%s %.15g\n", $1, $3 + step
    }'
}

# Runs the lines of $work/requests into $work/results; some of them fail.
generate() {
    try generate --model "$WORDS" --input "$work/requests" --output "$work/results" --overwrite "$@"
    [ "$rc" = 1 ]
}

# Options that a request may have.
of_requests() { awk 'NR == FNR { engine[$1] = 1; next } !($1 in engine)' "$work/engine_rows" -; }

engine_rows() {
    "$UNMASK" list options | awk '/^  decoding_strategy/ { past = 1 } /^  [a-z]/ && !past { print $1 }' > "$work/engine_rows"
}

# Checks that the error in line $1 of the results contains $2.
says() {
    sed -n "$1p" "$work/results" | grep -qF -- "$2" || {
        echo "line $1 lacks '$2': $(sed -n "$1p" "$work/results")"
        return 1
    }
}

claims_begin

options_just_outside_a_range_are_refused() {
    local name value n=0
    while read -r name value; do
        try run --model "$WORDS" "--$name=$value" t1
        [ "$rc" = 2 ]
        grep -qE -- "--$name: (-?[0-9.e+]+ is outside|expected )" "$work/err"
        n=$((n + 1))
    done < <(outside)
    [ "$n" -gt 90 ]
}
option_values_of_the_wrong_type_are_refused() {
    local name value n=0
    while read -r name _; do
        for value in x nan ''; do
            try run --model "$WORDS" "--$name=$value" t1
            [ "$rc" = 2 ]
            grep -qF -- "--$name: expected a" "$work/err"
            grep -qF -- "found \"$value\"" "$work/err"
            n=$((n + 1))
        done
    done < <(ranges)
    [ "$n" -gt 140 ]
}
request_lines_just_outside_a_range_are_refused() {
    local name value n=0
    engine_rows
    while read -r name value; do
        n=$((n + 1))
        echo "{\"id\": $n, \"prompt\": \"t1\", \"$name\": $value}"
    done < <(outside | of_requests) > "$work/requests"
    [ "$(wc -l < "$work/requests")" -gt 70 ]
    generate
    [ "$(grep -cE '"message":"[a-z_]+: (-?[0-9.e+]+ is outside|expected )' "$work/results")" = "$(wc -l < "$work/requests")" ]
}
request_lines_of_another_type_are_refused() {
    local name value n=0
    engine_rows
    while read -r name _; do
        for value in '"nan"' '""' '[1]' true; do
            n=$((n + 1))
            echo "{\"id\": $n, \"prompt\": \"t1\", \"$name\": $value}"
        done
    done < <(ranges | of_requests) > "$work/requests"
    generate
    # logprobs may also be a bool, as in chat requests
    [ "$(grep -cE '"message":"\\"[a-z_]+\\": expected an? (number|integer) \(' "$work/results")" = $((n - 1)) ]
}
contradictory_requests_are_refused() {
    cat > "$work/requests" << 'LINES'
{"id": 1, "prompt": "t1", "strategy": "full"}
{"id": 2, "prompt": "t1", "sampler": "best"}
{"id": 3, "prompt": "t1", "sampler": "entropy"}
{"id": 4, "prompt": "t1", "cfg_scale": 2}
{"id": 5, "prompt": "t1", "min_tokens": 9, "max_tokens": 8}
{"id": 6, "prompt": "t1", "sampler": "edit", "remask_threshold": 0.3}
{"id": 7, "prompt": "t1", "block_size": 300}
{"id": 8, "prompt": "t1", "block_size": 128, "buffer_size": 64}
{"id": 9, "prompt": "t1", "adapter": "parrot"}
{"id": 10, "prompt": "t1", "max_tokens": 2000}
{"id": 11, "prompt": "t1", "stop_token_ids": [512]}
{"id": 12, "prompt": "t1", "max_tokens": NaN}
{"id": 13, "prompt": "t1", "max_tokens": 4}
LINES
    generate --num-pages 20 --page-size 32
    says 1 'decoding_strategy: full is not for models of the family sdar, which run: multi_bd'
    says 2 'sampler: no sampler is named \"best\"; there are: confidence, '
    says 3 'sampler: entropy follows a schedule over a whole canvas'
    says 4 'cfg_scale: 2 would have no effect: strategy multi_bd and sampler confidence do not read it'
    says 5 'min_tokens: 9 is outside 0..8 (max_tokens 8)'
    says 6 'remask_threshold: 0.3 is not for sampler edit'
    says 7 'block_size: 300 is outside 1..256'
    says 8 'needs 8320 tokens (prompt 1, block_size 128), but max_num_batched_tokens is 4096'
    says 9 'adapter \"parrot\" is not loaded'
    says 10 'needs 63 KV pages (2004 tokens in pages of 32), but there are 20; raise num_pages or lower max_tokens'
    says 11 'stop_token_ids: id 512 is outside the vocabulary 0..511'
    says 12 "invalid JSON: invalid token near 'NaN'"
    says 13 '"finish_reason":"max_new_tokens_reached"'
}
contradictory_engine_options_are_refused() {
    local command
    echo '{"id": 1, "prompt": "t1"}' > "$work/requests"
    for command in "run t1" "generate --input $work/requests --output $work/none" "bench --batch 1"; do
        try $command --model "$WORDS" --strategy sparse
        [ "$rc" != 0 ]
        grep -q 'sparse is not for models of the family sdar, which run: multi_bd' "$work/err"
        try $command --model "$WORDS" --max-num-batched-tokens 3
        [ "$rc" != 0 ]
        grep -q 'needs 8 tokens (prompt 1, block_size 4), but max_num_batched_tokens is 3' "$work/err"
        try $command --model "$WORDS" --lora-merge
        [ "$rc" != 0 ]
        grep -q 'lora_merge needs exactly one adapter in lora, found 0' "$work/err"
    done
}
unused_data_parallel_size_is_warned_about() {
    try run --model "$WORDS" --max-tokens 4 --data-parallel-size 3 t1
    [ "$rc" = 0 ]
    grep -q 'data_parallel_size 3: this command has one request at a time' "$work/err"
}

claims_all
