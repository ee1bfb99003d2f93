#!/bin/bash
# unmask generate as a queue: 10,000 requests survive any number of kills, memory does not grow, progress is shown.
source tests/cli/claims.bash
golden=build/data/golden/models/sdar # small, so that ten thousand answers take seconds
n_lines=10000
seed=${UM_TEST_SEED:-$$}
RANDOM=$seed
echo "# seed $seed" >&2

awk -v n=$n_lines 'BEGIN {
    for (i = 1; i <= n; i++)
        printf "{\"id\": %d, \"prompt\": \"t%d t%d\", \"max_tokens\": %d, \"seed\": %d, \"temperature\": %d, \"ignore_eos\": true}\n",
               i, i % 97, i % 13, i % 3 + 1, i, i % 2
}' > "$work/requests.jsonl"
printf '%s\n' '{"id": 1, "prompt": "t1", "max_tokens": 2, "seed": 1, "ignore_eos": true}' > "$work/one.jsonl"

generate() { "$UNMASK" generate --model $golden --max-num-reqs 64 "$@"; }
# The same in the background. exec replaces the shell, so $! is the program.
become_generate() { exec "$UNMASK" generate --model $golden --max-num-reqs 64 "$@"; }
lines_of() { wc -l < "$1"; }

# wait_for_lines N FILE PID: waits until the file has N lines. Fails if the program ends before.
wait_for_lines() {
    while [ "$(lines_of "$2")" -lt "$1" ]; do
        kill -0 "$3" 2> /dev/null || return 1
        sleep 0.01
    done
}

# Runs until there are about N results, then kills the program, and may also cut off the end of the last line.
kill_at() {
    become_generate --input "$work/requests.jsonl" --output "$work/killed.out" --quiet &
    local pid=$!
    wait_for_lines "$1" "$work/killed.out" $pid || true
    kill -9 $pid 2> /dev/null || true
    wait $pid 2> /dev/null || true
    [ "$((RANDOM % 2))" = 0 ] || truncate -s -$((RANDOM % 20 + 1)) "$work/killed.out"
}

rss_kb() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status"; }

claims_begin

