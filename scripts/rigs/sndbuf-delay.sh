#!/bin/bash
# The sender has SO_SNDBUF of 16 KiB on a path of 10 ms there and back, a wire of TUN devices (Python to Perl).
# causes: send-buffer
# row: python3.* sleeps in send
# needs: ip perl
. "$RIGS/lib.sh"
for n in rig-buf-s rig-buf-c; do ip netns del $n 2>/dev/null; ip netns add $n; ip -n $n link set lo up; done
"$WORK/delayline" rig-buf-s rig-buf-c 5 >delayline.log 2>&1 &
WIRE=$!
cleanup() { stop $WIRE; unpair rig-buf-s rig-buf-c; }
sleep 0.3
ip -n rig-buf-s addr add 10.91.35.1/24 dev d0
ip -n rig-buf-c addr add 10.91.35.2/24 dev d0
for n in rig-buf-s rig-buf-c; do ip -n $n link set d0 txqueuelen 4096 up; done
investigate "ip netns exec rig-buf-s python3 $RIGS/src/stream.py 10.91.35.1 19115 $(pick 16384 0)" "--ready ready" \
    ip netns exec rig-buf-c perl "$RIGS/src/watch.pl" 10.91.35.1 19115
