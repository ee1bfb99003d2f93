#!/bin/bash
# build/tools/checkpoint: a folder that the program loads, and runs that fail.
source tests/cli/claims.bash
checkpoint=${BUILD:-build}/tools/checkpoint

# try_checkpoint ARGUMENT...: runs it as `try` runs the program.
try_checkpoint() { UNMASK=$checkpoint try "$@"; }

claims_begin

every_shape_is_listed() {
    try_checkpoint --list
    [ "$rc" = 0 ]
    grep -qE '^llada_8b +llada +8015581184 +16.03 GB +GSAI-ML/LLaDA-8B-Base, ' "$work/out"
    [ "$(wc -l < "$work/out")" = $(($(ls tests/data/released/*.json | wc -l))) ]
}
help_names_every_option() {
    try_checkpoint --help
    [ "$rc" = 0 ]
    for o in layers list type seed shard-size tokenizer; do grep -q -- "--$o" "$work/out"; done
}
the_program_inspects_and_runs_a_written_folder() {
    try_checkpoint sdar_1_7b_tied --layers 1 "$work/sdar"
    [ "$rc" = 0 ]
    [ ! -s "$work/err" ]
    try inspect --json "$work/sdar"
    [ "$rc" = 0 ]
    [ "$(jq -r '.family, .sizes.layers, .decoding.mask_id, .weights.stored_as' "$work/out" | xargs)" = 'sdar 1 151669 BF16' ]
    [ "$(jq .weights.elements "$work/out")" = "$(jq .sizes.parameters "$work/out")" ]
    [ ! -s "$work/err" ]
    try run --model "$work/sdar" --max-tokens 8 --ignore-eos --seed 1 Hello
    [ "$rc" = 0 ]
    [ -s "$work/out" ]
    rm -r "$work/sdar"
}
a_run_that_cannot_write_says_why_and_leaves_no_file() {
    mkdir "$work/full"
    # The largest file that this shell and its children may write.
    (trap '' XFSZ; ulimit -f 20000; try_checkpoint fast_dllm_v2_1_5b --layers 1 "$work/full"; [ "$rc" = 1 ])
    grep -q 'model.safetensors: cannot write: File too large' "$work/err"
    [ -z "$(ls -A "$work/full")" ]
    rmdir "$work/full"
}
a_folder_with_files_is_left_alone() {
    mkdir "$work/taken"
    echo mine > "$work/taken/config.json"
    try_checkpoint sdar_4b "$work/taken"
    [ "$rc" = 2 ]
    grep -q 'the folder is not empty' "$work/err"
    [ "$(cat "$work/taken/config.json")" = mine ]
}
a_tokenizer_that_does_not_fit_is_refused() {
    # LLaDA has 126,464 rows, Qwen's vocabulary 151,670 ids.
    try_checkpoint llada_8b --tokenizer build/data/tokenizers/sdar "$work/other"
    [ "$rc" = 2 ]
    grep -q 'the tokenizer has 151670 ids, but llada_8b has a vocabulary of 126464 only' "$work/err"
    [ ! -e "$work/other" ]
    try_checkpoint llada_8b --tokenizer no/such/file "$work/other"
    [ "$rc" = 2 ]
    grep -q 'no/such/file: cannot open' "$work/err"
    [ ! -e "$work/other" ]
}
unknown_words_and_options_are_refused() {
    try_checkpoint sdar_9b "$work/none"
    [ "$rc" = 2 ]
    grep -q 'unknown shape "sdar_9b" (did you mean' "$work/err"
    try_checkpoint sdar_4b "$work/none" --layer 1
    [ "$rc" = 2 ]
    grep -q 'unknown option --layer; did you mean --layers?' "$work/err"
    try_checkpoint sdar_4b
    [ "$rc" = 2 ]
    grep -q 'expected a shape and a folder' "$work/err"
    try_checkpoint sdar_4b "$work/none/below" --layers 1
    [ "$rc" = 1 ]
    grep -q 'cannot make the folder: No such file or directory' "$work/err"
    [ ! -e "$work/none" ]
}

claims_all
