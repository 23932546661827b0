//! The test kit of links: what an engine relies on, tried on two links that are joined.
//!
//! ```
//! use millstream_link::{PairConfig, kit, pair};
//!
//! kit::run(|| pair(PairConfig::default()).expect("a pair"));
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant as Wall};

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream_wire::ethernet::MacAddr;

use super::{Shape, parse};
use crate::sys::{PollEntry, poll};
use crate::{DropCause, Link, LinkError, Medium};

const NOW: Instant = Instant::from_millis(3);
/// A link that does nothing for so long does not do it at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Packets of a crowd: more than any link holds on its way.
const CROWD: u32 = 3_000;
const FRAMES: usize = 4096;

/// Runs two joined links, made anew for each step, through what an engine asks of a link.
///
/// - Packets arrive once, whole and in order, both ways at once, however full the way is.
/// - One that is too long is dropped and counted, and those behind it arrive.
/// - Super-segments and partial checksums arrive as such or as packets whose sums hold, of TCP and
///   UDP over IPv4 and IPv6.
/// - A sleep ends by the descriptor, for packets and for room.
/// - Without a frame in the pool nothing breaks, and packets come again when there is one.
/// - A link whose other end has gone takes what it is given or fails, and keeps no frame.
///
/// # Panics
/// Where a link does not do that; the message says what.
pub fn run<A: Link, B: Link>(make: impl Fn() -> (A, B)) {
    crowds_pass(make());
    too_long_is_dropped(make());
    offloads_arrive(make());
    sleeps_end(make());
    a_dry_pool_breaks_nothing(make());
    the_end_is_seen(make());
}

/// One side: its link, what it has still to send, and what came.
struct Side<'a> {
    link: &'a mut dyn Link,
    pool: &'a Pool,
    to_send: VecDeque<Packet>,
    batch: PacketBatch,
    came: Vec<Packet>,
}

impl<'a> Side<'a> {
    fn new(link: &'a mut dyn Link, pool: &'a Pool) -> Self {
        Self { link, pool, to_send: VecDeque::new(), batch: PacketBatch::new(), came: Vec::new() }
    }

    /// Sends and receives what goes; returns whether anything did.
    fn work(&mut self) -> bool {
        while self.batch.room() > 0
            && let Some(packet) = self.to_send.pop_front()
        {
            self.batch.push(packet).expect("room in the batch");
        }
        let before = self.batch.len();
        let sent = self.link.transmit(NOW, self.pool, &mut self.batch).expect("a transmit");
        assert_eq!(sent, before - self.batch.len(), "transmit tells how many left the batch");
        let mut got = PacketBatch::new();
        let count = self.link.receive(NOW, self.pool, &mut got).expect("a receive");
        assert_eq!(count, got.len(), "receive tells how many it put in");
        for packet in got.drain() {
            assert_eq!(packet.meta().arrival, NOW, "a received packet has its time");
            self.came.push(packet);
        }
        sent + count > 0
    }

    fn bytes_came(&self) -> usize {
        let medium = self.link.capabilities().medium;
        self.came.iter().map(|packet| parse(packet, medium).payload.len()).sum()
    }
}

fn pool() -> Pool {
    Pool::new(PoolConfig::fixed(FRAMES)).expect("memory for a pool")
}

/// Lets both work until `is_done`.
fn until(
    near: &mut Side<'_>,
    far: &mut Side<'_>,
    what: &str,
    is_done: impl Fn(&Side<'_>, &Side<'_>) -> bool,
) {
    let begun = Wall::now();
    while !is_done(near, far) {
        assert!(near.work() | far.work() || begun.elapsed() < PATIENCE, "{what}: nothing moves");
    }
}

/// A datagram from one link to the other, of which the payload begins with `number`.
fn shape(from: &dyn Link, to: MacAddr, number: u32, len: usize) -> Shape {
    let medium = from.capabilities().medium;
    let payload = number.to_be_bytes().into_iter().chain((4..len).map(|at| at as u8)).collect();
    Shape { medium, macs: [from.capabilities().mac, to], ..Shape::new(false, false, payload) }
}

