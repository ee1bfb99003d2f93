#!/bin/bash
# Builds the wheel, installs it in a new virtual environment, and runs the tests of this folder with it.
set -euo pipefail
BUILD=${BUILD:-build}
# tests/build/package.sh makes the archive of `make dist`, too, which the wheel contains.
exec 9> "$BUILD/packages.lock"
flock 9
packaging/wheel.sh "$BUILD" > "$BUILD/wheel.log" 2>&1 || { cat "$BUILD/wheel.log" >&2; exit 1; }
exec 9>&-
venv=$(realpath "$BUILD")/venv-python-package
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "$BUILD"/wheel/*.whl -r tests/python/requirements.txt >&2
UNMASK=$(realpath "$UNMASK") BUILD=$(realpath "$BUILD") exec "$venv/bin/python" -m pytest -p no:cacheprovider --tap tests/python
