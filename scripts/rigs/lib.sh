# What all rigs have in common; each sources it. `run` sets RIGS (this folder), WORK (programs, and what a run leaves),
# MODE (cause or healthy) and INVESTIGATE (the words that begin an investigation).
cd "$WORK" || exit 1
cleanup() { :; }
trap 'cleanup' EXIT
trap 'exit 130' INT TERM
FIGURE='rate=([0-9.]+)'

# pick CAUSE HEALTHY: what this run is to have.
pick() { if [ "$MODE" = healthy ]; then printf %s "$2"; else printf %s "$1"; fi; }

stop() { kill "$1" 2>/dev/null && wait "$1" 2>/dev/null; return 0; }

# pair A B K: network namespaces A (10.91.K.1) and B (10.91.K.2), joined by a veth pair.
pair() {
    unpair "$1" "$2"
    ip netns add "$1" && ip netns add "$2" || return 1
    ip link add v0 netns "$1" type veth peer name v0 netns "$2"
    ip -n "$1" addr add "10.91.$3.1/24" dev v0
    ip -n "$2" addr add "10.91.$3.2/24" dev v0
    for n in "$1" "$2"; do ip -n "$n" link set lo up; ip -n "$n" link set v0 up; done
}
unpair() { ip netns del "$1" 2>/dev/null; ip netns del "$2" 2>/dev/null; }

# quota NAME US: a control group of this name, whose processes have a CPU for US of each 50,000 us (-1: without a limit).
quota() {
    GROUP=/sys/fs/cgroup/$1
    [ -d /sys/fs/cgroup/cpu ] && GROUP=/sys/fs/cgroup/cpu/$1
    mkdir -p "$GROUP" || return 1
    if [ -e "$GROUP/cpu.max" ]; then
        echo "$([ "$2" = -1 ] && echo max || echo "$2") 50000" >"$GROUP/cpu.max"
    else
        echo 50000 >"$GROUP/cpu.cfs_period_us" && echo "$2" >"$GROUP/cpu.cfs_quota_us"
    fi
}

# investigate "SERVER WORDS" "OPTIONS" CLIENT...: with HAND=1 three runs of the client by hand, without the laboratory.
investigate() {
    local server=$1 options=$2 process
    shift 2
    if [ -n "$HAND" ]; then
        eval "exec $server" >server.log 2>&1 &
        process=$!
        sleep "${READY_S:-0.6}"
        for _ in 1 2 3; do "$@"; done
        stop $process
        return
    fi
    # Options are words without blanks.
    # shellcheck disable=SC2086
    $INVESTIGATE --figure "$FIGURE" $options --server "$server" -- "$@"
}
