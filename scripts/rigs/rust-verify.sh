#!/bin/bash
# The client's own code: each answer is checked 16 times (Rust, two threads, a UNIX socket).
# causes: own-code
# row: verify.* is in its own code \(verify::verify_records
. "$RIGS/lib.sh"
investigate "$WORK/blockd $WORK/blocks.sock" "--ready ready" "$WORK/verify" "$WORK/blocks.sock" "$(pick 16 0)"
