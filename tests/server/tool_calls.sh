#!/bin/bash
# Tool calls with a model: the parser that the chat template chooses, allowed tools, and calls that a request requires.
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

the_template_chooses_the_parser() {
    # The template of qwen3 shows <tool_call>. A call can be required, even if this model can't write it.
    chat '"tool_choice": "required", "max_tokens": 4'
    [ "$status" = 422 ]
    serve --in-process # the template of the model has no calls
    refuses /v1/chat/completions "{$question, $tools, \"tool_choice\": \"required\"}" --tool-call-parser
    kill $pid
    serve --in-process --chat-template qwen3 --tool-call-parser none
    refuses /v1/chat/completions "{$question, $tools, \"tool_choice\": \"required\"}" --tool-call-parser
}

a_required_call_that_is_none_is_an_error() {
    chat '"tool_choice": "required", "max_tokens": 2'
    [ "$status" = 422 ]
    [ "$(member error.code)" = unusable_answer ]
    [ "$(member error.param)" = tool_choice ]
    [[ "$(member error.message)" = *'finish reason length'* ]]
    chat '"tool_choice": "required", "max_tokens": 2, "stream": true'
    [ "$status" = 200 ]
    grep -q '^data: {"error":{"message":"tool_choice: the model did not write the required tool call' "$work/body"
    grep -qx 'data: \[DONE\]' "$work/body"
    not grep -q 'tool_call>' "$work/body"
    # A request that can do without a call gets the text.
    chat '"max_tokens": 2'
    [ "$status" = 200 ]
}

only_allowed_tools_are_shown_to_the_model() {
    local names='"chat_template": "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}."'
    post /apply-template "{$question, $tools, $names}"
    [ "$(member prompt)" = 'add sub mul .' ]
    post /apply-template "{$question, $tools, $names, $(allowed auto "$(named mul), $(named add)")}"
    [ "$(member prompt)" = 'mul add .' ]
    chat "$(allowed required "$(named mul)"), \"max_tokens\": 2"
    [ "$status" = 422 ]
    chat "$(allowed auto "$(named mul)"), \"max_tokens\": 2"
    [ "$status" = 200 ]
    refuses /apply-template "{$question, $tools, $(allowed auto "$(named div)")}" 'unknown tool "div"'
    refuses /apply-template "{$question, $(allowed auto "$(named div)")}" 'no tools'
    refuses /apply-template "{$question, $tools, $(allowed never "$(named mul)")}" allowed_tools
    refuses /apply-template "{$question, $tools, $(allowed auto '')}" allowed_tools
}

claims_all
