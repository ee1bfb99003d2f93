#!/bin/bash
# Checks /v1/messages with Anthropic's Python client: runs tests/server/anthropic_messages.py, which prints a line for
# each check.
set -euo pipefail
export UNMASK=${UNMASK:-build/unmask}
python=$(tools/python.sh "$(cut -d/ -f1 <<< "${BUILD:-build}")")
exec "$python" tests/server/anthropic_messages.py
