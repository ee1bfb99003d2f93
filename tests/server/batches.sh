#!/bin/bash
# Files and batches with the real server: uploads, lists, and every state. Each line is answered exactly once, even if
# the server ends, a worker dies or the disk is full.
source tests/cli/claims.bash
source tests/server/serve.bash

# lines N [MEMBERS]: prints N batch lines with the ids r1..rN and these members in their bodies.
lines() {
    local n=$1 more=${2:-'{}'}
    jq -cn --argjson n "$n" --argjson more "$more" 'range(1; $n + 1) | {custom_id: "r\(.)", method: "POST",
        url: "/v1/chat/completions",
        body: ({messages: [{role: "user", content: "What is \(.) plus 3?"}], max_tokens: 24, temperature: 0} + $more)}'
}
# Makes every third line so long that a reader thread parses it.
some_long() { jq -c 'if .custom_id[1:] | tonumber % 3 == 1 then .body.user = "x" * 3000 else . end'; }
# upload PATH OPTION...: uploads a file as form data, with these options of curl. Sets file to its id.
upload() {
    call /v1/files -F purpose=batch -F "file=@$1;type=application/jsonl" "${@:2}"
    [ "$status" = 200 ]
    file=$(member id)
}
# create [WINDOW [MEMBERS]]: creates a batch of $file; MEMBERS begins with a comma. Sets batch to its id.
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
# Waits until the batch satisfies a jq condition.
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
# Waits for the end of the batch, then downloads its two files to $work/out and $work/err.
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
# Prints the sorted ids of the answered lines.
answered() { cat "$work/out" "$work/err" | jq -r .custom_id | sort; }
# Fails unless each of N lines was answered once.
each_once() { [ "$(answered)" = "$(seq "$1" | sed 's/^/r/' | sort)" ]; }

# serve_answered FOLDER N: starts a server with this state folder and waits until it has answered a batch of N lines.
serve_answered() {
    lines "$2" > "$work/in.jsonl"
    serve --in-process --state-dir "$1" --no-access-log
    upload "$work/in.jsonl"
    create
    fetch
}

