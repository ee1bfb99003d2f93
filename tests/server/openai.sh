#!/bin/bash
# What OpenAI's own Python client gets from the server: tests/server/openai_conformance.py, a line for each check.
set -euo pipefail
export UNMASK=${UNMASK:-build/unmask}
python=$(tools/python.sh "$(cut -d/ -f1 <<< "${BUILD:-build}")")
exec "$python" tests/server/openai_conformance.py
