#!/bin/bash
# Answers that a request constrains: the fields of every API, their errors, and the answers.
source tests/cli/claims.bash
source tests/server/serve.bash

serve --in-process
shared_pid=$pid
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT

messages='"messages": [{"role": "user", "content": "What is 12 + 30?"}], "max_tokens": 48'
prompt='"prompt": "What is 12 + 30?", "max_tokens": 48'
schema='{"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}, "even": {"type": "boolean"}}, "required": ["sum", "even"], "additionalProperties": false}'
# refuses PATH BODY PARAM WORDS: fails unless the response is 400, names the field and has the words.
refuses() {
    post "$1" "$2"
    [ "$status" = 400 ]
    [ "$(member error.param)" = "$3" ]
    [[ "$(member error.message)" = *$4* ]]
}
# says PATH BODY MEMBER PATTERN: fails unless the member of the response matches.
says() {
    post "$1" "$2"
    [ "$status" = 200 ]
    [[ "$(member "$3")" =~ ^($4)$ ]]
}
is_sum() { jq -e 'keys == ["even", "sum"] and (.sum | . >= 0 and . <= 99) and (.even | type) == "boolean"' <<< "$1"; }

claims_begin

every_api_refuses_two_constraints_by_name() {
    local path body
    while read -r path body; do
        refuses "$path" "$body, \"regex\": \"a\", \"structured_outputs\": {\"json_object\": true}}" structured_outputs '"regex"'
    done <<- END
	/v1/chat/completions {$messages
	/v1/completions {$prompt
	/generate {$prompt
	/generate {"text": "a"
	/completion {$prompt
	/v1/generate {$prompt
	/v1/messages {$messages
	/v1/responses {"input": "a"
	END
    refuses /generate '{"text": "a", "sampling_params": {"regex": "a", "ebnf": "root ::= \"a\""}}' ebnf '"regex"'
    refuses /v1/responses '{"input": "a", "regex": "a", "text": {"format": {"type": "json_object"}}}' text '"regex"'
    refuses /v1/messages "{$messages, \"regex\": \"a\", \"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": {}}}}" \
        output_config '"regex"'
}
parameters_that_can_not_be_kept_are_refused_by_name() {
    local field
    for field in '"ignore_eos": true' '"min_tokens": 2' '"stop": ["a"]' '"stop_token_ids": [1]' '"allowed_token_ids": [1]' \
        '"bad_words": ["a"]' '"logit_bias": {"5": -100}' '"max_nfe": 2'; do
        refuses /v1/chat/completions "{$messages, \"response_format\": {\"type\": \"json_object\"}, $field}" \
            "$(sed -E 's/"([^"]*)".*/\1/' <<< "$field")" constraint
    done
    refuses /v1/chat/completions "{$messages, \"regex\": \"a\", \"grammar_depth\": 65}" grammar_depth 1..64
    refuses /v1/chat/completions "{$messages, \"regex\": \"a\", \"json_space\": -1}" json_space 0..16
    refuses /v1/chat/completions "{$messages, \"regex\": \"a\", \"filling\": \"best\", \"temperature\": 1}" filling 'temperature 0'
    refuses /v1/chat/completions "{$messages, \"regex\": \"a\", \"filling\": \"most\"}" filling 'each or best'
}
wrong_forms_are_refused_by_name() {
    refuses /v1/chat/completions "{$messages, \"response_format\": {\"type\": \"structural_tag\"}}" response_format structural_tag
    refuses /v1/chat/completions "{$messages, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"a\"}}}" \
        response_format schema
    refuses /generate '{"text": "a", "sampling_params": {"structural_tag": "{}"}}' structural_tag tag
    refuses /v1/responses '{"input": "a", "text": {"format": {"type": "grammar"}}}' text grammar
    refuses /v1/messages "{$messages, \"output_format\": {\"type\": \"json_schema\"}}" output_format schema
    refuses /v1/messages "{$messages, \"output_config\": {\"speed\": \"low\"}}" output_config speed
    refuses /v1/completions "{$prompt, \"guided_choice\": \"a\"}" guided_choice array
}
tools_beside_a_constraint_are_refused_unless_none_may_be_called() {
    local tools='"tools": [{"type": "function", "function": {"name": "add"}}]'
    refuses /v1/chat/completions "{$messages, $tools, \"response_format\": {\"type\": \"json_object\"}}" tools response_format
}

every_field_constrains_the_answer() {
    local choice='"guided_choice": ["red", "green"]'
    says /v1/completions "{$prompt, $choice}" 'choices[0].text' 'red|green'
    says /v1/chat/completions "{$messages, $choice}" 'choices[0].message.content' 'red|green'
    [ "$(member 'choices[0].finish_reason')" = stop ]
    says /v1/completions "{$prompt, \"guided_regex\": \"[a-f]{3}\"}" 'choices[0].text' '[a-f]{3}'
    says /v1/completions "{$prompt, \"guided_grammar\": \"root ::= \\\"x\\\" [0-9]\"}" 'choices[0].text' 'x[0-9]'
    says /v1/completions "{$prompt, \"structured_outputs\": {\"regex\": \"[a-f]{3}\"}}" 'choices[0].text' '[a-f]{3}'
    says /generate '{"text": "a", "sampling_params": {"regex": "[a-f]{3}"}}' text '[a-f]{3}'
    says /generate '{"text": "a", "sampling_params": {"ebnf": "root ::= \"x\" [0-9]"}}' text 'x[0-9]'
    says /completion "{$prompt, \"grammar\": \"root ::= \\\"x\\\" [0-9]\"}" content 'x[0-9]'
    [ "$(member stop_type)" = eos ]
}
schemas_constrain_the_answer() {
    post /v1/chat/completions "{$messages, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"sum\", \"strict\": true, \"schema\": $schema}}}"
    is_sum "$(member 'choices[0].message.content')"
    post /v1/chat/completions "{$messages, \"temperature\": 1.5, \"n\": 4, \"guided_json\": $schema}"
    [ "$(member 'choices | length')" = 4 ]
    for i in 0 1 2 3; do is_sum "$(member "choices[$i].message.content")"; done
    post /completion "{$prompt, \"json_schema\": $schema}"
    is_sum "$(member content)"
    post /generate "{\"text\": \"a\", \"sampling_params\": {\"json_schema\": $(jq -c tojson <<< "$schema")}}"
    is_sum "$(member text)"
    post /v1/responses "{\"input\": \"a\", \"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"sum\", \"schema\": $schema}}}"
    is_sum "$(member 'output[0].content[0].text')"
    [ "$(member text.format.name)" = sum ]
    post /v1/messages "{$messages, \"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": $schema}}}"
    is_sum "$(member 'content[0].text')"
    [ "$(member stop_reason)" = end_turn ]
    post /v1/chat/completions "{$messages, \"response_format\": {\"type\": \"json_object\"}}"
    jq -e 'type == "object"' <<< "$(member 'choices[0].message.content')"
}
streams_have_the_constrained_text() {
    local mode
    for mode in block_append mixed; do
        post /v1/chat/completions "{$messages, \"stream\": true, \"stream_mode\": \"$mode\", \"guided_json\": $schema}"
        is_sum "$(sed -n 's/^data: {/{/p' "$work/body" | jq -rs 'map(.choices[0].delta.content // "") | join("")')"
    done
}
special_tokens_enclose_the_reasoning_before_the_answer() {
    model=$work/special
    mkdir -p "$model"
    ln -sf "$PWD"/models/tiny-block/* "$model"
    rm "$model/tokenizer.json"
    jq '.added_tokens += [["<think>", 1016], ["</think>", 1017]] | .added_tokens |= map(if type == "array" then
        {id: .[1], content: .[0], special: true, single_word: false, lstrip: false, rstrip: false, normalized: false}
        else . end)' models/tiny-block/tokenizer.json > "$model/tokenizer.json"
    serve --in-process --reasoning-parser deepseek_r1
    post /v1/chat/completions "{$messages, \"n\": 4, \"temperature\": 1.5, \"return_token_ids\": true, \"guided_json\": $schema}"
    jq -e '.choices | length == 4 and all(.token_ids | map(select(. == 1017)) | length == 1)' "$work/body"
    for i in 0 1 2 3; do is_sum "$(member "choices[$i].message.content")"; done
    not grep -q '</think>' "$work/body"
    jq -e '[.choices[].message.reasoning_content // ""] | any(length > 0)' "$work/body"
    post /v1/chat/completions "{$messages, \"stream\": true, \"temperature\": 1.5, \"seed\": 3, \"guided_json\": $schema}"
    is_sum "$(sed -n 's/^data: {/{/p' "$work/body" | jq -rs 'map(.choices[0].delta.content // "") | join("")')"
    # Without a constraint the parser sees the token, too.
    post /v1/chat/completions "{${messages%,*}, \"logit_bias\": {\"1017\": 100}, \"max_tokens\": 2}"
    [ "$(member 'choices[0].message.content')" = '</think>' ]
}
a_constraint_holds_for_the_text_before_a_suffix() {
    local mode
    model=models/tiny-full
    serve --in-process
    says /v1/completions "{$prompt, \"suffix\": \" = 42\", \"regex\": \"[0-9]{1,2}( \\\\+ [0-9]{1,2})*\"}" 'choices[0].text' \
        '[0-9]{1,2}( \+ [0-9]{1,2})*'
    [ "$(member 'choices[0].finish_reason')" = stop ]
    for mode in block_append mixed; do
        post /v1/completions "{$prompt, \"suffix\": \"!\", \"stream\": true, \"stream_mode\": \"$mode\", \"guided_json\": $schema}"
        is_sum "$(sed -n 's/^data: {/{/p' "$work/body" | jq -rs 'map(.choices[0].text // "") | join("")')"
    done
    refuses /v1/completions "{\"prompt\": \"a\", \"suffix\": \"b\", \"max_tokens\": 2, \"regex\": \"[a-f]{300}\"}" max_tokens 300
}
an_answer_that_meets_the_bound_of_its_constraint_says_so() {
    local large='"regex": "[ab]*a[ab]{16}", "temperature": 2'
    post /v1/chat/completions "{$messages, $large}"
    [ "$(member 'choices[0] | "\(.finish_reason) \(.completion_reason)"')" = 'error constraint_too_large' ]
    post /v1/chat/completions "{$messages, $large, \"stream\": true}"
    grep -q '"finish_reason":"error".*"completion_reason":"constraint_too_large"' "$work/body"
    post /v1/messages "{$messages, $large}"
    [ "$(member '| "\(.stop_reason) \(.completion_reason)"')" = 'error constraint_too_large' ]
    post /v1/responses "{\"input\": \"a\", $large}"
    [ "$(member '| "\(.status) \(.completion_reason)"')" = 'failed constraint_too_large' ]
    [[ "$(member error.message)" = *'the constraint needs more memory'* ]]
    post /generate "{\"text\": \"a\", \"sampling_params\": {\"regex\": \"[ab]*a[ab]{16}\", \"temperature\": 2}}"
    [ "$(member 'meta_info.finish_reason.type')" = error ]
    [ "$(member 'meta_info.completion_reason')" = constraint_too_large ]
    try run --url "$url" --max-tokens 60 --temperature 2 --regex '[ab]*a[ab]{16}' 'What is 12 + 30?'
    [ "$rc" = 1 ]
    grep -q 'the constraint needs more memory' "$work/err"
    says /v1/completions "{$prompt, \"regex\": \"[a-f]{3}\"}" 'choices[0].text' '[a-f]{3}'
}
errors_name_the_place_in_the_constraint() {
    refuses /v1/chat/completions "{$messages, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"a\", \"schema\": {\"type\": \"object\", \"properties\": {\"age\": {\"type\": \"years\"}}}}}}" \
        response_format '#/properties/age'
    refuses /v1/completions "{$prompt, \"regex\": \"a(\"}" regex ''
    refuses /v1/completions "{$prompt, \"grammar\": \"root ::= other\"}" grammar other
    refuses /v1/completions "{\"prompt\": \"a\", \"max_tokens\": 2, \"regex\": \"[a-f]{300}\"}" max_tokens 300
}

claims_all
