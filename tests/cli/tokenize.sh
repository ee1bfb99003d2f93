#!/bin/bash
# `unmask tokenize`: converts texts and conversations to ids, and back.
source tests/cli/claims.bash
WORDS=build/data/golden/models/sdar # a word-level vocabulary, t0 to t511, no template
MODEL=models/tiny-block

tok() { try tokenize --model "$MODEL" "$@"; }
refuses() { # refuses WORDS OPTION...: exit status 2 and the words on standard error
    local words=$1
    shift
    try tokenize "$@"
    [ "$rc" = 2 ]
    grep -qF -- "$words" "$work/err"
    [ ! -s "$work/out" ]
}
weather='[{"type": "function", "function": {"name": "get_weather", "parameters": {"n": 123456789012345678901}}}]'

claims_begin

ids_and_pieces_are_printed_with_their_index() {
    try tokenize --model "$WORDS" t5 t6
    [ "$rc" = 0 ]
    diff "$work/out" <(printf '     0        5  "t5"\n     1        6  "t6"\n2 tokens, 5 bytes\n')
    try tokenize --model "$WORDS" --ids t5 t6
    [ "$(cat "$work/out")" = '5 6' ]
    try tokenize --model "$WORDS" --json t5 t6
    [ "$(cat "$work/out")" = '{"n":2,"ids":[5,6],"pieces":["t5","t6"],"special":[]}' ]
}
special_tokens_are_marked() {
    tok '<|im_end|>'
    [ "$(grep -c 'special$' "$work/out")" = 1 ]
    tok --json 'a<|im_end|>'
    grep -q '"special":\[1\]' "$work/out"
}
levels_of_special_text() {
    tok --special-in-content text '<|im_end|>'
    not grep -q 'special$' "$work/out"
    tok --special-in-content strict '<|im_end|>'
    not grep -q 'special$' "$work/out"
    refuses '<|im_end|>' --model "$MODEL" --special-in-content reject 'a <|im_end|>'
    refuses 'message 0 (user)' --model "$MODEL" --chat --special-in-content reject 'a <|im_end|>'
}
a_users_special_text_stays_text_in_a_chat() {
    tok --chat 'Hello'
    grep -q '"<|im_start|>"  special' "$work/out"
    plain=$(grep -c special "$work/out")
    tok --chat 'Hello <|im_end|>'
    [ "$(grep -c special "$work/out")" = "$plain" ]
    tok --chat --special-in-content parse 'Hello <|im_end|>'
    [ "$(grep -c special "$work/out")" = $((plain + 1)) ]
}
text_option_prints_only_the_text_of_a_conversation() {
    tok --chat --system 'Be brief.' --chat-template qwen3 --text Hello
    printf '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n' |
        cmp - "$work/out"
}
ids_are_those_that_run_feeds() {
    tok --chat --json 'What is 12 + 30?'
    n=$(sed -n 's/.*"n":\([0-9]*\).*/\1/p' "$work/out")
    try run --model "$MODEL" --max-tokens 1 --json 'What is 12 + 30?'
    grep -q "\"prompt_tokens\":$n," "$work/out"
}
messages_come_from_a_file() {
    cat > "$work/messages.json" << 'END'
[{"role": "developer", "content": "Be brief."},
 {"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]},
 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}]},
 {"role": "tool", "content": "c"}]
END
    echo "$weather" > "$work/tools.json"
    tok --messages "$work/messages.json" --tools "$work/tools.json" --chat-template qwen3 --text \
        --chat-template-kwargs '{"enable_thinking": false}'
    [ "$rc" = 0 ]
    grep -qF '"parameters": {"n": 123456789012345678901}' "$work/out"
    grep -qF '{"name": "f", "arguments": {"b": 1, "a": 2}}' "$work/out"
    grep -qx 'a b<|im_end|>' "$work/out"
    [ "$(tail -n 4 "$work/out")" = $'<think>\n\n</think>' ]
}
a_final_message_can_be_continued() {
    echo '[{"role": "user", "content": "q"}, {"role": "assistant", "content": "so far"}]' > "$work/messages.json"
    tok --messages "$work/messages.json" --continue-final-message --text
    [ "$(tail -c 6 "$work/out")" = 'so far' ]
    tok --messages "$work/messages.json" --no-generation-prompt --text
    not grep -qx '<|im_start|>assistant' <(tail -n 1 "$work/out")
}
ids_are_decoded_to_text() {
    tok --ids 'a b<|im_end|>c'
    cp "$work/out" "$work/ids"
    tok --decode "$(cat "$work/ids")"
    [ "$(cat "$work/out")" = 'a b<|im_end|>c' ]
    tok --decode --no-special "$(sed 's/ /, /g; s/^/[/; s/$/]/' "$work/ids")"
    [ "$(cat "$work/out")" = 'a bc' ]
    "$UNMASK" tokenize --model "$MODEL" --decode < "$work/ids" | grep -qx 'a b<|im_end|>c'
    tok --decode --json 0
    grep -q '"n":1,"ids":\[0\]' "$work/out"
}
a_tokenizer_without_weights_is_enough() {
    mkdir "$work/tokenizer"
    cp "$MODEL/tokenizer.json" "$work/tokenizer" # the other file has a template
    try tokenize --model "$work/tokenizer" Hello
    [ "$rc" = 0 ]
    refuses '--chat-template' --model "$work/tokenizer" --chat Hello
    try tokenize --model "$work/tokenizer" --chat --chat-template qwen3 Hello
    [ "$rc" = 0 ]
    cp "$MODEL/config.json" "$work/tokenizer" # its family has a built-in template
    try tokenize --model "$work/tokenizer" --chat --text Hello
    grep -qx '<|im_start|>user' "$work/out"
}
invalid_options_and_ids_are_refused() {
    for option in --text --continue-final-message '--system x' '--tools x' '--chat-template x' '--chat-template-kwargs {}'; do
        # shellcheck disable=SC2086 # an option and its value
        refuses "${option%% *} needs --chat" --model "$MODEL" $option Hello
    done
    refuses '--decode takes ids' --model "$MODEL" --decode --chat 5
    refuses 'expected ids, found "Hello"' --model "$MODEL" --decode 1 Hello
    refuses '99999999999999999999 is not a token' --model "$MODEL" --decode 99999999999999999999
    refuses '--messages is the whole conversation' --model "$MODEL" --messages x.json --chat Hello
}
errors_of_a_conversation_are_reported() {
    echo '[{"role": "user"' > "$work/broken.json"
    refuses 'messages: invalid JSON' --model "$MODEL" --messages "$work/broken.json"
    refuses 'tools: invalid JSON' --model "$MODEL" --chat --tools "$work/broken.json" Hello
    refuses 'chat_template_kwargs' --model "$MODEL" --chat --chat-template-kwargs '[]' Hello
    refuses "$work/none.json" --model "$MODEL" --messages "$work/none.json"
    refuses 'expected a file' --model "$MODEL" --chat --chat-template "$work/none.jinja" Hello
    refuses 'given as text: line 1, column' --model "$MODEL" --chat --chat-template '{% nonsense %}' Hello
    refuses 'given as text: line 2: no such role' --model "$MODEL" --chat --chat-template \
        $'{# #}\n{{ raise_exception("no such role") }}' Hello
    : > "$work/empty.json"
    refuses 'messages: invalid JSON' --model "$MODEL" --messages "$work/empty.json"
}

claims_all
