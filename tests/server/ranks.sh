#!/bin/bash
# A server whose engine has ranks in other processes, or as threads, and loses one under load: requests that run fail
# with the words of the rank, the engine is started again, and the server answers as before.
source tests/cli/claims.bash
source tests/cli/ranks.bash
source tests/server/serve.bash
RANDOM=${UM_TEST_SEED:-$$}
question='{"messages": [{"role": "user", "content": "What is 12 + 30?"}], "temperature": 0}'

# Sends requests one after the other until there is a file $work/done. Statuses and bodies go to $work/load.N.
load() {
    local n=$1
    while [ ! -e "$work/done" ]; do
        curl -sS -m 60 -w '\n%{http_code}\n' -H 'Content-Type: application/json' -d "$question" \
            "$url/v1/chat/completions" >> "$work/load.$n" || true
    done
}

# Starts four clients. Waits until each has had an answer.
begin_load() {
    local n
    rm -f "$work/done" "$work"/load.*
    loads=()
    for n in 1 2 3 4; do
        load $n &
        loads+=($!)
    done
    for n in 1 2 3 4; do
        touch "$work/load.$n"
        wait_for '^200$' "$work/load.$n"
    done
}

end_load() {
    touch "$work/done"
    wait "${loads[@]}"
    cat "$work"/load.* > "$work/loads"
}

# Asks until there is an answer, which must be the right one.
ask_until_answered() {
    for _ in $(seq 600); do
        post /v1/chat/completions "$question" > /dev/null
        [ "$status" != 200 ] || break
        sleep 0.1
    done
    [ "$status" = 200 ]
    [ "$(member choices[0].message.content)" = '12 + 30 = 42.' ]
}

# Checks that requests have failed with these words, that all others were answered, and that a new one is.
check_recovery() {
    local words=$1
    grep -h '^[0-9][0-9][0-9]$' "$work/loads" | sort | uniq -c
    not grep -qvE '^(200|503)$' <(grep -h '^[0-9][0-9][0-9]$' "$work/loads")
    grep -q '^503$' "$work/loads"
    grep -q "$words" "$work/loads"
    grep -q "worker 0 died: .*$words.*; restarting (1 of" "$work/log"
    ask_until_answered
}

claims_begin

a_killed_rank_fails_requests_and_the_group_starts_again() {
    new_port
    follow 1
    serve --nnodes 2 --master-port "$port" --distributed-timeout-seconds 20
    begin_load
    kill -9 "${follower[1]}"
    # What started the rank starts it again.
    follow 1
    wait_for 'restarting (1 of' "$work/log"
    wait_for 'the group of 2 ranks is complete' "$work/rank1"
    sleep 0.5
    end_load
    check_recovery 'rank 1: its process has ended, or has closed the connection'
    # Rank 1 ends with the server.
    stop_server
    [ "$rc" = 0 ]
    followers_end
}

# Ranks that wait for one that hangs are silent for longer than --backend-timeout.
a_rank_that_hangs_is_named_before_the_worker_is_killed() {
    new_port
    follow 1 --distributed-timeout-seconds 3
    serve --nnodes 2 --master-port "$port" --distributed-timeout-seconds 3 --backend-timeout 0.5 --heartbeat 0.1
    ask_until_answered
    begin_load
    kill -STOP "${follower[1]}"
    wait_for 'restarting (1 of' "$work/log"
    kill -KILL "${follower[1]}"
    follow 1
    sleep 0.5
    end_load
    check_recovery 'rank 1: no answer for 3 s (--distributed-timeout-seconds)'
    stop_server
    followers_end
}

the_other_ranks_join_again() {
    new_port
    follow 1 --nnodes 6
    for n in 2 3 4 5; do follow $n --nnodes 6; done
    serve --nnodes 6 --master-port "$port" --distributed-timeout-seconds 20
    kill -9 "${follower[3]}"
    post /v1/chat/completions "$question"
    [ "$status" = 503 ]
    grep -q 'rank 3: its process has ended, or has closed the connection' "$work/body"
    follow 3 --nnodes 6
    wait_for 'the group has failed: rank 3: .*; joining again' "$work/rank1"
    ask_until_answered
    # A server that is killed is the end of the group, too.
    kill -9 $pid
    wait_for 'the group has failed: rank 0: ' "$work/rank5"
    for n in 1 2 3 4 5; do kill -9 "${follower[$n]}"; done
}

a_group_in_several_processes_reports_its_ranks_and_does_not_sleep() {
    new_port
    follow 1
    serve --nnodes 2 --master-port "$port" --distributed-timeout-seconds 20
    call /sleep -X POST
    [ "$status" = 503 ]
    wait_for 'the workers don.t sleep: .*the ranks of other processes (--nnodes) can.t sleep' "$work/log"
    ask_until_answered
    # The times of both ranks. Those of the other process come with the results of its next pass.
    post /v1/chat/completions "$question"
    for _ in $(seq 100); do
        curl -sS -m 60 "$url/metrics" | grep -E '^unmask_rank_(pass|exchange)_seconds_total' > "$work/body"
        not grep -q ' 0$' "$work/body" || break
        sleep 0.05
    done
    cat "$work/body"
    [ "$(grep -cE ',worker="0",rank="[01]"} [0-9.e-]+$' "$work/body")" = 4 ]
    not grep -q ' 0$' "$work/body"
    stop_server
    followers_end
}

claims_all
