#!/bin/bash
# API keys from a file: who may do what, limits of each key, and changes of the file while the server runs.
source tests/cli/claims.bash
source tests/server/serve.bash

# line NAME SECRET SETTING...: prints a line of a key file. The key of NAME is NAME-secret.
line() { echo "$1 $(printf %s "$1-secret" | sha256sum | cut -c 1-64) ${*:2}"; }
{
    echo '# people'
    line alice models=tiny,tiny-2
    line bob models=tiny-2
    line ops admin
    line slow requests_per_minute=1
    line spare tokens_per_minute=400
    line short max_answer_tokens=64 min_priority=-5
    line single max_concurrent=1
    line nothing models=none
} > "$work/keys"

# The server of all claims that need no special options.
serve --in-process --served-model-name tiny,tiny-2 --api-key first-key --api-key-file "$work/keys"
shared_url=$url shared_pid=$pid
trap 'kill -9 $shared_pid; wait $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT

# as NAME PATH BODY OPTION...: posts with the key of NAME.
as() { post "$2" "$3" -H "x-api-key: $1-secret" "${@:4}"; }
# refused STATUS PARAM: checks the last response.
refused() {
    [ "$status" = "$1" ]
    [ "$(member error.param)" = "$2" ]
    [ -n "$(member error.message)" ]
}
prompt='"prompt": "What is 12 + 30?"'
long='"prompt": "Count.", "max_tokens": 900, "ignore_eos": true, "accept_threshold": 1, "stream": true, "stream_mode": "denoise"'
# by NAME PATH OPTION...: calls with the key of NAME.
by() { call "$2" -H "x-api-key: $1-secret" "${@:3}"; }
# upload NAME: uploads three requests with the key of NAME, and creates a batch of them. Sets `file` and `batch`.
upload() {
    local i
    for i in 1 2 3; do
        echo "{\"custom_id\": \"$i\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {$prompt}}"
    done > "$work/lines"
    by "$1" /v1/files -F purpose=batch -F "file=@$work/lines"
    [ "$status" = 200 ]
    file=$(member id)
    as "$1" /v1/batches "{\"input_file_id\": \"$file\", \"endpoint\": \"/v1/completions\", \"completion_window\": \"1h\"}"
    [ "$status" = 200 ]
    batch=$(member id)
}
# until_batch NAME FILTER: waits until the batch, as the key of NAME sees it, passes the filter.
until_batch() {
    for _ in $(seq 600); do
        by "$1" "/v1/batches/$batch" > "$work/null"
        ! jq -e "$2" "$work/body" > "$work/null" || return 0
        sleep 0.05
    done
    return 1
}
# knows_nothing NAME: fails if the key of NAME can see or use the file or the batch.
knows_nothing() {
    local path
    for path in "/v1/files/$file" "/v1/files/$file/content" "/v1/batches/$batch"; do
        by "$1" "$path"
        [ "$status" = 404 ]
    done
    for path in /v1/files /v1/batches; do
        by "$1" "$path"
        [ "$(member 'data | length')" = 0 ]
        by "$1" "$path?after=$file"
        [ "$status" = 400 ]
    done
    by "$1" "/v1/files/$file" -X DELETE
    [ "$status" = 404 ]
    as "$1" "/v1/batches/$batch/cancel" ''
    [ "$status" = 404 ]
    as "$1" /v1/batches "{\"input_file_id\": \"$file\", \"endpoint\": \"/v1/completions\", \"completion_window\": \"1h\"}"
    refused 400 input_file_id
    grep -q 'unknown file' "$work/body"
}
not_served() { UNMASK=with_timeout try serve --model models/tiny-block --in-process --port 0 "$@"; }
with_timeout() { timeout 60 "$program" "$@"; }
program=$UNMASK

claims_begin

