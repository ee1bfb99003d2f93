#!/bin/bash
# bench/serve_overhead.sh: a short run of each of its measurements, against the real server and its stub of a worker.
source tests/cli/claims.bash

REQUESTS=800 BUILD=$BUILD bench/serve_overhead.sh > "$work/table" 2> "$work/table.err" || { cat "$work"/table*; exit 1; }
# Columns of a line, counted from its end: 4 requests a second, 3 us a request, 2 events a second, 1 megabytes.
column() { awk -v line="$1" -v back="$2" 'index($0, line) == 1 { print $(NF + 1 - back) }' "$work/table"; }
is_positive() { awk -v n="$1" 'BEGIN { exit !(n > 0) }'; }

claims_begin

every_run_has_its_line_and_its_numbers() {
    cat "$work/table" "$work/table.err"
    [ "$(grep -c ' [0-9.]*  *[0-9.]*  *[0-9]*  *[0-9.]*$' "$work/table")" = 8 ]
    for line in completions, chat streams denoise 1,000 'evhttp: echo' 'evhttp: streams'; do
        is_positive "$(column "$line" 4)"
        is_positive "$(column "$line" 1)"
    done
}

streams_are_counted_by_their_events() {
    is_positive "$(column streams 2)"
    is_positive "$(column denoise 2)"
    [ "$(column 'chat' 2)" = 0 ]
}

claims_all
