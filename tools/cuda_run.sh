#!/bin/bash
# Runs the tests of a bundle (make cuda-bundle) on an NVIDIA GPU:
#   run.sh [--host] [--time] [--sanitize] [--ranks N [--processes]] [PROGRAM...]
#
# First the parity program compares all operations with the reference. Then the tests in the file `list` run on the device.
# The last line is "N of N programs passed". --time also measures the operations. --host needs no GPU: it runs the tests
# on the CPU and lists the cases of the parity program. --sanitize runs the cases of small shapes under the tools of
# compute-sanitizer instead, one after the other. UM_TEST_DEVICE=cuda:1 chooses another device for the tests.
# --ranks lets N GPUs compute each model together in the tests of the engine. With --processes each of them belongs to a
# process of its own, and one of the processes is killed while it computes. A PROGRAM, such as parity, engine/schedule,
# answer, lost/killed or racecheck, runs alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
host= time= sanitize= ranks=1 processes= chosen=()
while [ $# -gt 0 ]; do
    case $1 in
    --host) host=1 ;;
    --time) time=1 ;;
    --sanitize) sanitize=1 ;;
    --ranks) ranks=${2:?--ranks needs a number} && shift ;;
    --processes) processes=1 ;;
    -*) echo "usage: run.sh [--host] [--time] [--sanitize] [--ranks N [--processes]] [PROGRAM...]" >&2 && exit 2 ;;
    *) chosen+=("$1") ;;
    esac
    shift
done
[ ! "$processes" ] || [ "$ranks" -gt 1 ] || { echo "--processes needs --ranks N, found $ranks" >&2 && exit 2; }
export UM_TEST_RANKS=$ranks
passed=0 all=0 known=()

# is_among WORD LIST...
is_among() {
    local word=$1 one
    shift
    for one in "$@"; do [ "$one" != "$word" ] || return 0; done
    return 1
}

