#!/bin/bash
# A token bucket of 16 answers each 4 ms, by a time-out of io_uring. A decoy: two packets a second are lost, in both modes.
# causes: own-timer
# row: tollgate.* sleeps in io_uring_enter
# needs: ip nft
. "$RIGS/lib.sh"
pair rig-uring-s rig-uring-c 27
cleanup() { unpair rig-uring-s rig-uring-c; }
nft() { ip netns exec rig-uring-c nft "$@"; }
nft add table ip rig
nft add chain ip rig arriving '{ type filter hook input priority 0; }'
nft add rule ip rig arriving tcp sport 19107 ip length 54-80 limit rate 2/second burst 1 packets counter drop
investigate "ip netns exec rig-uring-s $WORK/tollgate 10.91.27.1 19107 $(pick 1 0)" "--ready ready" \
    ip netns exec rig-uring-c "$WORK/fanc" 10.91.27.1:19107 8 "pass"
