#!/bin/bash
# Eight threads of the client share a pool of one connection (healthy: eight); the server answers after 2 ms in both (Rust).
# causes: own-lock
# row: client.* lock 0x
. "$RIGS/lib.sh"
investigate "python3 $RIGS/src/stock.py 19106" "--ready ready" "$WORK/pool" 127.0.0.1:19106 "$(pick 1 8)"
