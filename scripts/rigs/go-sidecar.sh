#!/bin/bash
# A web server in Go asks a program beside it over a UNIX socket, which computes long; the laboratory is not told of that one.
# causes: own-code
# row: sidecar.*, for which shop.* is in its own code
# needs: go
. "$RIGS/lib.sh"
"$WORK/sidecar" "$WORK/side.sock" "$(pick 400 1)" >sidecar.log 2>&1 &
SIDECAR=$!
cleanup() { stop $SIDECAR; }
sleep 0.3
investigate "$WORK/shop 127.0.0.1:19105 $WORK/side.sock" "--ready ready" "$WORK/webc" http://127.0.0.1:19105/ 4
