#!/bin/bash
# listen() with a backlog of 1, a process for each connection, the client closes first (C).
# causes: listen-overflow
# row: shortc.* sleeps in connect
. "$RIGS/lib.sh"
investigate "$WORK/inetd 19116 $(pick 1 128)" "--ready ready" "$WORK/shortc" 19116 16 "time"
