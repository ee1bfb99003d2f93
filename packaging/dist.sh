#!/bin/bash
# Packs the program, linked statically except for the C library, into an archive: packaging/dist.sh BUILD VERSION.
# `make dist` calls it.
#
# The archive has the program, the bundled models, the manual page, the completion, and the licences of the libraries
# that are linked into the program. It is the same for each build of a commit with the same compiler.
set -euo pipefail
build=$1 version=$2
name=unmask-$version-linux-$(uname -m)
root=$build/dist/$name
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}
umask 022

rm -rf "$root"
make -s install BUILD="$build" DESTDIR="$root" PREFIX= > /dev/null
rm -rf "$root/include" "$root/lib"
install "$build/dist/unmask" "$root/bin/unmask"
install -m 644 README.md LICENSE CHANGELOG.md "$root"

# Writes the licence of the package that holds the file $1, as licences/PACKAGE.
licence_of() {
    local package
    package=$(dpkg -S "$(realpath "$1")" 2> /dev/null) || package=$(dpkg -S "$1")
    package=${package%%:*}
    mkdir -p "$root/licences"
    cp -L "/usr/share/doc/$package/copyright" "$root/licences/$package"
}
command -v dpkg > /dev/null || { echo "dpkg is missing: make dist takes libraries and their licences from Debian" >&2; exit 1; }
# The map of the linker names the archives whose members are in the program.
sed -nE 's/^(\/[^ (]*\.a)\(.*/\1/p' "$build/dist/unmask.map" | sort -u | while read -r archive; do
    licence_of "$archive"
done
licence_of /usr/include/xxhash.h # its code is in the header

glibc=$(objdump -T "$build/dist/unmask" | sed -nE 's/.*\(?GLIBC_([0-9.]+).*/\1/p' | sort -uV | tail -n 1)
(cd "$build/dist" && find "$name" -print0) | LC_ALL=C sort -z |
    tar -C "$build/dist" --null --no-recursion --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -c -T - |
    gzip -6n > "$build/$name.tar.gz"
echo "$build/$name.tar.gz needs glibc $glibc or newer"
