#!/bin/bash
# `unmask chat --url` and `unmask run --url`: a running server answers instead of a local model.
source tests/cli/claims.bash
source tests/server/serve.bash
MODEL=models/tiny-block
KEY=ten-green-bottles

serve --in-process --api-key "$KEY"
shared_url=$url shared_pid=$pid
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT

# Runs a conversation with the lines of standard input on the shared server.
talk() {
    rc=0
    "$UNMASK" chat --url "$shared_url" --api-key "$KEY" --max-tokens 24 "$@" > "$work/out" 2> "$work/err" || rc=$?
    tail -n 40 "$work/out" "$work/err"
}
locally() { "$UNMASK" chat --model "$MODEL" --max-tokens 24 "$@" > "$work/local" 2> "$work/local.err"; }
# A conversation on a terminal, with input typed by the test.
begin_typing() {
    local command
    mkfifo "$work/keys"
    printf -v command '%q ' "$UNMASK" chat --url "$url" --api-key "$KEY" "$@"
    script -qec "stty cols 60 rows 20; $command" /dev/null < "$work/keys" > "$work/out" &
    typist=$!
    exec 9> "$work/keys"
    wait_for '> ' "$work/out"
}
type_keys() { printf '%b' "$1" >&9; }
end_typing() {
    exec 9>&-
    rc=0
    wait "$typist" || rc=$?
    cat -v "$work/out"
    rm "$work/keys"
}
# A request with a long answer.
slow='--ignore-eos --max-tokens 900 --accept-threshold 1'

claims_begin

