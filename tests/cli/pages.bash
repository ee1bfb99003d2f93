# For scripts that run the commands of the documents. Sourced from the repository root after tests/cli/claims.bash and
# tests/server/serve.bash. The mark of a block (```MARK) says what the test does with it:
#
#   sh             runs the block as it stands, in the order of the page. http://127.0.0.1:8000 and build/ stand for the
#                  server and the build folder of the test.
#   sh server      starts the server for the next blocks. It replaces the server of an earlier block.
#   text output    compares the block with the standard output of the `sh` block before it
#   python         in docs/clients.md: tests/server/clients.sh finds the block in a script of `make soak`; in
#                  docs/python.md: tests/python/test_docs.py runs it; in docs/cluster.md: tests/soak/pypi.sh runs it
#   console        does nothing. The commands have placeholders, need another machine, or take long.
#
# The commands of the two lists run in $work/folder, which has the models, the examples and build/tools. `unmask` and
# `curl` are scripts there that record each call, so that run_page can look at the text of every answer.
#
# tests/cli/docs.sh checks that no other block holds commands, and that a test runs every page with an `sh` block.

# The pages that tests/server/docs.sh runs. tests/extending/docs.sh runs docs/extending.md.
pages_without_server=(docs/command-line.md docs/chat.md docs/models.md docs/queue.md docs/profiling.md docs/quickstart.md
    docs/scoring.md models/tiny-block/README.md models/tiny-full/README.md)
pages_with_server=(README.md docs/server.md docs/serving-benchmark.md docs/apis.md docs/batches.md docs/structured.md
    docs/cluster.md)
# The pages that may have commands that no test runs.
pages_with_console=(README.md CONTRIBUTING.md docs/adapters.md docs/bench-engine.md docs/bench-ops.md docs/clients.md
    docs/cluster.md docs/evaluation.md docs/extending.md docs/install.md docs/models.md docs/performance.md docs/python.md
    docs/quickstart.md docs/server.md docs/serving-benchmark.md docs/tradeoffs.md)

# fences FILE: "LINE MARK" for each block that begins in FILE. A block without a mark has "-".
fences() {
    awk '/^ *```/ { if (!inside) { mark = $0; sub(/^ *```/, "", mark); print FNR, mark == "" ? "-" : mark }
                    inside = !inside }' "$1"
}

# block N: writes block number N of $page to $work/block, without the indent of its fence, and sets `mark`. Counts only
# blocks with the marks above. Fails after the last block.
block() {
    : > "$work/block"
    awk -v n="$1" -v out="$work/block" '
        /^ *```(sh|sh server|text output)$/ && !inside { inside = 1; indent = index($0, "`") - 1
            if (++count == n) print substr($0, indent + 4); next }
        /^ *```/ && !inside { inside = 2; next }
        /^ *```$/ && inside { inside = 0; next }
        inside == 1 && count == n { print substr($0, indent + 1) > out }' "$page" > "$work/mark"
    mark=$(cat "$work/mark")
    [ -n "$mark" ]
}

# recorder NAME PROGRAM: $work/bin/NAME runs PROGRAM. It records arguments and standard output in $work/calls.
recorder() {
    cat > "$work/bin/$1" <<END
#!/bin/bash
set -uo pipefail
[ "\${1:-}" != serve ] || exec "$2" "\$@"
call=\$(mktemp -d "$work/calls/\$(date +%s%N)-XXXX")
printf '%s\n' "$1" "\$@" > "\$call/arguments"
"$2" "\$@" | tee --output-error=warn-nopipe "\$call/out"
END
    chmod +x "$work/bin/$1"
}

