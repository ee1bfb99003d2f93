#!/bin/bash
# Fields of clients that are newer than the server, and fields of vLLM that change an answer or its form.
source tests/cli/claims.bash
source tests/server/serve.bash

serve --in-process
shared_pid=$pid
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT

question='"messages": [{"role": "user", "content": "Write \"rabbit\" 8 times"}]'
chat() { post /v1/chat/completions "{$question, \"max_tokens\": 40 ${1:+, $1}}"; }
refuses() {
    post "$1" "$2"
    [ "$status" = 400 ]
    [ "$(member error.param)" = "$3" ]
    [[ "$(member error.message)" = *$4* ]]
}
# Prints the data of a stream's events, a JSON text in each line.
events() { sed -n 's/^data: {/{/p' "$work/body"; }
token_ids() {
    post /tokenize "{\"prompt\": \"$1\", \"add_special_tokens\": false}" > "$work/null"
    jq -c .tokens "$work/body"
}

claims_begin

unknown_fields_are_refused() {
    refuses /v1/chat/completions "{$question, \"newer\": \"low\"}" newer 'unknown field'
    refuses /v1/completions '{"prompt": "a", "stream": true, "stream_options": {"newer": 1}}' stream_options newer
    refuses /tokenize '{"prompt": "a", "newer": 1}' newer 'unknown field'
}

unknown_fields_are_ignored_and_logged_if_the_server_may() {
    local i
    serve --in-process --ignore-unknown-fields
    post /v1/completions '{"prompt": "a", "max_tokens": 1, "verbosity": "low", "n\nm": [], "b": 1, "c": {}, "d": 0,
        "stream": true, "stream_options": {"newer": 1}}'
    [ "$status" = 200 ]
    wait_for ignored "$work/log"
    grep -q 'ignored unknown fields of a request (--ignore-unknown-fields): "verbosity", "n?m", "b", "c" and 2 more$' \
        "$work/log"
    post /tokenize '{"prompt": "a", "newer": 1}'
    [ "$status" = 200 ]
    post /detokenize '{"tokens": [1], "newer": 1}'
    [ "$status" = 200 ]
    # Wrong values of known fields are errors all the same.
    refuses /v1/completions '{"prompt": "a", "max_tokens": "low", "verbosity": 1}' max_tokens integer
    for i in $(seq 120); do
        printf 'next\nurl = %s/v1/completions\ndata = "{\\"x%d\\": 1}"\nheader = "Content-Type: application/json"\n' "$url" "$i"
    done | sed 1d | curl -sS -m 60 -K - > "$work/null"
    wait_for 'further requests are not logged' "$work/log"
    [ "$(grep -c 'ignored unknown fields' "$work/log")" = 100 ]
    [ "$(grep 'ignored unknown fields' "$work/log" | tail -n 1 | grep -c 'further requests are not logged')" = 1 ]
}

bad_words_are_not_in_the_answer() {
    chat
    [[ "$(member 'choices[0].message.content')" = *rabbit* ]]
    chat '"bad_words": ["rabbit", " rabbit"]'
    [ "$status" = 200 ]
    [ "$(jq '.choices[0].message.content | contains("rabbit")' "$work/body")" = false ]
    refuses /v1/completions '{"prompt": "a", "bad_words": [""]}' bad_words empty
    refuses /v1/completions '{"prompt": "a", "bad_words": [1]}' bad_words string
    refuses /v1/completions "{\"prompt\": \"a\", \"bad_words\": [$(seq -s, -f '"%.0f"' 257)]}" bad_words 'at most 256'
}

allowed_token_ids_are_the_only_ones() {
    local ids
    ids=$(token_ids 'dog cat')
    post /v1/completions "{\"prompt\": \"a\", \"max_tokens\": 30, \"temperature\": 2, \"return_token_ids\": true,
        \"allowed_token_ids\": $ids}"
    [ "$status" = 200 ]
    [ "$(jq --argjson ids "$ids" '.choices[0].token_ids - $ids | length' "$work/body")" = 0 ]
    [ "$(jq '.choices[0].token_ids | length' "$work/body")" = 30 ]
    refuses /v1/completions '{"prompt": "a", "allowed_token_ids": []}' allowed_token_ids empty
    refuses /v1/completions '{"prompt": "a", "allowed_token_ids": [5000000]}' allowed_token_ids vocabulary
}

