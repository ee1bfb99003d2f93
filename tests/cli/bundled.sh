#!/bin/bash
# The program finds bundled checkpoints by name from any folder, and explains unknown names.
source tests/cli/claims.bash
program=$(realpath "$UNMASK")
tree=$(realpath .)
elsewhere=$work/elsewhere
mkdir "$elsewhere"

# stage: installs the program below $work/stage/usr, like `make install`
stage() {
    [ ! -d "$work/stage" ] || return 0
    mkdir -p "$work/stage/usr/bin" "$work/stage/usr/share/unmask"
    cp "$program" "$work/stage/usr/bin/unmask"
    cp -r models "$work/stage/usr/share/unmask/models"
}
# from FOLDER PROGRAM ARGUMENT...: runs the program in a folder. Output in $work/out and $work/err, exit status in rc
from() {
    local folder=$1
    shift
    rc=0
    (cd "$folder" && exec "$@") > "$work/out" 2> "$work/err" < /dev/null || rc=$?
    tail -n 20 "$work/out" "$work/err"
}
# answers_by_name PROGRAM MODELS: uses run, eval and bench from another folder
answers_by_name() {
    from "$elsewhere" "$1" run --model tiny-block 'What is 12 + 30?'
    [ "$rc" = 0 ]
    grep -q 42 "$work/out"
    from "$elsewhere" "$1" eval --model tiny-block --limit 2 --json --quiet
    [ "$rc" = 0 ]
    grep -qF "\"data\":\"$2/eval.jsonl\"" "$work/out"
    from "$elsewhere" "$1" bench --model tiny-block --batch 1 --requests 2 --runs 1 --max-tokens 8 --json --quiet
    [ "$rc" = 0 ]
    grep -qF "\"prompts\":\"$2/eval.jsonl, through the chat template\"" "$work/out"
}
# Runs every command that opens a model, with the model name $1.
each_command() {
    local line
    while read -r line; do
        from "$elsewhere" "$program" ${line/MODEL/$1}
        said "$line"
    done << 'END'
run --model MODEL hello
chat --model MODEL
generate --model MODEL --input in.jsonl --output out.jsonl
eval --model MODEL
bench --model MODEL
inspect MODEL
inspect --model MODEL
tokenize --model MODEL hello
serve --model MODEL --port 0
END
}

claims_begin

program_of_the_build_tree_finds_the_models_of_the_tree() {
    answers_by_name "$program" "$tree/models"
}
installed_program_finds_the_installed_models() {
    stage
    answers_by_name "$work/stage/usr/bin/unmask" "$work/stage/usr/share/unmask/models"
}
installation_can_be_moved() {
    stage
    cp -r "$work/stage/usr" "$work/moved"
    from "$elsewhere" "$work/moved/bin/unmask" inspect tiny-full
    rm -r "$work/moved"
    [ "$rc" = 0 ]
    grep -qF "$work/moved/share/unmask/models/tiny-full" "$work/out"
}
make_installs_every_file_of_the_models() {
    make -n install DESTDIR=/stage PREFIX=/usr > "$work/commands"
    find models -type f > "$work/files"
    [ "$(wc -l < "$work/files")" -ge 13 ]
    while read -r file; do grep -qE "(^|[ ;])$file([ ;]|$)" "$work/commands"; done < "$work/files"
}
existing_folder_wins_over_a_bundled_name() {
    mkdir "$elsewhere/tiny-block"
    from "$elsewhere" "$program" run --model tiny-block hello
    rmdir "$elsewhere/tiny-block"
    [ "$rc" = 3 ]
    grep -q 'tiny-block has no config.json' "$work/err"
}
missing_bundled_models_are_reported() {
    cp "$program" "$work/alone"
    from "$elsewhere" "$work/alone" run --model tiny-block hello
    [ "$rc" = 3 ]
    grep -q 'tiny-block: no such folder; name the folder' "$work/err"
    not grep -q bundled "$work/err"
}
examples_of_the_help_name_the_installed_models() {
    stage
    from "$elsewhere" "$work/stage/usr/bin/unmask" run --help
    grep -qF -- "--model $work/stage/usr/share/unmask/models/tiny-block" "$work/out"
    mkdir "$elsewhere/models"
    from "$elsewhere" "$work/stage/usr/bin/unmask" run --help
    rmdir "$elsewhere/models"
    grep -qF -- "--model $work/stage/usr/share/unmask/models/tiny-block" "$work/out"
    from "$tree" "$program" run --help
    grep -qF -- '--model models/tiny-block' "$work/out"
}
every_command_explains_an_unknown_model_name() {
    rm -f "$elsewhere/out.jsonl"
    echo '{"id": 1, "prompt": "hello"}' > "$elsewhere/in.jsonl"
    for name in tiny-blok ./no/where no/where; do
        said() {
            [ "$rc" = 3 ]
            grep -qF "$name: no such folder" "$work/err"
            grep -qF 'bundled models, which need no path: tiny-block, tiny-full' "$work/err"
        }
        each_command "$name"
    done
    [ ! -e "$elsewhere/out.jsonl" ]
}
every_command_explains_a_model_that_is_a_file() {
    said() {
        [ "$rc" = 2 ]
        grep -qF "in.jsonl is not a GGUF file; a model is such a file or a folder with config.json" "$work/err"
    }
    echo '{"id": 1, "prompt": "hello"}' > "$elsewhere/in.jsonl"
    each_command in.jsonl
}
every_command_explains_an_empty_model_folder() {
    said() {
        [ "$rc" = 3 ]
        case $1 in
        tokenize*) grep -qF 'no tokenizer in empty: looked for tokenizer.json' "$work/err" ;;
        *) grep -qF 'empty has no config.json; a model is a folder with config.json' "$work/err" ;;
        esac
    }
    echo '{"id": 1, "prompt": "hello"}' > "$elsewhere/in.jsonl"
    mkdir "$elsewhere/empty"
    each_command empty
}

claims_all
