#!/bin/bash
# Runs each measurement of bench/serve_overhead.sh for a short time, against the real server with a stub worker.
source tests/cli/claims.bash

REQUESTS=800 BUILD=$BUILD bench/serve_overhead.sh > "$work/table" 2> "$work/table.err" || { cat "$work"/table*; exit 1; }
# Prints a column of the line that begins with $1. Columns count from the end: 4 requests a second, 3 us a request,
# 2 events a second, 1 megabytes.
column() { awk -v line="$1" -v back="$2" 'index($0, line) == 1 { print $(NF + 1 - back) }' "$work/table"; }
is_positive() { awk -v n="$1" 'BEGIN { exit !(n > 0) }'; }

claims_begin

every_measurement_has_a_line_with_numbers() {
    cat "$work/table" "$work/table.err"
    [ "$(grep -c ' [0-9.]*  *[0-9.]*  *[0-9]*  *[0-9.]*$' "$work/table")" = 8 ]
    for line in completions, chat streams denoise 1,000 'evhttp: echo' 'evhttp: streams'; do
        is_positive "$(column "$line" 4)"
        is_positive "$(column "$line" 1)"
    done
}

events_of_streams_are_counted() {
    is_positive "$(column streams 2)"
    is_positive "$(column denoise 2)"
    [ "$(column 'chat' 2)" = 0 ]
}

claims_all
