#!/bin/bash
# Costly code of a UDP server (Rust). A decoy: the client looks at its clock by select() each 5 ms.
# causes: own-code
# row: basket.* is in its own code \(basket::price_basket
. "$RIGS/lib.sh"
investigate "$WORK/basket 19108 $(pick 400 20)" "--ready ready" "$WORK/askudp" 19108
