#!/bin/bash
# Measures how long a small request waits while eight clients flood the server, and what turns cost when the load is
# fair: bench/tenants.sh [SECONDS]. One row for each --admission. The waits are whole requests of 4 tokens, one after
# the other, from one address; each flood sends requests for 16 answers of 64 tokens from an address of its own, one
# after the other, over two connections. "fair steps" are those that the engine takes for 300 requests of `unmask bench
# serve`, 16 open at once, before the flood: a number without the noise of times.
set -euo pipefail
UNMASK=${UNMASK:-build/unmask} seconds=${1:-30}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

serve() {
    : > "$work/log"
    "$UNMASK" serve --model models/tiny-block --port 0 --in-process --max-num-reqs 8 --admission "$1" 2> "$work/log" &
    server=$!
    until url=$(sed -nE 's/.*listening at (http:[^" ]+).*/\1/p' "$work/log") && [ -n "$url" ]; do sleep 0.1; done
    until curl -sf -o "$work/health" "$url/health"; do sleep 0.1; done
}
ask() { # ASK ADDRESS JSON
    curl -sS -m 300 --interface "$1" -o /dev/null -w '%{time_total}\n' -H 'Content-Type: application/json' \
        -d "$2" "$url/v1/completions"
}
flood() {
    while ask "$1" '{"prompt": "What is 1 plus 1?", "n": 16, "max_tokens": 64, "ignore_eos": true}'; do :; done
}
quantile() { sort -n "$work/waits" | awk -v q="$1" '{ t[NR] = $1 } END { i = int(q * (NR - 1) + 0.5) + 1; print t[i] }'; }

printf '%-10s %8s %10s %10s %10s %12s\n' admission probes 'p50 s' 'p99 s' 'worst s' 'fair steps'
for admission in arrival fair; do
    serve $admission
    "$UNMASK" bench serve --url "$url" --concurrency 16 --requests 300 > "$work/fair" 2>&1
    sleep 2 # the workers report their steps from time to time
    steps=$(curl -s "$url/metrics" | awk '/^unmask_steps_total/ { print $2 }')
    floods=()
    for address in 127.0.0.{2..9} 127.0.0.{2..9}; do
        flood "$address" > /dev/null 2>&1 &
        floods+=($!)
    done
    sleep 2
    : > "$work/waits"
    until=$((SECONDS + seconds))
    while [ $SECONDS -lt $until ]; do
        ask 127.0.0.1 '{"prompt": "What is 2 plus 3?", "max_tokens": 4}' >> "$work/waits"
    done
    kill "${floods[@]}" $server
    wait 2> /dev/null || true
    printf '%-10s %8d %10s %10s %10s %12s\n' $admission "$(wc -l < "$work/waits")" "$(quantile 0.5)" "$(quantile 0.99)" \
        "$(quantile 1)" "$steps"
done
