#!/bin/bash
# Measures the cost of the frontend of `unmask serve`: a real server, a worker without an engine (bench/stub_worker.c),
# and clients on the loopback interface (bench/http_load.c explains the numbers). For comparison, evhttp only echoes.
#
#   BUILD=build bench/serve_overhead.sh
#
# Prompts are token ids, so the numbers don't include tokenization. REQUESTS scales the runs.
set -euo pipefail
BUILD=${BUILD:-build} REQUESTS=${REQUESTS:-20000}
work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    rm -rf "$work"
}
trap finish EXIT
for name in $(compgen -e UNMASK_); do unset "$name"; done

# wait_for PATTERN FILE: waits until the file contains the pattern, at most 20 seconds.
wait_for() {
    for _ in $(seq 400); do
        ! grep -q -- "$1" "$2" 2> /dev/null || return 0
        sleep 0.05
    done
    cat "$2" >&2
    exit 1
}

# start TEXTS [OPTION...]: starts a server with a stub worker that sends TEXTS texts per answer. Sets port and pid.
start() {
    local texts=$1 at=$work/$1.$RANDOM
    shift
    mkdir "$at"
    "$BUILD/unmask" serve --model models/tiny-block --port 0 --remote-workers 1 --max-queue 0 "$@" \
        --zmq-command-addr "ipc://$at/c" --zmq-event-addr "ipc://$at/e" 2> "$at/log" &
    pid=$!
    pids+=("$pid")
    wait_for 'listening at' "$at/log"
    port=$(sed -n 's/.*listening at http:.*:\([0-9]*\).*/\1/p' "$at/log" | head -n 1)
    "$BUILD/bench/stub_worker" "ipc://$at/c" "ipc://$at/e" "$texts" &
    pids+=($!)
    wait_for 'unmask: ready' "$at/log"
}

load() { "$BUILD/bench/http_load" "$port" "$pid" "$@"; }

start_echo() {
    "$BUILD/bench/evhttp_echo" "$1" > "$work/echo.$1" &
    pid=$!
    pids+=("$pid")
    wait_for '[0-9]' "$work/echo.$1"
    port=$(cat "$work/echo.$1")
}

ids=$(seq -s, 100 131)
whole="{\"prompt\":[$ids],\"max_tokens\":256}"
stream="{\"prompt\":[$ids],\"max_tokens\":256,\"stream\":true}"

printf '%-34s %9s %9s %11s %9s\n' '' requests/s 'us/request' 'events/s*' MB
start 1
load 'completions' "$REQUESTS" 32 /v1/completions "$whole"
load 'chat: template, tokenizing too' "$REQUESTS" 32 /v1/chat/completions \
    '{"messages":[{"role":"user","content":"What is 12 + 30?"}],"max_tokens":256}'
start 1 --no-access-log
load 'completions, no access log' "$REQUESTS" 32 /v1/completions "$whole"
start 256
load 'streams of 256 events' "$((REQUESTS / 40))" 32 /v1/completions "$stream"
load 'denoise: 256 snapshots of 256' "$((REQUESTS / 400))" 8 /v1/completions "${stream%\}},\"stream_mode\":\"denoise\"}"
start 0
load '1,000 open streams' 0 1000 /v1/completions "$stream"
start_echo 0
load 'evhttp: echo' "$REQUESTS" 32 / "$whole"
start_echo 256
load 'evhttp: streams of 256 events' "$((REQUESTS / 40))" 32 / "$stream"
echo '* per second of CPU time of the process, so for one core. MB: resident memory at the end.'
