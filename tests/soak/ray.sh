#!/bin/bash
# Runs unmask.ray on a local cluster of Ray with two simulated nodes, of which one is killed: tests/soak/ray.sh BUILD
#
# The wheel is installed beside Ray, which is downloaded from PyPI (750 MB unpacked).
set -euo pipefail
build=${1:-build}
packaging/wheel.sh "$build" > "$build/wheel.log" 2>&1 || { cat "$build/wheel.log" >&2; exit 1; }
python=$(tools/python.sh "${build%%/*}" tests/soak/ray/requirements.txt)
"$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$build"/wheel/*.whl
"$python" -m pip install --quiet --disable-pip-version-check "cffi>=1.15" "numpy>=1.21"
export RAY_USAGE_STATS_ENABLED=0
exec "$python" -W ignore -m pytest -p no:cacheprovider -p no:warnings -q -s --timeout 600 tests/soak/ray
