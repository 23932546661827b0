#!/bin/bash
# Header and body by two writes without TCP_NODELAY, beside a delayed ACK; the client in a PID namespace.
# causes: delayed-ack
# row: client.* sleeps in recvfrom
. "$RIGS/lib.sh"
investigate "$WORK/nagle server 127.0.0.1:18108" "" \
    unshare -p -f --mount-proc --kill-child "$WORK/nagle" client 127.0.0.1:18108 "$(pick 0 1)"
