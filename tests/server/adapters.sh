#!/bin/bash
# Adapters that are loaded and unloaded while the server runs.
source tests/cli/claims.bash
source tests/server/serve.bash
MODEL=models/tiny-block
source tests/cli/adapter.bash

trap 'rm -rf "$work"' EXIT
mkdir "$work/adapters" "$work/elsewhere"
make_adapter "$work/adapters/parrot"
make_adapter "$work/elsewhere/parrot"
# A second adapter with other values.
make_adapter "$work/adapters/crow"
sed -i 's/"lora_alpha": 16/"lora_alpha": 8/' "$work/adapters/crow/adapter_config.json"
ln -s "$work/elsewhere/parrot" "$work/adapters/link"
prompt='"prompt": "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n", "temperature": 0, "ignore_eos": true'

# load NAME PATH OPTION..., unload NAME: make these requests.
load() { post /v1/load_lora_adapter "{\"lora_name\": \"$1\", \"lora_path\": \"$2\"}" "${@:3}"; }
unload() { post /v1/unload_lora_adapter "{\"lora_name\": \"$1\"}" "${@:2}"; }
# says MODEL: prints the answer of a model.
says() {
    post /v1/completions "{$prompt, \"model\": \"$1\", \"max_tokens\": 16}" > "$work/null"
    [ "$status" = 200 ] || return 1
    member 'choices[0].text'
}
# expected ADAPTER: prints the answer of a server that starts with the adapter.
expected() {
    (serve --in-process --lora "late=$work/adapters/$1" > "$work/null" && says late && stop_server)
}
# loaded: prints the adapters of each worker.
loaded() {
    call /call/list_models -X POST > "$work/null"
    member 'result | map([.[1:][].name] | join(" ")) | join(" | ")'
}

claims_begin

