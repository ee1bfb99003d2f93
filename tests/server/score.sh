#!/bin/bash
# POST /v1/score: its response, its errors, its end when the client disconnects, its limits.
source tests/cli/claims.bash
source tests/server/serve.bash

# refuses BODY FIELD WORDS: fails unless the response is 400 and names the field.
refuses() {
    post /v1/score "$1"
    [ "$status" = 400 ]
    [ "$(member error.param)" = "$2" ]
    member error.message | grep -qF -- "$3"
}
# Scores that take minutes.
slow='{"prompt": "a", "answer": "b c d e f g h i j k l m n o p", "samples": 200000}'

serve --in-process
shared_pid=$pid
trap 'kill -9 $shared_pid; wait $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT

claims_begin

scores_are_those_of_the_command() {
    body='{"messages": [{"role": "user", "content": "What is 12 + 30?"}], "answer": ["12 + 30 = 42", "12 + 30 = 43", "I do not know"], "samples": 40, "batch": 5, "seed": 3, "check_greedy": true}'
    post /v1/score "$body"
    [ "$status" = 200 ]
    [ "$(member object)" = score ]
    [ "$(member model)" = tiny-block ]
    [ "$(member 'scores | length')" = 3 ]
    [ "$(member 'usage | .prompt_tokens + .completion_tokens == .total_tokens')" = true ]
    [ "$(member usage.completion_tokens)" = "$(member 'scores | map(.tokens) | add')" ]
    [ "$(member 'scores | max_by(.logprob) == .[0]')" = true ]
    [ "$(member 'scores[0].is_greedy')" = true ]
    "$UNMASK" score --model models/tiny-block -q --threads 1 --input - <<< "$body" > "$work/line"
    [ "$(jq -c .scores "$work/line")" = "$(member scores | jq -c .)" ]
}
a_prompt_is_sent_as_it_is() {
    post /v1/score '{"model": "tiny-block", "prompt": "What is", "answer": " 12"}'
    [ "$status" = 200 ]
    few=$(member 'scores[0].prompt_tokens')
    curl -sS -H 'Content-Type: application/json' -d '{"prompt": "What is"}' "$url/tokenize" > "$work/tokens"
    [ "$few" = "$(jq .count "$work/tokens")" ]
    first=$(member 'scores[0].logprob')
    curl -sS -H 'Content-Type: application/json' -d '{"prompt": " 12"}' "$url/tokenize" > "$work/answer"
    post /v1/score "{\"prompt\": $(jq -c .tokens "$work/tokens"), \"answer\": $(jq -c .tokens "$work/answer")}"
    [ "$(member 'scores[0].logprob')" = "$first" ]
}
a_request_has_a_limited_number_of_tokens() {
    jq -cn '{prompt: [range(16)], answer: [range(1024) | [1]], method: "left_to_right"}' > "$work/many"
    post /v1/score "@$work/many" -m 300 # 1,024 passes
    [ "$status" = 200 ]
    [ "$(member 'scores | length')" = 1024 ]
    jq -c '.prompt = [range(980) | . % 500]' "$work/many" > "$work/more"
    post /v1/score "@$work/more"
    [ "$status" = 400 ]
    [ "$(member error.param)" = answer ]
    member error.message | grep -qF '1024 answers behind a prompt of 980 tokens; a request may have 1000000 tokens'
}
invalid_fields_are_named() {
    refuses '{"answer": "a"}' prompt 'expected either'
    refuses '{"prompt": "a", "messages": [], "answer": "a"}' prompt 'both'
    refuses '{"prompt": 5, "answer": "a"}' prompt 'expected a text'
    refuses '{"prompt": "", "answer": "a"}' prompt 'empty'
    refuses '{"prompt": "a"}' answer 'missing'
    refuses '{"prompt": "a", "answer": ""}' answer 'empty'
    refuses '{"prompt": "a", "answer": ["b", []]}' answer 'answer 1 is empty'
    refuses '{"prompt": "a", "answer": {"b": 1}}' answer 'found an object'
    refuses '{"prompt": "a", "answer": [1, "b"]}' answer 'expected an integer'
    refuses '{"prompt": [99999999], "answer": "b"}' prompt 'outside the vocabulary'
    refuses '{"prompt": "a", "answer": [99999999]}' answer 'outside the vocabulary'
    refuses "{\"prompt\": \"a\", \"answer\": $(jq -cn '[range(1024)] | map(. % 500)')}" answer 'max_model_len is 1024'
    refuses '{"prompt": "a", "answer": "b", "samples": 0}' samples '1..1000000'
    refuses '{"prompt": "a", "answer": "b", "samples": "many"}' samples 'many'
    refuses '{"prompt": "a", "answer": "b", "method": "exact"}' method 'monte_carlo'
    refuses '{"prompt": "a", "answer": "b", "batch": 3}' batch 'does not divide'
    refuses '{"prompt": "a", "answer": "b", "cfg_scale": 1}' cfg_scale 'full attention'
    refuses '{"prompt": "a", "answer": "b", "temperature": 1}' temperature 'unknown field'
    refuses '{"messages": [{"role": "nobody", "content": "x"}], "answer": "b"}' messages 'role'
    refuses '{"prompt": "a", "answer": "b", "adapter": "none"}' adapter 'none'
    post /v1/score '{"model": "other", "prompt": "a", "answer": "b"}'
    [ "$status" = 404 ]
    [ "$(member error.code)" = model_not_found ]
    post /v1/score '[]'
    [ "$status" = 400 ]
    call /v1/score
    [ "$status" = 405 ]
}
a_disconnect_aborts_the_scores() {
    for i in 1 2 3; do
        curl -sS -m 1 -o /dev/null -H 'Content-Type: application/json' -d "$slow" "$url/v1/score" || true
    done
    for _ in $(seq 400); do
        post /call/slots '{}'
        [ "$(jq -c '.result' "$work/body")" != '[[]]' ] || break
        sleep 0.05
    done
    [ "$(jq -c '.result' "$work/body")" = '[[]]' ]
}
workers_divide_the_requests() {
    serve --data-parallel-size 2 --ignore-unknown-fields
    for i in $(seq 8); do
        curl -sS -H 'Content-Type: application/json' -d '{"prompt": "What is", "answer": " 12 + 30 = 42 or what", "samples": 100}' "$url/v1/score" > "$work/out$i" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
    [ "$(jq -c .scores "$work"/out? | sort -u | wc -l)" = 1 ]
    [ "$(jq '.scores | length' "$work/out1")" = 1 ]
    post /call/stats '{}'
    [ "$(jq '[.result[] | .requests] | min > 0' "$work/body")" = true ]
    post /v1/score '{"prompt": "a", "answer": "b", "temperature": 1}'
    [ "$status" = 200 ]
    stop_server
    [ "$rc" = 0 ]
}
a_timeout_aborts_the_scores() {
    serve --request-timeout 1
    post /v1/score "$slow"
    [ "$status" = 504 ]
    for _ in $(seq 400); do
        post /call/slots '{}'
        [ "$(jq -c '.result' "$work/body")" != '[[]]' ] || break
        sleep 0.05
    done
    [ "$(jq -c '.result' "$work/body")" = '[[]]' ]
    stop_server
    [ "$rc" = 0 ]
}
keys_limit_scores() {
    line() { echo "$1 $(printf %s "$1-secret" | sha256sum | cut -c 1-64) ${*:2}"; }
    {
        line one max_concurrent=1
        line few tokens_per_minute=24
        line other models=none
    } > "$work/keys"
    serve --in-process --api-key-file "$work/keys"
    auth() { echo "x-api-key: $1-secret"; }
    post /v1/score '{"prompt": "a", "answer": "b"}'
    [ "$status" = 401 ]
    start_slow() {
        curl -sS -m 60 -o /dev/null -H "$(auth one)" -H 'Content-Type: application/json' -d "$slow" "$url/v1/score" &
        slow_pid=$!
    }
    start_slow
    for _ in $(seq 400); do
        kill -0 $slow_pid 2> /dev/null || start_slow # it was refused beside a short one
        post /v1/score '{"prompt": "a", "answer": "b"}' -H "$(auth one)"
        [ "$status" = 200 ] || break
        sleep 0.05
    done
    [ "$status" = 429 ]
    kill $slow_pid
    wait $slow_pid || true
    for _ in $(seq 200); do
        post /v1/score '{"prompt": "a", "answer": "b"}' -H "$(auth one)"
        [ "$status" != 200 ] || break
        sleep 0.05
    done
    [ "$status" = 200 ]
    post /v1/score '{"prompt": "a b c d e f g", "answer": ["a b c d e f", "g h i j k l m n o"]}' -H "$(auth few)"
    [ "$status" = 200 ]
    post /v1/score '{"prompt": "a b c d e f g", "answer": ["a b c d e f", "g h i j k l m n o"]}' -H "$(auth few)"
    [ "$status" = 429 ]
    [ -n "$(header retry-after)" ]
    post /v1/score '{"prompt": "a", "answer": "b"}' -H "$(auth other)"
    [ "$status" = 403 ]
    stop_server
}

claims_all
