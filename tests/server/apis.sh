#!/bin/bash
# The APIs of Diffulex, SGLang, llama.cpp, vLLM and dLLM-Serve: every route, every member of their responses, streams,
# and errors that name the invalid field.
source tests/cli/claims.bash
source tests/server/serve.bash
MODEL=models/tiny-block
source tests/cli/adapter.bash

serve --in-process
shared_pid=$pid
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT

question='{"messages": [{"role": "user", "content": "A book has 110 pages. Hana reads 12 pages a day for 8 days. How many pages are left?"}]}'
answer='Hana reads 12 x 8 = 96 pages. Then 110 - 96 = 14. There are 14 pages left.'
prompt=$(curl -sS -H 'Content-Type: application/json' -d "$question" "$url/apply-template" | jq .prompt)
# Makes a request slow: 900 tokens, one in each pass.
slow='"max_tokens": 900, "ignore_eos": true, "accept_threshold": 1'

# members_are PATH NAME...: fails unless the object has exactly these members. has_members: at least these.
members_are() {
    local path=$1
    shift
    diff <(jq -r "$path | keys[]" "$work/body") <(printf '%s\n' "$@" | sort)
}
has_members() {
    local path=$1 name
    shift
    for name in "$@"; do jq -e "$path | has(\"$name\")" "$work/body" || return 1; done
}
# refuses PATH BODY FIELD: fails unless the response is 400 and names the field.
refuses() {
    local path=$1 body=$2 param=$3
    post "$path" "$body"
    [ "$status" = 400 ]
    [ "$(member error.type)" = invalid_request_error ]
    [ "$(member error.param)" = "$param" ]
}
# Posts a request and writes the events of its stream to $work/events, one JSON text a line. Fails unless [DONE] ends
# it.
stream() {
    post "$1" "$2"
    [ "$status" = 200 ]
    [ "$(header content-type)" = text/event-stream ]
    [ "$(tail -n 2 "$work/body")" = 'data: [DONE]' ]
    sed -n 's/^data: //p' "$work/body" | grep -v '^\[DONE\]$' > "$work/events"
}
event() { jq -rs "$1" "$work/events"; }
# Fails unless the streams of the three APIs have the same text as a whole response to a request with these fields.
streams_equal_the_whole_response() {
    local fields=$1 whole
    post /completion "{\"prompt\": $prompt, $fields}"
    whole=$(jq .content "$work/body")
    stream /completion "{\"prompt\": $prompt, \"stream\": true, $fields}"
    [ "$(jq -s 'map(.content) | join("")' "$work/events")" = "$whole" ]
    stream /generate "{\"text\": $prompt, \"stream\": true, \"sampling_params\": {$fields}}"
    [ "$(jq -s '.[-1].text' "$work/events")" = "$whole" ]
    [ "$(jq -s '.[-2].text' "$work/events")" = "$whole" ]
    stream /generate "{\"prompt\": $prompt, \"stream\": true, \"stream_mode\": \"block_append\", $fields}"
    [ "$(jq -s '.[:-1] | map(.text) | join("")' "$work/events")" = "$whole" ]
    [ "$(jq -s '.[-1].text' "$work/events")" = "$whole" ]
}
# Starts a stream in the background and waits for its first event. Its output goes to $work/slow.
stream_slowly() {
    rm -f "$work/slow"
    touch "$work/slow"
    curl -sS -N -m 60 -H 'Content-Type: application/json' -d "$2" "$url$1" > "$work/slow" &
    slow_pid=$!
    wait_for '^data: ' "$work/slow"
}
slow_events() { sed -n 's/^data: {/{/p' "$work/slow" | jq -rs "$1"; }
# Starts a stream and kills the worker after the first event.
stream_until_the_worker_dies() {
    serve
    stream_slowly "$1" "$2"
    kill -KILL "$(pgrep -P $pid)"
    wait $slow_pid
    stop_server
    [ "$(tail -n 2 "$work/slow")" = 'data: [DONE]' ]
}

# Waits for the result of the request with this id.
fetch() {
    for _ in $(seq 200); do
        call "/v1/result/$1"
        [ "$(member status)" = running ] || return 0
        sleep 0.05
    done
}

# all_refuse MEMBERS FIELD: fails unless every endpoint that generates refuses these members with the same message,
# which names the field.
all_refuse() {
    local fields=$1 param=$2 path body words=
    while read -r path body; do
        refuses "$path" "$body" "$param"
        : "${words:=$(member error.message)}"
        [ "$(member error.message | sed 's/^prompt 0: //')" = "$words" ]
    done <<- END
	/v1/chat/completions {"messages": [{"role": "user", "content": "a"}], $fields}
	/v1/completions {"prompt": "a", $fields}
	/generate {"prompt": "a", $fields}
	/generate {"text": "a", "sampling_params": {$fields}}
	/completion {"prompt": "a", $fields}
	/v1/generate {"prompt": "a", $fields}
	/v1/generate_batch {"prompts": ["a", "b"], $fields}
	END
}

# Prints the route of every API with the beginning of a body.
prompts() {
    printf '%s\n' '/generate {"prompt": "a"' '/generate {"text": "a"' '/completion {"prompt": "a"' '/v1/generate {"prompt": "a"' \
        '/v1/completions {"prompt": "a"' '/v1/chat/completions {"messages": [{"role": "user", "content": "a"}]'
}

claims_begin

# ---- /generate, Diffulex -----------------------------------------------------------------------------------------------

