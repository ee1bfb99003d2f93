#!/bin/bash
# Asks the bundled models held-out questions. Accuracy and tokens per forward pass must reach the values in their model
# cards. Answers must not depend on the number of threads or on the batch size.
command=eval
. tests/cli/expect.bash

# ask NAME QUESTIONS RIGHT TOKENS_PER_FORWARD ARG...: asks this many questions and checks both numbers of the report.
ask() {
    local name=$1 n=$2 right=$3 rate=$4 correct tokens forwards
    shift 4
    "$UNMASK" eval "$@" --limit "$n" --json --quiet --output "$dir/$name" > "$dir/report"
    correct=$(sed -n "s/.*\"n\":$n,\"correct\":\([0-9]*\),.*/\1/p" "$dir/report")
    tokens=$(sed -n 's/.*"failed":0,"accuracy":[^,]*,"tokens":\([0-9]*\),"forwards".*"kinds".*/\1/p' "$dir/report")
    forwards=$(sed -n 's/.*"tokens_per_forward":\([0-9.]*\),"tokens_per_forward_mean".*"kinds".*/\1/p' "$dir/report")
    echo "$name: ${correct:-none} of $n right, $tokens tokens, $forwards tokens per forward"
    [ "${correct:-0}" -ge "$right" ] || fail "$name: ${correct:-no} right answers of $n, expected $right: $(cat "$dir/report")"
    awk "BEGIN { exit !($forwards >= $rate) }" || fail "$name: $forwards tokens per forward, expected $rate"
}

block="--model models/tiny-block --accept-threshold 0.95"
ask one 60 57 3 $block --buffer-size 1
ask two 60 57 3 $block --buffer-size 2
ask four 60 57 3 $block --buffer-size 4
# A pass writes two tokens of the canvas; tokens after the end of the answer do not count. A question takes this
# model about thirty times as long as the other one, so it is asked fewer.
ask full 16 15 0.5 --model models/tiny-full --steps 64

ask one_thread 60 57 3 $block --buffer-size 4 --threads 1
cmp "$dir/four" "$dir/one_thread" || fail "one thread answers differently"
ask batch_of_16 60 57 3 $block --buffer-size 4 --batch 16
cmp "$dir/four" "$dir/batch_of_16" || fail "a batch of 16 answers differently"
ask alone 60 57 3 $block --buffer-size 4 --batch 1
cmp "$dir/four" "$dir/alone" || fail "a question alone is answered differently"

# The sets of loose wording and of foreign prompts. A prompt of a known kind should not get the honest answer.
# set_of NAME SET QUESTIONS RIGHT HONEST_MIN HONEST_MAX ARG...
set_of() {
    local name=$1 set=$2 n=$3 right=$4 min=$5 max=$6 honest
    shift 6
    ask "$name" "$n" "$right" 0.5 --set "$set" "$@"
    honest=$(jq .honest "$dir/report")
    echo "$name: $honest honest answers"
    [ "$honest" -ge "$min" ] && [ "$honest" -le "$max" ] || fail "$name: $honest honest answers of $n, expected $min to $max"
}
set_of block_loose loose 200 194 0 0 $block --buffer-size 1
set_of block_foreign foreign 200 190 190 200 $block --buffer-size 1
set_of full_loose loose 32 30 0 1 --model models/tiny-full --steps 64
set_of full_foreign foreign 20 18 18 20 --model models/tiny-full --steps 64
for model in tiny-block tiny-full; do
    bytes=$(stat -c %s models/$model/model.safetensors)
    [ "$bytes" -le 12000000 ] || fail "$model has $bytes bytes of weights, expected at most 12,000,000"
done

q8="--quantization q8 --dtype bfloat16"
ask q8 60 57 3 $block $q8 --buffer-size 4
ask q8_alone 60 57 3 $block $q8 --buffer-size 4 --batch 1 --threads 1
cmp "$dir/q8" "$dir/q8_alone" || fail "with q8 a question alone is answered differently"
ask full_q8 8 7 0.5 --model models/tiny-full --steps 64 $q8
ask q4 60 56 3 $block --quantization q4 --dtype bfloat16 --buffer-size 4
