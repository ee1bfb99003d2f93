# Functions for scripts that test a running server. Source it from the repository root, after tests/cli/claims.bash:
#
#   serve OPTION...       starts a server on a free port and waits until all workers are up; sets url and pid
#   serve_no_wait ...     starts a server without waiting for the workers
#   stop_server           stops it with SIGTERM; sets rc to its exit status
#   call PATH OPTION...   runs curl; sets status, writes the headers to $work/head and the body to $work/body
#   post PATH JSON ...    does the same with a JSON body
#   slow_tokens           prints the tokens of an answer that takes some tenths of a second with one pass for each token
#   header NAME           prints a header of the last response
#   member PATH           prints a member of the last response: member error.type
#
# The server's stderr goes to $work/log. A server that a claim starts is killed when the claim ends.
model=models/tiny-block

serve_no_wait() {
    rm -f "$work/log" # the log of an earlier server must not be taken for this one's
    touch "$work/log"
    "$UNMASK" serve --model "$model" --port 0 --threads 1 "$@" > "$work/serve.out" 2> "$work/log" &
    pid=$!
    trap 'kill -9 $pid 2> /dev/null || true' EXIT
    for _ in $(seq 600); do
        url=$(sed -nE 's/.*listening at (http:[^" ]+).*/\1/p' "$work/log")
        [ -z "$url" ] || return 0
        kill -0 $pid 2> /dev/null || break
        sleep 0.05
    done
    echo "the server does not listen"
    cat "$work/log"
    return 1
}

serve() {
    local n=1 worker
    serve_no_wait "$@"
    # With --in-process, all engines are in one worker.
    [[ " $* " == *' --in-process '* || " $* " != *' --data-parallel-size '* ]] ||
        n=$(sed -E 's/.* --data-parallel-size ([0-9]+).*/\1/' <<< " $*")
    for worker in $(seq 0 $((n - 1))); do wait_for "worker $worker is up" "$work/log"; done
    wait_for '[": ]ready' "$work/log"
}

stop_server() {
    kill -TERM $pid
    rc=0
    wait $pid || rc=$?
}

call() {
    local path=$1
    shift
    rm -f "$work/head" "$work/body"
    touch "$work/body"
    status=$(curl -sS -m 60 -D "$work/head" -o "$work/body" -w '%{http_code}' "$@" "$url$path")
    echo "$path: $status"
    head -c 1000 "$work/body"
    echo
}

post() {
    local path=$1 body=$2
    shift 2
    call "$path" -H 'Content-Type: application/json' -d "$body" "$@"
}

# A pass takes 1 ms on a processor with matrix units and 40 ms on an old one. Of three measurements the shortest counts:
# in the others the machine may have been busy.
slow_tokens() {
    for _ in 1 2 3; do
        curl -sS -m 100 -o "$work/null" -w '%{time_total}\n' -H 'Content-Type: application/json' -d '{"prompt": "One",
            "max_tokens": 16, "ignore_eos": true, "accept_threshold": 1}' "$url/v1/completions"
    done | awk '
        NR == 1 || $1 < least { least = $1 }
        END {
            n = int(0.3 * 16 / least)
            print (n < 16 ? 16 : n > 150 ? 150 : n)
        }'
}

header() { tr -d '\r' < "$work/head" | sed -nE "s/^$1: //Ip"; }
member() { jq -r ".$1" "$work/body"; }
