#!/bin/bash
# Runs tests/web/page_test.py: it tests the web page in headless Chromium against the real server.
# SCREENSHOTS=DIR tests/web/page.sh also keeps the screenshots, for docs/.
set -euo pipefail
BUILD=${BUILD:-build}
UNMASK=${UNMASK:-$BUILD/unmask}
python=$(tools/python.sh "${BUILD%%/*}")
work=$(mktemp -d)
server=
cleanup() {
    if [ -n "$server" ]; then
        kill "$server" 2> /dev/null || true
        wait "$server" || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
for name in $(compgen -e UNMASK_); do unset "$name"; done

"$UNMASK" serve --model models/tiny-block --port 0 2> "$work/server.err" &
server=$!
for _ in $(seq 300); do
    if grep -q '^unmask: ready' "$work/server.err"; then break; fi
    kill -0 "$server" || { cat "$work/server.err" >&2; exit 1; }
    sleep 0.1
done
url=$(sed -n 's/^unmask: listening at //p' "$work/server.err")
HOME=$work timeout 600 "$python" tests/web/page_test.py "$url" "${SCREENSHOTS:-$work}"
