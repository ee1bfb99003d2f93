#!/bin/bash
# Every header compiles alone, as C11 and as C++.
set -euo pipefail
for header in include/*.h src/*/*.h; do
    path=${header#include/}
    echo "#include \"${path#src/}\"" | gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -Isrc -x c -fsyntax-only -
    echo "#include \"${path#src/}\"" | g++ -Wall -Wextra -Werror -Iinclude -Isrc -x c++ -fsyntax-only -
done
