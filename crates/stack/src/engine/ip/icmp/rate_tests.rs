use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

/// A limit that decides whether an address is answered: this one, or the one that there was before.
trait Limit {
    fn allow(&mut self, now: Instant, to: IpAddr, arrived: u64) -> bool;
}

impl Limit for AnswerLimit {
    fn allow(&mut self, now: Instant, to: IpAddr, arrived: u64) -> bool {
        AnswerLimit::allow(self, now, to, arrived)
    }
}

/// A token bucket for all, of 1,000 a second and 50 at once: it shows that the attacks below are
/// ones.
struct OneForAll(u64);

impl Limit for OneForAll {
    fn allow(&mut self, now: Instant, _: IpAddr, _: u64) -> bool {
        let next = self.0.max(now.as_nanos()) + 1_000_000;
        let allowed = next <= now.as_nanos() + 50_000_000;
        if allowed {
            self.0 = next;
        }
        allowed
    }
}

const ATTACKER: u32 = 0x0a09_0042;
const PEER: u32 = 0x0a09_0001;

fn v4(bits: u32) -> IpAddr {
    Ipv4Addr::from(bits).into()
}

/// A host that answers what comes to a port where nothing is.
struct Host<L> {
    limit: L,
    /// The port that is in use with [`PEER`].
    used: Option<u16>,
    now: Instant,
    arrived: u64,
}

impl<L: Limit> Host<L> {
    fn new(limit: L, used: Option<u16>) -> Self {
        Host { limit, used, now: Instant::from_nanos(100_000_000_000), arrived: 0 }
    }

    /// A packet from `from` to a port; whether that address gets an answer.
    fn packet(&mut self, from: u32, port: u16) -> bool {
        self.arrived += 1;
        let is_used = from == PEER && self.used == Some(port);
        !is_used && self.limit.allow(self.now, v4(from), self.arrived)
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }
}

/// The attack of CVE-2020-25705: fifty ports at a time in the peer's name, then one's own question.
/// The port that it finds.
fn scan<L: Limit>(host: &mut Host<L>) -> Option<u16> {
    let mut answered = |ports: &[u16]| {
        host.wait_ms(60);
        for &port in ports {
            host.packet(PEER, port);
        }
        // as many as one address may have in any case, where the group is smaller
        for _ in ports.len()..50 {
            host.packet(PEER, 1);
        }
        host.packet(ATTACKER, 1)
    };
    let all: Vec<u16> = (32_768..61_000).collect();
    for group in all.chunks(50) {
        let mut group = group;
        if !answered(group) {
            continue;
        }
        while group.len() > 1 {
            let (first, second) = group.split_at(group.len() / 2);
            group = if answered(first) { first } else { second };
        }
        return Some(group[0]);
    }
    None
}

fn limit(seed: u64) -> AnswerLimit {
    AnswerLimit::new(10_000, 20, (seed, 7))
}

#[test]
fn a_scan_in_the_name_of_the_peer_finds_the_port_no_more_often_than_by_chance() {
    let ports = (0..40).map(|n| 33_000 + 653 * n);
    let (mut old, mut new) = (0, 0);
    for (seed, port) in ports.enumerate() {
        old += usize::from(scan(&mut Host::new(OneForAll(0), Some(port))) == Some(port));
        new += usize::from(scan(&mut Host::new(limit(seed as u64), Some(port))) == Some(port));
    }
    assert_eq!(old, 40, "the attack is one");
    assert_eq!(new, 0);
}

/// He sees the very same whether the port is used or not.
#[test]
fn what_one_address_gets_does_not_show_in_what_another_gets() {
    for seed in 0..50 {
        let seen = |used| {
            let mut host = Host::new(limit(seed), used);
            let mut seen = Vec::new();
            for round in 0..200 {
                host.wait_ms(1 + round % 300);
                for port in 0..(round % 60) as u16 {
                    host.packet(PEER, port);
                }
                seen.push(host.packet(ATTACKER, 1));
            }
            seen
        };
        let closed = seen(None);
        assert_eq!(closed, seen(Some(1)));
        assert!(closed.contains(&true) && closed.contains(&false), "the limit was reached");
    }
}

/// How often the attacker gets an answer who uses the one thing that is shared: as many made-up
/// sources as bring the table to where it may be full, one packet in the name of the peer, and a
/// question from an address of his own.
fn share_answered(used: bool, filled: u32, rounds: u32) -> f64 {
    let mut host = Host::new(limit(3), used.then_some(2));
    let mut count = 0;
    for round in 0..rounds {
        host.wait_ms(1250);
        for source in 0..filled {
            host.packet(0x2d00_0000 + source, 1);
        }
        // so much has arrived that chance hardly answers those beyond the bound
        host.arrived += 50_000;
        host.packet(PEER, 2);
        count += u32::from(host.packet(0x0b00_0000 + round, 1));
    }
    f64::from(count) / f64::from(rounds)
}

#[test]
fn a_table_that_is_nearly_full_does_not_tell_of_one_address() {
    // the limit is 500 addresses, and the bound between 250 and 500
    // in the middle it tells most: in one of 125 windows
    for filled in [312, 374, 375] {
        let (free, used) =
            (share_answered(false, filled, 1500), share_answered(true, filled, 1500));
        assert!((free - used).abs() < 0.08, "{filled}: {free} and {used}");
    }
}

#[test]
fn one_address_gets_its_allowance_and_all_get_about_the_limit() {
    let mut limit = AnswerLimit::new(1000, 10, (1, 2));
    let now = Instant::from_nanos(5_000_000_000);
    let six = |n: u128| IpAddr::from(Ipv6Addr::from(0xfd09 << 112 | n));
    assert_eq!((0..100).filter(|&n| limit.allow(now, six(1), n)).count(), 10);
    // a neighbour of the same prefix has its own
    assert_eq!((0..100).filter(|&n| limit.allow(now, six(2), n)).count(), 10);
    // a second later it has as many again
    let later = now + Duration::from_millis(1250);
    assert_eq!((0..100).filter(|&n| limit.allow(later, six(1), n)).count(), 10);
    // a flood of 100,000 made-up addresses gets what 100 addresses may have, and as many more by
    // chance as a sum of 100 / n comes to
    let much_later = later + Duration::from_millis(1250);
    let flood = (0..100_000).filter(|&n| limit.allow(much_later, six(1000 + u128::from(n)), n));
    let count = flood.count();
    assert!((300..1000).contains(&count), "{count} answers");
    // and those that are known keep what is left of theirs
    assert_eq!((0..100).filter(|_| limit.allow(much_later, six(1000), 100_000)).count(), 9);
}

#[test]
fn the_smallest_limit_is_one() {
    let mut limit = AnswerLimit::new(0, 0, (1, 2));
    let now = Instant::from_nanos(1);
    assert!(limit.allow(now, v4(1), 1));
    assert!(!limit.allow(now, v4(1), 2));
}
