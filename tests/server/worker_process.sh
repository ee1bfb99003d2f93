#!/bin/bash
# `unmask worker` as a process: its required options, its error messages, and when it ends: with its parent, but not
# with a remote server.
source tests/cli/claims.bash

# Sets the array `at` to the options with the two addresses at which server and worker connect.
set_addresses() { at=(--zmq-command-addr "ipc://$work/$1-commands" --zmq-event-addr "ipc://$work/$1-events"); }

# Waits at most 20 seconds until a process has ended.
wait_until_ended() {
    for _ in $(seq 400); do
        state=$(awk '$1 == "State:" { print $2 }' "/proc/$1/status" 2> /dev/null) || return 0
        [ "$state" != Z ] || return 0
        sleep 0.05
    done
    echo "process $1 is still there"
    return 1
}

# Starts a server that waits for a remote worker. Sets server to its process id and url to its address.
serve() {
    rm -f "$work/serve.log"
    set_addresses remote
    "$UNMASK" serve --model models/tiny-block --port 0 --remote-workers 1 "${at[@]}" 2> "$work/serve.log" &
    server=$!
    wait_for 'unmask: ready' "$work/serve.log"
    url=$(sed -n 's/^unmask: listening at //p' "$work/serve.log")
}

claims_begin

addresses_are_required() {
    try worker --model models/tiny-block
    [ "$rc" = 2 ]
    grep -q -- '--zmq-command-addr and --zmq-event-addr are missing' "$work/err"
}

an_invalid_address_is_an_error() {
    try worker --model models/tiny-block --zmq-command-addr nonsense --zmq-event-addr nonsense
    [ "$rc" = 3 ]
    grep -q 'worker 0: .*nonsense' "$work/err"
}

a_missing_model_is_an_error() {
    set_addresses none
    try worker --model models/none "${at[@]}" --index 3
    [ "$rc" = 3 ]
    grep -q 'worker 3: .*models/none' "$work/err"
}

log_lines_have_the_worker_number_also_as_json() {
    set_addresses json
    try worker --model models/none "${at[@]}" --index 4 --log-format json
    [ "$rc" = 3 ]
    grep -q '"level":"error","message":"worker 4: .*models/none' "$work/err"
}

options_that_the_server_adds_are_not_warned_of() {
    "$UNMASK" serve --model models/tiny-block --port 0 2> "$work/plain.log" &
    server=$!
    wait_for 'unmask: ready' "$work/plain.log"
    kill -TERM $server
    wait $server
    cat "$work/plain.log"
    not grep -q 'has no effect' "$work/plain.log"
    # A user who starts a worker with such an option gets the warning.
    set_addresses own
    try worker --model models/none "${at[@]}" --gpu-memory-utilization 0.5
    grep -q -- '--gpu-memory-utilization has no effect on the device cpu' "$work/err"
}

it_ends_on_sigterm() {
    set_addresses stop
    "$UNMASK" worker --model models/tiny-block "${at[@]}" 2> "$work/stop.err" &
    wait_for 'is loaded' "$work/stop.err"
    kill -TERM $!
    wait $!
}

# A shell starts a worker with --parent, as the server does, and is then killed.
it_ends_with_its_parent() {
    set_addresses parent
    bash -c '"$0" worker --model models/tiny-block --parent $$ "$@" 2> "$work/child.err" & echo $! > "$work/child"; wait' \
        "$UNMASK" "${at[@]}" &
    parent=$!
    wait_for 'is loaded' "$work/child.err"
    kill -KILL $parent
    wait_until_ended "$(cat "$work/child")"
}

# Ctrl-C of a terminal and SIGTERM of a service manager reach the worker, too. It ignores signals that don't come from
# its parent.
it_takes_signals_of_its_parent_only() {
    set_addresses heed
    bash -c 'trap "kill -TERM \$child" USR1
        "$0" worker --model models/tiny-block --parent $$ "$@" 2> "$work/heed.err" & child=$!; echo $child > "$work/heed"
        while kill -0 $child 2> /dev/null; do wait $child; done' "$UNMASK" "${at[@]}" &
    parent=$!
    wait_for 'is loaded' "$work/heed.err"
    child=$(cat "$work/heed")
    kill -TERM "$child"
    kill -INT "$child"
    sleep 0.3
    kill -0 "$child"
    kill -USR1 $parent
    wait_until_ended "$child"
    wait_until_ended $parent
}

# The server is killed and started again. The same worker serves both.
it_serves_one_server_after_another() {
    set_addresses remote
    "$UNMASK" worker --model models/tiny-block "${at[@]}" 2> "$work/remote.err" &
    worker=$!
    for round in 1 2; do
        serve
        curl -sS -m 60 -H 'Content-Type: application/json' -d '{"prompt": "What is 12 + 30?", "max_tokens": 8}' \
            "$url/v1/completions" > "$work/answer.$round"
        grep -q '"object":"text_completion"' "$work/answer.$round"
        kill -KILL $server
        wait $server || true
    done
    kill -TERM $worker
    wait $worker
}

it_ends_if_its_parent_has_ended_before() {
    set_addresses orphan
    try worker --model models/tiny-block "${at[@]}" --parent 4194304
    [ "$rc" = 3 ]
    grep -q 'process 4194304, has ended' "$work/err"
}
export work
claims_all
