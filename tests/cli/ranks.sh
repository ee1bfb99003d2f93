#!/bin/bash
# Models whose ranks are processes (--nnodes): they answer like ranks that are threads, each launcher's environment says
# their place, and ranks that do not fit together are refused with the reason.
source tests/cli/claims.bash
source tests/cli/ranks.bash
RANDOM=${UM_TEST_SEED:-$$}

printf '{"id": %d, "messages": [{"role": "user", "content": "What is 12 + %d?"}], "temperature": %d, "seed": %d}\n' \
    1 30 0 1 2 4 1 2 3 5 1 3 > "$work/requests.jsonl"
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "{\"id\": %d, \"prompt\": \"%d + 1 =\"}\n", i, i }' > "$work/many.jsonl"
options=(generate --model models/tiny-block --threads 1 --quiet --input "$work/requests.jsonl")
in_processes=(--nnodes 2 --distributed-timeout-seconds 20)
"$UNMASK" "${options[@]}" --tensor-parallel-size 2 --output "$work/threads.jsonl"

# Rank 0 in the background: rank_0 OPTION... Its process is $!, its stderr $work/rank0.
rank_0() {
    "$UNMASK" "${options[@]}" "${in_processes[@]}" --master-port "$port" --output "$work/answers.jsonl" "$@" \
        2> "$work/rank0"
}

# Forgets the answers of the claim before.
new_group() {
    new_port
    rm -f "$work/answers.jsonl" "$work/rank0"
}

# refused_by_0 WORDS OPTION... [-- OPTION...]: a second rank with these options is refused by rank 0, which has those
# behind --. So rank 0 ends, too. Both say why.
refused_by_0() {
    local words=$1 rc=0 of_1=()
    shift
    while [ "${1:---}" != -- ]; do
        of_1+=("$1")
        shift
    done
    new_group
    follow 1 "${of_1[@]}"
    rank_0 "${@:2}" || rc=$?
    cat "$work/rank0"
    [ "$rc" = 2 ]
    grep -q "$words" "$work/rank0"
    rc=0
    wait "${follower[1]}" || rc=$?
    cat "$work/rank1"
    [ "$rc" = 2 ]
    grep -q "rank 0 refuses this rank: .*$words" "$work/rank1"
}

