//! Peers that have a host hold as much memory for them as they can, each within what any connection
//! may: a host with few frames goes on serving those who behave, and has all its memory back when
//! they have gone.

mod search;
mod waiting;
mod world;

use std::sync::OnceLock;
use std::time::Duration;

use millstream::{DropReason, MemoryPressure, MemoryUse};
use world::{CHARGEN, DISCARD, UNREAD, World};

use super::KEPT;

const TIME: Duration = Duration::from_millis(1000);
/// Frames of the host's pool.
const FRAMES: usize = 4096;

/// A world with a transfer each way, past its start.
fn busy(v6: bool) -> World {
    begin(World::new(v6, FRAMES))
}

fn begin(mut world: World) -> World {
    world.transfer(true, 0);
    world.transfer(false, u64::MAX);
    world.run(Duration::from_millis(500), |_| {});
    world
}

/// Bytes that the transfers move in [`TIME`] when nobody attacks.
fn undisturbed(v6: bool) -> u64 {
    static BYTES: [OnceLock<u64>; 2] = [OnceLock::new(), OnceLock::new()];
    *BYTES[usize::from(v6)].get_or_init(|| {
        let mut world = busy(v6);
        let before = world.moved();
        world.run(TIME, |_| {});
        world.moved() - before
    })
}

/// Plays `attack` beside the transfers, at each step of `time` after `prepare`, over both families;
/// meanwhile the host answers pings and takes new connections, and a second after the attacker has
/// gone all memory is back.
fn beside(
    name: &str,
    prepare: fn(&mut World),
    attack: fn(&mut World, usize),
    check: fn(&mut World),
) {
    for v6 in [false, true] {
        let mut world = busy(v6);
        prepare(&mut world);
        let (before, mut step) = (world.moved(), 0);
        let (mut pings, mut newcomers) = (0, Vec::new());
        world.run(TIME, |world| {
            attack(world, step);
            if step % 100 == 50 {
                world.ping();
                pings += 1;
                // where writers are what is under attack, some fetch
                let fetches = world.peers[0].ends.to.port() == CHARGEN && step % 200 == 50;
                newcomers.push(world.transfer(fetches, 2000));
            }
            step += 1;
        });
        let moved = world.moved() - before;
        let whole = undisturbed(v6);
        let share = moved as f64 / whole as f64;
        let usage = world.far.inspect().memory_use();
        let stats = world.far.stats();
        println!(
            "{name:44} v6 {v6:5} {share:5.2} of the rate; {:?} {} of {} KiB held, most {}; \
             pruned {} KiB, evicted {}, dropped {}, {} of {pings} pings",
            usage.pressure,
            usage.held_bytes / 1024,
            usage.limit_bytes / 1024,
            usage.held_most_bytes / 1024,
            stats.tcp_pruned_bytes / 1024,
            stats.tcp_evicted,
            stats.dropped(DropReason::MemoryPressure),
            world.pongs,
        );
        assert!(share >= KEPT, "{name}, {v6}: {share:.2} of the rate");
        within_limit(name, &usage);
        // by then those that do nothing have given way
        world.run(Duration::from_secs(2), |_| {});
        assert_eq!(world.pongs, pings, "{name}: pings");
        for index in newcomers {
            assert!(world.is_done(index), "{name}: newcomer {index}");
        }
        assert_eq!(world.told_users, 0, "{name}: evicted of those that behave");
        check(&mut world);
        world.leave();
        world.end();
        world.run(Duration::from_secs(1), |_| {});
        let usage = world.far.inspect().memory_use();
        assert_eq!((usage.pressure, usage.held_bytes), (MemoryPressure::None, 0), "{name}");
        // what the engine sets aside
        let used = world.frames.stats().used_frames;
        assert!(used < 200, "{name}: {used} frames used");
    }
}

/// All queues together hold no more than they may, whoever fills them.
fn within_limit(name: &str, usage: &MemoryUse) {
    let (most, limit) = (usage.held_most_bytes, usage.limit_bytes);
    assert!(most <= limit, "{name}: {most} bytes held of {limit}");
}

/// Asserts that memory was short at some time: otherwise it was no attack.
fn was_pressed(world: &mut World) {
    assert!(world.far.inspect().memory_use().times_pressed > 0, "memory was never short");
}

/// Returns the indices of the next `count` peers in turn.
fn some(world: &World, step: usize, count: usize) -> impl Iterator<Item = usize> + use<> {
    let all = world.peers.len();
    (0..count).map(move |i| (step * count + i) % all)
}

