#!/bin/bash
# pkg-config prints exactly the flags that a program needs to compile and link with libunmask, shared and static.
set -euo pipefail
: "${BUILD:=build}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# An installation of the header, the libraries and unmask.pc.
mkdir -p "$dir/include" "$dir/lib/pkgconfig"
make -s "$dir/lib/pkgconfig/unmask.pc" BUILD="$dir/lib/pkgconfig" PREFIX="$dir" LIBDIR="$dir/lib"
cp include/unmask.h "$dir/include"
cp -P "$BUILD"/libunmask.* "$dir/lib"
export PKG_CONFIG_PATH=$dir/lib/pkgconfig

cflags=$(pkg-config --cflags unmask | xargs)
[ "$cflags" = "-I$dir/include" ] || fail "--cflags: expected -I$dir/include alone, found $cflags"
libs=$(pkg-config --libs unmask | xargs)
[ "$libs" = "-L$dir/lib -lunmask" ] || fail "--libs: expected -L$dir/lib -lunmask alone, found $libs"

# links_with FLAGS...: checks that hello.c compiles and links with these flags, and answers.
links_with() {
    # shellcheck disable=SC2086 -- CC may be two words
    ${CC:-gcc} ${SAN:+-fsanitize=$SAN} -std=c11 -Wall -Wextra -Werror -o "$dir/hello" examples/hello.c "$@"
    answer=$(LD_LIBRARY_PATH=$dir/lib "$dir/hello" models/tiny-block "What is 12 + 30?")
    [ "$answer" = "12 + 30 = 42." ] || fail "hello, linked with $*: $answer"
}
links_with $(pkg-config --cflags --libs unmask)
ldd "$dir/hello" > "$dir/needed"
grep -q libunmask.so "$dir/needed" || fail "hello does not load libunmask.so: $(cat "$dir/needed")"
rm "$dir"/lib/libunmask.so*
links_with $(pkg-config --static --cflags --libs unmask)
