#!/bin/bash
# Adds plugin, libraries and data to the programs of `make check-cuda`: tools/cuda_bundle.sh FOLDER PLUGIN TEST...
#
# FOLDER has the programs in bin/. It can then be copied to a machine with a driver and cuBLASLt: FOLDER/run.sh. The
# libraries of the system's C library are expected there; all others are copied.
set -euo pipefail
bundle=$1 plugin=$2
shift 2
limit=$((48 << 20))

# Prints the paths of the libraries that the programs need and the target may lack.
libraries() {
    { find "$bundle/bin" -type f -exec ldd {} +; ldd "$plugin"; } |
        awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|cuda|cublasLt))\.so[.0-9]*$'
}

find "$bundle" -mindepth 1 -maxdepth 1 ! -name bin -exec rm -rf {} +
mkdir -p "$bundle/lib"
libraries > "$bundle/libraries"
while read -r library; do cp -L "$library" "$bundle/lib/"; done < "$bundle/libraries"
rm "$bundle/libraries"
cp "$plugin" "$bundle/lib/"
strip "$bundle"/lib/*
tar -cJf "$bundle/data.tar.xz" build/data/golden build/data/families build/data/reference tests/data/oracle \
    models/tiny-block/*.json
printf '%s\n' "$@" > "$bundle/list"
cp tools/cuda_run.sh "$bundle/run.sh"

size=$(du -sb "$bundle" | cut -f 1)
echo "$bundle: $size bytes of at most $limit"
if [ "$size" -gt "$limit" ]; then
    du -ab "$bundle" | sort -rn | sed 20q >&2
    exit 1
fi
