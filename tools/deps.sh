#!/bin/bash
# Installs missing packages: tools/deps.sh build|test|bench|tools
#
#   build   compiler, pkg-config, libraries
#   test    build, and what `make check` needs
#   bench   build, oneDNN for `make bench-ops`, gnuplot for `make bench-tradeoffs`
#   tools   test, clang with its sanitizers and fuzzer, clang-format, compiler and emulator for 64-bit ARM
#
# The script looks for programs, libraries and headers, not for packages. So a system without apt-get works too if it
# has everything. The script prints nothing if nothing is missing.
set -euo pipefail

has() { command -v "$1" > /dev/null; }
has_daemon() { has "$1" || [ -x "/usr/sbin/$1" ]; }
library() { has pkg-config && pkg-config --exists "$1"; }
header() { has cc && printf '#include <%s>\n' "$1" | cc -E -x c - > /dev/null 2>&1; }
clang_runtime() { has clang && compgen -G "$(clang -print-resource-dir)/lib/linux/libclang_rt.fuzzer-*" > /dev/null; }
clang_format_14() { has clang-format-14 || { has clang-format && clang-format --version | grep -q 'version 14\.'; }; }
arm64_libc() { has aarch64-linux-gnu-gcc && [[ $(aarch64-linux-gnu-gcc -print-file-name=libc.a) = /* ]]; }
debian_python() { /usr/bin/python3 -c "import $1" 2> /dev/null; }
python_venv() { has python3 && python3 -c 'import ensurepip, venv' 2> /dev/null; }

# Prints the packages whose check fails. A row of the input has a package and its check.
missing() {
    while read -r package check; do
        if [ -n "$package" ] && ! $check; then echo "$package"; fi
    done
}

rows() {
    case $1 in
    build) cat <<-'END'
		build-essential has cc
		build-essential has g++
		pkgconf has pkg-config
		libedit-dev library libedit
		libevent-dev library libevent_core
		libjansson-dev library jansson
		libpcre2-dev library libpcre2-8
		libsodium-dev library libsodium
		libutf8proc-dev library libutf8proc
		libxxhash-dev library libxxhash
		libyaml-dev library yaml-0.1
		libzmq3-dev library libzmq
		libzstd-dev library libzstd
		zlib1g-dev library zlib
	END
        ;;
    test) rows build && cat <<-'END'
		caddy has caddy
		chromium has chromium
		chromium-driver has chromedriver
		curl has curl
		fish has fish
		gnuplot-nox has gnuplot
		jq has jq
		libcmocka-dev library cmocka
		nginx-light has_daemon nginx
		procps has pgrep
		python3-jsonschema debian_python jsonschema
		python3-lark debian_python lark
		python3-venv python_venv
		xz-utils has xz
		zsh has zsh
	END
        ;;
    bench) rows build && cat <<-'END'
		gnuplot-nox has gnuplot
		libdnnl-dev header dnnl.h
	END
        ;;
    tools) rows test && cat <<-'END'
		clang has clang
		libclang-rt-14-dev clang_runtime
		clang-format-14 clang_format_14
		gcc-aarch64-linux-gnu has aarch64-linux-gnu-gcc
		libc6-dev-arm64-cross arm64_libc
		qemu-user-static has qemu-aarch64-static
	END
        ;;
    *) echo "usage: tools/deps.sh build|test|bench|tools" >&2 && return 2 ;;
    esac
}

table=$(rows "${1:-}")
packages=$(missing <<< "$table" | sort -u | xargs)
[ -n "$packages" ] || exit 0

sudo=
if ! has apt-get; then
    echo "missing: $packages (names of Debian packages); install them, perhaps under other names" >&2
    exit 1
elif [ "$(id -u)" != 0 ]; then
    has sudo || { echo "missing: $packages; as root: apt-get install $packages" >&2; exit 1; }
    sudo=sudo
fi

echo "installing: $packages" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages > /dev/null
# Tests start Caddy and nginx themselves. The services of the packages would take port 80.
for package in $packages; do
    [ -d /run/systemd/system ] || break
    case $package in caddy | nginx-light) $sudo systemctl disable --quiet --now "${package%-light}" ;; esac
done

packages=$(missing <<< "$table" | sort -u | xargs)
[ -z "$packages" ] || { echo "installed, but still not found: $packages" >&2; exit 1; }
