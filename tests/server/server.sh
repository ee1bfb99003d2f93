#!/bin/bash
# The server from outside: start and shutdown, paths and methods, keys, headers, bodies, logs.
source tests/cli/claims.bash
source tests/server/serve.bash
MODEL=build/data/golden/models/sdar
source tests/cli/adapter.bash

# The server of all claims that need no special options.
serve --in-process --state-dir "$work/state"
shared_pid=$pid shared_url=$url
cp "$work/log" "$work/shared.log"
trap 'kill -9 $shared_pid; wait $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT
error_is() {
    [ "$status" = "$1" ]
    [ "$(member error.type)" = "$2" ]
    jq -e '.error | has("param") and has("code")' "$work/body"
}

# generate TOKENS [MEMBERS OPTION...]: sends a short prompt with max_tokens TOKENS and these members. The response goes
# to $work/first.
generate() {
    curl -sS -m 60 -o "$work/first" -H 'Content-Type: application/json' "$url/v1/completions" "${@:3}" \
        -d "{${2:-\"prompt\": \"Count.\"}, \"max_tokens\": $1, \"ignore_eos\": true}"
}
wait_until_running() {
    for _ in $(seq 600); do
        curl -sS -m 10 -o "$work/open" "$url/metrics"
        ! grep -qE '^unmask_http_requests_open\{.*\} [2-9]' "$work/open" || return 0
        sleep 0.05
    done
    return 1
}
# Waits until the log has this number of loaded workers, including those that have ended.
wait_until_loaded() {
    for _ in $(seq 400); do
        [ "$(grep -c 'is loaded' "$work/log")" -lt "$1" ] || return 0
        sleep 0.05
    done
    return 1
}
# Runs a server that must fail to start.
not_served() { UNMASK=with_timeout try serve --model models/tiny-block --in-process --port 0 "$@"; }
with_timeout() { timeout 60 "$program" "$@"; }
program=$UNMASK

# Sends bytes without curl and prints the response.
raw() {
    exec 3<> "/dev/tcp/127.0.0.1/${url##*:}"
    printf "$@" >&3
    cat <&3
    exec 3>&-
}
# Starts a server whose stderr is a pipe that is read up to "ready" only. The read end is file descriptor 4.
serve_into_pipe() {
    rm -f "$work/pipe"
    mkfifo "$work/pipe"
    exec 4<> "$work/pipe"
    "$UNMASK" serve --model "$model" --port 0 --threads 1 --in-process "$@" > "$work/serve.out" 2> "$work/pipe" &
    pid=$!
    trap 'kill -9 $pid 2> /dev/null || true' EXIT
    local line
    while read -r -t 60 line <&4; do
        case $line in
        *'listening at '*) url=${line##*listening at } ;;
        *ready) return 0 ;;
        esac
    done
    return 1
}
# Makes the server log lines of 7,000 bytes until it drops lines.
fill_pipe() {
    local path
    path=/$(printf '%07000d' 0)
    for _ in $(seq 60); do
        seq -f "url = $url$path?%.0f" 10 | curl -sS -m 60 -K - > "$work/null"
        call /metrics
        grep -q '^unmask_log_lines_dropped_total{.*} 0$' "$work/body" || return 0
    done
    return 1
}

# Prints the resident memory of the server in kB.
resident() { sed -nE 's/^VmRSS:[[:space:]]*([0-9]+) kB/\1/p' "/proc/$pid/status"; }

# Sends $work/many to several endpoints at the same time.
send_many() {
    local path
    for path in /v1/chat/completions /v1/completions /tokenize /apply-template; do
        for _ in 1 2; do
            curl -sS -m 60 -o /dev/null -H 'Content-Type: application/json' --data-binary "@$work/many" \
                "$url$path" &
        done
    done
    wait $(jobs -p | grep -vx $pid)
}

# Calls a path as the page of an origin would.
call_from() { call "$2" -H "Origin: $1" "${@:3}"; }
# Calls the server by a name.
named() { call /v1/models -H "Host: $1"; }

claims_begin