expires_after() { echo "-F expires_after[anchor]=created_at -F expires_after[seconds]=$1"; }
# Prints the lifetime of the file in the last response.
ttl() { member '| if .expires_at then .expires_at - .created_at else "for ever" end'; }
# Makes a file in a folder expired since a second ago.
mark_expired() {
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
# A batch of slow lines is still running when a request about it arrives.
slow="{\"accept_threshold\": 1, \"ignore_eos\": true, \"max_tokens\": $(slow_tokens)}"
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT
# refuses_file STATUS PATH ADDRESS MESSAGE: the upload of a file from this address gets the status.
refuses_file() {
    call /v1/files -F purpose=batch -F "file=@$2" --interface "$3"
    [ "$status" = "$1" ]
    [ "$(member error.code)" = "$([ "$1" = 413 ] && echo file_quota_exceeded || echo storage_full)" ]
    member error.message | grep -q "$4"
}
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
    diff <(tac "$work/made") "$work/listed"
    for list in files batches; do
        call "/v1/$list?after=nothing"
        [ "$status" = 400 ]
        [ "$(member error.param)" = after ]
    done
}
a_file_can_be_the_request_body() {
    lines 2 > "$work/in.jsonl"
    call '/v1/files?purpose=batch&filename=raw.jsonl' -H 'Content-Type: application/jsonl' --data-binary "@$work/in.jsonl"
    [ "$status" = 200 ]
    [ "$(member filename)" = raw.jsonl ]
    call "/v1/files/$(member id)/content"
    cmp "$work/body" "$work/in.jsonl"
}
a_large_file_is_returned_unchanged() {
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
requests_from_other_sites_do_not_upload() {
    lines 1 > "$work/in.jsonl"
    call /v1/files -F purpose=batch -F "file=@$work/in.jsonl" -H 'Sec-Fetch-Site: cross-site' -H 'Origin: http://a.example'
    [ "$status" = 403 ]
    call /v1/files -F purpose=batch -F "file=@$work/in.jsonl" -H 'Sec-Fetch-Site: same-origin'
    [ "$status" = 200 ]
}
paths_do_not_reach_other_files() {
    for id in .. ../lock '..%2Flock' 'x%00' lock; do
        call "/v1/files/$id/content" --path-as-is
        [ "$status" = 404 ] || [ "$status" = 400 ]
    done
}

files_expire_when_their_request_says() {
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
metrics_count_batches_and_files() {
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
        # Counters start at 0 with each process.
        case $start in
        first) [ "$completed $failed" = '3 1' ] ;;
        second) [ "$completed $failed" = '0 0' ] ;;
        esac
        stop_server
        serve --in-process --state-dir "$dir" --no-access-log
    done
    stop_server
}
completions_run_in_batches() {
    lines 3 | jq -c '.url = "/v1/completions" | .body = {prompt: "1 + 2 =", max_tokens: 4}' > "$work/in.jsonl"
    upload "$work/in.jsonl"
    post /v1/batches "{\"input_file_id\": \"$file\", \"endpoint\": \"/v1/completions\", \"completion_window\": \"24h\"}"
    batch=$(member id)
    fetch
    each_once 3
    jq -es 'all(.response.body.object == "text_completion")' "$work/out"
}
an_invalid_input_fails_the_batch_with_its_lines() {
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
a_line_with_more_prompts_than_the_queue_holds_fails() {
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
a_cancelled_batch_keeps_its_answers() {
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
abort_all_does_not_abort_a_batch() {
    lines 24 "$slow" > "$work/in.jsonl"
    upload "$work/in.jsonl"
    create
    wait_until '.request_counts.completed > 0'
    for _ in $(seq 5); do
        post /abort_request '{"abort_all": true}'
        [ "$(member aborted)" = 0 ]
    done
    fetch
    each_once 24
    jq -es 'all(.response.body.choices[0].finish_reason == "length")' "$work/out"
}
remaining_lines_of_an_expired_batch_are_errors() {
    lines 1000 "$slow" > "$work/in.jsonl"
    upload "$work/in.jsonl"
    create 1s
    fetch
    get_batch
    [ "$(member status)" = expired ]
    each_once 1000
    jq -es 'length > 0 and all(.response == null and .error.code == "batch_expired")' "$work/err"
}

# ---- Killed and stopped processes ---------------------------------------------------------------------------------- #

# Kills the server twice while it answers a batch.
a_killed_server_continues_its_batch() {
    local before=0 now
    lines 27 "$slow" | some_long > "$work/in.jsonl"
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
    each_once 27
    get_batch
    [ "$(jq -c .request_counts "$work/body")" = '{"total":27,"completed":27,"failed":0}' ]
    stop_server
    [ "$rc" = 0 ]
}
an_incomplete_last_line_is_answered_again() {
    lines 24 "$slow" > "$work/in.jsonl"
    serve --in-process --state-dir "$work/state" --no-access-log --batch-concurrency 3
    upload "$work/in.jsonl"
    create
    wait_until '.request_counts.completed > 3'
    kill -9 $pid
    wait $pid || true
    answers=$work/state/batches/$batch.out
    [ -s "$answers" ]
    truncate -s -7 "$answers"
    serve --in-process --state-dir "$work/state" --no-access-log --batch-concurrency 3
    fetch
    each_once 24
    stop_server
}
# Stops the server with SIGTERM while lines run. The worker is stopped, so that they can't finish before.
running_lines_are_answered_after_a_restart() {
    local dir=$work/stopped worker n=0
    lines 24 "$slow" | some_long > "$work/in.jsonl"
    serve --state-dir "$dir" --no-access-log --batch-concurrency 4
    upload "$work/in.jsonl"
    create
    for _ in 1 2; do
        wait_until ".request_counts.completed > $n and .status == \"in_progress\""
        worker=$(pgrep -P $pid)
        kill -STOP $worker
        kill -TERM $pid
        wait_for 'stopping; no request runs' "$work/log"
        kill -CONT $worker
        rc=0
        wait $pid || rc=$?
        [ "$rc" = 0 ]
        cp "$dir/batches/$batch.out" "$work/before"
        jq -es 'length > 0 and length < 24 and all(.response.status_code == 200)' "$work/before"
        [ ! -s "$dir/batches/$batch.err" ]
        n=$(wc -l < "$work/before")
        serve --state-dir "$dir" --no-access-log --batch-concurrency 4
    done
    fetch
    each_once 24
    jq -es 'all(.response.status_code == 200)' "$work/out"
    cmp -n "$(wc -c < "$work/before")" "$work/before" "$work/out"
    get_batch
    [ "$(jq -c .request_counts "$work/body")" = '{"total":24,"completed":24,"failed":0}' ]
    stop_server
    [ "$rc" = 0 ]
}
finished_batches_survive_a_restart() {
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
files_that_expired_without_a_server_are_deleted_at_its_start() {
    local dir=$work/expiring over
    lines 1 > "$work/in.jsonl"
    serve --in-process --state-dir "$dir" --no-access-log --file-ttl 5000
    upload "$work/in.jsonl" $(expires_after 3600)
    over=$file
    upload "$work/in.jsonl"
    [ "$(ttl)" = 5000 ]
    stop_server
    mark_expired "$dir/files/$over"
    serve --in-process --state-dir "$dir" --no-access-log
    wait_until_gone "$over"
    [ ! -e "$dir/files/$over" ]
    call "/v1/files/$file"
    [ "$(ttl)" = 5000 ]
    stop_server
}
a_batch_keeps_its_input_and_sets_the_lifetime_of_its_answers() {
    local dir=$work/kept
    lines 16 "$slow" > "$work/in.jsonl"
    serve --in-process --state-dir "$dir" --no-access-log --batch-concurrency 2 --file-ttl 5000
    upload "$work/in.jsonl"
    create 24h ', "output_expires_after": {"anchor": "created_at", "seconds": 7200}'
    wait_until '.request_counts.completed > 0'
    kill -9 $pid
    wait $pid || true
    mark_expired "$dir/files/$file"
    serve --in-process --state-dir "$dir" --no-access-log --batch-concurrency 2
    get_batch
    [ "$(member status)" = in_progress ]
    call "/v1/files/$file/content"
    cmp "$work/body" "$work/in.jsonl"
    fetch
    each_once 16
    wait_until_gone "$file"
    get_batch
    [ "$(member status)" = completed ]
    call "/v1/files/$(member output_file_id)"
    [ "$(ttl)" = 7200 ]
    stop_server
}
# Builds the state folder of a server that was killed while it made files of the answers: before it moved the answers,
# after it moved them, and after it wrote the record of the file.
a_restart_completes_a_finalizing_batch() {
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
# Builds the state folder of a server that was killed when a batch had expired, but not all lines had their error.
a_restart_completes_an_expiring_batch() {
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
# The folder has 10,000 finished batches. The first one is the oldest.
a_new_batch_replaces_the_oldest() {
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
# Damaged and foreign files in the state folder are logged and ignored.
damaged_files_are_ignored() {
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
a_killed_worker_loses_no_line() {
    lines 24 "$slow" > "$work/in.jsonl"
    serve --state-dir "$work/state" --no-access-log --batch-concurrency 3
    upload "$work/in.jsonl"
    create
    wait_until '.request_counts.completed > 0'
    kill -9 $(pgrep -P $pid)
    fetch
    each_once 24
    get_batch
    [ "$(member request_counts.completed)" = 24 ]
    stop_server
    [ "$rc" = 0 ]
}
two_servers_do_not_share_a_folder() {
    not timeout 60 "$UNMASK" serve --model "$model" --port 0 --in-process --state-dir "$work/shared" 2> "$work/log"
    grep -q 'another server uses' "$work/log"
}
without_state_dir_batches_are_off() {
    serve --in-process --no-access-log
    for path in /v1/files /v1/batches /v1/files/x/content; do
        call $path
        [ "$status" = 501 ]
        member error.message | grep -q -- '--state-dir'
    done
    stop_server
}

# ---- The disk ------------------------------------------------------------------------------------------------------ #

# Limits of stored files: the server's (507) and a client's (413), by address. The files are for the server alone.
stored_files_have_limits() {
    serve --state-dir "$work/limits" --max-files 4 --max-tenant-files 3 --max-file-bytes 2700 --max-tenant-file-bytes 2000
    lines 1 > "$work/lines"
    lines 8 > "$work/eight" # about 1,300 bytes
    upload "$work/lines"
    upload "$work/eight"
    refuses_file 413 "$work/eight" 127.0.0.1 'this client has [0-9]* bytes of files, of at most 2000, and this needs'
    refuses_file 507 "$work/eight" 127.0.0.2 'the server has [0-9]* bytes of files, of at most 2700'
    upload "$work/lines" --interface 127.0.0.2
    post /v1/batches "{\"input_file_id\": \"$file\", \"endpoint\": \"/v1/chat/completions\",
        \"completion_window\": \"24h\"}"
    [ "$status" = 413 ]
    [ "$(member error.code)" = file_quota_exceeded ]
    upload "$work/lines"
    refuses_file 413 "$work/lines" 127.0.0.1 'this client has 3 files, of at most 3; delete some'
    refuses_file 507 "$work/lines" 127.0.0.2 'the server has 4 files, of at most 4; delete some'
    [ "$(find "$work/limits" -type f -not -perm 600)" = '' ]
    [ "$(find "$work/limits/files" -type f | wc -l)" = 8 ]
    stop_server
    serve --state-dir "$work/limits" --max-tenant-files 3
    refuses_file 413 "$work/lines" 127.0.0.1 'this client has 3 files'
    call "/v1/files/$file" -X DELETE
    upload "$work/lines"
    stop_server
}
# A limit on the size of files simulates a full disk: a write above it fails in the middle of a line.
a_full_disk_pauses_the_batch_only() {
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
an_upload_to_a_full_disk_leaves_no_file() {
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
