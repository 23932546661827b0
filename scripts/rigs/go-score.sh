#!/bin/bash
# The server's own code: a hash of 2 KiB, 80 rounds for each request, four connections (Go).
# causes: own-code
# row: server.* is in its own code \(main\.scoreDocument
# needs: go
. "$RIGS/lib.sh"
investigate "$WORK/scores server 127.0.0.1:18101 $(pick 80 1)" "" "$WORK/scores" client 127.0.0.1:18101