generate_answers_with_every_member() {
    post /generate "{\"prompt\": $prompt, \"max_tokens\": 64, \"temperature\": 0, \"seed\": 5}"
    [ "$status" = 200 ]
    [ "$(member text)" = "$answer" ]
    [ "$(member full_text)" = "$answer" ]
    members_are . id text token_ids nfe finish_reason full_text full_token_ids engine_decode_time_s \
        engine_decode_tokens engine_decode_tps usage seed
    members_are .usage prompt_tokens completion_tokens total_tokens prompt_tokens_details nfe tpf engine_decode_time_s \
        engine_decode_tps ttft_s
    [ "$(member 'usage | (.tpf * .nfe - .completion_tokens | fabs) < 1e-6')" = true ]
    member id | grep -qxE 'unmask-[0-9a-f]{32}'
    [ "$(member finish_reason)" = eos_token_generated ]
    [ "$(member seed)" = 5 ]
    [ "$(member 'token_ids | length')" = "$(member usage.completion_tokens)" ]
    [ "$(member 'full_token_ids | length')" = "$(member 'token_ids | length + 1')" ]
}
generate_takes_token_ids_like_their_text() {
    ids=$(curl -sS -H 'Content-Type: application/json' -d "$question" "$url/tokenize" | jq -c .tokens)
    post /generate "{\"prompt\": $ids, \"temperature\": 0}"
    [ "$(member text)" = "$answer" ]
}
generate_has_the_defaults_of_its_api() {
    post /generate "{\"prompt\": $prompt, \"ignore_eos\": true, \"seed\": 1}"
    [ "$(member usage.completion_tokens)" = 512 ]
    [ "$(member finish_reason)" = max_new_tokens_reached ]
    hot=$(member text)
    post /generate "{\"prompt\": $prompt, \"ignore_eos\": true, \"seed\": 1, \"temperature\": 1, \"max_tokens\": 512}"
    [ "$(member text)" = "$hot" ]
}
generate_has_the_stop_string_in_the_full_text() {
    post /generate "{\"prompt\": $prompt, \"temperature\": 0, \"stop\": [\" pages\"]}"
    [ "$(member text)" = 'Hana reads 12 x 8 = 96' ]
    [ "$(member full_text)" = 'Hana reads 12 x 8 = 96 pages' ]
    [ "$(member finish_reason)" = stop_string_matched ]
}
generate_returns_further_members_on_request() {
    post /generate "{\"prompt\": $prompt, \"temperature\": 0, \"logprobs\": 2, \"return_step_map\": true, \"return_trajectory\": true, \"return_timings\": true}"
    n=$(member usage.completion_tokens)
    [ "$(member 'logprobs | length')" = "$n" ]
    [ "$(member 'logprobs[0].top | length')" = 2 ]
    members_are '.logprobs[0]' token_id logprob top
    [ "$(member 'step_map | length')" = "$n" ]
    [ "$(member 'trajectory | length')" -ge 1 ]
    has_members . timings
    post /generate "{\"prompt\": $prompt, \"max_tokens\": 8, \"return_token_ids\": true}"
    [ "$(grep -o '"token_ids"' "$work/body" | wc -l)" = 1 ]
}
generate_streams_snapshots_by_default() {
    stream /generate "{\"prompt\": $prompt, \"temperature\": 0, \"stream\": true}"
    [ "$(event '.[:-1] | map(.event) | unique | join(" ")')" = buffer_snapshot ]
    [ "$(event '.[-1].event')" = final ]
    [ "$(event '.[-1].text')" = "$answer" ]
    event '.[0] | keys[]' > "$work/keys"
    for key in id token_offset absolute_start absolute_end text token_ids nfe finished engine_decode_time_s \
        engine_decode_tokens engine_decode_tps mask_token_id mask_positions stable_len blocks confidence pass tokens; do
        grep -qx $key "$work/keys"
    done
    [ "$(event 'map(.id) | unique | length')" = 1 ]
    [ "$(event 'all(.[:-1][]; .absolute_end - .absolute_start == (.token_ids | length))')" = true ]
}
generate_streams_settled_text_on_request() {
    stream /generate "{\"prompt\": $prompt, \"temperature\": 0, \"stream\": true, \"stream_mode\": \"block_append\"}"
    [ "$(event '.[:-1] | map(.event) | unique | join(" ")')" = append ]
    [ "$(event '.[:-1] | map(.text) | join("")')" = "$answer" ]
    [ "$(event '.[-1].text')" = "$answer" ]
    [ "$(event '[.[:-1][].token_ids[]] == .[-1].token_ids')" = true ]
    [ "$(event '[range(0; length - 1) as $i | .[$i].token_offset == ([.[:$i][].token_ids[]] | length)] | all')" = true ]
    [ "$(event '.[0] | keys | join(" ")')" = "$(printf '%s\n' event id token_offset text token_ids nfe finished \
        engine_decode_time_s engine_decode_tokens engine_decode_tps | sort | xargs)" ]
    has=$(event '.[-1] | keys | join(" ")')
    for key in full_text full_token_ids usage finish_reason; do [[ " $has " = *" $key "* ]]; done
}
generate_streams_log_probabilities_on_request() {
    for more in '' ', "stop": [" pages"]' ', "max_tokens": 11'; do
        stream /generate "{\"prompt\": $prompt, \"temperature\": 0, \"logprobs\": 2, \"block_size\": 4, \"stream\": true, \"stream_mode\": \"block_append\"$more}"
        [ "$(event '[.[:-1][].logprobs[]] == .[-1].logprobs')" = true ]
        [ "$(event '.[-1].logprobs | length > 8')" = true ]
        [ "$(event 'all(.[:-1][]; [.logprobs[].token_id] == .token_ids)')" = true ]
        [ "$(event '.[:-1] | length > 1')" = true ]
    done
}
generate_streams_both_when_mixed() {
    stream /generate "{\"prompt\": $prompt, \"temperature\": 0, \"stream\": true, \"stream_mode\": \"mixed\"}"
    [ "$(event 'map(.event) | unique | join(" ")')" = 'append buffer_snapshot final' ]
    [ "$(event 'map(select(.event == "append").text) | join("")')" = "$answer" ]
}
generate_streams_every_nth_snapshot() {
    gradual="\"prompt\": $prompt, \"stream\": true, \"max_tokens\": 20, \"ignore_eos\": true, \"accept_threshold\": 1"
    stream /generate "{$gradual}"
    passes=$(event '.[:-1] | map(.nfe) | join(" ")')
    stream /generate "{$gradual, \"snapshot_interval\": 4}"
    [ "$(event '.[:-1] | map(.nfe) | join(" ")')" = "$(tr ' ' '\n' <<< "$passes" | awk 'NR % 4 == 1' | xargs)" ]
    [ "$(event '.[-1].event')" = final ]
    stream /generate "{$gradual, \"snapshot_interval\": 1000, \"stream_mode\": \"mixed\"}"
    [ "$(event 'map(select(.event == "buffer_snapshot")) | length')" = 1 ]
    [ "$(event 'map(select(.event == "append")) | length')" -ge 1 ]
}
gen_length_alone_is_the_longest_answer() {
    for path in /generate /v1/completions; do
        post $path "{\"prompt\": $prompt, \"gen_length\": 5, \"ignore_eos\": true}"
        [ "$status" = 200 ]
        [ "$(member usage.completion_tokens)" = 5 ]
    done
    refuses /generate "{\"prompt\": $prompt, \"gen_length\": 5, \"max_tokens\": 3}" gen_length
}
generate_refuses_unknown_and_invalid_fields() {
    refuses /generate '{}' prompt
    refuses /generate '{"prompt": ""}' prompt
    refuses /generate '{"prompt": 5}' prompt
    refuses /generate '{"prompt": ["a", "b"]}' prompt
    refuses /generate '{"prompt": [1, 5000000]}' prompt
    refuses /generate '{"prompt": "a", "n": 2}' n
    refuses /generate '{"prompt": "a", "max_tokens": 0}' max_tokens
    refuses /generate '{"prompt": "a", "max_tokens": "many"}' max_tokens
    refuses /generate '{"prompt": "a", "temperature": -1}' temperature
    refuses /generate '{"prompt": "a", "stream_mode": "sideways"}' stream_mode
    refuses /generate '{"prompt": "a", "messages": []}' messages
    refuses /generate '{"prompt": "a", "stream": true, "stream_options": {"continuous_usage_stats": true}}' stream_options
    refuses /generate '{"prompt": "a", "max_tokns": 5}' max_tokns
    refuses /generate '{"prompt": "a", "best_of": 4}' best_of
    refuses /generate '{"prompt": "a", "snapshot_interval": 0}' snapshot_interval
    refuses /generate '{"prompt": "a", "decoding_strategy": "nonsense"}' decoding_strategy
}

