#!/bin/bash
# Fuzzes one target: tools/fuzz.sh BUILD NAME SECONDS SEED
#
# Runs with the same SEED try the same inputs in the same order, as far as their time allows. SEED 0 takes a new seed.
# It starts from the inputs in tests/fuzz/corpus/NAME, and collects new ones in BUILD/corpus/NAME. It keeps a failing
# input as BUILD/NAME-*.
set -euo pipefail
build=$1 name=$2 seconds=$3 seed=$4
seeds=tests/fuzz/corpus/$name
[ -d "$seeds" ] || { echo "$seeds: the seed corpus of tests/fuzz/${name}_fuzz.c is missing" >&2; exit 1; }
mkdir -p "$build/corpus/$name"
log=$build/$name.log
if "$build/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" -seed="$seed" -timeout=20 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$build/$name-" "$build/corpus/$name" "$seeds" > "$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz $name: $runs inputs in $seconds s, no failure"
else
    grep -v '^#[0-9]' "$log" | tail -n 60 >&2
    echo "fuzz $name: FAILED, see $log" >&2
    exit 1
fi
