#!/bin/bash
# A rule of nftables drops 1 % of what arrives in the client's namespace.
# causes: dropped-by-a-rule retransmissions
# row: client.* sleeps in epoll_pwait
# needs: ip nft node
. "$RIGS/lib.sh"
pair rig-loss-s rig-loss-c 11
cleanup() { unpair rig-loss-s rig-loss-c; }
nft() { ip netns exec rig-loss-c nft "$@"; }
nft add table ip rig
nft add chain ip rig arriving '{ type filter hook input priority 0; }'
# shellcheck disable=SC2046
nft add rule ip rig arriving tcp sport 18111 $(pick 'numgen random mod 100 < 1 counter drop' 'counter')
investigate "ip netns exec rig-loss-s node $RIGS/src/files.js server 10.91.11.1 18111" "--ready ready" \
    ip netns exec rig-loss-c node "$RIGS/src/files.js" client 10.91.11.1 18111
