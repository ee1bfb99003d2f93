#!/bin/bash
# Measures what each choice of decoding costs: accuracy, tokens per forward, tokens per second and stored keys of the
# bundled models, for every strategy and sampler and its main parameter.
#
#   bench/tradeoffs.sh [--quick | --measure | --draw] [--runs N] [--questions N] [--out DIR]
#
# Writes table.{md,csv,json} and plots as SVG (gnuplot) to DIR (build/tradeoffs). --measure makes no plots. --draw makes
# tables and plots from the rows of an earlier run in DIR. --quick measures four points and makes no plots. Accuracy is
# the same in every run. Speeds are the median of N runs (3), with least and most. --questions is the number for the
# block model. The whole-sequence model is much slower and gets half as many. Strategies that neither bundled model can
# run use small models of random weights, which have no accuracy. docs/tradeoffs.md explains the result.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
UNMASK=${UNMASK:-build/unmask}
for name in $(compgen -e UNMASK_); do unset "$name"; done
runs=3 questions=100 out=build/tradeoffs mode=all

usage() {
    echo "usage: bench/tradeoffs.sh [--quick | --measure | --draw] [--runs N] [--questions N] [--out DIR]" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --quick) mode=quick runs=1 questions=12 ;;
    --measure) mode=measure ;;
    --draw) mode=draw ;;
    --runs) runs=${2:?} && shift ;;
    --questions) questions=${2:?} && shift ;;
    --out) out=${2:?} && shift ;;
    *) usage ;;
    esac
    shift
done
[[ $runs =~ ^[1-9][0-9]*$ && $questions =~ ^[1-9][0-9]*$ ]] || usage
whole_questions=$(((questions + 1) / 2))

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rows=$out/rows.tsv

# ---- Measuring --------------------------------------------------------------------------------------------------- #

columns=(part model strategy sampler parameter value questions accuracy tokens_per_forward tokens_per_second
    tokens_per_second_min tokens_per_second_max kv_bytes runs)

# number KEY FILE: prints the first number of a key. In a report the total comes before the numbers of the kinds.
number() { grep -o "\"$1\":[0-9.e+-]*" "$2" | head -n 1 | cut -d: -f2; }
text() { grep -o "\"$1\":\"[^\"]*\"" "$2" | head -n 1 | cut -d'"' -f4; }

# All tokens divided by all forward passes. So a first pass that stores the prompt and writes tokens counts.
per_forward() {
    awk -v tokens="$(number tokens "$work/run")" -v forwards="$(number forwards "$work/run")" \
        'BEGIN { print tokens / forwards }'
}

# Prints the median, least and greatest of numbers, one per line of the input.
spread() {
    sort -g | awk '{ v[NR] = $1 } END { m = int((NR + 1) / 2); print (v[m] + v[NR + 1 - m]) / 2, v[1], v[NR] }'
}

# row PART MODEL SAMPLER PARAMETER VALUE QUESTIONS ACCURACY TOKENS_PER_FORWARD KV_BYTES: adds a row. The strategy comes
# from the report in $work/run, the speeds are the lines of $work/speeds.
row() {
    local median least most
    read -r median least most < <(spread < "$work/speeds")
    printf '%s\t' "$1" "$2" "$(text decoding_strategy "$work/run")" "$3" "$4" "$5" "$6" "$7" "$8" "$median" "$least" \
        "$most" >> "$rows"
    printf '%s\t%s\n' "$9" "$runs" >> "$rows"
    tail -n 1 "$rows" >&2
}

# ask PART MODEL N SAMPLER PARAMETER VALUE OPTION...: asks a bundled model N questions.
ask() {
    local part=$1 model=$2 n=$3 sampler=$4 parameter=$5 value=$6
    shift 6
    : > "$work/speeds"
    for _ in $(seq "$runs"); do
        "$UNMASK" eval --model "models/$model" --limit "$n" --batch 16 --seed 1 --json --quiet "$@" > "$work/run"
        number tokens_per_second "$work/run" >> "$work/speeds"
    done
    row "$part" "$model" "$sampler" "$parameter" "$value" "$n" "$(number accuracy "$work/run")" \
        "$(per_forward)" "$(number kv_bytes_used_most "$work/run")"
}

