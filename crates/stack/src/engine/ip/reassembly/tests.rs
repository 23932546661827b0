use std::time::Duration;

use super::*;
use millstream_packet::PoolConfig;

use crate::engine::links::Links as EngineLinks;

struct World {
    pool: Pool,
    account: Account,
    reassembly: Reassembly,
    link: Serial,
}

impl World {
    fn new(limit: usize) -> Self {
        let pool = Pool::new(PoolConfig::default()).expect("memory for a pool");
        let account = Account::new(&pool, usize::MAX, 1 << 20);
        let link = EngineLinks::a_serial();
        Self { pool, account, reassembly: Reassembly::new(limit, (1, 2)), link }
    }

    /// A datagram of `len` bytes of data.
    fn whole(v6: bool, len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 256 + usize::from(v6)) as u8).collect()
    }

    fn header(v6: bool, from: u8) -> IpHeader {
        let (src, dst): (IpAddr, IpAddr) = match v6 {
            false => ([10, 0, 0, from].into(), [10, 9, 0, 2].into()),
            true => {
                ([0xfd, 0, 0, from.into(), 0, 0, 0, 1].into(), [0xfd, 0, 0, 1, 0, 0, 0, 2].into())
            }
        };
        IpHeader { dont_fragment: false, ..IpHeader::new(src, dst, Protocol(99), 0) }
    }

    /// One fragment of it.
    fn give(
        &mut self,
        now: Instant,
        ip: IpHeader,
        id: u32,
        at: usize,
        data: &[u8],
        more: bool,
    ) -> Outcome {
        let fragment = Some(Fragment { offset: at as u16, more, id });
        let ip = IpHeader { fragment, payload_len: data.len(), ..ip };
        let mut bytes = vec![0; ip.emit_len()];
        ip.emit(&mut bytes);
        bytes.extend(data);
        let packet = Packet::from_slice(&self.pool, 64, &bytes).expect("frames");
        let ip = ip::parse(&bytes, bytes.len()).expect("a fragment");
        let part = Part { packet, ip: &ip, link: self.link, is_scoped: false, to_all: false };
        self.reassembly.take(now, &self.pool, &mut self.account, part)
    }

    fn is_empty(&self) -> bool {
        let lists = std::iter::once(&self.reassembly.ages)
            .chain(self.reassembly.sources.iter().map(|(list, _)| list));
        self.reassembly.held == 0
            && self.account.usage().held_bytes == 0
            && self.reassembly.entries.len() + self.reassembly.runs.len() == 0
            && self.reassembly.places.iter().all(|&place| place == NONE)
            && lists.into_iter().all(|list| list.oldest == NONE && list.newest == NONE)
    }
}

fn refused(outcome: Outcome) -> Option<DropReason> {
    match outcome {
        Outcome::Refused(why, _) => Some(why),
        _ => None,
    }
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn datagrams_of_any_size_are_whole_whatever_the_order() {
    let mut dice = Dice(1);
    for v6 in [false, true] {
        let mut world = World::new(8 << 20);
        for (round, len) in
            [9, 16, 1000, 4000, 65_000, 65_515].into_iter().cycle().take(24).enumerate()
        {
            let data = World::whole(v6, len);
            let each = [8, 552, 1232, 1480][dice.below(4)].max((len / 40) & !7);
            let mut order: Vec<usize> = (0..len).step_by(each).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, dice.below(at + 1));
            }
            if round % 3 == 0 {
                order.sort_unstable();
            } else if round % 3 == 1 {
                order.sort_unstable_by_key(|at| usize::MAX - at);
            }
            let mut got = None;
            for &at in &order {
                let end = (at + each).min(len);
                let part = &data[at..end];
                let ip = World::header(v6, 1);
                match world.give(Instant::ZERO, ip, round as u32, at, part, end < len) {
                    Outcome::Whole(packet) => got = Some(packet),
                    Outcome::Kept => {
                        // The same once more.
                        let again =
                            world.give(Instant::ZERO, ip, round as u32, at, part, end < len);
                        assert_eq!(refused(again), Some(DropReason::FragmentDuplicate));
                    }
                    Outcome::Refused(why, _) => panic!("{why:?} at {at} of {len}"),
                }
            }
            let packet = got.expect("whole with the last");
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(0, &mut bytes);
            let ip = ip::parse(&bytes, bytes.len()).expect("a packet");
            assert_eq!((ip.fragment, ip.payload_len), (None, len));
            assert!(bytes[ip.header_len..] == data[..]);
            drop(packet);
            assert!(world.is_empty());
        }
    }
}

