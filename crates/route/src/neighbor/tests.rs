mod moves;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use millstream_packet::{Pool, PoolConfig};
use proptest::prelude::*;

use super::*;

const LINK: LinkId = LinkId(0);

fn pool() -> Pool {
    let small = PoolConfig { initial_frames: 256, limit_frames: 512, ..PoolConfig::default() };
    Pool::new(small).unwrap()
}

fn packet(pool: &Pool, byte: u8) -> Packet {
    Packet::from_slice(pool, 128, &[byte; 20]).unwrap()
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn ip6(last: u16) -> IpAddr {
    IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, last])
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn table(config: NeighborConfig) -> NeighborTable {
    NeighborTable::new(config, [1, 2])
}

fn state(table: &NeighborTable, ip: IpAddr) -> Option<State> {
    table.iter().find(|n| n.ip == ip).map(|n| n.state)
}

fn contents(mut batch: PacketQueue) -> Vec<u8> {
    core::iter::from_fn(|| batch.pop()).map(|p| p.head()[0]).collect()
}

/// The actions due by a moment: (what, address), with the packets of unreachable ones.
fn act(table: &mut NeighborTable, now: Instant) -> Vec<(&'static str, IpAddr, Vec<u8>)> {
    let mut done = Vec::new();
    table.on_timer(now, &mut |action| match action {
        Action::Solicit { ip, unicast: None, .. } => done.push(("all", ip, vec![])),
        Action::Solicit { ip, unicast: Some(mac), former, .. } => {
            let asked = [Some(mac), former].into_iter().flatten().map(|mac| mac.0[5]).collect();
            done.push(("one", ip, asked));
        }
        Action::Unreachable { ip, packets, .. } => done.push(("gone", ip, contents(packets))),
    });
    done
}

/// Resolves with a packet; the address or whether to ask.
fn send(table: &mut NeighborTable, pool: &Pool, now: Instant, ip: IpAddr, byte: u8) -> String {
    match table.resolve(now, LINK, ip, packet(pool, byte)) {
        Resolved::Ready(mac, packet) => {
            assert_eq!(packet.head()[0], byte);
            format!("ready {}", mac.0[5])
        }
        Resolved::Pending { solicit: true, .. } => "ask".into(),
        Resolved::Pending { displaced: 0, .. } => "wait".into(),
        Resolved::Pending { displaced, .. } => format!("wait, dropped {displaced}"),
        Resolved::Refused(packet, why) => {
            assert_eq!(packet.head()[0], byte);
            format!("{why:?}")
        }
    }
}

const NA_SOLICITED: Evidence =
    Evidence::Advertised { solicited: true, replace: true, router: false };

#[test]
fn packets_wait_for_the_answer_in_order() {
    for (ip, evidence) in [(ip(9), Evidence::ARP_REPLY), (ip6(9), NA_SOLICITED)] {
        let (pool, mut t) = (pool(), table(NeighborConfig::default()));
        assert_eq!(send(&mut t, &pool, at(0), ip, 1), "ask");
        assert_eq!(send(&mut t, &pool, at(1), ip, 2), "wait");
        assert_eq!(t.lookup(LINK, ip), None);
        let heard = t.hear(at(2), LINK, ip, Some(mac(9)), evidence);
        assert_eq!((heard.change, contents(heard.released)), (Change::Learnt, vec![1, 2]));
        assert_eq!(send(&mut t, &pool, at(3), ip, 3), "ready 9");
        assert_eq!(state(&t, ip), Some(State::Reachable));
        assert_eq!(t.stats().pending_packets, 0);
        assert_eq!(t.stats().pending_bytes, 0);
    }
}

#[test]
fn three_questions_a_second_apart_then_unreachable() {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 7), "ask");
    assert_eq!(t.next_deadline(), Some(at(1000)));
    assert!(act(&mut t, at(999)).is_empty());
    assert_eq!(act(&mut t, at(1000)), [("all", ip(9), vec![])]);
    assert_eq!(act(&mut t, at(2000)), [("all", ip(9), vec![])]);
    assert_eq!(act(&mut t, at(3000)), [("gone", ip(9), vec![7])]);
    // Nobody was given an address, so nobody need look again.
    assert!(t.is_empty() && t.next_deadline().is_none() && t.generation() == 0);
    assert_eq!(t.stats().unreachable, 1);
    // The next packet begins anew.
    assert_eq!(send(&mut t, &pool, at(4000), ip(9), 8), "ask");
}