#[test]
fn single_bytes_with_gaps() {
    beside(
        "330 times 250 bytes, every second missing",
        |world| world.open(DISCARD, 330),
        |world, step| {
            for (i, index) in some(world, step, 64).enumerate() {
                let at = 1 + 2 * ((step * 64 + i) / 330);
                world.send(index, |header| header.seq += at, b"f");
            }
        },
        |world| {
            // in frames this had been more than the host has
            assert!(world.far.inspect().memory_use().held_bytes < 330 * 250 * 300);
        },
    );
}

#[test]
fn holes_in_full_segments() {
    beside(
        "full segments, every second missing",
        |world| world.open(DISCARD, 330),
        |world, step| {
            for (i, index) in some(world, step, 32).enumerate() {
                let at = 1400 * (1 + 2 * ((step * 32 + i) / 330));
                world.send(index, |header| header.seq += at, &[b'f'; 1400]);
            }
        },
        was_pressed,
    );
}

#[test]
fn large_frames_with_little_in_them() {
    beside(
        "200 bytes with gaps: a frame each",
        |world| world.open(DISCARD, 330),
        |world, step| {
            for (i, index) in some(world, step, 64).enumerate() {
                let at = 300 * (1 + ((step * 64 + i) / 330));
                world.send(index, |header| header.seq += at, &[b'f'; 200]);
            }
        },
        was_pressed,
    );
}

#[test]
fn many_connections() {
    beside(
        "9,700 connections, a few bytes with gaps each",
        |world| world.open(DISCARD, 9700),
        |world, step| {
            for (i, index) in some(world, step, 64).enumerate() {
                let at = 400 * (1 + ((step * 64 + i) / 9700));
                world.send(index, |header| header.seq += at, &[b'f'; 200]);
            }
        },
        |world| {
            was_pressed(world);
            assert!(world.far.stats().tcp_pruned_bytes > 0);
        },
    );
}

/// Lets the next `count` peers in turn send their next bytes, up to `most` each, as far as their
/// windows allow.
fn send_on(world: &mut World, step: usize, count: usize, most: usize) {
    for index in some(world, step, count) {
        let peer = world.peers[index];
        let left = peer.window.saturating_sub(peer.seq.distance_from(peer.acked) as usize);
        let len = left.min(most);
        world.send(index, |_| {}, &[b'f'; 700][..len]);
        // what was dropped comes again
        world.peers[index].seq = if len == 0 { peer.acked } else { peer.seq + len };
    }
}

#[test]
fn in_order_and_never_read() {
    beside(
        "bytes in order that nobody reads",
        |world| world.open(UNREAD, 100),
        |world, step| send_on(world, step, 32, 700),
        was_pressed,
    );
}

#[test]
fn single_bytes_in_order_and_never_read() {
    beside(
        "single bytes in order that nobody reads",
        |world| world.open(UNREAD, 330),
        |world, step| send_on(world, step, 64, 1),
        |world| {
            // in frames this had been more than the host has
            assert!(world.far.inspect().memory_use().held_bytes < 330 * 250 * 300);
        },
    );
}

#[test]
fn peers_that_never_read() {
    beside(
        "1,500 peers that never read from a chargen",
        |world| world.open(CHARGEN, 1500),
        |_, _| {},
        |world| {
            was_pressed(world);
            // those that hold most, and no more than it takes
            let evicted = world.far.stats().tcp_evicted;
            assert!((1..1500).contains(&evicted), "{evicted} evicted");
            assert_eq!((world.told, world.resets), (evicted, evicted));
            assert_eq!(world.lost(), 0, "of those that behave");
        },
    );
}

/// Peers that come while memory is short and fetch without end are served. They take a part of the
/// path from the others, so the sum counts, compared with the same run without an attack.
#[test]
fn newcomers_that_fetch_without_end_are_served() {
    let play = |v6, attacked| {
        let mut world = busy(v6);
        if attacked {
            world.open(DISCARD, 330);
        }
        let (before, mut step, mut newcomers) = (world.moved(), 0, Vec::new());
        world.run(TIME, |world| {
            let count = if attacked { 64 } else { 0 };
            for (i, index) in some(world, step, count).enumerate() {
                let at = 1 + 2 * ((step * 64 + i) / 330);
                world.send(index, |header| header.seq += at, b"f");
            }
            if step % 200 == 50 {
                newcomers.push(world.transfer(true, 0));
            }
            step += 1;
        });
        let moved = world.moved() - before;
        world.run(Duration::from_secs(2), |_| {});
        for index in newcomers {
            assert!(world.is_done(index), "{v6}, {attacked}: newcomer {index}");
        }
        moved as f64
    };
    for v6 in [false, true] {
        let share = play(v6, true) / play(v6, false);
        println!("newcomers that fetch, v6 {v6:5} {share:5.2} of the rate");
        assert!(share >= KEPT, "{v6}: {share:.2} of the rate");
    }
}
