#!/bin/bash
# Runs the commands of the documents unchanged. Each response to a request must have text. tests/cli/pages.bash explains
# how a test runs the blocks of a page.
source tests/cli/claims.bash
source tests/server/serve.bash
source tests/cli/pages.bash
source tests/cli/ranks.bash

claims_begin

every_command_of_the_readme_works_as_it_stands() {
    # Shortens the measurements.
    export UNMASK_LIMIT=2 UNMASK_REQUESTS=2 UNMASK_RUNS=1
    run_page README.md
    [ $servers = 1 ]
    [ $generated -ge 3 ]
}
every_command_of_the_server_page_works_as_it_stands() {
    run_page docs/server.md
    [ $n -ge 15 ]
    [ $servers -ge 4 ]
    [ $generated -ge 5 ]
    [ $outputs -ge 2 ]
}
every_command_of_the_benchmark_page_works_as_it_stands() {
    run_page docs/serving-benchmark.md
    [ $n -ge 6 ]
    [ $servers -ge 1 ]
}
every_command_of_the_apis_page_works_as_it_stands() {
    run_page docs/apis.md
    [ $servers = 1 ]
    [ $generated -ge 7 ]
    [ $outputs -ge 5 ]
}
every_command_of_the_batches_page_works_as_it_stands() {
    run_page docs/batches.md
    [ $servers = 1 ]
    [ $outputs = 1 ]
}
every_command_of_the_page_on_structured_output_works_as_it_stands() {
    run_page docs/structured.md
    [ $servers = 1 ]
    [ $generated -ge 6 ]
}
every_command_of_the_page_on_clusters_works_as_it_stands() {
    new_port
    export UNMASK_MASTER_PORT=$port UNMASK_DISTRIBUTED_TIMEOUT_SECONDS=60
    run_page docs/cluster.md
    [ $servers = 1 ]
    [ $generated -ge 2 ]
}
every_command_of_the_pages_without_a_server_works_as_it_stands() {
    export UNMASK_LIMIT=2 UNMASK_REQUESTS=2
    for p in "${pages_without_server[@]}"; do
        run_page "$p"
        [ $servers = 0 ]
    done
}
page_names_endpoints_series_and_options_that_exist() {
    grep -oE '`--[a-z][a-z-]+|^ *(UNMASK_[A-Z_]+=[^ ]* )?unmask .*' docs/server.md | grep -oE -- '--[a-z][a-z-]+' |
        grep -vx -- --version | sort -u > "$work/options"
    [ "$(wc -l < "$work/options")" -ge 30 ]
    for option in $(sed -E 's/^--(no-)?//' "$work/options"); do
        grep -qE -- "\`(-., )?--(\[no-\])?$option[ \`]" docs/options.md || { echo "no option --$option"; return 1; }
    done
    for name in $(grep -oE 'unmask_[a-z_]+' docs/server.md | sort -u); do
        grep -q "\"${name#unmask_}\"" src/server/metrics_page.c || { echo "no series $name"; return 1; }
    done
    for file in $(grep -oE '(packaging|src/server|tests)/[a-zA-Z_./]+[a-z]' docs/server.md | sort -u); do
        [ -e "$file" ] || { echo "no $file"; return 1; }
    done
}

# Compares the table of docs/apis.md with the server's tables: fields, APIs and reasons are equal.
page_of_apis_names_exactly_the_fields_without_effect() {
    "$UNMASK" list --json fields | jq -r '.fields[] | select(.only == []) | "\(.name) \(.apis | length) \(.summary)"' |
        sort > "$work/listed"
    all=$(awk '$2 > n { n = $2 } END { print n }' "$work/listed")
    sed -nE '/^## Fields without effect/,/^## OpenAI/s/^\| `([^`]+)` \| ([^|]+) \| (.*) \|$/\1\t\2\t\3/p' docs/apis.md |
        awk -F '\t' -v all="$all" '{ print $1, $2 == "all" ? all : split($2, apis, ", "), $3 }' | sort > "$work/shown"
    [ "$(wc -l < "$work/listed")" -ge 10 ]
    diff "$work/listed" "$work/shown"
}

claims_all