# time_random PART MODEL SAMPLER PARAMETER VALUE OPTION...: gives random prompts to a model of random weights.
time_random() {
    local part=$1 model=$2 sampler=$3 parameter=$4 value=$5
    shift 5
    "$UNMASK" bench --model "build/data/golden/models/$model" --batch 8 --requests 16 --max-tokens 64 --runs "$runs" \
        --seed 1 --json --quiet "$@" > "$work/run"
    grep -o '"tokens_per_second":{[^}]*}' "$work/run" | grep -o '[0-9.]*[0-9]' > "$work/speeds"
    row "$part" "$model" "$sampler" "$parameter" "$value" "" "" "$(per_forward)" ""
}

# block PART SAMPLER PARAMETER VALUE OPTION...
block() { ask "$1" tiny-block "$questions" "${@:2}" --decoding-strategy multi_bd; }
# whole PART STRATEGY SAMPLER PARAMETER VALUE OPTION...
whole() {
    ask "$1" tiny-full "$whole_questions" "${@:3}" --decoding-strategy "$2" --max-tokens 96 \
        --block-size 32
}

# ---- The measured choices ------------------------------------------------------------------------------------------ #

block_thresholds() {
    local v
    for v in "$@"; do block threshold confidence accept_threshold "$v" --accept-threshold "$v"; done
}

# block_sampler SAMPLER PARAMETER VALUE...: measures several values of a sampler's option.
block_sampler() {
    local sampler=$1 parameter=$2 v
    shift 2
    for v in "$@"; do block sampler "$sampler" "$parameter" "$v" --sampler "$sampler" "--${parameter//_/-}" "$v"; done
}

block_choices() {
    local v
    block_thresholds 0.5 0.6 0.7 0.8 0.9 0.95 0.99
    for v in 1 2 3 4; do block buffer confidence buffer_size "$v" --buffer-size "$v"; done
    block_sampler dynamic accept_threshold 0.7 0.9 0.95
    block_sampler static denoising_steps 4 8 16 32
    block_sampler sequential denoising_steps 8 16 32
    block_sampler sdar_dynamic denoising_steps 4 8 16
    block_sampler factor factor 0.25 0.5 1 2
    block_sampler hierarchy low_threshold 0.2 0.4 0.6 0.8
    block_sampler credit credit_alpha 0 0.35 0.7 1.4
    block_sampler entropy_bound entropy_bound 0.05 0.15 0.5 1
    block_sampler entropy_threshold entropy_threshold 0.1 0.45 1
    block_sampler edit edit_threshold 0 0.5 0.9
    for v in low_confidence random; do block sampler "$v" "" "" --sampler "$v"; done
    for v in off 0.3 0.5; do
        block remask confidence remask_threshold "$v" --remask-threshold "$v" --accept-threshold 0.7
    done
}

whole_choices() {
    local s v k h
    for s in low_confidence random origin maskgit_plus topk_margin entropy linear_entropy; do
        for v in 24 48; do whole steps full "$s" steps "$v" --sampler "$s" --steps "$v"; done
    done
    whole steps full low_confidence steps 96 --steps 96
    for s in dynamic factor; do whole steps full "$s" "" "" --sampler "$s"; done
    for k in prefix_cache dual_cache; do
        for v in 24 48; do whole cache "$k" low_confidence steps "$v" --steps "$v"; done
        whole cache "$k" factor "" "" --sampler factor
    done
    for v in 0.7 0.9; do whole d2f d2f confidence accept_threshold "$v" --accept-threshold "$v"; done
    for h in "" --head-select; do
        for k in 0 1 2 4; do sparse "$k" "$h" 0.3 0.5 0.7 1.0; done
    done
}

# sparse DELAY_STEP HEADS RATIO...: pages have one position, so that the stored bytes are not rounded to pages.
sparse() {
    local delay=$1 heads=$2 v
    shift 2
    for v in "$@"; do
        whole sparse sparse low_confidence "delay_step $delay${heads:+ head_select}, retention_ratio" "$v" \
            --steps 48 --page-size 1 --delay-step "$delay" --retention-ratio "$v" $heads
    done
}
dense() { whole dense dual_cache low_confidence steps 48 --steps 48 --page-size 1; }

