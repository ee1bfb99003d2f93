#!/bin/bash
# `unmask chat`: conversations through a pipe and on a terminal.
source tests/cli/claims.bash
MODEL=models/tiny-block
export XDG_STATE_HOME=$work/state

# Runs a conversation with the lines of standard input.
talk() {
    rc=0
    "$UNMASK" chat --model "$MODEL" --max-tokens 24 "$@" > "$work/out" 2> "$work/err" || rc=$?
    tail -n 40 "$work/out" "$work/err"
}

# A claim that needs the line editor calls this.
need_editor() { "$UNMASK" --version | grep -q ', libedit[,)]' || skip 'built without libedit'; }

# A conversation on a terminal, with input typed by the test: begin, type, and end.
begin_typing() {
    local command
    mkfifo "$work/keys"
    printf -v command '%q ' "$UNMASK" chat --model "$MODEL" "$@"
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

# Waits until the terminal's output has a pattern N times.
wait_for_count() {
    for _ in $(seq 1200); do
        [ "$(grep -o -- "$2" "$work/out" | wc -l)" -lt "$1" ] || return 0
        sleep 0.05
    done
    return 1
}

claims_begin

answers_each_line_of_a_pipe() {
    talk --ignore-eos <<< $'Hello\nWhat is 2 + 2?'
    [ "$rc" = 0 ]
    [ -s "$work/out" ]
    not grep -q '> ' "$work/out"
    [ ! -s "$work/err" ]
}
first_answer_equals_that_of_run() {
    "$UNMASK" run --model "$MODEL" --max-tokens 24 'What is 12 + 30?' > "$work/run"
    talk <<< 'What is 12 + 30?'
    cmp "$work/run" "$work/out"
}
tools_and_variables_reach_the_template() {
    echo '[1' > "$work/tools.json"
    talk --tools "$work/tools.json" <<< Hello
    [ "$rc" = 1 ]
    grep -q 'tools: invalid JSON' "$work/err"
    talk --chat-template-kwargs '{"messages": 1}' <<< Hello
    [ "$rc" = 1 ]
    grep -q '"messages" has a place of its own' "$work/err"
    talk --tools "$work/none.json" <<< Hello
    [ "$rc" = 2 ]
    grep -q "$work/none.json" "$work/err"
}
earlier_turns_are_part_of_the_prompt() {
    # With room for a single message, the second turn must drop the first and say so.
    talk --max-model-len 64 <<< $'Hello there\nHello again'
    [ "$rc" = 0 ]
    grep -q 'dropped its first 1 turn' "$work/err"
    talk --max-model-len 64 <<< $'Hello there\n/reset\nHello again'
    not grep -q 'left out' "$work/err"
}
reset_forgets_the_conversation() {
    talk <<< 'What is 12 + 30?'
    cp "$work/out" "$work/once"
    talk <<< $'What is 12 + 30?\n/reset\nWhat is 12 + 30?'
    cat "$work/once" "$work/once" | cmp - "$work/out"
}
set_changes_a_parameter() {
    talk <<< $'/set buffer_size 4\n/set temperature=0.5\n/params'
    [ "$rc" = 0 ]
    grep -qE '^ *buffer_size +4$' "$work/err"
    grep -qE '^ *temperature +0\.5$' "$work/err"
}
set_refuses_values_out_of_range() {
    talk <<< $'/set accept_threshold 2\n/set acept_threshold 1\n/set'
    [ "$rc" = 1 ]
    grep -q '0\.\.1' "$work/err"
    grep -q 'did you mean accept_threshold' "$work/err"
    grep -q '/set NAME VALUE' "$work/err"
}
set_keeps_the_old_value_if_the_model_refuses_the_new_one() {
    # All lines except the last two are refused; the answer must be that of a conversation without them.
    talk <<< $'/set sampler foo\n/set sampler entropy\n/set decoding_strategy full\n/set retention bar
/set min_tokens 400\n/set steps 4\n/params\nWhat is 12 + 30?'
    cp "$work/out" "$work/refused"
    [ "$rc" = 1 ]
    grep -q 'sampler: no sampler is named "foo"; there are: confidence' "$work/err"
    grep -q 'sampler: entropy follows a schedule' "$work/err"
    grep -q 'decoding_strategy: full is not for models of the family sdar' "$work/err"
    grep -q 'retention: no rule is named "bar"' "$work/err"
    grep -q 'min_tokens: 400 is outside 0..24' "$work/err"
    grep -q 'steps: 4 would have no effect' "$work/err"
    [ "$(grep -c '^unmask chat: ' "$work/err")" = 6 ]
    not grep -q '^\[' "$work/err"
    grep -qE '^ *sampler +auto$' "$work/err"
    grep -qE '^ *min_tokens +0$' "$work/err"
    talk <<< 'What is 12 + 30?'
    cmp "$work/out" "$work/refused"
}
set_accepts_values_that_the_model_supports() {
    talk <<< $'/set sampler static\n/set sampler auto\n/set max_tokens 2\nWhat is 12 + 30?'
    [ "$rc" = 0 ]
    grep -qxF '[sampler is static]' "$work/err"
    [ -s "$work/out" ]
}
a_full_disk_is_reported_with_its_reason() {
    rc=0
    "$UNMASK" chat --model "$MODEL" <<< Hello > /dev/full 2> "$work/err" || rc=$?
    [ "$rc" = 1 ]
    grep -qxF 'unmask: cannot write standard output: No space left on device' "$work/err"
}
unknown_command_names_the_nearest() {
    talk <<< '/rest'
    [ "$rc" = 1 ]
    grep -q 'did you mean /reset' "$work/err"
}
help_lists_every_command() {
    talk <<< '/help'
    for command in /help /reset /set /params /stats /quit; do grep -q "^ *$command " "$work/err"; done
}
stats_count_answers() {
    talk <<< $'Hello\nHello\n/stats'
    grep -qE 'answers +2,' "$work/err"
}
quit_ends_before_the_next_line() {
    talk <<< $'/quit\nHello'
    [ "$rc" = 0 ]
    [ ! -s "$work/out" ]
}
two_slashes_begin_an_ordinary_line() {
    talk <<< '//reset is not a command here'
    [ "$rc" = 0 ]
    [ -s "$work/out" ]
}
arguments_are_refused() {
    try chat --model "$MODEL" hello
    [ "$rc" = 2 ]
    grep -q hello "$work/err"
}
model_without_a_template_is_refused() {
    try chat --model build/data/golden/models/sdar
    [ "$rc" = 3 ]
    grep -q 'chat template' "$work/err"
}
interrupt_stops_the_answer_and_not_the_program() {
    begin_typing --ignore-eos --max-tokens 900 --delay 100 --accept-threshold 1
    type_keys 'Hello\n'
    wait_for '░' "$work/out"
    type_keys '\003'
    wait_for 'aborted' "$work/out"
    type_keys '/stats\n'
    wait_for 'answers  *1,' "$work/out"
    type_keys '/quit\n'
    end_typing
    [ "$rc" = 0 ]
}
interrupt_at_the_prompt_clears_the_line() {
    begin_typing --max-tokens 24
    type_keys 'half a line'
    wait_for 'half a line' "$work/out"
    type_keys '\003'
    wait_for '\^C' "$work/out"
    type_keys '/stats\n'
    wait_for 'answers  *0,' "$work/out"
    type_keys '/quit\n'
    end_typing
    [ "$rc" = 0 ]
}
interrupt_twice_at_the_prompt_ends_with_130() {
    begin_typing --max-tokens 24
    type_keys 'half'
    wait_for 'half' "$work/out"
    type_keys '\003'
    wait_for '\^C' "$work/out"
    type_keys '/stats\n'
    wait_for 'answers  *0,' "$work/out"
    # The first of two: the text that follows shows that the program has read it.
    type_keys 'more'
    wait_for 'more' "$work/out"
    type_keys '\003'
    wait_for_count 2 '\^C'
    type_keys '\003'
    end_typing
    [ "$rc" = 130 ]
}
interrupt_without_a_terminal_ends_the_program() {
    mkfifo "$work/lines"
    "$UNMASK" chat --model "$MODEL" --ignore-eos --max-tokens 900 --accept-threshold 1 < "$work/lines" > "$work/out" 2> "$work/err" &
    talker=$!
    exec 8> "$work/lines"
    echo Hello >&8
    for _ in $(seq 1200); do
        [ ! -s "$work/out" ] || break
        sleep 0.05
    done
    kill -INT $talker
    rc=0
    wait $talker || rc=$?
    exec 8>&-
    rm "$work/lines"
    [ "$rc" = 130 ]
}
a_backslash_continues_a_message() {
    talk <<< $'What is \\\n12 + 30?'
    [ "$rc" = 0 ]
    cp "$work/out" "$work/continued"
    "$UNMASK" run --model "$MODEL" --max-tokens 24 $'What is \n12 + 30?' | cmp - "$work/continued"
}
quotes_hold_a_message_of_several_lines() {
    talk <<< $'"""What is\n\n12 + 30?"""\n/stats'
    [ "$rc" = 0 ]
    grep -qE 'answers +1,' "$work/err"
    "$UNMASK" run --model "$MODEL" --max-tokens 24 $'What is\n\n12 + 30?' | cmp - "$work/out"
    talk <<< $'"""\nunfinished'
    [ -s "$work/out" ]
}
lines_can_be_edited() {
    need_editor
    begin_typing --max-tokens 24
    type_keys 'statsü\177\001/\n' # a character of two bytes is deleted; Ctrl-A goes to the start of the line
    wait_for 'answers  *0,' "$work/out"
    type_keys '/quit\n'
    end_typing
    [ "$rc" = 0 ]
}
pasted_lines_are_one_message() {
    need_editor
    begin_typing --max-tokens 8 --no-view
    type_keys '\033[200~one\r\ntwo\nthree\033[201~\n'
    wait_for 'tokens in' "$work/out"
    type_keys '/stats\n'
    wait_for 'answers  *1,' "$work/out"
    type_keys '/quit\n'
    end_typing
    [ "$rc" = 0 ]
}
history_lasts_for_later_sessions() {
    need_editor
    rm -rf "$work/state"
    begin_typing --max-tokens 24
    type_keys '/stats\n'
    wait_for 'answers  *0,' "$work/out"
    type_keys '/quit\n'
    end_typing
    [ "$(stat -c %a "$work/state/unmask/history")" = 600 ]
    begin_typing --max-tokens 24
    type_keys '\020\020\n' # up twice: the line before /quit
    wait_for 'answers  *0,' "$work/out"
    type_keys '/quit\n'
    end_typing
    [ "$rc" = 0 ]
}
history_can_be_switched_off() {
    need_editor
    rm -rf "$work/state"
    begin_typing --max-tokens 24 --no-history
    type_keys '/stats\n'
    wait_for 'answers  *0,' "$work/out"
    type_keys '/quit\n'
    end_typing
    [ ! -e "$work/state" ]
}
end_of_input_ends_the_program() {
    begin_typing --max-tokens 24
    type_keys '\004'
    end_typing
    [ "$rc" = 0 ]
}
greeting_shows_examples_of_the_model() {
    begin_typing
    type_keys '/quit\n'
    end_typing
    grep -qF 'Try: What is 12 + 30? | Sort these numbers: 42, 7, 19, 3. | Tell me a story' "$work/out"
    begin_typing --quiet
    type_keys '/quit\n'
    end_typing
    not grep -q 'Try: ' "$work/out"
}
typed_characters_are_not_echoed_into_the_answer() {
    begin_typing --ignore-eos --max-tokens 900 --delay 50 --accept-threshold 1
    type_keys 'Hello\n'
    wait_for '░' "$work/out"
    type_keys 'zzzzzz'
    sleep 0.3
    type_keys '\003'
    wait_for 'aborted' "$work/out"
    type_keys '/quit\n'
    end_typing
    not grep -q zzzzzz "$work/out"
}

claims_all
