#!/bin/bash
# /sleep and /wake_up: the workers release their memory and load the model again.
source tests/cli/claims.bash
source tests/server/serve.bash
MODEL=models/tiny-block
source tests/cli/adapter.bash

trap 'rm -rf "$work"' EXIT
question='"messages": [{"role": "user", "content": "What is 12 + 30?"}], "temperature": 0'
slow='"prompt": "One", "max_tokens": 150, "ignore_eos": true, "accept_threshold": 1'
answers() {
    post /v1/chat/completions "{$question}" > "$work/null"
    [ "$status" = 200 ]
    [ "$(member 'choices[0].message.content')" = '12 + 30 = 42.' ]
}
# series NAME: prints the value of a series without labels.
series() { curl -sS "$url/metrics" | awk -v name="unmask_$1" 'index($1, name) == 1 { n += $2 } END { print n + 0 }'; }
# is_asleep: fails unless requests are refused and /health says why.
is_asleep() {
    post /v1/chat/completions "{$question}"
    [ "$status" = 503 ]
    [ "$(header retry-after)" = 5 ]
    [[ $(member error.message) == *sleeps* ]]
    call /health
    [ "$status" = 503 ]
    [ "$(member status)" = sleeping ]
    call /is_sleeping
    [ "$(cat "$work/body")" = '{"is_sleeping":true}' ]
    call /ping
    [ "$status" = 200 ]
}
# begin_slowly: begins a long generation in the background. Sets slow_pid.
begin_slowly() {
    curl -sS -m 100 -o "$work/slow" -H 'Content-Type: application/json' -d "{$slow}" "$url/v1/completions" &
    slow_pid=$!
    for _ in $(seq 200); do
        call /load > "$work/null"
        [ "$(member server_load)" != 1 ] || break
        sleep 0.02
    done
}

# are STATES: waits until the workers have these states.
are() {
    for _ in $(seq 200); do
        call /health > "$work/null"
        [ "$(member 'workers | map(.state) | join(" ")')" != "$1" ] || return 0
        sleep 0.05
    done
    return 1
}

claims_begin

sleeping_workers_keep_no_weights() {
    local worker steps
    "$UNMASK" quantize --model "$model" --out "$work/packed"
    model=$work/packed serve
    worker=$(pgrep -P $pid)
    answers
    grep "$work/packed" "/proc/$worker/maps"
    steps=$(series steps_total)
    post /sleep '{}'
    [ "$status" = 200 ]
    if grep "$work/packed" "/proc/$worker/maps"; then return 1; fi
    is_asleep
    [ "$(pgrep -P $pid)" = "$worker" ]
    post /sleep '{}'
    [ "$status" = 200 ]
    post /wake_up '{}'
    [ "$status" = 200 ]
    [ "$(member is_sleeping)" = false ]
    grep "$work/packed" "/proc/$worker/maps"
    answers
    [ "$(series steps_total)" -gt "$steps" ]
    stop_server
    [ "$rc" = 0 ]
}
all_workers_sleep_and_wake() {
    serve_no_wait --data-parallel-size 2
    wait_for '[": ]ready' "$work/log" # one worker is up
    call '/sleep?level=2' -X POST
    [ "$status" = 200 ]
    are 'asleep asleep' # also the one that may have been loading
    call /wake_up -X POST
    [ "$status" = 200 ]
    are 'up up'
    answers
}
a_thread_sleeps_like_a_process() {
    serve --in-process
    answers
    call /sleep -X POST
    is_asleep
    call /wake_up -X POST
    answers
    call /sleep -X POST
    stop_server
    [ "$rc" = 0 ]
}
running_requests_end_first() {
    local sleeper
    serve
    begin_slowly
    curl -sS -m 100 -X POST -o "$work/slept" "$url/sleep" &
    sleeper=$!
    for _ in $(seq 200); do
        call /is_sleeping > "$work/null"
        [ "$(member is_sleeping)" != true ] || break
        sleep 0.02
    done
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    [ "$status" = 503 ]
    wait $slow_pid $sleeper
    [ "$(jq -r .usage.completion_tokens "$work/slow")" = 150 ]
    [ "$(jq -r .is_sleeping "$work/slept")" = true ]
    is_asleep
}
waking_ends_the_wait() {
    serve
    begin_slowly
    curl -sS -m 100 -X POST -o "$work/slept" "$url/sleep" &
    local sleeper=$!
    for _ in $(seq 200); do
        call /is_sleeping > "$work/null"
        [ "$(member is_sleeping)" != true ] || break
        sleep 0.02
    done
    call /wake_up -X POST
    [ "$status" = 200 ]
    wait $sleeper
    [[ $(jq -r .error.message "$work/slept") == *woken* ]]
    answers
    wait $slow_pid
    [ "$(jq -r .usage.completion_tokens "$work/slow")" = 150 ]
}
a_restarted_worker_sleeps_on() {
    local first
    serve
    call /sleep -X POST
    first=$(pgrep -P $pid)
    kill -9 "$first"
    wait_for 'worker 0 died' "$work/log"
    for _ in $(seq 200); do
        [ "$(grep -c 'worker 0 is up' "$work/log")" != 2 ] || break
        sleep 0.05
    done
    is_asleep
    call /wake_up -X POST
    [ "$status" = 200 ]
    answers
}
adapters_are_there_again() {
    local before
    make_adapter "$work/adapters/parrot"
    serve --lora-dir "$work/adapters"
    post /v1/load_lora_adapter '{"lora_name": "late", "lora_path": "parrot"}'
    post /v1/chat/completions "{$question, \"model\": \"late\", \"max_tokens\": 20}"
    before=$(member 'choices[0].message.content')
    call /sleep -X POST
    call /wake_up -X POST
    post /v1/chat/completions "{$question, \"model\": \"late\", \"max_tokens\": 20}"
    [ "$status" = 200 ]
    [ "$(member 'choices[0].message.content')" = "$before" ]
}
only_admins_put_the_server_to_sleep() {
    echo "alice $(printf %s alice-secret | sha256sum | cut -c 1-64)" > "$work/keys"
    serve --in-process --api-key first-key --api-key-file "$work/keys"
    for path in /sleep /wake_up; do
        call $path -X POST
        [ "$status" = 401 ]
        call $path -X POST -H 'x-api-key: alice-secret'
        [ "$status" = 403 ]
        call $path -X POST -H 'x-api-key: first-key' -H 'Origin: http://evil.test'
        [ "$status" = 403 ]
        call $path -H 'x-api-key: first-key'
        [ "$status" = 405 ]
        call /call$path -X POST -H 'x-api-key: first-key'
        [ "$status" = 404 ]
    done
    call '/sleep?level=3' -X POST -H 'x-api-key: first-key'
    [ "$status" = 400 ]
    [ "$(member error.param)" = level ]
    call /is_sleeping -H 'x-api-key: alice-secret'
    [ "$(member is_sleeping)" = false ]
}

claims_all