#[test]
fn overlaps_end_their_datagram_and_it_alone() {
    for v6 in [false, true] {
        // Teardrop, a rewritten header, one over two, one byte less than the same.
        for (at, len, other) in [(8, 8, 0xff), (0, 24, 0), (16, 16, 0), (0, 16, 1), (8, 24, 0)] {
            let mut world = World::new(1 << 20);
            let ip = World::header(v6, 1);
            let data = World::whole(v6, 64);
            assert!(matches!(
                world.give(Instant::ZERO, ip, 1, 0, &data[..24], true),
                Outcome::Kept
            ));
            assert!(matches!(
                world.give(Instant::ZERO, ip, 2, 0, &data[..24], true),
                Outcome::Kept
            ));
            let mut bad: Vec<u8> = data[at..at + len].to_vec();
            if at + len <= 24 {
                bad[0] ^= other;
            }
            let outcome = refused(world.give(Instant::ZERO, ip, 1, at, &bad, true));
            let expected = match at + len <= 24 && other == 0 {
                true => DropReason::FragmentDuplicate,
                false => DropReason::FragmentOverlap,
            };
            assert_eq!(outcome, Some(expected), "{at} {len}");
            let rest = world.give(Instant::ZERO, ip, 1, 24, &data[24..], false);
            match expected {
                DropReason::FragmentDuplicate => assert!(matches!(rest, Outcome::Whole(_))),
                _ => assert_eq!(refused(rest), Some(DropReason::FragmentOverlap)),
            }
            let rest = world.give(Instant::ZERO, ip, 2, 24, &data[24..], false);
            assert!(matches!(rest, Outcome::Whole(_)), "the other is not affected");
            let later = Instant::ZERO + Duration::from_secs(61);
            while world.reassembly.expire(later, &mut world.account).is_some() {}
            assert!(world.is_empty());
        }
    }
}

/// A fragment that repeats data inside a run is dropped. Any other that touches a run, from either
/// side or around it, ends the datagram, even if the bytes in common are the same.
#[test]
fn what_reaches_over_an_edge_is_no_duplicate() {
    for v6 in [false, true] {
        let ip = World::header(v6, 1);
        let data = World::whole(v6, 80);
        // 24 to 48 is there.
        for (from, to) in [(16, 32), (40, 56), (16, 56), (16, 48), (24, 56)] {
            let mut world = World::new(1 << 20);
            let now = Instant::ZERO;
            assert!(matches!(world.give(now, ip, 1, 24, &data[24..48], true), Outcome::Kept));
            let again = world.give(now, ip, 1, 32, &data[32..40], true);
            assert_eq!(refused(again), Some(DropReason::FragmentDuplicate));
            let over = world.give(now, ip, 1, from, &data[from..to], true);
            assert_eq!(refused(over), Some(DropReason::FragmentOverlap), "{from} to {to}");
        }
    }
}

#[test]
fn two_ends_and_data_behind_the_end_are_invalid() {
    let ends: [&[(usize, usize, bool)]; 3] = [
        &[(16, 8, false), (24, 8, false)],
        &[(16, 8, false), (24, 8, true)],
        &[(32, 8, true), (16, 8, false)],
    ];
    for parts in ends {
        let mut world = World::new(1 << 20);
        let ip = World::header(false, 1);
        let mut last = None;
        for &(at, len, more) in parts {
            last = refused(world.give(Instant::ZERO, ip, 1, at, &vec![0; len], more));
        }
        assert_eq!(last, Some(DropReason::FragmentInvalid), "{parts:?}");
    }
}

