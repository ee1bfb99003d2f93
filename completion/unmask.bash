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

_unmask_commands='run chat generate eval inspect list tokenize bench help'

_unmask_options() {
    local shared=' --model --model-name --mask-token-id --device --dtype --chat-template --special-in-content --check-weights --kv-cache-dtype --threads --max-num-reqs --max-num-batched-tokens --max-model-len --page-size --num-pages --compat --decoding-strategy --block-size --accept-threshold --sampler --confidence --buffer-size --add-block-threshold --semi-complete-threshold --token-stability-threshold --gen-length --steps --eps --alg-temp --cfg-scale --temperature --top-p --top-k --min-p --seed --max-tokens --max-nfe --max-repetition-run --ignore-eos'
    case $1 in
    run) echo "--help --config --print-config --system --tools --chat-template-kwargs --raw --show-prompt --stop --no-view --delay --json --quiet$shared" ;;
    chat) echo "--help --config --print-config --system --tools --chat-template-kwargs --no-view --delay --quiet$shared" ;;
    generate) echo "--help --config --print-config --input --output --overwrite --trace --quiet$shared" ;;
    eval) echo "--help --config --print-config --data --limit --batch --raw --output --show-failures --json --quiet$shared" ;;
    inspect) echo "--help --config --print-config --model --model-name --mask-token-id --json" ;;
    list) echo "--help --config --print-config --json" ;;
    tokenize) echo "--help --config --print-config --model --decode --no-special --special-in-content --chat --system --messages --tools --chat-template --chat-template-kwargs --no-generation-prompt --continue-final-message --text --ids --json" ;;
    bench) echo "--help --config --print-config --batch --requests --runs --prompts --json --quiet$shared" ;;
    help) echo "--help --config --print-config --format" ;;
    esac
}

# Sets reply to what the value of an option may be; fails when it takes none.
_unmask_value() {
    case "$1 $2" in
    'run --system') reply='' ;;
    'run --tools') reply='FILE' ;;
    'run --chat-template-kwargs') reply='' ;;
    'run --stop') reply='' ;;
    'run --delay') reply='' ;;
    'chat --system') reply='' ;;
    'chat --tools') reply='FILE' ;;
    'chat --chat-template-kwargs') reply='' ;;
    'chat --delay') reply='' ;;
    'generate --input') reply='FILE' ;;
    'generate --output') reply='FILE' ;;
    'eval --data') reply='FILE' ;;
    'eval --limit') reply='' ;;
    'eval --batch') reply='' ;;
    'eval --output') reply='FILE' ;;
    'eval --show-failures') reply='' ;;
    'inspect --model') reply='DIR' ;;
    'inspect --model-name') reply='auto llada illada llada_moe llada2 dream dream_reasoner sdar sdar_moe fast_dllm_v2 stable_diffcoder rnd1' ;;
    'inspect --mask-token-id') reply='' ;;
    'tokenize --model') reply='DIR' ;;
    'tokenize --special-in-content') reply='auto parse text strict reject' ;;
    'tokenize --system') reply='' ;;
    'tokenize --messages') reply='FILE' ;;
    'tokenize --tools') reply='FILE' ;;
    'tokenize --chat-template') reply='FILE' ;;
    'tokenize --chat-template-kwargs') reply='' ;;
    'bench --batch') reply='' ;;
    'bench --requests') reply='' ;;
    'bench --runs') reply='' ;;
    'bench --prompts') reply='FILE' ;;
    'help --format') reply='text man markdown bash' ;;
    *' --model') reply='DIR' ;;
    *' --model-name') reply='auto llada illada llada_moe llada2 dream dream_reasoner sdar sdar_moe fast_dllm_v2 stable_diffcoder rnd1' ;;
    *' --mask-token-id') reply='' ;;
    *' --device') reply='cpu ref' ;;
    *' --dtype') reply='auto float32 bfloat16' ;;
    *' --chat-template') reply='FILE' ;;
    *' --special-in-content') reply='auto parse text strict reject' ;;
    *' --check-weights') reply='off warn error' ;;
    *' --kv-cache-dtype') reply='auto float32 bfloat16' ;;
    *' --threads') reply='' ;;
    *' --max-num-reqs') reply='' ;;
    *' --max-num-batched-tokens') reply='' ;;
    *' --max-model-len') reply='' ;;
    *' --page-size') reply='' ;;
    *' --num-pages') reply='' ;;
    *' --compat') reply='none diffulex' ;;
    *' --decoding-strategy') reply='auto multi_bd full' ;;
    *' --block-size') reply='' ;;
    *' --accept-threshold') reply='' ;;
    *' --sampler') reply='auto confidence low_confidence random origin maskgit_plus topk_margin entropy linear_entropy' ;;
    *' --confidence') reply='probability margin entropy' ;;
    *' --buffer-size') reply='' ;;
    *' --add-block-threshold') reply='' ;;
    *' --semi-complete-threshold') reply='' ;;
    *' --token-stability-threshold') reply='' ;;
    *' --gen-length') reply='' ;;
    *' --steps') reply='' ;;
    *' --eps') reply='' ;;
    *' --alg-temp') reply='' ;;
    *' --cfg-scale') reply='' ;;
    *' --temperature') reply='' ;;
    *' --top-p') reply='' ;;
    *' --top-k') reply='' ;;
    *' --min-p') reply='' ;;
    *' --seed') reply='' ;;
    *' --max-tokens') reply='' ;;
    *' --max-nfe') reply='' ;;
    *' --max-repetition-run') reply='' ;;
    *' --config') reply='FILE' ;;
    *) return 1 ;;
    esac
}

_unmask_words() {
    case $1 in
    inspect) echo 'DIR' ;;
    list) echo 'families strategies samplers options backends commands' ;;
    help) echo 'run chat generate eval inspect list tokenize bench help' ;;
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
