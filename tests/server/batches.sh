#!/bin/bash
# Files and batches against the real server: uploads, lists, every state, and that each line is answered exactly once
# whatever ends the server, a worker or the room on the disk.
source tests/cli/claims.bash
source tests/server/serve.bash

# N lines with the ids r1..rN. Slow ones take a pass for every token.
lines() {
    local n=$1 more=${2:-'{}'}
    jq -cn --argjson n "$n" --argjson more "$more" 'range(1; $n + 1) | {custom_id: "r\(.)", method: "POST",
        url: "/v1/chat/completions",
        body: ({messages: [{role: "user", content: "What is \(.) plus 3?"}], max_tokens: 24, temperature: 0} + $more)}'
}
slow='{"accept_threshold": 1, "ignore_eos": true}'
# Makes every third line one that is read beside the loop.
some_long() { jq -c 'if .custom_id[1:] | tonumber % 3 == 1 then .body.user = "x" * 3000 else . end'; }
# Uploads a file as form data, with further arguments for curl; its id is in file.
upload() {
    call /v1/files -F purpose=batch -F "file=@$1;type=application/jsonl" "${@:2}"
    [ "$status" = 200 ]
    file=$(member id)
}
# Creates a batch of $file, with further members; its id is in batch.
create() {
    local window=${1:-24h} more=${2:-}
    post /v1/batches "{\"input_file_id\": \"$file\", \"endpoint\": \"/v1/chat/completions\",
        \"completion_window\": \"$window\"$more, \"metadata\": {\"of\": \"a test\"}}"
    [ "$status" = 200 ]
    [ "$(member status)" = validating ]
    batch=$(member id)
}
get_batch() {
    call "/v1/batches/$batch"
    [ "$status" = 200 ]
}
# Waits for a jq condition on the batch.
wait_until() {
    for _ in $(seq 1200); do
        get_batch > /dev/null
        ! jq -e "$1" "$work/body" > /dev/null || return 0
        sleep 0.05
    done
    echo "never: $1"
    cat "$work/body"
    return 1
}
over='.status | IN("completed", "failed", "expired", "cancelled")'
# Both files of the batch in $work/out and $work/err.
fetch() {
    local id
    wait_until "$over"
    : > "$work/out"
    : > "$work/err"
    for kind in output error; do
        get_batch
        id=$(member "${kind}_file_id")
        [ "$id" = null ] || curl -sS -m 60 -o "$work/${kind:0:3}" "$url/v1/files/$id/content"
    done
}
# Ids that were answered, one a line, sorted.
answered() { cat "$work/out" "$work/err" | jq -r .custom_id | sort; }
each_once() { [ "$(answered)" = "$(seq "$1" | sed 's/^/r/' | sort)" ]; }

# Serves from this folder a batch of N lines, and waits until it is answered.
serve_answered() {
    lines "$2" > "$work/in.jsonl"
    serve --in-process --state-dir "$1" --no-access-log
    upload "$work/in.jsonl"
    create
    fetch
}

expires_after() { echo "-F expires_after[anchor]=created_at -F expires_after[seconds]=$1"; }
# How long the file of the last answer is kept.
ttl() { member '| if .expires_at then .expires_at - .created_at else "for ever" end'; }
# Lets the time of a file in a folder be over since a second ago.
age() {
    jq -c '.expires_at = (now | floor) - 1' "$1.json" > "$work/aged"
    mv "$work/aged" "$1.json"
}
wait_until_gone() {
    for _ in $(seq 1200); do
        call "/v1/files/$1" > /dev/null
        [ "$status" != 404 ] || return 0
        sleep 0.05
    done
    echo "$1 is still there"
    return 1
}

serve --in-process --state-dir "$work/shared" --no-access-log
shared_pid=$pid
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT
claims_begin

# ---- Files --------------------------------------------------------------------------------------------------------- #

