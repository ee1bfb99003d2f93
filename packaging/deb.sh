#!/bin/bash
# Builds the Debian package: packaging/deb.sh BUILD VERSION. `make deb` calls it.
#
# The package has the files of `make install`, the systemd unit, and its environment as a configuration file. The
# libraries on which it depends are those that dpkg-shlibdeps finds in the program. The package is the same for each
# build of a commit with the same compiler.
set -euo pipefail
build=$1 version=$2
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
    command -v "$tool" > /dev/null || { echo "$tool is missing; on Debian: apt-get install dpkg-dev" >&2; exit 1; }
done
arch=$(dpkg-architecture -qDEB_HOST_ARCH) multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
root=$build/deb/unmask
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}
maintainer="${DEBFULLNAME:-$(git log -1 --format=%cn 2> /dev/null || echo unmask)}"
maintainer+=" <${DEBEMAIL:-$(git log -1 --format=%ce 2> /dev/null || echo unmask@localhost)}>"
umask 022

rm -rf "$build/deb"
mkdir -p "$root/DEBIAN" "$build/deb/debian"
make -s install BUILD="$build" DESTDIR="$root" PREFIX=/usr LIBDIR="/usr/lib/$multiarch" ZSH_DIR=share/zsh/vendor-completions > /dev/null
make -s install-service DESTDIR="$root" PREFIX=/usr SYSTEMD_DIR=/usr/lib/systemd/system > /dev/null
install -D -m 600 packaging/unmask.env "$root/etc/unmask/unmask.env"
strip --remove-section=.comment --remove-section=.note "$root/usr/bin/unmask"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/lib/$multiarch"/libunmask.so.*.*
chmod 644 "$root/usr/lib/$multiarch"/libunmask.so.*.*
strip --strip-debug --enable-deterministic-archives "$root/usr/lib/$multiarch/libunmask.a"

doc=$root/usr/share/doc/unmask
install -m 644 packaging/copyright "$doc/copyright"
gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
{ printf 'unmask (%s-1) unstable; urgency=medium\n\n  * changelog.gz lists the changes.\n\n' "$version"
  printf ' -- %s  %s\n' "$maintainer" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")"; } | gzip -9nc > "$doc/changelog.Debian.gz"
gzip -9n "$root/usr/share/man/man1/unmask.1"
install -D -m 644 packaging/lintian-overrides "$root/usr/share/lintian/overrides/unmask"

# dpkg-shlibdeps reads the name of the package from debian/control.
printf 'Source: unmask\n\nPackage: unmask\nArchitecture: any\n' > "$build/deb/debian/control"
depends=$(cd "$build/deb" && dpkg-shlibdeps -O unmask/usr/bin/unmask unmask/usr/lib/*/libunmask.so.*.* 2> shlibdeps.log) ||
    { cat "$build/deb/shlibdeps.log" >&2; exit 1; }
cat > "$root/DEBIAN/control" <<END
Package: unmask
Version: $version-1
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f 1)
Depends: ${depends#shlibs:Depends=}
Section: science
Priority: optional
Description: runs and serves diffusion language models
 Such a model writes a block of text by unmasking many positions at once,
 instead of one token after another. unmask loads checkpoints of LLaDA, Dream,
 SDAR and other families from Hugging Face folders and GGUF files.
 .
 The package has the program with its server and web page, two small models to
 try it, a systemd unit, and the C library with its header.
END
echo /etc/unmask/unmask.env > "$root/DEBIAN/conffiles"
echo 'activate-noawait ldconfig' > "$root/DEBIAN/triggers"
echo "libunmask ${version%%.*} unmask (>= $version)" > "$root/DEBIAN/shlibs"
install -m 755 packaging/deb-postinst "$root/DEBIAN/postinst"
install -m 755 packaging/deb-prerm "$root/DEBIAN/prerm"
(cd "$root" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz -z0 --build "$root" "$build/unmask_$version-1_$arch.deb" > /dev/null
echo "$build/unmask_$version-1_$arch.deb"