# texts FILE: prints a JSON string for each answer in the output of a request, or in the results of `unmask generate`.
# The events of a stream are one answer.
texts() {
    local text='[.. | objects | select(has("choices") or has("text") or has("content"))
        | if has("choices") then .choices[] | .text // .message.content // .delta.content // empty
          else .text // .content end | strings]'
    if grep -q '^data: ' "$1"; then
        sed -n 's/^data: {/{/p' "$1" | jq -cs "map($text) | add | join(\"\")"
    else
        jq -c "$text | unique[]" "$1"
    fi
}

# Fails unless each answer of the call in folder $1 has text.
has_text() {
    local route='/(v1/)?(generate|completion|completions|chat/completions|messages|responses|result/[0-9]+)$'
    case $(head -n 1 "$1/arguments") in
        curl)
            grep -qE "^http://.*$route" "$1/arguments" || return 0
            # A later request fetches the answer, or has done so.
            ! grep -qE '"request_ids"|"status":"(submitted|running|aborted|forgotten)"' "$1/out" || return 0
            texts "$1/out" > "$work/texts" ;;
        unmask)
            case $(sed -n 2p "$1/arguments") in
                run) jq -Rs 'rtrimstr("\n")' "$1/out" > "$work/texts" ;;
                generate) texts "$work/folder/$(grep -A 1 -x -- --output "$1/arguments" | tail -n 1)" > "$work/texts" ;;
                *) return 0 ;;
            esac ;;
    esac
    generated=$((generated + 1))
    if [ ! -s "$work/texts" ] || grep -qx '""' "$work/texts"; then
        echo "no text:" $(cat "$1/arguments")
        head -c 2000 "$1/out"
        return 1
    fi
}

start_server_of_block() {
    [ -z "$pid" ] || stop_server
    [ "${rc:-0}" = 0 ]
    : > "$work/log"
    (cd "$work/folder" && UNMASK_PORT=0 UNMASK_THREADS=1 \
        exec bash -c "exec env $(sed 's#build/unmask#unmask#g' "$work/block")") 2> "$work/log" &
    pid=$!
    trap 'kill -9 $pid 2> /dev/null || true' EXIT
    wait_for '^unmask: ready' "$work/log"
    url=$(sed -nE 's/.*listening at (http:.*)/\1/p' "$work/log")
}

run_commands_of_block() {
    local call
    rm -rf "$work/calls"
    mkdir "$work/calls"
    sed "s#http://127.0.0.1:8000#${url:-}#g; s#build/unmask#unmask#g" "$work/block" > "$work/run"
    (cd "$work/folder" && bash -euo pipefail "$work/run" < /dev/null > "$work/out") || { cat "$work/out"; return 1; }
    [ -s "$work/out" ] || not grep -qE '^(curl -s |unmask|build/unmask)' "$work/block"
    for call in "$work/calls"/*/; do
        [ ! -d "$call" ] || has_text "$call"
    done
}

# run_page PAGE: runs its blocks. Sets n, servers, outputs and generated: the numbers of blocks, servers, compared outputs
# and requests whose text was checked.
run_page() {
    page=$1
    rm -rf "$work/bin" "$work/folder"
    mkdir "$work/bin" "$work/folder"
    recorder unmask "$(realpath "$UNMASK")"
    recorder curl "$(command -v curl)"
    for name in models examples; do ln -s "$PWD/$name" "$work/folder/$name"; done
    mkdir "$work/folder/build"
    ln -s "$(realpath "${BUILD:-build}/tools")" "$work/folder/build/tools"
    local PATH=$work/bin:$PATH
    pid='' n=0 servers=0 outputs=0 generated=0
    while block $((n + 1)); do
        n=$((n + 1))
        echo "---- $page, block $n: $mark"
        cat "$work/block"
        case $mark in
            'sh server') start_server_of_block; servers=$((servers + 1)) ;;
            'text output') diff "$work/block" "$work/out"; outputs=$((outputs + 1)) ;;
            sh) run_commands_of_block ;;
        esac
    done
    [ -z "$pid" ] || stop_server
    [ "${rc:-0}" = 0 ]
    [ $n -ge 1 ]
}
