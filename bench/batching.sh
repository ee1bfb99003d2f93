#!/bin/bash
# Measures the gain of continuous batching: 16 requests at once, compared with a warm engine that runs them one by one.
#
#   bench/batching.sh [--runs N] [option of unmask bench]...
#
# Prints a line for each block length: tokens/s one by one and for 16 at once, as median [least..most] of N runs (5),
# their ratio, the time per fed token in both cases, and the share of the step time outside the forward pass. Then
# prints the profile of 16 at once. The prefix cache is off, because runs repeat their prompts. Batching is faster
# because a step reads the weights once for all its rows. The gain is large with small blocks, and small if the rows of
# one request already keep the cores busy.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
UNMASK=${UNMASK:-build/unmask}
for name in $(compgen -e UNMASK_); do unset "$name"; done
runs=5
if [ "${1:-}" = --runs ]; then
    runs=${2:?} && shift 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

measure() {
    "$UNMASK" bench --model models/tiny-block --requests 16 --runs "$runs" --disable-prefix-caching --quiet "$@"
}

# value KEY BATCH: prints a number in the report of a batch size.
value() { grep -o "{\"batch\":$2,.*" "$work/run" | grep -o "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2; }
# three KEY BATCH: prints median, least and most.
three() {
    grep -o "{\"batch\":$2,.*" "$work/run" | grep -o "\"$1\":{[^}]*}" | head -n 1 | grep -o '[0-9.]*[0-9]' | xargs
}

measure --batch 1 --json "$@" > "$work/run"
text() { grep -o "\"$1\":\"[^\"]*\"" "$work/run" | head -n 1 | cut -d'"' -f4; }
threads=$(grep -o '"threads":[0-9]*' "$work/run" | cut -d: -f2)
echo "$(text cpu), $(text isa), $threads threads; commit $(text commit); median [least..most] of $runs runs"
printf '%5s %30s %30s %6s %12s %12s %9s\n' block "one by one, tokens/s" "16 at once, tokens/s" ratio "us/row, one" \
    "us/row, 16" overhead
for block in 4 8 16 32; do
    measure --batch 1,16 --block-size "$block" --json "$@" > "$work/run"
    read -r one one_least one_most < <(three tokens_per_second 1)
    read -r all all_least all_most < <(three tokens_per_second 16)
    awk -v b="$block" -v one="$one" -v all="$all" -v r1="$(three us_per_row 1)" -v r16="$(three us_per_row 16)" \
        -v s1="$one_least..$one_most" -v s16="$all_least..$all_most" -v o="$(value overhead 16)" 'BEGIN {
            split(s1, a, /[.][.]/); split(s16, c, /[.][.]/)
            printf "%5d %30s %30s %6.2f %12.1f %12.1f %7.2f %%\n", b,
                sprintf("%.0f [%.0f..%.0f]", one, a[1], a[2]), sprintf("%.0f [%.0f..%.0f]", all, c[1], c[2]),
                all / one, r1 + 0, r16 + 0, 100 * o }'
done

echo
echo "The profile of 16 at once, blocks of the model's own length:"
measure --batch 16 --profile "$work/profile.json" "$@" > "$work/run"
awk -F, 'NR > 1 { printf "  %-10s %8d spans %10.4f s %7.2f %%\n", $1, $2, $3, 100 * $5; seconds[$1] = $3 }
    END { printf "plan, build and apply (with output): %.2f %% of the steps\n",
              100 * (seconds["plan"] + seconds["build"] + seconds["apply"]) / seconds["step"] }' "$work/profile.csv"
