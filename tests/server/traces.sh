#!/bin/bash
# --otlp-traces: a line of OpenTelemetry's JSON for each generation.
source tests/cli/claims.bash
source tests/server/serve.bash

traces=$work/traces
trap 'rm -rf "$work"' EXIT

question='"messages": [{"role": "user", "content": "What is 12 + 30?"}]'
slow='"max_tokens": 900, "ignore_eos": true, "accept_threshold": 1'
trace=4bf92f3577b34da6a3ce929d0e0e4736 parent=00f067aa0ba902b7
# next: waits for the next line of the file and puts it into $work/line. It must be an export of one resource.
lines=0
next() {
    lines=$((lines + 1))
    for _ in $(seq 200); do
        [ "$(wc -l < "$traces")" -lt $lines ] || break
        sleep 0.05
    done
    sed -n ${lines}p "$traces" > "$work/line"
    jq -e '.resourceSpans | length == 1' "$work/line"
}
# holds FILTER: fails unless a filter of the line holds. `spans` are its spans, `root` is the first one, and `text(KEY)`,
# `int(KEY)` are attributes of a span.
holds() {
    jq -e "def spans: .resourceSpans[0].scopeSpans[0].spans; def root: spans[0];
        def value(\$key): .attributes[] | select(.key == \$key) | .value;
        def text(\$key): value(\$key).stringValue; def int(\$key): value(\$key).intValue | tonumber; $1" "$work/line"
}
# trace_server OPTION...: starts a server with these options and an empty file.
trace_server() {
    rm -f "$traces"
    lines=0
    serve --in-process --otlp-traces "$traces" "$@"
}

claims_begin

a_chat_has_a_span_with_its_parts() {
    trace_server
    post /v1/chat/completions "{$question, \"temperature\": 0.5, \"seed\": 7}" -H "traceparent: 00-$trace-$parent-01" \
        -H 'tracestate: vendor=1' -H 'x-request-id: seen'
    [ "$status" = 200 ]
    next
    holds 'root | .traceId == "'$trace'" and .parentSpanId == "'$parent'" and .traceState == "vendor=1" and .kind == 2'
    holds 'root | .name == "chat tiny-block" and .status == {}'
    holds 'root | text("gen_ai.operation.name") == "chat" and text("gen_ai.request.model") == "tiny-block"'
    holds 'root | text("http.route") == "/v1/chat/completions" and text("unmask.request_id") == "seen"'
    holds "root | text(\"gen_ai.response.id\") == \"$(member id)\""
    holds "root | int(\"gen_ai.usage.input_tokens\") == $(member usage.prompt_tokens)"
    holds "root | int(\"gen_ai.usage.output_tokens\") == $(member usage.completion_tokens)"
    holds 'root | int("gen_ai.request.seed") == 7 and value("gen_ai.request.temperature").doubleValue == 0.5'
    holds 'root | value("gen_ai.response.finish_reasons").arrayValue.values == [{stringValue: "stop"}]'
    holds '[spans[] | .name] == ["chat tiny-block", "queue", "prefill", "decode"]'
    holds 'root.spanId as $id | all(spans[1:][]; .parentSpanId == $id and .traceId == "'$trace'" and .kind == 1)'
    holds '[spans[].spanId] | unique | length == 4 and all(test("^[0-9a-f]{16}$"))'
    holds '[spans[1:][] | .startTimeUnixNano, .endTimeUnixNano] | . == sort and .[1] == .[2] and .[3] == .[4]'
    holds 'root.startTimeUnixNano <= spans[1].startTimeUnixNano and root.endTimeUnixNano >= spans[3].endTimeUnixNano'
    holds '(root.startTimeUnixNano | tonumber / 1e9 - now | fabs) < 100'
    holds '.resourceSpans[0].resource.attributes[] | select(.key == "service.name") | .value.stringValue == "unmask"'
    if grep -e 'What is' -e '42\.' "$traces"; then return 1; fi
    [ "$(stat -c %a "$traces")" = 600 ]
}
each_answer_has_its_parts() {
    trace_server
    post /v1/completions '{"prompt": ["One", "Two"], "n": 2, "max_tokens": 4}'
    next
    holds '[spans[1:][] | int("unmask.answer")] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]'
    holds 'root | text("gen_ai.operation.name") == "text_completion" and int("gen_ai.request.choice.count") == 2'
    holds "root | int(\"gen_ai.usage.input_tokens\") == $(member usage.prompt_tokens)"
}
a_trace_that_the_client_does_not_record_is_left_out() {
    trace_server
    post /v1/completions '{"prompt": "One", "max_tokens": 2}' -H "traceparent: 00-$trace-$parent-00"
    post /v1/completions '{"prompt": "One", "max_tokens": 2}' -H "traceparent: 01-$trace-$parent-01-more"
    next
    holds 'root.parentSpanId == "'$parent'"'
}
a_malformed_header_begins_a_new_trace() {
    local header
    trace_server
    for header in "00-$trace-$parent" "ff-$trace-$parent-01" "00-$trace-0000000000000000-01" "00-$trace-$parent-01-x" \
        "00-${trace^^}-$parent-01" x ''; do
        post /v1/completions '{"prompt": "One", "max_tokens": 2}' -H "traceparent: $header"
        [ "$status" = 200 ]
        next
        holds 'root | (has("parentSpanId") | not) and .traceId != "'$trace'" and (.traceId | test("^[0-9a-f]{32}$"))'
    done
}
a_timeout_is_an_error() {
    trace_server --request-timeout 0.3
    post /v1/completions "{\"prompt\": \"One\", $slow}"
    [ "$status" = 504 ]
    next
    holds 'root | .status.code == 2 and (.status.message | test("request-timeout")) and text("error.type") == "504"'
    holds 'spans | length == 1'
}
a_client_that_disconnects_is_an_error() {
    trace_server
    if curl -sS -m 0.3 -H 'Content-Type: application/json' -d "{\"prompt\": \"One\", $slow}" "$url/v1/completions"; then
        return 1
    fi
    next
    holds 'root | .status.code == 2 and text("error.type") == "499"'
}
requests_without_a_connection_have_traces() {
    trace_server
    post /v1/generate '{"prompt": "One", "max_tokens": 2}'
    next
    holds 'root | [.attributes[].key] | index("http.route") == null'
}
a_renamed_file_is_made_again() {
    trace_server
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    next
    mv "$traces" "$traces.1"
    touch "$traces"
    lines=0
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    next
    [ "$(wc -l < "$traces.1")" = 1 ]
}
a_full_disk_loses_traces_only() {
    rm -f "$traces"
    serve --in-process --otlp-traces /dev/full
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    [ "$status" = 200 ]
    wait_for 'otlp-traces: /dev/full: No space left' "$work/log"
    stop_server
    [ "$rc" = 0 ]
    [ "$(grep -c /dev/full "$work/log")" = 1 ]
}
a_file_that_cannot_be_opened_is_a_usage_error() {
    local rc=0
    "$UNMASK" serve --model "$model" --port 0 --otlp-traces "$work/none/traces" 2> "$work/log" || rc=$?
    [ "$rc" = 2 ]
    grep 'otlp-traces.*none/traces: No such file' "$work/log"
}
traces_that_wait_are_written_at_the_end() {
    trace_server
    post /v1/completions '{"prompt": "One", "max_tokens": 2}'
    stop_server
    [ "$(wc -l < "$traces")" = 1 ]
}

claims_all
