#!/bin/bash
# Runs the jobs of docs/cluster.md on a cluster of Slurm with three nodes: tests/soak/slurm.sh BUILD
#
# The first job is a server of two ranks on two nodes. In the end one rank is killed. The second job is that of Ray.
#
# Each node is a set of namespaces of this machine, with a name, an address, processes and files in /tmp/ray of its own,
# in which slurmd runs. The script must run as root and needs the packages slurm-wlm, munge and iproute2. The whole
# cluster is inside namespaces of the script, so nothing outlives it, and no port of the machine is taken.
set -euo pipefail
build=${1:-build}
if [ -z "${UM_SLURM_INSIDE:-}" ]; then
    for program in slurmctld slurmd munged sbatch ip unshare; do
        PATH=$PATH:/usr/sbin command -v $program > /dev/null || { echo "$program is missing: apt-get install slurm-wlm munge iproute2"; exit 1; }
    done
    [ "$(id -u)" = 0 ] || { echo "only root can make the namespaces of the nodes"; exit 1; }
    packaging/wheel.sh "$build" > "$build/wheel.log" 2>&1 || { cat "$build/wheel.log" >&2; exit 1; }
    python=$(tools/python.sh "${build%%/*}" tests/soak/ray/requirements.txt)
    "$python" -m pip install --quiet --disable-pip-version-check "cffi>=1.15" "numpy>=1.21"
    "$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$build"/wheel/*.whl
    work=$(mktemp -d /var/tmp/unmask-slurm.XXXXXX)
    trap 'rm -rf "$work"' EXIT
    export UM_SLURM_INSIDE=$work PATH=${python%/*}:$PATH:/usr/sbin RAY_USAGE_STATS_ENABLED=0
    timeout 900 unshare --net --uts --ipc --mount --pid --fork --mount-proc --kill-child "$0" "$build"
    exit
fi

work=$UM_SLURM_INSIDE
export SLURM_CONF=$work/slurm.conf
chmod 755 "$work"
mkdir -p "$work/state" "$work/spool" "$work/munge" /tmp/ray
chmod 700 "$work/munge"

hostname controller
printf '%s\n' '127.0.0.1 localhost' '10.213.0.254 controller' '10.213.0.1 node1' '10.213.0.2 node2' '10.213.0.3 node3' \
    > "$work/hosts"
mount --bind "$work/hosts" /etc/hosts
# No server of names can be reached from here, and waiting for one would take longer than Ray waits.
mount --bind /dev/null /etc/resolv.conf
ip link set lo up
ip link add bridge type bridge
ip address add 10.213.0.254/24 dev bridge
ip link set bridge up

cat > "$SLURM_CONF" << EOF
ClusterName=test
SlurmctldHost=controller(10.213.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/controller.pid
SlurmdPidFile=$work/%n.pid
SlurmctldLogFile=$work/controller.log
SlurmdLogFile=$work/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=node[1-3] NodeAddr=10.213.0.[1-3] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF

head -c 128 /dev/urandom > "$work/munge/key"
chmod 400 "$work/munge/key"
munged --force --key-file="$work/munge/key" --socket="$work/munge.socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed"
slurmctld -D 2> /dev/null &

# Begins with the interface that the controller moves into its network.
start_node='
    hostname "$1"
    mount -t tmpfs tmpfs /tmp/ray
    mount -t tmpfs tmpfs /dev/shm
    until ip link set eth0 up 2> /dev/null; do sleep 0.1; done
    ip link set lo up
    ip address add "10.213.0.${1#node}/24" dev eth0
    ip route add default via 10.213.0.254
    slurmd -D -N "$1" 2> /dev/null & wait'
for i in 1 2 3; do
    unshare --net --uts --ipc --mount --pid --fork --mount-proc --kill-child bash -c "$start_node" node "node$i" &
    ip link add "port$i" type veth peer name "end$i"
    ip link set "port$i" master bridge up
    until child=$(pgrep -P $!); do sleep 0.1; done
    ip link set "end$i" netns "$child" name eth0
done
for _ in $(seq 300); do
    [ "$(sinfo -h -t idle -o %D 2> /dev/null)" != 3 ] || break
    sleep 0.1
done
sinfo

export PATH=$PWD/$build:$PATH
cd "$work"
page=$OLDPWD/docs/cluster.md
# The block of the page that begins with the line $1 and contains $2.
block() {
    awk -v first="$1" -v word="${2:-}" '
        /^```/ { if (text != "" && index(text, word)) printf "%s", text; text = ""; fence = 1; next }
        fence { inside = $0 == first }
        inside { text = text $0 "\n" }
        { fence = 0 }' "$page"
}
# Submits the file `job` and sets id. The job writes to the file `out`.
submit() { id=$(sbatch --parsable --output="$work/out" job); }
wait_for_end() {
    while squeue -h -j "$id" 2> /dev/null | grep -q .; do sleep 1; done
    scontrol show job "$id" | grep -E 'JobState|NodeList|RunTime|NumCPUs'
}
fail() {
    echo "$1"
    cat out
    tail -n 20 "$work"/*.log
    exit 1
}
ask() {
    curl -sf http://node1:8000/v1/chat/completions -H 'Content-Type: application/json' \
        -d '{"messages": [{"role": "user", "content": "What is 12 + 30?"}]}'
}

block '#!/bin/bash' 'unmask serve' | sed "s|/models/SDAR-8B-Chat|$OLDPWD/models/tiny-block|
    s/--cpus-per-task=32/--cpus-per-task=1/; s/--threads 32/--threads 1/" > job
submit
for _ in $(seq 300); do
    ! curl -sf http://node1:8000/health > /dev/null || break
    sleep 0.1
done
ask | grep -q '12 + 30 = 42' || fail 'the server of two ranks did not answer'
[ "$(squeue -h -j "$id" -o %N)" = 'node[1-2]' ] || fail 'the ranks do not run on two nodes'
echo 'the server of two ranks answered on two nodes of Slurm'
srun --jobid="$id" --overlap --nodelist=node2 --ntasks=1 pkill -KILL -x unmask || true
wait_for_end
grep -q 'node2: task 1: Killed' out && scontrol show job "$id" | grep -q JobState=FAILED ||
    fail 'the job did not fail with the rank that was killed'
echo 'the job failed with the rank that was killed'

block '#!/bin/bash' symmetric-run | sed 's/--cpus-per-task=32/--cpus-per-task=2/' > job
{
    printf '%s\n' 'import ray' 'ray.init(address="auto")'
    echo 'print(len([node for node in ray.nodes() if node["Alive"]]), "nodes")'
    block 'import ray'
} > driver.py
submit
wait_for_end
answers='10 10 + 30 = 40. None'
if ! grep -qx '3 nodes' out || [ "$(grep '^1[0-2] ' out)" != "$(block "$answers")" ] ||
    ! scontrol show job "$id" | grep -q JobState=COMPLETED; then
    fail "the job of Ray did not print what the page shows"
fi
echo "the job of docs/cluster.md ran on three nodes of Slurm and printed what the page shows"
