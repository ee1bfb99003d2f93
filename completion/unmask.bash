# Completion of unmask for bash, made by `unmask help --format bash`: change the tables instead.
# Put it into share/bash-completion/completions/unmask, or: eval "$(unmask help --format bash)"

# Hub names in the local Hugging Face cache, and folders.
_unmask_models() {
    local dir name
    for dir in "${HF_HUB_CACHE:-}" "${HF_HOME:+$HF_HOME/hub}" \
        "${XDG_CACHE_HOME:-${HOME:-}/.cache}/huggingface/hub"; do
        for name in "$dir"/models--*--*; do
            name=${name##*/models--}
            [ ! -d "$dir/models--$name" ] || compgen -W "${name/--//}" -- "$1"
        done
    done
    compgen -d -- "$1"
}

_unmask_commands='run chat generate eval inspect list tokenize bench serve worker health help'

_unmask_options() {
    local shared=' --model --model-name --mask-token-id --device --dtype --chat-template --special-in-content --check-weights --lora --lora-merge --threads --max-num-batched-tokens --kv-cache-dtype --kv-cache-layout --max-num-reqs --data-parallel-size --route-policy --max-model-len --page-size --num-pages --kv-memory-share --disable-prefix-caching --schedule-policy --max-skips --max-refresh-per-step --compat --decoding-strategy --block-size --sampler --remask-threshold --accept-threshold --confidence --buffer-size --add-block-threshold --semi-complete-threshold --token-stability-threshold --no-block-cache --gen-length --steps --cfg-scale --eps --alg-temp --no-sparse --retention --retention-ratio --delay-step --pool-kernel --head-select --denoising-steps --factor --low-threshold --credit-alpha --boost-gamma --decay-beta --entropy-bound --entropy-threshold --max-post-edit-steps --edit-threshold --penalty-lambda --no-dmax-fast-path --commit-confidence --token-merge-mode --token-merge-top-k --no-token-merge-renormalize --token-merge-weight --no-clean-commit --temperature --top-p --top-k --min-p --seed --repetition-penalty --presence-penalty --frequency-penalty --max-tokens --min-tokens --max-nfe --max-repetition-run --ignore-eos --logprobs'
    case $1 in
    'run') echo "--help --config --print-config --url --api-key --served-model-name --adapter --system --tools --chat-template-kwargs --raw --show-prompt --stop --no-view --delay --json --step-map --profile --quiet$shared" ;;
    'chat') echo "--help --config --print-config --url --api-key --served-model-name --adapter --system --tools --chat-template-kwargs --no-view --delay --quiet$shared" ;;
    'generate') echo "--help --config --print-config --adapter --input --output --overwrite --trace --step-map --timings --profile --progress-interval --quiet$shared" ;;
    'eval') echo "--help --config --print-config --adapter --data --limit --batch --raw --output --show-failures --json --quiet$shared" ;;
    'inspect') echo "--help --config --print-config --model --model-name --mask-token-id --lora --lora-merge --json" ;;
    'list') echo "--help --config --print-config --json" ;;
    'tokenize') echo "--help --config --print-config --model --decode --no-special --special-in-content --chat --system --messages --tools --chat-template --chat-template-kwargs --no-generation-prompt --continue-final-message --text --ids --json" ;;
    'bench') echo "--help --config --print-config --adapter --batch --requests --runs --prompts --profile --json --quiet$shared" ;;
    'bench serve') echo "--help --config --print-config --url --api-key --served-model-name --endpoint --timeout --request-rate --concurrency --arrivals --requests --seconds --warm-up --runs --seed --prompts --prompt-words --max-tokens --stop --body --no-stream --slo-ttft --slo-tpot --report --csv --plot --quiet" ;;
    'serve') echo "--help --config --print-config --host --port --served-model-name --api-key --cors-allow-origin --root-path --max-queue --request-timeout --max-body-bytes --max-connections --keep-alive --shutdown-grace --no-access-log --log-format --log-level --no-metrics --metrics-vllm-aliases --usage-extensions --no-page --tool-call-parser --reasoning-parser --snapshot-interval --snapshot-max-hz --result-ttl --result-max --state-dir --file-ttl --batch-concurrency --in-process --zmq-command-addr --zmq-event-addr --remote-workers --restart-backend --start-timeout --backend-timeout --heartbeat$shared" ;;
    'worker') echo "--help --config --print-config --zmq-command-addr --zmq-event-addr --index --incarnation --parent --log-format --log-level$shared" ;;
    'health') echo "--help --config --print-config --timeout --quiet" ;;
    'help') echo "--help --config --print-config --format" ;;
    esac
}

