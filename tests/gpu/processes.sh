#!/bin/bash
# GPUs that are ranks in several processes (--nnodes), with a plugin of fake GPUs: which GPU each process has, how the GPUs
# find each other, and how the group ends when one does not answer.
source tests/cli/claims.bash
source tests/cli/ranks.bash
source tests/server/serve.bash
source tests/gpu/gpu.bash
RANDOM=${UM_TEST_SEED:-$$}
gpu_program gpu
UNMASK=$work/gpu/unmask
questions "$work/requests" 8
questions "$work/many" 2000
options=(generate --model models/tiny-block --threads 1 --input "$work/requests")

"$UNMASK" "${options[@]}" --quiet --device cuda --tensor-parallel-size 2 --output "$work/expected" > /dev/null
rm -f "$FAKE_GPU_LOG"

# Rank 0 on a device: rank_0 DEVICE OPTION... Its stderr goes to $work/rank0.
rank_0() {
    rm -f "$work/answers"
    "$UNMASK" "${options[@]}" --nnodes "${nodes:-2}" --master-port "$port" --distributed-timeout-seconds 20 \
        --output "$work/answers" --device "$@" 2> "$work/rank0" > "$work/rank0.out"
}

# fails WORDS: rank 0 on cuda:0 ends with exit status 2 or 3 and these words.
fails() {
    local rc=0
    rank_0 cuda:0 --quiet || rc=$?
    cat "$work/rank0"
    [ "$rc" = 2 ] || [ "$rc" = 3 ]
    grep -q "$1" "$work/rank0"
}

# equal_answers FILE: the answers of this file are the expected ones.
equal_answers() { diff <(jq -cS '[.id, .text]' "$1" | sort) <(jq -cS '[.id, .text]' "$work/expected" | sort); }

# Rank 1 has ended with these words, too.
follower_says() {
    not wait "${follower[1]}"
    cat "$work/rank1"
    grep -q "$1" "$work/rank1"
}

# begin_six OPTION...: starts six ranks. leader is the process of rank 0.
begin_six() {
    local rank
    nodes=6
    new_port
    for rank in 1 2 3 4 5; do follow $rank --device cuda:$rank; done
    rank_0 cuda:0 --quiet --distributed-timeout-seconds 12 "$@" &
    leader=$!
}

# Waits until all six wait for each other.
await_six() {
    local rank
    for rank in 0 1 2 3 4 5; do wait_for "device $rank waits" "$FAKE_GPU_LOG"; done
}

# ends_with WORDS: rank 0 ends with exit status 3 and these words.
ends_with() {
    local rc=0
    wait "$leader" || rc=$?
    cat "$work/rank0"
    [ "$rc" = 3 ]
    grep -q "$1" "$work/rank0"
    kill -9 "${follower[@]}"
    follower=()
    opened
}

claims_begin

processes_answer_like_one_process() {
    new_port
    follow 1 --device cuda:1
    rank_0 cuda:0 --profile "$work/profile.json"
    followers_end
    equal_answers "$work/answers"
    [ "$(opened | sort | xargs)" = "device 0 device 1" ]
    grep -q 'on cuda:0 (2 x fake GPU)' "$work/rank0.out" "$work/rank0"
    # The times of both ranks.
    grep -qE '^ +0 +[0-9.]+ s ' "$work/rank0"
    grep -qE '^ +1 +[0-9.]+ s ' "$work/rank0"
}

