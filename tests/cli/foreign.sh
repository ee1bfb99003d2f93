#!/bin/bash
# Options of other engines: values without effect are accepted and logged, one line each; other values are refused.
source tests/cli/claims.bash
MODEL=models/tiny-block

accepted_lines() { grep -c ' is accepted: ' "$work/err" || true; }
# Typical options in scripts for vLLM, SGLang and Diffulex.
NEUTRAL=(--ep-size 1 --tensor-parallel-size 1 --pp-size=1 --data-parallel-size 1 --enforce-eager --attn-impl triton --trust-remote-code
    --dtype auto --distributed-executor-backend mp --gpu-memory-utilization 0.9 --no-enable-torch-compile
    --kvcache-block-size 16)
N_LINES=6 # the others are names of this program's own options

claims_begin

generate_accepts_neutral_values_with_a_line_each() {
    echo '{"id": 1, "messages": [{"role": "user", "content": "What is 12 + 30?"}]}' > "$work/in"
    try generate --model $MODEL --input "$work/in" --output "$work/answers" "${NEUTRAL[@]}"
    [ "$rc" = 0 ]
    grep -q '42' "$work/answers"
    [ "$(accepted_lines)" = $N_LINES ]
    grep -q -- '^unmask: warning: --pp-size 1 is accepted: an engine computes' "$work/err"
    grep -q -- '--attn-impl triton is accepted: ' "$work/err"
    grep -q -- '--no-enable-torch-compile is accepted: ' "$work/err"
}
bench_accepts_neutral_values_with_a_line_each() {
    try bench --model $MODEL --batch 1 --runs 1 --max-tokens 8 "${NEUTRAL[@]}"
    [ "$rc" = 0 ]
    [ "$(accepted_lines)" = $N_LINES ]
}
serve_accepts_neutral_values_with_a_line_each() {
    try serve --model $MODEL "${NEUTRAL[@]}" --disable-log-requests --enable-metrics --print-config
    [ "$rc" = 0 ]
    [ "$(accepted_lines)" = $((N_LINES + 2)) ]
    grep -q '^page_size: 16 ' "$work/out"
}
options_of_other_devices_are_logged_with_a_line_each() {
    try run --model $MODEL --mem-fraction-static 0.9 --enforce-eager "What is 12 + 30?"
    [ "$rc" = 0 ]
    grep -q -- '^unmask: warning: --mem-fraction-static has no effect on the device cpu: --kv-memory-share and' "$work/err"
    grep -q -- '^unmask: warning: --enforce-eager has no effect on the device cpu: only a GPU' "$work/err"
    [ "$(grep -c 'has no effect' "$work/err")" = 2 ]
    try run --model $MODEL --device cuda --kv-memory-share 0.5 --enforce-eager --print-config
    [ "$rc" = 0 ]
    grep -q -- '^unmask: warning: --kv-memory-share has no effect on the device cuda: --gpu-memory-' "$work/err"
    [ "$(wc -l < "$work/err")" = 1 ]
    cp "$work/out" "$work/all.yaml"
    UNMASK_GPU_MEMORY_UTILIZATION=0.9 try run --model $MODEL --config "$work/all.yaml" --device cpu --print-config
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
}
a_page_size_that_shares_no_prefixes_is_told() {
    try run --model $MODEL --kvcache-block-size 6 "What is 12 + 30?"
    [ "$rc" = 0 ]
    grep -q '^unmask: warning: page_size 6 is no multiple of the block size 32, so requests share no prefixes$' "$work/err"
    try run --model $MODEL --kvcache-block-size 6 --disable-prefix-caching "What is 12 + 30?"
    [ "$(grep -c 'page_size' "$work/err")" = 0 ]
    try run --model $MODEL --kvcache-block-size 64 "What is 12 + 30?"
    [ "$(grep -c 'page_size' "$work/err")" = 0 ]
}
switches_of_llama_server_and_newer_vllm_are_accepted() {
    try serve --model $MODEL --jinja --cont-batching --flash-attn on --async-scheduling --guided-decoding-backend xgrammar \
        --print-config
    [ "$rc" = 0 ]
    [ "$(accepted_lines)" = 5 ]
    try serve --model $MODEL --no-cont-batching --print-config
    [ "$rc" = 2 ]
    grep -q -- '--no-cont-batching: false is not supported, only true: ' "$work/err"
}
log_options_apply_to_notices() {
    try serve --model $MODEL --pp 1 --log-format json --print-config
    grep -q '^{.*"level":"warning","message":"--pp 1 is accepted: ' "$work/err"
    try serve --model $MODEL --pp 1 --log-level error --print-config
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
}
other_values_are_refused_with_those_that_are_supported() {
    for command in serve generate bench run; do
        try $command --model $MODEL --pipeline-parallel-size 2
        [ "$rc" != 0 ]
        grep -q -- "^unmask $command: --pipeline-parallel-size: 2 is not supported, only 1: .*--tensor-parallel-size" "$work/err"
    done
    try generate --distributed-executor-backend ray
    [ "$rc" != 0 ]
    grep -q -- '--distributed-executor-backend: ray is not supported, only mp or uni: ' "$work/err"
    try generate --pp many
    [ "$rc" = 2 ]
    grep -q -- '--pp: expected a number, found "many"' "$work/err"
    try generate --enable-torch-compile=maybe
    [ "$rc" = 2 ]
    grep -q -- '--enable-torch-compile: expected true or false' "$work/err"
}
commands_without_engine_options_refuse_them() {
    try tokenize --model $MODEL --tensor-parallel-size 1 hello
    [ "$rc" = 2 ]
    grep -q 'unknown option --tensor-parallel-size' "$work/err"
}
file_and_environment_accept_them_too() {
    printf 'pipeline_parallel_size: 1.0\nenable_torch_compile: yes\nserve:\n  enable_metrics: no\n' > "$work/c.yaml"
    UNMASK_TRUST_REMOTE_CODE=1 try generate --config "$work/c.yaml" --print-config
    [ "$rc" = 0 ]
    [ "$(accepted_lines)" = 3 ]
    grep -q "$work/c.yaml:1:25: pipeline_parallel_size 1.0 is accepted: " "$work/err"
    grep -q 'UNMASK_TRUST_REMOTE_CODE 1 is accepted: ' "$work/err"
    try serve --config "$work/c.yaml" --print-config
    grep -q "^metrics: false  # file $work/c.yaml:4:19" "$work/out"
    printf 'enable_torch_compile: null\npipeline_parallel_size: 4\n' > "$work/c.yaml"
    try generate --config "$work/c.yaml" --print-config
    [ "$rc" != 0 ]
    grep -q "$work/c.yaml:2:25: pipeline_parallel_size: 4 is not supported, only 1" "$work/err"
}
command_line_wins_over_environment_for_foreign_options() {
    UNMASK_ENABLE_PREFIX_CACHING=true try generate --no-enable-prefix-caching --print-config
    [ "$rc" = 0 ]
    grep -q '^disable_prefix_caching: true  # command line' "$work/out"
    [ "$(accepted_lines)" = 1 ]
    grep -q -- '--no-enable-prefix-caching is accepted: ' "$work/err"
}
use_lora_takes_a_folder_or_combines_with_lora() {
    mkdir -p "$work/adapter"
    for words in "--use-lora $work/adapter" "--use-lora=$work/adapter" "--use-lora --lora-path $work/adapter"; do
        try generate $words --print-config
        [ "$rc" = 0 ]
        grep -q "^lora: \"$work/adapter\"" "$work/out"
        [ "$(accepted_lines)" = 1 ]
    done
    try generate --use-lora --print-config
    [ "$rc" = 2 ]
    grep -q -- '--use-lora needs a folder; name one with --lora' "$work/err"
    try generate --no-use-lora --lora-path "$work/adapter" --print-config
    [ "$rc" = 2 ]
    grep -q -- '--no-use-lora contradicts --lora' "$work/err"
}
word_after_use_lora_that_is_not_a_folder_is_text() {
    mkdir -p "$work/adapter"
    try run --model $MODEL --lora-path "$work/adapter" --use-lora 'What is 12 + 30?' --print-config
    [ "$rc" = 0 ]
    grep -q "^lora: \"$work/adapter\"" "$work/out"
}
names_of_other_programs_lead_to_the_option() {
    # COMMAND, what its user wrote, the option that is meant
    while read -r command given meant; do
        try ${command//+/ } $given 4
        [ "$rc" = 2 ]
        grep -qF -- "unknown option $given; did you mean $meant?" "$work/err"
    done << END
bench+serve --num-prompts --requests
bench+serve --max-concurrency --concurrency
bench+serve --random-input-len --prompt-words
bench+serve --base-url --url
bench+serve --extra-request-body --body
bench+serve --disable-stream --no-stream
bench --num-prompts --requests
run -n --max-tokens
run -ngl --device
run --ctx-size --max-model-len
run --diffusion-visual --view
serve --parallel --max-num-reqs
generate --cache-type-k --kv-cache-dtype
serve -tp --tensor-parallel-size
serve --dist-init-addr --master-addr
serve --dllm-algorithm --sampler
serve --dllm-algorithm-config --accept-threshold
END
}
every_row_is_listed() {
    "$UNMASK" list --json foreign | jq -r '.foreign[].name' > "$work/names"
    [ "$(wc -l < "$work/names")" -gt 60 ]
    grep -qx pipeline_parallel_size "$work/names"
    while read -r name; do grep -q "^| \`$name\`" docs/options.md; done < "$work/names"
}

claims_all
