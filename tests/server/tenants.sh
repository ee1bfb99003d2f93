#!/bin/bash
# Tenants of the real server: a small request of one client does not wait for the answers of another client. No time is
# measured: the answers are counted that had ended when the small request had.
source tests/cli/claims.bash
source tests/server/serve.bash

# Prints the number of answers that have ended.
ended() { curl -sS "$url/metrics" | awk '/^unmask_e2e_request_latency_seconds_count/ { n += $2 } END { print n + 0 }'; }
running() { curl -sS "$url/metrics" | awk '/^unmask_requests_running/ { print $2 }'; }

# flood TOKENS: asks for 64 long answers in the background. Some of them end while the small request is on its way, fewer
# when they are longer.
flood() {
    curl -sS -m 100 --interface 127.0.0.1 -o /dev/null -H 'Content-Type: application/json' -d '{"prompt": "What is 1 plus 1?",
        "n": 64, "max_tokens": '"$1"', "ignore_eos": true, "accept_threshold": 1}' "$url/v1/completions" &
}
# ended_beside_flood TOKENS FROM OPTION...: prints how many answers had ended when a small request from this address had.
# TOKENS may be `slow`: 2.5 times the tokens of a slow answer (slow_tokens).
ended_beside_flood() {
    local tokens=$1 from=$2 before flood
    shift 2
    serve --in-process --max-num-reqs 4 "$@" > /dev/null
    [ "$tokens" != slow ] || tokens=$((5 * $(slow_tokens) / 2))
    before=$(ended)
    flood "$tokens"
    flood=$!
    for _ in $(seq 600); do
        [ "$(running)" -lt 4 ] || break
        sleep 0.02
    done
    post /v1/completions '{"prompt": "What is 2 plus 3?", "max_tokens": 4}' --interface "$from" > /dev/null
    [ "$status" = 200 ]
    echo $(($(ended) - before))
    kill $flood
    stop_server
}

claims_begin

a_flood_of_another_client_delays_no_small_request() {
    local n
    n=$(ended_beside_flood slow 127.0.0.2)
    echo "$n answers had ended"
    [ "$n" -le 32 ]
}
a_flood_of_the_same_client_does_not_either() {
    local n
    n=$(ended_beside_flood slow 127.0.0.1)
    echo "$n answers had ended"
    [ "$n" -le 32 ]
}
in_order_of_arrival_it_waits_for_all() {
    local n
    n=$(ended_beside_flood 8 127.0.0.2 --admission arrival)
    echo "$n answers had ended"
    [ "$n" -ge 56 ]
}

claims_all
