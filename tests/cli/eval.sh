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

fits
# The row of a kind is printed when its questions are answered. The rows have the order of the file.
{
    cat "$dir/data.jsonl"
    seq 4000 | sed 's/.*/{"id": &, "kind": "a long kind", "prompt": "t1 t2 t3", "answer": "x"}/'
} > "$dir/kinds.jsonl"
stop_after '^unknown ' --model $golden --raw --data "$dir/kinds.jsonl" $limit --batch 1
grep -qE '^a long kind +[0-9]{1,3} ' "$dir/out" || fail "the rows came together: $(cat "$dir/out")"
[ "$(grep -oE '^(known|unknown|a long kind|all) ' "$dir/out" | tr -d '\n')" = 'known unknown a long kind all ' ] ||
    fail "the order of the rows: $(cat "$dir/out")"

# Standard output has the answers or the report, never both.
expect 0 --model $golden --raw --data "$dir/data.jsonl" $limit --output - --quiet
jq -e 'has("correct")' "$dir/out" > "$dir/null" || fail "--output -: $(cat "$dir/out")"
says 'all  '
expect 2 --model $golden --raw --data "$dir/data.jsonl" $limit --output - --json
says 'both write to standard output'

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

# Tokens per forward are the tokens of the answers divided by all forward passes.
jq -e '.tokens_per_forward - .tokens / .forwards | fabs < 1e-9' "$dir/out" > "$dir/holds" || fail "tokens per forward: $(cat "$dir/out")"
jq -e '.kinds | all(.tokens_per_forward - .tokens / .forwards | fabs < 1e-9)' "$dir/out" > "$dir/holds" || fail "of a kind: $(cat "$dir/out")"

# --set NAME asks eval-NAME.jsonl next to the folder. The answer of eval-foreign.jsonl is counted in the report of any
# questions; without that file there is no such number.
! grep -q honest "$dir/out" || fail "an honest answer without eval-foreign.jsonl: $(cat "$dir/out")"
mkdir "$dir/home"
cp -r $golden "$dir/home/model"
head -2 "$dir/data.jsonl" > "$dir/home/eval-two.jsonl"
sed 's/"kind": "[a-z]*"/"kind": "foreign"/' "$dir/data.jsonl" > "$dir/home/eval-foreign.jsonl"
home="--model $dir/home/model --raw $limit"
expect 0 $home --set two --json --quiet
has '"n":2,"correct":2,'
has '"honest":2'
expect 0 $home --data "$dir/data.jsonl" --json --quiet
jq -e '.honest == 3 and (.kinds | map(.honest) | add) == 3' "$dir/out" > "$dir/holds" || fail "honest answers: $(cat "$dir/out")"
sed -i 's/"answer": ".*/"answer": "another"}/' "$dir/home/eval-foreign.jsonl"
expect 0 $home --set two --json --quiet
has '"honest":0'
expect 0 $home --set foreign --limit 1 --quiet
has 'honest answer   0 of 1, 0.0 %'
expect 2 $home --set none
says "there is no eval-none.jsonl next to $dir/home/model; name a file of questions with --data"
expect 2 $home --set ../two
says '--set: expected a name such as loose or foreign, found "../two"'
expect 2 $home --set two --data "$dir/data.jsonl"
says '--data and --set both name questions; use one of them'
echo '{}' > "$dir/home/eval-foreign.jsonl"
expect 2 $home --set two
says 'eval-foreign.jsonl:1'
# The sets of the bundled models: 500 prompts each, with the kinds of eval.jsonl or one answer for all.
for set in loose foreign; do
    expect 0 --model tiny-block --set $set --limit 2 --json --quiet --max-tokens 8
    has "eval-$set.jsonl"
    jq -e .id models/eval-$set.jsonl > "$dir/ids" || fail "eval-$set.jsonl: $(tail -1 "$dir/ids")"
    [ "$(sort -u "$dir/ids" | wc -l)" = 500 ] || fail "eval-$set.jsonl has $(sort -u "$dir/ids" | wc -l) ids"
