#!/bin/bash
# Runs the commands of docs/extending.md unchanged, in the root of a copy of the tree in which `make` has run.
source tests/cli/claims.bash
source tests/cli/pages.bash
: "${BUILD:=build}"

# Copies the tree and the files that `make` has built to $work/clone. A `make` in it uses the compiler and the flags of
# the `make check` that runs this test.
clone_tree() {
    mkdir -p "$work/clone/$BUILD/examples"
    tar --exclude=./.git --exclude=./build --exclude=./tests -cf - . | tar -xf - -C "$work/clone"
    cp -a "$BUILD"/{src,gen,flags,unmask} "$BUILD"/lib*.a "$BUILD"/libunmask.so* "$work/clone/$BUILD"
}

claims_begin

every_command_of_the_page_works_as_it_stands() {
    page=docs/extending.md n=0
    clone_tree
    export BUILD
    while block $((n + 1)); do
        n=$((n + 1))
        [ "$mark" = sh ]
        sed "s#build/#$BUILD/#g" "$work/block" > "$work/run"
        (cd "$work/clone" && bash -euxo pipefail "$work/run" < /dev/null) > "$work/out" 2> "$work/commands" || {
            tail -n 20 "$work/out" "$work/commands"
            return 1
        }
        cat "$work/out"
        grep -q '^  left_to_right ' "$work/out"
        grep -q '^  annealed ' "$work/out"
        [ "$(tail -n 1 "$work/out")" = '12 + 30 = 42.' ]
    done
    [ $n = 1 ]
}
a_folder_without_sources_is_refused() {
    clone_tree
    mkdir "$work/clone/none"
    rc=0
    BUILD=$BUILD make -C "$work/clone" extended ROWS=none > "$work/out" 2> "$work/err" || rc=$?
    [ $rc = 2 ]
    grep -q 'no sources (\*.c) in the folder ROWS=none' "$work/err"
}

claims_all
