#!/bin/bash
# Every header compiles on its own, as C11 and as C++.
set -euo pipefail
for header in $(find include src -name "*.h" | sort); do
    path=${header#include/}
    echo "#include \"${path#src/}\"" | gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -Isrc -x c -fsyntax-only -
    echo "#include \"${path#src/}\"" | g++ -Wall -Wextra -Werror -Iinclude -Isrc -x c++ -fsyntax-only -
done
