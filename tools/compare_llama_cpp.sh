#!/bin/bash
# Compares unmask with llama.cpp on the processor: the same GGUF file, the same number of passes and of tokens.
#
#   tools/compare_llama_cpp.sh [--shape NAME] [--layers N,N] [--types BF16,Q8_0,Q4_0] [--length N] [--answer N]
#                              [--steps N] [--runs N] [--threads N] [--dir DIR] [--draw]
#
# Builds llama.cpp from the source package of llama-cpp-python (PyPI) in DIR (build/compare), which takes minutes, with the
# compiler flags of the environment variable LLAMA_FLAGS, as in LLAMA_FLAGS='-mno-amx-tile -mno-amx-int8'. Writes
# checkpoints of random weights in the shape of a released model (build/tools/checkpoint --list names them), cut after
# its first layers, and converts them to GGUF files, which both programs read. Prints a table in Markdown.
#
# A sequence of --length tokens ends with an answer of --answer masks, which --steps passes fill. There are three
# measurements, which take turns, --runs times each:
#   llama.cpp            the loop of its diffusion example (tools/compare/diffusion.cpp); every pass computes all
#                        positions and their logits
#   unmask, full         every pass computes all positions, and the logits of the masks
#   unmask, dual_cache   a pass computes a block of 32, against the stored keys of the other positions
# Both programs choose by confidence with temperature 0. The time of a pass is that of all passes, with sampling, divided
# by their number. Loading is not counted. llama.cpp prints the sampling that is a part of it, and the table has it in a
# column of its own. With two numbers of layers, the last rows have the difference per layer, without embedding and head,
# whose share is too large in a model of few layers.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
for name in $(compgen -e UNMASK_); do unset "$name"; done
shape=llada_8b layers=1,3 types=BF16,Q8_0,Q4_0 length=128 answer=96 steps=24 runs=5 threads=$(nproc)
dir=build/compare draw=
UNMASK=${UNMASK:-build/unmask} CHECKPOINT=${CHECKPOINT:-build/tools/checkpoint}

usage() {
    sed -n 's/^# \{0,1\}//; 2,6p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --shape | --layers | --types | --length | --answer | --steps | --runs | --threads | --dir)
        [ $# -gt 1 ] || usage
        declare "${1#--}=$2"
        shift
        ;;
    --draw) draw=1 ;;
    *) usage ;;
    esac
    shift
done
for n in "$length" "$answer" "$steps" "$runs" "$threads"; do [[ $n =~ ^[1-9][0-9]*$ ]] || usage; done
[[ $layers =~ ^[1-9][0-9]*(,[1-9][0-9]*)?$ ]] || usage
((answer < length && answer % 32 == 0 && steps % (answer / 32) == 0)) || {
    echo "compare_llama_cpp.sh: expected an answer of whole blocks of 32, shorter than the sequence, and as many steps" \
        "for each block; found length $length, answer $answer, steps $steps" >&2
    exit 2
}
mkdir -p "$dir"
rows=$dir/rows.tsv
IFS=, read -ra layer_list <<< "$layers"
IFS=, read -ra type_list <<< "$types"

# ---- llama.cpp --------------------------------------------------------------------------------------------------- #

# Prints the folder of llama.cpp's sources. Gets them when they are missing.
sources() {
    if ! compgen -G "$dir/llama_cpp_python-*/vendor/llama.cpp/CMakeLists.txt" > /dev/null; then
        "$python" -m pip download --quiet --disable-pip-version-check --no-binary llama-cpp-python --no-deps \
            --dest "$dir" llama-cpp-python >&2
        tar -xzf "$dir"/llama_cpp_python-*.tar.gz -C "$dir"
    fi
    compgen -G "$dir/llama_cpp_python-*/vendor/llama.cpp" | head -n 1
}

