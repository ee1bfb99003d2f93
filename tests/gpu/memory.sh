#!/bin/bash
# The memory of a GPU: what inspect foresees is what an engine takes, and an engine that does not fit is refused at the
# start, with the sum.
source tests/cli/claims.bash
source tests/server/serve.bash
source tests/gpu/gpu.bash
gpu_program gpu
program=$UNMASK
UNMASK=$work/gpu/unmask

# Sets $fits to the group "fits" of inspect --json.
inspect_on() {
    try inspect --json $model "$@"
    fits=$(jq -c .fits "$work/out")
}
of() { jq -r ".$1" <<< "$fits"; }
run_on_gpu() { try run --model $model --device cuda --threads 1 'What is 12 + 30?' "$@"; }
is_refused() {
    [ "$rc" != 0 ]
    [ ! -s "$work/out" ]
    [ "$(grep -c . "$work/err")" -le 2 ]
}

claims_begin

inspect_says_what_fits() {
    inspect_on --device cuda:1
    [ "$rc" = 0 ]
    [ "$(of device)" = cuda:1 ]
    [ "$(of device_name)" = 'fake GPU' ]
    [ "$(of memory)" = 1000000000 ]
    [ "$(of may_be_used)" -gt 899999000 ]
    [ "$(of may_be_used)" -le 900000000 ]
    [ "$(of activations)" = 10000000 ]
    [ "$(of pages)" = $((($(of may_be_used) - $(of weights) - 10000000) / $(of page))) ]
    [ "$(of tokens)" = $(($(of pages) * $(of page_size))) ]
    [ "$(of request_tokens)" = 1024 ]
    [ "$(of requests)" -gt 0 ]
    [ ! -s "$work/err" ]
}
inspect_follows_the_options() {
    local pages
    inspect_on --device cuda
    pages=$(of pages)
    inspect_on --device cuda --gpu-memory-utilization 0.5
    [ "$(of may_be_used)" = 500000000 ]
    [ "$(of pages)" -lt "$pages" ]
    inspect_on --device cuda --kv-cache-dtype float32
    [ "$(($(of pages) * 2))" -le "$((pages + 1))" ]
    inspect_on --device cuda:0,cuda:0 --data-parallel-size 2
    [ "$(($(of pages) * 2))" -le "$pages" ]
    inspect_on --device cuda --max-model-len 128
    [ "$(of request_tokens)" = 128 ]
    printf 'device: cuda\nserve:\n  port: 1\ngpu_memory_utilization: 0.5\n' > "$work/c.yaml"
    inspect_on --config "$work/c.yaml"
    [ "$(of may_be_used)" = 500000000 ]
}
inspect_of_a_cpu_has_the_free_memory() {
    inspect_on --device cpu
    [ "$rc" = 0 ]
    [ "$(of device)" = cpu ]
    [ "$(of free)" -gt 1000000 ]
    [ "$(of memory)" = null ]
    [ "$(of pages)" -gt 0 ]
    try inspect --json $model
    [ "$(jq .fits "$work/out")" = null ]
}
inspect_shows_the_sum_of_a_model_that_does_not_fit() {
    FAKE_GPU_BYTES=2e7 inspect_on --device cuda
    [ "$rc" != 0 ]
    [ "$(of pages)" = 0 ]
    [ "$(of may_be_used)" -lt 18000001 ]
    grep -q 'no KV page fits on cuda:0: weights 12.* MB, activations 10.0 MB, a page 98.3 kB, but 0.90 of 20.0 MB' "$work/err"
}
inspect_without_the_plugin_is_one_line() {
    UNMASK=$program
    [ ! -f "$BUILD/libunmask-cuda.so" ] || skip "the plugin is beside the program"
    try inspect $model --device cuda
    [ "$rc" != 0 ]
    [ ! -s "$work/out" ]
    [ "$(grep -c . "$work/err")" = 1 ]
    grep -q 'device "cuda" can.t be used (--device cpu works): libunmask-cuda.so' "$work/err"
}
an_engine_takes_the_pages_that_inspect_foresaw() {
    local foreseen taken
    inspect_on --device cuda --max-num-reqs 4096
    foreseen=$(of pages)
    serve --device cuda --max-num-reqs 4096
    taken=$(sed -nE 's/.*activations [^,]*, ([0-9]+) KV pages .*/\1/p' "$work/log")
    [ "$taken" -gt $((foreseen * 95 / 100)) ]
    [ "$taken" -lt $((foreseen * 105 / 100)) ]
    stop_server
}
the_start_prints_the_sum_and_the_time_of_loading() {
    serve --device cuda
    grep -qE 'worker 0: weights: [0-9.]+ MB in [0-9.]+ s$' "$work/log"
    grep -qE 'worker 0: memory of cuda:0 \(fake GPU, 1.0 GB\): weights [0-9.]+ MB, activations 10.0 MB, [0-9]+ KV pages [0-9.]+ MB, free [0-9]+ MB' "$work/log"
    stop_server
    serve --device cpu
    grep -qE 'worker 0: weights: [0-9.]+ MB in [0-9.]+ s$' "$work/log"
    stop_server
}
weights_that_do_not_fit_are_refused_before_loading() {
    FAKE_GPU_BYTES=2e7 run_on_gpu
    is_refused
    grep -q "cuda:0 can't hold the model: weights 12.* MB + activations 10.0 MB = 2.* MB, but only 18.0 MB may be used: 0.90 of 20.0 MB" "$work/err"
    FAKE_GPU_BYTES=2e7 try serve --model $model --device cuda --port 0
    [ "$rc" != 0 ]
    grep -q "cuda:0 can't hold the model" "$work/err"
    not grep -q 'weights: ' "$work/err"
    FAKE_GPU_BYTES=4e7 run_on_gpu
    [ "$rc" = 0 ]
    FAKE_GPU_BYTES=4e7 run_on_gpu --gpu-memory-utilization 0.4
    is_refused
    FAKE_GPU_BYTES=3e7 run_on_gpu --dtype float32
    is_refused
    grep -q 'use --dtype bfloat16 or a smaller model' "$work/err"
}
a_share_that_leaves_no_page_is_refused_with_the_sum() {
    inspect_on --device cuda
    FAKE_GPU_BYTES=3e7 FAKE_GPU_WORKSPACE=$((27000000 - $(of weights) - 40000)) run_on_gpu
    is_refused
    grep -q 'gpu_memory_utilization: no KV page fits on cuda:0: weights 1.* MB, activations 1.* MB, a page 98.3 kB, but 0.90 of 30.0 MB (--gpu-memory-utilization) is 27.0 MB' "$work/err"
}
pages_that_do_not_fit_are_refused_with_the_sum() {
    FAKE_GPU_BYTES=1e8 run_on_gpu --num-pages 100000
    is_refused
    grep -q 'num_pages: activations 10.0 MB and 100000 KV pages 9.8 GB don.t fit on cuda:0: 8.* MB are free' "$work/err"
    FAKE_GPU_BYTES=1e8 run_on_gpu --num-pages 100
    [ "$rc" = 0 ]
}
shares_out_of_range_are_refused() {
    for share in 0 1.5 -1 x; do
        run_on_gpu --gpu-memory-utilization $share
        [ "$rc" = 2 ]
        grep -q -- "--gpu-memory-utilization: .*$share.*0.01..1\|--gpu-memory-utilization: expected a number 0.01..1, found \"$share\"" "$work/err"
    done
}

claims_all
