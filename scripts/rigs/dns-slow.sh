#!/bin/bash
# The resolver of the client's namespace answers after 6 ms; each connection is by name, two questions each (A, AAAA).
# causes: name-look-ups
# row: client.* sleeps in .*UDP 10\.91\.7\.1:53
# needs: ip
. "$RIGS/lib.sh"
pair rig-dns-s rig-dns-c 7
mkdir -p /etc/netns/rig-dns-c
echo "nameserver 10.91.7.1" >/etc/netns/rig-dns-c/resolv.conf
ip netns exec rig-dns-s python3 "$RIGS/src/resolver.py" 10.91.7.1 "$(pick 6 0)" 10.91.7.1 >resolver.log 2>&1 &
RESOLVER=$!
cleanup() { stop $RESOLVER; unpair rig-dns-s rig-dns-c; rm -rf /etc/netns/rig-dns-c; rmdir /etc/netns 2>/dev/null; }
sleep 0.3
investigate "ip netns exec rig-dns-s $WORK/onced 10.91.7.1 18107" "--ready ready" \
    ip netns exec rig-dns-c python3 "$RIGS/src/oncec.py" shop.rig.test 18107
