#!/bin/bash
# A thread for each connection; a mutex is held while send() waits for a client that reads slowly, with rests of 2 ms.
# causes: own-lock
# row: client.* lock 0x
# needs: go
. "$RIGS/lib.sh"
investigate "$WORK/lockd 18103 $(pick 1 0)" "" "$WORK/slowreader" 127.0.0.1:18103