#[test]
fn a_doubted_neighbour_is_asked_at_its_next_use() {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    assert_eq!(send(&mut t, &pool, at(0), ip6(9), 1), "ask");
    let _ = t.hear(at(0), LINK, ip6(9), Some(mac(9)), NA_SOLICITED);
    t.doubt(at(1000), LINK, ip6(9));
    assert_eq!(state(&t, ip6(9)), Some(State::Stale));
    assert_eq!(send(&mut t, &pool, at(1000), ip6(9), 2), "ready 9");
    assert_eq!(state(&t, ip6(9)), Some(State::Delay));
    t.doubt(at(2000), LINK, ip6(9));
    assert_eq!(act(&mut t, at(6000)), [("one", ip6(9), vec![9])]);
}

#[test]
fn a_used_stale_neighbour_is_asked_after_the_delay() {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    assert_eq!(send(&mut t, &pool, at(0), ip6(9), 1), "ask");
    let _ = t.hear(at(0), LINK, ip6(9), Some(mac(9)), NA_SOLICITED);
    assert_eq!(send(&mut t, &pool, at(0), ip6(9), 1), "ready 9");
    // REACHABLE_TIME lies between 15 and 45 s; what holds its address must ask again after it.
    let generation = t.generation();
    assert!(act(&mut t, at(14_999)).is_empty());
    assert_eq!((state(&t, ip6(9)), t.generation()), (Some(State::Reachable), generation));
    assert!(act(&mut t, at(45_001)).is_empty());
    assert_eq!(state(&t, ip6(9)), Some(State::Stale));
    assert_ne!(t.generation(), generation);
    assert_eq!(send(&mut t, &pool, at(50_000), ip6(9), 2), "ready 9");
    assert_eq!(state(&t, ip6(9)), Some(State::Delay));
    assert!(act(&mut t, at(54_999)).is_empty());
    assert_eq!(act(&mut t, at(55_000)), [("one", ip6(9), vec![9])]);
    assert_eq!(state(&t, ip6(9)), Some(State::Probe));
    assert_eq!(send(&mut t, &pool, at(55_500), ip6(9), 3), "ready 9");
    assert_eq!(act(&mut t, at(56_000)).len(), 1);
    assert_eq!(act(&mut t, at(57_000)).len(), 1);
    assert_eq!(act(&mut t, at(58_000)), [("gone", ip6(9), vec![])]);
}

#[test]
fn progress_above_spares_the_question() {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 1), "ask");
    t.confirm(at(0), LINK, ip(9));
    assert_eq!(state(&t, ip(9)), Some(State::Incomplete));
    let _ = t.hear(at(0), LINK, ip(9), Some(mac(9)), Evidence::ARP_REPLY);
    for second in 1..200 {
        // A confirmation every 10 s keeps it REACHABLE, whose time is at least 15 s.
        if second % 10 == 0 {
            t.confirm(at(second * 1000), LINK, ip(9));
        }
        assert!(act(&mut t, at(second * 1000)).is_empty());
        assert_eq!(send(&mut t, &pool, at(second * 1000), ip(9), 1), "ready 9");
        assert_eq!(state(&t, ip(9)), Some(State::Reachable));
    }
}

#[test]
fn an_unasked_advertisement_makes_no_entry_but_a_question_does() {
    let mut t = table(NeighborConfig::default());
    let unasked =
        [Evidence::ARP_REPLY, Evidence::GRATUITOUS_ARP, Evidence::Overheard, NA_SOLICITED];
    for evidence in unasked {
        assert_eq!(t.hear(at(0), LINK, ip(9), Some(mac(9)), evidence).change, Change::Nothing);
    }
    assert!(t.is_empty());
    assert_eq!(t.hear(at(0), LINK, ip(9), Some(mac(9)), Evidence::Asked).change, Change::Learnt);
    assert_eq!(state(&t, ip(9)), Some(State::Stale));
    assert_eq!(t.lookup(LINK, ip(9)), Some(mac(9)));
    // On this link only.
    assert_eq!(t.lookup(LinkId(1), ip(9)), None);
    // Unused, it is forgotten some day.
    act(&mut t, at(limits::STALE_LIFETIME_MS));
    assert!(t.is_empty());
}

