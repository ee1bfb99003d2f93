#!/bin/bash
# The options that constrain an answer: their texts and files, errors, and answers of run, chat, generate and a server.
source tests/cli/claims.bash
source tests/server/serve.bash
MODEL=models/tiny-block
schema='{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["name", "age"], "additionalProperties": false}'
echo "$schema" > "$work/schema.json"
echo 'root ::= "yes" | "no " [0-9]' > "$work/answer.gbnf"

answer() {
    try run --model "$MODEL" --max-tokens 64 "$@" 'What is 12 + 30?'
    [ "$rc" = 0 ]
}
refused() {
    local words=$1
    shift
    try run --model "$MODEL" "$@" 'What is 12 + 30?'
    [ "$rc" = 2 ]
    [ ! -s "$work/out" ]
    grep -qF -- "$words" "$work/err"
}
is_person() { jq -e 'keys == ["age", "name"] and (.age | . >= 0 and . <= 99) and (.name | length <= 8)' "$1"; }

claims_begin

two_constraints_are_an_error() {
    refused '--json-object and --regex' --regex a --json-object
    refused '--regex and --choice' --choice 'a|b' --regex a
    refused '--json-schema and --grammar' --json-schema "$work/schema.json" --grammar "$work/answer.gbnf"
}
files_that_can_not_be_read_are_named() {
    try run --model "$MODEL" --json-schema "$work/none" x
    [ "$rc" != 0 ]
    grep -qF -- "--json-schema: $work/none" "$work/err"
    try run --model "$MODEL" --grammar "$work/none" x
    [ "$rc" != 0 ]
    grep -qF -- "--grammar: $work/none" "$work/err"
    printf '{"a": "\0"}' > "$work/zero.json"
    refused 'U+0000 at byte 7' --json-schema "$work/zero.json"
}
files_may_begin_with_a_byte_order_mark() {
    printf '\xEF\xBB\xBF%s' "$schema" > "$work/marked.json"
    answer --json-schema "$work/marked.json"
    is_person "$work/out"
    printf '\xEF\xBB\xBFroot ::= "a" "b"' > "$work/marked.gbnf"
    answer --grammar "$work/marked.gbnf"
    [ "$(cat "$work/out")" = ab ]
    printf '\xEF\xBB\xBF[]' > "$work/tools.json"
    try run --model "$MODEL" --tools "$work/tools.json" --max-tokens 4 x
    [ "$rc" = 0 ]
}
other_limits_of_an_answer_are_refused_by_name() {
    refused "ignore_eos: it can't be combined" --regex a --ignore-eos
    refused "stop: it can't be combined" --regex a --stop x
    refused "min_tokens: it can't be combined" --json-object --min-tokens 3
    refused "max_nfe: it can't be combined" --json-schema "$work/schema.json" --max-nfe 3
    refused '--grammar-depth: 65' --json-object --grammar-depth 65
    refused '--json-space: 17' --json-object --json-space 17
}
generate_names_the_lines_with_wrong_constraints() {
    printf '%s\n' '{"id": 1, "prompt": "a", "regex": "a", "stop": "x"}' '{"id": 2, "prompt": "a", "regex": "a", "json_schema": {}}' \
        '{"id": 3, "prompt": "a", "max_tokens": 2}' > "$work/lines"
    try generate --model "$MODEL" --input "$work/lines" --output -
    [ "$rc" = 1 ]
    [ "$(jq -r '.error.message // "none"' "$work/out" | cut -d: -f1)" = $'stop\njson_schema\nnone' ]
}

answers_keep_the_constraint() {
    answer --json-object
    jq -e 'type == "object"' "$work/out"
    answer --json-schema "$work/schema.json"
    is_person "$work/out"
    answer --json-schema "$schema" --temperature 1.5 --seed 7
    is_person "$work/out"
    answer --regex '[a-f]{3}-\d{2}'
    grep -qxE '[a-f]{3}-[0-9]{2}' "$work/out"
    answer --grammar "$work/answer.gbnf"
    grep -qxE 'yes|no [0-9]' "$work/out"
    answer --grammar 'root ::= "x" root | "y"'
    grep -qxE 'x*y' "$work/out"
    answer --choice 'red|green "leaf"|blue'
    grep -qxE 'red|green "leaf"|blue' "$work/out"
    answer --json --choice 'red|green'
    [ "$(jq -r .finish_reason "$work/out")" = eos_token_generated ]
}
chat_and_generate_keep_the_constraint() {
    printf 'hello\nwhat?\n' | "$UNMASK" chat --model "$MODEL" --max-tokens 16 --choice 'red|green' > "$work/talk"
    [ "$(grep -cxE 'red|green' "$work/talk")" = 2 ]
    printf '%s\n' '{"prompt": "a"}' '{"prompt": "a", "guided_choice": ["up", "down"]}' > "$work/lines"
    try generate --model "$MODEL" --input "$work/lines" --output - --choice 'red|green'
    [ "$rc" = 0 ]
    [ "$(jq -r .text "$work/out" | sed -E 's/red|green/colour/; s/up|down/way/')" = $'colour\nway' ]
}
a_server_keeps_the_constraint_of_run() {
    serve --in-process
    local option
    for option in --json-object "--json-schema=$work/schema.json" '--regex=[a-f]{3}' "--grammar=$work/answer.gbnf" '--choice=a|b'; do
        try run --url "$url" --max-tokens 64 --temperature 0 "$option" 'What is 12 + 30?'
        [ "$rc" = 0 ]
        cp "$work/out" "$work/remote"
        answer --temperature 0 "$option"
        cmp "$work/out" "$work/remote"
    done
}
an_answer_that_meets_the_bound_of_its_constraint_fails() {
    try run --model "$MODEL" --max-tokens 60 --temperature 2 --regex '[ab]*a[ab]{16}' 'What is 12 + 30?'
    [ "$rc" = 1 ]
    grep -q 'the constraint needs more memory' "$work/err"
    printf '%s\n' '{"prompt": "a", "regex": "[ab]*a[ab]{16}", "temperature": 2}' '{"prompt": "a"}' > "$work/lines"
    try generate --model "$MODEL" --input "$work/lines" --output - --max-tokens 60
    [ "$rc" = 1 ]
    [ "$(jq -r .finish_reason "$work/out" | head -1)" = constraint_too_large ]
    grep -q 'line 1: the constraint needs more memory' "$work/err"
    not grep -q 'line 2' "$work/err"
}

claims_all
