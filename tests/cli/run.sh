#!/bin/bash
# `unmask run`: its output, what ends an answer, and the exit status.
source tests/cli/claims.bash
WORDS=build/data/golden/models/sdar # its vocabulary is t0..t511, so answers differ from all other text

words_try() { try run --model "$WORDS" --ignore-eos --max-tokens 12 "$@"; }
words() {
    words_try "$@"
    [ "$rc" = 0 ]
    [ -s "$work/out" ]
}
terminal() { on_terminal run --model "$WORDS" --ignore-eos "$@"; }
text_of_json() { sed -n 's/.*"text":"\([^"]*\)".*/\1/p' "$1"; }

claims_begin

prints_only_the_answer_into_a_pipe() {
    words t5 t6 t7
    grep -qxE 't[0-9]+( t[0-9]+){11}' "$work/out"
    [ "$(wc -l < "$work/out")" = 1 ]
    [ ! -s "$work/err" ]
}
joins_the_words_of_the_prompt() {
    words t5 t6 t7
    cp "$work/out" "$work/three"
    words 't5 t6 t7'
    cmp "$work/three" "$work/out"
}
reads_the_prompt_from_standard_input() {
    words t5 t6 t7
    cp "$work/out" "$work/given"
    echo 't5 t6 t7' | "$UNMASK" run --model "$WORDS" --ignore-eos --max-tokens 12 > "$work/piped"
    echo 't5 t6 t7' | "$UNMASK" run --model "$WORDS" --ignore-eos --max-tokens 12 - > "$work/dash"
    cmp "$work/given" "$work/piped"
    cmp "$work/given" "$work/dash"
}
json_holds_the_answer_and_its_numbers() {
    words t5 t6 t7
    cp "$work/out" "$work/plain"
    words --json --seed 7 t5 t6 t7
    [ "$(text_of_json "$work/out")" = "$(cat "$work/plain")" ]
    grep -q '"finish_reason":"max_new_tokens_reached"' "$work/out"
    grep -q '"seed":7,"prompt_tokens":3,"completion_tokens":12' "$work/out"
    grep -qE '"token_ids":\[[0-9]+(,[0-9]+){11}\]' "$work/out"
}
one_seed_gives_one_answer() {
    words --temperature 1 --seed 5 t5 t6
    cp "$work/out" "$work/first"
    words --temperature 1 --seed 5 --threads 1 t5 t6
    cmp "$work/first" "$work/out"
    words --temperature 1 --seed 6 t5 t6
    not cmp -s "$work/first" "$work/out"
}
stop_text_is_not_part_of_the_answer() {
    words t5 t6 t7
    read -r one two three rest < "$work/out"
    [ -n "$three" ]
    not grep -q " $three" <<< "$one $two"
    words --stop " $three" t5 t6 t7
    [ "$(cat "$work/out")" = "$one $two" ]
}
stop_text_understands_escapes_and_refuses_others() {
    words --stop '\n' t5
    words_try --stop 'a\q' t5
    [ "$rc" = 2 ]
    grep -q -- '--stop' "$work/err"
}
show_prompt_goes_to_standard_error() {
    words --raw --show-prompt t5 t6
    [ "$(cat "$work/err")" = 't5 t6' ]
    [ "$(wc -l < "$work/out")" = 1 ]
}
chat_template_is_used_unless_raw() {
    try run --model models/tiny-block --max-tokens 1 --show-prompt --system 'Be brief.' Hello
    [ "$rc" = 0 ]
    grep -q '<|im_start|>user' "$work/err"
    grep -q 'Be brief.' "$work/err"
    try run --model models/tiny-block --max-tokens 1 --show-prompt --raw Hello
    [ "$(cat "$work/err")" = Hello ]
}
tools_and_variables_reach_the_template() {
    echo '[{"name": "f"}]' > "$work/tools.json"
    try run --model models/tiny-block --max-tokens 1 --show-prompt --tools "$work/tools.json" --chat-template qwen3 \
        --chat-template-kwargs '{"enable_thinking": false}' Hello
    [ "$rc" = 0 ]
    grep -qxF '{"name": "f"}' "$work/err"
    grep -qx '</think>' "$work/err"
    words_try --tools "$work/tools.json" t5
    [ "$rc" = 2 ]
    grep -q -- '--tools needs a chat template' "$work/err"
}
chat_template_option_works_in_every_command() {
    echo 'My {{ messages[0].content }}' > "$work/own.jinja"
    try run --model models/tiny-block --max-tokens 1 --show-prompt --chat-template "$work/own.jinja" Hello
    [ "$(cat "$work/err")" = 'My Hello' ]
    UNMASK_CHAT_TEMPLATE='Text {{ messages[0].content }}' try run --model models/tiny-block --max-tokens 1 --show-prompt Hello
    [ "$(cat "$work/err")" = 'Text Hello' ]
    try run --model models/tiny-block --chat-template "$work/none.jinja" Hello
    [ "$rc" = 2 ] || [ "$rc" = 3 ]
    grep -q "$work/none.jinja" "$work/err"
}
system_message_needs_a_template() {
    words_try --system hello t5
    [ "$rc" = 2 ]
    grep -q 'chat template' "$work/err"
}
longest_prompt_of_the_model_fits() {
    printf 't7 %.0s' {1..2000} > "$work/long"
    "$UNMASK" run --model "$WORDS" --ignore-eos --max-tokens 8 --json < "$work/long" > "$work/out"
    grep -q '"prompt_tokens":2000' "$work/out"
}
too_long_prompt_is_refused_with_the_numbers() {
    printf 't7 %.0s' {1..3000} > "$work/long"
    rc=0
    "$UNMASK" run --model "$WORDS" < "$work/long" 2> "$work/err" > "$work/out" || rc=$?
    [ "$rc" = 2 ]
    grep -q 3000 "$work/err"
    grep -q 2048 "$work/err"
    [ ! -s "$work/out" ]
}
missing_model_says_how_to_name_one() {
    try run hello
    [ "$rc" = 2 ]
    grep -q -- '--model DIR' "$work/err"
    grep -q UNMASK_MODEL "$work/err"
    grep -qF "bundled model (tiny-block, tiny-full)" "$work/err"
}
model_may_come_from_the_environment() {
    UNMASK_MODEL=$WORDS try run --max-tokens 3 --ignore-eos t5
    [ "$rc" = 0 ]
    grep -qE '^t[0-9]+' "$work/out"
}
missing_folder_exits_3() {
    try run --model "$work/nothing" hello
    [ "$rc" = 3 ]
    grep -q "$work/nothing" "$work/err"
}
broken_model_exits_3() {
    mkdir -p "$work/broken"
    cp "$WORDS"/*.json "$work/broken/"
    echo '{' > "$work/broken/config.json"
    head -c 100 "$WORDS/model.safetensors" > "$work/broken/model.safetensors"
    try run --model "$work/broken" t5
    [ "$rc" = 3 ]
    grep -q config.json "$work/err"
}
unknown_option_names_the_nearest() {
    words_try --max-token 3 t5
    [ "$rc" = 2 ]
    grep -q 'did you mean --max-tokens' "$work/err"
}
value_out_of_range_names_option_and_range() {
    words_try --accept-threshold 1.5 t5
    [ "$rc" = 2 ]
    grep -q -- '--accept-threshold' "$work/err"
    grep -q '0\.\.1' "$work/err"
}
a_profile_that_cannot_be_written_is_refused_at_the_start() {
    mkdir "$work/table.csv"
    for name in none/x table.json table.csv; do
        try run --model models/tiny-block --profile "$work/$name" Hello
        [ "$rc" = 2 ]
        grep -q -- "^unmask run: --profile: $work/${name/.json/.csv}: cannot write: " "$work/err"
    done
    [ ! -e "$work/table.json" ]
}
files_of_options_that_cannot_be_read_are_wrong_usage() {
    touch "$work/closed"
    chmod 000 "$work/closed"
    for option in --tools --json-schema --grammar; do
        for name in none . closed; do
            rc=0
            with_permissions "$UNMASK" run --model models/tiny-block $option "$work/$name" Hello 2> "$work/err" || rc=$?
            [ "$rc" = 2 ]
            grep -q -- "^unmask run: $option: $work/$name: cannot " "$work/err"
        done
    done
    rm "$work/closed"
}
empty_prompt_is_refused() {
    words_try ''
    [ "$rc" = 2 ]
    grep -q empty "$work/err"
}
invalid_text_is_refused_with_its_byte() {
    words_try --raw $'t5 \xff'
    [ "$rc" = 2 ]
    grep -q 3 "$work/err"
}
full_disk_is_reported() {
    rc=0
    "$UNMASK" run --model "$WORDS" --ignore-eos --max-tokens 4 t5 > /dev/full 2> "$work/err" || rc=$?
    [ "$rc" = 1 ]
    grep -q 'standard output' "$work/err"
}
interrupt_ends_the_answer_and_keeps_settled_text() {
    rc=0
    "$UNMASK" run --model models/tiny-block --raw --ignore-eos --max-tokens 900 --accept-threshold 1 --json hello \
        > "$work/out" 2> "$work/err" &
    local pid=$!
    # The program has started to compute when it has used more than 0.3 s of processor time.
    for _ in $(seq 200); do
        [ "$(awk '{ print $14 }' "/proc/$pid/stat")" -le 30 ] || break
        sleep 0.05
    done
    kill -TERM $pid
    wait $pid || rc=$?
    cat "$work/out"
    [ "$rc" = 143 ]
    grep -q '"finish_reason":"aborted"' "$work/out"
}
missing_prompt_is_explained_with_examples_of_the_model() {
    rc=0
    script -qec "$UNMASK run --model models/tiny-full" /dev/null < /dev/null > "$work/out" || rc=$?
    [ "$rc" = 2 ]
    grep -q 'no text: give it as arguments' "$work/out"
    grep -qF 'Try: Reverse the word "lamp". | What is 12 + 30? | Extract' "$work/out"
    try run --model models/tiny-full ''
    [ "$rc" = 2 ]
    grep -q '^Try: ' "$work/err"
    words_try ''
    [ "$rc" = 2 ]
    not grep -q '^Try' "$work/err"
}
draws_masks_and_tokens_on_a_terminal() {
    terminal --max-tokens 12 --buffer-size 2 --delay 20 t5 t6 t7
    grep -q '░' "$work/out"            # a mask
    grep -q $'\e\\[1;32m' "$work/out"  # fresh tokens
    grep -q $'\e\\[J' "$work/out"
}
terminal_shows_only_the_answer_at_the_end() {
    words --buffer-size 2 t5 t6 t7
    cp "$work/out" "$work/plain"
    LC_ALL=C terminal --quiet --max-tokens 12 --buffer-size 2 --delay 20 t5 t6 t7
    diff <(screen | sed '/^$/d') "$work/plain"
}
narrow_terminal_shows_every_row_once() {
    words --max-tokens 60 --buffer-size 4 --accept-threshold 0.02 t5 t6
    cp "$work/out" "$work/plain"
    columns=9 rows=5
    LC_ALL=C terminal --quiet --max-tokens 60 --buffer-size 4 --accept-threshold 0.02 --delay 20 t5 t6
    [ "$(screen | xargs)" = "$(xargs < "$work/plain")" ]
}
canvas_taller_than_the_terminal_leaves_no_mask_behind() {
    WORDS=build/data/golden/models/llada
    words --max-tokens 64 --steps 16 t5 t6
    cp "$work/out" "$work/plain"
    columns=11 rows=4
    LC_ALL=C terminal --quiet --max-tokens 64 --steps 16 --delay 20 t5 t6
    [ "$(screen | xargs)" = "$(xargs < "$work/plain")" ]
}
no_color_leaves_out_colours_but_draws() {
    NO_COLOR=1 terminal --quiet --max-tokens 12 --delay 20 t5 t6 t7
    grep -q '░' "$work/out"
    not grep -qE $'\e\\[([0-9]+;)*(3[0-9]|9[0-7])m' "$work/out"
}
dumb_terminal_gets_plain_text() {
    TERM=dumb terminal --quiet --max-tokens 12 t5 t6 t7
    not grep -q $'\e' "$work/out"
    tr -d '\r' < "$work/out" | grep -qxE 't[0-9]+( t[0-9]+){11}'
}
no_view_streams_plain_text() {
    terminal --quiet --no-view --max-tokens 12 t5 t6 t7
    not grep -q $'\e' "$work/out"
    tr -d '\r' < "$work/out" | grep -qxE 't[0-9]+( t[0-9]+){11}'
}
streamed_words_wrap_as_in_the_view() {
    columns=31
    for how in --view --no-view; do
        on_terminal run --model models/tiny-block --quiet $how 'Tell me a story with a bee called Wanda and a candle.'
        screen > "$work/$how"
    done
    cat "$work/--view"
    [ "$(grep -c . "$work/--view")" -ge 4 ]
    diff "$work/--view" "$work/--no-view"
    printf 'Tell me a story with a bee called Wanda and a candle.\n/quit\n' > "$work/keys"
    script -qec "stty cols $columns -echo; $UNMASK chat --model models/tiny-block --quiet --no-view --no-history" \
        /dev/null < "$work/keys" | tr -d '\r' > "$work/chat"
    cat "$work/chat"
    grep -qxF "$(sed -n 2p "$work/--view")" "$work/chat"
}
locale_without_utf8_gets_ascii_masks() {
    LC_ALL=C terminal --quiet --max-tokens 12 --delay 20 t5 t6 t7
    grep -q '_' "$work/out"
    not grep -q '░' "$work/out"
}
unknown_instruction_set_is_refused_with_those_there_are() {
    UM_CPU_ISA=mmx words_try t5
    [ "$rc" = 3 ]
    grep -qE 'UM_CPU_ISA: "mmx" is not available on this processor; expected one of .*"plain C"' "$work/err"
}
a_device_that_cannot_be_used_is_refused_in_one_line() {
    CUDA_VISIBLE_DEVICES='' words_try --device cuda:1 t5
    [ "$rc" = 3 ]
    [ "$(grep -c . "$work/err")" = 1 ]
    grep -q -- 'device "cuda.*--device cpu works' "$work/err"
}
instruction_set_can_be_chosen() {
    UM_CPU_ISA='plain C' terminal --max-tokens 4 t5
    grep -q 'plain C' "$work/out"
}
slow_computing_is_said_once() {
    UM_CPU_ISA='plain C' words_try --max-tokens 4 --threads 1000 t5
    [ "$rc" = 0 ]
    [ "$(grep -c 'warning: plain C computes, many times slower' "$work/err")" = 1 ]
    [ "$(grep -cE 'warning: 1000 threads share [0-9]+ usable CPUs' "$work/err")" = 1 ]
    words_try --max-tokens 4 --threads 1 t5
    not grep -q 'threads share' "$work/err"
}
summary_gives_speed_and_tokens_per_forward() {
    terminal --max-tokens 12 t5 t6 t7
    grep -qE '12 tokens in [0-9]+ passes, [0-9.]+ tokens/s, [0-9.]+ tokens/forward, max_new_tokens_reached' "$work/out"
}

claims_all