a_loaded_adapter_answers_as_one_of_the_start() {
    local parrot crow
    parrot=$(expected parrot) crow=$(expected crow)
    [ "$parrot" != "$crow" ]
    serve --data-parallel-size 2 --lora-dir "$work/adapters"
    [ "$(says tiny-block)" != "$parrot" ]
    post /v1/completions "{$prompt, \"model\": \"late\"}"
    [ "$status" = 404 ]
    load late parrot
    [ "$status" = 200 ]
    [ "$(member 'loaded_adapters.late')" = "$(realpath "$work/adapters/parrot")" ]
    [ "$(says late)" = "$parrot" ]
    [ "$(loaded)" = 'late | late' ]
    load crow "$work/adapters/crow"
    [ "$(says crow)" = "$crow" ]
    [ "$(says late)" = "$parrot" ]
    call /v1/models
    [ "$(member 'data | map(.id) | join(" ")')" = 'tiny-block late crow' ]
    [ "$(member 'data[1].parent')" = tiny-block ]
    post /generate "{\"text\": \"One\", \"lora_path\": \"crow\", \"sampling_params\": {\"max_new_tokens\": 2}}"
    [ "$status" = 200 ]
    unload late
    [ "$status" = 200 ]
    [ "$(member 'loaded_adapters | keys | join(" ")')" = crow ]
    [ "$(loaded)" = 'crow | crow' ]
    post /v1/completions "{$prompt, \"model\": \"late\"}"
    [ "$status" = 404 ]
    load late crow
    [ "$(says late)" = "$crow" ]
}
stored_results_use_it() {
    serve --in-process --lora-dir "$work/adapters"
    post /v1/generate '{"prompt": "One", "max_tokens": 2, "adapter": "late"}'
    [ "$status" = 400 ]
    load late parrot
    post /v1/generate '{"prompt": "One", "max_tokens": 2, "adapter": "late"}'
    [ "$status" = 200 ]
}
requests_that_use_it_run_to_their_end() {
    local want got slow
    serve --in-process --lora-dir "$work/adapters" --max-loras 1
    load late parrot
    post /v1/completions "{$prompt, \"model\": \"late\", \"max_tokens\": 200, \"accept_threshold\": 1}" > "$work/null"
    want=$(member 'choices[0].text')
    curl -sS -m 100 -H 'Content-Type: application/json' -o "$work/slow" \
        -d "{$prompt, \"model\": \"late\", \"max_tokens\": 200, \"accept_threshold\": 1}" "$url/v1/completions" &
    slow=$!
    for _ in $(seq 200); do
        call /load > "$work/null"
        [ "$(member server_load)" != 1 ] || break
        sleep 0.02
    done
    unload late
    [ "$status" = 200 ]
    load late crow
    [ "$status" = 400 ]
    [[ $(member error.message) == *places* ]]
    wait $slow
    got=$(jq -r '.choices[0].text' "$work/slow")
    [ -n "$got" ]
    [ "$got" = "$want" ]
    load late crow
    [ "$status" = 200 ]
}
a_restarted_worker_has_it() {
    local before
    serve --lora-dir "$work/adapters"
    load late parrot
    before=$(says late)
    kill -9 "$(pgrep -P $pid)"
    wait_for 'worker 0 died' "$work/log"
    for _ in $(seq 200); do
        [ "$(grep -c 'worker 0 is up' "$work/log")" != 2 ] || break
        sleep 0.05
    done
    [ "$(says late)" = "$before" ]
}
a_worker_that_connects_to_a_new_server_has_room_again() {
    local addresses=(--zmq-command-addr "ipc://$work/command" --zmq-event-addr "ipc://$work/event")
    serve_no_wait --remote-workers 1 --lora-dir "$work/adapters" "${addresses[@]}"
    "$UNMASK" worker --model "$model" --threads 1 --index 0 --lora "first=$work/adapters/parrot" --max-loras 1 \
        "${addresses[@]}" 2> "$work/worker" &
    a=$!
    trap 'kill -9 $pid $a 2> /dev/null || true' EXIT
    wait_for 'worker 0 is up' "$work/log"
    load late parrot
    [ "$(loaded)" = 'first late' ]
    load first crow
    [ "$status" = 400 ]
    [ "$(loaded)" = 'first late' ]
    kill -9 $pid
    wait $pid || true
    serve_no_wait --remote-workers 1 --lora-dir "$work/adapters" "${addresses[@]}" || { kill -9 $a; false; }
    trap 'kill -9 $pid $a 2> /dev/null || true' EXIT
    wait_for 'worker 0 is up' "$work/log"
    [ "$(loaded)" = first ]
    load late crow
    [ "$status" = 200 ]
    [ "$(loaded)" = 'first late' ]
}
a_load_that_one_worker_refuses_is_taken_back() {
    local i
    serve_no_wait --remote-workers 2 --lora-dir "$work/adapters" --zmq-command-addr "ipc://$work/command" \
        --zmq-event-addr "ipc://$work/event"
    for i in 0 1; do
        "$UNMASK" worker --model "$model" --threads 1 --index $i --max-loras $((2 * i)) \
            --zmq-command-addr "ipc://$work/command" --zmq-event-addr "ipc://$work/event" 2> "$work/worker.$i" &
        [ $i = 0 ] && a=$! || b=$!
    done
    trap 'kill -9 $pid $a $b 2> /dev/null || true' EXIT
    wait_for 'worker 0 is up' "$work/log"
    wait_for 'worker 1 is up' "$work/log"
    load late parrot
    [ "$status" = 400 ]
    [[ $(member error.message) == *'worker 0'*--max-loras* ]]
    [ "$(loaded)" = ' | ' ]
    post /v1/completions "{$prompt, \"model\": \"late\"}"
    [ "$status" = 404 ]
}
only_folders_below_the_allowed_one_are_read() {
    local path
    serve --in-process --lora-dir "$work/adapters"
    for path in ../elsewhere/parrot "$work/elsewhere/parrot" link . '' "$work/adapters" "$work/adapters/../elsewhere/parrot" \
        none parrot/adapter_config.json / /etc; do
        load late "$path"
        [ "$status" = 400 ]
        [ "$(member error.param)" = lora_path ]
        [[ $(member error.message) == *'below --lora-dir'* ]]
    done
    mkdir -p "$work/adapters/empty"
    load late empty
    [ "$status" = 400 ]
    [[ $(member error.message) == *adapter_config.json* ]]
    post /call/load_lora_adapter "{\"name\": \"late\", \"path\": \"$work/elsewhere/parrot\"}"
    [ "$status" = 404 ]
    [ "$(loaded)" = '' ]
}
names_are_plain_and_new() {
    local name
    serve --in-process --lora-dir "$work/adapters" --lora "first=$work/adapters/crow"
    for name in '' a/b .hidden 'a b' 'ü' tiny-block first "$(printf 'x%.0s' $(seq 65))" 'a\nb'; do
        load "$name" parrot
        [ "$status" = 400 ]
        [ "$(member error.param)" = lora_name ]
    done
    load again parrot
    [ "$status" = 200 ]
    load again parrot
    [ "$status" = 400 ]
    unload first
    [ "$status" = 400 ]
    unload nobody
    [ "$status" = 404 ]
    post /v1/load_lora_adapter '{"lora_name": "x"}'
    [ "$(member error.param)" = lora_path ]
    post /v1/load_lora_adapter '{"lora_name": "x", "lora_path": "crow", "colour": 1}'
    [ "$(member error.param)" = colour ]
    post /load_lora_adapter '{"lora_name": "x", "lora_path": "crow", "pinned": false, "lora_int_id": 3}'
    [ "$(member success)" = true ]
}
a_folder_that_cannot_be_read_is_refused_at_the_start() {
    local dir why
    touch "$work/adapters/file"
    mkdir -p "$work/closed" "$work/listed"
    chmod 000 "$work/closed"
    chmod 444 "$work/listed"
    while read -r dir why; do
        rc=0
        with_permissions timeout 60 "$UNMASK" serve --model $MODEL --port 0 --lora-dir "$work/$dir" 2> "$work/err" || rc=$?
        [ "$rc" = 2 ]
        [ "$(cat "$work/err")" = "unmask serve: --lora-dir: cannot read the folder $work/$dir: $why" ]
    done << END
        none No such file or directory
        none/below No such file or directory
        adapters/file Not a directory
        closed Permission denied
        listed Permission denied
END
}
it_is_off_without_a_folder() {
    serve --in-process
    load late "$work/adapters/parrot"
    [ "$status" = 403 ]
    [[ $(member error.message) == *--lora-dir* ]]
    unload late
    [ "$status" = 403 ]
}
admins_load_and_pages_of_other_sites_do_not() {
    {
        echo "alice $(printf %s alice-secret | sha256sum | cut -c 1-64)"
        echo "ops $(printf %s ops-secret | sha256sum | cut -c 1-64) admin"
    } > "$work/keys"
    serve --in-process --lora-dir "$work/adapters" --api-key-file "$work/keys"
    load late parrot
    [ "$status" = 401 ]
    load late parrot -H 'x-api-key: alice-secret'
    [ "$status" = 403 ]
    unload late -H 'x-api-key: alice-secret'
    [ "$status" = 403 ]
    load late parrot -H 'x-api-key: ops-secret' -H 'Origin: http://evil.test'
    [ "$status" = 403 ]
    load late parrot -H 'x-api-key: ops-secret'
    [ "$status" = 200 ]
}

claims_all
