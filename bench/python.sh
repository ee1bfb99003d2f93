#!/bin/bash
# Compares the Python package with the program, in turn, and measures how many events AsyncLLM streams. `make
# bench-python` calls it.
set -euo pipefail
python=$(tools/python.sh "$BUILD" bench/python-requirements.txt)
"$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$BUILD"/wheel/*.whl
exec "$python" bench/python.py "$BUILD/unmask"