# Builds the library and tools/compare/diffusion.cpp, with the files of llama.cpp's common library that it needs.
build_llama() {
    local source common
    [ ! -x "$dir/diffusion" ] || return 0
    source=$(sources)
    command -v cmake > /dev/null || "$python" -m pip install --quiet --disable-pip-version-check cmake
    PATH=$PATH:$(dirname "$python") nice cmake -S "$source" -B "$dir/llama" -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF \
        -DLLAMA_OPENSSL=OFF -DCMAKE_C_FLAGS="${LLAMA_FLAGS:-}" -DCMAKE_CXX_FLAGS="${LLAMA_FLAGS:-}" > "$dir/build.log"
    PATH=$PATH:$(dirname "$python") nice cmake --build "$dir/llama" -j 2 --target llama >> "$dir/build.log"
    common=$source/common
    # The linker leaves out the functions that refer to the rest of the common library.
    nice "${CXX:-c++}" -O2 -std=c++17 -DNDEBUG -ffunction-sections -fdata-sections -I "$source/include" -I "$common" \
        -I "$source/ggml/include" -I "$source/examples/diffusion" -I "$source/vendor" -o "$dir/diffusion" \
        tools/compare/diffusion.cpp "$source/examples/diffusion/diffusion.cpp" \
        "$common/common.cpp" "$common/log.cpp" "$common/json.cpp" -Wl,--gc-sections \
        "$dir/llama/src/libllama.a" "$dir"/llama/ggml/src/libggml{,-cpu,-base}.a -fopenmp -lpthread -ldl
}

# ---- Models ------------------------------------------------------------------------------------------------------ #

model() { echo "$dir/$shape-$1-$2.gguf"; }

# Writes the files of all types for a number of layers.
write_models() {
    local folder=$dir/$shape-$1 type
    for type in "${type_list[@]}"; do
        [ ! -f "$(model "$1" "$type")" ] || continue
        [ -f "$folder/config.json" ] || nice "$CHECKPOINT" --layers "$1" "$shape" "$folder" >&2
        nice "$python" tools/reference/make_gguf.py "$folder" "$dir/part.gguf" --type "$type"
        mv "$dir/part.gguf" "$(model "$1" "$type")"
    done
}

# ---- Measuring --------------------------------------------------------------------------------------------------- #

ids=$(seq -s ' ' 1000 $((999 + length - answer))) # the prompt

# Prints the milliseconds of a pass, and those of its sampling.
run_llama() {
    "$dir/diffusion" "$1" "$threads" "$answer" "$steps" $ids > "$dir/llama.out" 2> "$dir/llama.log"
    cat "$dir/llama.out" "$dir/llama.log" | awk -v steps="$steps" '
        NF == 2 && /^[0-9.]+ [0-9]+$/ { ms = $1 / steps }
        match($0, /sampling time per step: [0-9.]+/) { sampling = substr($0, RSTART + 24, RLENGTH - 24) }
        END { if (ms != "" && sampling != "") print ms, sampling }'
}

# Prints the milliseconds of a pass of a strategy. The first of two requests warms up, with one pass.
run_unmask() {
    local block=32 request="\"prompt_token_ids\": [${ids// /,}], \"max_tokens\""
    [ "$2" != full ] || block=$answer
    {
        echo "{\"id\": \"warm-up\", $request: 32, \"steps\": 1}"
        echo "{\"id\": \"measured\", $request: $answer}"
    } > "$dir/requests"
    "$UNMASK" generate --model "$1" --input "$dir/requests" --output - --timings --quiet --ignore-eos --temperature 0 \
        --threads "$threads" --max-num-reqs 1 --decoding-strategy "$2" --block-size "$block" --steps "$steps" |
        awk -v steps="$steps" '/"id":"measured"/ {
            match($0, /"nfe":[0-9]+/)
            if (substr($0, RSTART + 6, RLENGTH - 6) + 0 != steps) exit 1
            match($0, /"total_seconds":[0-9.e-]+/)
            total = substr($0, RSTART + 16, RLENGTH - 16)
            match($0, /"queue_seconds":[0-9.e-]+/)
            print 1000 * (total - substr($0, RSTART + 16, RLENGTH - 16)) / steps, 0
        }'
}

