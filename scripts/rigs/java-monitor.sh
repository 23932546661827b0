#!/bin/bash
# A synchronized method that waits for 1 ms inside, for 16 connections of a thread each (Java); healthy waits outside the lock.
# causes: own-lock
# row: java.* lock 0x
# needs: javac java
. "$RIGS/lib.sh"
READY_S=1.5
investigate "java -Xshare:auto -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp $WORK Ledger 19101 $(pick 1 0)" "--ready ready" \
    "$WORK/fanc" 127.0.0.1:19101 16 "post 5"
