#!/bin/bash
# The families DiffusionGemma, WeDLM, LLaDA2.2 and Nemotron in the server, each with its own strategy, on tiny random
# checkpoints: streams, several answers, seeds, stop strings, shared prompts, and requests that lose their pages.
source tests/cli/claims.bash
source tests/server/serve.bash
FOLDERS=build/data/families
declare -A MODELS=([gemma]=diffusion_gemma/models/dgemma_a [wedlm]=wedlm/models/wedlm_8b
    [llada2_2]=llada22/models/llada22_a [nemotron]=nemotron/models/nemotron_c)
prompt='"t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15 t16 t17 t18 t19 t20 t21"'
drawn='"temperature": 0.8, "ignore_eos": true'

# begin FAMILY OPTION...: starts a server with the family's model.
begin() {
    model=$FOLDERS/${MODELS[$1]}
    shift
    serve --in-process "$@"
}
# ask FIELDS: posts a completion; its text is then in $text.
ask() {
    post /v1/completions "{\"prompt\": $prompt, $1}"
    [ "$status" = 200 ] || return 1
    text=$(jq -r '.choices[0].text' "$work/body")
}
# Joins the deltas of a streamed completion.
stream() {
    post /v1/completions "{\"prompt\": $prompt, \"stream\": true, $1}" > "$work/printed"
    [ "$status" = 200 ]
    [ "$(tail -n 2 "$work/body")" = 'data: [DONE]' ]
    sed -n 's/^data: //p' "$work/body" | grep -v '^\[DONE\]$' > "$work/events"
    jq -rs '[.[].choices[0].text // ""] | join("")' "$work/events"
}

# Answers with seeds are repeated and differ; a stream has the same text; answers of one request are those of requests
# with the next seeds; a stop string cuts the text in front of itself.
answers_are_right() {
    local family=$1 first second third word
    begin "$family" --max-num-reqs 4
    ask "\"max_tokens\": 40, \"seed\": 1, $drawn"
    first=$text
    [ "$(member usage.completion_tokens)" = 40 ]
    [ "$(member 'choices[0].finish_reason')" = length ]
    ask "\"max_tokens\": 40, \"seed\": 1, $drawn"
    [ "$text" = "$first" ]
    [ "$(stream "\"max_tokens\": 40, \"seed\": 1, $drawn")" = "$first" ]
    ask "\"max_tokens\": 40, \"seed\": 2, $drawn"
    second=$text
    ask "\"max_tokens\": 40, \"seed\": 3, $drawn"
    third=$text
    [ "$first" != "$second" ]
    [ "$second" != "$third" ]
    post /v1/completions "{\"prompt\": $prompt, \"max_tokens\": 40, \"seed\": 1, \"n\": 3, $drawn}"
    [ "$status" = 200 ]
    diff <(jq -r '.choices[].text' "$work/body") <(printf '%s\n' "$first" "$second" "$third")
    word=$(cut -d ' ' -f 12 <<< "$first")
    [ -n "$word" ]
    ask "\"max_tokens\": 40, \"seed\": 1, \"stop\": [\" $word \"], $drawn"
    [ "$(member 'choices[0].finish_reason')" = stop ]
    [ "$text" = "${first%%" $word "*}" ]
    [ "$(stream "\"max_tokens\": 40, \"seed\": 1, \"stop\": [\" $word \"], $drawn")" = "$text" ]
    stop_server
    [ "$rc" = 0 ]
}

# Answers that run together on few pages lose them to each other, and are as if they were alone.
lost_pages_change_no_answer() {
    local family=$1 i
    begin "$family" --max-num-reqs 4 --page-size 16 --num-pages "$2" --max-model-len 112 --no-enable-prefix-caching
    for i in 1 2 3 4; do
        ask "\"max_tokens\": 64, \"seed\": $i, $drawn"
        echo "$text"
    done > "$work/alone"
    ask "\"max_tokens\": 64, \"seed\": 1, \"n\": 4, $drawn"
    diff <(grep -v / "$work/alone" | grep '^t') <(jq -r '.choices[].text' "$work/body")
    call /metrics
    grep -E '^unmask_preemptions_total(\{.*\})? [1-9]' "$work/body"
    stop_server
    [ "$rc" = 0 ]
}

claims_begin

gemma_answers() { answers_are_right gemma; }
wedlm_answers() { answers_are_right wedlm; }
llada2_2_answers() { answers_are_right llada2_2; }
nemotron_answers() { answers_are_right nemotron; }

gemma_loses_pages() { lost_pages_change_no_answer gemma 12; }
wedlm_loses_pages() { lost_pages_change_no_answer wedlm 12; }
llada2_2_loses_pages() { lost_pages_change_no_answer llada2_2 12; }
nemotron_loses_pages() { lost_pages_change_no_answer nemotron 12; }

# The keys of a prompt are shared between requests of the causal families, also while its first answer runs.
prompts_are_shared() {
    local family before
    for family in gemma wedlm nemotron; do
        begin "$family" --page-size 16
        ask "\"max_tokens\": 8, \"seed\": 1, $drawn"
        before=$text
        ask "\"max_tokens\": 8, \"seed\": 1, $drawn"
        [ "$text" = "$before" ]
        [ "$(member usage.prompt_tokens_details.cached_tokens)" = 16 ]
        stop_server
    done
}
images_are_refused_by_name() {
    begin gemma
    post /v1/chat/completions '{"messages": [{"role": "user", "content": [{"type": "image_url",
        "image_url": {"url": "data:image/png;base64,"}}]}]}'
    [ "$status" = 400 ]
    member error.message | grep -F '"image_url"'
}
tools_need_the_template_of_the_checkpoint() {
    begin gemma
    post /v1/chat/completions '{"messages": [{"role": "user", "content": "t5"}], "tools": [{"type": "function",
        "function": {"name": "f", "parameters": {"type": "object"}}}]}'
    [ "$status" = 400 ]
    member error.message | grep -F 'the built-in template gemma4 has no tools'
}

claims_all
