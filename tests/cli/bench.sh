#!/bin/bash
# unmask bench: every batch size does the same work, and the report has the conditions.
command=bench
. tests/cli/expect.bash
# Looks for words of the report, whose lines break where the path of the file ends.
reports() { tr -s '\n ' ' ' < "$dir/out" | grep -qF -- "$1" || fail "the report does not say '$1': $(cat "$dir/out")"; }

# Random prompts with answers of full length: 5 requests of 16 tokens for each batch size, in the same number of passes.
expect 0 --model $golden --batch 1,2,4 --requests 5 --runs 2 --max-tokens 16 --json --quiet
has '"prompts":"32 prompts of 64 random tokens"'
[ "$(grep -o '"tokens":80,' "$dir/out" | wc -l)" = 3 ] || fail "80 tokens for each batch size: $(cat "$dir/out")"
[ "$(grep -o '"forwards":[0-9]*' "$dir/out" | sort -u | wc -l)" = 1 ] || fail "passes depend on the batch size"
[ "$(grep -o '"rows":[0-9]*' "$dir/out" | sort -u | wc -l)" = 1 ] || fail "fed tokens depend on the batch size"
has '"us_per_row":{"median":'
for key in cpu cores isa commit dtype threads load_seconds timed runs; do has "\"$key\":"; done
[ ! -s "$dir/err" ] || fail "--quiet: $(cat "$dir/err")"

# The first line of the table describes the timed work.
expect 0 --model $golden --batch 2 --requests 2 --runs 1 --max-tokens 4
head -n 1 "$dir/out" | grep -q '^timed ' || fail "the first line does not describe the timed work"
for word in 'machine ' 'program ' 'loading ' 'tokens/s' 'ms/step'; do has "$word"; done

# Prompts from a file, as plain text if the model has no chat template.
echo '{"id": 1, "kind": "k", "prompt": "t1 t2", "answer": ""}' > "$dir/prompts.jsonl"
expect 0 --model $golden --prompts "$dir/prompts.jsonl" --batch 1 --requests 2 --runs 1 --max-tokens 4
reports 'prompts.jsonl, as plain text'
expect 0 --model models/tiny-block --prompts "$dir/prompts.jsonl" --batch 1 --requests 2 --runs 1 --max-tokens 4
reports 'prompts.jsonl, through the chat template'
expect 0 --model models/tiny-block --prompts "$dir/prompts.jsonl" --batch 1 --requests 2 --runs 1 --max-tokens 4 --raw
reports 'prompts.jsonl, as plain text'

for batch in '' 0 1, ,1 1,x 5000 1-2; do
    expect 2 --model $golden --batch="$batch"
    says '--batch: expected'
done
expect 2 --model $golden --batch 1 --prompts "$dir/nowhere.jsonl"
expect 2 --model $golden more
expect 3 --model "$dir" --batch 1

# The report has latencies and rates for each batch size.
expect 0 --model $golden --batch 1,2 --requests 4 --runs 1 --max-tokens 8 --json --quiet
for key in ttft_seconds tpot_seconds run_tps decode_tps run_seconds prefill_throughput decode_throughput tpf overhead p99; do
    [ "$(grep -o "\"$key\":" "$dir/out" | wc -l)" -ge 2 ] || fail "$key of each batch size: $(cat "$dir/out")"
done
expect 0 --model $golden --batch 2 --requests 2 --runs 1 --max-tokens 4
for word in 'ttft ms' 'decode/s' 'overhead'; do has "$word"; done
fits

# The row of a batch size is printed when its runs are done.
stop_after '^    1 ' --model $golden --batch 1,2 --requests 4000 --runs 1 --max-tokens 1
! grep -q '^    2 ' "$dir/out" || fail "the rows came together: $(cat "$dir/out")"

# A profile needs a single batch size. It writes a trace and totals, and prints the totals.
expect 0 --model $golden --batch 2 --requests 4 --runs 1 --max-tokens 8 --profile "$dir/trace.json"
head -c 2 "$dir/trace.json" | grep -q '^\[' || fail 'the trace is no list'
[ "$(tail -n 1 "$dir/trace.json")" = ']' ] || fail 'the trace does not end'
for span in step plan forward attention head apply output; do
    grep -q "\"name\":\"$span\"" "$dir/trace.json" || fail "no span $span"
    grep -q "^$span," "$dir/trace.csv" || fail "no sum of $span"
    grep -q "^$span " "$dir/err" || fail "$span is not printed"
done
expect 2 --model $golden --batch 1,2 --profile "$dir/trace.json"
says 'set a single batch size'
# The file is checked before the model is loaded.
expect 2 --model $golden --batch 1 --requests 1 --runs 1 --profile "$dir/no/such/folder"
says "--profile: $dir/no/such/folder: cannot write: No such file or directory"
rc=0
"$UNMASK" bench --model $golden --batch 1 --requests 1 --runs 1 --max-tokens 4 --json --quiet > /dev/full 2> "$dir/err" || rc=$?
[ $rc = 1 ] || fail "a full disk ended the run with $rc"
says 'cannot write standard output: No space left on device'