# Appends a row: layers, type, program, milliseconds of a pass, of them sampling.
measure() {
    local ms
    ms=$("${@:4}")
    [ -n "$ms" ] || {
        echo "compare_llama_cpp.sh: $3 has printed no time for $2; see $dir/llama.log" >&2
        exit 1
    }
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" $ms >> "$rows"
}

measure_all() {
    local run n type file
    : > "$rows"
    for ((run = 1; run <= runs; run++)); do
        for n in "${layer_list[@]}"; do
            for type in "${type_list[@]}"; do
                file=$(model "$n" "$type")
                echo "run $run of $runs: $n layers, $type" >&2
                measure "$n" "$type" llama.cpp run_llama "$file"
                measure "$n" "$type" 'unmask, full' run_unmask "$file" full
                measure "$n" "$type" 'unmask, dual_cache' run_unmask "$file" dual_cache
            done
        done
    done
}

# ---- The table --------------------------------------------------------------------------------------------------- #

facts() {
    local cpu version runs
    runs=$(awk -F'\t' '{ n[$1 FS $2 FS $3]++ }
        END { for (k in n) if (!least || n[k] < least) least = n[k]; print least }' "$rows")
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    version=$(compgen -G "$dir/llama_cpp_python-*.tar.gz" | sed 's/.*python-//; s/\.tar\.gz//' | head -n 1)
    echo "$shape, $length tokens, of which $answer are masks that $steps passes fill; $threads threads of" \
        "${cpu:-an unknown processor}; $("$UNMASK" --version), llama.cpp of llama-cpp-python ${version:-(unknown)};" \
        "$(date -u +%Y-%m-%d). Medians of $runs runs, with least and greatest."
    echo
}

# Reads the rows. A row of layers "per layer" has the differences of the medians.
table() {
    awk -F'\t' -v answer="$answer" -v steps="$steps" -v first="${layer_list[0]}" -v second="${layer_list[1]:-}" '
        function sort(v, n,    i, k, t) {
            for (i = 2; i <= n; i++)
                for (k = i; k > 1 && v[k] < v[k - 1]; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
        }
        function middle(v, n) { return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }
        function values(key, from, v,    n, w, i) {
            n = split(from[key], w, " ")
            for (i = 1; i <= n; i++) v[i] = w[i] + 0
            sort(v, n)
            return n
        }
        { key = $1 FS $2 FS $3
          if (!(key in ms)) order[++keys] = key
          ms[key] = ms[key] " " $4; sampling[key] = sampling[key] " " $5 }
        END {
            print "| layers | type | program | ms per pass | of it sampling | tokens/s | llama.cpp / unmask |"
            print "| --- | --- | --- | --- | --- | --- | --- |"
            for (i = 1; i <= keys; i++) {
                key = order[i]; split(key, part, FS)
                n = values(key, ms, v); m[key] = middle(v, n); least = v[1]; most = v[n]
                n = values(key, sampling, v)
                base = m[part[1] FS part[2] FS "llama.cpp"]
                printf "| %s | %s | %s | %.1f (%.1f to %.1f) | %s | %.2f | %s |\n", part[1], part[2], part[3], m[key],
                    least, most, part[3] == "llama.cpp" ? sprintf("%.1f", middle(v, n)) : "", 1000 * answer / steps / m[key],
                    part[3] == "llama.cpp" ? "" : sprintf("%.2f", base / m[key])
            }
            if (second == "") exit
            for (i = 1; i <= keys; i++) {
                split(order[i], part, FS)
                if (part[1] != first) continue
                other = second FS part[2] FS part[3]
                d = (m[other] - m[order[i]]) / (second - first)
                if (part[3] == "llama.cpp") base = d
                printf "| per layer | %s | %s | %.1f | | | %s |\n", part[2], part[3], d,
                    part[3] == "llama.cpp" || d <= 0 ? "" : sprintf("%.2f", base / d)
            }
        }' "$rows"
}

python=$(tools/python.sh build)
if [ -z "$draw" ]; then
    build_llama
    for n in "${layer_list[@]}"; do write_models "$n"; done
    measure_all
fi
facts
table
