#!/bin/bash
# The server's UDP socket has a receive buffer of 2,304 bytes; datagrams come in bursts of 24 (asyncio).
# causes: udp-receive-buffer
# row: client.* sleeps in poll UDP
. "$RIGS/lib.sh"
investigate "python3 $RIGS/src/udpd.py 18112 $(pick 1 0)" "--ready ready" "$WORK/udpc" 18112
