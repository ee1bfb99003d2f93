#!/bin/bash
# Prints the path of a Python that has the packages of a requirements file: python=$(tools/python.sh BUILD [FILE])
#
# FILE is tests/requirements.txt by default. Missing packages are installed into a virtual environment below BUILD.
# Tests run at the same time, so a lock lets only one of them install.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=${2:-tests/requirements.txt}
venv=$(realpath -m "${1:-build}")/venv$([ $# -lt 2 ] || dirname "$2" | sed 's|.*/|-|')
mkdir -p "$(dirname "$venv")"
exec 9> "$venv.lock"
flock 9
if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
    cp "$requirements" "$venv/requirements.txt"
fi
echo "$venv/bin/python"