keys_of_the_file_and_of_the_option_are_accepted() {
    local key
    for key in alice-secret ops-secret first-key; do
        call /v1/models -H "Authorization: Bearer $key"
        [ "$status" = 200 ]
        call / -u "anybody:$key"
        [ "$status" = 200 ]
    done
    for key in alice alice-secre "$(printf %s alice-secret | sha256sum | cut -c 1-64)"; do
        call /v1/models -H "x-api-key: $key"
        [ "$status" = 401 ]
    done
}
a_request_without_a_key_is_answered_before_its_body() {
    local method path expected
    head -c 1000000 /dev/zero > "$work/zeros"
    while read -r method path expected; do
        exec 3<> "/dev/tcp/127.0.0.1/${url##*:}"
        printf '%s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n' "$method $path" >&3
        timeout 20 head -n 1 <&3 | grep -F "HTTP/1.1 $expected "
        exec 3>&-
        call "$path" -X "$method" --data-binary "@$work/zeros" -H 'Content-Type: application/json' -H 'Expect:'
        [ "$status" = "$expected" ]
        [ "$(header connection)" = close ]
    done <<< $'POST /v1/completions 401\nPOST /v1/unknown 401\nGET /health 200'
    call /v1/completions --data-binary "@$work/zeros" -H 'Content-Type: application/json' -H 'x-api-key: alice-secret'
    [ "$status" = 400 ]
}
only_admins_may_act_on_the_whole_server() {
    local path
    for path in /flush_cache /start_profile /stop_profile /call/memory_report; do
        as alice $path ''
        refused 403 null
        [ "$(member error.code)" = not_allowed ]
        call $path -X POST
        [ "$status" = 401 ]
    done
    call /metrics -H 'x-api-key: alice-secret'
    [ "$status" = 403 ]
    for key in ops-secret first-key; do
        call /flush_cache -X POST -H "x-api-key: $key"
        [ "$status" = 200 ]
        call /call/memory_report -X POST -H "x-api-key: $key"
        [ "$status" = 200 ]
        call /metrics -H "x-api-key: $key"
        [ "$status" = 200 ]
    done
}
requests_beyond_the_rate_are_refused() {
    as slow /tokenize "{$prompt}"
    [ "$status" = 200 ]
    [ "$(header x-ratelimit-limit-requests)" = 1 ]
    [ "$(header x-ratelimit-remaining-requests)" = 0 ]
    [ "$(header x-ratelimit-reset-requests)" = 1m0s ]
    as slow /v1/completions "{$prompt}"
    refused 429 null
    [ "$(member error.code)" = rate_limit_exceeded ]
    [ "$(header retry-after)" -gt 1 ]
    [ "$(header retry-after)" -le 60 ]
    [ "$(header retry-after | wc -l)" = 1 ]
    call /v1/models -H 'x-api-key: slow-secret'
    [ "$status" = 200 ]
    as alice /v1/completions "{$prompt}"
    [ "$status" = 200 ]
    [ -z "$(header x-ratelimit-limit-requests)" ]
}
tokens_are_reserved_and_given_back() {
    as spare /v1/completions "{$prompt, \"max_tokens\": 50}"
    [ "$status" = 200 ]
    [ "$(header x-ratelimit-limit-tokens)" = 400 ]
    [ "$(header x-ratelimit-remaining-tokens)" = 340 ]
    [ "$(member usage.completion_tokens)" -lt 20 ]
    as spare /v1/completions "{$prompt, \"max_tokens\": 350, \"ignore_eos\": true, \"n\": 2}"
    [ "$status" = 200 ]
    [ "$(header x-ratelimit-remaining-tokens)" -ge 270 ]
    [ "$(member usage.completion_tokens)" = 700 ]
    as spare /v1/completions "{$prompt, \"max_tokens\": 350}"
    refused 429 null
    [ "$(header retry-after)" -gt 10 ]
    [ "$(header x-ratelimit-remaining-tokens)" = 0 ]
    as spare /v1/generate "{$prompt, \"max_tokens\": 350}"
    [ "$status" = 429 ]
    [ "$(header x-ratelimit-limit-tokens)" = 400 ]
    [ "$(header retry-after)" -gt 10 ]
}
the_length_of_answers_is_bounded() {
    as short /v1/completions "{$prompt, \"max_tokens\": 16, \"n\": 4}"
    [ "$status" = 200 ]
    as short /v1/completions "{$prompt, \"max_tokens\": 17, \"n\": 4}"
    refused 403 max_tokens
    as short /v1/completions '{"prompt": ["a", "b", "c"], "max_tokens": 22}'
    refused 403 max_tokens
    as short /v1/chat/completions '{"messages": [{"role": "user", "content": "Count."}], "ignore_eos": true, "n": 2}'
    [ "$status" = 200 ]
    [ "$(member usage.completion_tokens)" = 64 ]
}
models_are_restricted() {
    as alice /v1/completions "{$prompt}"
    [ "$status" = 200 ]
    as bob /v1/completions "{$prompt}"
    refused 403 model
    as bob /v1/completions "{$prompt, \"model\": \"tiny\"}"
    refused 403 model
    as bob /v1/completions "{$prompt, \"model\": \"tiny-2\"}"
    [ "$status" = 200 ]
    by bob /v1/models
    [ "$(member 'data | map(.id) | join(" ")')" = tiny-2 ]
    by bob /v1/models/tiny
    [ "$status" = 404 ]
    by nothing /v1/models -H 'anthropic-version: 2023-06-01'
    [ "$(jq -c '[.data, .first_id, .last_id]' "$work/body")" = '[[],null,null]' ]
    by alice /v1/models
    [ "$(member 'data | length')" = 2 ]
}
priority_is_bounded() {
    as alice /v1/completions "{$prompt, \"priority\": -1}"
    refused 403 priority
    as alice /v1/completions "{$prompt, \"priority\": 7}"
    [ "$status" = 200 ]
    as short /v1/completions "{$prompt, \"priority\": -5}"
    [ "$status" = 200 ]
    as short /v1/completions "{$prompt, \"priority\": -6}"
    refused 403 priority
    as ops /v1/completions "{$prompt, \"priority\": -2147483648}"
    [ "$status" = 200 ]
}
generations_at_a_time_are_bounded() {
    curl -sS -N -m 60 -H 'x-api-key: single-secret' -H 'Content-Type: application/json' -d "{$long}" \
        "$url/v1/completions" > "$work/stream" &
    stream_pid=$!
    wait_for '^data: ' "$work/stream"
    as single /v1/completions "{$prompt}"
    refused 429 null
    [ "$(header retry-after)" = 1 ]
    kill $stream_pid
    wait $stream_pid || true
    for _ in $(seq 200); do
        as single /v1/completions "{$prompt}"
        [ "$status" != 200 ] || break
        sleep 0.05
    done
    [ "$status" = 200 ]
}
files_and_batches_belong_to_the_key_that_made_them() {
    local out
    serve --in-process --api-key-file "$work/keys" --served-model-name tiny,tiny-2 --state-dir "$work/state"
    upload alice
    knows_nothing bob
    until_batch alice '.status == "completed" and .request_counts.completed == 3'
    out=$(member output_file_id)
    knows_nothing bob
    stop_server
    serve --in-process --api-key-file "$work/keys" --served-model-name tiny,tiny-2 --state-dir "$work/state"
    knows_nothing bob
    by bob "/v1/files/$out/content"
    [ "$status" = 404 ]
    for name in alice ops; do
        by $name "/v1/files/$out/content"
        [ "$(wc -l < "$work/body")" = 3 ]
        by $name /v1/files
        [ "$(member 'data | length')" = 2 ]
        by $name /v1/batches
        [ "$(member 'data[0].id')" = "$batch" ]
        [ "$(member 'data[0].owner')" = null ]
    done
    by alice "/v1/files/$file" -X DELETE
    [ "$status" = 200 ]
    stop_server
}
lines_of_a_batch_wait_for_the_allowance_of_their_key() {
    line thrifty tokens_per_minute=1 > "$work/own"
    serve --in-process --api-key-file "$work/own" --state-dir "$work/waiting" --batch-concurrency 1
    upload thrifty
    until_batch thrifty '.request_counts.completed == 1'
    sleep 0.7
    until_batch thrifty '.request_counts.completed == 1 and .status == "in_progress"'
    line other > "$work/own"
    kill -HUP $pid
    wait_for 'were read again' "$work/log"
    sleep 0.7
    line thrifty > "$work/own"
    kill -HUP $pid
    until_batch thrifty '.request_counts.completed == 3 and .status == "completed"'
    stop_server
}
results_belong_to_the_key_that_asked_for_them() {
    local id
    as alice /v1/generate "{$prompt}"
    id=$(member 'request_ids[0]')
    for name in bob short; do
        by $name "/v1/result/$id"
        [ "$status" = 404 ]
        by $name "/v1/result/$id" -X DELETE
        [ "$status" = 404 ]
    done
    by ops "/v1/result/$id"
    [ "$status" = 200 ]
    by alice "/v1/result/$id" -X DELETE
    [ "$status" = 200 ]
}
responses_belong_to_the_key_that_asked_for_them() {
    local id more='"input": "12 + 30 ="'
    as alice /v1/responses "{$more}"
    [ "$status" = 200 ]
    id=$(member id)
    for name in bob short; do
        for how in GET DELETE; do
            by $name "/v1/responses/$id" -X $how
            [ "$status" = 404 ]
        done
        as $name /v1/responses "{$more, \"max_output_tokens\": 1, \"previous_response_id\": \"$id\"}"
        [ "$status" = 400 ]
        [ "$(member error.code)" = previous_response_not_found ]
    done
    by ops "/v1/responses/$id"
    [ "$status" = 200 ]
    as alice /v1/responses "{$more, \"previous_response_id\": \"$id\"}"
    [ "$status" = 200 ]
    by alice "/v1/responses/$id" -X DELETE
    [ "$status" = 200 ]
}
a_key_aborts_its_own_requests_only() {
    curl -sS -N -m 60 -H 'x-api-key: alice-secret' -H 'Content-Type: application/json' "$url/v1/completions" \
        -H 'x-request-id: x' -d "{$long, \"request_id\": \"going\"}" > "$work/own-stream" &
    stream_pid=$!
    wait_for '^data: ' "$work/own-stream"
    as bob /abort_request '{"abort_all": true}'
    refused 403 abort_all
    as bob /abort_request '{"rid": "going"}'
    [ "$(member aborted)" = 0 ]
    as alice /abort_request '{"rid": "going"}'
    [ "$(member aborted)" = 1 ]
    wait $stream_pid
    as ops /abort_request '{"abort_all": true}'
    [ "$status" = 200 ]
}
the_access_log_has_the_name_of_the_key() {
    serve --in-process --api-key first-key --api-key-file "$work/keys" --served-model-name tiny
    as alice /v1/completions "{$prompt}" -H 'x-request-id: of-alice'
    call /v1/models -H 'x-api-key: first-key' -H 'x-request-id: of-first'
    wait_for 'id=of-alice key=alice model=' "$work/log"
    wait_for 'id=of-first key=api-key-1' "$work/log"
    stop_server
    not grep -q -e secret -e first-key "$work/log"
    serve --in-process --api-key-file "$work/keys" --log-format json
    as bob /v1/completions "{$prompt}" -H 'x-request-id: of-bob'
    wait_for of-bob "$work/log"
    [ "$(grep of-bob "$work/log" | jq -r .key)" = bob ]
}
metrics_count_by_key() {
    serve --in-process --api-key-file "$work/keys" --served-model-name tiny,tiny-2
    as alice /v1/completions "{$prompt, \"max_tokens\": 5, \"ignore_eos\": true}"
    as alice /v1/completions "{$prompt, \"max_tokens\": 6, \"ignore_eos\": true, \"n\": 2}"
    as slow /tokenize "{$prompt}"
    as slow /tokenize "{$prompt}"
    call /v1/models -H 'x-api-key: wrong'
    by ops /metrics > "$work/null"
    for line in 'requests_total alice 2' 'requests_total slow 2' 'requests_total bob 0' 'limited_total slow 1' \
        'prompt_tokens_total alice 20' 'generation_tokens_total alice 17' 'generations alice 0'; do
        read -r name key value <<< "$line"
        grep -qF "unmask_key_$name{model_name=\"tiny\",key=\"$key\"} $value" "$work/body"
    done
    [ "$(grep -c ^unmask_key_requests_total "$work/body")" = 8 ]
    stop_server
}
hangup_reads_the_file_again() {
    line alice > "$work/own"
    serve --in-process --api-key-file "$work/own"
    line carol max_answer_tokens=1 > "$work/own"
    kill -HUP $pid
    wait_for 'were read again' "$work/log"
    as alice /v1/completions "{$prompt}"
    [ "$status" = 401 ]
    as carol /v1/completions "{$prompt, \"max_tokens\": 2}"
    refused 403 max_tokens
    line dave extra=1 > "$work/own"
    kill -HUP $pid
    wait_for 'keys stay as they were' "$work/log"
    grep -q "$work/own:1: dave: unknown option extra" "$work/log"
    as carol /v1/completions "{$prompt, \"max_tokens\": 1}"
    [ "$status" = 200 ]
    as dave /v1/completions "{$prompt}"
    [ "$status" = 401 ]
    stop_server
    [ $rc = 0 ]
}
a_file_without_usable_keys_is_a_usage_error() {
    : > "$work/empty"
    echo 'alice secret-word' > "$work/plain"
    for file in "$work/empty" "$work/plain" "$work/missing"; do
        not_served --api-key-file "$file"
        [ $rc = 2 ]
        grep -q "$file" "$work/err"
        not grep -q secret-word "$work/err"
    done
    export UNMASK_API_KEY_FILE=
    not_served
    [ $rc = 2 ]
    grep -q 'UNMASK_API_KEY_FILE is empty' "$work/err"
}

claims_all
