#!/bin/bash
# A TLS server in Go has one CPU together with three busy neighbours (healthy: these have what is left of it).
# causes: cpu-taken-by-others competing-process
# row: vault.* is ready without a CPU \(spin has it
# needs: go openssl taskset chrt
. "$RIGS/lib.sh"
[ -s ec.crt ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=rig -days 365 \
    -keyout ec.key -out ec.crt 2>/dev/null
# shellcheck disable=SC2046
for _ in 1 2 3; do taskset -c 1 $(pick "" "chrt -i 0") "$RIGS/src/spin" & SPINS="$SPINS $!"; done
cleanup() { for spin in $SPINS; do stop "$spin"; done; }
investigate "taskset -c 1 $WORK/vault server 127.0.0.1:19114 $WORK/ec.crt $WORK/ec.key" "--ready ready" \
    taskset -c 0 "$WORK/vault" client 127.0.0.1:19114