#[test]
fn gratuitous_arp_moves_the_address_without_proving_it_reachable() {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    let _ = t.hear(at(0), LINK, ip(9), Some(mac(9)), Evidence::Asked);
    t.confirm(at(0), LINK, ip(9));
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 1), "ready 9");
    let generation = t.generation();
    let heard = t.hear(at(1), LINK, ip(9), Some(mac(8)), Evidence::GRATUITOUS_ARP);
    assert_eq!((heard.change, t.lookup(LINK, ip(9))), (Change::Moved, Some(mac(8))));
    assert_eq!(state(&t, ip(9)), Some(State::Stale));
    assert_ne!(t.generation(), generation);
    // An unasked reply proves nothing either, even for the same address.
    let heard = t.hear(at(2), LINK, ip(9), Some(mac(8)), Evidence::ARP_REPLY);
    assert_eq!((heard.change, state(&t, ip(9))), (Change::Confirmed, Some(State::Stale)));
}

#[test]
fn an_advertisement_without_override_only_casts_doubt() {
    let weak = |solicited| Evidence::Advertised { solicited, replace: false, router: true };
    let mut t = table(NeighborConfig::default());
    let _ = t.hear(at(0), LINK, ip6(9), Some(mac(9)), Evidence::Asked);
    t.confirm(at(0), LINK, ip6(9));
    // The same address, solicited: fine.
    let heard = t.hear(at(1), LINK, ip6(9), Some(mac(9)), weak(true));
    assert_eq!((heard.change, state(&t, ip6(9))), (Change::Confirmed, Some(State::Reachable)));
    assert!(t.iter().all(|n| n.router));
    // Another: REACHABLE becomes STALE and keeps the address; STALE stays as it is.
    let heard = t.hear(at(2), LINK, ip6(9), Some(mac(8)), weak(true));
    assert_eq!((heard.change, state(&t, ip6(9))), (Change::Doubted, Some(State::Stale)));
    let heard = t.hear(at(3), LINK, ip6(9), Some(mac(8)), weak(true));
    assert_eq!((heard.change, t.lookup(LINK, ip6(9))), (Change::Nothing, Some(mac(9))));
    // None at all, solicited: the known one is confirmed.
    let heard = t.hear(at(4), LINK, ip6(9), None, weak(true));
    assert_eq!((heard.change, state(&t, ip6(9))), (Change::Confirmed, Some(State::Reachable)));
}

#[test]
fn no_group_address_enters() {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 1), "ask");
    for bad in [MacAddr::BROADCAST, MacAddr::ZERO, MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        let heard = t.hear(at(0), LINK, ip(9), Some(bad), Evidence::ARP_REPLY);
        assert_eq!(heard.change, Change::Nothing);
    }
    let group = "224.0.0.1".parse().unwrap();
    let heard = t.hear(at(0), LINK, group, Some(mac(1)), Evidence::Asked);
    assert_eq!(heard.change, Change::Nothing);
    assert_eq!(send(&mut t, &pool, at(0), group, 1), "ready 1");
    assert_eq!(t.len(), 1);
}

#[test]
fn static_entries_stay_as_set() {
    let (pool, mut t) = (pool(), table(NeighborConfig { limit: 1, ..Default::default() }));
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 5), "ask");
    let released = t.set_static(at(0), LINK, ip(9), mac(9)).unwrap();
    assert_eq!(contents(released), [5]);
    let heard = t.hear(at(1), LINK, ip(9), Some(mac(8)), Evidence::GRATUITOUS_ARP);
    assert_eq!(heard.change, Change::Nothing);
    assert!(act(&mut t, at(u64::MAX / 1_000_000)).is_empty());
    assert_eq!(send(&mut t, &pool, at(2), ip(9), 6), "ready 9");
    // Nor does it give way.
    assert_eq!(send(&mut t, &pool, at(2), ip(8), 6), "TableFull");
    assert_eq!(t.set_static(at(2), LINK, ip(8), mac(8)).err(), Some(Refusal::TableFull));
    assert!(t.remove(LINK, ip(9)).is_some());
    assert!(t.is_empty());
}

