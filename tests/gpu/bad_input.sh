#!/bin/bash
# A GPU that can't be used: without plugin, driver or device, of another version, or lost while it computes.
source tests/cli/claims.bash
source tests/server/serve.bash
source tests/gpu/gpu.bash
gpu_program gpu
program=$UNMASK
mkdir "$work/bare"
cp "$program" "$work/bare/unmask"
UNMASK=$work/gpu/unmask
question='{"messages": [{"role": "user", "content": "What is 12 + 30?"}]}'

run_on() { try run --model $model --threads 1 'What is 12 + 30?' --device "$@"; }
# is_refused PATTERN: the program has failed with one line that matches, and perhaps a hint.
is_refused() {
    [ "$rc" != 0 ]
    [ ! -s "$work/out" ]
    grep -q -- "$1" "$work/err"
    [ "$(grep -vc '^Try ' "$work/err")" = 1 ]
}

claims_begin

a_missing_plugin_is_one_line() {
    UNMASK=$work/bare/unmask
    for command in run serve inspect; do
        case $command in
            run) run_on cuda ;;
            serve) try serve --model $model --port 0 --device cuda ;;
            inspect) try inspect $model --device cuda ;;
        esac
        [ "$rc" != 0 ]
        [ "$(grep -c 'device "cuda" can.t be used (--device cpu works): libunmask-cuda.so' "$work/err")" = 1 ]
    done
    run_on cuda
    is_refused 'libunmask-cuda.so'
    grep -q 'make CUDA=1' "$work/err"
    run_on cpu
    [ "$rc" = 0 ]
}
a_file_that_is_no_plugin_is_refused() {
    mkdir -p "$work/odd"
    cp "$program" "$work/odd/unmask"
    echo 'no library' > "$work/odd/libunmask-cuda.so"
    UNMASK=$work/odd/unmask
    run_on cuda
    is_refused "can't be used (--device cpu works): .*libunmask-cuda.so"
}
a_plugin_of_another_version_is_refused_with_both_versions() {
    FAKE_GPU_VERSION=0.0.9 run_on cuda
    is_refused "libunmask-cuda.so is of version 0.0.9 (.*), the program of version $("$UNMASK" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+') (.*): build both together"
    FAKE_GPU_VERSION=0.0.9 try serve --model $model --port 0 --device cuda
    [ "$rc" != 0 ]
    grep -q 'build both together' "$work/err"
}
no_device_is_refused() {
    FAKE_GPU_COUNT=0 run_on cuda
    is_refused "device \"cuda\" can't be used (--device cpu works): there is no fake GPU"
}
a_device_that_is_not_there_is_refused_with_those_that_are() {
    run_on cuda:7
    is_refused 'cuda:7 is not there; this process sees 2, cuda:0 to cuda:1'
    run_on cuda --device-ids 2
    is_refused 'cuda:2 is not there; this process sees 2, cuda:0 to cuda:1'
    try serve --model $model --port 0 --device cuda:7
    [ "$rc" != 0 ]
    grep -q 'cuda:7 is not there' "$work/err"
}
an_unknown_device_is_refused_with_the_known_ones() {
    for name in gpu cuda: cuda:x cuda:-1 cuda,gpu nvidia:0; do
        run_on $name
        [ "$rc" = 2 ]
        is_refused "--device: expected one or more of cpu, cuda, cuda:N or ref, found \"$name\""
    done
    run_on cuda:0,cpu
    is_refused 'device: expected devices of one kind, found "cuda:0,cpu"'
    run_on cpu --device-ids 1
    is_refused 'device "cpu" has no numbers, found 1'
}
a_lost_device_ends_a_command() {
    touch "$work/loss"
    FAKE_GPU_LOSS=$work/loss run_on cuda
    [ "$rc" != 0 ]
    grep -q 'fake GPU 0 has fallen off the bus' "$work/err"
}
a_lost_device_fails_requests_and_its_worker_is_restarted() {
    local first
    export FAKE_GPU_LOSS=$work/loss
    serve --device cuda
    first=$(pgrep -P $pid)
    post /v1/chat/completions "$question"
    [ "$status" = 200 ]
    touch "$work/loss"
    post /v1/chat/completions "$question"
    [ "$status" = 503 ]
    [[ $(member error.message) == *"worker 0 died: fake GPU 0 has fallen off the bus"* ]]
    wait_for 'worker 0 died: fake GPU 0 has fallen off the bus; restarting (1 of 5)' "$work/log"
    for _ in $(seq 600); do
        call /health
        [ "$status" != 200 ] || break
        sleep 0.05
    done
    [ "$(pgrep -P $pid)" != "$first" ]
    post /v1/chat/completions "$question"
    [ "$status" = 200 ]
    [[ $(member choices[0].message.content) == *42* ]]
    call /metrics
    grep -q '^unmask_worker_restarts_total{.*} 1$' "$work/body"
    stop_server
    [ "$rc" = 0 ]
}
a_lost_device_leaves_the_other_workers_running() {
    export FAKE_GPU_LOSS=$work/loss
    serve --device cuda --data-parallel-size 2 --restart-backend 0
    touch "$work/loss"
    post /v1/chat/completions "$question"
    [ "$status" = 503 ]
    for _ in 1 2 3 4; do
        post /v1/chat/completions "$question"
        [ "$status" = 200 ]
    done
    stop_server
}
the_real_plugin_says_what_is_missing() {
    [ -f "$BUILD/libunmask-cuda.so" ] || skip "libunmask-cuda.so is not built (make CUDA=1)"
    [ ! -e /dev/nvidiactl ] || skip "this machine has an NVIDIA driver"
    UNMASK=$program
    run_on cuda
    is_refused "device \"cuda\" can't be used (--device cpu works): \(the NVIDIA driver is missing or older than CUDA\|there is no NVIDIA GPU\|libcublasLt\)"
}

claims_all
