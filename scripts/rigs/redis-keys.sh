#!/bin/bash
# Another client of the server asks for KEYS of 200,000 again and again; the laboratory is not told of it.
# causes: own-code
# row: redis-server.* is in its own code \((dictNext|keysCommand|.*stringmatchlen)
# needs: redis-server redis-cli
. "$RIGS/lib.sh"
if [ ! -s keys.rdb ]; then
    redis-server --port 19199 --bind 127.0.0.1 --save '' --dir "$WORK" --dbfilename keys.rdb >redis-fill.log 2>&1 &
    FILLS=$!
    sleep 1
    redis-cli -p 19199 eval "for i=1,200000 do redis.call('set','order:'..i..':done',i) end
        redis.call('set','price','12.50') return redis.call('dbsize')" 0 >>redis-fill.log
    redis-cli -p 19199 save >>redis-fill.log
    stop $FILLS
fi
python3 "$RIGS/src/report.py" 19110 "$(pick 1 0)" >report.log 2>&1 &
REPORT=$!
cleanup() { stop $REPORT; }
READY_S=1.5
investigate "redis-server --port 19110 --bind 127.0.0.1 --save '' --dir $WORK --dbfilename keys.rdb" "" \
    "$WORK/fanc" 127.0.0.1:19110 4 "GET price"
