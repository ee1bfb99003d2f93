#!/bin/bash
# The script of a bundle (tools/cuda_run.sh) runs, chooses and counts programs. Here scripts stand in for the programs.
source tests/cli/claims.bash
set -o pipefail
unset CUDA_VISIBLE_DEVICES UM_TEST_DEVICE

stand_in() {
    mkdir -p "$(dirname "$work/$1")"
    printf '%s\n' '#!/bin/bash' "$2" > "$work/$1"
    chmod +x "$work/$1"
}
# run_bundle ARGUMENT...: sets rc and the output's last line.
run_bundle() {
    rc=0
    PATH=$work/tools:$PATH "$work/run.sh" "$@" > "$work/out" 2>&1 || rc=$?
    last=$(tail -n 1 "$work/out")
    cat "$work/out"
}

claims_begin
cp tools/cuda_run.sh "$work/run.sh"
mkdir -p "$work/build/data"
printf '%s\n' engine/schedule engine/pressure golden/recordings > "$work/list"
stand_in bin/check 'echo "checks $* on ${CUDA_VISIBLE_DEVICES-all}"'
stand_in bin/engine/schedule_test 'echo "schedules in $UM_TEST_RANKS ranks on $UM_TEST_DEVICE"'
stand_in bin/engine/pressure_test 'exit 3'
stand_in bin/golden/recordings_test 'echo replays'
stand_in bin/unmask 'echo answers'
stand_in tools/nvidia-smi 'seq 0 $((${GPUS-1} - 1))'
stand_in tools/nproc 'echo 5'
stand_in tools/compute-sanitizer 'echo "sanitizer $*"; [[ $* != *initcheck* ]]'

a_program_that_fails_is_named_and_counted() {
    run_bundle --host
    [ "$rc" = 1 ]
    [ "$last" = '4 of 5 programs passed on cpu in 1 ranks' ]
    grep -q '^== FAILED engine/pressure: exit status 3$' "$work/out"
    grep -q '^== ok engine/schedule: ' "$work/out"
    grep -q '^answers$' "$work/out"
}
chosen_programs_run_alone() {
    run_bundle --ranks 2 golden/recordings engine/schedule
    [ "$rc" = 0 ]
    [ "$last" = '2 of 2 programs passed on cuda in 2 ranks' ]
    grep -q '^schedules in 2 ranks on cuda$' "$work/out"
    not grep -q 'checks\|answers\|pressure' "$work/out"
}
a_chosen_program_that_does_not_exist_is_refused() {
    run_bundle engine/schedule lost/killed
    [ "$rc" = 1 ]
    grep -q '^no program "lost/killed" here; there are: parity engine/schedule engine/pressure golden/recordings answer$' "$work/out"
    [ "$last" = '1 of 1 programs passed on cuda in 1 ranks' ]
}
the_parity_program_runs_in_parts() {
    run_bundle parity
    [ "$rc" = 0 ]
    grep '^checks' "$work/out" | diff - <(for i in 0 1 2 3 4; do echo "checks --part $i/5 on all"; done)
}
parts_take_turns_in_which_gpu_is_first() {
    GPUS=3 run_bundle parity
    grep '^checks' "$work/out" | sed 's/.* on //' | xargs | diff - <(echo '0,1,2 1,2,0 2,0,1 0,1,2 1,2,0')
    CUDA_VISIBLE_DEVICES=7,5 run_bundle parity
    grep '^checks' "$work/out" | sed 's/.* on //' | xargs | diff - <(echo '7,5 5,7 7,5 5,7 7,5')
    CUDA_VISIBLE_DEVICES=4 run_bundle parity
    grep '^checks' "$work/out" | sed 's/.* on //' | xargs | diff - <(echo '4 4 4 4 4')
}
tools_that_find_something_are_counted() {
    run_bundle --sanitize
    [ "$rc" = 1 ]
    [ "$last" = '2 of 3 tools found nothing' ]
    run_bundle --sanitize racecheck
    [ "$rc" = 0 ]
    [ "$last" = '1 of 1 tools found nothing' ]
    not grep -q 'memcheck\|initcheck' "$work/out"
}
wrong_options_are_refused() {
    run_bundle --rank 2
    [ "$rc" = 2 ]
    [[ $last == 'usage: run.sh '* ]]
    run_bundle --processes
    [ "$rc" = 2 ]
    [ "$last" = '--processes needs --ranks N, found 1' ]
}

claims_all