files_are_uploaded_listed_read_and_deleted() {
    lines 3 > "$work/in.jsonl"
    upload "$work/in.jsonl"
    [ "$(member filename)" = in.jsonl ]
    [ "$(member purpose)" = batch ]
    [ "$(member object)" = file ]
    [ "$(member bytes)" = "$(wc -c < "$work/in.jsonl")" ]
    call "/v1/files/$file"
    [ "$(member id)" = "$file" ]
    call '/v1/files?purpose=batch&limit=1&order=desc'
    [ "$(member 'data | length')" = 1 ]
    call "/v1/files/$file/content"
    [ "$status" = 200 ]
    cmp "$work/body" "$work/in.jsonl"
    call "/v1/files/$file" -X DELETE
    [ "$(member deleted)" = true ]
    call "/v1/files/$file"
    [ "$status" = 404 ]
    [ "$(member error.param)" = id ]
    [ ! -e "$work/shared/files/$file" ]
    [ ! -e "$work/shared/files/$file.json" ]
}
lists_come_in_pages() {
    local at='' n
    lines 1 > "$work/in.jsonl"
    for _ in 1 2 3; do
        upload "$work/in.jsonl"
        create
        echo "$batch" >> "$work/made"
    done
    for n in 1 2 3; do
        call "/v1/batches?limit=1${at:+&after=$at}"
        [ "$(member has_more)" = true ] || [ $n = 3 ]
        at=$(member last_id)
        echo "$at" >> "$work/listed"
    done
    diff <(sort "$work/made") <(sort "$work/listed")
    for list in files batches; do
        call "/v1/$list?after=nothing"
        [ "$status" = 400 ]
        [ "$(member error.param)" = after ]
    done
}
a_file_may_be_the_body_itself() {
    lines 2 > "$work/in.jsonl"
    call '/v1/files?purpose=batch&filename=raw.jsonl' -H 'Content-Type: application/jsonl' --data-binary "@$work/in.jsonl"
    [ "$status" = 200 ]
    [ "$(member filename)" = raw.jsonl ]
    call "/v1/files/$(member id)/content"
    cmp "$work/body" "$work/in.jsonl"
}
a_large_file_comes_back_as_it_went() {
    head -c 9000000 /dev/urandom | base64 -w 100 > "$work/large"
    upload "$work/large"
    call "/v1/files/$file/content"
    cmp "$work/body" "$work/large"
}
bad_uploads_are_refused_with_the_field() {
    call /v1/files -F purpose=fine-tune -F "file=@$0"
    [ "$status" = 400 ]
    [ "$(member error.param)" = purpose ]
    call /v1/files -F purpose=batch
    [ "$status" = 400 ]
    [ "$(member error.param)" = file ]
    call /v1/files -F purpose=batch -F "file=@$0" -F 'expires_at=9'
    [ "$status" = 400 ]
    [ "$(member error.param)" = expires_at ]
    for wrong in '-F expires_after[seconds]=9' '-F expires_after[anchor]=created_at' "$(expires_after 0)" \
        "$(expires_after 315360001)" "$(expires_after 1h)" "$(expires_after '')" \
        '-F expires_after[seconds]=9 -F expires_after[anchor]=last_active_at'; do
        call /v1/files -F purpose=batch -F "file=@$0" $wrong
        [ "$status" = 400 ]
        [ "$(member error.param)" = expires_after ]
    done
    call /v1/files -H 'Content-Type: multipart/form-data; boundary=x' --data-binary 'nothing'
    [ "$status" = 400 ]
    member error.message | grep -q boundary
    call '/v1/files?limit=0'
    [ "$status" = 400 ]
    [ "$(member error.param)" = limit ]
}
pages_of_other_sites_do_not_upload() {
    lines 1 > "$work/in.jsonl"
    call /v1/files -F purpose=batch -F "file=@$work/in.jsonl" -H 'Sec-Fetch-Site: cross-site' -H 'Origin: http://a.example'
    [ "$status" = 403 ]
    call /v1/files -F purpose=batch -F "file=@$work/in.jsonl" -H 'Sec-Fetch-Site: same-origin'
    [ "$status" = 200 ]
}
paths_lead_to_no_other_files() {
    for id in .. ../lock '..%2Flock' 'x%00' lock; do
        call "/v1/files/$id/content" --path-as-is
        [ "$status" = 404 ] || [ "$status" = 400 ]
    done
}