kills_at_random_times_lose_and_duplicate_no_result() {
    generate --input "$work/requests.jsonl" --output "$work/whole.out" --quiet
    [ "$(lines_of "$work/whole.out")" = $n_lines ]
    : > "$work/killed.out"
    for round in 1 2 3 4 5 6; do
        kill_at $((round * n_lines / 8 + RANDOM % (n_lines / 16)))
        echo "killed at $(lines_of "$work/killed.out") lines"
        [ "$(lines_of "$work/killed.out")" -lt $n_lines ]
    done
    generate --input "$work/requests.jsonl" --output "$work/killed.out" 2> "$work/err"
    grep -q 'answered before' "$work/err"
    cmp "$work/whole.out" "$work/killed.out"
    [ "$(sed 's/^{"id":\([0-9]*\),.*/\1/' "$work/killed.out" | sort -n | uniq | wc -l)" = $n_lines ]
}
# The input is a pipe that stays open, so the program waits for input at both measurements.
memory_is_the_same_after_1000_and_10000_requests() {
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=1
    mkfifo "$work/pipe"
    : > "$work/flat.out"
    become_generate --input "$work/pipe" --output "$work/flat.out" --quiet &
    local pid=$! early late
    exec 3> "$work/pipe"
    head -n 1000 "$work/requests.jsonl" >&3
    wait_for_lines 1000 "$work/flat.out" $pid
    early=$(rss_kb $pid)
    tail -n +1001 "$work/requests.jsonl" >&3
    wait_for_lines $n_lines "$work/flat.out" $pid
    late=$(rss_kb $pid)
    exec 3>&-
    wait $pid
    echo "# resident: $early kB after 1000 requests, $late kB after $n_lines"
    [ $((late - early)) -lt 3072 ] # the ids of 9000 more lines are some 100 bytes each
}
progress_shows_rates_and_eta() {
    generate --input "$work/requests.jsonl" --output "$work/shown.out" --progress-interval 0.05 2> "$work/err"
    grep -qE "^[0-9]+/$n_lines requests  [0-9]+ tok/s  [0-9.]+ tok/forward  ETA [0-9]+" "$work/err"
    head -n 2000 "$work/requests.jsonl" > "$work/some.jsonl"
    generate --input "$work/some.jsonl" --output "$work/some.out" --progress-interval 0 2> "$work/err"
    not grep -q ETA "$work/err"
}
summary_shows_rates_and_latencies() {
    generate --input "$work/one.jsonl" --output "$work/one.out" 2> "$work/err"
    grep -qE '^answered 1, failed 0; 2 tokens in [0-9.]+ s, [0-9.]+ tokens/s, [0-9.]+ tokens per forward$' "$work/err"
    grep -qE '^prefill [0-9.]+ tokens/s, decode [0-9.]+ tokens/s; [0-9.]+ requests per step' "$work/err"
    grep -qE '^ +whole answer( +[0-9.]+){5}$' "$work/err"
}
the_batch_is_kept_full() {
    head -n 2000 "$work/requests.jsonl" > "$work/some.jsonl"
    generate --input "$work/some.jsonl" --output "$work/full.out" 2> "$work/err"
    tail -n 6 "$work/err"
    local mean
    mean=$(sed -n 's/.*tokens\/s; \([0-9.]*\) requests per step.*/\1/p' "$work/err")
    awk "BEGIN { exit !($mean > 60) }" # of 64
}
several_answers_are_choices_in_order() {
    local request='"prompt": "t1 t2", "max_tokens": 6, "temperature": 2, "ignore_eos": true'
    {
        echo "{\"id\": 1, $request, \"seed\": 7, \"n\": 3}"
        for seed in 7 8 9; do echo "{\"id\": \"$seed\", $request, \"seed\": $seed}"; done
    } > "$work/n.jsonl"
    generate --input "$work/n.jsonl" --output "$work/n.out" --quiet
    cat "$work/n.out"
    # A choice equals the answer to a single request with the same seed.
    for seed in 7 8 9; do sed -n "s/^{\"id\":\"$seed\",/{\"index\":$((seed - 7)),/p" "$work/n.out"; done |
        paste -sd, | sed 's/.*/{"id":1,"choices":[&]}/' | cmp - <(head -n 1 "$work/n.out")
    [ "$(sort -u "$work/n.out" | wc -l)" = 4 ]
    # The line counts as answered, like any other.
    generate --input "$work/n.jsonl" --output "$work/n.out" 2> "$work/err"
    grep -q 'already has results for all requests' "$work/err"
}
each_token_has_its_logprobs() {
    echo '{"id": 1, "prompt": "t1 t2", "max_tokens": 3, "ignore_eos": true, "logprobs": true, "top_logprobs": 2}' \
        > "$work/logprobs.jsonl"
    generate --input "$work/logprobs.jsonl" --output "$work/logprobs.out" --quiet
    cat "$work/logprobs.out"
    [ "$(grep -o '"top_logprobs":\[{[^]]*\][^]]*\]' "$work/logprobs.out" | wc -l)" = 3 ]
    # Greedy: each token is the likeliest one of its position, with the same logarithm.
    grep -oE '"token_id":[0-9]+,"logprob":[0-9.e-]+' "$work/logprobs.out" |
        awk 'NR % 3 == 1 { first = $0 } NR % 3 == 2 && $0 != first { exit 1 } END { exit NR != 9 }'
}
results_have_the_requested_optional_parts() {
    generate --input "$work/one.jsonl" --output "$work/plain.out" --quiet
    not grep -qE 'step_map|timings|cached_tokens' "$work/plain.out"
    generate --input "$work/one.jsonl" --output "$work/more.out" --quiet --step-map --timings
    grep -qE '"step_map":\[[0-9]+,[0-9]+\]' "$work/more.out"
    grep -qE '"timings":\{"queue_seconds":[0-9]+\.[0-9]{6},"first_token_seconds":[0-9]+\.[0-9]{6},"total_' "$work/more.out"
}
a_bad_value_fails_its_line_alone() {
    {
        echo '{"id": 1, "prompt": "t1", "max_tokens": 1, "repetition_penalty": 0}'
        echo '{"id": 2, "prompt": "t1", "max_tokens": 1, "n": 0}'
        echo '{"id": 3, "prompt": "t1", "max_tokens": 1, "logprobs": 65}'
        echo '{"id": 4, "prompt": "t1", "max_tokens": 1}'
    } > "$work/bad.jsonl"
    rc=0
    generate --input "$work/bad.jsonl" --output "$work/bad.out" --quiet || rc=$?
    [ $rc = 1 ]
    cat "$work/bad.out"
    grep -q '^{"id":1,"error":{"code":"UM_ERANGE","message":"repetition_penalty: 0 is outside 0.01..100"' "$work/bad.out"
    grep -q '^{"id":2,"error":{"code":"UM_ERANGE","message":"\\"n\\": 0 is outside 1..128"' "$work/bad.out"
    grep -q '^{"id":3,"error":{"code":"UM_ERANGE","message":"logprobs: 65 is outside 0..64' "$work/bad.out"
    grep -q '^{"id":4,"token_ids"' "$work/bad.out"
}

claims_all
