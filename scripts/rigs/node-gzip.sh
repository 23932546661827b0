#!/bin/bash
# Each answer is compressed anew, by the worker threads of libuv (Node).
# causes: own-code
# row: node.* is in its own code \((longest_match|deflate)
# needs: node go
. "$RIGS/lib.sh"
READY_S=1
investigate "node $RIGS/src/press.js 19102 $(pick 1 0)" "--ready ready" "$WORK/webc" http://127.0.0.1:19102/ 4