same_answers_as_those_of_a_local_model() {
    lines=$'Hello\nWhat is 12 + 30?\nAnd 5 + 5?'
    talk --temperature 0.8 --seed 11 --buffer-size 2 <<< "$lines"
    locally --temperature 0.8 --seed 11 --buffer-size 2 <<< "$lines"
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
    cmp "$work/out" "$work/local"
}
set_sends_a_parameter_and_checks_it_first() {
    lines=$'/set seed 5\n/set temperature=1.5\n/set max_new_tokens 9\nHello there'
    talk <<< "$lines"
    locally <<< "$lines"
    [ "$rc" = 0 ]
    cmp "$work/out" "$work/local"
    talk <<< $'/set accept_threshold 2\n/set acept_threshold 1'
    [ "$rc" = 1 ]
    grep -q '0\.\.1' "$work/err"
    grep -q 'did you mean accept_threshold' "$work/err"
}
set_refuses_values_that_the_server_does_not_support() {
    talk <<< $'/set sampler foo\n/set strategy bar\n/set retention none\n/params\nWhat is 12 + 30?'
    cp "$work/out" "$work/refused"
    [ "$rc" = 1 ]
    grep -q 'sampler: the server does not support "foo"; .*confidence, ' "$work/err"
    grep -q 'decoding_strategy: the server does not support "bar"; .*multi_bd' "$work/err"
    grep -q 'retention: the server does not support "none"; .*attention' "$work/err"
    [ "$(grep -c '^unmask chat: ' "$work/err")" = 3 ]
    grep -qE "^ *sampler +server's default$" "$work/err"
    talk <<< 'What is 12 + 30?'
    [ "$rc" = 0 ]
    cmp "$work/out" "$work/refused"
    talk <<< $'/set sampler LowConfidence\n/set sampler threshold\n/set sampler auto\n/set seed auto\nHello'
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ] || not grep -v '^\[' "$work/err"
}
params_marks_values_that_the_server_decides() {
    talk --top-k 7 <<< $'/set min_p 0.25\n/params'
    grep -qE '^ *top_k +7$' "$work/err"
    grep -qE '^ *min_p +0\.25$' "$work/err"
    grep -qE "^ *temperature +server's default$" "$work/err"
}
tools_system_message_and_variables_reach_the_template() {
    echo '[{"type": "function", "function": {"name": "add"}}]' > "$work/tools.json"
    "$UNMASK" run --url "$shared_url" --api-key "$KEY" --json --system 'Be brief.' --tools "$work/tools.json" Hello > "$work/long"
    "$UNMASK" run --url "$shared_url" --api-key "$KEY" --json Hello > "$work/short"
    [ "$(jq .prompt_tokens "$work/long")" -gt "$(jq .prompt_tokens "$work/short")" ]
    talk --chat-template-kwargs '{"messages": 1}' <<< Hello
    [ "$rc" = 1 ]
    grep -q 'messages' "$work/err"
}
stats_use_the_counts_of_the_server() {
    talk <<< $'Hello\nHello\n/stats'
    grep -qE 'answers +2, [1-9][0-9]* tokens in [1-9][0-9]* passes' "$work/err"
    grep -qE 'prompts +[1-9][0-9]* tokens, [0-9]+ of them' "$work/err"
    grep -qF "$shared_url, tiny-block, unmask " "$work/err"
}
reset_forgets_the_conversation() {
    talk <<< $'What is 12 + 30?\n/reset\nWhat is 12 + 30?'
    [ "$rc" = 0 ]
    [ "$(sort -u "$work/out" | wc -l)" = 1 ]
}
too_long_conversation_loses_its_oldest_turns() {
    serve --in-process --max-model-len 64
    "$UNMASK" chat --url "$url" <<< $'Hello there\nHello again\nHello' > "$work/out" 2> "$work/err"
    cat "$work/err"
    grep -q 'dropped its first 1 turn' "$work/err"
    [ "$(grep -c . "$work/out")" = 3 ]
}
wrong_api_key_is_reported_with_advice() {
    for key in '' wrong; do
        try chat --url "$shared_url" ${key:+--api-key "$key"}
        [ "$rc" = 2 ]
        grep -q -e '--api-key or UNMASK_API_KEY' "$work/err"
    done
    UNMASK_API_KEY=$KEY "$UNMASK" chat --url "$shared_url" --max-tokens 4 <<< Hello
}
refused_parameter_is_named() {
    talk --sampler nothing_of_the_kind <<< Hello
    [ "$rc" = 1 ]
    grep -q 'the server refuses: sampler: no sampler is named' "$work/err"
    [ ! -s "$work/out" ]
}
model_of_the_server_can_be_chosen() {
    talk --served-model-name tiny-block <<< Hello
    [ "$rc" = 0 ]
    talk --served-model-name elsewhere <<< Hello
    [ "$rc" = 1 ]
    grep -q '"elsewhere" does not exist' "$work/err"
}
missing_server_is_reported_with_advice() {
    try chat --url http://127.0.0.1:1
    [ "$rc" = 1 ]
    grep -q "unmask serve" "$work/err"
    grep -q -e '--url' "$work/err"
}
invalid_url_is_refused() {
    try chat --url localhost:8000
    [ "$rc" = 2 ]
    grep -q 'http://HOST:PORT' "$work/err"
    try chat --url https://127.0.0.1:8000
    [ "$rc" = 2 ]
    grep -q proxy "$work/err"
}
local_model_options_are_refused_with_url() {
    for option in '--model models/tiny-block' '--threads 2' '--max-model-len 64'; do
        talk $option <<< Hello
        [ "$rc" = 2 ]
        grep -q -e "${option%% *} needs a local model" "$work/err"
    done
    UNMASK_MODEL=models/tiny-full "$UNMASK" chat --url "$shared_url/v1/" --api-key "$KEY" --max-tokens 4 <<< Hello
}
settled_text_stays_if_the_server_disconnects() {
    serve --in-process
    mkfifo "$work/lines"
    "$UNMASK" chat --url "$url" $slow < "$work/lines" > "$work/out" 2> "$work/err" &
    talker=$!
    exec 8> "$work/lines"
    echo Hello >&8
    for _ in $(seq 200); do [ ! -s "$work/out" ] || break; sleep 0.05; done
    kill -9 $pid
    wait_for 'the connection' "$work/err"
    exec 8>&-
    rc=0
    wait $talker || rc=$?
    [ "$rc" = 1 ]
    cat "$work/out" "$work/err"
    [ "$(wc -c < "$work/out")" -gt 1 ]
}
interrupt_stops_the_answer_in_client_and_server() {
    serve --in-process --api-key "$KEY"
    begin_typing $slow
    type_keys 'Hello\n'
    wait_for '░' "$work/out"
    type_keys '\003'
    wait_for 'aborted' "$work/out"
    for _ in $(seq 100); do
        running=$(curl -sS -m 10 "$url/metrics" -H "Authorization: Bearer $KEY" | sed -nE 's/^unmask_requests_running\{?.*\}? ([0-9]+)$/\1/p')
        [ "$running" != 0 ] || break
        sleep 0.1
    done
    [ "$running" = 0 ]
    type_keys '/stats\n'
    wait_for 'answers  *1,' "$work/out"
    type_keys '/quit\n'
    end_typing
    [ "$rc" = 0 ]
}
terminal_shows_the_same_as_with_a_local_model() {
    on_terminal run --url "$shared_url" --api-key "$KEY" --quiet --max-tokens 40 --accept-threshold 1 'What is 12 + 30?'
    screen > "$work/there"
    on_terminal run --model "$MODEL" --quiet --max-tokens 40 --accept-threshold 1 'What is 12 + 30?'
    screen | diff - "$work/there"
    grep -q 42 "$work/there"
}
run_prints_the_answer_or_json() {
    "$UNMASK" run --url "$shared_url" --api-key "$KEY" --max-tokens 24 'What is 12 + 30?' > "$work/there"
    "$UNMASK" run --model "$MODEL" --max-tokens 24 'What is 12 + 30?' | cmp - "$work/there"
    "$UNMASK" run --url "$shared_url" --api-key "$KEY" --json --seed 3 'What is 12 + 30?' > "$work/there"
    "$UNMASK" run --model "$MODEL" --json --seed 3 'What is 12 + 30?' > "$work/here"
    for member in text token_ids finish_reason nfe seed prompt_tokens completion_tokens; do
        diff <(jq -c ".$member" "$work/here") <(jq -c ".$member" "$work/there")
    done
}
run_sends_raw_prompts_and_stop_strings() {
    "$UNMASK" run --url "$shared_url" --api-key "$KEY" --raw --max-tokens 12 --ignore-eos --seed 1 'What is 12' > "$work/there"
    "$UNMASK" run --model "$MODEL" --raw --max-tokens 12 --ignore-eos --seed 1 'What is 12' | cmp - "$work/there"
    [ "$("$UNMASK" run --url "$shared_url" --api-key "$KEY" --stop ' =' 'What is 12 + 30?')" = '12 + 30' ]
}
examples_of_the_served_model_are_shown() {
    local want='Try: What is 12 + 30? | Sort these numbers: 42, 7, 19, 3. | Tell me a story'
    url=$shared_url
    begin_typing
    type_keys '/quit\n'
    end_typing
    [ "$rc" = 0 ]
    grep -qF "$want" "$work/out"
    begin_typing --quiet
    type_keys '/quit\n'
    end_typing
    not grep -q 'Try: ' "$work/out"
    try run --url "$shared_url" --api-key "$KEY" ''
    [ "$rc" = 2 ]
    grep -qF 'the prompt is empty' "$work/err"
    grep -qF "$want" "$work/err"
    try run --url "$shared_url" --api-key wrong ''
    [ "$rc" = 2 ]
    not grep -q 'Try: ' "$work/err"
    try run --url localhost:8000 ''
    [ "$rc" = 2 ]
    [ "$(cat "$work/err")" = 'unmask run: the prompt is empty' ]
}
options_that_need_a_local_model_are_refused() {
    for option in --show-prompt --step-map '--profile x.json'; do
        try run --url "$shared_url" $option Hello
        [ "$rc" = 2 ]
        grep -q -e "${option%% *} needs a local model" "$work/err"
    done
}

claims_all
