#!/bin/bash
# Each engine of --data-parallel-size gets a GPU of its own, in worker processes and in one process.
source tests/cli/claims.bash
source tests/server/serve.bash
source tests/gpu/gpu.bash
gpu_program gpu
UNMASK=$work/gpu/unmask

generate_on() {
    questions "$work/in" 8
    rm -f "$work/answers"
    try generate --model $model --threads 1 --route-policy round-robin --input "$work/in" --output "$work/answers" "$@"
}
equal_answers() { diff <(jq -cS '[.id, .text]' "$work/answers" | sort) <(jq -cS '[.id, .text]' "$work/expected" | sort); }

generate_on > /dev/null
mv "$work/answers" "$work/expected"

claims_begin

engines_of_one_process_have_a_device_each() {
    generate_on --device cuda --data-parallel-size 2
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 0 device 1" ]
    [ "$(jq -r .text "$work/answers" | wc -l)" -ge 8 ]
    equal_answers
}
a_list_names_the_device_of_each_engine() {
    FAKE_GPU_COUNT=4 generate_on --device cuda:3,cuda:1 --data-parallel-size 2
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 3 device 1" ]
    FAKE_GPU_COUNT=4 generate_on --device cuda --device-ids 2,0 --data-parallel-size 2
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 2 device 0" ]
    printf 'device: cuda\ndevice_ids: 1,3\ndata_parallel_size: 2\n' > "$work/c.yaml"
    FAKE_GPU_COUNT=4 generate_on --config "$work/c.yaml"
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 1 device 3" ]
}
engines_that_name_one_device_share_its_weights() {
    generate_on --device cuda:1,cuda:1 --data-parallel-size 2
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 1" ]
    equal_answers
}
bench_runs_on_all_devices() {
    try bench --model $model --device cuda --data-parallel-size 2 --threads 1 --batch 2 --runs 1 --max-tokens 8
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 0 device 1" ]
}
run_uses_the_first_device_of_a_list() {
    try run --model $model --device cuda:1,cuda:0 --data-parallel-size 2 'What is 12 + 30?'
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 1" ]
}
more_engines_than_devices_are_refused_with_both_counts() {
    questions "$work/in" 1
    for command in generate bench serve; do
        words=(--model $model --device cuda --data-parallel-size 3)
        [ $command != generate ] || words+=(--input "$work/in" --output "$work/none")
        try $command "${words[@]}"
        [ "$rc" != 0 ]
        grep -q '3 engines (--data-parallel-size) need 3 devices, but this process sees 2; .*--device cuda:0,cuda:0' "$work/err"
        [ "$(grep -c 'need 3 devices' "$work/err")" = 1 ]
    done
    try serve --model $model --device cuda --data-parallel-size 3 --in-process
    [ "$rc" != 0 ]
    grep -q '3 engines .* sees 2' "$work/err"
    opened
}
a_list_of_another_length_is_refused() {
    generate_on --device cuda:0,cuda:1
    [ "$rc" != 0 ]
    grep -q '2 devices are named for 1 engine (--data-parallel-size)' "$work/err"
    generate_on --device cuda:1 --data-parallel-size 2
    [ "$rc" != 0 ]
    grep -q '1 device is named for 2 engines' "$work/err"
    generate_on --device cuda:1 --device-ids 0
    [ "$rc" != 0 ]
    grep -q -- '--device-ids 0 contradicts --device cuda:1' "$work/err"
}
each_worker_process_has_its_device() {
    serve --device cuda --data-parallel-size 2
    [ "$(opened | sort | xargs)" = "device 0 device 1" ]
    grep -q 'worker 0: .* on cuda:0' "$work/log"
    grep -q 'worker 1: .* on cuda:1' "$work/log"
    post /v1/chat/completions '{"messages": [{"role": "user", "content": "What is 12 + 30?"}]}'
    [ "$status" = 200 ]
    [[ $(member choices[0].message.content) == *42* ]]
    stop_server
    [ "$rc" = 0 ]
}
metrics_have_the_devices_of_all_workers() {
    local worker kind
    serve --device cuda --data-parallel-size 2
    for _ in 1 2 3 4; do
        post /v1/chat/completions '{"messages": [{"role": "user", "content": "What is 12 + 30?"}]}'
    done
    # Workers report their numbers once a second.
    for _ in $(seq 600); do
        call /metrics > "$work/null"
        ! grep -q '^unmask_graph_replays_total{.*} [1-9]' "$work/body" || break
        sleep 0.05
    done
    for worker in 0 1; do
        for kind in weights kv workspace free total; do
            grep -q "^unmask_device_memory_bytes{.*worker=\"$worker\",kind=\"$kind\"} [1-9]" "$work/body"
        done
        grep -q "^unmask_device_memory_bytes{.*worker=\"$worker\",kind=\"total\"} 1000000000$" "$work/body"
        grep -q "^unmask_graphs{.*worker=\"$worker\"} 3$" "$work/body"
    done
    grep -q '^unmask_graph_replays_total{.*} [1-9]' "$work/body"
    post /call/memory_report '{}'
    [ "$(jq -r '.result[0].device_bytes' "$work/body")" = 1000000000 ]
    stop_server
    serve --device cpu
    call /metrics
    not grep -q 'device_memory\|graph' "$work/body"
    stop_server
}
workers_that_share_a_device_divide_its_memory() {
    serve --device cuda:1,cuda:1 --data-parallel-size 2
    [ "$(opened | xargs)" = "device 1 device 1" ]
    tr '\0' ' ' < "/proc/$(pgrep -P $pid | head -n 1)/cmdline" > "$work/cmdline"
    grep -q -- '--gpu-memory-utilization 0.45 ' "$work/cmdline"
    stop_server
}
engines_in_the_servers_process_have_a_device_each() {
    serve --device cuda --data-parallel-size 2 --in-process
    [ "$(opened | xargs)" = "device 0 device 1" ]
    stop_server
    [ "$rc" = 0 ]
}
ranks_of_an_engine_have_a_device_each() {
    FAKE_GPU_COUNT=4 generate_on --device cuda --data-parallel-size 2 --tensor-parallel-size 2
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 0 device 1 device 2 device 3" ]
    equal_answers
    FAKE_GPU_COUNT=4 generate_on --device cuda:3,cuda:1 --tensor-parallel-size 2
    [ "$rc" = 0 ]
    [ "$(opened | xargs)" = "device 3 device 1" ]
    equal_answers
}
ranks_without_devices_of_their_own_are_refused() {
    FAKE_GPU_COUNT=2 generate_on --device cuda --data-parallel-size 2 --tensor-parallel-size 2
    [ "$rc" != 0 ]
    grep -q '2 engines (--data-parallel-size) of 2 ranks (--tensor-parallel-size) need 4 devices, but this process sees 2' "$work/err"
    FAKE_GPU_COUNT=2 generate_on --device cuda:1 --tensor-parallel-size 2
    [ "$rc" != 0 ]
    grep -q '1 device is named for 1 engine (--data-parallel-size) of 2 ranks' "$work/err"
    FAKE_GPU_COUNT=2 generate_on --device cuda:1,cuda:1 --tensor-parallel-size 2
    [ "$rc" != 0 ]
    grep -q 'cuda:1 is named twice, but each rank (--tensor-parallel-size) needs a device of its own' "$work/err"
}
# They are refused before a weight is loaded.
ranks_on_devices_that_do_not_fit_together_are_refused() {
    FAKE_GPU_COUNT=4 FAKE_GPU_ODD=3 generate_on --device cuda:1,cuda:3 --tensor-parallel-size 2
    [ "$rc" = 3 ]
    grep -q 'device: cuda:1 is fake GPU and cuda:3 is odd GPU; the ranks of --tensor-parallel-size need devices of one kind' "$work/err"
    FAKE_GPU_COUNT=4 FAKE_GPU_APART=2 generate_on --device cuda:0,cuda:2 --tensor-parallel-size 2
    [ "$rc" = 3 ]
    grep -q "device: cuda:0 can't read the memory of cuda:2, which the ranks of --tensor-parallel-size must; .*--nnodes" "$work/err"
    FAKE_GPU_COUNT=4 FAKE_GPU_APART=2 generate_on --device cuda:2,cuda:0 --tensor-parallel-size 2
    [ "$rc" = 3 ]
    grep -q "device: cuda:0 can't read the memory of cuda:2, which" "$work/err"
    FAKE_GPU_COUNT=4 FAKE_GPU_APART=2 FAKE_GPU_ODD=3 generate_on --device cuda:0,cuda:1 --tensor-parallel-size 2
    [ "$rc" = 0 ]
    equal_answers
    opened
}

claims_all
