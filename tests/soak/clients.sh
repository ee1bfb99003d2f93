#!/bin/bash
# Drives a server with clients from PyPI: tests/soak/clients.sh BUILD [NAME...]
#
# Each tests/clients/NAME_client.py gets a virtual environment of its own with the packages of its lines "# pip:". The
# environments are in a temporary folder, or in the folder CLIENTS, which keeps them for the next time. One server
# answers all clients. In the scripts http://127.0.0.1:8000 stands for its address.
set -euo pipefail
unmask=${1:-build}/unmask
shift || true
for name; do
    [ -f "tests/clients/${name}_client.py" ] || { echo "$name: expected the NAME of a tests/clients/NAME_client.py"; exit 2; }
done
source tests/soak/server.bash
venvs=$(realpath -m "${CLIENTS:-$work/venvs}")
mkdir -p "$venvs" "$work/home"

serve --model models/tiny-block --dtype float32 --tool-call-parser hermes --state-dir "$work/state"

# install NAME SCRIPT: makes the environment, unless it is there with the same packages.
install() {
    local venv=$venvs/$1 line
    sed -n 's/^# pip: //p' "$2" > "$work/pip"
    if cmp -s "$work/pip" "$venv/pip"; then return; fi
    rm -rf "$venv"
    python3 -m venv "$venv"
    while read -r line; do
        "$venv/bin/pip" install --quiet --disable-pip-version-check $line || return 1
    done < "$work/pip"
    cp "$work/pip" "$venv/pip"
}

failed=0
for script in tests/clients/*_client.py; do
    name=$(basename "$script" _client.py)
    [ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
    echo "---- $name"
    if ! install "$name" "$script"; then
        echo "not ok - $name can't be installed"
        failed=1
        continue
    fi
    mkdir -p "$work/$name"
    sed "s|http://127.0.0.1:8000|$url|g" "$script" > "$work/$name/$(basename "$script")"
    (cd "$work/$name" && HOME=$work/home PATH=$venvs/$name/bin:$PATH PYTHONPATH=$OLDPWD/tests/clients \
        timeout 600 python "$(basename "$script")" > "$work/out" 2> "$work/err") || { tail -n 40 "$work/err"; failed=1; }
    cat "$work/out"
    grep -q '^[1-9][0-9]* passed, 0 failed$' "$work/out" || { echo "not ok - $name"; failed=1; }
    [ -n "${CLIENTS:-}" ] || rm -rf "${venvs:?}/$name" # all together have nearly 4 GB
done
exit $failed
