#!/bin/bash
# The Python package from its sdist, which compiles the library, and the notebook of examples/: tests/soak/python.sh BUILD
set -euo pipefail
build=$(realpath "${1:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packaging/wheel.sh "${1:-build}" > "$work/wheel.log" 2>&1 || { cat "$work/wheel.log" >&2; exit 1; }
notebook=$(realpath examples/denoising.ipynb)
cd "$work"

python3 -m venv sdist
sdist/bin/pip install --quiet --disable-pip-version-check "$build"/wheel/unmask-*.tar.gz
[ "$(sdist/bin/python -m unmask run --model tiny-block 'What is 12 + 30?')" = '12 + 30 = 42.' ]
sdist/bin/python -c '
import unmask
with unmask.LLM("tiny-full") as llm:
    answer = llm.chat([{"role": "user", "content": "What is 12 + 30?"}])[0].outputs[0].text
    assert answer == "12 + 30 = 42.", answer'
echo "the sdist builds, and its package answers"

python3 -m venv notebook
notebook/bin/pip install --quiet --disable-pip-version-check "$build"/wheel/unmask-*.whl ipykernel==7.4.0 matplotlib==3.11.2 \
    nbconvert==7.17.2
notebook/bin/jupyter nbconvert --log-level ERROR --to notebook --execute --output "$work/out.ipynb" "$notebook"
grep -q '@keyframes' out.ipynb
grep -q 'image/png' out.ipynb
grep -q '0.99 [0-9]* passes: Wanda' out.ipynb
echo "the notebook runs"
