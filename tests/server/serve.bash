# For scripts that test the running server. Sourced from the repository root behind tests/cli/claims.bash:
#
#   serve OPTION...      starts one on a free port and waits until a worker is up; sets url and pid
#   serve_no_wait ...    does not wait for the worker
#   stop_server          ends it with SIGTERM; its exit status is in rc
#   call ARGUMENT...     curl: status in status, headers in $work/head, body in $work/body
#   post PATH JSON       the same with a body
#   log                  what it wrote to stderr: $work/log
#
# A claim's server dies with the claim.
model=models/tiny-block

serve_no_wait() {
    rm -f "$work/log" # what an earlier server said must not be read as this one's words
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
    serve_no_wait "$@"
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

# The value of a header of the last answer.
header() { tr -d '\r' < "$work/head" | sed -nE "s/^$1: //Ip"; }
# A member of the last answer: member error.type
member() { jq -r ".$1" "$work/body"; }
