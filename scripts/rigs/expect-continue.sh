#!/bin/bash
# Uploads with "Expect: 100-continue": the server (Node) never says 100, and the client (Go) waits 4 ms for it.
# causes: own-timer
# row: expectc.* sleeps in epoll_pwait until its time is over
# needs: node go
. "$RIGS/lib.sh"
READY_S=1
investigate "node $RIGS/src/upload.js 19112 $(pick 0 1)" "--ready ready" "$WORK/expectc" http://127.0.0.1:19112/
