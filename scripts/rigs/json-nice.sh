#!/bin/bash
# The client decodes 128 KiB of JSON for each answer (Python, nginx). A decoy: two busy neighbours of low priority, in both modes.
# causes: own-code
# row: python3.* is in its own code
# needs: nginx
. "$RIGS/lib.sh"
mkdir -p www
[ -s www/catalog.json ] || python3 "$RIGS/src/mkcatalog.py" >www/catalog.json
cp "$RIGS/conf/nginx-catalog.conf" .
for _ in 1 2; do nice -n 19 "$RIGS/src/spin" & SPINS="$SPINS $!"; done
cleanup() { for spin in $SPINS; do stop "$spin"; done; }
investigate "nginx -p $WORK -c $WORK/nginx-catalog.conf -e $WORK/nginx.err" "" python3 "$RIGS/src/catalog.py" 19109 "$(pick 1 0)"
