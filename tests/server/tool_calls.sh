#!/bin/bash
# Tool calls with a model: allowed tools, and calls that a request requires, which fit the schemas of the tools.
source tests/cli/claims.bash
source tests/server/serve.bash

serve --in-process --chat-template qwen3
shared_pid=$pid
trap 'kill -9 $shared_pid 2> /dev/null || true; rm -rf "$work"' EXIT

tool() { printf '{"type": "function", "function": {"name": "%s", "parameters": {"type": "object", "properties": {}}}}' "$1"; }
named() { printf '{"type": "function", "function": {"name": "%s"}}' "$1"; }
question='"messages": [{"role": "user", "content": "What is 12 + 30?"}]'
tools="\"tools\": [$(tool add), $(tool sub), $(tool mul)]"
chat() { post /v1/chat/completions "{$question, $tools, $1}"; }
refuses() {
    post "$1" "$2"
    [ "$status" = 400 ]
    [ "$(member error.param)" = tool_choice ]
    [[ "$(member error.message)" = *$3* ]]
}
allowed() { printf '"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "%s", "tools": [%s]}}' "$1" "$2"; }

claims_begin

a_required_call_fits_the_schema_of_its_tool() {
    local call
    tools="\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"add \\\"x\\\"\", \"parameters\": {\"type\": \"object\",
        \"\$defs\": {\"n\": {\"type\": \"integer\", \"minimum\": 10, \"maximum\": 99}}, \"additionalProperties\": false,
        \"properties\": {\"a\": {\"\$ref\": \"#/\$defs/n\"}, \"default\": {\"enum\": [{\"\$ref\": \"#/x\"}]}}, \"required\": [\"a\", \"default\"]}}},
        $(tool sub), {\"type\": \"function\", \"function\": {\"name\": \"now\"}}]"
    chat '"tool_choice": {"type": "function", "function": {"name": "add \"x\""}}, "temperature": 1.5, "n": 3'
    [ "$status" = 200 ]
    [ "$(member 'choices | map(.finish_reason) | unique | join(" ")')" = tool_calls ]
    jq -e '.choices[].message | .content == null and (.tool_calls | length) == 1 and (.tool_calls[0].function | .name == "add \"x\"" and
        (.arguments | fromjson | keys == ["a", "default"] and .a >= 10 and .a <= 99 and .default == {"$ref": "#/x"}))' "$work/body"
    chat "$(allowed required "$(named now)")"
    [ "$(member 'choices[0].message.tool_calls[0].function | "\(.name) \(.arguments | fromjson)"')" = 'now {}' ]
    # Any of several tools: its arguments fit its own schema.
    chat '"tool_choice": "required", "temperature": 2, "n": 8'
    jq -e '[.choices[].message.tool_calls[0].function | (.arguments | fromjson | keys | length) as $n |
        if .name == "now" then $n == 0 elif .name == "sub" then true else $n == 2 end] | length == 8 and all' "$work/body"
}
a_required_call_streams_in_the_form_of_its_api() {
    local forced="$question, $tools, \"tool_choice\": \"required\", \"temperature\": 0" arguments
    post /v1/chat/completions "{$forced}"
    arguments=$(member 'choices[0].message.tool_calls[0].function.arguments')
    post /v1/chat/completions "{$forced, \"stream\": true}"
    sed -n 's/^data: {/{/p' "$work/body" > "$work/events"
    [ "$(jq -rs 'map(.choices[0].delta.tool_calls[0].function.arguments // "") | join("")' "$work/events")" = "$arguments" ]
    [ "$(jq -rs 'map(.choices[0].finish_reason // empty) | join("")' "$work/events")" = tool_calls ]
    not grep -q '"content":"[^"]' "$work/body"
}
a_required_call_needs_no_parser() {
    serve --in-process # the template of the model has no calls
    chat '"tool_choice": "required"'
    [ "$(member 'choices[0].message.tool_calls | length')" = 1 ]
    refuses /v1/chat/completions "{$question, $tools, \"tool_choice\": \"required\", \"continue_final_message\": true}" continue_final_message
    post /v1/chat/completions "{$question, $tools, \"tool_choice\": \"required\", \"max_tokens\": 2}"
    [ "$status" = 400 ]
    [ "$(member error.param)" = max_tokens ]
    post /v1/chat/completions "{$question, $tools, \"tool_choice\": \"required\", \"regex\": \"a\"}"
    [ "$status" = 400 ]
    [ "$(member error.param)" = tools ]
    post /v1/chat/completions "{$question, \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\", \"parameters\": {\"type\": \"years\"}}}], \"tool_choice\": \"required\"}"
    [ "$(member error.param)" = tools ]
    [[ "$(member error.message)" = *years* ]]
}

only_allowed_tools_are_shown_to_the_model() {
    local names='"chat_template": "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}."'
    post /apply-template "{$question, $tools, $names}"
    [ "$(member prompt)" = 'add sub mul .' ]
    post /apply-template "{$question, $tools, $names, $(allowed auto "$(named mul), $(named add)")}"
    [ "$(member prompt)" = 'mul add .' ]
    chat "$(allowed required "$(named mul)")"
    [ "$(member 'choices[0].message.tool_calls[0].function.name')" = mul ]
    chat "$(allowed auto "$(named mul)"), \"max_tokens\": 2"
    [ "$status" = 200 ]
    refuses /apply-template "{$question, $tools, $(allowed auto "$(named div)")}" 'unknown tool "div"'
    refuses /apply-template "{$question, $(allowed auto "$(named div)")}" 'no tools'
    refuses /apply-template "{$question, $tools, $(allowed never "$(named mul)")}" allowed_tools
    refuses /apply-template "{$question, $tools, $(allowed auto '')}" allowed_tools
}

claims_all
