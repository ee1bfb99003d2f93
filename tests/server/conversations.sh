#!/bin/bash
# Checks /v1/conversations with OpenAI's Python client: runs tests/server/openai_conversations.py, which prints a line
# for each check.
set -euo pipefail
export UNMASK=${UNMASK:-build/unmask}
python=$(tools/python.sh "$(cut -d/ -f1 <<< "${BUILD:-build}")")
exec "$python" tests/server/openai_conversations.py