#[test]
fn the_packet_that_has_waited_longest_is_shown_and_stays() {
    let pool = pool();
    let mut table = table(NeighborConfig::default());
    let first = |table: &NeighborTable, who| {
        table.first_waiting(LINK, who).map(|packet| packet.head().to_vec())
    };
    assert_eq!(first(&table, ip(1)), None);
    let alone = packet(&pool, 1).head().to_vec();
    send(&mut table, &pool, at(0), ip(1), 1);
    send(&mut table, &pool, at(1), ip(1), 2);
    send(&mut table, &pool, at(2), ip(2), 3);
    assert_eq!(first(&table, ip(1)), Some(alone.clone()));
    assert_eq!((first(&table, ip(1)), table.stats().pending_packets), (Some(alone), 3));
    assert_eq!(first(&table, ip(2)), Some(packet(&pool, 3).head().to_vec()));
}

#[test]
fn a_full_queue_drops_its_oldest() {
    let config = NeighborConfig { pending_per_entry_packets: 2, ..Default::default() };
    let (pool, mut t) = (pool(), table(config));
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 1), "ask");
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 2), "wait");
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 3), "wait, dropped 1");
    let heard = t.hear(at(1), LINK, ip(9), Some(mac(9)), Evidence::ARP_REPLY);
    assert_eq!(contents(heard.released), [2, 3]);
    assert_eq!(t.stats().pending_dropped, 1);
}

#[test]
fn bytes_are_counted_as_held() {
    let pool = pool();
    let held = packet(&pool, 0).held_bytes();
    let config = NeighborConfig { pending_per_entry_bytes: 2 * held, ..Default::default() };
    let mut t = table(config);
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 1), "ask");
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 2), "wait");
    assert_eq!(t.stats().pending_bytes, 2 * held);
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 3), "wait, dropped 1");
    let mut t = table(NeighborConfig { pending_bytes: held - 1, ..Default::default() });
    assert_eq!(send(&mut t, &pool, at(0), ip(9), 1), "TooLarge");
    assert!(t.is_empty());
}

#[test]
fn when_all_room_is_taken_the_oldest_of_all_gives_way() {
    let config = NeighborConfig { pending_packets: 3, ..Default::default() };
    let (pool, mut t) = (pool(), table(config));
    assert_eq!(send(&mut t, &pool, at(0), ip(1), 1), "ask");
    assert_eq!(send(&mut t, &pool, at(1), ip(1), 2), "wait");
    assert_eq!(send(&mut t, &pool, at(2), ip(2), 3), "ask");
    let resolved = t.resolve(at(3), LINK, ip(3), packet(&pool, 4));
    assert!(matches!(resolved, Resolved::Pending { solicit: true, displaced: 1 }));
    assert_eq!(send(&mut t, &pool, at(4), ip(1), 5), "wait, dropped 1");
    let mut answer = |last| {
        let heard = t.hear(at(5), LINK, ip(last), Some(mac(last)), Evidence::ARP_REPLY);
        contents(heard.released)
    };
    assert_eq!([answer(1), answer(2), answer(3)], [vec![5], vec![3], vec![4]]);
}

#[test]
fn neighbours_that_are_waited_for_share_the_room() {
    let pool = pool();
    let held = packet(&pool, 0).held_bytes();
    let by_number = NeighborConfig { pending_packets: 16, ..Default::default() };
    let by_bytes = NeighborConfig { pending_bytes: 16 * held, ..Default::default() };
    for config in [by_number, by_bytes] {
        let mut t = table(config);
        let waiting = |t: &NeighborTable, who| {
            t.iter().find(|neighbor| neighbor.ip == who).map_or(0, |n| n.pending_packets)
        };
        for _ in 0..100 {
            send(&mut t, &pool, at(0), ip(1), 1);
        }
        assert_eq!(waiting(&t, ip(1)), 8, "half of all");
        for n in 0..100 {
            send(&mut t, &pool, at(1), ip(1 + n % 5), 1);
        }
        assert!((2..=5).all(|n| waiting(&t, ip(n)) >= 1), "others have nothing");
        for n in 0..4 {
            send(&mut t, &pool, at(2), ip(9), n);
        }
        for n in 0..200 {
            send(&mut t, &pool, at(3), ip(1 + n % 5), 1);
        }
        assert!(waiting(&t, ip(9)) >= 1, "what waits is displaced by who has his share");
    }
}

