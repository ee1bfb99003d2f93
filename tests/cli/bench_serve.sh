#!/bin/bash
# `unmask bench serve` with the real server: its requests, its counts, and its files.
source tests/cli/claims.bash
source tests/server/serve.bash

serve --in-process --api-key key
shared_url=$url shared_pid=$pid
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT
export UNMASK_API_KEY=key

program=$UNMASK
obedient() { with_permissions "$program" "$@"; }
bench() {
    try bench serve --url "$shared_url" --quiet --warm-up 1 --max-tokens 24 --report "$work/json" --csv "$work/csv" "$@"
}
# Prints a member of point number $1 of the report.
point() { jq -r ".points[$1].$2" "$work/json"; }
sum() { awk '{ n += $1 } END { print n }'; }
# Prints a column of the CSV table by its name.
column() { awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } { print $c }' "$work/csv"; }

# Prints the number of answers of the server so far.
ended() {
    curl -sS -H 'Authorization: Bearer key' "$shared_url/metrics" |
        awk '/^unmask_e2e_request_latency_seconds_count/ { n += $2 } END { print n + 0 }'
}

claims_begin

files_are_checked_before_the_first_request() {
    local option path why before
    before=$(ended)
    mkdir -p "$work/closed"
    touch "$work/file"
    chmod 500 "$work/closed"
    while read -r option path why; do
        UNMASK=obedient try bench serve --url "$shared_url" --quiet --requests 1 "$option" "$work/$path"
        [ "$rc" = 2 ]
        [ "$(cat "$work/err")" = "unmask bench serve: $option: $work/$path: cannot write: $why" ]
    done << END
--report closed Is a directory
--report closed/x Permission denied
--report none/x No such file or directory
--csv closed Is a directory
--csv file/x Not a directory
--plot none/x No such file or directory
--plot closed/x Permission denied
END
    UNMASK=obedient try bench serve --url "$shared_url" --quiet --requests 1 --plot "$work/file"
    [ "$rc" = 2 ]
    grep -q -- "--plot: $work/file/plot.gp: cannot write: Not a directory" "$work/err"
    [ "$(ended)" = "$before" ]
}
closed_loop_measures_each_concurrency() {
    bench --concurrency 1,4 --requests 6 --runs 2
    [ "$rc" = 0 ]
    [ "$(jq '.points | length' "$work/json")" = 2 ]
    for p in 0 1; do
        [ "$(point $p unit)" = concurrency ]
        [ "$(point $p answered)" = 12 ]
        [ "$(point $p refused)" = 0 ]
        for time in ttft_seconds total_seconds; do
            jq -e ".points[$p].$time | .n == 12 and 0 < .p50 and .p50 <= .p99 and .p99 <= .max" "$work/json"
        done
        jq -e ".points[$p].tokens_per_second | 0 < .min and .min <= .median and .median <= .max" "$work/json"
    done
    [ "$(column outcome | sort | uniq -c | xargs)" = '24 answered' ]
    grep -q '^1 at once: 12 answered' "$work/out"
    grep -q '^4 at once: 12 answered' "$work/out"
    [ -z "$(grep -v '^options ' "$work/out" | awk 'length > 80')" ]
}
report_starts_with_its_conditions() {
    bench --concurrency 1 --requests 1
    head -n 1 "$work/out" | grep -q '^timed '
    for word in 'machine ' 'program ' "server    $shared_url/v1/chat/completions, tiny-block, unmask " 'prompts ' 'options '; do
        grep -q "^$word" "$work/out"
    done
    for key in cpu cores commit url model server options prompts; do jq -e ".$key != null" "$work/json"; done
    not grep -rq 'UNMASK_API_KEY\|"key"' "$work/out" "$work/json"
}
standard_output_has_one_of_table_and_files() {
    try bench serve --url "$shared_url" --quiet --warm-up 1 --max-tokens 4 --concurrency 1 --requests 2 --report -
    [ "$rc" = 0 ]
    jq -e '.url and (.points | length == 1)' "$work/out"
    grep -q '^timed ' "$work/err"
    try bench serve --url "$shared_url" --quiet --warm-up 1 --max-tokens 4 --concurrency 1 --requests 2 --csv -
    [ "$rc" = 0 ]
    [ "$(wc -l < "$work/out")" = 3 ]
    not grep -q '^timed ' "$work/out"
    [ ! -e - ]
    try bench serve --url "$shared_url" --report - --csv -
    [ "$rc" = 2 ]
    grep -q 'both write to standard output' "$work/err"
}
report_agrees_with_the_csv_rows() {
    bench --concurrency 2 --requests 8
    [ "$(column completion_tokens | sum)" = "$(point 0 completion_tokens)" ]
    [ "$(column prompt_tokens | sum)" = "$(point 0 prompt_tokens)" ]
    [ "$(column nfe | sum)" = "$(point 0 nfe)" ]
    [ "$(point 0 nfe)" -gt 0 ]
    # The quantile equals that of the rows, within the width of a bucket.
    p50=$(paste -d' ' <(column end) <(column due) | awk '{ print $1 - $2 }' | sort -g | sed -n 4p)
    jq -e --argjson p "$p50" '.points[0].total_seconds.p50 / $p | . > 0.98 and . < 1.02' "$work/json"
}
open_loop_sends_when_requests_are_due() {
    bench --request-rate 40,80 --requests 12
    [ "$(point 0 unit)" = request_rate ]
    [ "$(point 0 answered)" = 12 ]
    [ "$(point 1 answered)" = 12 ]
    # Nothing is sent before it is due.
    paste -d' ' <(column due) <(column sent) | awk '$2 < $1 { exit 1 }'
}
open_loop_does_not_wait_for_answers() {
    bench --request-rate 100 --requests 16 --seed 5 --max-tokens 2
    column due > "$work/fast"
    bench --request-rate 100 --requests 16 --seed 5 --max-tokens 64 --body '{"ignore_eos": true, "accept_threshold": 1}'
    column due | diff - "$work/fast"
    # It did not wait for slow answers: most requests were sent before the first answer ended.
    first=$(column end | sort -g | head -n 1)
    [ "$(column sent | awk -v first="$first" '$1 < first' | wc -l)" -ge 8 ]
    bench --request-rate 100 --requests 16 --seed 6 --max-tokens 2
    not diff -q <(column due) "$work/fast"
}
seconds_option_limits_a_run() {
    bench --concurrency 2 --seconds 0.3
    [ "$(point 0 answered)" -ge 2 ]
    column due | awk '$1 > 0.5 { exit 1 }'
    bench --request-rate 50 --seconds 0.5
    column due | awk '$1 >= 0.5 { exit 1 }'
}
arrivals_file_sets_times_and_prompts() {
    printf '{"at": %s, "prompt": "What is %s + 1?", "max_tokens": %s}\n' 0 1 1 0.05 2 2 0.1 3 3 > "$work/trace"
    bench --arrivals "$work/trace" --body '{"ignore_eos": true}'
    [ "$rc" = 0 ]
    [ "$(point 0 unit)" = arrivals ]
    [ "$(column due | xargs)" = '0.000000 0.050000 0.100000' ]
    [ "$(column completion_tokens | xargs)" = '1 2 3' ]
    printf '{"at": 1}\n{"at": 0.5}\n' > "$work/trace"
    bench --arrivals "$work/trace"
    [ "$rc" = 2 ]
    grep -q 'trace:2: "at": 0.5 is negative or before' "$work/err"
}
denoising_streams_time_their_first_snapshot() {
    bench --concurrency 1 --requests 4 --body '{"stream_mode": "denoise"}'
    jq -e '.points[0].first_snapshot_seconds.n == 4' "$work/json"
    paste -d' ' <(column first_snapshot) <(column first_text) | awk '$1 == "" || $1 > $2 { exit 1 }'
}
every_endpoint_is_measured() {
    for endpoint in chat completions generate; do
        for stream in --stream --no-stream; do
            bench --endpoint $endpoint $stream --concurrency 2 --requests 4 --body '{"ignore_eos": true}'
            [ "$rc" = 0 ]
            [ "$(point 0 answered)" = 4 ]
            [ "$(point 0 completion_tokens)" = 96 ]
            [ "$(point 0 nfe)" -gt 0 ]
            jq -e '.points[0].total_seconds.n == 4' "$work/json"
        done
    done
    [ "$(jq .points[0].tpot_seconds "$work/json")" = null ] # unknown without a stream
}
models_without_a_template_are_measured_with_text() {
    local model=build/data/golden/models/sdar
    serve --in-process
    try bench serve --url "$url" --quiet --max-tokens 8 --concurrency 1 --requests 2 --prompt-words 5..9 \
        --report "$work/json"
    [ "$rc" = 0 ]
    [ "$(point 0 answered)" = 2 ]
    [ "$(jq -r .endpoint "$work/json")" = /v1/completions ]
}
failures_are_counted_by_status() {
    bench --concurrency 2 --requests 4 --body '{"temperature": -1}'
    [ "$rc" = 1 ]
    [ "$(point 0 refused)" = 4 ]
    [ "$(point 0 'failed_by_status["400"]')" = 4 ]
    grep -q 'first error: the server refuses: temperature: -1 is outside 0..2' "$work/out"
    column outcome | sort -u | grep -qx refused
}
goodput_counts_answers_within_their_objectives() {
    bench --concurrency 1 --requests 4 --slo-ttft 60000 --slo-tpot 60000
    jq -e '.points[0] | .goodput.median == .requests_per_second.median' "$work/json"
    bench --concurrency 1 --requests 4 --slo-ttft 0.001
    jq -e '.points[0].goodput.median == 0' "$work/json"
}
prompts_come_from_a_file_or_are_random_words() {
    echo '{"prompt": "What is 12 + 30?"}' > "$work/prompts"
    bench --concurrency 1 --requests 2 --prompts "$work/prompts" --stop ' ='
    jq -e --arg p "1 prompts of $work/prompts" '.prompts == $p' "$work/json"
    [ "$(column finish | sort -u)" = stop_string_matched ]
    bench --concurrency 1 --requests 2 --prompt-words 5..9
    jq -e '.prompts == "256 prompts of 5..9 random words"' "$work/json"
    echo '{"prompt": 7}' > "$work/prompts"
    bench --concurrency 1 --requests 2 --prompts "$work/prompts"
    [ "$rc" = 2 ]
    grep -q 'prompts:1: "prompt": expected a string' "$work/err"
}
hundreds_of_streams_at_once() {
    bench --concurrency 200 --requests 200 --max-tokens 2
    [ "$rc" = 0 ]
    [ "$(point 0 answered)" = 200 ]
}
plots_are_drawn_if_gnuplot_is_installed() {
    bench --concurrency 1,2 --requests 2 --plot "$work/plots"
    [ "$rc" = 0 ]
    for f in latency throughput ttft; do grep -q '</svg>' "$work/plots/$f.svg"; done
    ln -sf "$(command -v dirname)" "$work/dirname"
    rc=0
    PATH=$work "$PWD/$UNMASK" bench serve --url "$shared_url" --quiet --warm-up 0 --concurrency 1 --requests 1 \
        --plot "$work/later" > /dev/null 2> "$work/err" || rc=$?
    [ "$rc" = 0 ]
    grep -q 'gnuplot is not installed' "$work/err"
    [ -s "$work/later/plot.gp" ]
}
interrupt_reports_what_was_measured() {
    local before
    before=$(ended)
    "$UNMASK" bench serve --url "$shared_url" --quiet --concurrency 2 --seconds 600 --csv "$work/csv" > "$work/out" 2> "$work/err" &
    # Four requests are the warm-up, and the client has not read the last two answers yet.
    while [ "$(ended)" -lt $((before + 8)) ]; do
        kill -0 $!
        sleep 0.1
    done
    kill -INT $!
    rc=0
    wait $! || rc=$?
    [ "$rc" = 130 ]
    grep -q interrupted "$work/err"
    grep -qE '^2 at once: [1-9][0-9]* answered' "$work/out"
}
usage_errors_are_reported() {
    try bench serve
    [ "$rc" = 2 ]
    grep -q -e '--url is missing' "$work/err"
    bench --concurrency 1 --request-rate 1
    [ "$rc" = 2 ]
    grep -q "can't be combined" "$work/err"
    bench --concurrency 1.5
    [ "$rc" = 2 ]
    grep -q -e '--concurrency: expected' "$work/err"
    bench --body '[1]'
    [ "$rc" = 2 ]
    grep -q -e '--body: expected a JSON object' "$work/err"
    bench --prompt-words 9..5
    [ "$rc" = 2 ]
    grep -q -e '--prompt-words: expected' "$work/err"
    try bench serve --url http://127.0.0.1:1
    [ "$rc" = 1 ]
    grep -q 'unmask serve' "$work/err"
    UNMASK_API_KEY=wrong bench --concurrency 1
    [ "$rc" = 2 ]
    grep -q -e '--api-key' "$work/err"
}

claims_all
