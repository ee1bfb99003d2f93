#!/bin/bash
# unmask generate: order, errors, resuming, full disks, interrupts.
command=generate
. tests/cli/expect.bash

# 240 requests; the first is the longest, so that others wait for it.
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

# One line a request, in order; what fails fails alone.
expect 1 --model $golden --input "$dir/mixed.jsonl" --output "$dir/mixed.out"
[ "$(grep -c . "$dir/mixed.out")" = 5 ] || fail "5 results expected: $(cat "$dir/mixed.out")"
sed -n 1p "$dir/mixed.out" | grep -q '^{"id":1,"token_ids":\[.*"finish_reason":"' || fail "first result"
sed -n 2p "$dir/mixed.out" | grep -q '^{"id":"1","error":{"code":"UM_EINVAL".*max_tokens' || fail "unknown key"
sed -n 3p "$dir/mixed.out" | grep -q '^{"id":null,"line":4,"error":{"code":"UM_EPARSE"' || fail "malformed line"
sed -n 4p "$dir/mixed.out" | grep -q '^{"id":"seed".*"seed":77,' || fail "seed"
sed -n 5p "$dir/mixed.out" | grep -q '^{"id":"far","error":{"code":"UM_ERANGE"' || fail "foreign token"
says 'failed 3'
if grep -q '"trace"' "$dir/mixed.out"; then fail "a trace that nobody asked for"; fi

# Conversations carry all that a chat request says; what is wrong with one is said in its result.
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

# The level of special text is the operator's, for prompts and conversations alike.
cat > "$dir/special.jsonl" << 'END'
{"id": "chat", "messages": [{"role": "user", "content": "a <|im_end|>"}], "max_tokens": 1}
{"id": "text", "prompt": "a <|im_end|>", "max_tokens": 1}
END
expect 1 --model models/tiny-block --special-in-content reject --input "$dir/special.jsonl" --output "$dir/special.out"
[ "$(grep -c 'UM_EINVAL.*spells the token' "$dir/special.out")" = 2 ] || fail "reject: $(cat "$dir/special.out")"

# A finished output is left alone, errors included.
cp "$dir/mixed.out" "$dir/mixed.before"
expect 1 --model $golden --input "$dir/mixed.jsonl" --output "$dir/mixed.out"
cmp "$dir/mixed.out" "$dir/mixed.before"
says 'answers every request already'

# A trace has an entry a pass.
head -n 1 "$dir/mixed.jsonl" > "$dir/one.jsonl"
expect 0 --model $golden --input "$dir/one.jsonl" --output "$dir/trace.out" --trace
nfe=$(sed -n 's/.*"nfe":\([0-9]*\).*/\1/p' "$dir/trace.out")
[ "$(grep -o '"prefill"' "$dir/trace.out" | wc -l)" = "$nfe" ] || fail "$nfe passes, another number of trace entries"

# The order is the input's, whatever ends first, and the same in a batch of 1 and from a pipe.
expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/many.out"
sed 's/.*"id":"\(r[0-9]*\)".*/\1/' "$dir/many.out" | cmp - <(seq -f 'r%.0f' 240) || fail "order"
expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/alone.out" --max-num-reqs 1
cmp "$dir/many.out" "$dir/alone.out"

# The same from several engines, whichever gets a request.
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

# Wherever a run was cut, the same command completes it to the same file.
size=$(stat -c %s "$dir/many.out")
for bytes in 0 1 $((size / 3)) $((size / 2 + 7)) $((size - 1)) "$size"; do
    head -c "$bytes" "$dir/many.out" > "$dir/cut.out"
    expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/cut.out"
    cmp "$dir/many.out" "$dir/cut.out" || fail "resumed from $bytes bytes"
done
sed -i 17d "$dir/cut.out"
expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/cut.out"
cmp <(sort "$dir/many.out") <(sort "$dir/cut.out") || fail "a line that was taken out is answered again"

# Standard input may be a file that was read in part.
{ read -r _; expect 0 --model $golden --input - --output "$dir/rest.out"; } < "$dir/many.jsonl"
cmp <(tail -n +2 "$dir/many.out") "$dir/rest.out"

# An interrupted run says how to go on, and goes on.
for i in $(seq 4000); do echo "{\"id\": $i, \"prompt\": \"t$((i % 400))\", \"max_tokens\": 64, \"ignore_eos\": true}"; done \
    > "$dir/long.jsonl"
"$UNMASK" generate --model $golden --input "$dir/long.jsonl" --output "$dir/long.out" 2> "$dir/err" &
pid=$!
while [ ! -s "$dir/long.out" ] && kill -0 $pid 2> /dev/null; do sleep 0.01; done
kill -INT $pid
rc=0
wait $pid || rc=$?
[ $rc = 1 ] || fail "an interrupted run ended with $rc"
says 'the same command goes on from there'
done_lines=$(wc -l < "$dir/long.out")
[ "$done_lines" -gt 0 ] && [ "$done_lines" -lt 4000 ] || fail "$done_lines lines after the interrupt"
head -n $((done_lines + 1)) "$dir/long.jsonl" > "$dir/short.jsonl"
cp "$dir/long.out" "$dir/short.out"
expect 0 --model $golden --input "$dir/short.jsonl" --output "$dir/short.out"
[ "$(wc -l < "$dir/short.out")" = $((done_lines + 1)) ] || fail "resuming after an interrupt"

# A disk that is full ends the run; what fitted stays and is resumed.
rc=0
(
    trap '' XFSZ
    ulimit -f 8
    exec "$UNMASK" generate --model $golden --input "$dir/many.jsonl" --output "$dir/full.out"
) 2> "$dir/err" || rc=$?
[ $rc = 1 ] || fail "a full disk ended the run with $rc"
says 'cannot write'
expect 0 --model $golden --input "$dir/many.jsonl" --output "$dir/full.out"
cmp "$dir/many.out" "$dir/full.out"
if [ -e /dev/full ]; then
    expect 1 --model $golden --input "$dir/one.jsonl" --output /dev/full
    says 'cannot write /dev/full'
fi

# Bad usage and input end with 2, before any model is opened.
cat "$dir/one.jsonl" "$dir/one.jsonl" > "$dir/doubled.jsonl"
expect 2 --model $golden --input "$dir/doubled.jsonl" --output "$dir/none.out"
says 'id 1 is doubled: lines 1 and 2'
[ ! -s "$dir/none.out" ] || fail "answers to doubled ids"
expect 1 --model $golden --input - --output "$dir/doubled.out" < <(cat "$dir/doubled.jsonl")
sed -n 2p "$dir/doubled.out" | grep -q '^{"id":null,"line":2,"error".*doubled' || fail "a doubled id in a stream"
expect 2 --model $golden --input "$dir/one.jsonl" --output "$dir/many.out"
says 'belongs to another run'
expect 2 --model $golden --input - --output "$dir/many.out" < <(cat "$dir/many.jsonl")
says 'cannot be compared'
expect 2 --model $golden --input "$dir/many.jsonl" --output "$dir/many.jsonl"
says 'same file'
{ head -n 2 "$dir/many.out"; echo 'garbage'; tail -n 1 "$dir/many.out"; } > "$dir/broken.out"
expect 2 --model $golden --input "$dir/many.jsonl" --output "$dir/broken.out"
says 'broken.out:3 is no result'
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

# --overwrite starts anew.
expect 0 --model $golden --input "$dir/one.jsonl" --output "$dir/many.out" --overwrite
[ "$(wc -l < "$dir/many.out")" = 1 ] || fail "--overwrite"
