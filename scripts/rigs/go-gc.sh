#!/bin/bash
# Garbage collection of a Go server: GOGC=3 with some 28 MB of live pointers.
# causes: collector
# row: server.* is in its own code \((runtime|internal/runtime/gc)
# needs: go
. "$RIGS/lib.sh"
READY_S=1.5
investigate "env GOGC=$(pick 3 400) $WORK/collects server 127.0.0.1:18109" "" "$WORK/collects" client 127.0.0.1:18109
