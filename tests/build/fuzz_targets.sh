#!/bin/bash
# The fuzz targets compile. Only `make fuzz` runs them, and that needs clang.
set -euo pipefail
for target in tests/fuzz/*_fuzz.c; do
    gcc -std=c11 -D_GNU_SOURCE -Wall -Werror -Iinclude -Isrc -Itests -fsyntax-only "$target"
done