fn number_of(packet: &Packet, medium: Medium) -> u32 {
    let payload = parse(packet, medium).payload;
    u32::from_be_bytes(*payload.first_chunk().expect("a numbered packet"))
}

fn crowds_pass((mut a, mut b): (impl Link, impl Link)) {
    let pool = pool();
    let (macs, medium) = ([a.capabilities().mac, b.capabilities().mac], a.capabilities().medium);
    let count = if cfg!(miri) { 50 } else { CROWD };
    let (mut near, mut far) = (Side::new(&mut a, &pool), Side::new(&mut b, &pool));
    let (mut next, mut got) = (0, [0; 2]);
    let begun = Wall::now();
    while got != [count; 2] {
        for (side, to) in [(&mut near, macs[1]), (&mut far, macs[0])] {
            for number in next..(next + 100).min(count) {
                let len = 4 + number as usize * 37 % 1400;
                side.to_send.push_back(shape(side.link, to, number, len).build(&pool));
            }
        }
        next = (next + 100).min(count);
        let mut moves = true;
        while moves || near.to_send.len() + far.to_send.len() > 0 {
            moves = near.work() | far.work();
            for (side, got) in [&mut near, &mut far].into_iter().zip(&mut got) {
                for packet in side.came.drain(..) {
                    assert_eq!(number_of(&packet, medium), *got, "in order, each once");
                    let len = 4 + *got as usize * 37 % 1400;
                    let parsed = parse(&packet, medium);
                    assert_eq!(parsed.payload.len(), len, "whole");
                    assert!(is_sound(&packet, parsed.is_valid), "a checksum that holds");
                    *got += 1;
                }
            }
            assert!(begun.elapsed() < 6 * PATIENCE, "{got:?} of {count} came");
        }
    }
    drop((near, far));
    let stats = [a.stats(), b.stats()];
    assert!(stats.iter().all(|of| of.dropped_total() == 0), "nothing is dropped: {stats:?}");
    assert!(stats.iter().all(|of| of.rx_packets == count.into() && of.tx_packets == count.into()));
    drop((a, b));
    assert_eq!(pool.stats().used_frames, 0, "frames go home");
}

fn is_sound(packet: &Packet, is_valid: bool) -> bool {
    is_valid || packet.meta().checksum != Checksum::Unverified
}

fn too_long_is_dropped((mut a, mut b): (impl Link, impl Link)) {
    let pool = pool();
    let (to, mtu) = (b.capabilities().mac, a.capabilities().mtu);
    let (mut near, mut far) = (Side::new(&mut a, &pool), Side::new(&mut b, &pool));
    for len in [mtu + 100, 10] {
        near.to_send.push_back(shape(near.link, to, 7, len).build(&pool));
    }
    until(&mut near, &mut far, "behind one that is too long", |_, far| !far.came.is_empty());
    assert_eq!(far.bytes_came(), 10, "the one behind it");
    drop((near, far));
    assert_eq!(a.stats().dropped(DropCause::TooLong), 1, "counted");
}

fn offloads_arrive((mut a, mut b): (impl Link, impl Link)) {
    const SIZE: u16 = 1000;
    let pool = pool();
    let (to, medium) = (b.capabilities().mac, a.capabilities().medium);
    let (mut near, mut far) = (Side::new(&mut a, &pool), Side::new(&mut b, &pool));
    for (is_v6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        for (len, segment) in [(500, None), (20_123, Some(SIZE))] {
            let payload: Vec<u8> = (0..len).map(|at| (at / 3) as u8).collect();
            let macs = [near.link.capabilities().mac, to];
            let shape =
                Shape { medium, macs, segment, ..Shape::new(is_v6, is_tcp, payload.clone()) };
            near.to_send.push_back(shape.build(&pool));
            until(&mut near, &mut far, "an offload", |_, far| far.bytes_came() >= len);
            let mut got = Vec::new();
            for packet in far.came.drain(..) {
                let parsed = parse(&packet, medium);
                assert!(is_sound(&packet, parsed.is_valid), "a checksum that holds");
                let is_whole = packet.meta().segmentation.is_some();
                assert!(is_whole || parsed.payload.len() <= SIZE.into(), "whole, or cut to size");
                got.extend(parsed.payload);
            }
            assert_eq!(got, payload, "all bytes");
        }
    }
}

