#!/bin/bash
# Runs two clients of lm-evaluation-harness against the server, on the tasks in tests/soak/lm_eval:
# tests/soak/lm_eval.sh BUILD
#
# Both clients must find the same share of exact answers as `unmask eval` on the same questions. Only Python packages
# are downloaded.
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
exit $failed