files_are_kept_as_long_as_their_request_says() {
    lines 1 > "$work/in.jsonl"
    upload "$work/in.jsonl"
    [ "$(ttl)" = 'for ever' ]
    upload "$work/in.jsonl" $(expires_after 3600)
    [ "$(ttl)" = 3600 ]
    call '/v1/files?purpose=batch&expires_after[anchor]=created_at&expires_after%5Bseconds%5D=7200' -g \
        -H 'Content-Type: application/jsonl' --data-binary "@$work/in.jsonl"
    [ "$(ttl)" = 7200 ]
    upload "$work/in.jsonl" $(expires_after 1)
    wait_until_gone "$file"
    [ ! -e "$work/shared/files/$file" ]
    [ ! -e "$work/shared/files/$file.json" ]
}

# ---- Batches ------------------------------------------------------------------------------------------------------- #

a_batch_answers_every_line_once() {
    { lines 20; echo; lines 21 | tail -1 | jq -c '.body.temperature = -1'; } > "$work/in.jsonl"
    upload "$work/in.jsonl"
    create
    [ "$(member object)" = batch ]
    [ "$(member metadata.of)" = 'a test' ]
    [ "$(member output_file_id)" = null ]
    fetch
    each_once 21
    get_batch
    [ "$(member status)" = completed ]
    [ "$(jq -c .request_counts "$work/body")" = '{"total":21,"completed":20,"failed":1}' ]
    jq -e '.in_progress_at and .finalizing_at and .completed_at and .expires_at == .created_at + 86400' "$work/body"
    jq -es 'length == 20 and all(.response.status_code == 200 and .error == null and (.id | startswith("batch_req_"))
        and .response.body.object == "chat.completion")' "$work/out"
    jq -es 'length == 1 and .[0].response.status_code == 400 and .[0].response.body.error.param == "temperature"' "$work/err"
    jq -es '.[] | select(.custom_id == "r4") | .response.body.choices[0].message.content == "4 + 3 = 7."' "$work/out"
    call /v1/batches
    [ "$(member 'data[0].id')" = "$batch" ]
}
metrics_tell_of_batches_and_files() {
    local dir=$work/counted completed failed start
    { lines 3; lines 4 | tail -1 | jq -c '.body.temperature = -1'; } > "$work/in.jsonl"
    serve --in-process --state-dir "$dir" --no-access-log
    upload "$work/in.jsonl"
    create
    fetch
    for start in first second; do
        call /metrics > /dev/null
        value() { sed -nE "s/^unmask_$1\{model_name=\"tiny-block\"$2\} //p" "$work/body"; }
        [ "$(value batches ',status="completed"')" = 1 ]
        [ "$(value batches ',status="in_progress"')" = 0 ]
        [ "$(value files ',purpose="batch"')" = 1 ]
        [ "$(value files ',purpose="batch_output"')" = 2 ]
        [ "$(value file_bytes ',purpose="batch"')" = "$(wc -c < "$work/in.jsonl")" ]
        [ "$(value file_bytes ',purpose="batch_output"')" = "$(cat "$work/out" "$work/err" | wc -c)" ]
        [ "$(value batch_lines_running '')" = 0 ]
        completed=$(value batch_lines_total ',result="completed"') failed=$(value batch_lines_total ',result="failed"')
        # Counters are those of the process.
        case $start in
        first) [ "$completed $failed" = '3 1' ] ;;
        second) [ "$completed $failed" = '0 0' ] ;;
        esac
        stop_server
        serve --in-process --state-dir "$dir" --no-access-log
    done
    stop_server
}
completions_run_in_batches_too() {
    lines 3 | jq -c '.url = "/v1/completions" | .body = {prompt: "1 + 2 =", max_tokens: 4}' > "$work/in.jsonl"
    upload "$work/in.jsonl"
    post /v1/batches "{\"input_file_id\": \"$file\", \"endpoint\": \"/v1/completions\", \"completion_window\": \"24h\"}"
    batch=$(member id)
    fetch
    each_once 3
    jq -es 'all(.response.body.object == "text_completion")' "$work/out"
}
an_input_that_is_wrong_fails_the_batch_with_its_lines() {
    { lines 2; lines 1; echo '{'; lines 9 | tail -1 | jq -c '.url = "/v1/completions"'; } > "$work/in.jsonl"
    upload "$work/in.jsonl"
    create
    wait_until "$over"
    [ "$(member status)" = failed ]
    [ "$(member output_file_id)" = null ]
    [ "$(member failed_at)" != null ]
    [ "$(jq -c '[.errors.data[] | [.code, .line]]' "$work/body")" = \
        '[["duplicate_custom_id",3],["invalid_json_line",4],["mismatched_endpoint",5]]' ]
}
bad_batches_are_refused_with_the_field() {
    lines 1 > "$work/in.jsonl"
    upload "$work/in.jsonl"
    for change in 'del(.endpoint)=endpoint' '.endpoint = "/v1/embeddings"=endpoint' '.completion_window = "soon"=completion_window' \
        '.input_file_id = "file-0"=input_file_id' '.metadata = {"a": 1}=metadata' '.output_expires_after = {}=output_expires_after' \
        '.output_expires_after = {"anchor": "created_at", "seconds": 0}=output_expires_after' \
        '.output_expires_after = {"anchor": "created_at", "seconds": 9, "minutes": 1}=output_expires_after' \
        '.expires_after = {}=expires_after'; do
        post /v1/batches "$(jq -cn --arg f "$file" '{input_file_id: $f, endpoint: "/v1/chat/completions",
            completion_window: "24h"}' | jq -c "${change%=*}")"
        [ "$status" = 400 ]
        [ "$(member error.param)" = "${change##*=}" ]
    done
    call /v1/batches/batch_0
    [ "$status" = 404 ]
}
huge_lines_are_answered_like_others() {
    lines 1 > "$work/in.jsonl"
    lines 2 | tail -1 | jq -c '.body.user = "x" * 6000000' >> "$work/in.jsonl"
    lines 3 | tail -1 | jq -c '.body.messages[0].content = "word " * 1200000' >> "$work/in.jsonl"
    lines 4 | tail -1 >> "$work/in.jsonl"
    upload "$work/in.jsonl"
    create
    fetch
    each_once 4
    jq -es 'length == 3 and all(.response.status_code == 200)' "$work/out"
    jq -e '.custom_id == "r3" and .response.body.error.code == "context_length_exceeded"' "$work/err"
}
a_line_that_never_finds_places_fails() {
    serve --in-process --state-dir "$work/narrow" --max-queue 2
    jq -cn '{custom_id: "r1", method: "POST", url: "/v1/completions", body: {prompt: ["a", "b", "c"]}}' > "$work/in.jsonl"
    upload "$work/in.jsonl"
    post /v1/batches "{\"input_file_id\": \"$file\", \"endpoint\": \"/v1/completions\", \"completion_window\": \"24h\"}"
    batch=$(member id)
    fetch
    [ "$(jq -r .response.status_code "$work/err")" = 400 ]
    [ "$(jq -r .response.body.error.param "$work/err")" = prompt ]
    stop_server
}
a_line_can_not_be_a_stream() {
    lines 1 '{"stream": true}' > "$work/in.jsonl"
    upload "$work/in.jsonl"
    create
    fetch
    jq -e '.response.status_code == 400 and .response.body.error.param == "stream"' "$work/err"
}
a_cancelled_batch_keeps_what_was_answered() {
    lines 200 "$slow" > "$work/in.jsonl"
    upload "$work/in.jsonl"
    create
    wait_until '.request_counts.completed > 0'
    call "/v1/files/$file" -X DELETE
    [ "$status" = 409 ]
    call "/v1/batches/$batch/cancel" -X POST
    [ "$status" = 200 ]
    [ "$(member status)" = cancelling ]
    fetch
    get_batch
    [ "$(member status)" = cancelled ]
    [ "$(member cancelled_at)" != null ]
    [ "$(wc -l < "$work/out")" = "$(member request_counts.completed)" ]
    [ "$(answered | uniq -d | wc -l)" = 0 ]
    call "/v1/batches/$batch/cancel" -X POST
    [ "$status" = 409 ]
    call "/v1/files/$file" -X DELETE
    [ "$status" = 200 ]
}
aborts_of_everything_leave_a_batch_alone() {
    lines 100 "$slow" > "$work/in.jsonl"
    upload "$work/in.jsonl"
    create
    wait_until '.request_counts.completed > 0'
    for _ in $(seq 5); do
        post /abort_request '{"abort_all": true}'
        [ "$(member aborted)" = 0 ]
    done
    fetch
    each_once 100
    jq -es 'all(.response.body.choices[0].finish_reason == "length")' "$work/out"
}
an_expired_batch_says_so_for_the_lines_that_are_left() {
    lines 1000 "$slow" > "$work/in.jsonl"
    upload "$work/in.jsonl"
    create 1s
    fetch
    get_batch
    [ "$(member status)" = expired ]
    each_once 1000
    jq -es 'length > 0 and all(.response == null and .error.code == "batch_expired")' "$work/err"
}

