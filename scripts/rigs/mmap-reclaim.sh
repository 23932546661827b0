#!/bin/bash
# A server reads a mapped file of 96 MiB in a control group of 24 MiB: pages are thrown away and read from the disk again.
# causes: own-disk
# row: atlas.* is blocked in page faults
. "$RIGS/lib.sh"
[ -s atlas.dat ] || head -c 100663296 /dev/urandom >atlas.dat
GROUP=/sys/fs/cgroup/rig-atlas LIMIT=memory.max EMPTY=memory.reclaim
[ -d /sys/fs/cgroup/memory ] && GROUP=/sys/fs/cgroup/memory/rig-atlas LIMIT=memory.limit_in_bytes EMPTY=memory.force_empty
mkdir -p $GROUP && pick 24M "$([ $LIMIT = memory.max ] && echo max || echo -1)" >$GROUP/$LIMIT || exit 1
cleanup() { sleep 0.3; echo 100M >$GROUP/$EMPTY 2>/dev/null; rmdir $GROUP 2>/dev/null; }
READY_S=3
investigate "sh -c 'echo \$\$ >$GROUP/cgroup.procs; exec $WORK/atlas 19118 $WORK/atlas.dat'" "--ready ready" \
    "$WORK/fanc" 127.0.0.1:19118 2 "where"
