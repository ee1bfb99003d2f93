#!/bin/bash
# Runs schemathesis, which sends requests that fit /openapi.json and requests that don't: tests/soak/openapi.sh BUILD [SECONDS]
#
# No answer may be a server error or have another status or type than the document says, wrong values must be refused,
# and methods that the document leaves out must get 405 with the right header Allow.
set -euo pipefail
build=${1:-build} seconds=${2:-120}
work=$(mktemp -d)
server=
trap 'kill "$server" 2> /dev/null || true; rm -rf "$work"' EXIT
venv=$(realpath -m "${CLIENTS:-$work}")/schemathesis
if [ ! -x "$venv/bin/schemathesis" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check schemathesis==4.32.5
fi

# Profiles that a request starts are written into the server's folder.
unmask=$(realpath "$build/unmask") model=$(realpath models/tiny-block)
cd "$work"
"$unmask" serve --model "$model" --in-process --state-dir "$work/state" --port 0 --no-access-log \
    --request-timeout 60 > /dev/null 2> "$work/log" &
server=$!
for _ in $(seq 600); do
    if grep -q '^unmask: ready$' "$work/log"; then break; fi
    kill -0 "$server" || { cat "$work/log" >&2; exit 1; }
    sleep 0.1
done
url=$(sed -n 's/.*listening at //p' "$work/log")
checks=not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance
checks+=,negative_data_rejection,unsupported_method,allow_header_conformance
"$venv/bin/schemathesis" run "$url/openapi.json" --checks $checks --phases coverage,fuzzing --max-time "$seconds" \
    --continue-on-failure --no-color > out 2>&1 || failed=1
sed -n '/^=* FAILURES/,/^=* WARNINGS/p; /^=* SUMMARY/,$p' out
kill -0 "$server" || { echo "the server has ended:"; tail log; exit 1; }
exit "${failed:-0}"
