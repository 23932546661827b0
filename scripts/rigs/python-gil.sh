#!/bin/bash
# A thread of the server holds the interpreter's lock for 20 ms at a time; a UNIX socket (Python). By chance some runs are fast.
# causes: own-lock
# row: python3.* lock 0x
. "$RIGS/lib.sh"
investigate "python3 $RIGS/src/cards.py $WORK/cards.sock $(pick 1 0)" "--ready ready" "$WORK/fanc" "$WORK/cards.sock" 1 "card"
