#!/bin/bash
# The server's interface has a queueing discipline of 200 Mbit/s; files of 64 KiB, four kept connections.
# causes: qdisc-rate
# row: webc.* sleeps in epoll_pwait
# needs: ip tc nginx go
. "$RIGS/lib.sh"
pair rig-tbf-s rig-tbf-c 28
cleanup() { unpair rig-tbf-s rig-tbf-c; }
mkdir -p www
[ -s www/block ] || head -c 65536 /dev/urandom >www/block
cp "$RIGS/conf/nginx-tbf.conf" .
# shellcheck disable=SC2046
ip netns exec rig-tbf-s tc qdisc add dev v0 root $(pick "tbf rate 200mbit burst 64k latency 50ms" "pfifo limit 1000")
investigate "ip netns exec rig-tbf-s nginx -p $WORK -c $WORK/nginx-tbf.conf -e $WORK/nginx.err" "" \
    ip netns exec rig-tbf-c "$WORK/webc" http://10.91.28.1:19117/block 4
