#!/bin/bash
# Runs two clients of lm-evaluation-harness against the server, and the model `unmask` of the Python package, on the tasks
# in tests/soak/lm_eval: tests/soak/lm_eval.sh BUILD
#
# All must find the same share of exact answers as `unmask eval` on the same questions. The model must also find the
# answer that belongs to a question among four, by likelihoods. Only Python packages are downloaded.
set -euo pipefail
build=${1:-build}
unmask=$build/unmask model=models/tiny-block
source tests/soak/server.bash
python=$(tools/python.sh "${build%%/*}" tests/soak/requirements.txt)
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME=$work/cache OPENAI_API_KEY=none

serve --model $model --dtype float32
want=$("$unmask" eval --model $model --dtype float32 2> /dev/null | awk '$1 == "all" && $4 ~ /^[0-9.]+$/ { print $3 / $2 }')
[ -n "$want" ] || { echo "unmask eval gave no result" >&2; exit 1; }

# run PATH TASK OPTION...: prints the share of exact answers of the client $client.
run() {
    local options=model=tiny-block,base_url=$url$1,num_concurrent=8,tokenized_requests=False,tokenizer_backend=None
    shift
    "$python" -m lm_eval --model "$client" --model_args "$options" --include_path tests/soak/lm_eval --tasks "$@" \
        --output_path "$work/out-$client" > "$work/out" 2>&1 || { tail -n 40 "$work/out" >&2; return 1; }
    "$python" -c 'import glob, json, sys
results = json.load(open(glob.glob(sys.argv[1] + "/**/results_*.json", recursive=True)[0]))["results"]
print(next(iter(results.values()))["exact_match,none"])' "$work/out-$client"
}

failed=0
for client in local-chat-completions local-completions; do
    case $client in
    local-completions) got=$(run /v1/completions instructions_text) ;;
    *) got=$(run /v1/chat/completions instructions_chat --apply_chat_template) ;;
    esac
    echo "lm_eval $client: $got exact, unmask eval: $want"
    [ "$got" = "$want" ] || failed=1
done

# The model in the process of the harness.
packaging/wheel.sh "$build" > "$work/wheel.log" 2>&1 || { cat "$work/wheel.log" >&2; exit 1; }
"$python" -m pip install --quiet --disable-pip-version-check --force-reinstall "$build"/wheel/unmask-*.whl

# in_process TASK METRIC OPTION...: prints the metric of the model `unmask`.
in_process() {
    local tasks=$PWD/tests/soak/lm_eval task=$1 metric=$2
    shift 2
    "$python" -m unmask.lm_eval --model unmask --include_path "$tasks" --tasks "$task" --output_path "$work/out-$task" "$@" \
        > "$work/out" 2>&1 || { tail -n 40 "$work/out" >&2; return 1; }
    "$python" -c 'import glob, json, sys
results = json.load(open(glob.glob(sys.argv[1] + "/**/results_*.json", recursive=True)[0]))["results"]
print(next(iter(results.values()))[sys.argv[2] + ",none"])' "$work/out-$task" "$metric"
}

for task in instructions_text "instructions_chat --apply_chat_template"; do
    got=$(in_process ${task%% *} exact_match ${task#instructions_????} --model_args pretrained=$model,dtype=float32)
    echo "the model unmask, $task: $got exact, unmask eval: $want"
    [ "$got" = "$want" ] || failed=1
done
"$python" - > choices.jsonl << 'END'
import json
rows = [json.loads(line) for line in open("models/eval.jsonl")][:100]
for i, row in enumerate(rows):
    others = [other["answer"] for other in rows if other["answer"] != row["answer"]]
    choices = [others[(7 * i + k) % len(others)] for k in range(3)]
    choices.insert(i % 4, row["answer"])
    print(json.dumps({"prompt": row["prompt"], "choices": choices, "gold": i % 4}))
END
got=$(in_process instructions_choice acc --model_args pretrained=$model,samples=16) || failed=1
rm choices.jsonl
echo "the model unmask chooses the right one of four answers: $got"
"$python" -c 'import sys; sys.exit(float(sys.argv[1] or 0) < 0.95)' "$got" || failed=1
exit $failed
