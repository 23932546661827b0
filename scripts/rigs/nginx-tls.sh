#!/bin/bash
# A TLS handshake with RSA 4096 for each request, without resumption; the client closes first.
# causes: own-code
# row: nginx.* is in its own code
# needs: nginx openssl
. "$RIGS/lib.sh"
[ -s tls.crt ] || openssl req -x509 -newkey rsa:4096 -nodes -subj /CN=rig -days 365 -keyout tls.key -out tls.crt 2>/dev/null
# Paths in it are beside it.
cp "$RIGS/conf/nginx-tls.conf" .
investigate "nginx -p $WORK -c $WORK/nginx-tls.conf -e $WORK/nginx.err" "" python3 "$RIGS/src/tlsc.py" 18106 "$(pick 1 0)"
