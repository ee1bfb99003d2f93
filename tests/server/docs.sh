#!/bin/bash
# docs/server.md and docs/serving-benchmark.md: blocks marked "sh" run as they stand, one after the other; those marked
# "sh server" start the server that the next ones ask. Port 8000 stands for the port that is free.
source tests/cli/claims.bash
source tests/server/serve.bash

# Block number $1 of $page into $work/block, without the indent of its fence; its mark in `mark`. Fails behind the last.
block() {
    awk -v n="$1" -v out="$work/block" '
        /^ *```(sh|sh server)$/ && !inside { inside = 1; indent = index($0, "`") - 1; mark = substr($0, indent + 4)
            if (++count == n) print mark; next }
        /^ *```$/ && inside { inside = 0; next }
        inside && count == n { print substr($0, indent + 1) > out }' "$page" > "$work/mark"
    mark=$(cat "$work/mark")
    [ -n "$mark" ]
}

# Runs the blocks of a page: n of them, of which so many start a server.
run_blocks() {
    page=$1
    rm -rf "$work/bin" "$work/folder"
    mkdir "$work/bin" "$work/folder"
    ln -s "$(realpath "$UNMASK")" "$work/bin/unmask"
    ln -s "$PWD/models" "$work/folder/models"
    PATH=$work/bin:$PATH
    pid=
    n=0 servers=0
    while block $((n + 1)); do
        n=$((n + 1))
        echo "---- block $n: $mark"
        cat "$work/block"
        if [ "$mark" = 'sh server' ]; then
            servers=$((servers + 1))
            [ -z "$pid" ] || stop_server
            [ "${rc:-0}" = 0 ]
            (cd "$work/folder" && UNMASK_PORT=0 UNMASK_THREADS=1 exec bash -c "exec env $(cat "$work/block")") 2> "$work/log" &
            pid=$!
            trap 'kill -9 $pid 2> /dev/null || true' EXIT
            wait_for '^unmask: ready' "$work/log"
            url=$(sed -nE 's/.*listening at (http:.*)/\1/p' "$work/log")
        else
            sed "s#http://127.0.0.1:8000#$url#g" "$work/block" > "$work/run"
            (cd "$work/folder" && bash -euo pipefail "$work/run" < /dev/null > "$work/out") || { cat "$work/out"; return 1; }
            [ -s "$work/out" ] || not grep -qE '^(curl -s |unmask)' "$work/block"
        fi
        rm "$work/block"
    done
    stop_server
    [ "$rc" = 0 ]
}

claims_begin

every_command_of_the_server_page_works_as_it_stands() {
    run_blocks docs/server.md
    [ $n -ge 15 ]
    [ $servers -ge 4 ]
}
every_command_of_the_benchmark_page_works_as_it_stands() {
    run_blocks docs/serving-benchmark.md
    [ $n -ge 6 ]
    [ $servers -ge 1 ]
}
page_names_endpoints_series_and_options_that_exist() {
    grep -oE '`--[a-z][a-z-]+|^ *(UNMASK_[A-Z_]+=[^ ]* )?unmask .*' docs/server.md | grep -oE -- '--[a-z][a-z-]+' |
        grep -vx -- --version | sort -u > "$work/options"
    [ "$(wc -l < "$work/options")" -ge 30 ]
    for option in $(sed -E 's/^--(no-)?//' "$work/options"); do
        grep -qE -- "\`--(\[no-\])?$option[ \`]" docs/options.md || { echo "no option --$option"; return 1; }
    done
    for name in $(grep -oE 'unmask_[a-z_]+' docs/server.md | sort -u); do
        grep -q "\"${name#unmask_}\"" src/server/metrics_page.c || { echo "no series $name"; return 1; }
    done
    for file in $(grep -oE '(packaging|src/server|tests)/[a-zA-Z_./]+[a-z]' docs/server.md | sort -u); do
        [ -e "$file" ] || { echo "no $file"; return 1; }
    done
}

claims_all