every_api_has_the_ranges_of_the_options() {
    curl -sS "$url/options" | jq -r '.data[] | select(.max != null and (.group | IN("Sampling", "Limits", "Results")))
        | "\(.name) \(.max + 1)"' > "$work/outside"
    [ "$(wc -l < "$work/outside")" -gt 10 ]
    while read -r path body; do
        while read -r name above; do
            [[ $path != */chat/* || $name != logprobs ]] || continue # a boolean there
            refuses "$path" "$body, \"$name\": $above}" "$name"
        done < "$work/outside"
        refuses "$path" "$body, \"temperature\": 2.01}" temperature
        [[ $(member error.message) = *'2.01 is outside 0..2' ]]
        post "$path" "$body, \"temperature\": 2, \"max_tokens\": 1}"
        [ "$status" -lt 300 ]
    done < <(prompts)
    refuses /v1/chat/completions '{"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 65}' top_logprobs
    refuses /generate '{"prompt": "a", "snapshot_interval": 1000001}' snapshot_interval
    refuses /generate '{"prompt": "a", "snapshot_max_hz": 1000.5}' snapshot_max_hz
}

# The answers consist of tokens of one byte: their characters are complete, cut off or invalid.
streams_do_not_split_characters() {
    post /tokenize '{"prompt": "€ä"}'
    bias=$(member 'tokens | map({key: tostring, value: 90}) | from_entries' | jq -c .)
    [ "$(jq length <<< "$bias")" = 5 ]
    for seed in 1 2 3; do
        streams_equal_the_whole_response "\"max_tokens\": 60, \"ignore_eos\": true, \"temperature\": 2, \"seed\": $seed, \"logit_bias\": $bias"
        event '.[-1].text' | grep -qP '\x{FFFD}'
    done
}
streams_end_before_a_stop_string() {
    streams_equal_the_whole_response '"max_tokens": 64, "temperature": 0, "stop": ["nothing of it", "= 14. There"]'
    [ "$(event '.[-1].text')" = 'Hana reads 12 x 8 = 96 pages. Then 110 - 96 ' ]
    streams_equal_the_whole_response '"max_tokens": 64, "temperature": 0, "stop": "96", "include_stop_str_in_output": true'
    [ "$(event '.[-1].text')" = 'Hana reads 12 x 8 = 96' ]
}
failing_streams_end_with_an_error() {
    stream_until_the_worker_dies /generate "{\"prompt\": $prompt, \"stream\": true, $slow}"
    [ "$(slow_events '.[-1].event')" = error ]
    [ "$(slow_events '.[-1].code')" = 503 ]
    [ "$(slow_events '.[-1].id == .[0].id')" = true ]
    slow_events '.[-1].message' | grep -q 'worker.*died'
    stream_until_the_worker_dies /generate "{\"text\": $prompt, \"stream\": true, \"sampling_params\": {$slow}}"
    [ "$(slow_events '.[-1].error | .type, .code, .param' | xargs)" = 'server_error 503 null' ]
}
# The worker is stopped, so that the timeout expires on any machine.
slow_answers_time_out() {
    local worker
    serve --request-timeout 0.1
    worker=$(pgrep -P $pid)
    kill -STOP "$worker"
    for more in "$slow" "\"stream\": true, $slow"; do
        post /generate "{\"prompt\": $prompt, $more}"
        [ "$status" = 504 ]
        [ "$(member error.type)" = timeout_error ]
        member error.message | grep -q -- '--request-timeout'
    done
    kill -CONT "$worker"
    stop_server
}

invalid_requests_do_not_reach_a_worker() {
    all_refuse '"steps": 8' steps
    all_refuse '"decoding_strategy": "full"' decoding_strategy
    all_refuse '"sampler": "origin"' sampler
    all_refuse '"max_tokens": 4, "min_tokens": 5' min_tokens
    all_refuse '"stop_token_ids": [5000000]' stop_token_ids
    all_refuse '"logit_bias": {"5000000": 1}' logit_bias
    all_refuse '"adapter": "nobody"' adapter
    call /metrics
    not grep -q '^unmask_aborts_total{.*reason="refused"' "$work/body"
}

# ---- /generate, SGLang -------------------------------------------------------------------------------------------------

sglang_answers_with_every_member() {
    post /generate "{\"text\": $prompt, \"rid\": \"mine\", \"sampling_params\": {\"max_new_tokens\": 64, \"temperature\": 0}}"
    [ "$status" = 200 ]
    [ "$(member text)" = "$answer" ]
    members_are . text output_ids meta_info
    members_are .meta_info id finish_reason prompt_tokens completion_tokens cached_tokens e2e_latency nfe seed
    [ "$(member meta_info.id)" = mine ]
    [ "$(member meta_info.finish_reason.type)" = stop ]
    [ "$(member 'output_ids | length')" = "$(member meta_info.completion_tokens)" ]
    matched=$(member meta_info.finish_reason.matched)
    post /detokenize "{\"tokens\": [$matched]}"
    [ "$(member prompt)" = '<|im_end|>' ]
}
sglang_answers_lists_with_lists() {
    post /generate "{\"text\": [$prompt, \"a b\"], \"rid\": [\"one\", \"two\"], \"sampling_params\": {\"temperature\": 0}}"
    [ "$(jq -r '[.[].meta_info.id] | join(" ")' "$work/body")" = 'one two' ]
    [ "$(jq -r '.[0].text' "$work/body")" = "$answer" ]
    post /generate "{\"input_ids\": [[5, 6], [7]], \"sampling_params\": {\"max_new_tokens\": 4, \"n\": 2}}"
    [ "$(jq -r '[.[].index] | join(" ")' "$work/body")" = '0 1 2 3' ]
    post /generate "{\"input_ids\": [5, 6], \"sampling_params\": {\"max_new_tokens\": 4}}"
    [ "$(member 'output_ids | type')" = array ]
}
sglang_takes_lists_of_parameters() {
    post /generate "{\"text\": [$prompt, $prompt, \"a b\"], \"return_logprob\": [true, false, false], \"sampling_params\":
        [{\"max_new_tokens\": 8, \"temperature\": 0}, {\"stop\": \" pages\", \"temperature\": 0, \"no_stop_trim\": false,
        \"include_stop_str_in_output\": true}, {\"max_new_tokens\": 5, \"ignore_eos\": true, \"sampling_seed\": 7}]}"
    [ "$status" = 200 ]
    [ "$(jq -r 'map(.index) | join(" ")' "$work/body")" = '0 1 2' ]
    [ "$(jq -r '.[0].meta_info | .completion_tokens, (.output_token_logprobs | length)' "$work/body" | xargs)" = '8 8' ]
    [ "$(jq -r '.[1].text' "$work/body")" = 'Hana reads 12 x 8 = 96 pages' ]
    [ "$(jq -r '.[1].meta_info | has("output_token_logprobs")' "$work/body")" = false ]
    [ "$(jq -r '.[2].meta_info | .completion_tokens, .seed' "$work/body" | xargs)" = '5 7' ]
    post /generate "{\"text\": [$prompt, \"a b\"], \"sampling_params\": [{\"n\": 2}, {\"n\": 2, \"max_new_tokens\": 1}]}"
    [ "$(jq -r 'map(.index) | join(" ")' "$work/body")" = '0 1 2 3' ]
    refuses /generate '{"text": ["a", "b"], "sampling_params": [{}]}' sampling_params
    refuses /generate '{"text": "a", "sampling_params": [{}]}' sampling_params
    refuses /generate '{"text": ["a", "b"], "sampling_params": [{}, 5]}' sampling_params
    refuses /generate '{"text": ["a", "b"], "sampling_params": [{}, [{}]]}' sampling_params
    refuses /generate '{"text": ["a", "b"], "sampling_params": [{}, {"temperature": -1}]}' temperature
    refuses /generate '{"text": ["a", "b"], "sampling_params": [{}, {"n": 2}]}' n
    refuses /generate '{"text": ["a", "b"], "temperature": 1, "sampling_params": [{}, {"temperature": 1}]}' temperature
    refuses /generate '{"text": ["a", "b"], "return_logprob": [true]}' return_logprob
    refuses /generate '{"text": ["a", "b"], "return_logprob": [true, "x"]}' return_logprob
}
sglang_chooses_adapters() {
    refuses /generate '{"text": "a", "lora_path": "nobody"}' lora_path
    refuses /generate '{"text": "a", "lora_path": 5}' lora_path
    refuses /generate '{"text": ["a", "b"], "lora_path": ["nobody", null]}' lora_path
    make_adapter "$work/parrot"
    serve --in-process --lora "parrot=$work/parrot"
    post /generate "{\"text\": $prompt, \"lora_path\": \"parrot\", \"sampling_params\": {\"temperature\": 0}}"
    [ "$status" = 200 ]
    altered=$(member text)
    [ "$altered" != "$answer" ]
    post /generate "{\"text\": [$prompt, $prompt], \"lora_path\": [null, \"parrot\"], \"sampling_params\": {\"temperature\": 0}}"
    [ "$(jq -r '.[0].text' "$work/body")" = "$answer" ]
    [ "$(jq -r '.[1].text' "$work/body")" = "$altered" ]
    stop_server
}
sglang_gives_the_finish_reason() {
    post /generate "{\"text\": $prompt, \"sampling_params\": {\"max_new_tokens\": 8, \"temperature\": 0}}"
    [ "$(member meta_info.finish_reason.type)" = length ]
    [ "$(member meta_info.finish_reason.length)" = 8 ]
    post /generate "{\"text\": $prompt, \"sampling_params\": {\"stop\": \" pages\", \"temperature\": 0}}"
    [ "$(member meta_info.finish_reason.matched)" = ' pages' ]
}
sglang_gives_log_probabilities() {
    post /generate "{\"text\": $prompt, \"return_logprob\": true, \"top_logprobs_num\": 2, \"sampling_params\": {\"max_new_tokens\": 8, \"temperature\": 0}}"
    [ "$(member 'meta_info.output_token_logprobs | length')" = 8 ]
    [ "$(member 'meta_info.output_token_logprobs[0][1]')" = "$(member 'output_ids[0]')" ]
    [ "$(member 'meta_info.output_top_logprobs[0] | length')" = 2 ]
}
sglang_streams_the_text_so_far() {
    stream /generate "{\"text\": $prompt, \"stream\": true, \"sampling_params\": {\"temperature\": 0}}"
    [ "$(event '.[-1].text')" = "$answer" ]
    [ "$(event '.[-1].meta_info.finish_reason.type')" = stop ]
    [ "$(event '[range(1; length) as $i | . as $e | $e[$i].text | startswith($e[$i - 1].text)] | all')" = true ]
    [ "$(event '.[-2].output_ids == .[-1].output_ids')" = true ]
    [ "$(event 'all(.[:-1][]; .meta_info.finish_reason == null)')" = true ]
}
sglang_streams_the_log_probabilities_so_far() {
    local body="\"text\": $prompt, \"return_logprob\": true, \"top_logprobs_num\": 2, \"sampling_params\": {\"temperature\": 0, \"block_size\": 4}"
    post /generate "{$body}"
    jq -c '.meta_info | [.output_token_logprobs, .output_top_logprobs]' "$work/body" > "$work/whole"
    stream /generate "{$body, \"stream\": true}"
    event '.[-1].meta_info | [.output_token_logprobs, .output_top_logprobs] | tojson' | diff - "$work/whole"
    [ "$(event 'all(.[]; [.meta_info.output_token_logprobs[][1]] == .output_ids)')" = true ]
    [ "$(event 'all(.[]; (.meta_info.output_top_logprobs | length) == (.output_ids | length))')" = true ]
    [ "$(event '.[0].output_ids | length > 0 and length < 8')" = true ]
}
sglang_refuses_unknown_and_invalid_fields() {
    refuses /generate '{"text": 5}' text
    refuses /generate '{"text": [5]}' text
    refuses /generate '{"text": ""}' text
    refuses /generate '{"text": []}' text
    refuses /generate '{"input_ids": []}' input_ids
    refuses /generate '{"input_ids": [5000000]}' input_ids
    refuses /generate '{"input_ids": 5}' input_ids
    refuses /generate '{"input_ids": ["a"]}' input_ids
    refuses /generate '{"text": "a", "input_ids": [1]}' input_ids
    refuses /generate '{"text": "a", "sampling_params": 5}' sampling_params
    refuses /generate '{"text": "a", "sampling_params": {"temperature": -1}}' temperature
    refuses /generate '{"text": "a", "temperature": 1, "sampling_params": {"temperature": 1}}' temperature
    refuses /generate '{"text": "a", "sampling_params": {"regex": "a("}}' regex
    refuses /generate '{"text": "a", "sampling_params": {"nonsense": 1}}' nonsense
    refuses /generate '{"text": "a", "rid": ["a", "b"]}' rid
    refuses /generate '{"text": "a", "rid": ""}' rid
    refuses /generate '{"text": "a", "logprob_start_len": 0}' logprob_start_len
    refuses /generate '{"text": "a", "return_logprob": true, "top_logprobs_num": 1000}' top_logprobs_num
    refuses /generate '{"text": "a", "image_data": "x"}' image_data
    refuses /generate '{"text": "a", "background": true}' background
    refuses /generate '{"text": "a", "stream": true, "stream_mode": "denoise"}' stream_mode
}
aborted_streams_end_with_the_settled_text() {
    stream_slowly /generate "{\"text\": $prompt, \"rid\": \"going\", \"stream\": true, \"sampling_params\": {$slow}}"
    post /abort_request '{"rid": "other"}'
    [ "$status" = 200 ]
    [ "$(member aborted)" = 0 ]
    post /abort_request '{"rid": "going"}'
    [ "$(member aborted)" = 1 ]
    post /abort_request '{"rid": "going"}'
    [ "$(member aborted)" = 0 ]
    wait $slow_pid
    [ "$(tail -n 2 "$work/slow")" = 'data: [DONE]' ]
    [ "$(slow_events '.[-1].meta_info.finish_reason.type')" = abort ]
    [ "$(slow_events '.[-1].text == .[-2].text and .[-1].output_ids == .[-2].output_ids')" = true ]
}
aborted_responses_have_the_settled_text() {
    curl -sS -m 60 -H 'Content-Type: application/json' -o "$work/whole" "$url/generate" \
        -d "{\"text\": [$prompt, $prompt], \"rid\": [\"left\", \"right\"], \"sampling_params\": {$slow}}" &
    whole_pid=$!
    for _ in $(seq 200); do
        call /slots
        [ "$(jq 'map(select(.n_decoded > 0)) | length' "$work/body")" = 0 ] || break
    done
    post /abort_request '{"rid": "right"}'
    [ "$(member aborted)" = 1 ]
    post /abort_request '{"rid": "left"}'
    wait $whole_pid
    [ "$(jq -r 'map(.meta_info.finish_reason.type) | join(" ")' "$work/whole")" = 'abort abort' ]
    [ "$(jq -r 'map((.output_ids | length) == .meta_info.completion_tokens) | all' "$work/whole")" = true ]
    [ "$(jq -r 'map(.output_ids | length) | add' "$work/whole")" -gt 0 ]
}
abort_all_aborts_every_request() {
    stream_slowly /generate "{\"prompt\": $prompt, \"stream\": true, $slow}"
    post /v1/generate "{\"prompt\": $prompt, $slow}"
    id=$(member 'request_ids[0]')
    post /abort_request '{"abort_all": true}'
    [ "$(member aborted)" = 2 ]
    wait $slow_pid
    [ "$(slow_events '.[-1].finish_reason')" = aborted ]
    fetch "$id"
    [ "$(member finish_reason)" = aborted ]
    [ "$(member usage.completion_tokens)" -lt 900 ]
    refuses /abort_request '{}' rid
    refuses /abort_request '{"rid": 5}' rid
    refuses /abort_request '{"abort_all": true, "x": 1}' x
}

# ---- Model and server ------------------------------------------------------------------------------------------------

model_info_has_its_members() {
    call /get_model_info
    [ "$status" = 200 ]
    [ "$(member model_path)" = models/tiny-block ]
    [ "$(member is_generation)" = true ]
    [ "$(member served_model_name)" = tiny-block ]
    [ "$(member max_model_len)" -gt 0 ]
    has_members . tokenizer_path model_type vocab_size mask_token_id preferred_sampling_params
}
server_info_has_configuration_and_counts() {
    serve --in-process --max-num-reqs 3 --accept-threshold 0.5 --api-key secret-word
    key='Authorization: Bearer secret-word'
    call /get_server_info -H "$key"
    [ "$status" = 200 ]
    [ "$(member config.max_num_reqs)" = 3 ]
    [ "$(member config.accept_threshold)" = 0.5 ]
    has_members . version began requests_running requests_waiting pages_total pages_used decode_tokens_per_second \
        last_decode_tokens_per_second tokens_per_forward
    [ "$(member 'workers[0].state')" = up ]
    [ "$(member 'workers[0].decoding_strategy')" = multi_bd ]
    [ "$(member 'workers[0].sampler')" = confidence ]
    not grep -q secret-word "$work/body"
    cp "$work/body" "$work/first"
    call /server_info -H "$key"
    [ "$(member config)" = "$(jq -r .config "$work/first")" ]
    stop_server
}
paths_without_v1_are_the_same() {
    local path body='{"prompt": "1 + 1 =", "messages": [{"role": "user", "content": "What is 12 + 30?"}], "max_tokens": 8, "temperature": 0}'
    post /completions "$(jq 'del(.messages)' <<< "$body")"
    [ "$(member object)" = text_completion ]
    post /chat/completions "$(jq 'del(.prompt)' <<< "$body")"
    [ "$(member object)" = chat.completion ]
    call /models
    [ "$(member object)" = list ]
}
tokenize_takes_the_fields_of_llama_cpp() {
    post /tokenize '{"prompt": "12 + 30"}'
    cp "$work/body" "$work/want"
    post /tokenize '{"content": "12 + 30", "add_special": true}'
    cmp "$work/body" "$work/want"
    refuses /tokenize '{"content": "a", "prompt": "b"}' prompt
    refuses /tokenize '{"content": "a", "add_special": 1}' add_special
}
flush_cache_clears_the_cache_unless_requests_run() {
    body="{\"text\": $prompt, \"sampling_params\": {\"max_new_tokens\": 4}}"
    post /generate "$body"
    post /generate "$body"
    [ "$(member meta_info.cached_tokens)" -gt 0 ]
    call /flush_cache
    [ "$status" = 405 ]
    post /flush_cache ''
    [ "$status" = 200 ]
    [ "$(member success)" = true ]
    post /generate "$body"
    [ "$(member meta_info.cached_tokens)" = 0 ]
    stream_slowly /generate "{\"text\": $prompt, \"rid\": \"holds\", \"stream\": true, \"sampling_params\": {$slow}}"
    post /flush_cache ''
    [ "$status" = 400 ]
    post /abort_request '{"rid": "holds"}'
    wait $slow_pid
}

# ---- llama.cpp ---------------------------------------------------------------------------------------------------------

completion_answers_with_every_member() {
    post /completion "{\"prompt\": $prompt, \"n_predict\": 64, \"temperature\": 0, \"seed\": 3}"
    [ "$status" = 200 ]
    [ "$(member content)" = "$answer" ]
    members_are . index content tokens id_slot tokens_predicted tokens_evaluated stop model stop_type stopping_word \
        tokens_cached truncated seed generation_settings timings
    [ "$(member stop)" = true ]
    [ "$(member stop_type)" = eos ]
    [ "$(member model)" = tiny-block ]
    [ "$(member 'tokens | length')" = "$(member tokens_predicted)" ]
    [ "$(member generation_settings.n_predict)" = 64 ]
    [ "$(member generation_settings.temperature)" = 0 ]
    members_are .timings cache_n prompt_n prompt_ms prompt_per_token_ms prompt_per_second predicted_n predicted_ms \
        predicted_per_token_ms predicted_per_second nfe
}
completion_gives_the_stop_type() {
    post /completion "{\"prompt\": $prompt, \"n_predict\": 4, \"temperature\": 0}"
    [ "$(member stop_type)" = limit ]
    [ "$(member stopping_word)" = '' ]
    post /completion "{\"prompt\": $prompt, \"stop\": [\" pages\"], \"temperature\": 0}"
    [ "$(member stop_type)" = word ]
    [ "$(member stopping_word)" = ' pages' ]
}
completion_can_fill_the_context() {
    post /completion "{\"prompt\": $prompt, \"n_predict\": -1, \"ignore_eos\": true}"
    tokens=$(jq ".tokens_predicted + .tokens_evaluated" "$work/body")
    call /get_model_info
    [ "$tokens" = "$(member max_model_len)" ]
}
completion_gives_probabilities() {
    post /completion "{\"prompt\": $prompt, \"n_predict\": 6, \"temperature\": 0, \"n_probs\": 2}"
    [ "$(member 'completion_probabilities | length')" = 6 ]
    [ "$(member 'completion_probabilities[0].top_logprobs | length')" = 2 ]
    [ "$(jq -r '[.completion_probabilities[].token] | join("")' "$work/body")" = "$(member content)" ]
}
completion_can_bypass_the_prefix_cache() {
    post /flush_cache ''
    post /completion "{\"prompt\": $prompt, \"n_predict\": 4}"
    post /completion "{\"prompt\": $prompt, \"n_predict\": 4}"
    [ "$(member tokens_cached)" -gt 0 ]
    post /completion "{\"prompt\": $prompt, \"n_predict\": 4, \"cache_prompt\": false}"
    [ "$(member tokens_cached)" = 0 ]
}
completion_streams_text() {
    stream /completion "{\"prompt\": $prompt, \"temperature\": 0, \"stream\": true}"
    [ "$(event 'map(.content) | join("")')" = "$answer" ]
    [ "$(event '.[-1].stop')" = true ]
    [ "$(event 'all(.[:-1][]; .stop == false)')" = true ]
    [ "$(event '.[-1].stop_type')" = eos ]
    [ "$(event '[.[].tokens[]] | length')" = "$(event '.[-1].tokens_predicted')" ]
}
completion_streams_probabilities() {
    local body="\"prompt\": $prompt, \"temperature\": 0, \"n_probs\": 2, \"block_size\": 4"
    post /completion "{$body}"
    jq -c .completion_probabilities "$work/body" > "$work/whole"
    stream /completion "{$body, \"stream\": true}"
    event '[.[].completion_probabilities // [] | .[]] | tojson' | diff - "$work/whole"
    [ "$(event 'all(.[:-1][]; [.completion_probabilities[].id] == .tokens)')" = true ]
    [ "$(event '.[-1] | has("completion_probabilities")')" = false ]
    [ "$(event 'length > 3')" = true ]
}
completion_answers_several_prompts() {
    post /completion "{\"prompt\": [$prompt, \"a b\"], \"n_predict\": 4}"
    [ "$(jq -r '[.[].index] | join(" ")' "$work/body")" = '0 1' ]
}
completion_takes_biases_as_pairs() {
    body="\"prompt\": $prompt, \"temperature\": 0, \"n_predict\": 1"
    post /completion "{$body}"
    first=$(member 'tokens[0]')
    post /completion "{$body, \"logit_bias\": [[$first, false]]}"
    [ "$status" = 200 ]
    [ "$(member 'tokens[0]')" != "$first" ]
    post /completion "{$body, \"logit_bias\": [[7, 100]]}"
    [ "$(member 'tokens[0]')" = 7 ]
    post /completion "{$body, \"logit_bias\": {\"7\": 100}}"
    [ "$(member 'tokens[0]')" = 7 ]
    for bias in '[7]' '[["a", 1]]' '[[7]]' '[[7, true]]' '[[7, 1000]]' '[[-1, 1]]'; do
        refuses /completion "{\"prompt\": \"a\", \"logit_bias\": $bias}" logit_bias
    done
}
completion_returns_only_the_response_fields() {
    body="\"prompt\": $prompt, \"temperature\": 0.7, \"seed\": 2"
    fields='"response_fields": ["content", "generation_settings/temperature", "timings/nfe", "nothing", "timings/nothing", "content/x", ""]'
    post /completion "{$body}"
    cp "$work/body" "$work/all"
    post /completion "{$body, $fields}"
    [ "$status" = 200 ]
    members_are . content generation_settings/temperature timings/nfe
    [ "$(member content)" = "$(jq -r .content "$work/all")" ]
    [ "$(member '["generation_settings/temperature"]')" = 0.7 ]
    grep -q '"generation_settings/temperature":0\.7[,}]' "$work/body"
    post /completion "{$body, \"response_fields\": []}"
    members_are . $(jq -r 'keys[]' "$work/all")
    post /completion "{\"prompt\": [\"a b\", \"c\"], \"response_fields\": [\"index\"]}"
    [ "$(jq -c . "$work/body")" = '[{"index":0},{"index":1}]' ]
    stream /completion "{$body, \"stream\": true, \"response_fields\": [\"stop_type\"]}"
    [ "$(event '.[-1] | keys | join(" ")')" = stop_type ]
    [ "$(event '.[:-1] | map(.content) | join("")')" = "$(jq -r .content "$work/all")" ]
    refuses /completion '{"prompt": "a", "response_fields": "content"}' response_fields
    refuses /completion '{"prompt": "a", "response_fields": [5]}' response_fields
}
completion_refuses_unknown_and_invalid_fields() {
    refuses /completion '{}' prompt
    refuses /completion '{"prompt": "a", "n_predict": 0}' n_predict
    refuses /completion '{"prompt": "a", "n_predict": -3}' n_predict
    refuses /completion '{"prompt": "a", "mirostat": 2}' mirostat
    refuses /completion '{"prompt": "a", "grammar": "root ::= other"}' grammar
    refuses /completion '{"prompt": "a", "repeat_penalty": 1.1, "repeat_last_n": 64}' repeat_last_n
    refuses /completion '{"prompt": "a", "samplers": ["top_k"]}' samplers
    refuses /completion '{"prompt": "a", "id_slot": 2}' id_slot
    refuses /completion '{"prompt": "a", "n_probs": 5000}' n_probs
    post /completion '{"prompt": "a", "n_predict": 2, "repeat_last_n": 64, "mirostat": 0, "mirostat_tau": 5, "dry_base": 1.75, "typical_p": 1.0, "grammar": ""}'
    [ "$status" = 200 ]
}
props_have_defaults_and_tokens() {
    call /props
    members_are . default_generation_settings total_slots model_path model_alias chat_template chat_template_caps \
        build_info bos_token eos_token mask_token modalities
    [ "$(member total_slots)" = 32 ]
    [ "$(member model_alias)" = tiny-block ]
    [ -n "$(member eos_token)" ]
    [ "$(member chat_template)" = "$(jq -r .chat_template models/tiny-block/tokenizer_config.json)" ]
    [ "$(member default_generation_settings.params.top_p)" = 1 ]
    [ "$(member default_generation_settings.params.decoding_strategy)" = multi_bd ]
    [ "$(member default_generation_settings.params.sampler)" = confidence ]
}
options_have_the_defaults() {
    call /options
    [ "$(member 'data[] | select(.name == "sampler") | [.default, .auto] | join(" ")')" = 'confidence auto' ]
    [ "$(member 'data[] | select(.name == "decoding_strategy") | .default')" = multi_bd ]
    [ "$(member 'data[] | select(.name == "accept_threshold") | .default')" = auto ]
}
options_offer_each_name_once() {
    call /options
    [ "$(jq -r '.data[] | select(.name == "decoding_strategy") | .names | join(" ")' "$work/body")" = \
        "$("$UNMASK" list strategies --json | jq -r '[.strategies[].name] | join(" ")')" ]
    [ "$(member 'data[] | select(.name == "sampler") | .names | index("low_confidence_threshold")')" = null ]
    [ "$(member 'data[] | select(.name == "sampler") | .names | index("confidence")')" = 0 ]
    [ "$(member 'data[] | select(.name == "sampler") | .aliases | index("low_confidence_threshold")')" != null ]
}
options_name_their_readers() {
    call /options
    [ "$(member 'data[] | select(.name == "temperature") | .read_by')" = null ]
    [ "$(member 'data[] | select(.name == "retention_ratio") | .read_by')" = 'strategy sparse' ]
    [ "$(member 'data[] | select(.name == "alg_temp") | .read_by')" = \
        'samplers maskgit_plus, topk_margin, entropy, linear_entropy' ]
    [ "$(member 'data[] | select(.name == "denoising_steps") | .read_by | length > 20')" = true ]
}
slots_list_running_answers() {
    call /slots
    [ "$(jq -r length "$work/body")" = 0 ]
    stream_slowly /generate "{\"text\": $prompt, \"rid\": \"seen\", \"stream\": true, \"sampling_params\": {$slow}}"
    call /slots
    [ "$(jq -r length "$work/body")" = 1 ]
    members_are '.[0]' id id_task index is_processing n_prompt_tokens n_prompt_tokens_cache n_decoded n_remain seconds \
        params dllm
    members_are '.[0].dllm' nfe block mask_count preemptions
    [ "$(jq -r '.[0].is_processing' "$work/body")" = true ]
    [ "$(jq -r '.[0].params.n_predict' "$work/body")" = 900 ]
    post /abort_request '{"rid": "seen"}'
    wait $slow_pid
}

# ---- Texts and tokens --------------------------------------------------------------------------------------------------

tokenize_gives_ids_and_detokenize_the_text_again() {
    post /tokenize '{"prompt": "A book <|im_end|>", "return_token_strs": true}'
    [ "$status" = 200 ]
    members_are . tokens count max_model_len token_strs
    [ "$(member 'token_strs | join("")')" = 'A book <|im_end|>' ]
    [ "$(member count)" = "$(member 'tokens | length')" ]
    post /detokenize "{\"tokens\": $(member tokens | jq -c .)}"
    [ "$(member prompt)" = 'A book <|im_end|>' ]
    post /tokenize '{"prompt": ""}'
    [ "$(member count)" = 0 ]
    [ "$(member token_strs)" = null ]
}
tokenize_takes_a_conversation_as_a_generation_does() {
    post /tokenize "$question"
    ids=$(member tokens | jq -c .)
    post /apply-template "$question"
    [ "$(member prompt | jq -Rs 'rtrimstr("\n")')" = "$(jq -n "$prompt" | jq -r . | jq -Rs 'rtrimstr("\n")')" ]
    post /tokenize "{\"prompt\": $prompt}"
    [ "$(member tokens | jq -c .)" = "$ids" ]
    post /tokenize "$(jq '. + {add_generation_prompt: false}' <<< "$question")"
    [ "$(member count)" -lt "$(jq length <<< "$ids")" ]
}
token_routes_refuse_unknown_and_invalid_fields() {
    refuses /tokenize '{}' prompt
    refuses /tokenize '{"prompt": 5}' prompt
    refuses /tokenize '{"prompt": ["a", "b"]}' prompt
    refuses /tokenize '{"prompt": [1, 2]}' prompt
    refuses /tokenize '{"prompt": "a", "temperature": 1}' temperature
    refuses /tokenize '{"prompt": "a", "messages": []}' messages
    refuses /tokenize '{"messages": [{"role": "nobody", "content": "x"}]}' messages
    refuses /detokenize '{}' tokens
    refuses /detokenize '{"tokens": "x"}' tokens
    refuses /detokenize '{"tokens": [1.5]}' tokens
    refuses /detokenize '{"tokens": [99999999]}' tokens
    refuses /detokenize '{"tokens": [1], "x": 2}' x
    refuses /apply-template '{}' messages
    refuses /apply-template '{"prompt": "a"}' prompt
    refuses /apply-template '{"messages": []}' messages
}

# ---- Results -----------------------------------------------------------------------------------------------------------

results_are_fetched_by_id() {
    post /v1/generate "{\"prompt\": $prompt, \"gen_length\": 64}"
    [ "$status" = 200 ]
    [ "$(member status)" = submitted ]
    [ "$(member 'request_ids | length')" = 1 ]
    id=$(member 'request_ids[0]')
    fetch "$id"
    [ "$(member request_id)" = "$id" ]
    [ "$(member status)" = finished ]
    [ "$(member text)" = "$answer" ]
    has_members . finish_reason nfe usage
}
results_have_the_defaults_of_their_api() {
    post /v1/generate "{\"prompt\": $prompt, \"ignore_eos\": true}"
    fetch "$(member 'request_ids[0]')"
    [ "$(member usage.completion_tokens)" = 32 ]
    [[ $answer = "$(member text | cut -c1-40)"* ]]
}
results_of_several_prompts_have_separate_ids() {
    post /v1/generate_batch "{\"prompts\": [$prompt, \"a b\"], \"gen_length\": 64}"
    [ "$(member 'request_ids | length')" = 2 ]
    ids=$(member 'request_ids | join(" ")' | xargs)
    fetch "${ids% *}"
    [ "$(member text)" = "$answer" ]
    fetch "${ids#* }"
    [ "$(member status)" = finished ]
}
deleting_a_running_request_aborts_it() {
    post /v1/generate "{\"prompt\": $prompt, $slow}"
    id=$(member 'request_ids[0]')
    call "/v1/result/$id"
    [ "$status" = 200 ]
    [ "$(member status)" = running ]
    [ "$(member text)" = null ]
    call "/v1/result/$id" -X DELETE
    [ "$(member status)" = aborted ]
    call "/v1/result/$id"
    [ "$status" = 404 ]
    [ "$(member error.type)" = not_found_error ]
}
results_expire_and_can_be_deleted() {
    local ids=()
    serve --in-process --result-max 2
    for _ in 1 2 3; do
        post /v1/generate '{"prompt": "a", "gen_length": 2}'
        ids+=("$(member 'request_ids[0]')")
        fetch "${ids[-1]}"
        [ "$(member status)" = finished ]
    done
    call "/v1/result/${ids[0]}"
    [ "$status" = 404 ]
    call "/v1/result/${ids[1]}"
    [ "$status" = 200 ]
    call "/v1/result/${ids[1]}" -X DELETE
    [ "$(member status)" = forgotten ]
    call "/v1/result/${ids[1]}"
    [ "$status" = 404 ]
    # Nobody can guess the id of another client's result.
    [ "$(printf '%s\n' "${ids[@]}" | awk '$1 > 1e9 && $1 < 2 ^ 53' | sort -u | wc -l)" = 3 ]
    [ $((ids[1] - ids[0])) -ne $((ids[2] - ids[1])) ]
    stop_server
    serve --in-process --result-ttl 1
    post /v1/generate '{"prompt": "a", "gen_length": 2}'
    ids=("$(member 'request_ids[0]')")
    for _ in $(seq 100); do
        call "/v1/result/${ids[0]}"
        [ "$status" = 200 ] || break
        sleep 0.1
    done
    [ "$status" = 404 ]
    stop_server
}
results_refuse_unknown_and_invalid_fields() {
    refuses /v1/generate '{}' prompt
    refuses /v1/generate '{"prompt": "a", "stream": true}' stream
    refuses /v1/generate '{"prompt": ["a", "b"]}' prompt
    refuses /v1/generate '{"prompt": "a", "gen_length": -1}' gen_length
    refuses /v1/generate_batch '{}' prompts
    refuses /v1/generate_batch '{"prompts": []}' prompts
    refuses /v1/generate_batch '{"prompts": "a"}' prompts
    refuses /v1/generate_batch '{"prompts": ["a", 5]}' prompts
    refuses /v1/generate_batch '{"prompts": ["a"], "prompt": "a"}' prompt
    for id in 0 -1 x 99999999999999999999 1e3; do
        call "/v1/result/$id"
        [ "$status" = 404 ]
    done
}
several_prompts_are_accepted_or_refused_together() {
    local id
    serve --in-process --max-queue 2
    post /v1/generate "{\"prompt\": \"a\", $slow}"
    [ "$status" = 200 ]
    id=$(member 'request_ids[0]')
    post /v1/generate_batch '{"prompts": ["a", "b"]}'
    [ "$status" = 429 ]
    [ -n "$(header retry-after)" ]
    [ "$(member error.type)" = rate_limit_error ]
    call "/v1/result/$id" -X DELETE
    [ "$(member status)" = aborted ]
    post /v1/generate_batch '{"prompts": ["a", "b"]}'
    [ "$status" = 200 ]
    stop_server
}
more_prompts_than_the_queue_holds_are_refused() {
    serve --in-process --max-queue 2
    refuses /v1/generate_batch '{"prompts": ["a", "b", "c"]}' prompts
    refuses /v1/completions '{"prompt": ["a", "b", "c"]}' prompt
    refuses /generate '{"text": ["a", "b", "c"]}' text
    member error.message | grep -q '3 prompts, but the server has 2 places'
    post /v1/completions '{"prompt": ["a", "b"]}'
    [ "$status" = 200 ]
    stop_server
}

claims_all
