#!/bin/bash
# The endpoint that docs/server.md shows compiles against the headers of the server.
set -euo pipefail
: "${BUILD:=build}"
awk '/^## / { in_section = /^## Add an endpoint/ }
     /^```/ { in_code = in_section && /^```c$/; next }
     in_code' docs/server.md > "$BUILD/endpoint.c"
[ -s "$BUILD/endpoint.c" ]
gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -Isrc -fsyntax-only "$BUILD/endpoint.c"