#[test]
fn memory_is_bounded_for_all_and_for_one_source() {
    let limit = 256 << 10;
    for v6 in [false, true] {
        let mut world = World::new(limit);
        let good = World::header(v6, 200);
        let data = World::whole(v6, 4000);
        for id in 0..2000_u32 {
            // One source alone first, then many; a fragment each that leaves most of its frame
            // empty.
            let from = if id < 1000 { 1 } else { (id % 199) as u8 };
            world.give(Instant::ZERO, World::header(v6, from), id, 8, &[1; 8], true);
            assert!(world.reassembly.held_bytes() <= limit);
            let most = if id < 1000 { limit / 4 } else { limit };
            assert!(
                world.reassembly.held_bytes() <= most,
                "{id}: {}",
                world.reassembly.held_bytes()
            );
            assert_eq!(world.account.usage().held_bytes, world.reassembly.held_bytes());
            if id % 100 == 99 {
                // A datagram of good will is received beside.
                for at in [0, 1480, 2960] {
                    let end = (at + 1480).min(4000);
                    let got = world.give(Instant::ZERO, good, id, at, &data[at..end], end < 4000);
                    assert_eq!(matches!(got, Outcome::Whole(_)), end == 4000);
                }
            }
        }
        assert!(world.reassembly.take_displaced() > 1000);
    }
}

/// 64,000 fragments a second in a sender's own name, and datagrams of eight fragments each that
/// take 10 ms to come: 74 of 100 are whole, where none is while the oldest gives way.
#[test]
fn a_flood_in_its_senders_name_leaves_most_datagrams_whole() {
    for v6 in [false, true] {
        let mut world = World::new(4 << 20);
        let ip = World::header(v6, 7);
        let data = World::whole(v6, 8 * 1000);
        let (mut whole, mut forged) = (0, 0);
        for id in 0..100 {
            for part in 0..8 {
                for _ in 0..80 {
                    forged += 1;
                    world.give(Instant::ZERO, ip, 1000 + forged, 8, &[1; 8], true);
                }
                let at = part * 1000;
                let part = &data[at..at + 1000];
                let got = world.give(Instant::ZERO, ip, id, at, part, at != 7000);
                whole += u32::from(matches!(got, Outcome::Whole(_)));
            }
        }
        assert!(world.reassembly.take_displaced() > 60_000);
        assert!(whole >= 60, "{whole} of 100");
    }
}

#[test]
fn a_datagram_is_kept_for_its_time_and_gaps_are_few() {
    let mut world = World::new(8 << 20);
    let ip = World::header(false, 1);
    world.give(Instant::ZERO, ip, 1, 0, &[0; 8], true);
    let ends = Instant::ZERO + REASSEMBLY_TIME;
    assert_eq!(world.reassembly.next_deadline(), Some(ends));
    let before = Instant::from_nanos(ends.as_nanos() - 1);
    assert!(world.reassembly.expire(before, &mut world.account).is_none());
    let expired = world.reassembly.expire(ends, &mut world.account).expect("over");
    assert!(expired.first.is_some());
    assert!(world.is_empty());
    for gap in 0..FRAGMENT_RUNS {
        assert!(matches!(world.give(ends, ip, 2, 8 + gap * 16, &[0; 8], true), Outcome::Kept));
    }
    let outcome = world.give(ends, ip, 2, 8 + FRAGMENT_RUNS * 16, &[0; 8], true);
    assert_eq!(refused(outcome), Some(DropReason::FragmentInvalid));
}

#[test]
fn congestion_experienced_by_one_fragment_is_by_all() {
    for v6 in [false, true] {
        for (first, second, expected) in
            [(2, 3, Some(3)), (1, 1, Some(1)), (0, 0, Some(0)), (0, 3, None)]
        {
            let mut world = World::new(1 << 20);
            let mark = |ecn: u8| IpHeader { traffic_class: 0xb8 | ecn, ..World::header(v6, 1) };
            world.give(Instant::ZERO, mark(first), 1, 0, &[0; 8], true);
            let got = match world.give(Instant::ZERO, mark(second), 1, 8, &[0; 8], false) {
                Outcome::Whole(packet) => {
                    let ip = ip::parse(packet.head(), packet.len()).expect("a packet");
                    assert_eq!(ip.traffic_class & !3, 0xb8);
                    Some(ip.ecn())
                }
                _ => None,
            };
            assert_eq!(got, expected, "{first} {second}");
        }
    }
}
