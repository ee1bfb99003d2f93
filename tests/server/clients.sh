#!/bin/bash
# docs/clients.md agrees with the scripts in tests/clients, which `make soak` runs. tests/server/anthropic_messages.py
# runs the lines for the two clients that it has.
source tests/cli/claims.bash
page=docs/clients.md

# lines NAME: prints the block of a client's section.
lines() { awk -v head="## $1" '/^## / { here = $0 == head } /^```/ { inside = !inside; next } here && inside' "$page"; }

claims_begin

every_client_has_its_lines_on_the_page() {
    local script name n=0
    for script in tests/clients/*_client.py; do
        name=$(basename "$script" _client.py | tr _ -)
        lines "$name" > "$work/lines"
        [ "$(wc -l < "$work/lines")" -ge 1 ] || { echo "no lines for $name"; return 1; }
        [ "$(wc -l < "$work/lines")" -le 3 ] || { echo "more than three lines for $name"; return 1; }
        python3 -c 'import sys; sys.exit(open(sys.argv[1]).read() not in open(sys.argv[2]).read())' "$work/lines" "$script" ||
            { echo "$script has other lines than $page"; return 1; }
        n=$((n + 1))
    done
    [ "$(grep -c '^## ' "$page")" = $n ]
}
the_table_is_that_of_the_scripts() {
    python3 tests/clients/table.py > "$work/table"
    [ "$(wc -l < "$work/table")" -ge 4 ]
    sed -n '/^| client /,/^$/p' "$page" | sed '/^$/d' | diff "$work/table" -
}

claims_all
