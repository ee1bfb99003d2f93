#!/bin/bash
# Checks /openapi.json: runs tests/server/openapi_document.py, which prints a line for each check.
set -euo pipefail
export UNMASK=${UNMASK:-build/unmask}
python=$(tools/python.sh "$(cut -d/ -f1 <<< "${BUILD:-build}")")
exec "$python" tests/server/openapi_document.py
