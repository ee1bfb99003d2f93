#!/bin/bash
# The shared library exports exactly the functions of unmask.h.
set -euo pipefail
declared=$(grep -o 'UM_API [^(]*(' include/unmask.h | grep -o 'um_[a-z_]*($' | tr -d '(' | sort)
exported=$(nm -D --defined-only "$BUILD/libunmask.so" | awk '$3 !~ /^__/ { print $3 }' | sort)
[ -n "$declared" ]
diff <(echo "$declared") <(echo "$exported")
