#!/bin/bash
# SIGHUP: options of the configuration file that can change while the server runs.
source tests/cli/claims.bash
source tests/server/serve.bash

trap 'rm -rf "$work"' EXIT
config=$work/serve.yaml
# configure LINE...: writes the file; the lines are options of the server.
configure() {
    echo "max_num_reqs: 4"
    echo "serve:"
    printf '  %s\n' "$@"
} > "$config"
# hangup PATTERN: sends SIGHUP and waits for a line of the log that has come since then.
hangup() {
    local seen
    seen=$(wc -l < "$work/log")
    kill -HUP $pid
    for _ in $(seq 200); do
        tail -n +$((seen + 1)) "$work/log" > "$work/new"
        ! grep -q -- "$1" "$work/new" || return 0
        sleep 0.05
    done
    cat "$work/new"
    return 1
}
long='"prompt": "One", "max_tokens": 900, "ignore_eos": true, "accept_threshold": 1'

claims_begin

live_options_take_effect() {
    configure 'page: false' 'usage_extensions: false'
    serve --in-process --config "$config"
    call /
    [ "$status" = 404 ]
    call /v1/models -H 'Host: lan.test'
    [ "$status" = 421 ]
    call /v1/models -H 'Origin: http://friend.test'
    [ "$status" = 403 ]
    configure 'page: true' 'usage_extensions: true' 'allowed_hosts: lan.test' 'cors_allow_origin: http://friend.test' \
        'request_timeout: 0.3' 'log_level: debug' 'access_log: false'
    hangup 'the options were read again; changed: .*cors_allow_origin, allowed_hosts, request_timeout'
    call /
    [ "$status" = 200 ]
    call /v1/models -H 'Host: lan.test'
    [ "$status" = 200 ]
    call /v1/models -H 'Origin: http://friend.test'
    [ "$(header access-control-allow-origin)" = http://friend.test ]
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    [ "$(member usage.tpf)" != null ]
    post /v1/completions "{$long}"
    [ "$status" = 504 ]
    configure 'page: false'
    hangup 'changed: '
    call /v1/models -H 'Host: lan.test'
    [ "$status" = 421 ]
    hangup 'changed: none'
    if grep 'need a restart' "$work/log"; then return 1; fi
    stop_server
    [ "$rc" = 0 ]
}
limits_of_connections_follow() {
    configure 'max_queue: 1' 'keep_alive: 75'
    serve --in-process --config "$config"
    curl -sS -m 100 -o /dev/null -H 'Content-Type: application/json' -d "{$long}" "$url/v1/completions" &
    local slow=$!
    for _ in $(seq 200); do
        call /load > "$work/null"
        [ "$(member server_load)" != 1 ] || break
        sleep 0.02
    done
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    [ "$status" = 429 ]
    configure 'max_queue: 2' 'keep_alive: 0'
    hangup 'changed: max_queue, keep_alive'
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    [ "$status" = 200 ]
    [ "$(header connection)" = close ]
    kill $slow
}
fixed_options_are_named_and_stay() {
    configure 'max_queue: 5'
    serve --in-process --config "$config"
    configure 'max_queue: 6' 'root_path: /x' 'served_model_name: other'
    sed -i 's/max_num_reqs: 4/max_num_reqs: 8/' "$config"
    hangup 'need a restart: served_model_name, root_path, max_num_reqs'
    grep 'changed: max_queue' "$work/log"
    call /v1/models
    [ "$(member 'data[0].id')" = tiny-block ]
}
the_command_line_wins_over_the_file() {
    configure 'page: true'
    serve --in-process --config "$config" --no-page
    configure 'page: true' 'max_queue: 7'
    hangup 'changed: max_queue'
    call /
    [ "$status" = 404 ]
}
a_wrong_file_changes_nothing() {
    local line
    configure 'page: false'
    serve --in-process --config "$config"
    for line in 'colour: red' 'request_timeout: -1' 'trusted_proxies: nonsense' 'log_level: loud' \
        'cors_allow_origin: chat.example' 'allowed_hosts: "http://a.example"' 'page: [' 'max_queue: "5"'; do
        configure 'page: true' "$line"
        hangup 'stay as they were'
        call /
        [ "$status" = 404 ]
    done
    rm "$config"
    hangup 'serve.yaml.*stay as they were'
    call /health
    [ "$status" = 200 ]
}
options_and_keys_change_together_or_not_at_all() {
    line() { echo "$1 $(printf %s "$1-secret" | sha256sum | cut -c 1-64)"; }
    configure 'page: false'
    line alice > "$work/keys"
    serve --in-process --config "$config" --api-key-file "$work/keys"
    echo 'bob no-hash' > "$work/keys"
    configure 'page: true'
    hangup 'stay as they were'
    call / -H 'x-api-key: alice-secret'
    [ "$status" = 404 ]
    line bob > "$work/keys"
    configure 'page: true' 'colour: red'
    hangup 'stay as they were'
    call /v1/models -H 'x-api-key: alice-secret'
    [ "$status" = 200 ]
    configure 'page: true'
    hangup 'changed: page'
    call /v1/models -H 'x-api-key: alice-secret'
    [ "$status" = 401 ]
    call / -H 'x-api-key: bob-secret'
    [ "$status" = 200 ]
}
workers_follow_the_level_of_the_log() {
    configure 'log_level: info'
    serve --config "$config"
    configure 'log_level: error'
    hangup 'changed: log_level'
    kill -9 "$(pgrep -P $pid)"
    wait_for 'worker 0 died' "$work/log"
    for _ in $(seq 200); do
        call /health > "$work/null"
        [ "$status" != 200 ] || break
        sleep 0.05
    done
    [ "$(grep -c 'loading models/tiny-block' "$work/log")" = 1 ]
}

claims_all
