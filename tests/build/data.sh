#!/bin/bash
# tools/data.sh restores packed files unchanged and leaves plain files alone. make unpacks only changed archives.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

mkdir -p "$work/tools" "$work/tests/data/x" "$work/build/data/x/a"
cp tools/data.sh "$work/tools/"
echo plain | tee "$work/tests/data/x/plain" > "$work/build/data/x/plain"
head -c 100000 /dev/urandom > "$work/build/data/x/a/packed"
cp -R "$work/build/data/x" "$work/before"

"$work/tools/data.sh" pack x
names=$(tar -tf "$work/tests/data/x.tar.xz")
[ "$names" = a/packed ] || fail "the archive holds: $names"
touch "$work/build/data/x/stale"
tools/data.sh unpack "$work/tests/data/x" "$work/build/data/x"
diff -r "$work/before" "$work/build/data/x" || fail "files differ after packing and unpacking"
left=$(ls "$work/build/data")
[ "$left" = x ] || fail "unpacking leaves other folders behind: $left"

# A folder of another layout has single packed files and no archive.
echo single > "$work/tests/data/x/single"
xz "$work/tests/data/x/single"
rm "$work/tests/data/x.tar.xz"
tools/data.sh unpack "$work/tests/data/x" "$work/build/data/x"
[ "$(cat "$work/build/data/x/single")" = single ] || fail "a packed file of a folder is not unpacked"

if tools/data.sh unpack "$work/nowhere" "$work/build/data/x" 2> "$work/err"; then fail "a missing folder is accepted"; fi
grep -q 'nowhere.tar.xz are missing' "$work/err" || fail "the message: $(cat "$work/err")"
[ "$(cat "$work/build/data/x/plain")" = plain ] || fail "a failed run changed the folder"

# A broken archive leaves the folder unchanged.
head -c 60 /dev/urandom > "$work/tests/data/x.tar.xz"
if tools/data.sh unpack "$work/tests/data/x" "$work/build/data/x" 2> "$work/err"; then fail "a broken archive is accepted"; fi
[ "$(cat "$work/build/data/x/single")" = single ] || fail "a broken archive changed the folder"
left=$(ls "$work/build/data")
[ "$left" = x ] || fail "a failed run leaves other folders behind: $left"

for archive in tests/data/*.tar.xz; do
    name=$(basename "$archive" .tar.xz)
    # The tests are built, so the folder is newer than the archive.
    env -u MAKEFLAGS -u MAKELEVEL make -q "build/data/$name" || fail "make would unpack $archive once more"
done