a_prompt_is_truncated_to_its_last_tokens() {
    local ids
    ids=$(seq -s, 100 199)
    post /v1/completions "{\"prompt\": [$ids], \"max_tokens\": 1, \"truncate_prompt_tokens\": 7, \"echo\": true,
        \"skip_special_tokens\": false}"
    [ "$(member usage.prompt_tokens)" = 7 ]
    cp "$work/body" "$work/cut"
    post /v1/completions '{"prompt": [193,194,195,196,197,198,199], "max_tokens": 1, "echo": true,
        "skip_special_tokens": false}'
    [ "$(jq '.choices[0].text' "$work/cut")" = "$(jq '.choices[0].text' "$work/body")" ]
    post /v1/completions "{\"prompt\": [$ids], \"max_tokens\": 1, \"truncate_prompt_tokens\": 100}"
    [ "$(member usage.prompt_tokens)" = 100 ]
    # -1: as many as fit together with the answer.
    post /v1/completions "{\"prompt\": [$(seq -s, 5000 | sed 's/[0-9]*/7/g')], \"max_tokens\": 8, \"truncate_prompt_tokens\": -1}"
    [ "$status" = 200 ]
    call /v1/models
    local most=$(($(member 'data[0].max_model_len') - 8))
    post /v1/completions "{\"prompt\": [$(seq -s, 5000 | sed 's/[0-9]*/7/g')], \"max_tokens\": 8, \"truncate_prompt_tokens\": -1}"
    [ "$(member usage.prompt_tokens)" = $most ]
    chat '"truncate_prompt_tokens": 5'
    [ "$(member usage.prompt_tokens)" = 5 ]
    refuses /v1/completions '{"prompt": "a", "truncate_prompt_tokens": 0}' truncate_prompt_tokens 'expected -1'
    refuses /v1/completions '{"prompt": "a", "truncate_prompt_tokens": 1000000}' truncate_prompt_tokens max_model_len
}

answers_end_at_the_length_of_the_model() {
    call /v1/models
    local most
    most=$(member 'data[0].max_model_len')
    post /v1/completions '{"prompt": "a", "max_tokens": 1000000, "ignore_eos": true}'
    [ "$status" = 200 ]
    [ "$(member usage.total_tokens)" = "$most" ]
    [ "$(member 'choices[0].finish_reason')" = length ]
    post /v1/completions "{\"prompt\": [$(seq -s, "$most" | sed 's/[0-9]*/7/g')], \"max_tokens\": 1}"
    [ "$status" = 400 ]
    [ "$(member error.code)" = context_length_exceeded ]
}

tokens_are_named_by_their_ids() {
    chat '"logprobs": true, "top_logprobs": 2, "return_tokens_as_token_ids": true, "return_token_ids": true'
    [ "$(jq '[.choices[0].token_ids[] | "token_id:\(.)"] == [.choices[0].logprobs.content[].token]' "$work/body")" = true ]
    jq -e '.choices[0].logprobs.content[0].top_logprobs[1].token | startswith("token_id:")' "$work/body"
    post /v1/completions "{\"prompt\": \"a\", \"max_tokens\": 4, \"ignore_eos\": true, \"logprobs\": 1, \"return_tokens_as_token_ids\": true,
        \"return_token_ids\": true}"
    [ "$(jq '[.choices[0].token_ids[] | "token_id:\(.)"] == .choices[0].logprobs.tokens' "$work/body")" = true ]
    [ "$(jq '[.choices[0].logprobs.top_logprobs[] | keys[] | startswith("token_id:")] | all' "$work/body")" = true ]
    refuses /generate '{"prompt": "a", "return_tokens_as_token_ids": true}' return_tokens_as_token_ids 'only false'
}

# The usage of a chunk counts the tokens of the chunks so far, so the difference of two chunks is the number of tokens
# whose text the second one brings. Clients that measure compute tokens per step from it.
usage_of_chunks_counts_their_tokens() {
    local path body
    while read -r path body; do
        post "$path" "{$body, \"max_tokens\": 40, \"stream\": true, \"return_token_ids\": true,
            \"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": true}}"
        events | jq -s 'def n: (.choices[0].token_ids // []) | length;
            [foreach .[] as $e (0; . + ($e | if .choices == [] then 0 else n end);
                [., $e.usage.completion_tokens])]' > "$work/sums"
        jq -e 'length > 3 and all(.[]; .[0] == .[1]) and .[0][1] < .[-1][1]' "$work/sums"
    done << END
/v1/chat/completions $question
/v1/completions "prompt": "<|im_start|>user\\nTell me a story with a bee called Wanda and a candle.<|im_end|>\\n<|im_start|>assistant\\n"
END
}

# Text that may begin a marker is held back, and its tokens with it.
usage_of_chunks_leaves_out_text_that_is_held_back() {
    local ids seed
    serve --in-process --tool-call-parser hermes
    ids=$(token_ids 'dog <<')
    for seed in 1 2 3; do
        post /v1/chat/completions "{$question, \"max_tokens\": 40, \"stream\": true, \"return_token_ids\": true,
            \"allowed_token_ids\": $ids, \"temperature\": 2, \"seed\": $seed, \"tool_choice\": \"auto\",
            \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}],
            \"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": true}}"
        events | jq -ces '[foreach .[] as $e (0; . + ($e | if .choices == [] then 0 else (.choices[0].token_ids // []) | length end);
            [., $e.usage.completion_tokens])]' | tee "$work/sums"
        jq -e 'length > 3 and all(.[]; .[0] == .[1])' "$work/sums"
    done
}

claims_all
