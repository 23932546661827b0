use std::time::Duration;

use millstream_packet::{Instant, Packet, PacketBatch, Pool, PoolConfig};
use proptest::prelude::*;

use super::*;
use crate::testing::{Shape, bytes, parse, pool};
use crate::{Medium, PairConfig, PairEnd, Placing, pair};

pub(super) const MS: Duration = Duration::from_millis(1);

struct Bench {
    pool: Pool,
    sender: Fault<PairEnd>,
    receiver: PairEnd,
}

fn bench(seed: u64, transmit: Faults, offload: bool) -> Bench {
    let (a, b) = pair(PairConfig { capacity: 65_536, offload, ..PairConfig::default() }).unwrap();
    let config = FaultConfig { seed, transmit, receive: Faults::default() };
    Bench { pool: pool(), sender: Fault::new(a, config), receiver: b }
}

impl Bench {
    fn send(&mut self, now: Instant, packet: Packet) {
        let mut batch = PacketBatch::new();
        batch.push(packet).unwrap();
        assert_eq!(self.sender.transmit(now, &self.pool, &mut batch).unwrap(), 1);
    }

    fn send_number(&mut self, now: Instant, number: u32) {
        let packet = Packet::from_slice(&self.pool, 0, &number.to_be_bytes().repeat(25)).unwrap();
        self.send(now, packet);
    }

    /// Lets the wrapper work at `now`, and returns what has arrived by then.
    fn receive(&mut self, now: Instant) -> Vec<Packet> {
        self.sender.transmit(now, &self.pool, &mut PacketBatch::new()).unwrap();
        let mut all = Vec::new();
        loop {
            let mut batch = PacketBatch::new();
            if self.receiver.receive(now, &self.pool, &mut batch).unwrap() == 0 {
                return all;
            }
            all.extend(batch.drain());
        }
    }

    /// The numbers that arrive of `count` sent a millisecond apart, in order of arrival.
    fn run(&mut self, count: u32) -> Vec<u32> {
        let mut arrived = Vec::new();
        let mut now = Instant::ZERO;
        for i in 0..count {
            self.send_number(now, i);
            arrived.extend(self.receive(now).iter().map(number));
            now += MS;
        }
        while let Some(deadline) = self.sender.next_deadline() {
            now = deadline;
            arrived.extend(self.receive(now).iter().map(number));
        }
        arrived
    }
}

fn number(packet: &Packet) -> u32 {
    u32::from_be_bytes(packet.head()[..4].try_into().unwrap())
}

pub(super) fn everything() -> Faults {
    Faults {
        loss: 0.05,
        burst: Some(Burst { enter: 0.01, leave: 0.2, loss_inside: 0.8, loss_outside: 0.0 }),
        duplicate: 0.02,
        corrupt: 0.02,
        reorder: Some(Reorder { probability: 0.03, delay: 5 * MS }),
        delay: 3 * MS,
        jitter: 2 * MS,
        rate_bits_per_s: Some(2_000_000),
        queue_bytes: 100_000,
        queue_packets: 40,
        late_after: MS,
        whole_super_segments: false,
    }
}

