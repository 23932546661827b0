//! Connections that come and go: in any order, by either end, and in each way.

use millstream::{Engine, Limits, SocketId};

use crate::common::pool;
use crate::{ALONE, BATCH, HEAP, Hosts};

const FLOWS: usize = 100_000;

/// Ends a connection by one of its engines.
fn end(one: (&mut Engine, SocketId), other: (&mut Engine, SocketId), way: u64) {
    let (mut one, mut other) = (one.0.tcp(one.1), other.0.tcp(other.1));
    match way {
        0 => one.close(),
        1 => one.abort(),
        // Half closed, and answered.
        2 => {
            one.shutdown_write().expect("an open side");
            assert_eq!(other.write(b"an answer"), Ok(9));
        }
        // Left unread.
        _ => assert_eq!(one.write(b"anybody?"), Ok(8)),
    }
}

#[test]
fn a_hundred_thousand_connections_come_and_go_and_memory_is_back() {
    let _alone = ALONE.lock();
    let pool = pool();
    let mut hosts = Hosts::new(&pool, &Limits::default().connections(4 * BATCH));
    let (mut open, mut random, mut half) = (Vec::with_capacity(2 * BATCH), 1_u64, None);
    for round in 1..=FLOWS / BATCH {
        open.append(&mut hosts.open("10.9.0.2:80", BATCH));
        // Every tenth time all of them go.
        let stay = if round % 10 == 0 { 0 } else { BATCH / 2 };
        while open.len() > stay {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (client, server) = open.swap_remove((random >> 33) as usize % open.len());
            let (near, far) = ((&mut hosts.near, client), (&mut hosts.far, server));
            match random >> 61 {
                way @ 0..4 => end(near, far, way),
                way => end(far, near, way - 4),
            }
            hosts.settle();
            hosts.far.tcp(server).close();
            hosts.near.tcp(client).close();
        }
        // TIME-WAIT is over.
        hosts.fall_quiet();
        hosts.fall_quiet();
        if stay == 0 {
            let sockets = [&hosts.near, &hosts.far].map(|host| host.inspect().sockets().count());
            let queued =
                [&hosts.near, &hosts.far].map(|host| host.inspect().memory_use().held_bytes);
            assert_eq!((sockets, queued), ([0, 0], [0, 0]), "after {round} rounds");
            let held = (HEAP.allocated(), pool.stats().used_frames);
            // Tables have grown by then to what they will be.
            if round >= FLOWS / BATCH / 2 {
                assert_eq!(held, *half.get_or_insert(held), "after {round} rounds");
            }
        }
    }
}