# A device with less memory decides how much all have for keys and values, whatever its rank.
the_device_with_the_least_memory_decides() {
    local bytes kv=()
    for bytes in '2e8 1e9' '1e9 2e8' '1e9 1e9'; do
        new_port
        FAKE_GPU_BYTES=${bytes#* } follow 1 --device cuda:1 --max-num-reqs 1000
        FAKE_GPU_BYTES=${bytes% *} rank_0 cuda:0 --max-num-reqs 1000
        followers_end
        equal_answers "$work/answers"
        kv+=("$(grep -o 'KV [0-9.]* [KMG]*B' "$work/rank0")")
    done
    printf '%s\n' "${kv[@]}"
    [ "${kv[1]}" = "${kv[0]}" ]
    [ "${kv[2]}" != "${kv[0]}" ]
    opened
}

# Rank 0 tells the other ranks for which passes they record graphs.
all_ranks_record_graphs() {
    new_port
    follow 1 --device cuda:1 --max-num-reqs 4
    rank_0 cuda:0 --quiet --max-num-reqs 16
    followers_end
    grep '^graphs' "$FAKE_GPU_LOG" > "$work/graphs"
    opened
    cat "$work/graphs"
    [ "$(wc -l < "$work/graphs")" = 2 ]
    [ "$(sort -u "$work/graphs" | wc -l)" = 1 ]
    grep -q ' 16' "$work/graphs"
}

# Each process has the GPU of its number on the host, or the only one that it sees.
launchers_choose_the_device() {
    local -A launcher=(
        [torchrun]='RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 LOCAL_RANK=%d'
        [openmpi]='OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=%d'
        [mpich]='PMI_RANK=%d PMI_SIZE=2 MPI_LOCALRANKID=%d'
        [slurm]='SLURM_PROCID=%d SLURM_NTASKS=2 SLURM_LOCALID=%d'
    )
    local name place rank
    for name in "${!launcher[@]}"; do
        new_port
        for rank in 1 0; do
            # shellcheck disable=SC2059
            printf -v place "${launcher[$name]}" $rank $((rank + 1))
            # shellcheck disable=SC2086
            env $place FAKE_GPU_COUNT=4 "$UNMASK" "${options[@]}" --quiet --device cuda --nnodes auto --master-port "$port" \
                --distributed-timeout-seconds 20 --output "$work/answers.$rank" 2> "$work/$name$rank" &
        done
        wait $! || { cat "$work/${name}0"; return 1; }
        wait
        equal_answers "$work/answers.0"
        rm "$work/answers.0"
        [ "$(opened | sort | xargs)" = "device 1 device 2" ]
    done
    for rank in 1 0; do
        env SLURM_PROCID=$rank SLURM_NTASKS=2 SLURM_LOCALID=$rank FAKE_GPU_COUNT=1 FAKE_GPU_HOST=$rank "$UNMASK" \
            "${options[@]}" --quiet --device cuda --nnodes auto --master-port "$port" --distributed-timeout-seconds 20 \
            --output "$work/answers.$rank" 2> "$work/hidden$rank" &
    done
    wait $! || { cat "$work/hidden0"; return 1; }
    wait
    [ "$(opened | sort | xargs)" = "device 0 device 0" ]
    rm "$work/answers.0"
}

devices_that_are_not_there_are_refused() {
    new_port
    not rank_0 cuda:0,cuda:1 --quiet
    grep -q 'device: 2 devices are named, but each of 2 processes (--nnodes) is one rank and has one' "$work/rank0"
    LOCAL_RANK=3 RANK=0 WORLD_SIZE=2 not rank_0 cuda --quiet
    grep -q 'device: rank 0 is to use cuda:3, but this process sees 2, cuda:0 to cuda:1' "$work/rank0"
    LOCAL_RANK=many RANK=0 WORLD_SIZE=2 not rank_0 cuda --quiet
    grep -q 'device: the environment variable LOCAL_RANK is "many"' "$work/rank0"
    opened
}

a_device_is_one_rank_only() {
    new_port
    follow 1 --device cuda:0
    fails 'device: ranks 0 and 1 have the same device, cuda host/0; each rank needs one of its own'
    follower_says 'rank 0: device: ranks 0 and 1 have the same device'
    # The same number on another host is another device.
    new_port
    FAKE_GPU_HOST=other follow 1 --device cuda:0
    rank_0 cuda:0 --quiet
    followers_end
    equal_answers "$work/answers"
}

a_missing_library_is_named() {
    new_port
    FAKE_GPU_ALONE=yes follow 1 --device cuda:1
    fails 'rank 1: libfake.so is missing'
    follower_says 'libfake.so is missing'
    new_port
    follow 1 --device cuda:1
    FAKE_GPU_ALONE=yes fails 'libfake.so is missing'
    follower_says 'rank 0: libfake.so is missing'
}

a_device_that_does_not_unite_is_named() {
    new_port
    FAKE_GPU_ALONE=late follow 1 --device cuda:1 --distributed-timeout-seconds 2
    rc=0
    rank_0 cuda:0 --quiet --distributed-timeout-seconds 2 || rc=$?
    cat "$work/rank0"
    [ "$rc" = 3 ]
    grep -q 'rank 1: no answer for 2 s (--distributed-timeout-seconds)' "$work/rank0"
    follower_says 'rank 0: '
    # One that dies meanwhile is named at once.
    new_port
    FAKE_GPU_ALONE=late follow 1 --device cuda:1
    rank_0 cuda:0 --quiet &
    local leader=$! rc=0
    wait_for 'device 1' "$FAKE_GPU_LOG"
    sleep 0.5
    kill -9 "${follower[1]}"
    wait $leader || rc=$?
    cat "$work/rank0"
    [ "$rc" = 3 ]
    grep -q 'rank 1: its process has ended, or has closed the connection' "$work/rank0"
    follower=()
    opened
}

# All ranks wait when one hangs. Rank 0 finds out which one no longer answers.
a_process_that_hangs_is_named() {
    export FAKE_GPU_COUNT=6 FAKE_GPU_ALONE=late
    begin_six
    await_six
    kill -STOP "${follower[2]}"
    ends_with 'rank 2: no answer for 12 s (--distributed-timeout-seconds)'
}

devices_that_hang_in_a_pass_end_the_group() {
    export FAKE_GPU_COUNT=6 FAKE_GPU_HANG=20
    begin_six --input "$work/many"
    await_six
    ends_with 'all processes answer, but the devices have exchanged nothing for 12 s (--distributed-timeout-seconds)'
}

a_lost_device_ends_the_group() {
    new_port
    FAKE_GPU_LOSS=$work/loss follow 1 --device cuda:1
    rank_0 cuda:0 --quiet --input "$work/many" &
    local leader=$! rc=0
    until [ -s "$work/answers" ]; do kill -0 $leader; sleep 0.02; done
    touch "$work/loss"
    wait $leader || rc=$?
    cat "$work/rank0"
    [ "$rc" = 3 ]
    grep -q 'rank 1: fake GPU 1 has fallen off the bus' "$work/rank0"
    wait_for 'the group has failed: rank 1: fake GPU 1 has fallen off the bus; joining again' "$work/rank1"
    kill -9 "${follower[1]}"
    follower=()
    opened
}

a_server_reports_both_ranks() {
    new_port
    follow 1 --device cuda:1
    serve --device cuda:0 --nnodes 2 --master-port "$port" --distributed-timeout-seconds 20
    for _ in 1 2; do post /v1/chat/completions '{"messages": [{"role": "user", "content": "What is 12 + 30?"}]}'; done
    [ "$status" = 200 ]
    for _ in $(seq 100); do
        curl -sS -m 60 "$url/metrics" | grep -E '^unmask_rank_pass_seconds_total' > "$work/body" || true
        [ "$(grep -cv ' 0$' "$work/body")" != 2 ] || break
        sleep 0.05
    done
    cat "$work/body"
    [ "$(grep -cE ',worker="0",rank="[01]"} [0-9.e-]+$' "$work/body")" = 2 ]
    not grep -q ' 0$' "$work/body"
    stop_server
    followers_end
    opened
}

bench_engine_has_ranks_in_processes() {
    new_port
    try bench engine --shape sdar-1.7b --layers 1 --nnodes 2 --rank 1 --master-port "$port" --distributed-timeout-seconds 0.2
    [ "$rc" = 3 ]
    grep -q "rank 1 could not join rank 0 at 127.0.0.1:$port" "$work/err"
}

claims_all
