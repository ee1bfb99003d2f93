#!/bin/bash
# Runs tests/web/sites_test.py: pages of other sites try to use the server, in headless Chromium.
set -euo pipefail
BUILD=${BUILD:-build}
UNMASK=${UNMASK:-$BUILD/unmask}
python=$(tools/python.sh "${BUILD%%/*}")
work=$(mktemp -d)
servers=()
cleanup() {
    kill "${servers[@]}" 2> /dev/null || true
    wait
    rm -rf "$work"
}
trap cleanup EXIT
for name in $(compgen -e UNMASK_); do unset "$name"; done

# start NAME OPTION...: starts a server and prints its port.
start() {
    local log=$work/$1
    "$UNMASK" serve --model models/tiny-block --in-process --state-dir "$work/$1.state" --port 0 "${@:2}" 2> "$log" &
    servers+=($!)
    for _ in $(seq 300); do
        if grep -q '^unmask: ready' "$log"; then break; fi
        kill -0 $! || { cat "$log" >&2; exit 1; }
        sleep 0.1
    done
    port=$(sed -n 's/^unmask: listening at .*://p' "$log")
}
start guarded --allowed-hosts lan.test
guarded=$port
start open --allowed-hosts '*'
HOME=$work timeout 300 "$python" tests/web/sites_test.py "$guarded" "$port" "$work/guarded"