# ---- Ends of processes --------------------------------------------------------------------------------------------- #

# Kills the server in the middle of a batch, twice.
a_killed_server_goes_on_after_its_start() {
    local before=0 now
    lines 120 "$slow" | some_long > "$work/in.jsonl"
    serve --in-process --state-dir "$work/state" --no-access-log --batch-concurrency 3
    upload "$work/in.jsonl"
    create
    for _ in 1 2; do
        wait_until ".request_counts.completed > $before and .status == \"in_progress\""
        now=$(member request_counts.completed)
        kill -9 $pid
        wait $pid || true
        serve --in-process --state-dir "$work/state" --no-access-log --batch-concurrency 3
        wait_until ".request_counts.completed >= $now"
        before=$(member request_counts.completed)
    done
    fetch
    each_once 120
    get_batch
    [ "$(jq -c .request_counts "$work/body")" = '{"total":120,"completed":120,"failed":0}' ]
    stop_server
    [ "$rc" = 0 ]
}
a_torn_last_line_is_done_again() {
    lines 120 "$slow" > "$work/in.jsonl"
    serve --in-process --state-dir "$work/state" --no-access-log
    upload "$work/in.jsonl"
    create
    wait_until '.request_counts.completed > 3'
    kill -9 $pid
    wait $pid || true
    answers=$work/state/batches/$batch.out
    [ -s "$answers" ]
    truncate -s -7 "$answers"
    serve --in-process --state-dir "$work/state" --no-access-log
    fetch
    each_once 120
    stop_server
}
# SIGTERM while lines run: the worker is held, so that none of them can end before.
lines_that_run_at_a_stop_are_answered_by_the_next_start() {
    local dir=$work/stopped worker n=0
    lines 60 "$slow" | some_long > "$work/in.jsonl"
    serve --state-dir "$dir" --no-access-log --batch-concurrency 4
    upload "$work/in.jsonl"
    create
    for _ in 1 2; do
        wait_until ".request_counts.completed > $n and .status == \"in_progress\""
        worker=$(pgrep -P $pid)
        kill -STOP $worker
        kill -TERM $pid
        wait_for 'stopping; 0 requests may run' "$work/log"
        kill -CONT $worker
        rc=0
        wait $pid || rc=$?
        [ "$rc" = 0 ]
        cp "$dir/batches/$batch.out" "$work/before"
        jq -es 'length > 0 and length < 60 and all(.response.status_code == 200)' "$work/before"
        [ ! -s "$dir/batches/$batch.err" ]
        n=$(wc -l < "$work/before")
        serve --state-dir "$dir" --no-access-log --batch-concurrency 4
    done
    fetch
    each_once 60
    jq -es 'all(.response.status_code == 200)' "$work/out"
    cmp -n "$(wc -c < "$work/before")" "$work/before" "$work/out"
    get_batch
    [ "$(jq -c .request_counts "$work/body")" = '{"total":60,"completed":60,"failed":0}' ]
    stop_server
    [ "$rc" = 0 ]
}
what_is_over_is_there_after_a_start() {
    serve_answered "$work/over" 3
    get_batch
    cp "$work/body" "$work/before"
    stop_server
    serve --in-process --state-dir "$work/over" --no-access-log
    get_batch
    cmp "$work/body" "$work/before"
    fetch
    each_once 3
    call "/v1/files/$file/content"
    cmp "$work/body" "$work/in.jsonl"
    call /v1/files
    [ "$(member 'data | length')" = 2 ]
    stop_server
}
files_expire_while_no_server_runs() {
    local dir=$work/expiring over
    lines 1 > "$work/in.jsonl"
    serve --in-process --state-dir "$dir" --no-access-log --file-ttl 5000
    upload "$work/in.jsonl" $(expires_after 3600)
    over=$file
    upload "$work/in.jsonl"
    [ "$(ttl)" = 5000 ]
    stop_server
    age "$dir/files/$over"
    serve --in-process --state-dir "$dir" --no-access-log
    wait_until_gone "$over"
    [ ! -e "$dir/files/$over" ]
    call "/v1/files/$file"
    [ "$(ttl)" = 5000 ]
    stop_server
}
a_batch_keeps_its_input_and_says_how_long_its_answers_stay() {
    local dir=$work/kept
    lines 60 "$slow" > "$work/in.jsonl"
    serve --in-process --state-dir "$dir" --no-access-log --batch-concurrency 2 --file-ttl 5000
    upload "$work/in.jsonl"
    create 24h ', "output_expires_after": {"anchor": "created_at", "seconds": 7200}'
    wait_until '.request_counts.completed > 0'
    kill -9 $pid
    wait $pid || true
    age "$dir/files/$file"
    serve --in-process --state-dir "$dir" --no-access-log --batch-concurrency 2
    get_batch
    [ "$(member status)" = in_progress ]
    call "/v1/files/$file/content"
    cmp "$work/body" "$work/in.jsonl"
    fetch
    each_once 60
    wait_until_gone "$file"
    get_batch
    [ "$(member status)" = completed ]
    call "/v1/files/$(member output_file_id)"
    [ "$(ttl)" = 7200 ]
    stop_server
}
# The folder as it is when the server dies while answers become files: before they are moved, behind that, and when their
# record is there.
a_start_ends_what_was_being_finalized() {
    local dir=$work/finalizing answers
    serve_answered "$dir" 3
    stop_server
    cp -r "$dir" "$work/done"
    for step in answered moved recorded; do
        rm -rf "$dir"
        cp -r "$work/done" "$dir"
        answers=$(jq -r .answers "$dir/batches/$batch.json")
        [ $step = recorded ] || rm "$dir/files/$answers.json"
        [ $step != answered ] || mv "$dir/files/$answers" "$dir/batches/$batch.out"
        jq -c '.status = "finalizing" | .completed_at = null' "$work/done/batches/$batch.json" > "$dir/batches/$batch.json"
        serve --in-process --state-dir "$dir" --no-access-log
        fetch
        each_once 3
        get_batch
        [ "$(member status)" = completed ]
        [ "$(member request_counts.completed)" = 3 ]
        call /v1/files
        [ "$(member 'data | length')" = 2 ]
        stop_server
    done
}
# The folder as it is when the server dies between the end of a window and the last of its errors.
a_start_ends_what_was_expiring() {
    local dir=$work/late record
    serve_answered "$dir" 3
    stop_server
    record=$dir/batches/$batch.json
    head -n 1 "$work/out" > "$dir/batches/$batch.out"
    rm "$dir/files/$(jq -r .answers "$record")"*
    jq -c '.status = "in_progress" | .ends_as = "expired" | .expires_at = .created_at' "$record" > "$work/record"
    cp "$work/record" "$record"
    serve --in-process --state-dir "$dir" --no-access-log
    fetch
    get_batch
    [ "$(member status)" = expired ]
    each_once 3
    jq -es 'length == 2 and all(.error.code == "batch_expired")' "$work/err"
    stop_server
}
# 10,000 that are over, the first one being the oldest.
an_old_batch_goes_when_a_new_one_needs_its_place() {
    local dir=$work/many
    serve_answered "$dir" 1
    stop_server
    jq -c '.id = "batch_ID" | .created_at = 1' "$dir/batches/$batch.json" | awk -v dir="$dir/batches" '{
        for (i = 10001; i <= 20000; i++) {
            record = $0; path = dir "/batch_" i ".json"
            sub(/batch_ID/, "batch_" i, record); print record > path; close(path)
        } }'
    rm "$dir/batches/$batch.json"
    serve --in-process --state-dir "$dir" --no-access-log
    post /v1/batches '{"input_file_id": "file-0", "endpoint": "/v1/chat/completions", "completion_window": "24h"}'
    [ "$status" = 400 ]
    call /v1/batches/batch_10001
    [ "$status" = 200 ]
    create
    call /v1/batches/batch_10001
    [ "$status" = 404 ]
    [ ! -e "$dir/batches/batch_10001.json" ]
    call /v1/batches/batch_10002
    [ "$status" = 200 ]
    stop_server
}
# What somebody else left in the folder, or broke, is told and left out.
a_damaged_folder_costs_what_is_damaged() {
    local dir=$work/damaged
    serve_answered "$dir" 3
    stop_server
    echo '{' > "$dir/batches/batch_broken.json"
    echo '{"id": "file-other"}' > "$dir/files/file-broken.json"
    echo left > "$dir/files/file-orphan"
    truncate -s 1 "$dir/files/$file"
    serve --in-process --state-dir "$dir" --no-access-log
    grep -q 'batch_broken.json' "$work/log"
    grep -q 'file-broken.json' "$work/log"
    grep -q "files/$file: " "$work/log"
    [ ! -e "$dir/files/file-orphan" ]
    call "/v1/files/$file"
    [ "$status" = 404 ]
    fetch
    each_once 3
    stop_server
}
a_killed_worker_costs_no_line() {
    lines 120 "$slow" > "$work/in.jsonl"
    serve --state-dir "$work/state" --no-access-log
    upload "$work/in.jsonl"
    create
    wait_until '.request_counts.completed > 0'
    kill -9 $(pgrep -P $pid)
    fetch
    each_once 120
    get_batch
    [ "$(member request_counts.completed)" = 120 ]
    stop_server
    [ "$rc" = 0 ]
}
two_servers_do_not_share_a_folder() {
    not timeout 60 "$UNMASK" serve --model "$model" --port 0 --in-process --state-dir "$work/shared" 2> "$work/log"
    grep -q 'another server uses' "$work/log"
}
without_a_folder_there_are_no_batches() {
    serve --in-process --no-access-log
    for path in /v1/files /v1/batches /v1/files/x/content; do
        call $path
        [ "$status" = 501 ]
        member error.message | grep -q -- '--state-dir'
    done
    stop_server
}

