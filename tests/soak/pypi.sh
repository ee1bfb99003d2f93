#!/bin/bash
# Runs the parts of the Python package that need large packages from PyPI: tests/soak/pypi.sh BUILD [NAME...]
#
#   ray     unmask.ray on a cluster of two simulated nodes, of which one is killed (Ray has 750 MB unpacked)
#   verify  unmask.verify with classes of transformers (PyTorch has several GB unpacked)
#   vllm    unmask.vllm with vLLM and its processes, on the CPU (7 GB unpacked)
#
# The wheel is installed beside the packages of tests/soak/NAME/requirements.txt, and those of no_deps.txt without their
# requirements.
set -euo pipefail
build=${1:-build}
shift || true
[ $# -gt 0 ] || set -- ray verify vllm
packaging/wheel.sh "$build" > "$build/wheel.log" 2>&1 || { cat "$build/wheel.log" >&2; exit 1; }
export RAY_USAGE_STATS_ENABLED=0
failed=0
for name; do
    python=$(tools/python.sh "${build%%/*}" "tests/soak/$name/requirements.txt")
    "$python" -m pip install --quiet --disable-pip-version-check "cffi>=1.15" "numpy>=1.21"
    if [ -f "tests/soak/$name/no_deps.txt" ]; then
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps -r "tests/soak/$name/no_deps.txt"
    fi
    "$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$build"/wheel/*.whl
    "$python" -m pytest -p no:cacheprovider -p no:warnings -q -s --timeout 600 "tests/soak/$name" || failed=1
done
exit $failed
