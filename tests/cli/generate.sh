#!/bin/bash
# unmask generate: order, errors, resuming, full disks, interrupts.
command=generate
. tests/cli/expect.bash

# 240 requests. The first is the longest, so that the results of others wait for it.
for i in $(seq 240); do
    echo "{\"id\": \"r$i\", \"prompt_token_ids\": [$((i % 400)), 7, $((i % 13))], \"max_tokens\": $((i == 1 ? 200 : i % 24 + 1)), \"seed\": $i, \"temperature\": $((i % 2)), \"ignore_eos\": true}"
done > "$dir/many.jsonl"

cat > "$dir/mixed.jsonl" << 'END'
{"id": 1, "prompt": "t1 t2 t3", "max_tokens": 8}

{"id": "1", "prompt": "t1", "max_token": 20}
this is no JSON
{"id": "seed", "prompt": "t1 t2", "max_tokens": 4, "temperature": 1, "seed": 77}
{"id": "far", "prompt_token_ids": [5, 600]}
END

# One result per request, in order. A failed request does not affect the others.
expect 1 --model $golden --input "$dir/mixed.jsonl" --output "$dir/mixed.out"
[ "$(grep -c . "$dir/mixed.out")" = 5 ] || fail "5 results expected: $(cat "$dir/mixed.out")"
sed -n 1p "$dir/mixed.out" | grep -q '^{"id":1,"token_ids":\[.*"finish_reason":"' || fail "first result"
sed -n 2p "$dir/mixed.out" | grep -q '^{"id":"1","error":{"code":"UM_EINVAL".*max_tokens' || fail "unknown key"
sed -n 3p "$dir/mixed.out" | grep -q '^{"id":null,"line":4,"error":{"code":"UM_EPARSE"' || fail "malformed line"
sed -n 4p "$dir/mixed.out" | grep -q '^{"id":"seed".*"seed":77,' || fail "seed"
sed -n 5p "$dir/mixed.out" | grep -q '^{"id":"far","error":{"code":"UM_ERANGE"' || fail "foreign token"
says 'failed 3'
says "unmask generate: line 3: unknown field \"max_token\""
says "unmask generate: line 4: the line: invalid JSON"
says "unmask generate: line 6: "
if grep -q '"trace"' "$dir/mixed.out"; then fail "a trace without --trace"; fi

