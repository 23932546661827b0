#!/bin/bash
# memcached has strace fastened to it by its start script.
# causes: traced
# row: memcached.*tracer
# needs: memcached strace
. "$RIGS/lib.sh"
cat >memcached-traced <<'END'
#!/bin/bash
[ "$1" = 1 ] && (sleep 0.2; exec strace -f -qq -e trace=all -o /dev/null -p $$) &
exec memcached -u nobody -t 1 -l 127.0.0.1 -p 19113 -U 0
END
chmod +x memcached-traced
READY_S=1
investigate "$WORK/memcached-traced $(pick 1 0)" "" "$WORK/fanc" 127.0.0.1:19113 4 "get price"
