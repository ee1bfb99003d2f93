#!/bin/bash
# Runs the tests of a bundle (make cuda-bundle) on an NVIDIA GPU: run.sh [--host] [--time]
#
# First the parity program compares all operations with the reference. Then the tests in the file `list` run on the device.
# The last line is "N of N programs passed". --time also measures the operations. --host needs no GPU: it runs the tests
# on the CPU and lists the cases of the parity program. UM_TEST_DEVICE=cuda:1 chooses another device.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
host= time=
for arg in "$@"; do
    case $arg in
    --host) host=1 ;;
    --time) time=--time ;;
    *) echo "usage: run.sh [--host] [--time]" >&2 && exit 2 ;;
    esac
done
passed=0 all=0
[ -d build/data ] || tar -xzf data.tar.gz

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

# Toolkits install cuBLASLt here without telling the system.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-/usr/local/cuda/lib64}
if [ "$host" ]; then
    export UM_TEST_DEVICE=cpu
    step parity bin/check --list
else
    export UM_TEST_DEVICE=${UM_TEST_DEVICE:-cuda}
    step parity bin/check $time
fi
while read -r test; do step "$test" "bin/${test}_test"; done < list
step answer bin/unmask run --model build/data/golden/models/sdar --device "$UM_TEST_DEVICE" --max-tokens 12 t5 t6 t7
echo "$passed of $all programs passed on $UM_TEST_DEVICE"
[ "$passed" = "$all" ]
