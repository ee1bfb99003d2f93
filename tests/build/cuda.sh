#!/bin/bash
# The CUDA code compiles, and does what needs no GPU. `make check` has compiled it (make cuda-compile) into BUILD/cuda.
source tests/cli/claims.bash
: "${BUILD:=build}"
compiled=$BUILD/cuda

needs_compiled_code() {
    [ -z "${UM_CUDA_SKIPPED-}" ] || skip "$UM_CUDA_SKIPPED"
    [ -f "$compiled/libunmask-cuda.so" ] || skip "$compiled is missing; make cuda-compile writes it"
}

claims_begin

all_cuda_code_is_compiled() {
    needs_compiled_code
    for source in src/cuda/*.cu tests/cuda/*.cu; do
        if [ "$source" -nt "$compiled/$source.o" ]; then
            echo "$source is not compiled"
            return 1
        fi
    done
}
the_plugin_exports_one_function() {
    needs_compiled_code
    nm -D --defined-only "$compiled/libunmask-cuda.so" | awk '$3 ~ /um_/ { print $3 }' > "$work/exported"
    echo um_plugin_get | diff - "$work/exported"
}
the_program_opens_the_plugin_and_names_the_missing_gpu() {
    needs_compiled_code
    cp "$UNMASK" "$compiled/libunmask-cuda.so" "$work"
    UNMASK=$work/unmask CUDA_VISIBLE_DEVICES='' try run --model models/tiny-block --device cuda x
    [ "$rc" = 3 ]
    grep -qE 'the NVIDIA driver is missing|there is no NVIDIA GPU' "$work/err"
    [ "$(wc -l < "$work/err")" = 1 ]
}
the_parity_program_lists_its_cases() {
    needs_compiled_code
    "$compiled/tests/cuda/check" --list > "$work/out"
    [ "$(wc -l < "$work/out")" -gt 100 ]
    sort "$work/out" | uniq -d > "$work/twice"
    diff /dev/null "$work/twice"
}
intermediate_code_without_waits_is_refused() {
    ! make -n CUDA=1 CUDA_PTX='80 90' > "$work/out" 2> "$work/err" || return 1
    grep -q 'CUDA_PTX=80 90: expected 90 or newer' "$work/err"
    make -n CUDA=1 CUDA_PTX=120 > "$work/out"
}

claims_all
