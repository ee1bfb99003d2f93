# A server for the scripts of this folder, which set `unmask` to the program. Makes the folder $work, and removes it and
# ends the server when the script ends.
#
#   serve OPTION...       starts a server on a free port and waits until a worker is up; sets url and server, its process
work=$(mktemp -d)
server=
trap 'kill "$server" 2> /dev/null || true; rm -rf "$work"' EXIT

serve() {
    "$unmask" serve --port 0 "$@" > /dev/null 2> "$work/log" &
    server=$!
    for _ in $(seq 600); do
        if grep -q '^unmask: ready$' "$work/log"; then break; fi
        kill -0 "$server" || { cat "$work/log" >&2; exit 1; }
        sleep 0.1
    done
    url=$(sed -n 's/.*listening at //p' "$work/log")
}