#[test]
fn the_same_seed_gives_the_same_fate() {
    let run = |seed| {
        let mut bench = bench(seed, everything(), true);
        (bench.run(3000), bench.sender.fault_stats())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn one_fault_does_not_move_another() {
    let lost = |faults| {
        let arrived = bench(5, faults, true).run(2000);
        (0..2000).filter(|i| !arrived.contains(i)).collect::<Vec<_>>()
    };
    let loss = Faults { loss: 0.05, ..Faults::default() };
    let more = Faults { duplicate: 0.1, jitter: 3 * MS, reorder: everything().reorder, ..loss };
    assert_eq!(lost(loss), lost(more));
}

#[test]
fn a_way_in_without_faults_is_the_links_own() {
    let pool = pool();
    for is_lossy in [false, true] {
        let (mut far, near) = pair(PairConfig::default()).unwrap();
        let receive = Faults { loss: f64::from(u8::from(is_lossy)), ..Faults::default() };
        let config = FaultConfig { receive, ..FaultConfig::default() };
        let mut near = Fault::new(Placing::new(near), config);
        assert_eq!(near.places(), !is_lossy);
        let mut batch = PacketBatch::new();
        for _ in 0..2 {
            batch.push(Packet::from_slice(&pool, 0, &[7; 100]).unwrap()).unwrap();
        }
        far.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
        let placed = near.receive_into(Instant::ZERO, &pool, 60, &mut [0; 2048]).unwrap();
        assert_eq!(placed.map(|placed| placed.bytes), (!is_lossy).then_some(40));
        let received = near.receive(Instant::ZERO, &pool, &mut batch).unwrap();
        assert_eq!(received, usize::from(!is_lossy));
        assert_eq!(near.stats().dropped(DropCause::FaultLoss), 2 * u64::from(is_lossy));
    }
}

#[test]
fn what_nobody_passed_on_in_time_is_counted() {
    for (late_after, late) in [(MS, 1), (2 * MS, 0)] {
        let mut bench = bench(3, Faults { delay: 5 * MS, late_after, ..Faults::default() }, true);
        for i in 0..3 {
            bench.send_number(Instant::ZERO + i * MS, i);
        }
        assert_eq!(bench.receive(Instant::ZERO + 6 * MS).len(), 2);
        assert_eq!(bench.sender.fault_stats().0.late, 0);
        assert_eq!(bench.receive(Instant::ZERO + 9 * MS).len(), 1);
        assert_eq!(bench.sender.fault_stats().0.late, late);
    }
}

#[test]
fn no_faults_change_nothing() {
    // A delay for packets that are held back, where none is held back.
    let vain = Reorder { probability: 0.0, delay: 3 * MS };
    assert!(Faults { reorder: Some(vain), ..Faults::default() }.is_nothing());
    assert_eq!(bench(1, Faults::default(), true).run(500), (0..500).collect::<Vec<_>>());
}

#[test]
fn chances_come_out_as_configured() {
    let faults = Faults {
        loss: 0.05,
        duplicate: 0.1,
        reorder: Some(Reorder { probability: 0.08, delay: 10 * MS }),
        ..Faults::default()
    };
    let mut bench = bench(9, faults, true);
    let arrived = bench.run(20_000);
    let (stats, _) = bench.sender.fault_stats();
    assert_eq!(stats.entered, 20_000);
    // Six standard deviations: 185, 250 (of 19,000), 230.
    assert!(stats.lost.abs_diff(1000) < 190, "{stats:?}");
    assert!(stats.duplicated.abs_diff(1900) < 260, "{stats:?}");
    assert!(stats.reordered.abs_diff(1600) < 240, "{stats:?}");
    assert_eq!(stats.left, arrived.len() as u64);
    assert_eq!(arrived.len() as u64, 20_000 - stats.lost + stats.duplicated);
    let overtaken = arrived.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    assert!(overtaken > stats.reordered / 2, "{overtaken} {stats:?}");
    assert_eq!(bench.sender.stats().dropped(DropCause::FaultLoss), stats.lost);
}

#[test]
fn bursts_are_as_long_as_asked() {
    let burst = Burst { enter: 0.01, leave: 0.25, loss_inside: 1.0, loss_outside: 0.0 };
    let mut bench = bench(3, Faults { burst: Some(burst), ..Faults::default() }, true);
    let arrived = bench.run(50_000);
    let lengths: Vec<u32> =
        arrived.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|&length| length > 0).collect();
    let mean = f64::from(lengths.iter().sum::<u32>()) / lengths.len() as f64;
    assert!((3.5..4.5).contains(&mean), "bursts of {mean} packets, 4 asked");
    // A fraction enter / (enter + leave) of packets is inside a burst.
    let share = 1.0 - arrived.len() as f64 / 50_000.0;
    assert!((0.030..0.047).contains(&share), "{share} lost, 0.038 asked");
}

#[test]
fn delay_and_jitter_keep_the_order_and_tell_the_deadline() {
    let faults = Faults { delay: 10 * MS, jitter: 4 * MS, ..Faults::default() };
    let mut bench = bench(4, faults, true);
    assert_eq!(bench.sender.next_deadline(), None);
    bench.send_number(Instant::ZERO, 0);
    let deadline = bench.sender.next_deadline().unwrap();
    assert!(
        (Instant::from_millis(10)..Instant::from_millis(14)).contains(&deadline),
        "{deadline:?}"
    );
    assert!(bench.receive(Instant::from_nanos(deadline.as_nanos() - 1)).is_empty());
    assert_eq!(bench.receive(deadline).len(), 1);
    assert_eq!(bench.sender.next_deadline(), None);
    assert_eq!(bench.run(1000), (0..1000).collect::<Vec<_>>());
}

#[test]
fn the_rate_limit_spaces_packets_and_bounds_its_queue() {
    // 100 bytes at 800 kbit/s are 1 ms; a packet holds a frame and its descriptor.
    let faults =
        Faults { rate_bits_per_s: Some(800_000), queue_bytes: 10 * 2112, ..Faults::default() };
    let mut bench = bench(4, faults, true);
    for i in 0..30 {
        bench.send_number(Instant::ZERO, i);
    }
    let (stats, _) = bench.sender.fault_stats();
    assert_eq!((stats.entered, stats.queue_dropped), (30, 20));
    for ms in 1..=10 {
        assert_eq!(bench.sender.next_deadline(), Some(Instant::from_millis(ms)));
        let arrived = bench.receive(Instant::from_millis(ms));
        assert_eq!(arrived.iter().map(number).collect::<Vec<_>>(), [ms as u32 - 1]);
    }
    // The queue is empty again, and an idle time earns no credit.
    bench.send_number(Instant::from_millis(50), 99);
    assert_eq!(bench.sender.next_deadline(), Some(Instant::from_millis(51)));
}

#[test]
fn damage_is_one_bit_and_shows_in_the_checksum() {
    let faults = Faults { corrupt: 1.0, ..Faults::default() };
    let mut bench = bench(8, faults, true);
    for i in 0..300_usize {
        let shape = Shape { piece: 50, ..Shape::new(i % 2 == 0, i % 3 == 0, vec![i as u8; 200]) };
        let mut whole = shape.build(&bench.pool);
        let sent = whole.view(&bench.pool, 0, whole.len()).unwrap();
        let mut sent = {
            let mut s = sent;
            *s.meta_mut() = *whole.meta();
            s
        };
        crate::offload::complete_checksum(&mut whole, &bench.pool).unwrap();
        crate::offload::complete_checksum(&mut sent, &bench.pool).unwrap();
        let expected = bytes(&whole);
        bench.send(Instant::ZERO, sent);
        let arrived = bench.receive(Instant::ZERO).pop().unwrap();
        assert_eq!(arrived.meta().checksum, millstream_packet::Checksum::Unverified);
        assert_eq!(bytes(&whole), expected, "a shared frame was written");
        let differing: u32 =
            expected.iter().zip(bytes(&arrived)).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(differing, 1);
        assert_eq!(expected[..14], bytes(&arrived)[..14]);
    }
    assert_eq!(bench.sender.fault_stats().0.corrupted, 300);
}

#[test]
fn super_segments_meet_faults_as_packets() {
    for offload in [false, true] {
        let mut bench = bench(8, Faults { loss: 0.2, ..Faults::default() }, offload);
        let payload: Vec<u8> = (0..50_000).map(|i| (i / 9) as u8).collect();
        let shape = Shape { segment: Some(1000), ..Shape::new(false, true, payload) };
        let packet = shape.build(&bench.pool);
        bench.send(Instant::ZERO, packet);
        let (stats, _) = bench.sender.fault_stats();
        assert_eq!(stats.entered, 50);
        assert!((2..20).contains(&stats.lost), "{stats:?}");
        let arrived = bench.receive(Instant::ZERO);
        assert_eq!(arrived.len() as u64, 50 - stats.lost);
        for packet in &arrived {
            assert_eq!(parse(packet, Medium::Ethernet).payload.len(), 1000);
            assert!(offload || parse(packet, Medium::Ethernet).is_valid);
        }
    }
}

#[test]
fn faults_strike_on_the_way_in_too() {
    let (mut a, b) = pair(PairConfig { capacity: 4096, ..PairConfig::default() }).unwrap();
    let faults = Faults { loss: 0.1, delay: 5 * MS, ..Faults::default() };
    let mut b = Fault::new(b, FaultConfig { seed: 2, receive: faults, ..FaultConfig::default() });
    let pool = pool();
    let mut batch = PacketBatch::new();
    for _ in 0..50 {
        batch.push(Packet::from_slice(&pool, 0, &[0; 60]).unwrap()).unwrap();
    }
    a.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
    assert_eq!(b.receive(Instant::ZERO, &pool, &mut batch).unwrap(), 0);
    assert_eq!(b.next_deadline(), Some(Instant::from_millis(5)));
    let n = b.receive(Instant::from_millis(5), &pool, &mut batch).unwrap() as u64;
    let (_, stats) = b.fault_stats();
    assert_eq!((stats.entered, n), (50, 50 - stats.lost));
    assert!(stats.lost > 0);
}

#[test]
fn what_is_lost_overtakes_nobody() {
    let reorder = Some(Reorder { probability: 1.0, delay: 5 * MS });
    let mut bench = bench(1, Faults { loss: 1.0, reorder, ..Faults::default() }, true);
    assert!(bench.run(100).is_empty());
    let stats = bench.sender.fault_stats().0;
    assert_eq!((stats.lost, stats.reordered), (100, 0));
}

/// Frames for a full way and what waits behind it.
pub(super) fn large_pool() -> Pool {
    Pool::new(PoolConfig::fixed(40_960)).unwrap()
}

/// A way in with a second of delay, and 20,000 segments on their way there, 50 in a packet.
pub(super) fn way_in<L: Link>(
    pool: &Pool,
    inner: impl FnOnce(PairEnd) -> L,
) -> (PairEnd, Fault<L>) {
    let (mut far, near) = pair(PairConfig { capacity: 4096, ..PairConfig::default() }).unwrap();
    let receive = Faults { delay: 1000 * MS, ..Faults::default() };
    let near = Fault::new(inner(near), FaultConfig { receive, ..FaultConfig::default() });
    let whole = Shape::new(false, true, vec![7; 50_000]);
    let shape = Shape { segment: Some(1000), piece: 1000, ..whole };
    let packet = shape.build(pool);
    for _ in 0..400 {
        let mut view = packet.view(pool, 0, packet.len()).unwrap();
        *view.meta_mut() = *packet.meta();
        let mut batch = PacketBatch::new();
        batch.push(view).unwrap();
        assert_eq!(far.transmit(Instant::ZERO, pool, &mut batch).unwrap(), 1);
    }
    (far, near)
}

#[test]
fn what_finds_no_place_on_a_full_way_waits_and_is_not_dropped() {
    let pool = large_pool();
    let (_far, mut near) = way_in(&pool, |end| end);
    let mut batch = PacketBatch::new();
    for _ in 0..20 {
        assert_eq!(near.receive(Instant::ZERO, &pool, &mut batch).unwrap(), 0);
    }
    let entered = near.fault_stats().1.entered;
    assert!((16_384..16_384 + 50).contains(&entered), "{entered}");
    // The packets of the last batch that were not cut yet are held, too.
    assert!(near.held_packets().1 as u64 > entered);
    let mut left = 0;
    while let Some(due) = near.next_deadline() {
        left += near.receive(due, &pool, &mut batch).unwrap();
        batch = PacketBatch::new();
    }
    let stats = near.fault_stats().1;
    assert_eq!((left, stats.entered, stats.queue_dropped), (20_000, 20_000, 0));
    assert_eq!(near.held_packets().1, 0);
}

#[test]
fn who_has_a_full_way_in_sleeps_until_there_is_a_place() {
    let pool = large_pool();
    let (_far, mut near) = way_in(&pool, |end| end);
    let mut batch = PacketBatch::new();
    assert!(near.wait_fd().is_some() && !near.prepare_sleep());
    for _ in 0..20 {
        near.receive(Instant::ZERO, &pool, &mut batch).unwrap();
    }
    assert!(near.wait_fd().is_none() && near.prepare_sleep());
    let due = Instant::from_millis(1000);
    assert_eq!(near.next_deadline(), Some(due));
    // The packet that came out made room, which another takes at once: the rest of it is still due.
    near.receive(due, &pool, &mut batch).unwrap();
    batch = PacketBatch::new();
    near.receive(due, &pool, &mut batch).unwrap();
    assert_eq!(near.next_deadline(), Some(due));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the faults, every packet is accounted for, and none comes before its time.
    #[test]
    fn packets_are_conserved(
        seed: u64,
        chances in prop::array::uniform4(0.0..0.5_f64),
        delay_ms in 0_u64..20,
        jitter_ms in 0_u64..20,
        rate in prop::option::of(100_000_u64..10_000_000),
    ) {
        let [loss, duplicate, corrupt, probability] = chances;
        let faults = Faults {
            loss,
            duplicate,
            corrupt,
            reorder: Some(Reorder { probability, delay: 2 * MS }),
            delay: Duration::from_millis(delay_ms),
            jitter: Duration::from_millis(jitter_ms),
            rate_bits_per_s: rate,
            ..Faults::default()
        };
        let mut bench = bench(seed, faults, true);
        let arrived = bench.run(300).len() as u64;
        let (stats, _) = bench.sender.fault_stats();
        prop_assert_eq!(stats.entered, 300);
        prop_assert_eq!(arrived, stats.left);
        prop_assert_eq!(stats.entered + stats.duplicated, arrived + stats.lost + stats.queue_dropped);
        prop_assert_eq!(bench.sender.held_packets(), (0, 0));
    }
}
