#!/bin/bash
# `unmask worker` as a process: what it needs, what it says when it can't start, and with whom it ends and with
# whom it goes on.
source tests/cli/claims.bash

# The two addresses of one meeting point, for both sides, in the array `at`.
meet() { at=(--zmq-command-addr "ipc://$work/$1-commands" --zmq-event-addr "ipc://$work/$1-events"); }

# Waits until a process has ended, 20 seconds at most.
gone() {
    for _ in $(seq 400); do
        state=$(awk '$1 == "State:" { print $2 }' "/proc/$1/status" 2> /dev/null) || return 0
        [ "$state" != Z ] || return 0
        sleep 0.05
    done
    echo "process $1 is still there"
    return 1
}

# A server for workers of other hosts; its process in $server, its address in $url.
serve() {
    rm -f "$work/serve.log"
    meet remote
    "$UNMASK" serve --model models/tiny-block --port 0 --remote-workers 1 "${at[@]}" 2> "$work/serve.log" &
    server=$!
    wait_for 'unmask: ready' "$work/serve.log"
    url=$(sed -n 's/^unmask: listening at //p' "$work/serve.log")
}

claims_begin

addresses_are_needed() {
    try worker --model models/tiny-block
    [ "$rc" = 2 ]
    grep -q -- '--zmq-command-addr and --zmq-event-addr are needed' "$work/err"
}

an_address_that_is_none_is_named() {
    try worker --model models/tiny-block --zmq-command-addr nonsense --zmq-event-addr nonsense
    [ "$rc" = 3 ]
    grep -q 'worker 0: .*nonsense' "$work/err"
}

a_model_that_is_not_there_ends_it() {
    meet none
    try worker --model models/none "${at[@]}" --index 3
    [ "$rc" = 3 ]
    grep -q 'worker 3: .*models/none' "$work/err"
}

lines_carry_its_number_also_as_json() {
    meet json
    try worker --model models/none "${at[@]}" --index 4 --log-format json
    [ "$rc" = 3 ]
    grep -q '"level":"error","message":"worker 4: .*models/none' "$work/err"
}

it_is_told_to_stop_by_a_signal() {
    meet stop
    "$UNMASK" worker --model models/tiny-block "${at[@]}" 2> "$work/stop.err" &
    wait_for 'is loaded' "$work/stop.err"
    kill -TERM $!
    wait $!
}

# The parent is a shell that starts a worker as the server does, and is killed.
it_ends_with_its_parent() {
    meet parent
    bash -c '"$0" worker --model models/tiny-block --parent $$ "$@" 2> "$work/child.err" & echo $! > "$work/child"; wait' \
        "$UNMASK" "${at[@]}" &
    parent=$!
    wait_for 'is loaded' "$work/child.err"
    kill -KILL $parent
    gone "$(cat "$work/child")"
}

# The terminal's Ctrl-C and a service manager's SIGTERM reach it too; only its parent may end it.
it_heeds_its_parent_alone() {
    meet heed
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
    gone "$child"
    gone $parent
}

# The server is killed and started again; the worker stays.
it_serves_one_server_after_another() {
    meet remote
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

a_parent_that_is_gone_already_ends_it() {
    meet orphan
    try worker --model models/tiny-block "${at[@]}" --parent 4194304
    [ "$rc" = 3 ]
    grep -q 'process 4194304, is gone' "$work/err"
}
export work
claims_all
