#!/bin/bash
# Runs schemathesis, which sends requests that fit /openapi.json and requests that don't: tests/soak/openapi.sh BUILD [SECONDS]
#
# No answer may be a server error or have another status or type than the document says, wrong values must be refused,
# and methods that the document leaves out must get 405 with the right header Allow.
set -euo pipefail
unmask=$(realpath "${1:-build}/unmask") seconds=${2:-120}
source tests/soak/server.bash
venv=$(realpath -m "${CLIENTS:-$work}")/schemathesis
if [ ! -x "$venv/bin/schemathesis" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check schemathesis==4.32.5
fi

# Profiles that a request starts are written into the server's folder.
model=$(realpath models/tiny-block)
cd "$work"
serve --model "$model" --in-process --state-dir "$work/state" --no-access-log --request-timeout 60
checks=not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance
checks+=,negative_data_rejection,unsupported_method,allow_header_conformance
# A server that sleeps answers 503. A slow machine is no failure (health checks of hypothesis).
"$venv/bin/schemathesis" run "$url/openapi.json" --exclude-path /sleep --checks $checks --phases coverage,fuzzing \
    --suppress-health-check all --max-time "$seconds" --continue-on-failure --no-color > out 2>&1 || failed=1
sed -n '/^=* FAILURES/,/^=* WARNINGS/p; /^=* SUMMARY/,$p' out
kill -0 "$server" || { echo "the server has ended:"; tail log; exit 1; }
exit "${failed:-0}"
