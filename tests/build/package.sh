#!/bin/bash
# The Debian package of `make deb` and the archive of `make dist` have all files and run. The Dockerfile installs the
# package.
source tests/cli/claims.bash
BUILD=${BUILD:-build}

claims_begin

deb_names_the_libraries_of_its_program() {
    local library package
    dpkg-deb -f "$deb" Depends | tr ',' '\n' | awk '{ print $1 }' > "$work/depends"
    objdump -p "$work/deb/usr/bin/unmask" | awk '$1 == "NEEDED" && $2 !~ /^ld-/ { print $2 }' > "$work/needed"
    [ "$(wc -l < "$work/needed")" -ge 6 ]
    while read -r library; do
        library=$(ldd "$work/deb/usr/bin/unmask" | awk -v name="$library" '$1 == name { print $3 }')
        # dpkg knows a library as /usr/lib/... or /lib/..., which are the same folder.
        library=$(realpath "$library")
        package=$(dpkg -S "$library" 2> /dev/null || dpkg -S "${library#/usr}")
        package=${package%%:*}
        grep -qx "$package" "$work/depends" || { echo "$package is missing"; return 1; }
    done < "$work/needed"
}
deb_has_every_file_in_its_place() {
    local file files
    files="usr/bin/unmask usr/include/unmask.h usr/share/man/man1/unmask.1.gz usr/share/doc/unmask/copyright
        usr/share/doc/unmask/changelog.gz usr/share/doc/unmask/changelog.Debian.gz usr/share/doc/unmask/server.md
        usr/share/bash-completion/completions/unmask usr/share/zsh/vendor-completions/_unmask
        usr/share/fish/vendor_completions.d/unmask.fish usr/lib/systemd/system/unmask.service
        usr/share/unmask/models/eval.jsonl usr/share/unmask/models/tiny-full/model.safetensors"
    for file in $files; do [ -s "$work/deb/$file" ] || { echo "$file is missing"; return 1; }; done
    [ "$(dpkg-deb -I "$deb" conffiles)" = /etc/unmask/unmask.env ]
    dpkg-deb -c "$deb" > "$work/files"
    grep -q '^-rw------- root/root .* \./etc/unmask/unmask\.env$' "$work/files"
    not grep -v ' root/root ' "$work/files"
    (cd "$work/deb" && dpkg-deb -I "$deb" md5sums | md5sum --check --quiet)
}
deb_and_program_have_the_same_version() {
    [ "$(dpkg-deb -f "$deb" Version)" = "$version-1" ]
    grep -q "^unmask $version " <<< "$("$work/deb/usr/bin/unmask" --version)"
    PKG_CONFIG_PATH=$(echo "$work"/deb/usr/lib/*/pkgconfig) pkg-config --exact-version="$version" unmask
}
program_of_deb_answers() {
    cd "$work"
    [ "$(env -i deb/usr/bin/unmask run --model tiny-block 'What is 12 + 30?')" = '12 + 30 = 42.' ]
}
unit_of_deb_is_valid() {
    command -v systemd-analyze > /dev/null || skip "systemd-analyze is not installed: apt-get install systemd"
    # The program is not installed in /usr/bin.
    sed "s#=/usr/bin/unmask#=$work/deb/usr/bin/unmask#" "$work/deb/usr/lib/systemd/system/unmask.service" > "$work/unmask.service"
    grep -qx "ExecStart=$work/deb/usr/bin/unmask serve" "$work/unmask.service"
    systemd-analyze verify --man=no "$work/unmask.service" > "$work/out" 2>&1 || { cat "$work/out"; return 1; }
    not grep -F unmask.service "$work/out"
}
lintian_finds_nothing_in_deb() {
    command -v lintian > /dev/null || skip "lintian is not installed: apt-get install lintian"
    lintian --allow-root --fail-on error,warning "$deb"
}
image_installs_deb() {
    # The steps of the Dockerfile: the command of the first stage made $deb, and the second stage installs it with apt-get.
    grep -qx 'RUN make deb' packaging/Dockerfile
    grep -q 'apt-get install -y --no-install-recommends /deb/unmask_\*\.deb ' packaging/Dockerfile
    command -v apt-get > /dev/null || skip "apt-get is not installed"
    apt-get install --simulate -y --no-install-recommends "$deb" > "$work/out"
    grep -q '^Inst unmask ' "$work/out"
}
archive_is_sorted_and_owned_by_root() {
    tar --numeric-owner --full-time -tvzf "$archive" > "$work/list"
    not grep -v ' 0/0 ' "$work/list"
    [ "$(awk '{ print $4, $5 }' "$work/list" | sort -u | wc -l)" = 1 ]
    awk '{ sub("/$", "", $6); print $6 }' "$work/list" | LC_ALL=C sort --check
}
program_of_archive_needs_the_c_library_alone() {
    objdump -p "$work/$folder/bin/unmask" | awk '$1 == "NEEDED" { print $2 }' | sort > "$work/needed"
    diff <(printf '%s\n' libc.so.6 libm.so.6) <(grep -v '^ld-linux' "$work/needed")
}
archive_has_the_licences_of_linked_libraries() {
    local library
    [ -s "$work/$folder/LICENSE" ]
    for library in libevent jansson pcre2 sodium stdc++ utf8proc xxhash yaml zmq bsd; do
        ls "$work/$folder"/licences/*"$library"* | xargs grep -qi copyright
    done
}
program_of_archive_answers_and_serves() {
    cd "$work"
    [ "$(env -i "$folder/bin/unmask" run --model tiny-block 'What is 12 + 30?')" = '12 + 30 = 42.' ]
    local address=
    # The server and its worker are processes, which talk through ZeroMQ.
    env -i TMPDIR="$work" "$folder/bin/unmask" serve --model tiny-block --port 0 --state-dir "$work/state" > "$work/serve" 2>&1 &
    server=$!
    trap 'kill $server; wait $server || true' EXIT
    wait_for 'http://[0-9.]*:[0-9]' "$work/serve"
    address=$(grep -oE 'http://[0-9.]+:[0-9]+' "$work/serve" | head -n 1)
    for _ in $(seq 300); do
        if "$folder/bin/unmask" health "$address" --quiet; then break; fi
        sleep 0.1
    done
    [ "$("$folder/bin/unmask" run --url "$address" 'What is 12 + 30?')" = '12 + 30 = 42.' ]
}

if ! command -v dpkg-deb > /dev/null; then
    echo "not ok 1 # SKIP dpkg-deb is not installed, so no package was built"
    echo 1..1
    exit 0
fi
version=$("$UNMASK" --version | sed -nE 's/^unmask ([0-9.]+).*/\1/p')
# tests/python/package.sh makes the archive, too.
exec 9> "$BUILD/packages.lock"
flock 9
deb=$(realpath "$(make -s deb BUILD="$BUILD" 2> /dev/null | tail -n 1)")
archive=$(realpath "$(make -s dist BUILD="$BUILD" 2> /dev/null | tail -n 1 | cut -d ' ' -f 1)")
folder=$(basename "$archive" .tar.gz)
dpkg-deb -x "$deb" "$work/deb"
tar -C "$work" -xzf "$archive"
exec 9>&-
claims_all
