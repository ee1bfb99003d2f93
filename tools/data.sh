#!/bin/bash
# Packs and unpacks the recordings and vocabularies that the tests read:
#
#   tools/data.sh unpack SOURCE TARGET   makes the folder TARGET from the folder SOURCE and the archive SOURCE.tar.xz.
#                                        One of them may be missing. Unpacks .xz files of the folder too
#   tools/data.sh pack NAME              makes the archive tests/data/NAME.tar.xz from the folder build/data/NAME, without
#                                        the files that are also in tests/data/NAME
#
# `make` unpacks tests/data/NAME into build/data/NAME when a file of tests/data/NAME is newer. TARGET is replaced as a
# whole by a rename, so an interrupted run leaves no half-filled folder.
set -euo pipefail
command -v xz > /dev/null || { echo "xz is missing; run: make deps" >&2; exit 1; }

unpack() {
    local source=$1 target=$2
    mkdir -p "$(dirname "$target")"
    new=$(mktemp -d "$target.XXXXXX") # not local: the trap reads it after this function has returned
    trap 'rm -rf "$new" "$new.old"' EXIT
    if [ -d "$source" ]; then cp -R "$source/." "$new"; fi
    find "$new" -name '*.xz' -exec xz -d {} +
    if [ -e "$source.tar.xz" ]; then tar -xJmf "$source.tar.xz" -C "$new"; fi
    [ -n "$(ls "$new")" ] || { echo "$source and $source.tar.xz are missing" >&2; return 1; }
    chmod 755 "$new"
    if [ -e "$target" ]; then mv -T "$target" "$new.old"; fi
    mv -T "$new" "$target"
    touch "$target"
}

# packed_files FOLDER PLAIN: prints the files of FOLDER that are not also in PLAIN. It puts files of the same name next
# to each other, because they share most of their bytes and then compress better.
packed_files() {
    (cd "$1" && find . -type f -printf '%f\t%P\n') | sort | cut -f 2 | while read -r file; do
        if [ ! -e "$2/$file" ]; then echo "$file"; fi
    done
}

# Compresses standard input with the better of two settings: the usual one suits text, the other suits numbers of four
# bytes, which begin at multiples of four.
compress() {
    local work
    work=$(mktemp -d)
    tee "$work/input" | xz -9e -T1 > "$work/text"
    xz -T1 --lzma2=preset=9e,lc=2,lp=2,pb=2 < "$work/input" > "$work/numbers"
    cat "$(ls -S "$work/text" "$work/numbers" | tail -n 1)"
    rm -r "$work"
}

pack() {
    local folder=build/data/$1 archive=tests/data/$1.tar.xz
    packed_files "$folder" "tests/data/$1" |
        tar -c -C "$folder" -T - --format=ustar --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r |
        compress > "$archive.new"
    mv "$archive.new" "$archive"
}

case "${1:-} $#" in
"unpack 3") unpack "$2" "$3" ;;
"pack 2") cd "$(dirname "$0")/.." && pack "$2" ;;
*) sed -n 's/^#   //p' "$0" >&2 && exit 2 ;;
esac