# own_experts RANK: an expert of this rank has a value that is infinite. Only this rank reads the expert.
own_experts() {
    local file=$work/experts/model.safetensors expert=$((15 * $1)) header at rc=0
    rm -rf "$work/experts"
    cp -r build/data/golden/models/llada2 "$work/experts"
    header=$(od -An -tu8 -N8 "$file")
    read -r at < <(head -c $((8 + header)) "$file" |
        grep -aoE "\"model.layers.1.mlp.experts.$expert.down_proj.weight\":\{[^}]*" |
        sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
    printf '\x80\x7f\x80\x7f' | dd of="$file" bs=1 seek=$((8 + header + at)) conv=notrunc status=none
    new_group
    follow 1 --model "$work/experts" --enable-expert-parallel --check-weights error
    rank_0 --model "$work/experts" --enable-expert-parallel --check-weights error || rc=$?
    [ "$rc" != 0 ]
    wait "${follower[1]}" || true
    cat "$work/rank0" "$work/rank1"
    grep -q 'NaN or infinite, the first is model.layers.1.mlp.experts' "$work/rank$1"
    not grep -q 'NaN or infinite, the first is model.layers.1.mlp.experts' "$work/rank$((1 - $1))"
}

claims_begin

processes_answer_like_threads() {
    new_group
    follow 1
    rank_0 --profile "$work/profile.json" --no-quiet
    # The profile names the time of collectives, and the times of all ranks.
    grep -qE '^ *exchange ' "$work/rank0" || grep -qE 'exchange +[0-9]' "$work/rank0"
    grep -qE '^ +0 +[0-9.]+ s +[0-9.]+ s +[0-9.]+ %$' "$work/rank0"
    grep -qE '^ +1 +[0-9.]+ s +[0-9.]+ s +[0-9.]+ %$' "$work/rank0"
    followers_end
    cmp "$work/threads.jsonl" "$work/answers.jsonl"
    grep -q 'rank 1: the group of 2 ranks is complete' "$work/rank1"
}

# All processes have the same command line, as with mpirun and srun.
each_launcher_names_the_place() {
    local -A launcher=(
        [torchrun]='RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d'
        [openmpi]='OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2 MASTER_PORT=%d'
        [mpich]='PMI_RANK=%d PMI_SIZE=2 MASTER_PORT=%d'
        [slurm]='SLURM_PROCID=%d SLURM_NTASKS=2 MASTER_PORT=%d'
        [kubernetes]='LWS_WORKER_INDEX=%d LWS_GROUP_SIZE=2 LWS_LEADER_ADDRESS=localhost MASTER_PORT=%d'
    )
    local name place
    for name in "${!launcher[@]}"; do
        new_group
        for rank in 1 0; do
            # shellcheck disable=SC2059
            printf -v place "${launcher[$name]}" $rank "$port"
            # shellcheck disable=SC2086
            env $place "$UNMASK" "${options[@]}" --nnodes auto --distributed-timeout-seconds 20 \
                --output "$work/answers.jsonl" 2> "$work/$name$rank" &
        done
        wait $! || { cat "$work/${name}0"; return 1; }
        wait
        cmp "$work/threads.jsonl" "$work/answers.jsonl"
    done
}

without_auto_the_environment_does_not_count() {
    rm -f "$work/answers.jsonl"
    RANK=1 WORLD_SIZE=2 MASTER_PORT=nonsense "$UNMASK" "${options[@]}" --tensor-parallel-size 2 --output "$work/answers.jsonl"
    cmp "$work/threads.jsonl" "$work/answers.jsonl"
}

the_missing_rank_is_named() {
    new_group
    not rank_0 --nnodes 4 --tensor-parallel-size 2
    grep -q '4 processes can.t compute 2 ranks' "$work/rank0"
    not rank_0 --distributed-timeout-seconds 0.3
    grep -q "rank 1 of 2 did not join at 127.0.0.1:$port within 0.3 s (--distributed-timeout-seconds)" "$work/rank0"
    follow 1 --distributed-timeout-seconds 0.3
    not wait "${follower[1]}"
    grep -q "rank 1 could not join rank 0 at 127.0.0.1:$port within 0.3 s (--distributed-timeout-seconds): Connection refused" "$work/rank1"
}

ranks_of_other_types_are_refused() {
    refused_by_0 'the type of weights and products of rank 1 is float32, as stored, but that of rank 0 is' --dtype float32
    refused_by_0 'the type of weights and products of rank 1 is bfloat16 with q8 weights, but' --quantization q8
}

ranks_of_other_models_are_refused() {
    cp -r models/tiny-block "$work/other"
    # One byte of the first tensor.
    python3 - "$work/other/model.safetensors" << 'end'
import struct, sys
with open(sys.argv[1], "r+b") as f:
    f.seek(8 + struct.unpack("<Q", f.read(8))[0])
    byte = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([byte[0] ^ 1]))
end
    refused_by_0 'the model.s checksum of rank 1 is' --model "$work/other"
    refused_by_0 'the device of rank 1 is ref (.*), but that of rank 0 is cpu' --device ref
}

whole_experts_are_for_all_ranks() {
    local golden=build/data/golden/models
    refused_by_0 'the division of experts of rank 1 is by width, but that of rank 0 is by number' \
        --model "$golden/llada2" -- --model "$golden/llada2" --enable-expert-parallel
}

a_rank_reads_only_its_experts() {
    own_experts 0
    own_experts 1
}

groups_of_other_sizes_are_refused() {
    refused_by_0 'rank 1 was started for 6 ranks (--nnodes), but rank 0 for 2' --nnodes 6
}