done
[ "$(jq -r .answer models/eval-foreign.jsonl | sort -u | wc -l)" = 1 ] || fail "foreign prompts have several answers"
kinds() { jq -r .kind "$1" | sort -u; }
[ "$(kinds models/eval-loose.jsonl)" = "$(kinds models/eval.jsonl)" ] || fail "kinds: $(kinds models/eval-loose.jsonl)"
! jq -r .answer models/eval.jsonl models/eval-loose.jsonl | grep -qxF "$(head -1 models/eval-foreign.jsonl | jq -r .answer)" ||
    fail "a known kind has the honest answer"

# A question that is refused counts as failed; the others are asked.
echo '{"id": "d", "kind": "long", "prompt": "'"$(seq -f 't%.0f' -s ' ' 300)"'", "answer": "x"}' >> "$dir/data.jsonl"
expect 1 --model $golden --raw --data "$dir/data.jsonl" $limit --max-model-len 100 --json
has '"n":4,"correct":2,"failed":1,'

# The probabilities of all tokens at one masked position add up to 1. The model has the ids t0 to t511 and
# few others.
seq 0 511 | sed 's/.*/{"id": &, "kind": "k", "prompt": "t1 t2 t3", "answer": "t&"}/' > "$dir/all.jsonl"
expect 0 --model $golden --raw --data "$dir/all.jsonl" --likelihood 3 --json --quiet --output "$dir/one"
has '"n":512,"tokens":512,"masks":3,"passes":512,'
[ "$(wc -l < "$dir/one")" = 512 ] || fail "--output: $(head -3 "$dir/one")"
jq -s '[.[] | -.nats | exp] | add' "$dir/one" | awk '{ exit !($1 > 0.98 && $1 < 1.0001) }' || fail "no probabilities: $(head -3 "$dir/one")"
jq -s '[.[] | -.nats | exp] | max' "$dir/one" | awk '{ exit !($1 > 0.004) }' || fail 'all tokens are alike'
expect 0 --model $golden --raw --data "$dir/all.jsonl" --likelihood 3 --json --quiet --output "$dir/again" --threads 1
cmp "$dir/one" "$dir/again" || fail 'a second run gives other numbers'
expect 0 --model $golden --raw --data "$dir/all.jsonl" --likelihood 3 --limit 5 --quantization q4 --output "$dir/q4"
has 'perplexity '
has '5 of 5 tokens in '
! head -5 "$dir/one" | cmp -s - "$dir/q4" || fail 'q4 gives the numbers of the weights'

# Blocks have four tokens and begin at position 0: the answers are in one block and in three.
echo '{"id": 1, "kind": "k", "prompt": "t1 t2 t3 t4", "answer": "t5 t6"}' > "$dir/two.jsonl"
echo '{"id": 2, "kind": "k", "prompt": "t1 t2 t3", "answer": "t5 t6 t7 t8 t9 t10 t11 t12 t13"}' >> "$dir/two.jsonl"
expect 0 --model $golden --raw --data "$dir/two.jsonl" --likelihood 2 --json --quiet
has '"n":2,"tokens":11,"masks":2,"passes":7,'
# The bundled models are nearly sure of the right answers and surprised by others.
head -4 models/eval.jsonl | sed 's/"answer": ".*/"answer": "wrong words"}/' > "$dir/wrong.jsonl"
for model in models/tiny-block models/tiny-full; do
    expect 0 --model $model --data models/eval.jsonl --likelihood 2 --limit 4 --json --quiet
    right=$(jq .nats_per_token "$dir/out")
    expect 0 --model $model --data "$dir/wrong.jsonl" --likelihood 2 --json --quiet
    awk "BEGIN { exit !($right < 0.1 && $(jq .nats_per_token "$dir/out") > 3) }" || fail "$model: right answers have $right"
done
expect 2 --model $golden --raw --data "$dir/two.jsonl" --likelihood 2 --max-model-len 8
says 'question 2: prompt 3 + answer 9 tokens, but max_model_len is 8'

# A model without a chat template gets the questions as they are; --raw gives others the same.
expect 0 --model $golden --data "$dir/data.jsonl" $limit
has ', as plain text'
expect 0 --model models/tiny-block --limit 2
has ', through the chat template'
expect 0 --model models/tiny-block --limit 2 --raw
has ', as plain text'

# Bad usage and data.
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
