#!/bin/bash
# Loading takes long on the fake GPU while a file exists: its progress in every command and in /health, and Ctrl-C.
source tests/cli/claims.bash
source tests/gpu/gpu.bash
source tests/server/serve.bash
gpu_program gpu
UNMASK=$work/gpu/unmask
MODEL=models/tiny-block
export FAKE_GPU_PAUSE=$work/pause FAKE_GPU_PAUSE_MS=100 # 27 matrices take 2.7 s
on_gpu='--device cuda --threads 1'

slowly() {
    touch "$FAKE_GPU_PAUSE"
    try "$@"
    rm "$FAKE_GPU_PAUSE"
}
# One line comes after a second, the next one 5 seconds later.
shows_progress() {
    grep -qE '^loading weights [1-9][0-9]? %  [0-9.]+ MB of 11.9 MB  ETA ' "$work/err"
}

claims_begin

slow_loading_shows_lines_in_every_command() {
    echo '{"prompt": "What is 12 + 30?"}' > "$work/in"
    slowly run --model $MODEL $on_gpu 'What is 12 + 30?'
    [ "$rc" = 0 ]
    shows_progress
    [ "$(cat "$work/out")" = '12 + 30 = 42.' ]
    slowly generate --model $MODEL $on_gpu --input "$work/in" --output -
    shows_progress
    slowly eval --model $MODEL $on_gpu --limit 1
    shows_progress
    slowly bench --model $MODEL $on_gpu --batch 1 --requests 1 --runs 1
    shows_progress
}
quiet_and_fast_loading_show_nothing() {
    slowly run --model $MODEL $on_gpu --quiet 'What is 12 + 30?'
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
    try run --model $MODEL $on_gpu 'What is 12 + 30?'
    not grep -q loading "$work/err"
}
a_terminal_shows_a_bar_that_disappears() {
    columns=100
    touch "$FAKE_GPU_PAUSE"
    on_terminal run --model $MODEL $on_gpu 'What is 12 + 30?'
    rm "$FAKE_GPU_PAUSE"
    grep -q 'loading weights \[#*\.*\] [0-9]* %  [0-9.]* MB of 11.9 MB  ETA' "$work/out"
    screen > "$work/screen"
    not grep -q loading "$work/screen"
    grep -q '5.94 M parameters' "$work/screen"
}
interrupt_ends_loading_at_once() {
    export FAKE_GPU_PAUSE_MS=1000
    touch "$FAKE_GPU_PAUSE"
    echo '{"prompt": "t1"}' > "$work/in"
    local command pid
    for command in "run hello" "chat" "eval --limit 1" "bench --batch 1" "generate --input $work/in --output $work/none"; do
        "$UNMASK" $command --model $MODEL $on_gpu > "$work/out" 2> "$work/err" < /dev/null &
        pid=$!
        wait_for 'loading weights' "$work/err"
        kill -INT $pid
        rc=0
        wait $pid || rc=$?
        echo "$command ended with $rc"
        [ "$rc" = 130 ]
        not grep -qi 'error\|canceled' "$work/err"
    done
    rm "$FAKE_GPU_PAUSE"
}
server_says_how_far_it_is() {
    export FAKE_GPU_PAUSE_MS=1000
    touch "$FAKE_GPU_PAUSE"
    serve_no_wait --device cuda
    for _ in $(seq 1200); do
        call /health
        [ "$status" = 503 ]
        [ "$(member status)" = loading ]
        [ "$(member 'workers[0].state')" = loading ]
        ! member error.message | grep -qE 'worker 0 is loading, [1-9][0-9]? %: [0-9.]+ MB of 11.9 MB' || break
        sleep 0.05
    done
    member error.message | grep -q 'MB of 11.9 MB'
    member fraction | grep -q '^0\.[0-9]'
    [ "$(member fraction)" = "$(member 'workers[0].fraction')" ]
    try health "$url"
    [ "$rc" = 1 ]
    grep -q 'worker 0 is loading, ' "$work/err"
    wait_for 'worker 0: loading models/tiny-block: 11.9 MB' "$work/log"
    wait_for 'worker 0: loading models/tiny-block: [0-9]* %, [0-9.]* MB of 11.9 MB' "$work/log"
    rm "$FAKE_GPU_PAUSE"
    wait_for 'unmask: ready' "$work/log"
    call /health
    [ "$status" = 200 ]
    [ "$(member status)" = ok ]
    not grep -q fraction "$work/body"
    grep -q '5.94 M parameters, .* 12.2 MB, ' "$work/log"
    stop_server
    [ $rc = 0 ]
}

claims_all