a_rank_is_there_once() {
    new_group
    rank_0 --nnodes 6 &
    local leader=$! first second rc=0 n
    # Of two processes with the same number one is refused, and the group goes on waiting.
    follow 1 --nnodes 6
    first=${follower[1]}
    mv "$work/rank1" "$work/first"
    follow 1 --nnodes 6
    second=${follower[1]}
    wait -n $first $second || rc=$?
    cat "$work/first" "$work/rank1"
    [ "$rc" = 2 ]
    cat "$work/first" "$work/rank1" | grep -q 'another process is rank 1 already; each needs its own --rank'
    # The place of a rank that has ended is free.
    kill -9 $first $second 2> /dev/null || true
    wait_for 'rank 1 has ended before the group was complete' "$work/rank0"
    for n in 1 2 3 4 5; do follow $n --nnodes 6; done
    wait $leader
    followers_end
    diff <(jq -c .text "$work/threads.jsonl") <(jq -c .text "$work/answers.jsonl")
}

strangers_are_ignored() {
    new_group
    rank_0 &
    local leader=$!
    until (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do sleep 0.05; done
    curl -sS -m 5 "http://127.0.0.1:$port/" || true
    wait_for 'something connected that is not a rank of this program' "$work/rank0"
    follow 1
    wait $leader
    followers_end
}

a_port_in_use_is_an_error() {
    new_group
    rank_0 &
    local leader=$!
    until (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do sleep 0.05; done
    try "${options[@]}" "${in_processes[@]}" --master-port "$port" --output "$work/second.jsonl"
    kill -9 $leader
    [ "$rc" = 3 ]
    grep -q "master_port: rank 0 can't listen at 127.0.0.1:$port: Address already in use" "$work/err"
}

places_are_checked() {
    try worker --model models/tiny-block --nnodes 2 --rank 2
    [ "$rc" = 2 ]
    grep -q 'rank: rank 2 is outside 0..1, the ranks of 2 processes (--nnodes)' "$work/err"
    try worker --model models/tiny-block --rank 1
    [ "$rc" = 2 ]
    grep -q 'rank: rank 1 is outside 0..0' "$work/err"
    RANK=1 WORLD_SIZE=many try worker --model models/tiny-block --nnodes auto
    grep -q 'nnodes: the environment variable WORLD_SIZE is "many", expected 1..16' "$work/err"
    try "${options[@]}" --nnodes 2 --data-parallel-size 2 --output "$work/none.jsonl"
    grep -q 'data_parallel_size: ranks in 2 processes (--nnodes) have one engine, found 2' "$work/err"
    try "${options[@]}" --nnodes 2 --max-loras 1 --output "$work/none.jsonl"
    grep -q 'max_loras: ranks in 2 processes (--nnodes) load no adapters while they run' "$work/err"
    try "${options[@]}" --nnodes 2 --master-addr nowhere.invalid --output "$work/none.jsonl"
    [ "$rc" = 3 ]
    grep -q 'master_addr: can.t resolve "nowhere.invalid"' "$work/err"
}

steps_must_fit_all_ranks() {
    new_group
    follow 1 --max-num-batched-tokens 64
    not rank_0
    grep -q 'rank 1: it was started for steps of 64 tokens (--max-num-batched-tokens), but rank 0 for 4096' "$work/rank0"
}

a_killed_rank_ends_the_run() {
    new_group
    follow 1
    rank_0 --input "$work/many.jsonl" &
    local leader=$! rc=0
    until [ -s "$work/answers.jsonl" ]; do kill -0 $leader; sleep 0.02; done
    kill -9 "${follower[1]}"
    wait $leader || rc=$?
    cat "$work/rank0"
    [ "$rc" = 3 ]
    grep -q 'rank 1: its process has ended, or has closed the connection' "$work/rank0"
}

a_rank_that_hangs_ends_the_run() {
    new_group
    follow 1 --distributed-timeout-seconds 5
    rank_0 --input "$work/many.jsonl" --distributed-timeout-seconds 5 &
    local leader=$! rc=0
    until [ -s "$work/answers.jsonl" ]; do kill -0 $leader; sleep 0.02; done
    kill -STOP "${follower[1]}"
    wait $leader || rc=$?
    kill -KILL "${follower[1]}"
    cat "$work/rank0"
    [ "$rc" = 3 ]
    grep -q 'rank 1: no answer for 5 s (--distributed-timeout-seconds)' "$work/rank0"
}

claims_all
