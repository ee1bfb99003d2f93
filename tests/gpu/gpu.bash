# For scripts that test GPUs without one. Source it from the repository root, after tests/cli/claims.bash:
#
#   gpu_program NAME...   makes $work/NAME/unmask: the program with the plugin of fake GPUs (fake_gpu.c) beside it
#   opened                prints the devices that were opened since the last call, one line each
BUILD=${BUILD:-build}
export FAKE_GPU_LOG=$work/opened

gpu_program() {
    mkdir -p "$work/$1"
    cp "$UNMASK" "$work/$1/unmask"
    cp "$BUILD/tests/gpu/libunmask-cuda.so" "$work/$1/"
}

opened() {
    [ ! -f "$FAKE_GPU_LOG" ] || sed -n 's/ eager .*//p' "$FAKE_GPU_LOG"
    rm -f "$FAKE_GPU_LOG"
}

# Writes requests with different prompts to a file: questions FILE NUMBER.
questions() {
    local i
    for i in $(seq "$2"); do
        echo "{\"id\": $i, \"messages\": [{\"role\": \"user\", \"content\": \"What is $i + 30?\"}]}"
    done > "$1"
}

# Prints the numbers of requests for which the last engine has recorded graphs at the start.
graph_sizes() {
    sed -n 's/^graphs *//p' "$FAKE_GPU_LOG" | tail -n 1
    rm -f "$FAKE_GPU_LOG"
}