start_says_where_it_listens_and_when_it_is_ready() {
    grep -qxE 'unmask: listening at http://127\.0\.0\.1:[0-9]+' "$work/shared.log"
    grep -qE '^unmask: model tiny-block, 1 worker in this process; ' "$work/shared.log"
    grep -qx 'unmask: ready' "$work/shared.log"
    [ ! -s "$work/serve.out" ]
}
health_ping_and_version_answer() {
    call /health
    [ "$status" = 200 ]
    [ "$(member status)" = ok ]
    [ "$(member 'workers[0].state')" = up ]
    call /v1/health
    [ "$status" = 200 ]
    call /ping
    [ "$status" = 200 ]
    call /version
    [ "$status" = 200 ]
    [ "$("$UNMASK" --version)" = "unmask $(member version) ($("$UNMASK" --version | sed 's/.*(\(.*\))/\1/'))" ]
}
health_generate_generates_one_token() {
    call /health_generate
    [ "$status" = 200 ]
    [ "$(member status)" = ok ]
    [ "$(member tokens)" = 1 ]
}
no_worker_means_503_with_the_reason() {
    serve_no_wait --remote-workers 1 --zmq-command-addr "ipc://$work/commands" --zmq-event-addr "ipc://$work/events"
    call /health
    error_is 503 server_error
    [ "$(member status)" = unavailable ]
    [ "$(header retry-after)" = 5 ]
    member error.message | grep -q 'worker 0 is not connected'
    post /v1/completions '{"prompt": "x"}'
    error_is 503 server_error
    [ "$(header retry-after)" = 5 ]
    call /health_generate
    error_is 503 server_error
    call /v1/models
    [ "$status" = 200 ]
    [ "$(member 'data[0].max_model_len')" = null ]
    call /metrics
    grep -qx 'unmask_backend_up{model_name="tiny-block"} 0' "$work/body"
    try health "$url"
    [ "$rc" = 1 ]
    grep -q 'status 503: .*not connected' "$work/err"
    stop_server
    [ $rc = 0 ]
}
full_queue_is_429() {
    serve --max-queue 1
    local worker
    worker=$(pgrep -P $pid)
    kill -STOP "$worker"
    generate 10 &
    wait_until_running
    post /v1/completions '{"prompt": "x"}'
    error_is 429 rate_limit_error
    [ "$(header retry-after)" = 1 ]
    kill -CONT "$worker"
    wait $!
    grep -q '"finish_reason":"length"' "$work/first"
    stop_server
}
unmask_health_checks_a_server() {
    try health "$shared_url"
    [ "$rc" = 0 ]
    [ "$(cat "$work/out")" = "$shared_url: ok" ]
    try health "$shared_url/" --quiet
    [ "$rc" = 0 ]
    [ ! -s "$work/out" ]
    try health "$shared_url/v1/models"
    [ "$rc" = 1 ]
    grep -q 'status 404: no model' "$work/err"
    try health http://127.0.0.1:1
    [ "$rc" = 1 ]
    grep -q 'no server listens' "$work/err"
    try health ftp://127.0.0.1
    [ "$rc" = 2 ]
}
unknown_paths_are_404_in_the_form_of_openai() {
    call /v2/nothing
    error_is 404 not_found_error
    call /v1/models/
    error_is 404 not_found_error
}
other_methods_are_405_with_the_right_ones() {
    post /health '{}'
    error_is 405 invalid_request_error
    [ "$(header allow)" = 'GET, HEAD, OPTIONS' ]
    call /call/echo
    [ "$status" = 405 ]
    [ "$(header allow)" = 'POST, OPTIONS' ]
    # This path also fits /v1/responses/{id}, which takes other methods.
    call /v1/responses/input_tokens
    [ "$status" = 405 ]
    [ "$(header allow)" = 'POST, OPTIONS' ]
    # A client may send the pattern itself.
    call /v1/responses/%7Bid%7D
    error_is 404 not_found_error
    call '/v1/responses/{id}' --globoff
    error_is 404 not_found_error
}
requests_count_under_their_path_whatever_the_method() {
    serve --in-process
    post /health '{}'
    call /v1/models/tiny-block -X OPTIONS
    call /v1/nothing
    call /metrics
    counted() { grep -q "^unmask_requests_total{model_name=\"tiny-block\",route=\"$1\",status=\"$2\"} 1\$" "$work/body"; }
    counted /health 405
    counted '/v1/models/{rest}' 204
    counted none 404
    stop_server
}
head_gets_the_head_of_get() {
    status=$(curl -sS -I -o "$work/head" -w '%{http_code}' "$url/health")
    [ "$status" = 200 ]
    [ "$(header content-type)" = application/json ]
    [ "$(header content-length)" -gt 10 ]
}
options_tells_methods_and_allows_no_origin_unasked() {
    call /v1/models -X OPTIONS -H 'Origin: http://a.example' -H 'Access-Control-Request-Method: GET'
    [ "$status" = 204 ]
    [ "$(header allow)" = 'GET, HEAD, OPTIONS' ]
    not grep -qi '^access-control' "$work/head"
    call /health -H 'Origin: http://a.example'
    not grep -qi '^access-control' "$work/head"
}
request_ids_are_echoed_or_made() {
    call /ping -H 'X-Request-Id: order-66_a.b:c'
    [ "$(header x-request-id)" = order-66_a.b:c ]
    call /ping
    header x-request-id | grep -qxE '[0-9a-f]{32}'
    call /ping -H 'X-Request-Id: two words'
    header x-request-id | grep -qxE '[0-9a-f]{32}'
    call /ping -H "X-Request-Id: $(printf 'x%.0s' $(seq 200))"
    header x-request-id | grep -qxE '[0-9a-f]{32}'
    call /v2/nothing -H 'X-Request-Id: lost'
    [ "$(header x-request-id)" = lost ]
}
trusted_proxies_name_the_client() {
    serve --in-process --trusted-proxies '127.0.0.0/31, 10.0.0.0/8' --max-connections-per-peer 1
    call /ping -H 'X-Forwarded-For: 192.0.2.1, 192.0.2.7, 10.1.1.1'
    call /ping -H 'Forwarded: for="[2001:db8::7]:99"'
    call /ping -H 'X-Forwarded-For: 192.0.2.8' --interface 127.0.0.9 # not trusted
    for line in '192\.0\.2\.7' '\[2001:db8::7\]' '127\.0\.0\.9:[0-9]*'; do
        wait_for " $line GET \"/ping\" 200" "$work/log"
    done
    # One of the two requests that a client has at once is refused, and other clients are not affected.
    generate 500 '"prompt": "Count.", "accept_threshold": 1' -H 'X-Forwarded-For: 192.0.2.7' &
    local first=$!
    wait_until_running
    call /version -H 'X-Forwarded-For: 192.0.2.7'
    [ "$status" = 429 ]
    member error.message | grep -q 'too many connections from this address'
    call /health -H 'X-Forwarded-For: 192.0.2.7'
    [ "$status" = 200 ]
    call /version -H 'X-Forwarded-For: 192.0.2.8'
    [ "$status" = 200 ]
    wait $first
    call /version -H 'X-Forwarded-For: 192.0.2.7'
    [ "$status" = 200 ]
    not_served --trusted-proxies 10.0.0.0/99
    [ "$rc" = 2 ]
    grep -q 'trusted-proxies: expected addresses.*10.0.0.0/99' "$work/err"
}
bodies_of_other_types_are_415() {
    call /call/echo -d 'x=1'
    error_is 415 invalid_request_error
    member error.message | grep -q 'Content-Type: application/json.*urlencoded'
    post /call/echo '{}' -H 'Content-Encoding: br'
    error_is 415 invalid_request_error
    call /call/echo -H 'Content-Type: Application/JSON; charset=utf-8' -d '{"a": 1}'
    [ "$status" = 200 ]
}
malformed_bodies_are_400_with_the_place() {
    post /call/echo '{"a": }'
    error_is 400 invalid_request_error
    member error.message | grep -q 'line 1'
    post /call/echo '[1]'
    error_is 400 invalid_request_error
    member error.message | grep -q 'expected a JSON object'
    post /call/echo "$(printf '[%.0s' $(seq 5000))"
    error_is 400 invalid_request_error
    printf '{"a": "\xff"}' > "$work/bad"
    call /call/echo -H 'Content-Type: application/json' --data-binary "@$work/bad"
    error_is 400 invalid_request_error
    call /ping
    [ "$status" = 200 ]
}
duplicate_keys_are_400_with_the_name() {
    post /v1/completions '{"prompt": "a", "max_tokens": 1, "prompt": "b"}'
    error_is 400 invalid_request_error
    [ "$(member error.param)" = prompt ]
    member error.message | grep -q 'duplicate key "prompt" (line 1'
    post /call/echo '{"a": {"b": 1, "b": 1}}'
    error_is 400 invalid_request_error
    [ "$(member error.param)" = b ]
    post /abort_request '{"rid": "a", "rid": "b"}'
    error_is 400 invalid_request_error
}
bodies_beyond_the_limit_are_413() {
    serve --in-process --max-body-bytes 2000
    head -c 3000 /dev/zero | tr '\0' ' ' > "$work/long"
    call /call/echo -H 'Content-Type: application/json' --data-binary "@$work/long"
    error_is 413 invalid_request_error
    stop_server
}
# Bodies with 2 million objects are refused: each would take 480 MB or more. Those with 200,000 are parsed.
bodies_of_many_values_leave_no_memory_behind() {
    local before n
    [ -z "${SAN:-}" ] || skip "a sanitizer keeps freed memory"
    serve --no-access-log
    before=$(resident)
    for n in 2000000 200000; do
        awk -v n=$n 'BEGIN { printf "{\"messages\": [{}"; while (n--) printf ",{}"; printf "]}" }' > "$work/many"
        send_many
        call /v1/completions -H 'Content-Type: application/json' --data-binary "@$work/many"
        if [ $n = 2000000 ]; then
            error_is 413 invalid_request_error
            member error.message | grep -q -- --max-body-memory
        else
            error_is 400 invalid_request_error
        fi
        # The memory of a body is freed after its response.
        for _ in $(seq 600); do
            [ $(($(resident) - before)) -ge 20000 ] || break
            sleep 0.1
        done
        echo "before: $before kB, after: $(resident) kB, $(grep VmHWM "/proc/$pid/status")"
        [ $(($(resident) - before)) -lt 20000 ]
    done
    stop_server
}
functions_of_workers_are_called_by_name() {
    post '/call/echo?worker=0' '{"text": "grün", "n": 12345678901234567890}'
    [ "$status" = 200 ]
    [ "$(member result.text)" = grün ]
    grep -q 12345678901234567890 "$work/body"
    post /call/stats ''
    [ "$status" = 200 ]
    [ "$(member 'result | length')" = 1 ]
    post /call/nonsense '{}'
    error_is 404 not_found_error
    member error.message | grep -q nonsense
    post '/call/echo?worker=7' '{}'
    error_is 400 invalid_request_error
    [ "$(member error.param)" = worker ]
    post '/call/echo?timeout=never' '{}'
    error_is 400 invalid_request_error
    [ "$(member error.param)" = timeout ]
    post /call/set_log_level '{"level": 5}'
    error_is 400 invalid_request_error
    [ "$(member error.param)" = level ]
}
profiles_start_and_stop_twice_without_error() {
    model=$(realpath $model) UNMASK=$(realpath "$UNMASK") # the server writes the files to its working folder
    cd "$work"
    serve --in-process
    for path in start_profile start_profile stop_profile stop_profile; do
        post "/$path" "$([ $path = stop_profile ] || echo '{"profile_prefix": "steps"}')"
        [ "$status" = 200 ]
        [ "$(member status)" = ok ]
    done
    ls "$work"/steps-*.json "$work"/steps-*.csv
    post /start_profile ''
    [ "$status" = 200 ]
    post /stop_profile ''
    post /start_profile '{"profile_prefix": "../steps"}'
    error_is 400 invalid_request_error
    [ "$(member error.param)" = profile_prefix ]
    post /start_profile '{"profile_prefix": 7}'
    error_is 400 invalid_request_error
    [ "$(member error.param)" = profile_prefix ]
    post /start_profile '{"prefix": "steps"}'
    error_is 400 invalid_request_error
    [ "$(member error.param)" = prefix ]
    post /call/start_profile "{\"path\": \"$work/elsewhere\"}"
    error_is 404 not_found_error
    [ ! -e "$work/elsewhere" ]
}
endpoints_that_take_no_field_say_so() {
    serve --in-process --state-dir "$work/empty"
    call '/v1/files?purpose=batch' -H 'Content-Type: application/jsonl' --data-binary '{}'
    post /v1/batches "{\"input_file_id\": \"$(member id)\", \"endpoint\": \"/v1/completions\", \"completion_window\": \"1h\"}"
    for path in /stop_profile /flush_cache "/v1/batches/$(member id)/cancel"; do
        post "$path" '{"profile_prefix": "steps"}'
        error_is 400 invalid_request_error
        [ "$(member error.param)" = profile_prefix ]
        post "$path" '[]'
        error_is 400 invalid_request_error
        post "$path" 'nothing'
        error_is 400 invalid_request_error
    done
    for path in /stop_profile /flush_cache; do
        for body in '' '{}'; do
            post "$path" "$body"
            [ "$status" = 200 ]
        done
        call "$path" -X POST
        [ "$status" = 200 ]
    done
    stop_server
}
models_are_listed_and_found() {
    call /v1/models
    [ "$status" = 200 ]
    [ "$(member object)" = list ]
    [ "$(member 'data | length')" = 1 ]
    [ "$(member 'data[0].id')" = tiny-block ]
    [ "$(member 'data[0].parent')" = null ]
    [ "$(member 'data[0].max_model_len')" -gt 0 ]
    [ "$(member 'data[0].object')" = model ]
    call /v1/models/tiny-block
    [ "$status" = 200 ]
    [ "$(member id)" = tiny-block ]
    call /v1/models/other
    error_is 404 not_found_error
    [ "$(member error.param)" = model ]
    [ "$(member error.code)" = model_not_found ]
}
models_have_the_names_that_were_given() {
    make_adapter "$work/extra"
    model=$MODEL serve --in-process --served-model-name 'org/first, second' --lora "extra=$work/extra"
    call /v1/models
    [ "$(jq -r '.data[].id' "$work/body" | xargs)" = 'org/first second extra' ]
    [ "$(member 'data[2].parent')" = org/first ]
    call /v1/models/org/first
    [ "$status" = 200 ]
    [ "$(member id)" = org/first ]
    stop_server
}
page_answers_with_its_files() {
    call /
    [ "$status" = 200 ]
    header content-type | grep -q '^text/html'
    cmp "$work/body" web/index.html
    tag=$(header etag)
    header content-security-policy | grep -q "default-src 'self'"
    call / -H "If-None-Match: $tag"
    [ "$status" = 304 ]
    [ ! -s "$work/body" ]
    for f in web/*.{js,css}; do
        call "/${f#web/}" > "$work/null"
        [ "$status" = 200 ]
        cmp "$work/body" "$f"
    done
    call /app.js
    [ "$(header content-type)" = 'text/javascript; charset=utf-8' ]
}
keys_guard_all_but_the_open_paths() {
    serve --in-process --api-key 'first-key, second-key'
    for path in /health /v1/health /ping /version; do
        call "$path"
        [ "$status" = 200 ]
    done
    call /v1/models -X OPTIONS
    [ "$status" = 204 ]
    for path in /v1/models /metrics /nothing / /options /health_generate; do
        call "$path"
        error_is 401 authentication_error
        [ -n "$(header www-authenticate)" ]
    done
    for key in wrong first-ke first-keyy 'first-key,' ''; do
        call /v1/models -H "Authorization: Bearer $key"
        [ "$status" = 401 ]
    done
    call /v1/models -H 'x-api-key: wrong'
    [ "$status" = 401 ]
    for key in first-key second-key; do
        call /v1/models -H "Authorization: Bearer $key"
        [ "$status" = 200 ]
        call /v1/models -H "Authorization: bearer  $key"
        [ "$status" = 200 ]
        call /v1/models -H "x-api-key: $key"
        [ "$status" = 200 ]
        call / -u "anybody:$key"
        [ "$status" = 200 ]
        call /v1/models -u "anybody:$key"
        [ "$status" = 401 ]
        [ "$(header www-authenticate)" = Bearer ]
    done
    call / -u 'anybody:wrong'
    [ "$status" = 401 ]
    header www-authenticate | grep -q '^Basic '
    stop_server
    not grep -q -e first-key -e second-key -e wrong "$work/log"
}
a_server_without_keys_says_so_where_others_reach_it() {
    local host
    not_served --api-key ''
    grep -q -- '--api-key: expected a key, found none' "$work/err"
    export UNMASK_API_KEY=
    not_served
    grep -q 'UNMASK_API_KEY is empty' "$work/err"
    unset UNMASK_API_KEY
    for host in 0.0.0.0 127.0.0.1; do
        serve --in-process --host $host
        if [ $host = 0.0.0.0 ]; then grep -q 'everybody who reaches 0.0.0.0 can use' "$work/log"
        else not grep -q everybody "$work/log"; fi
        stop_server
    done
    serve --in-process --host 0.0.0.0 --api-key k
    not grep -q everybody "$work/log"
    stop_server
}
origins_that_were_named_are_allowed() {
    serve --in-process --cors-allow-origin 'http://a.example,http://b.example' --api-key k
    call /v1/models -X OPTIONS -H 'Origin: http://b.example' -H 'Access-Control-Request-Headers: authorization,x-own'
    [ "$status" = 204 ]
    [ "$(header access-control-allow-origin)" = http://b.example ]
    [ "$(header access-control-allow-headers)" = authorization,x-own ]
    [ "$(header vary)" = Origin ]
    call /v1/models -H 'Origin: http://a.example'
    [ "$status" = 401 ]
    [ "$(header access-control-allow-origin)" = http://a.example ]
    call /ping -H 'Origin: http://evil.example'
    not grep -qi '^access-control' "$work/head"
    stop_server
    serve --in-process --cors-allow-origin '*' --max-body-bytes 1024
    call /ping -H 'Origin: http://any.example'
    [ "$(header access-control-allow-origin)" = '*' ]
    head -c 2000 /dev/zero > "$work/long"
    call /tokenize -H 'Origin: http://any.example' -H 'Content-Type: application/json' --data-binary "@$work/long"
    [ "$status" = 413 ]
    [ "$(header access-control-allow-origin)" = '*' ]
    stop_server
}
remote_workers_need_both_addresses() {
    local address
    for address in '' '--zmq-command-addr tcp://127.0.0.1:7001' '--zmq-event-addr tcp://127.0.0.1:7001'; do
        UNMASK=with_timeout try serve --model models/tiny-block --port 0 --remote-workers 1 $address
        [ "$rc" = 2 ]
        grep -q -- '--remote-workers needs --zmq-command-addr and --zmq-event-addr' "$work/err"
    done
}
origins_that_no_browser_sends_are_refused() {
    local origin
    for origin in https://chat.example/ chat.example '["*"]' 'https://*.example' HTTPS://chat.example http://a.example/b; do
        not_served --in-process --cors-allow-origin "http://a.example,$origin"
        [ "$rc" = 2 ]
        grep -qF -- "--cors-allow-origin: expected origins as browsers send them" "$work/err"
        grep -qF "found \"$origin\"" "$work/err"
    done
}
hosts_that_are_no_names_are_refused() {
    local name
    for name in https://llm.example llm.example:8000 '*.example' llm.example/v1; do
        not_served --in-process --allowed-hosts "lan.test,$name"
        [ "$rc" = 2 ]
        grep -qF -- "--allowed-hosts: expected names such as llm.example.org" "$work/err"
        grep -qF "found \"$name\"" "$work/err"
    done
}
pages_of_other_origins_are_refused() {
    local origin path
    for origin in http://evil.example null file:// "http://127.0.0.1:1" "$url.evil.example" "http://user@${url#http://}"; do
        for path in /flush_cache /abort_request /v1/chat/completions /health_generate /v1/models /nothing; do
            call_from "$origin" "$path" -X POST
            error_is 403 authentication_error
            [ "$(member error.code)" = foreign_origin ]
            call_from "$origin" "$path"
            [ "$status" = 403 ]
        done
    done
    call /flush_cache -X POST -H 'Sec-Fetch-Site: cross-site'
    [ "$status" = 403 ]
    for origin in "$url" "https://${url#http://}"; do
        call_from "$origin" /flush_cache -X POST -H 'Sec-Fetch-Site: same-origin'
        [ "$status" = 200 ]
    done
    call / -H 'Sec-Fetch-Site: cross-site' # a link
    [ "$status" = 200 ]
    serve --in-process --cors-allow-origin 'http://a.example'
    call_from http://a.example /flush_cache -X POST -H 'Sec-Fetch-Site: cross-site'
    [ "$status" = 200 ]
    call_from http://b.example /flush_cache -X POST -H 'Sec-Fetch-Site: cross-site'
    [ "$status" = 403 ]
    stop_server
}
names_that_are_not_the_servers_are_refused() {
    local name
    serve --in-process --cors-allow-origin 'https://chat.example:8443' --allowed-hosts 'lan.test, big.lan.test'
    for name in 127.0.0.1 10.1.2.3:80 '[::1]:8000' localhost LOCALHOST:8000 localhost. a.localhost "$(hostname)" chat.example \
        lan.test:1234 Lan.Test. big.lan.test; do
        named "$name"
        [ "$status" = 200 ]
    done
    for name in evil.test evil.test:8000 x.lan.test lan.test.evil localhost.evil evillocalhost 1.2.3.4.evil '[::1' \
        "$(printf 'a%.0s' $(seq 400)).localhost"; do
        named "$name"
        [ "$status" = 421 ] || [ "$status" = 400 ]
    done
    named evil.test
    error_is 421 invalid_request_error
    member error.message | grep -q -- --allowed-hosts
    call /health -H 'Host: evil.test'
    [ "$status" = 200 ]
    call /v1/models --http1.0 -H 'Host:'
    [ "$status" = 200 ]
    stop_server
    serve --in-process --allowed-hosts '*'
    named evil.test
    [ "$status" = 200 ]
    stop_server
    # A key is better than a name.
    serve --in-process --api-key k
    named any.test
    [ "$status" = 401 ]
    call /v1/models -H 'Host: any.test' -H 'Authorization: Bearer k'
    [ "$status" = 200 ]
    stop_server
}
health_answers_when_all_connections_are_taken() {
    local port
    serve --in-process --max-connections 1 --head-timeout 60
    port=${url##*:}
    exec 3<> "/dev/tcp/127.0.0.1/$port"
    printf 'GET /v1/models HTTP/1.1\r\nHost: x' >&3
    for _ in $(seq 100); do
        call /v1/models
        [ "$status" = 200 ] || break
        sleep 0.05
    done
    error_is 503 server_error
    [ "$(header retry-after)" = 1 ]
    call /health
    [ "$status" = 200 ]
    exec 3>&-
    for _ in $(seq 100); do
        call /v1/models
        [ "$status" != 200 ] || break
        sleep 0.05
    done
    [ "$status" = 200 ]
    stop_server
}
slow_requests_end_in_time() {
    serve --in-process --head-timeout 0.2 --body-timeout 0.2
    exec 3<> "/dev/tcp/127.0.0.1/${url##*:}"
    printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{' >&3
    timeout 60 cat <&3 > "$work/raw"
    grep -q '^HTTP/1.1 408 ' "$work/raw"
    exec 3<> "/dev/tcp/127.0.0.1/${url##*:}"
    printf 'POST /v1/completions HTTP/1.1\r\nHost' >&3
    timeout 60 cat <&3 > "$work/raw"
    grep -q '^HTTP/1.1 408 ' "$work/raw"
    exec 3>&-
    stop_server
}
a_unix_socket_takes_the_place_of_host_and_port() {
    rm -f "$work/log" # the log of an earlier server must not be taken for this one's
    touch "$work/log"
    "$UNMASK" serve --model "$model" --in-process --threads 1 --uds "$work/socket" 2> "$work/log" &
    pid=$!
    trap 'kill -9 $pid 2> /dev/null || true' EXIT
    wait_for '^unmask: ready' "$work/log"
    grep -qx "unmask: listening at unix:$work/socket" "$work/log"
    url=http://localhost
    call /v1/completions --unix-socket "$work/socket" -H 'Content-Type: application/json' -d '{"prompt": "1 + 1 =", "max_tokens": 2}'
    [ "$status" = 200 ]
    wait_for ' unix POST "/v1/completions" 200 ' "$work/log"
    not "$UNMASK" serve --model "$model" --in-process --uds "$work/socket" 2> "$work/err"
    grep -q 'another server listens there' "$work/err"
    stop_server
    [ ! -e "$work/socket" ]
}
prefix_of_a_proxy_is_left_on_or_taken_off() {
    serve --in-process --root-path /llm/
    call /llm/ping
    [ "$status" = 200 ]
    call /ping
    [ "$status" = 200 ]
    call /llmping
    [ "$status" = 404 ]
    stop_server
}
access_lines_tell_of_each_request_and_of_no_secret() {
    serve --in-process --api-key secret-key
    call '/ping?key=secret-query' -H 'X-Request-Id: one'
    call '/no%22thing%C2%85%5c' -H 'X-Request-Id: two' -H 'Authorization: Bearer secret-guess'
    stop_server
    grep -qE '^20[0-9-]+T[0-9:.]+Z 127\.0\.0\.1:[0-9]+ GET "/ping" 200 5 bytes [0-9.]+ ms id=one$' "$work/log"
    grep -qF 'GET "/no\u0022thing\u0085\u005c" 401 ' "$work/log"
    not grep -q secret "$work/log"
}
access_lines_in_json_parse() {
    serve --in-process --log-format json
    call /ping -H 'X-Request-Id: one'
    call '/no%22thing%C2%85'
    stop_server
    jq -e . "$work/log" > "$work/null"
    jq -es 'any(.request_id == "one" and .status == 200 and .path == "/ping" and .method == "GET" and .bytes == 5 and
        (.ms | type) == "number" and (.time | type) == "string" and (.peer | startswith("127.0.0.1:")))' "$work/log"
    jq -es 'any(.path == "/no\"thing\u0085" and .status == 404)' "$work/log"
    jq -es 'any(.message == "ready" and .level == "info")' "$work/log"
}
lines_of_workers_are_in_the_same_form() {
    serve --log-format json --data-parallel-size 2
    kill -9 "$(pgrep -P $pid | head -n 1)"
    wait_until_loaded 3
    stop_server
    jq -es 'all(has("time") and has("level") and has("message"))' "$work/log"
}
requests_that_http_refuses_have_a_log_line() {
    serve --in-process --max-body-bytes 1024
    raw 'nonsense\r\n\r\n' | grep -q '^HTTP/1.1 400 '
    raw 'GET /%%ff?key=secret HTTP/1.1\r\nHost: a\r\n\r\n' | grep -q '^HTTP/1.1 400 '
    raw 'GET /ping?key=secret HTTP/1.1\r\nHost: a\r\nX-Request-Id: long\r\nx: %40000d\r\n\r\n' 0 | grep -q '^HTTP/1.1 431 '
    raw 'POST /tokenize HTTP/1.1\r\nHost: a\r\nX-Request-Id: big\r\nContent-Length: 1025\r\n\r\n' > "$work/refused"
    grep -q '^HTTP/1.1 413 ' "$work/refused"
    grep -qi '^x-request-id: big' "$work/refused"
    stop_server
    grep -qE '^20[^ ]+ 127[^ ]+ - "" 400 [0-9]+ bytes [0-9.]+ ms id=[0-9a-f]+ refused="the request line ' "$work/log"
    grep -qE ' GET "" 400 .* refused="the path ' "$work/log"
    grep -qE ' GET "/ping" 431 .* id=long refused="' "$work/log"
    grep -qE ' POST "/tokenize" 413 .* id=big refused="' "$work/log"
    [ "$(grep -c ' refused="' "$work/log")" = 4 ]
    not grep -q secret "$work/log"
}
requests_that_http_refuses_have_a_json_log_line() {
    serve --in-process --log-format json
    raw 'nonsense\r\n\r\n' > "$work/refused"
    call /metrics
    grep -q '^unmask_requests_total{model_name="tiny-block",route="none",status="400"} 1$' "$work/body"
    stop_server
    jq -es 'any(.status == 400 and .method == "" and .path == "" and (.refused | startswith("the request line")))' "$work/log"
}
access_lines_count_tokens_and_passes() {
    serve --in-process
    generate 20
    stop_server
    grep -qE 'POST "/v1/completions" 200 [0-9]+ bytes .* model="tiny-block" prompt=[0-9]+ completion=20 nfe=[0-9]+$' "$work/log"
}
disconnected_clients_are_499() {
    serve
    local worker client
    worker=$(pgrep -P $pid)
    kill -STOP "$worker" # keeps the request running
    generate 100 &
    client=$!
    wait_until_running
    pkill -P $client
    wait $client || true
    kill -CONT "$worker"
    wait_for 'POST "/v1/completions" 499 0 bytes .* completion=[0-9]* nfe=[0-9]*$' "$work/log"
    call /metrics
    grep -q '^unmask_requests_total{model_name="tiny-block",route="/v1/completions",status="499"} 1$' "$work/body"
    stop_server
    [ $rc = 0 ]
}
# When the client disconnects, only the worker knows the token counts. It is stopped, so that it can't finish before.
tokens_of_disconnected_clients_are_counted() {
    serve --threads 1
    local client worker tokens
    worker=$(pgrep -P $pid)
    generate 900 '"prompt": "<|im_start|>user\nTell me a story with a bee called Wanda and a candle.<|im_end|>\n<|im_start|>assistant\n", "accept_threshold": 1, "n": 8' &
    client=$!
    for _ in $(seq 600); do
        curl -sS -m 10 -o "$work/open" "$url/metrics"
        ! grep -qE '^unmask_steps_total\{.*\} ([4-9][0-9]|[0-9]{3,})' "$work/open" || break
        sleep 0.02
    done
    kill -STOP "$worker"
    pkill -P $client
    wait $client || true
    kill -CONT "$worker"
    wait_for 'POST "/v1/completions" 499 0 bytes' "$work/log"
    tokens=$(sed -nE 's/.* 499 0 bytes .* completion=([0-9]+) nfe=[0-9]+$/\1/p' "$work/log")
    [ "$tokens" -gt 0 ]
    call /metrics
    grep -q "^unmask_generation_tokens_total{model_name=\"tiny-block\"} $tokens\$" "$work/body"
    stop_server
}
a_blocked_log_does_not_block_requests() {
    serve_into_pipe
    fill_pipe
    call /ping
    [ "$status" = 200 ]
    cat <&4 > "$work/log" &
    wait_for '^unmask: warning: [0-9]* log lines were dropped because stderr was blocked$' "$work/log"
    call /version -H 'X-Request-Id: after'
    wait_for 'id=after$' "$work/log"
    stop_server
    [ $rc = 0 ]
    kill %%
    not grep -qvE '^(unmask: |20[0-9-]+T.* ms id=)' "$work/log" # there are only whole lines
}
a_blocked_log_does_not_block_the_shutdown() {
    serve_into_pipe
    fill_pipe
    stop_server
    [ $rc = 0 ]
}
no_access_log_means_none() {
    serve --in-process --no-access-log
    call /ping
    stop_server
    not grep -q /ping "$work/log"
}
metrics_count_requests_by_endpoint() {
    call /metrics
    [ "$status" = 200 ]
    [ "$(header content-type)" = 'text/plain; version=0.0.4; charset=utf-8' ]
    before=$(sed -n 's/^unmask_requests_total{model_name="tiny-block",route="\/version",status="200"} //p' "$work/body")
    call /version
    call /metrics
    grep -qx "unmask_requests_total{model_name=\"tiny-block\",route=\"/version\",status=\"200\"} $((${before:-0} + 1))" \
        "$work/body"
    grep -qx 'unmask_backend_up{model_name="tiny-block"} 1' "$work/body"
    not grep -q vllm: "$work/body"
}
metrics_and_page_can_be_left_out() {
    serve --in-process --no-metrics --no-page
    call /metrics
    error_is 404 not_found_error
    call /
    error_is 404 not_found_error
    stop_server
}
endpoints_that_do_the_same_ask_for_the_same_key() {
    "$UNMASK" list --json endpoints > "$work/out"
    jq -r '[.endpoints as $e | range(1; $e | length) | select($e[.].summary == "the same")
        | select($e[.].needs_key != $e[. - 1].needs_key) | $e[.].name] | join(" ")' "$work/out" > "$work/different"
    [ "$(cat "$work/different")" = '' ]
    [ "$(jq '[.endpoints[] | select(.summary == "the same")] | length' "$work/out")" -ge 2 ]
}
endpoints_are_listed_as_they_are() {
    try list endpoints
    grep -qx '  GET /v1/models  *the model and its adapters' "$work/out"
    try list --json endpoints
    jq -e '.endpoints[] | select(.path == "/health") | .needs_key == false' "$work/out"
    jq -r '.endpoints[] | select(.method == "GET" and (.path | contains("{") | not)) | .path' \
        "$work/out" > "$work/paths"
    [ "$(wc -l < "$work/paths")" -ge 8 ]
    while read -r path; do
        call "$path" > "$work/null"
        [ "$status" != 404 ]
        [ "$status" != 405 ]
        [ "$status" != 500 ]
    done < "$work/paths"
}

sigterm_ends_it_with_status_0() {
    serve --in-process
    stop_server
    [ $rc = 0 ]
    grep -q '^unmask: stopping' "$work/log"
    serve
    kill -INT $pid
    rc=0
    wait $pid || rc=$?
    [ $rc = 0 ]
}
running_requests_end_before_the_server_does() {
    serve
    local worker first
    worker=$(pgrep -P $pid)
    kill -STOP "$worker" # keeps the request running until SIGTERM
    generate 100 &
    first=$!
    wait_until_running
    kill -TERM $pid
    wait_for 'stopping; 1 request may' "$work/log"
    kill -CONT "$worker"
    wait $first
    grep -q '"finish_reason":"length"' "$work/first"
    rc=0
    wait $pid || rc=$?
    [ $rc = 0 ]
}
# The worker hangs. Without the second signal the server would wait for the grace time.
a_second_signal_ends_it_at_once() {
    serve --shutdown-grace 1000
    local worker
    worker=$(pgrep -P $pid)
    kill -STOP "$worker"
    generate 100 &
    wait_until_running
    kill -TERM $pid
    wait_for 'stopping; ' "$work/log"
    kill -TERM $pid
    rc=0
    wait $pid || rc=$?
    [ $rc = 0 ]
    grep -q 'stopping at once' "$work/log"
    not kill -0 "$worker"
}

a_used_port_is_an_error() {
    not_served --port "${url##*:}"
    [ "$rc" = 2 ]
    grep -q "port ${url##*:}: Address already in use; .*another port" "$work/err"
}
a_privileged_port_is_an_error() {
    rc=0
    local drop=
    [ "$(id -u)" != 0 ] || drop='setpriv --bounding-set -net_bind_service --inh-caps -net_bind_service'
    [ "$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start)" -gt 80 ] || skip any user may listen at any port here
    $drop "$UNMASK" serve --model models/tiny-block --in-process --port 80 2> "$work/err" || rc=$?
    [ "$rc" = 2 ]
    grep -q 'ports below 1024 need privileges' "$work/err"
}
an_unknown_host_is_an_error() {
    not_served --host no.such.host.invalid
    [ "$rc" = 2 ]
    grep -q 'unknown host' "$work/err"
}
an_invalid_state_dir_is_an_error() {
    touch "$work/file"
    not_served --state-dir "$work/file"
    [ "$rc" = 2 ]
    grep -q "$work/file.*: Not a directory" "$work/err"
    not_served --state-dir "$work/file/below"
    [ "$rc" = 2 ]
    grep -q "$work/file/below: .*: Not a directory" "$work/err"
    [ "$(stat -c %a "$work/state")" = 700 ]
}
a_state_dir_is_checked_before_the_workers_start() {
    local name verb
    mkdir "$work/private"
    touch "$work/private/lock"
    for name in files batches responses; do
        for verb in 'create the folder' 'write to the folder'; do
            [ "$verb" = 'create the folder' ] || mkdir -m 500 "$work/private/$name"
            chmod 500 "$work/private"
            rc=0
            with_permissions timeout 60 "$program" serve --model models/tiny-block --port 0 --state-dir "$work/private" \
                2> "$work/err" || rc=$?
            chmod -R u+rwX "$work/private"
            [ "$rc" = 2 ]
            [ "$(cat "$work/err")" = "unmask serve: --state-dir: $work/private/$name: cannot $verb: Permission denied" ]
        done
    done
}
invalid_options_are_errors() {
    not_served --root-path llm
    [ "$rc" = 2 ]
    grep -q -- '--root-path: expected a path' "$work/err"
    not_served --api-key ' , '
    [ "$rc" = 2 ]
    grep -q -- '--api-key: expected a key' "$work/err"
    not_served --tool-call-parser nonsense
    [ "$rc" = 2 ]
    grep -q 'tool_call_parser: unknown format "nonsense"' "$work/err"
    not_served --reasoning-parser nonsense
    [ "$rc" = 2 ]
    not_served --remote-workers 1
    [ "$rc" = 2 ]
    grep -q -- '--remote-workers connects worker processes' "$work/err"
    not_served --zmq-command-addr tcp://127.0.0.1:1
    [ "$rc" = 2 ]
    not_served --zmq-event-addr tcp://127.0.0.1:1
    [ "$rc" = 2 ]
    not_served word
    [ "$rc" = 2 ]
    grep -q 'unexpected argument "word"' "$work/err"
    try serve
    [ "$rc" = 2 ]
    grep -q -- --model "$work/err"
}
missing_model_is_status_3() {
    not_served --model "$work/nothing"
    [ "$rc" = 3 ]
    grep -q "$work/nothing" "$work/err"
}
worker_that_cannot_start_ends_the_server_with_its_words() {
    mkdir "$work/hollow"
    cp models/tiny-block/*.json "$work/hollow"
    not_served --model "$work/hollow" --port 0
    [ "$rc" = 3 ]
    tail -n 1 "$work/err" | grep -q "^unmask serve: .*$work/hollow.*safetensors"
}
section_and_environment_reach_the_server() {
    printf 'model: models/tiny-block\nserve:\n  port: 0\n  served_model_name: from-file\n  in_process: true\n' > "$work/c.yaml"
    UNMASK_LOG_FORMAT=json try serve --config "$work/c.yaml" --print-config
    grep -q "^served_model_name: \"from-file\"  # file $work/c.yaml:4:22" "$work/out"
    grep -q '^log_format: json  # environment UNMASK_LOG_FORMAT' "$work/out"
    model=models/tiny-block serve --config "$work/c.yaml"
    call /v1/models/from-file
    [ "$status" = 200 ]
    stop_server
}

claims_all