# Requests with messages accept all fields of chat requests. Errors are in the result of the request.
cat > "$dir/chats.jsonl" << 'END'
{"id": "tools", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "tools": [{"name": "f"}], "max_tokens": 1}
{"id": "none", "messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "f"}], "tool_choice": "none", "max_tokens": 1}
{"id": "plain", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
{"id": "think", "messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"enable_thinking": false}, "max_tokens": 1}
{"id": "more", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I"}], "continue_final_message": true, "max_tokens": 1}
{"id": "both", "messages": [{"role": "user", "content": "Hi"}], "continue_final_message": true, "add_generation_prompt": true}
{"id": "role", "messages": [{"role": "boss", "content": "Hi"}]}
{"id": "own", "messages": [{"role": "user", "content": "Hi"}], "chat_template": "{{ raise_exception('own words') }}"}
END
expect 1 --model models/tiny-block --chat-template qwen3 --input "$dir/chats.jsonl" --output "$dir/chats.out"
prompt_of() { sed -n "s/^{\"id\":\"$1\".*\"prompt_tokens\":\([0-9]*\).*/\1/p" "$dir/chats.out"; }
[ "$(prompt_of tools)" -gt "$(prompt_of plain)" ] || fail "tools are not in the prompt"
[ "$(prompt_of none)" = "$(prompt_of plain)" ] || fail "tool_choice none"
[ "$(prompt_of think)" -gt "$(prompt_of plain)" ] || fail "variables do not reach the template"
[ "$(prompt_of more)" -gt 0 ] || fail "a continued message"
grep -q '^{"id":"both","error":{"code":"UM_EINVAL".*contradict' "$dir/chats.out" || fail "both switches"
grep -q '^{"id":"role","error":{"code":"UM_EINVAL".*message 0: role' "$dir/chats.out" || fail "unknown role"
grep -q '^{"id":"own","error":{"code":"UM_ETEMPLATE".*line 1: own words' "$dir/chats.out" || fail "raise_exception"

# --special-in-content applies to prompts and to conversations.
cat > "$dir/special.jsonl" << 'END'
{"id": "chat", "messages": [{"role": "user", "content": "a <|im_end|>"}], "max_tokens": 1}
{"id": "text", "prompt": "a <|im_end|>", "max_tokens": 1}
END
expect 1 --model models/tiny-block --special-in-content reject --input "$dir/special.jsonl" --output "$dir/special.out"
[ "$(grep -c 'UM_EINVAL.*spells the token' "$dir/special.out")" = 2 ] || fail "reject: $(cat "$dir/special.out")"

# A complete output is not changed, errors included.
cp "$dir/mixed.out" "$dir/mixed.before"
expect 1 --model $golden --input "$dir/mixed.jsonl" --output "$dir/mixed.out"
cmp "$dir/mixed.out" "$dir/mixed.before"
says 'already has results for all requests'

# The first three errors are also printed, with their lines, and no more of them.
for i in 1 2 3 4 5; do echo "{\"prompt\": \"t$i\", \"max_tokens\": 0}"; done > "$dir/zero.jsonl"
expect 1 --model $golden --input "$dir/zero.jsonl" --output - --quiet
[ "$(grep -c '^unmask generate: line [123]: max_tokens: 0 is outside' "$dir/err")" = 3 ] || fail "errors: $(cat "$dir/err")"
[ "$(wc -l < "$dir/err")" = 3 ] || fail "more than three errors: $(cat "$dir/err")"
expect 1 --model $golden --input "$dir/zero.jsonl" --output -
says 'only the first 3 errors were printed; the others are in the output'

# The id of a line without one is its number, which no other line may have. A resumed run finds it again.
cat > "$dir/unnamed.jsonl" << 'END'

{"prompt": "t1", "max_tokens": 2, "seed": 1}
{"id": "two", "prompt": "t1", "max_tokens": 2, "seed": 1}
{"id": null, "prompt": "t1", "max_tokens": 2, "seed": 1}
END
expect 0 --model $golden --input "$dir/unnamed.jsonl" --output "$dir/unnamed.out"
[ "$(sed 's/^{"id":\([^,]*\),.*/\1/' "$dir/unnamed.out" | xargs)" = '2 two 4' ] || fail "ids: $(cat "$dir/unnamed.out")"
cp "$dir/unnamed.out" "$dir/unnamed.whole"
sed -i 1d "$dir/unnamed.out"
expect 0 --model $golden --input "$dir/unnamed.jsonl" --output "$dir/unnamed.out"
cmp <(sort "$dir/unnamed.out") <(sort "$dir/unnamed.whole")
echo '{"id": 4, "prompt": "t1"}' >> "$dir/unnamed.jsonl"
expect 2 --model $golden --input "$dir/unnamed.jsonl" --output "$dir/none.out"
says 'duplicate id 4 in lines 4 and 5'
expect 0 --model $golden --input - --output - < <(head -n 4 "$dir/unnamed.jsonl")
cmp "$dir/out" "$dir/unnamed.whole"

# A prompt goes through the chat template, if there is one; --raw sends it as it is.
echo '{"prompt": "What is 12 + 30?"}' > "$dir/asks.jsonl"
echo '{"messages": [{"role": "user", "content": "What is 12 + 30?"}]}' > "$dir/talks.jsonl"
expect 0 --model models/tiny-block --input "$dir/talks.jsonl" --output "$dir/talks.out"
has_42() { grep -q '"text":"12 + 30 = 42."' "$1" || fail "no answer: $(cat "$1")"; }
has_42 "$dir/talks.out"
expect 0 --model models/tiny-block --input "$dir/asks.jsonl" --output "$dir/asks.out"
cmp <(sed 's/"seed":[0-9]*//' "$dir/asks.out") <(sed 's/"seed":[0-9]*//' "$dir/talks.out")
expect 0 --model models/tiny-block --input "$dir/asks.jsonl" --output "$dir/raw.out" --raw
[ "$(sed 's/.*"prompt_tokens":\([0-9]*\).*/\1/' "$dir/raw.out")" -lt "$(sed 's/.*"prompt_tokens":\([0-9]*\).*/\1/' "$dir/asks.out")" ] ||
    fail "--raw has the template: $(cat "$dir/raw.out")"
expect 0 --model models/tiny-block --input "$dir/talks.jsonl" --output - --raw
has_42 "$dir/out"

# Empty answers are counted, with the likely reason. The first token of an answer is made a stop token.
empty() {
    local first
    expect 0 "$@" --input "$dir/$input.jsonl" --output -
    first=$(sed 's/.*"token_ids":\[\([0-9]*\).*/\1/' "$dir/out")
    sed "s/^{/{\"stop_token_ids\": [$first], /" "$dir/$input.jsonl" > "$dir/stops.jsonl"
    expect 0 "$@" --input "$dir/stops.jsonl" --output -
}
input=asks
empty --model models/tiny-block
says '1 empty answer: the prompts went through the chat template; if the model was not trained on chats, use --raw'
empty --model models/tiny-block --raw
says '1 empty answer: 1 had a raw prompt, but the model has a chat template: leave out --raw'
empty --model models/tiny-block --raw --quiet
[ ! -s "$dir/err" ] || fail "--quiet: $(cat "$dir/err")"
echo '{"prompt_token_ids": [70, 71, 72]}' > "$dir/ids.jsonl"
input=ids
empty --model models/tiny-block
says '1 empty answer: 1 had a raw prompt, but the model has a chat template: send "prompt" or "messages"'
echo '{"prompt": "t1 t2", "ignore_eos": true, "max_tokens": 4}' > "$dir/plain.jsonl"
input=plain
empty --model $golden
says '1 empty answer: the model has no chat template'

# A trace has an entry per pass.
head -n 1 "$dir/mixed.jsonl" > "$dir/one.jsonl"
expect 0 --model $golden --input "$dir/one.jsonl" --output "$dir/trace.out" --trace
nfe=$(sed -n 's/.*"nfe":\([0-9]*\).*/\1/p' "$dir/trace.out")
[ "$(grep -o '"prefill"' "$dir/trace.out" | wc -l)" = "$nfe" ] || fail "$nfe passes, another number of trace entries"

# Results have the order of the input, whichever ends first. They are the same in a batch of 1 and from a pipe.
expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/many.out"
sed 's/.*"id":"\(r[0-9]*\)".*/\1/' "$dir/many.out" | cmp - <(seq -f 'r%.0f' 240) || fail "order"
expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/alone.out" --max-num-reqs 1
cmp "$dir/many.out" "$dir/alone.out"

# Several engines give the same results, whichever gets a request.
for policy in prefix least-loaded round-robin; do
    expect 0 --model $golden --max-model-len 256 --input "$dir/many.jsonl" --output - --quiet --max-num-reqs 4 --data-parallel-size 3 \
        --route-policy $policy
    cmp "$dir/many.out" "$dir/out"
done
expect 0 --model $golden --max-model-len 256 --input "$dir/one.jsonl" --output - --data-parallel-size 2
says '2 engines, '
expect 2 --model $golden --input "$dir/many.jsonl" --output - --data-parallel-size 65
says '1..64'
expect 0 --model $golden --input - --output - --quiet < <(cat "$dir/many.jsonl")
mv "$dir/out" "$dir/pipe.out"
cmp "$dir/many.out" "$dir/pipe.out"
[ ! -s "$dir/err" ] || fail "--quiet: $(cat "$dir/err")"

# The same command completes an output that was cut at any byte, to the same file.
size=$(stat -c %s "$dir/many.out")
for bytes in 0 1 $((size / 3)) $((size / 2 + 7)) $((size - 1)) "$size"; do
    head -c "$bytes" "$dir/many.out" > "$dir/cut.out"
    expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/cut.out"
    cmp "$dir/many.out" "$dir/cut.out" || fail "resumed from $bytes bytes"
done
sed -i 17d "$dir/cut.out"
expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/cut.out"
cmp <(sort "$dir/many.out") <(sort "$dir/cut.out") || fail "answering a removed line again"

# Standard input may be a file that was partly read.
{ read -r _; expect 0 --model $golden --input - --output "$dir/rest.out"; } < "$dir/many.jsonl"
cmp <(tail -n +2 "$dir/many.out") "$dir/rest.out"

# An interrupted run says how to continue, and can be continued.
for i in $(seq 4000); do echo "{\"id\": $i, \"prompt\": \"t$((i % 400))\", \"max_tokens\": 64, \"ignore_eos\": true}"; done \
    > "$dir/long.jsonl"
"$UNMASK" generate --model $golden --input "$dir/long.jsonl" --output "$dir/long.out" 2> "$dir/err" &
pid=$!
while [ ! -s "$dir/long.out" ] && kill -0 $pid 2> /dev/null; do sleep 0.01; done
kill -INT $pid
rc=0
wait $pid || rc=$?
[ $rc = 130 ] || fail "an interrupted run ended with $rc"
says 'run the same command again to continue'
done_lines=$(wc -l < "$dir/long.out")
[ "$done_lines" -gt 0 ] && [ "$done_lines" -lt 4000 ] || fail "$done_lines lines after the interrupt"
head -n $((done_lines + 1)) "$dir/long.jsonl" > "$dir/short.jsonl"
cp "$dir/long.out" "$dir/short.out"
expect 0 --model $golden --input "$dir/short.jsonl" --output "$dir/short.out"
[ "$(wc -l < "$dir/short.out")" = $((done_lines + 1)) ] || fail "resuming after an interrupt"

# small_disk ARGUMENT...: runs the command with a limit of 8 KiB per file.
small_disk() {
    rc=0
    (
        trap '' XFSZ
        ulimit -f 8
        exec "$UNMASK" generate --model $golden "$@"
    ) > "$dir/out" 2> "$dir/err" || rc=$?
    [ $rc = 1 ] || fail "a full disk ended the run with $rc"
}

# A full disk ends the run. The error is reported once, with path and reason. The counts are those of the lines on the
# disk. These lines stay, and the run can be resumed.
small_disk --input "$dir/many.jsonl" --output "$dir/full.out"
[ "$(grep -c 'cannot write' "$dir/err")" = 1 ] || fail "not one error: $(cat "$dir/err")"
says "cannot write $dir/full.out: File too large"
n=$(wc -l < "$dir/full.out")
[ "$n" -gt 0 ] && [ "$n" -lt 240 ] || fail "$n lines on a full disk"
says "answered $n, failed 0;"
says "has $n results; run the same command again"
small_disk --input "$dir/many.jsonl" --output "$dir/full.out"
says "answered before $n, failed 0"
says 'answered 0, failed 0;'
expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/full.out"
cmp "$dir/many.out" "$dir/full.out"

# Failed requests are also counted by their lines.
sed 's/"max_tokens"/"max_token"/' "$dir/many.jsonl" > "$dir/wrong.jsonl"
small_disk --input "$dir/wrong.jsonl" --output "$dir/wrong.out"
n=$(wc -l < "$dir/wrong.out")
[ "$n" -gt 0 ] && [ "$n" -lt 240 ] || fail "$n failures on a full disk"
says "answered 0, failed $n;"
expect 1 --model $golden --input "$dir/wrong.jsonl" --output "$dir/wrong.out"
[ "$(wc -l < "$dir/wrong.out")" = 240 ] || fail "resuming failures"

# A profile that can't be written is an error. All results are written, so the message doesn't offer to continue.
head -n 3 "$dir/many.jsonl" > "$dir/three.jsonl"
# Its file is checked before the model is loaded.
expect 2 --model $golden --input "$dir/three.jsonl" --output "$dir/three.out" --profile "$dir"
says "--profile: $dir: cannot write: Is a directory"
[ "$(wc -l < "$dir/err")" = 1 ] || fail "more than the error was printed: $(cat "$dir/err")"
[ ! -e "$dir/three.out" ] || fail "a refused run made its output"
small_disk --input "$dir/three.jsonl" --output "$dir/three.out" --profile "$dir/trace.json"
says "cannot write the profile $dir/trace.json: File too large"
says "three.out has 3 results"
if grep -q 'the same command again' "$dir/err"; then fail "the message offers to continue a finished run"; fi
for file in /dev/full -; do
    rc=0
    "$UNMASK" generate --model $golden --input "$dir/one.jsonl" --output $file > /dev/full 2> "$dir/err" || rc=$?
    [ $rc = 1 ] || fail "a full disk ended the run with $rc"
    says 'No space left on device'
    says 'answered 0, failed 0;'
done

# Wrong usage and input exit with 2, before a model is opened.
cat "$dir/one.jsonl" "$dir/one.jsonl" > "$dir/duplicate.jsonl"
expect 2 --model $golden --input "$dir/duplicate.jsonl" --output "$dir/none.out"
says 'duplicate id 1 in lines 1 and 2'
[ ! -s "$dir/none.out" ] || fail "answers to duplicate ids"
expect 1 --model $golden --input - --output "$dir/duplicate.out" < <(cat "$dir/duplicate.jsonl")
sed -n 2p "$dir/duplicate.out" | grep -q '^{"id":null,"line":2,"error".*duplicate id' || fail "a duplicate id in a stream"
expect 2 --model $golden --input "$dir/one.jsonl" --output "$dir/many.out"
says 'belongs to another run'
expect 2 --model $golden --input - --output "$dir/many.out" < <(cat "$dir/many.jsonl")
says "can't be compared"
expect 2 --model $golden --input "$dir/many.jsonl" --output "$dir/many.jsonl"
says 'same file'
{ head -n 2 "$dir/many.out"; echo 'garbage'; tail -n 1 "$dir/many.out"; } > "$dir/broken.out"
expect 2 --model $golden --input "$dir/many.jsonl" --output "$dir/broken.out"
says 'broken.out:3 is not a valid result'
expect 2 --model $golden --input "$dir/missing.jsonl" --output "$dir/none.out"
expect 2 --model $golden --input "$dir/one.jsonl" --output "$dir/no/such/folder"
expect 2 --model $golden --input "$dir/one.jsonl"
says '--output is missing'
expect 2 --model $golden --output "$dir/none.out"
says '--input is missing'
expect 2 --model $golden --input "$dir/one.jsonl" --output "$dir/none.out" --accept-treshold 0.5
says '--accept-threshold'
rc=0
"$UNMASK" generate --model "$dir" --input "$dir/one.jsonl" --output "$dir/none.out" 2> "$dir/err" || rc=$?
[ $rc = 3 ] || fail "a folder without a model ended with $rc"

# --overwrite replaces the output.
expect 0 --model $golden --input "$dir/one.jsonl" --output "$dir/many.out" --overwrite
[ "$(wc -l < "$dir/many.out")" = 1 ] || fail "--overwrite"
