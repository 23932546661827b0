#!/bin/bash
# A line of the log for each request goes into a pipe, whose reader, a child, rests 10 ms for each 4 KiB.
# causes: own-timer
# row: python3.*for which logd.*sleeps in clock_nanosleep
. "$RIGS/lib.sh"
investigate "$WORK/logd 18113 python3 $RIGS/src/logger.py $(pick 10 0)" "--ready ready" "$WORK/linec" 127.0.0.1 18113 3 "GET /"
