#!/bin/bash
# The back end behind haproxy answers after 8 ms, by a timer (Node); the laboratory is not told of it.
# causes: own-timer
# row: node.*for which haproxy.*sleeps in epoll_pwait
# needs: haproxy node
. "$RIGS/lib.sh"
node "$RIGS/src/backend.js" 18155 "$(pick 8 0)" >backend.log 2>&1 &
BACKEND=$!
cleanup() { stop $BACKEND; }
sleep 0.5
investigate "haproxy -db -f $RIGS/conf/haproxy.cfg" "" python3 "$RIGS/src/httpc.py" 18105 4
