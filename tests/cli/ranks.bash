# Functions for scripts that start the ranks of a model as processes. Source it after tests/cli/claims.bash:
#
#   new_port              sets port to a TCP port at which nobody listens
#   follow RANK OPTION... starts `unmask worker` as a rank; its process is follower[RANK], its stderr $work/rankRANK.
#                         The group has $nodes ranks, or 2
#   followers_end         waits for all of them; fails when one fails
declare -A follower=()

new_port() {
    port=$((20000 + RANDOM % 10000))
    while (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do port=$((20000 + RANDOM % 10000)); done
}

follow() {
    local rank=$1
    shift
    "$UNMASK" worker --model models/tiny-block --threads 1 --nnodes "${nodes:-2}" --master-port "$port" \
        --distributed-timeout-seconds 20 --rank "$rank" "$@" > "$work/rank$rank.out" 2> "$work/rank$rank" &
    follower[$rank]=$!
}

followers_end() {
    local rank
    for rank in "${!follower[@]}"; do wait "${follower[$rank]}" || { cat "$work/rank$rank"; return 1; }; done
    follower=()
}
