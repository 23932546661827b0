#!/bin/bash
# A regular expression that backtracks, in three processes that accept from one socket; a connection for each request (Perl).
# causes: own-code
# row: perl.* is in its own code
# needs: perl
. "$RIGS/lib.sh"
investigate "perl $RIGS/src/gate.pl 19103 $(pick 1 0)" "--ready ready" "$WORK/shortc" 19103 3 \
    "a1,b2,c3,d4,e5,f6,g7,h8,i9,j10,k11,l12,m13,n14,o15,p16,q17,r18,s19,t20,u21,v22"
