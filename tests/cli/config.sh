#!/bin/bash
# Options from a file, the environment and the command line, in every command.
source tests/cli/claims.bash
COMMANDS=$("$UNMASK" list --json commands | grep -oE '"name":"[a-z]+","summary":"[^"]*","usage"' | cut -d'"' -f4)

# Prints the values of a configuration without comments.
values() { sed -E '/^ *#/d; /^$/d; s/  # .*//' "$1"; }
printed() {
    try "$@" --print-config
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
}
line_of() { grep -E "^$1: " "$work/out"; }

claims_begin

command_line_wins_over_environment_over_file_over_default() {
    printf 'threads: 2\nmax_tokens: 22\nseed: 2\n' > "$work/c.yaml"
    export UNMASK_CONFIG=$work/c.yaml
    UNMASK_THREADS=3 UNMASK_MAX_TOKENS=33 printed run --threads 4
    [ "$(line_of threads)" = 'threads: 4  # command line --threads' ]
    [ "$(line_of max_tokens)" = 'max_tokens: 33  # environment UNMASK_MAX_TOKENS' ]
    [ "$(line_of seed)" = "seed: 2  # file $work/c.yaml:3:7" ]
    [ "$(line_of top_p)" = 'top_p: 1  # default' ]
}
printed_configuration_reads_back_in_every_command() {
    [ "$(wc -w <<< "$COMMANDS")" -ge 9 ]
    for c in $COMMANDS; do
        printed "$c"
        cp "$work/out" "$work/first.yaml"
        printed "$c" --config "$work/first.yaml"
        diff <(values "$work/first.yaml") <(values "$work/out")
    done
}
printed_configuration_has_the_given_values() {
    printed run --model 'a "b"' --system $'two\nlines' --accept-threshold 0.1 --no-view --num-pages -1 --stop '# x: y'
    cp "$work/out" "$work/first.yaml"
    grep -qx 'model: "a \\"b\\""  # command line --model' "$work/first.yaml"
    printed run --config "$work/first.yaml"
    diff <(values "$work/first.yaml") <(values "$work/out")
    grep -q '^num_pages: auto' "$work/out"
}
printing_needs_no_model() {
    printed run --model "$work/nothing"
    printed generate
    [ "$(line_of input)" = 'input: null  # default' ]
}
command_runs_with_a_file() {
    printf 'model: build/data/golden/models/sdar\nmax_tokens: 3\nignore_eos: on\nrun:\n  json: yes\n' > "$work/c.yaml"
    try run --config "$work/c.yaml" t5
    [ "$rc" = 0 ]
    grep -q '"completion_tokens":3' "$work/out"
}
one_file_serves_several_commands() {
    printf 'model: build/data/golden/models/sdar\nthreads: 1\neval:\n  limit: 3\ngenerate:\n  trace: true\n' > "$work/c.yaml"
    try inspect --config "$work/c.yaml"
    [ "$rc" = 0 ]
    printed eval --config "$work/c.yaml"
    grep -q '^limit: 3 ' "$work/out"
}
layout_of_diffulex_is_read() {
    printf '%s\n' 'engine:' '  model_path: m' '  decoding_strategy: multi_bd' '  max_num_seqs: 8' \
        '  decoding_thresholds:' '    accept_threshold: 0.8' 'eval:' '  temperature: 0.5' '  dataset_limit: 10' \
        '  max_nfe: null' > "$work/c.yaml"
    printed eval --config "$work/c.yaml"
    [ "$(values "$work/out" | grep -E '^(model|max_num_reqs|accept_threshold|temperature|limit|max_nfe):' | sort | xargs)" = \
        'accept_threshold: 0.8 limit: 10 max_nfe: 0 max_num_reqs: 8 model: m temperature: 0.5' ]
}
errors_say_where_a_value_came_from() {
    printf 'model: x\nthreads: many\n' > "$work/c.yaml"
    try run --config "$work/c.yaml" hello
    [ "$rc" = 2 ]
    grep -q "^unmask run: $work/c.yaml:2:10: threads: expected an integer" "$work/err"
    UNMASK_THREADS=many try run hello
    [ "$rc" = 2 ]
    grep -q '^unmask run: UNMASK_THREADS: expected an integer' "$work/err"
    try run --threads many hello
    [ "$rc" = 2 ]
    grep -q '^unmask run: --threads: expected an integer' "$work/err"
}
unknown_key_names_the_nearest_with_its_place() {
    printf 'model: x\n\n  \nmax_token: 3\n' > "$work/c.yaml"
    try run --config "$work/c.yaml" hello
    [ "$rc" = 2 ]
    grep -q "$work/c.yaml:4:1: unknown option max_token; did you mean max_tokens?" "$work/err"
}
missing_file_is_named() {
    try run --config "$work/nowhere.yaml" hello
    [ "$rc" = 2 ]
    grep -q "$work/nowhere.yaml" "$work/err"
    UNMASK_CONFIG=$work/nowhere.yaml try run hello
    [ "$rc" = 2 ]
    grep -q "$work/nowhere.yaml" "$work/err"
    UNMASK_CONFIG=$work/nowhere.yaml printed run --config ''
}
too_long_file_is_refused() {
    head -c 2000000 /dev/zero | tr '\0' '#' > "$work/c.yaml"
    try run --config "$work/c.yaml" hello
    [ "$rc" = 2 ]
    grep -q 'longer than the limit' "$work/err"
}
mistyped_variable_is_warned_of() {
    UNMASK_THREAD=3 try run --print-config
    [ "$rc" = 0 ]
    grep -q 'UNMASK_THREAD: no option has this name; did you mean UNMASK_THREADS?' "$work/err"
    UNMASK_LIMIT=3 UNMASK_THREADS=2 try list backends
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
}
help_shows_the_defaults_of_the_command() {
    try run --threads 5 --help
    tr -s ' \n' ' ' < "$work/out" > "$work/flat"
    grep -q 'requests that run at once in an engine (1..4096; default 1)' "$work/flat"
    grep -q 'of --data-parallel-size (1..1024, or auto; default auto)' "$work/flat"
}

claims_all