random_models() {
    local v
    for v in 0.05 0.9; do
        time_random dmax llada2 dmax accept_threshold "$v" --decoding-strategy dmax --accept-threshold "$v"
    done
    for v in true false; do
        time_random fast_dllm_v2 fast_dllm_v2 confidence block_cache "$v" --decoding-strategy fast_dllm_v2 \
            --block-cache="$v"
    done
}

# ---- Tables ------------------------------------------------------------------------------------------------------ #

conditions() {
    cpu=$(text cpu "$out/machine.json") cores=$(number cores "$out/machine.json") isa=$(text isa "$out/machine.json")
    commit=$(text commit "$out/machine.json") threads=$(number threads "$out/machine.json")
    dense_bytes=$(select_rows '$1 == "dense"' '$13')
}

write_csv() {
    (IFS=, && echo "${columns[*]}")
    # A name may contain a comma.
    awk -F'\t' '{ for (i = 1; i <= NF; i++) printf "%s%s", index($i, ",") ? "\"" $i "\"" : $i, i < NF ? "," : "\n" }' \
        "$rows"
}

write_json() {
    printf '{"cpu":"%s","cores":%s,"threads":%s,"isa":"%s","commit":"%s",\n"dense_kv_bytes":%s,"rows":[\n' \
        "$cpu" "$cores" "$threads" "$isa" "$commit" "$dense_bytes"
    awk -F'\t' -v names="${columns[*]}" '
        BEGIN { n = split(names, name, " ") }
        {
            printf("%s{", NR > 1 ? ",\n" : "")
            for (i = 1; i <= n; i++)
                printf("%s\"%s\":%s", i > 1 ? "," : "", name[i], i <= 6 ? "\"" $i "\"" : $i == "" ? "null" : $i)
            printf "}"
        }
        END { print "\n]}" }' "$rows"
}

write_md() {
    echo "$cpu, $cores cores, $threads threads, $isa; commit $commit."
    echo "Tokens/s: median [least..most] of $(select_rows "NR == 1" "\$14") run(s), 16 requests at once."
    awk -F'\t' -v dense="$dense_bytes" '
        $1 != part {
            part = $1
            stored = part == "dense" || part == "sparse"
            print "\n### " part "\n"
            print "| model | strategy | sampler | parameter | | accuracy | tokens/forward | tokens/s |" \
                (stored ? " stored keys, bytes | of dense |" : "")
            print "| --- | --- | --- | --- | --- | --- | --- | --- |" (stored ? " --- | --- |" : "")
        }
        {
            accuracy = $8 == "" ? "" : sprintf("%.1f %%", 100 * $8)
            printf("| %s | %s | %s | %s | %s | %s | %.2f | %.0f [%.0f..%.0f] |", $2, $3, $4, $5, $6, accuracy, $9, $10,
                   $11, $12)
            if (stored) printf " %d | %.2f |", $13, $13 / dense
            print ""
        }' "$rows"
}

# select_rows AWK-CONDITION AWK-COLUMNS: prints columns of the rows that meet the condition.
select_rows() { awk -F'\t' "$1 { print $2 }" "$rows"; }

source bench/tradeoffs_plots.bash

# ---- The run ----------------------------------------------------------------------------------------------------- #

measure() {
    : > "$rows"
    "$UNMASK" bench --model models/tiny-block --batch 1 --requests 1 --runs 1 --json --quiet > "$out/machine.json"
    if [ "$mode" = quick ]; then
        block_thresholds 0.5 0.95
        dense
        sparse 1 "" 0.5
        return
    fi
    block_choices
    dense
    whole_choices
    random_models
}

[ "$mode" = draw ] || measure
conditions
write_csv > "$out/table.csv"
write_json > "$out/table.json"
write_md > "$out/table.md"
case $mode in all | draw) plots ;; esac
echo "written to $out: $(cd "$out" && ls | xargs)"