# ---- The disk ------------------------------------------------------------------------------------------------------ #

# A limit on the size of files stands for a disk without room: what is written above it fails, in the middle of a line.
a_full_disk_halts_a_batch_and_nothing_else() {
    lines 60 > "$work/in.jsonl"
    trap '' XFSZ
    ulimit -S -f 24
    serve --in-process --state-dir "$work/state" --no-access-log
    ulimit -S -f unlimited
    upload "$work/in.jsonl"
    create
    wait_until '.errors.data[0].code == "storage_error"'
    [ "$(member status)" = in_progress ]
    post /v1/chat/completions '{"messages": [{"role": "user", "content": "What is 1 plus 3?"}], "max_tokens": 24}'
    [ "$status" = 200 ]
    prlimit --pid $pid --fsize=unlimited
    fetch
    each_once 60
    get_batch
    [ "$(member status)" = completed ]
    [ "$(member errors)" = null ]
    stop_server
    [ "$rc" = 0 ]
}
an_upload_that_finds_no_room_leaves_nothing() {
    lines 200 > "$work/in.jsonl"
    trap '' XFSZ
    ulimit -S -f 8
    serve --in-process --state-dir "$work/small" --no-access-log
    ulimit -S -f unlimited
    call /v1/files -F purpose=batch -F "file=@$work/in.jsonl"
    [ "$status" = 507 ]
    [ "$(member error.code)" = storage_error ]
    [ -z "$(ls "$work/small/files")" ]
    stop_server
}

claims_all
