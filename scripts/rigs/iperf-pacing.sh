#!/bin/bash
# The sender's socket is paced at 400 Mbit/s (SO_MAX_PACING_RATE).
# causes: pacing-limit
# row: client.* sleeps in
# needs: ip iperf3
. "$RIGS/lib.sh"
pair rig-pace-s rig-pace-c 14
cleanup() { unpair rig-pace-s rig-pace-c; }
FIGURE=json:end.sum_received.bits_per_second
# shellcheck disable=SC2046
investigate "ip netns exec rig-pace-s iperf3 -s --forceflush -B 10.91.14.1" "--ready listening" \
    ip netns exec rig-pace-c iperf3 -c 10.91.14.1 -t 1 -J $(pick '--fq-rate 400M' '')