# Sets reply to what the value of an option may be; fails when it takes none.
_unmask_value() {
    case "$1 $2" in
    'run --url') reply='' ;;
    'run --api-key') reply='' ;;
    'run --served-model-name') reply='' ;;
    'run --adapter') reply='' ;;
    'run --system') reply='' ;;
    'run --tools') reply='FILE' ;;
    'run --chat-template-kwargs') reply='' ;;
    'run --stop') reply='' ;;
    'run --delay') reply='' ;;
    'run --profile') reply='FILE' ;;
    'chat --url') reply='' ;;
    'chat --api-key') reply='' ;;
    'chat --served-model-name') reply='' ;;
    'chat --adapter') reply='' ;;
    'chat --system') reply='' ;;
    'chat --tools') reply='FILE' ;;
    'chat --chat-template-kwargs') reply='' ;;
    'chat --delay') reply='' ;;
    'generate --adapter') reply='' ;;
    'generate --input') reply='FILE' ;;
    'generate --output') reply='FILE' ;;
    'generate --profile') reply='FILE' ;;
    'generate --progress-interval') reply='' ;;
    'eval --adapter') reply='' ;;
    'eval --data') reply='FILE' ;;
    'eval --limit') reply='' ;;
    'eval --batch') reply='' ;;
    'eval --output') reply='FILE' ;;
    'eval --show-failures') reply='' ;;
    'inspect --model') reply='DIR' ;;
    'inspect --model-name') reply='auto llada illada llada_moe llada2 dream dream_reasoner sdar sdar_moe fast_dllm_v2 stable_diffcoder rnd1' ;;
    'inspect --mask-token-id') reply='' ;;
    'inspect --lora') reply='' ;;
    'tokenize --model') reply='DIR' ;;
    'tokenize --special-in-content') reply='auto parse text strict reject' ;;
    'tokenize --system') reply='' ;;
    'tokenize --messages') reply='FILE' ;;
    'tokenize --tools') reply='FILE' ;;
    'tokenize --chat-template') reply='FILE' ;;
    'tokenize --chat-template-kwargs') reply='' ;;
    'bench --adapter') reply='' ;;
    'bench --batch') reply='' ;;
    'bench --requests') reply='' ;;
    'bench --runs') reply='' ;;
    'bench --prompts') reply='FILE' ;;
    'bench --profile') reply='FILE' ;;
    'bench serve --url') reply='' ;;
    'bench serve --api-key') reply='' ;;
    'bench serve --served-model-name') reply='' ;;
    'bench serve --endpoint') reply='chat completions generate' ;;
    'bench serve --timeout') reply='' ;;
    'bench serve --request-rate') reply='' ;;
    'bench serve --concurrency') reply='' ;;
    'bench serve --arrivals') reply='FILE' ;;
    'bench serve --requests') reply='' ;;
    'bench serve --seconds') reply='' ;;
    'bench serve --warm-up') reply='' ;;
    'bench serve --runs') reply='' ;;
    'bench serve --seed') reply='' ;;
    'bench serve --prompts') reply='FILE' ;;
    'bench serve --prompt-words') reply='' ;;
    'bench serve --max-tokens') reply='' ;;
    'bench serve --stop') reply='' ;;
    'bench serve --body') reply='' ;;
    'bench serve --slo-ttft') reply='' ;;
    'bench serve --slo-tpot') reply='' ;;
    'bench serve --report') reply='FILE' ;;
    'bench serve --csv') reply='FILE' ;;
    'bench serve --plot') reply='DIR' ;;
    'serve --host') reply='' ;;
    'serve --port') reply='' ;;
    'serve --served-model-name') reply='' ;;
    'serve --api-key') reply='' ;;
    'serve --cors-allow-origin') reply='' ;;
    'serve --root-path') reply='' ;;
    'serve --max-queue') reply='' ;;
    'serve --request-timeout') reply='' ;;
    'serve --max-body-bytes') reply='' ;;
    'serve --max-connections') reply='' ;;
    'serve --keep-alive') reply='' ;;
    'serve --shutdown-grace') reply='' ;;
    'serve --log-format') reply='text json' ;;
    'serve --log-level') reply='error warn info debug' ;;
    'serve --tool-call-parser') reply='' ;;
    'serve --reasoning-parser') reply='' ;;
    'serve --snapshot-interval') reply='' ;;
    'serve --snapshot-max-hz') reply='' ;;
    'serve --result-ttl') reply='' ;;
    'serve --result-max') reply='' ;;
    'serve --state-dir') reply='DIR' ;;
    'serve --file-ttl') reply='' ;;
    'serve --batch-concurrency') reply='' ;;
    'serve --zmq-command-addr') reply='' ;;
    'serve --zmq-event-addr') reply='' ;;
    'serve --remote-workers') reply='' ;;
    'serve --restart-backend') reply='' ;;
    'serve --start-timeout') reply='' ;;
    'serve --backend-timeout') reply='' ;;
    'serve --heartbeat') reply='' ;;
    'worker --zmq-command-addr') reply='' ;;
    'worker --zmq-event-addr') reply='' ;;
    'worker --index') reply='' ;;
    'worker --incarnation') reply='' ;;
    'worker --parent') reply='' ;;
    'worker --log-format') reply='text json' ;;
    'worker --log-level') reply='error warn info debug' ;;
    'health --timeout') reply='' ;;
    'help --format') reply='text man markdown bash' ;;
    *' --model') reply='DIR' ;;
    *' --model-name') reply='auto llada illada llada_moe llada2 dream dream_reasoner sdar sdar_moe fast_dllm_v2 stable_diffcoder rnd1' ;;
    *' --mask-token-id') reply='' ;;
    *' --device') reply='cpu ref' ;;
    *' --dtype') reply='auto float32 bfloat16' ;;
    *' --chat-template') reply='FILE' ;;
    *' --special-in-content') reply='auto parse text strict reject' ;;
    *' --check-weights') reply='off warn error' ;;
    *' --lora') reply='' ;;
    *' --threads') reply='' ;;
    *' --max-num-batched-tokens') reply='' ;;
    *' --kv-cache-dtype') reply='auto float32 bfloat16 float8_e4m3 fp8 fp8_e4m3' ;;
    *' --kv-cache-layout') reply='unified distinct' ;;
    *' --max-num-reqs') reply='' ;;
    *' --data-parallel-size') reply='' ;;
    *' --route-policy') reply='prefix least-loaded round-robin' ;;
    *' --max-model-len') reply='' ;;
    *' --page-size') reply='' ;;
    *' --num-pages') reply='' ;;
    *' --kv-memory-share') reply='' ;;
    *' --schedule-policy') reply='mixed prefill-first' ;;
    *' --max-skips') reply='' ;;
    *' --max-refresh-per-step') reply='' ;;
    *' --compat') reply='none diffulex' ;;
    *' --decoding-strategy') reply='auto multi_bd d2f dmax fast_dllm_v2 full prefix_cache dual_cache sparse' ;;
    *' --block-size') reply='' ;;
    *' --sampler') reply='auto confidence dynamic static sequential sdar_dynamic factor hierarchy credit entropy_bound entropy_threshold low_confidence random origin maskgit_plus topk_margin entropy linear_entropy edit dmax' ;;
    *' --remask-threshold') reply='' ;;
    *' --accept-threshold') reply='' ;;
    *' --confidence') reply='probability margin entropy' ;;
    *' --buffer-size') reply='' ;;
    *' --add-block-threshold') reply='' ;;
    *' --semi-complete-threshold') reply='' ;;
    *' --token-stability-threshold') reply='' ;;
    *' --gen-length') reply='' ;;
    *' --steps') reply='' ;;
    *' --cfg-scale') reply='' ;;
    *' --eps') reply='' ;;
    *' --alg-temp') reply='' ;;
    *' --retention') reply=' attention' ;;
    *' --retention-ratio') reply='' ;;
    *' --delay-step') reply='' ;;
    *' --pool-kernel') reply='' ;;
    *' --denoising-steps') reply='' ;;
    *' --factor') reply='' ;;
    *' --low-threshold') reply='' ;;
    *' --credit-alpha') reply='' ;;
    *' --boost-gamma') reply='' ;;
    *' --decay-beta') reply='' ;;
    *' --entropy-bound') reply='' ;;
    *' --entropy-threshold') reply='' ;;
    *' --max-post-edit-steps') reply='' ;;
    *' --edit-threshold') reply='' ;;
    *' --penalty-lambda') reply='' ;;
    *' --commit-confidence') reply='' ;;
    *' --token-merge-mode') reply='dmax_topk iter_smooth_topk' ;;
    *' --token-merge-top-k') reply='' ;;
    *' --token-merge-weight') reply='' ;;
    *' --temperature') reply='' ;;
    *' --top-p') reply='' ;;
    *' --top-k') reply='' ;;
    *' --min-p') reply='' ;;
    *' --seed') reply='' ;;
    *' --repetition-penalty') reply='' ;;
    *' --presence-penalty') reply='' ;;
    *' --frequency-penalty') reply='' ;;
    *' --max-tokens') reply='' ;;
    *' --min-tokens') reply='' ;;
    *' --max-nfe') reply='' ;;
    *' --max-repetition-run') reply='' ;;
    *' --logprobs') reply='' ;;
    *' --config') reply='FILE' ;;
    *) return 1 ;;
    esac
}

