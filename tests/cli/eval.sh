#!/bin/bash
# unmask eval: accuracy, failures, the questions next to a model, exit status.
command=eval
. tests/cli/expect.bash

# The known answers of two of three questions are the answers that the model gives; one has white space after it.
limit='--max-tokens 6 --ignore-eos'
echo '{"id": 1, "prompt": "t1 t2 t3"}' > "$dir/ask.jsonl"
"$UNMASK" generate --model $golden $limit --temperature 0 --input "$dir/ask.jsonl" --output "$dir/ask.out" 2> "$dir/err"
text=$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' "$dir/ask.out")
[ -n "$text" ] || fail "no answer in $(cat "$dir/ask.out")"
cat > "$dir/data.jsonl" << END
{"id": "a", "kind": "known", "prompt": "t1 t2 t3", "answer": "$text"}
{"id": "b", "kind": "known", "prompt": "t1 t2 t3", "answer": "$text \\n"}
{"id": "c", "kind": "unknown", "prompt": "t1 t2 t3", "answer": "$text and more"}
END
expect 0 --model $golden --raw --data "$dir/data.jsonl" $limit --json --output "$dir/each.jsonl" --quiet
has '"n":3,"correct":2,"failed":0,'
has '{"kind":"known","n":2,"correct":2,'
has '{"kind":"unknown","n":1,"correct":0,'
has '"tokens":18,'
[ "$(grep -c '"correct":true' "$dir/each.jsonl")" = 2 ] || fail "--output: $(cat "$dir/each.jsonl")"
[ ! -s "$dir/err" ] || fail "--quiet: $(cat "$dir/err")"

expect 0 --model $golden --raw --data "$dir/data.jsonl" $limit --show-failures 5 --batch 1
has 'answered wrong (1 of 1):'
has "expected  $text and more"
has "--max-tokens 6"
expect 0 --model $golden --raw --data "$dir/data.jsonl" $limit --limit 1
has '100.0 %'

# If answers can't be written, the run ends. If the report can't be written, the run fails.
expect 1 --model $golden --raw --data "$dir/data.jsonl" $limit --output /dev/full
says 'cannot write /dev/full: No space left on device'
rc=0
"$UNMASK" eval --model $golden --raw --data "$dir/data.jsonl" $limit --json --quiet > /dev/full 2> "$dir/err" || rc=$?
[ $rc = 1 ] || fail "a full disk ended the run with $rc"
says 'cannot write standard output: No space left on device'

# The report has the largest number of KV pages in use and their bytes. One request needs fewer than three at once.
memory() { sed -n 's/.*"kv_page_bytes":\([0-9]*\),"kv_pages_used_most":\([0-9]*\),"kv_bytes_used_most":\([0-9]*\),.*/\1 \2 \3/p' "$dir/out"; }
expect 0 --model $golden --raw --data "$dir/data.jsonl" $limit --json --quiet
read -r page most bytes < <(memory)
[ "$bytes" = $((page * most)) ] && [ "$most" -gt 0 ] || fail "stored bytes: $(cat "$dir/out")"
expect 0 --model $golden --raw --data "$dir/data.jsonl" $limit --json --quiet --batch 1
read -r page fewer bytes < <(memory)
[ "$fewer" -lt "$most" ] || fail "one request stores as much as three: $fewer of $most pages"

# A question that is refused counts as failed; the others are asked.
echo '{"id": "d", "kind": "long", "prompt": "'"$(seq -f 't%.0f' -s ' ' 300)"'", "answer": "x"}' >> "$dir/data.jsonl"
expect 1 --model $golden --raw --data "$dir/data.jsonl" $limit --max-model-len 100 --json
has '"n":4,"correct":2,"failed":1,'

# Bad usage and data.
expect 2 --model $golden --data "$dir/data.jsonl"
says '--raw'
expect 2 --model $golden
says '--data'
echo '{"id": "a", "prompt": "t1", "answer": "x"}' > "$dir/bad.jsonl"
expect 2 --model $golden --raw --data "$dir/bad.jsonl"
says 'bad.jsonl:1: "kind": expected a string, found nothing'
: > "$dir/empty.jsonl"
expect 2 --model $golden --raw --data "$dir/empty.jsonl"
says 'has no questions'
expect 2 --model $golden --raw --data "$dir/nowhere.jsonl"
expect 3 --model "$dir" --raw --data "$dir/data.jsonl"
# A missing model is reported before the missing questions next to it.
expect 3 --model "$dir/nowhere"
says 'nowhere: no such folder'
expect 3 --model "$dir"
says 'has no config.json'
expect 2 --model "$dir/data.jsonl"
says 'is not a GGUF file; a model is such a file or a folder'

# The questions next to the bundled model are found. A batch of one gives the same answers.
expect 0 --model models/tiny-block --limit 6 --json --quiet
has '"data":"models/eval.jsonl"'
sed 's/"seconds".*//' "$dir/out" > "$dir/batch"
expect 0 --model models/tiny-block/ --limit 6 --json --quiet --batch 1
sed 's/"seconds".*//; s|tiny-block/|tiny-block|' "$dir/out" | cmp - "$dir/batch"
