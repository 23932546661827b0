#!/bin/bash
# Eight buyers update one row (healthy: a row each), in transactions that the client keeps open for 2 ms in both modes.
# causes: own-lock own-timer
# row: for which postgres.* waits.* sleeps in clock_nanosleep
# needs: psql
. "$RIGS/lib.sh"
as_postgres="setpriv --reuid=postgres --regid=postgres --clear-groups"
PROGRAMS=$(echo /usr/lib/postgresql/*/bin)
# Its user has to get there.
DATA=$(mktemp -d /var/tmp/millstream-rig-XXXXXX)
POSTGRES="$as_postgres $PROGRAMS/postgres -D $DATA -p 19111 -k '' -c listen_addresses=127.0.0.1 -c fsync=off"
POSTGRES="$POSTGRES -c synchronous_commit=off -c max_connections=40 -c autovacuum=off"
cleanup() { rm -rf "$DATA"; }
chown postgres "$DATA" || exit 1
# shellcheck disable=SC2086
(cd / && $as_postgres $PROGRAMS/initdb -D $DATA -A trust -E UTF8 --locale=C) >initdb.log 2>&1 || exit 1
eval "exec $POSTGRES" >fill.log 2>&1 &
FILLS=$!
sleep 2
psql -h 127.0.0.1 -p 19111 -U postgres -qc 'create table stock (id int primary key, n int) with (fillfactor=20);
    insert into stock select i, 1000000 from generate_series(1, 8) i'
stop $FILLS
READY_S=1.5
investigate "$POSTGRES" "" python3 "$RIGS/src/buyers.py" 19111 "$(pick 1 0)"
