#!/bin/bash
# The switches of a GPU, under this program's names and those of other engines: which values reach the device.
source tests/cli/claims.bash
source tests/gpu/gpu.bash
gpu_program gpu
UNMASK=$work/gpu/unmask
MODEL=models/tiny-block

run_on_gpu() {
    try run --model $MODEL --device cuda --threads 1 'What is 12 + 30?' "$@"
    [ "$rc" = 0 ]
    grep -q 42 "$work/out"
}
is_eager() { grep -q 'eager 1' "$FAKE_GPU_LOG"; }

claims_begin

graphs_are_recorded_for_powers_of_two() {
    run_on_gpu --max-num-reqs 32
    [ "$(graph_sizes)" = "1 2 4 8 16 32" ]
    run_on_gpu --max-num-reqs 24
    [ "$(graph_sizes)" = "1 2 4 8 16 24" ]
    run_on_gpu --max-num-reqs 1
    [ "$(graph_sizes)" = "1" ]
}
listed_sizes_are_sorted_and_limited() {
    for name in --cuda-graph-sizes --cuda-graph-bs --cudagraph-capture-sizes; do
        run_on_gpu --max-num-reqs 16 $name 8,1,64,8,16,0
        [ "$(graph_sizes)" = "1 8 16" ]
    done
    run_on_gpu --cuda-graph-sizes none
    [ "$(graph_sizes)" = "" ]
}
bad_sizes_are_refused() {
    for value in 1,x 1,,2 -1 12345 "$(seq -s, 65)"; do
        try run --model $MODEL --device cuda hello --cuda-graph-sizes "$value"
        [ "$rc" = 2 ]
        grep -q -- '--cuda-graph-sizes: expected one or more of none or N, or auto, found ' "$work/err"
    done
}
switches_of_other_engines_turn_graphs_off() {
    for words in --enforce-eager --disable-cuda-graph --no-cuda-graph --cuda-graph=false; do
        run_on_gpu $words
        is_eager
        [ "$(graph_sizes)" = "" ]
    done
    run_on_gpu --cuda-graph
    not is_eager
    grep -q -- '--cuda-graph is accepted: sets enforce_eager to the opposite' "$work/err"
}
switches_without_effect_are_logged() {
    for name in compile torch-compile enable-torch-compile; do
        run_on_gpu --$name
        grep -q -- "^unmask: warning: --$name is accepted: .* a GPU records graphs unless --enforce-eager is set" "$work/err"
    done
    for name in attention-backend attn-impl; do
        run_on_gpu --$name flashinfer
        grep -q -- "--$name flashinfer is accepted: a device has one implementation" "$work/err"
    done
    run_on_gpu --cuda-graph-max-bs 8 --pipeline-parallel-size 1
    [ "$(grep -c ' is accepted: ' "$work/err")" = 2 ]
    grep -q -- '--cuda-graph-max-bs 8 is accepted: graphs are recorded for up to --max-num-reqs requests' "$work/err"
    grep -q -- '--pipeline-parallel-size 1 is accepted: an engine computes all layers on each of its devices' "$work/err"
}
the_share_of_memory_has_the_peers_names() {
    try serve --model $MODEL --mem-fraction-static 0.8 --print-config
    [ "$rc" = 0 ]
    grep -q '^gpu_memory_utilization: 0.8 ' "$work/out"
}

claims_all