#[test]
fn less_may_wait_when_the_owner_says_so() {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    let held = packet(&pool, 0).held_bytes();
    for n in 1..=8 {
        send(&mut t, &pool, at(u64::from(n)), ip(n), n);
    }
    assert_eq!((t.pending_bytes(), t.limit_pending(8 * held)), (8 * held, 0));
    assert_eq!(t.limit_pending(3 * held), 5);
    assert_eq!((t.pending_bytes(), t.stats().pending_dropped), (3 * held, 5));
    let mut answer = |last| {
        let heard = t.hear(at(9), LINK, ip(last), Some(mac(last)), Evidence::ARP_REPLY);
        contents(heard.released)
    };
    assert_eq!([answer(5), answer(6)], [vec![], vec![6]]);
    assert_eq!(t.limit_pending(held - 1), 2);
    assert_eq!(send(&mut t, &pool, at(9), ip(7), 1), "wait, dropped 1");
    let resolved = t.resolve(at(9), LINK, ip(99), packet(&pool, 1));
    assert!(matches!(resolved, Resolved::Pending { solicit: true, displaced: 1 }));
    assert_eq!(t.limit_pending(usize::MAX), 0);
    assert_eq!(send(&mut t, &pool, at(9), ip(7), 1), "wait");
}

#[test]
fn a_scan_displaces_its_own_entries_and_not_the_neighbours_in_use() {
    let config = NeighborConfig { limit: 64, ..Default::default() };
    let (pool, mut t) = (pool(), table(config));
    for n in 1..=16 {
        assert_eq!(send(&mut t, &pool, at(0), ip(n), 0), "ask");
        let _ = t.hear(at(0), LINK, ip(n), Some(mac(n)), Evidence::ARP_REPLY);
        assert_eq!(send(&mut t, &pool, at(0), ip(n), 0), format!("ready {n}"));
    }
    for n in 1..=1000 {
        assert_eq!(send(&mut t, &pool, at(10 + u64::from(n)), ip6(n), 0), "ask");
        let asker = IpAddr::from([10, 1, (n >> 8) as u8, n as u8]);
        let _ = t.hear(at(10 + u64::from(n)), LINK, asker, Some(mac(1)), Evidence::Asked);
        assert!(t.len() <= 64);
    }
    for n in 1..=16 {
        assert_eq!(send(&mut t, &pool, at(2000), ip(n), 0), format!("ready {n}"));
    }
    // Nor does it make anybody who holds a header template look again.
    assert_eq!(t.generation(), 0);
}

#[test]
fn the_entries_of_a_link_go_with_it() {
    let (pool, mut t) = (pool(), table(NeighborConfig::default()));
    assert_eq!(send(&mut t, &pool, at(0), ip(1), 0), "ask");
    t.set_static(at(0), LinkId(1), ip(1), mac(1)).unwrap();
    assert_eq!(t.remove_link(LINK), 1);
    assert_eq!((t.len(), t.stats().pending_packets, t.stats().pending_dropped), (1, 0, 1));
}

#[derive(Clone, Debug)]
enum Op {
    Send(u8),
    Hear(u8, Option<u8>, Evidence),
    Confirm(u8),
    SetStatic(u8),
    Remove(u8),
    Wait(u16),
}

fn any_op() -> impl Strategy<Value = Op> {
    let who = 0_u8..6;
    let evidence = prop_oneof![
        Just(Evidence::Asked),
        Just(Evidence::Overheard),
        (any::<bool>(), any::<bool>()).prop_map(|(solicited, replace)| Evidence::Advertised {
            solicited,
            replace,
            router: false
        }),
    ];
    prop_oneof![
        4 => who.clone().prop_map(Op::Send),
        3 => (who.clone(), prop::option::weighted(0.8, 1_u8..4), evidence)
            .prop_map(|(who, mac, evidence)| Op::Hear(who, mac, evidence)),
        1 => who.clone().prop_map(Op::Confirm),
        1 => who.clone().prop_map(Op::SetStatic),
        1 => who.prop_map(Op::Remove),
        4 => (0_u16..20_000).prop_map(Op::Wait),
    ]
}

/// Even numbers are IPv4, odd ones IPv6.
fn who(n: u8) -> IpAddr {
    if n.is_multiple_of(2) { ip(n + 1) } else { ip6(n.into()) }
}

