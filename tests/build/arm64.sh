#!/bin/bash
# The operations work on 64-bit ARM, in qemu: tests/build/arm64.sh [TEST...]
#
# `make check` has compiled tests/ops for 64-bit ARM (make arm64-programs) into BUILD/arm64/static. Emulation is slow,
# so the script runs only some of them: on a Cortex-A53, which lacks dot products of bytes, and on a processor with all
# instructions. Its arguments are further tests for the second one.
source tests/cli/claims.bash
: "${BUILD:=build}" "${ARM64_CC:=aarch64-linux-gnu-gcc}" "${QEMU_ARM64:=qemu-aarch64-static}"
programs=$BUILD/arm64/static
more=("$@")

needs_programs() {
    [ -z "${UM_ARM64_SKIPPED-}" ] || skip "$UM_ARM64_SKIPPED"
    [ -x "$programs/ops_isa_test" ] || skip "$programs is missing; make arm64-programs writes it"
}
# passes CPU TEST...: runs tests on an emulated processor; their output is in $work/TEST.
passes() {
    local cpu=$1 test
    shift
    for test in "$@"; do
        "$QEMU_ARM64" -cpu "$cpu" "$programs/ops_${test}_test" | tee "$work/$test"
    done
}

claims_begin

# Linking the whole program needs the libraries for 64-bit ARM, so it is only compiled.
the_whole_program_compiles() {
    needs_programs
    printf '%s\0' src/*/*.c src/*/*/*.c | grep -zv '^src/\(base\|ops\)/' > "$work/sources" # make has compiled these two
    xargs -0 -n 10 -P "$(nproc)" "$ARM64_CC" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsigned-char -DUM_BUILD \
        -Iinclude -Isrc -I"$BUILD/gen" -fsyntax-only < "$work/sources"
}
dot_products_of_bytes_are_found() {
    needs_programs
    passes max isa
    grep -q 'neon_dot *tested' "$work/isa"
}
a_processor_without_them_uses_neon() {
    needs_programs
    passes cortex-a53 isa quantize
    grep -q 'neon_dot *this processor lacks it' "$work/isa"
    grep -q 'neon *tested' "$work/isa"
}
# Only quantized products use dot products of bytes. The test of their bits runs on both processors.
operations_match_the_reference() {
    needs_programs
    passes cortex-a53 parity embed top expert_route
    passes max embed top expert_route "${more[@]}"
}
# The test prints the hash of products if the best instruction set has a fused multiply-add.
quantized_products_have_the_bits_of_this_machine() {
    needs_programs
    "$BUILD/tests/ops/ops_quantize_test" > "$work/here"
    grep -o 'hash of .*' "$work/here" > "$work/want" || skip "this processor has no fused multiply-add"
    passes max quantize
    grep -o 'hash of .*' "$work/quantize" | diff "$work/want" -
    [ "$(wc -l < "$work/want")" = 2 ]
}

claims_all
