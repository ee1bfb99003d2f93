#!/bin/bash
# Runs the tests of a bundle (make cuda-bundle) on an NVIDIA GPU: run.sh [--host] [--time] [--sanitize] [--ranks N]
#
# First the parity program compares all operations with the reference. Then the tests in the file `list` run on the device.
# The last line is "N of N programs passed". --time also measures the operations. --host needs no GPU: it runs the tests
# on the CPU and lists the cases of the parity program. --sanitize runs the cases of small shapes under the tools of
# compute-sanitizer instead, one after the other. UM_TEST_DEVICE=cuda:1 chooses another device for the tests.
# --ranks lets N GPUs compute each model together in the tests of the engine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
host= time= sanitize= ranks=1
while [ $# -gt 0 ]; do
    case $1 in
    --host) host=1 ;;
    --time) time=--time ;;
    --sanitize) sanitize=1 ;;
    --ranks) ranks=${2:?--ranks needs a number} && shift ;;
    *) echo "usage: run.sh [--host] [--time] [--sanitize] [--ranks N]" >&2 && exit 2 ;;
    esac
    shift
done
export UM_TEST_RANKS=$ranks
passed=0 all=0

# step NAME COMMAND...: counts a program, and prints its time.
step() {
    local name=$1 start=$SECONDS
    shift
    all=$((all + 1))
    if "$@"; then
        passed=$((passed + 1))
        echo "== ok $name: $((SECONDS - start)) s"
    else
        echo "== FAILED $name: exit status $?"
    fi
}

# The tools slow kernels down up to a thousandfold, so the cases of real shapes are left out.
small=()
for word in 12288 24576 126464 4096x 8192x4096 32x4096 " x 544" " x 8192" layer "of 8B" 2048 "4100 tokens" \
    "1024 tokens" "stream qkv" 40000 "8192 keys" "head of"; do
    small+=(--skip "$word")
done
# sanitize TOOL OPTION... -- ARGUMENT...: runs the parity program under a tool.
sanitize() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    step "$name" compute-sanitizer --tool "$name" --error-exitcode 9 "${options[@]}" bin/check "$@" "${small[@]}"
}

# racecheck takes minutes, so parts of the cases run side by side: those whose name has a word and none of the words
# before, and the rest. It fails in kernels of cuBLASLt, which products use.
check_races() {
    local words=("2100 keys" "attention fp32" "d 128" "attention bf16, 4" "attention bf16" select moe)
    local word jobs=() rest=() log result=0
    log=$(mktemp -d)
    race() {
        local name=$1
        shift
        compute-sanitizer --tool racecheck --error-exitcode 9 bin/check "$@" --skip product "${small[@]}" > "$log/$name" 2>&1 &
        jobs+=($!)
    }
    for word in "${words[@]}"; do
        race "$word" --only "$word" "${rest[@]}"
        rest+=(--skip "$word")
    done
    race rest "${rest[@]}"
    for word in "${jobs[@]}"; do wait "$word" || result=$?; done
    cat "$log"/*
    rm -r "$log"
    return "$result"
}

# Toolkits install cuBLASLt and the sanitizer here without telling the system.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-/usr/local/cuda/lib64} PATH=$PATH:/usr/local/cuda/bin
if [ "$sanitize" ]; then
    sanitize memcheck --
    step racecheck check_races
    sanitize initcheck --check-api-memory-access no -- --unset
    echo "$passed of $all tools found nothing"
    [ "$passed" = "$all" ] && exit
    exit 1
fi

[ -d build/data ] || tar -xJf data.tar.xz
if [ "$host" ]; then
    export UM_TEST_DEVICE=cpu
    step parity bin/check --list
else
    export UM_TEST_DEVICE=${UM_TEST_DEVICE:-cuda}
    step parity bin/check $time
fi
while read -r test; do step "$test" "bin/${test}_test"; done < list
step answer bin/unmask run --model build/data/golden/models/sdar --device "$UM_TEST_DEVICE" \
    --tensor-parallel-size "$ranks" --max-tokens 12 t5 t6 t7
echo "$passed of $all programs passed on $UM_TEST_DEVICE in $ranks ranks"
[ "$passed" = "$all" ]