proptest! {
    /// After any events limits hold; a packet is waiting, given back in order, or counted as
    /// dropped; an address stays valid while the generation does; there is a deadline whenever
    /// something waits.
    #[test]
    fn nothing_is_lost_and_nothing_grows(ops in prop::collection::vec(any_op(), 0..120)) {
        let pool = pool();
        let config = NeighborConfig {
            limit: 4, pending_per_entry_packets: 3, pending_packets: 5, ..Default::default()
        };
        let mut t = table(config);
        let mut now = at(0);
        let mut waiting: BTreeMap<IpAddr, VecDeque<u8>> = BTreeMap::new();
        let mut sent = 0_u64;
        let came_back = core::cell::Cell::new(0_u64);
        let mut given_out: BTreeMap<IpAddr, (u32, MacAddr)> = BTreeMap::new();
        let mut number = 0_u8;
        let check = |waiting: &mut BTreeMap<IpAddr, VecDeque<u8>>, ip, packets: Vec<u8>| {
            // In order; what was displaced or evicted is missing from what was sent.
            let queue = waiting.remove(&ip).unwrap_or_default();
            let mut rest = queue.iter();
            for packet in &packets {
                assert!(rest.any(|p| p == packet), "{packet} not in {queue:?}");
            }
            came_back.set(came_back.get() + packets.len() as u64);
        };
        for op in ops {
            match op {
                Op::Send(n) => {
                    number = number.wrapping_add(1);
                    match t.resolve(now, LINK, who(n), packet(&pool, number)) {
                        Resolved::Ready(mac, _) => {
                            given_out.insert(who(n), (t.generation(), mac));
                        }
                        Resolved::Pending { .. } => {
                            sent += 1;
                            waiting.entry(who(n)).or_default().push_back(number);
                        }
                        Resolved::Refused(..) => {}
                    }
                }
                Op::Hear(n, m, evidence) => {
                    let heard = t.hear(now, LINK, who(n), m.map(mac), evidence);
                    if heard.change == Change::Learnt {
                        check(&mut waiting, who(n), contents(heard.released));
                    } else {
                        prop_assert!(heard.released.is_empty());
                    }
                }
                Op::Confirm(n) => t.confirm(now, LINK, who(n)),
                Op::SetStatic(n) => {
                    if let Ok(released) = t.set_static(now, LINK, who(n), mac(n + 1)) {
                        check(&mut waiting, who(n), contents(released));
                    }
                }
                Op::Remove(n) => {
                    if let Some(released) = t.remove(LINK, who(n)) {
                        check(&mut waiting, who(n), contents(released));
                    }
                }
                Op::Wait(ms) => {
                    now += Duration::from_millis(ms.into());
                    for (what, ip, packets) in act(&mut t, now) {
                        if what == "gone" {
                            check(&mut waiting, ip, packets);
                        }
                    }
                    prop_assert!(t.next_deadline().is_none_or(|at| at > now));
                    prop_assert!(t.next_wakeup().is_none_or(|at| at > now));
                }
            }
            let stats = t.stats();
            prop_assert!(t.len() <= 4 && stats.pending_packets <= 5);
            prop_assert_eq!(t.iter().map(|n| n.pending_packets).sum::<usize>(), stats.pending_packets);
            prop_assert_eq!(t.iter().map(|n| n.pending_bytes).sum::<usize>(), stats.pending_bytes);
            prop_assert_eq!(sent, came_back.get() + stats.pending_dropped + stats.pending_packets as u64);
            for n in t.iter() {
                prop_assert!(n.pending_packets <= 3);
                prop_assert_eq!(n.mac.is_none(), n.state == State::Incomplete);
                prop_assert!(n.mac.is_none() || n.pending_packets == 0);
                prop_assert!(n.state == State::Static || t.next_deadline().is_some());
                let asking = matches!(n.state, State::Incomplete | State::Delay | State::Probe);
                prop_assert!(!asking || t.next_wakeup() >= t.next_deadline());
                prop_assert!(!asking || t.next_wakeup().is_some());
            }
            for (ip, (generation, mac)) in &given_out {
                let same = t.lookup(LINK, *ip) == Some(*mac);
                prop_assert!(same || *generation != t.generation(), "{} moved unsaid", ip);
            }
        }
    }
}