/// Returns whether the descriptor of a link that sleeps becomes ready.
fn wakes(link: &dyn Link) -> bool {
    let fd = link.wait_fd().expect("a descriptor to sleep on");
    let mut entries = [PollEntry { fd, wants_write: link.wants_write(), ready: false }];
    poll(&mut entries, Some(PATIENCE)).expect("poll") == 1
}

fn sleeps_end((mut a, mut b): (impl Link, impl Link)) {
    let pool = pool();
    let (to, medium) = (b.capabilities().mac, a.capabilities().medium);
    for number in 0..10 {
        while !b.prepare_sleep() {
            b.receive(NOW, &pool, &mut PacketBatch::new()).expect("a receive");
        }
        let mut batch = PacketBatch::new();
        batch.push(shape(&a, to, number, 100).build(&pool)).expect("room");
        assert_eq!(a.transmit(NOW, &pool, &mut batch).expect("a transmit"), 1);
        assert!(wakes(&b), "a packet ends a sleep");
        while b.receive(NOW, &pool, &mut batch).expect("a receive") == 0 {}
        assert_eq!(number_of(&batch.pop().expect("a packet"), medium), number);
    }
    // Room ends the sleep of one that found none.
    let (mut sent, mut came, mut batch) = (0, 0, PacketBatch::new());
    while batch.is_empty() && sent < CROWD {
        batch.push(shape(&a, to, sent, 1000).build(&pool)).expect("room");
        a.transmit(NOW, &pool, &mut batch).expect("a transmit");
        sent += 1;
    }
    while !batch.is_empty() {
        if !a.prepare_sleep() {
            a.receive(NOW, &pool, &mut PacketBatch::new()).expect("a receive");
        }
        let mut got = PacketBatch::new();
        came += b.receive(NOW, &pool, &mut got).expect("a receive");
        if came > 0 && got.is_empty() {
            assert!(wakes(&a), "room ends a sleep");
        }
        a.receive(NOW, &pool, &mut PacketBatch::new()).expect("a receive");
        a.transmit(NOW, &pool, &mut batch).expect("a transmit");
    }
}

fn a_dry_pool_breaks_nothing((mut a, mut b): (impl Link, impl Link)) {
    let (pool, small) = (pool(), Pool::new(PoolConfig::fixed(64)).expect("a pool"));
    let to = b.capabilities().mac;
    let held: Vec<_> = std::iter::from_fn(|| small.alloc(0)).collect();
    let mut near = Side::new(&mut a, &pool);
    let mut far = Side::new(&mut b, &small);
    for number in 0..5 {
        near.to_send.push_back(shape(near.link, to, number, 100).build(&pool));
    }
    for _ in 0..20 {
        near.work();
        far.work();
    }
    drop(held);
    near.to_send.push_back(shape(near.link, to, 5, 200).build(&pool));
    let is_there = |far: &Side<'_>| far.came.iter().any(|packet| packet.len() > 200);
    until(&mut near, &mut far, "after a dry pool", |_, far| is_there(far));
}

fn the_end_is_seen((mut a, b): (impl Link, impl Link)) {
    let pool = pool();
    let to = b.capabilities().mac;
    drop(b);
    for number in 0..2000 {
        let mut batch = PacketBatch::new();
        batch.push(shape(&a, to, number, 1000).build(&pool)).expect("room");
        let told = |_: LinkError| ();
        let worked = a.transmit(NOW, &pool, &mut batch).map_err(told);
        if worked.and_then(|_| a.receive(NOW, &pool, &mut batch).map_err(told)).is_err() {
            break;
        }
    }
    drop(a);
    assert_eq!(pool.stats().used_frames, 0, "frames go home");
}
