#!/bin/bash
# The server's control group has a CPU for 6 of each 50 ms.
# causes: cpu-quota
# row: memcached.* is ready without a CPU
# needs: memcached
. "$RIGS/lib.sh"
quota rig-mc "$(pick 6000 -1)"
cleanup() { sleep 0.3; rmdir "$GROUP" 2>/dev/null; }
investigate "sh -c 'echo \$\$ >$GROUP/cgroup.procs; exec memcached -u nobody -t 1 -l 127.0.0.1 -p 18110 -U 0'" "" \
    "$WORK/linec" 127.0.0.1 18110 4 "get price"
