#!/bin/bash
# COMMIT with fsync for each request (SQLite from Python).
# causes: own-disk
# row: server.* is blocked in f(data)?sync
. "$RIGS/lib.sh"
investigate "python3 $RIGS/src/orders.py 18104 $WORK/orders.db $(pick 1 1000)" "" python3 "$RIGS/src/ordersc.py" 18104 3