_unmask_words() {
    case $1 in
    'inspect') echo 'DIR' ;;
    'list') echo 'families strategies samplers retentions options backends commands endpoints' ;;
    'bench') echo 'serve' ;;
    'help') echo 'run chat generate eval inspect list tokenize bench serve worker health help' ;;
    esac
}

# Sets COMPREPLY to the words of list $1 that begin as the current one does, or to what a kind stands for.
_unmask_reply() {
    case $1 in
    FILE) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); compopt -o filenames 2> /dev/null ;;
    DIR) mapfile -t COMPREPLY < <(_unmask_models "$cur"); compopt -o filenames 2> /dev/null ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur") ;;
    esac
    return 0
}

_unmask() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} reply
    COMPREPLY=()
    # A name of two words.
    if [ "$COMP_CWORD" -gt 2 ] && [ -n "$(_unmask_options "$command ${COMP_WORDS[2]}")" ]; then
        command+=" ${COMP_WORDS[2]}"
    fi
    # bash makes words of --name=value: name, the sign, value.
    if [ "$cur" = = ]; then
        cur=
    elif [ "$prev" = = ]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [ "$COMP_CWORD" = 1 ]; then
        _unmask_reply "$_unmask_commands --help --version"
    elif [[ $prev == --* ]] && _unmask_value "$command" "$prev"; then
        _unmask_reply "$reply"
    elif [[ $cur == -* ]]; then
        _unmask_reply "$(_unmask_options "$command")"
    else
        _unmask_reply "$(_unmask_words "$command")"
    fi
}
complete -F _unmask unmask