# step NAME COMMAND...: runs and counts a program, and prints its time. Where programs are chosen, others don't run.
step() {
    local name=$1 start=$SECONDS
    known+=("$name")
    shift
    [ ${#chosen[@]} = 0 ] || is_among "$name" "${chosen[@]}" || return 0
    all=$((all + 1))
    if "$@"; then
        passed=$((passed + 1))
        echo "== ok $name: $((SECONDS - start)) s"
    else
        echo "== FAILED $name: exit status $?"
    fi
}

# conclude WORDS: prints how many programs passed, with the words. Fails if one did not, or if a chosen one does not exist.
conclude() {
    local name result=0
    for name in "${chosen[@]}"; do
        is_among "$name" "${known[@]}" || { echo "no program \"$name\" here; there are: ${known[*]}" && result=1; }
    done
    echo "$passed of $all $1"
    [ "$passed" = "$all" ] && return "$result"
}

# The tools slow kernels down up to a thousandfold, so the cases of real shapes are left out.
small=()
for word in 12288 24576 126464 4096x 8192x4096 32x4096 " x 544" " x 8192" layer "of 8B" 2048 "4100 tokens" \
    "1024 tokens" "stream qkv" 40000 "8192 keys" "head of" 24000 32768 8200x 1000x576 6144x1024 "fp8 error"; do
    small+=(--skip "$word")
done
visible_gpus() {
    if [ "${CUDA_VISIBLE_DEVICES-}" ]; then tr , '\n' <<< "$CUDA_VISIBLE_DEVICES"
    else nvidia-smi --query-gpu=index --format=csv,noheader 2> /dev/null || true
    fi
}
# in_parts NAME COMMAND...: runs the command with --part 0/N to N-1/N at the same time, and prints what they wrote to the
# files log/NAME.I. Most of the time goes into the expected results, which the host computes. The parts take turns in
# which GPU is the first, on which all cases run that need only one.
in_parts() {
    local name=$1 n most i first gpus order jobs=() result=0
    shift
    mapfile -t gpus < <(visible_gpus)
    n=$(nproc)
    most=$((16 * (${#gpus[@]} > 1 ? ${#gpus[@]} : 1)))
    n=$((n < most ? n : most))
    mkdir -p log
    rm -f "log/$name".*
    for ((i = 0; i < n; i++)); do
        first=$((${#gpus[@]} ? i % ${#gpus[@]} : 0))
        order=("${gpus[@]:first}" "${gpus[@]:0:first}")
        (
            [ ${#gpus[@]} -lt 2 ] || export CUDA_VISIBLE_DEVICES=$(IFS=, && echo "${order[*]}")
            exec "$@" --part "$i/$n"
        ) > "log/$name.$i" 2>&1 &
        jobs+=($!)
    done
    for i in "${jobs[@]}"; do wait "$i" || result=$?; done
    cat "log/$name".*
    return "$result"
}

# sanitize TOOL OPTION... -- ARGUMENT...: runs the parity program under a tool.
sanitize() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    step "$name" in_parts "$name" compute-sanitizer --tool "$name" --error-exitcode 9 "${options[@]}" bin/check "$@" "${small[@]}"
}

# Starts all ranks but 0 as processes, which write to the files rank1, rank2, ...: start_ranks PORT OPTION...
start_ranks() {
    local port=$1 r
    shift
    workers=()
    for ((r = 1; r < ranks; r++)); do
        bin/unmask worker "$@" --device "$(device_of "$r")" --nnodes "$ranks" --rank "$r" --master-port "$port" 2> "rank$r" &
        workers+=($!)
    done
}
device_of() { if [ "$host" ]; then echo cpu; else echo "cuda:$1"; fi; }

# Answers one question.
answer() {
    local model=(--model build/data/golden/models/sdar) result=0
    if [ "$processes" ]; then
        start_ranks 24680 "${model[@]}"
        bin/unmask run "${model[@]}" --device "$(device_of 0)" --nnodes "$ranks" --master-port 24680 --max-tokens 12 t5 t6 t7 || result=$?
        wait "${workers[@]}" || result=$?
        return "$result"
    fi
    bin/unmask run "${model[@]}" --device "$UM_TEST_DEVICE" --tensor-parallel-size "$ranks" --max-tokens 12 t5 t6 t7
}

# lose_rank SIGNAL WORDS: the last rank gets a signal under load. Rank 0 must end with exit status 3 and these words within
# the time that ranks wait for each other, and a few seconds.
lose_rank() {
    local options=(--model build/data/golden/models/sdar --distributed-timeout-seconds 5) code=0 start lost=$((ranks - 1))
    awk 'BEGIN { for (i = 0; i < 20000; i++) printf "{\"prompt_token_ids\": [%d, 7, 9, 30], \"max_tokens\": 64}\n", i % 200 }' > load
    rm -f answers
    start_ranks 24681 "${options[@]}"
    bin/unmask generate "${options[@]}" --device "$(device_of 0)" --nnodes "$ranks" --master-port 24681 --quiet \
        --input load --output answers 2> rank0 &
    local leader=$!
    while kill -0 $leader && [ ! -s answers ]; do sleep 0.05; done
    kill "-$1" "${workers[lost - 1]}"
    start=$SECONDS
    wait $leader || code=$?
    echo "rank 0 ended with exit status $code after $((SECONDS - start)) s: $(head -n 1 rank0)"
    kill -9 "${workers[@]}"
    wait "${workers[@]}" || true
    [ "$code" = 3 ] && [ $((SECONDS - start)) -le 20 ] && grep -q "$2" rank0
}

# Toolkits install cuBLASLt and the sanitizer here without telling the system. NCCL may be a package of Python.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-/usr/local/cuda/lib64} PATH=$PATH:/usr/local/cuda/bin
nccl=$(python3 -c 'import nvidia.nccl as n; print(n.__path__[0])' 2> /dev/null || true)
[ ! -d "$nccl/lib" ] || export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$nccl/lib
if [ "$sanitize" ]; then
    sanitize memcheck --
    # racecheck fails in kernels of cuBLASLt, which these cases use.
    sanitize racecheck -- --skip product --skip "head bf16, 20 rows" --skip "head bf16, 37 rows" --skip "head bf16, 300 rows"
    sanitize initcheck --check-api-memory-access no -- --unset
    conclude "tools found nothing"
    exit
fi

[ -d build/data ] || tar -xJf data.tar.xz
if [ "$host" ]; then
    export UM_TEST_DEVICE=cpu
    step parity bin/check --list
else
    export UM_TEST_DEVICE=${UM_TEST_DEVICE:-cuda}
    if [ "$time" ]; then step parity bin/check --time; else step parity in_parts parity bin/check; fi
fi
tests=$(cat list)
if [ "$processes" ]; then
    export UM_TEST_PROCESSES=1
    # Processes load no adapters while they run, and the messages of rank 0 take memory in steps.
    tests=$(grep -v 'adapters\|pressure' list)
fi
for test in $tests; do step "$test" "bin/${test}_test"; done
step answer answer
if [ "$processes" ]; then
    step lost/killed lose_rank KILL "rank $((ranks - 1)): its process has ended"
    step lost/stopped lose_rank STOP "no answer for 5 s (--distributed-timeout-seconds)"
fi
conclude "programs passed on $UM_TEST_DEVICE in $ranks ranks${processes:+, which are processes}"
