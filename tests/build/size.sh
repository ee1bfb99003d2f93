#!/bin/bash
# The tracked files have at most 54 MiB, so that a clone is small. Recordings and vocabularies are packed
# (tools/data.sh).
set -euo pipefail
limit=$((54 << 20))

# Prints the names of all measured files, each followed by NUL.
files() {
    if [ "$(git rev-parse --show-toplevel 2> /dev/null)" = "$(pwd -P)" ]; then
        { git ls-files -z; git ls-files -zd; } | sort -z | uniq -zu # without deleted files whose deletion is not committed
    else
        echo "no git clone: all files except build/ are measured" >&2
        find . \( -path ./build -o -path ./.git -o -path ./.venv \) -prune -o -type f -print0
    fi
}

sizes=$(files | du -bc --files0-from=-)
total=$(tail -n 1 <<< "$sizes" | cut -f 1)
echo "tracked files: $total bytes of at most $limit"
if [ "$total" -gt "$limit" ]; then
    echo "too large; pack recordings with tools/data.sh. The largest files:" >&2
    head -n -1 <<< "$sizes" | sort -rn | sed 10q >&2
    exit 1
fi
