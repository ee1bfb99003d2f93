#!/bin/bash
# `unmask score`: the likelihood of given answers.
source tests/cli/claims.bash
WORDS=build/data/golden/models/llada # a word-level vocabulary, t0 to t511, no template
MODEL=models/tiny-block

score() { try score --model "$MODEL" -q "$@"; }
refuses() { # refuses WORDS OPTION...: exit status 2 and the words on standard error
    local words=$1
    shift
    score "$@"
    [ "$rc" = 2 ]
    grep -qF -- "$words" "$work/err"
    [ ! -s "$work/out" ]
}
# field N NAME: a member of entry N of the scores in the first line.
field() { head -n 1 "$work/out" | jq -r ".scores[$1].$2"; }

claims_begin

the_right_answer_is_the_most_likely() {
    score --prompt 'What is 12 + 30?' '12 + 30 = 42' '12 + 30 = 43' '12 + 30 = 24'
    [ "$rc" = 0 ]
    [ "$(head -n 1 "$work/out" | awk '{ print $1, $2, $3, $4, $5, $6 }')" = 'logprob error tokens passes greedy answer' ]
    [ "$(tail -n +2 "$work/out" | sort -rn | head -n 1 | sed 's/.*  //')" = '12 + 30 = 42' ]
    [ "$(tail -n +2 "$work/out" | wc -l)" = 3 ]
}
json_has_the_share_of_each_token() {
    score --prompt 'What is 12 + 30?' --answer '12 + 30 = 42' --json --method confidence
    [ "$rc" = 0 ]
    [ "$(field 0 tokens)" = "$(field 0 'token_ids | length')" ]
    [ "$(field 0 'token_logprobs | length')" = "$(field 0 tokens)" ]
    [ "$(field 0 'passes')" = "$(field 0 tokens)" ]
    [ "$(field 0 is_greedy)" = true ]
    [ "$(field 0 standard_error)" = 0 ]
    jq -e '.scores[0] | (.logprob - (.token_logprobs | add)) | fabs < 1e-9' "$work/out"
}
engine_options_that_scores_share() {
    score --prompt 'What is 12 + 30?' --json --samples 16 'The answer is 42, I think'
    first=$(field 0 logprob)
    score --prompt 'What is 12 + 30?' --json --samples 16 --seed 1 'The answer is 42, I think'
    [ "$(field 0 logprob)" != "$first" ]
    score --prompt 'What is 12 + 30?' --json --samples 16 --seed 0 'The answer is 42, I think'
    [ "$(field 0 logprob)" = "$first" ]
    score --prompt 'What is 12 + 30?' --json --samples 16 --block-size 2 'The answer is 42, I think'
    [ "$(field 0 logprob)" != "$first" ]
    [ "$(field 0 standard_error)" = 0 ]
    score --prompt a --cfg-scale 1 b
    [ "$rc" != 0 ]
    grep -q cfg_scale "$work/err"
    try score --model models/tiny-full -q --json --prompt 'What is 12 + 30?' 42
    first=$(field 0 logprob)
    try score --model models/tiny-full -q --json --cfg-scale 1 --prompt 'What is 12 + 30?' 42
    [ "$rc" = 0 ]
    [ "$(field 0 logprob)" != "$first" ]
}
lines_are_answered_in_order() {
    cat > "$work/in" << 'END'
{"id": "many", "prompt": [1, 2, 3], "answer": [[4, 5, 6, 7, 8, 9, 10, 11, 12], [4]], "samples": 40, "batch": 5}
{"prompt": "t1 t2", "answer": "t3", "seed": 5}

{"id": 7, "prompt": "t1", "answer": ["t2", ""]}
{"id": "unknown", "prompt": "t1", "answer": "t2", "sample": 3}
{"id": "range", "prompt": "t1", "answer": "t2", "samples": 0}
{"id": "none", "answer": "t2"}
no JSON
{"id": "last", "prompt": [1], "answer": [2, 3], "method": "left_to_right"}
END
    try score --model "$WORDS" --input "$work/in"
    [ "$rc" = 1 ]
    [ "$(wc -l < "$work/out")" = 8 ]
    [ "$(jq -c '[.id, (.scores | length), .error.code]' "$work/out" | paste -sd' ')" = \
        '["many",2,null] [2,1,null] [7,0,"UM_EINVAL"] ["unknown",0,"UM_EINVAL"] ["range",0,"UM_ERANGE"] ["none",0,"UM_EINVAL"] [null,0,"UM_EPARSE"] ["last",1,null]' ]
    [ "$(field 0 passes)" = 40 ]
    [ "$(field 1 passes)" = 1 ]
    grep -q 'line 4: answer 1: the answer is empty' "$work/err"
    grep -q 'line 5: unknown field "sample"' "$work/err"
    grep -q 'line 8: ' "$work/err"
}
a_score_does_not_depend_on_other_lines() {
    for i in $(seq 60); do
        echo "{\"prompt\": [$((i * 7)), 3, $i], \"answer\": [$((i * 3)), 8, $((i * 5)), 9, 10, 11, $i, 12], \"samples\": 24, \"seed\": $i}"
    done > "$work/many"
    try score --model "$WORDS" -q --input "$work/many" --max-num-reqs 7
    [ "$rc" = 0 ]
    cp "$work/out" "$work/all"
    for i in 1 31 60; do
        sed -n "${i}p" "$work/many" | "$UNMASK" score --model "$WORDS" -q --input - --threads 1 > "$work/one"
        [ "$(jq -c .scores "$work/one")" = "$(sed -n "${i}p" "$work/all" | jq -c .scores)" ]
    done
}
a_chat_template_is_used_unless_raw() {
    echo '{"prompt": "What is 2 + 3?", "answer": "5"}' > "$work/in"
    echo '{"messages": [{"role": "user", "content": "What is 2 + 3?"}], "answer": "5"}' >> "$work/in"
    score --input "$work/in"
    [ "$(jq -c .scores "$work/out" | uniq | wc -l)" = 1 ]
    tokens=$(field 0 prompt_tokens)
    score --raw --prompt 'What is 2 + 3?' --json 5
    [ "$(field 0 prompt_tokens)" -lt "$tokens" ]
}
wrong_usage_is_refused() {
    refuses '--prompt is missing' 42
    refuses 'no answer' --prompt a
    refuses 'leave out' --prompt a --input x
    refuses 'samples' --prompt a --samples 0 b
    refuses 'monte_carlo' --prompt a --method exact b
    try score --model "$MODEL" -q --prompt a --samples 30 --batch 7 b
    [ "$rc" = 1 ]
    grep -q '7 does not divide the number of samples, 30' "$work/err"
    try score --model build/data/reference/wedlm -q --prompt t1 t2
    [ "$rc" = 1 ]
    grep -q 'causal attention' "$work/err"
    try score --model "$MODEL" --input "$work/nowhere"
    [ "$rc" = 2 ]
}
an_interrupt_ends_the_run() {
    # 200,000 samples take minutes.
    "$UNMASK" score --model "$WORDS" -q --prompt 't1 t2' 't3 t4 t5 t6 t7 t8 t9 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11' \
        --samples 200000 > "$work/out" 2> "$work/err" &
    local scorer=$! rc=0
    wait_until_caught INT $scorer
    kill -INT $scorer
    wait $scorer || rc=$?
    [ "$rc" = 130 ]
    [ ! -s "$work/out" ]
}

claims_all
