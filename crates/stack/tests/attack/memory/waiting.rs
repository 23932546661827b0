//! Packets to neighbours that are not there wait for them: they have a share of the host's frames,
//! and no more.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::DropReason;
use millstream::link::Medium;
use millstream_wire::tcp::SeqNumber;

use super::world::{CHARGEN, DISCARD, World, addr};
use super::{TIME, begin};
use crate::KEPT;
use crate::common::frames::Ends;
use crate::puppet::syn;

/// The station number `host` that is not there.
fn absent(v6: bool, host: usize) -> IpAddr {
    let [high, low] = ((host % 0xf000 + 256) as u16).to_be_bytes();
    match v6 {
        false => [10, 9, high, low].into(),
        true => [0xfd09, 0, 0, 0, 0, 0, 1, host as u16].into(),
    }
}

/// So many packets a millisecond come in the names of so many stations that are not there: SYNs, or
/// pings; beside so many peers that never read. Every 100 ms a newcomer asks for the host's link
/// address and pings, and another brings 2,000 bytes.
fn answers_to_nobody(frames: usize, is_syn: bool, rate: usize, hosts: usize, peers: usize) {
    for v6 in [false, true] {
        let name = format!("{frames} frames, SYNs {is_syn}, {rate}/ms of {hosts}, v6 {v6}");
        let [quiet, attacked] = [false, true].map(|is_attacked| {
            let mut world = begin(World::over(Medium::Ethernet, v6, frames));
            world.ask(66);
            world.open(CHARGEN, if is_attacked { peers } else { 0 });
            let (before, mut step, mut most) = (world.moved(), 0, 0);
            let (mut asked, mut newcomers) = (1, Vec::new());
            world.run(3 * TIME, |world| {
                for i in (0..rate).filter(|_| is_attacked) {
                    let at = step * rate + i;
                    let from = absent(v6, at % hosts);
                    match is_syn {
                        true => {
                            let from = SocketAddr::new(from, 1024);
                            let to = addr(v6, 2, DISCARD);
                            world.inject(&syn(Ends { from, to }, SeqNumber(at as u32), 1));
                        }
                        false => world.ping_from(from),
                    }
                }
                if step % 100 == 50 {
                    asked += 1;
                    let host = 70 + asked as u8;
                    world.ask(host);
                    world.ping_from(addr(v6, host, 0).ip());
                    newcomers.push(world.transfer(false, 2000));
                    let holders = world.far.inspect().memory().holders;
                    let waits = holders.iter().find(|holder| holder.name == "neighbours");
                    let waits = waits.expect("a holder").queues.held_bytes;
                    let usage = world.far.inspect().memory_use();
                    assert!(waits <= usage.limit_bytes / 8, "{name}: {waits} bytes wait");
                    assert!(waits <= usage.held_bytes, "{name}: {waits} bytes are not charged");
                    most = most.max(waits);
                }
                step += 1;
            });
            let moved = world.moved() - before;
            world.run(Duration::from_secs(2), |_| {});
            println!("{name}: {} pings, {} answers of {asked}", world.pongs, world.answers);
            assert_eq!(
                (world.answers, world.pongs),
                (asked, asked - 1),
                "{name}: asked and pinged"
            );
            for index in newcomers {
                assert!(world.is_done(index), "{name}: newcomer {index}");
            }
            assert_eq!(most != 0, is_attacked, "{name}: {most} bytes wait");
            let pressed = world.far.inspect().memory_use().times_pressed > 0;
            assert_eq!(pressed, is_attacked && peers > 0, "{name}: memory is short");
            // what waited is given up, and SYN-ACKs are sent again for a minute
            if is_attacked && !is_syn {
                world.leave();
                world.end();
                world.run(Duration::from_secs(4), |_| {});
                assert_eq!(world.far.inspect().memory_use().held_bytes, 0, "{name}");
                assert!(world.far.stats().dropped(DropReason::NeighborUnreachable) > 0);
            }
            moved as f64
        });
        let share = attacked / quiet;
        println!("{name}: {share:5.2} of the rate");
        assert!(share >= KEPT, "{name}: {share:.2} of the rate");
    }
}

#[test]
fn pings_from_nowhere() {
    for frames in [2048, 4096] {
        for (rate, hosts) in [(8, 60_000), (8, 1000), (2, 60_000)] {
            answers_to_nobody(frames, false, rate, hosts, 0);
        }
    }
}

#[test]
fn syns_from_nowhere() {
    for frames in [2048, 4096] {
        for (rate, hosts) in [(8, 60_000), (8, 1000), (2, 60_000)] {
            answers_to_nobody(frames, true, rate, hosts, 0);
        }
    }
}

#[test]
fn pings_from_five_that_are_gone() {
    for frames in [2048, 4096] {
        answers_to_nobody(frames, false, 2, 5, 0);
    }
}

/// Where others hold what they can, what waits for neighbours gives way.
#[test]
fn pings_from_nowhere_while_memory_is_short() {
    answers_to_nobody(4096, false, 8, 1000, 1500);
}
