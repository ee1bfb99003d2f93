#!/bin/bash
# Endpoints that show and change the running server.
source tests/cli/claims.bash
source tests/server/serve.bash

trap 'rm -rf "$work"' EXIT
slow='"max_tokens": 900, "ignore_eos": true, "accept_threshold": 1'
# generate_slowly BODY-MEMBER...: begins a generation that takes long, in the background. Sets slow_pid.
generate_slowly() {
    curl -sS -m 100 -o /dev/null -H 'Content-Type: application/json' -d "{$slow, $1}" "$url/v1/completions" &
    slow_pid=$!
}
# until PATH FILTER: waits until the response passes the filter.
until_seen() {
    for _ in $(seq 600); do
        call "$1" > "$work/null"
        ! jq -e "$2" "$work/body" > "$work/null" || return 0
        sleep 0.05
    done
    cat "$work/body"
    return 1
}

claims_begin

load_counts_requests_and_their_tokens() {
    serve --data-parallel-size 2 --max-num-reqs 1
    call /load
    [ "$(cat "$work/body")" = '{"server_load":0}' ]
    call /get_load
    [ "$(jq -c 'map([.dp_rank, .num_reqs, .num_waiting_reqs, .num_tokens])' "$work/body")" = '[[0,0,0,0],[1,0,0,0]]' ]
    # Each worker has half of the prompts: one runs, the others wait. They take long enough to be seen on a busy machine.
    generate_slowly "\"prompt\": $(jq -nc '[range(40) | "Prompt \(.)"]')"
    until_seen /load '.server_load == 1'
    until_seen /get_load 'all(.num_reqs > 1 and .num_waiting_reqs == .num_reqs - 1)'
    jq -e 'all(.num_tokens > 900 * .num_reqs)' "$work/body"
    kill $slow_pid
    until_seen /load '.server_load == 0'
    until_seen /get_load 'map(.num_reqs + .num_waiting_reqs + .num_tokens) == [0, 0]'
}

claims_all
