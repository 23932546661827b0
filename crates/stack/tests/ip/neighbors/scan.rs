//! A scan of a network through a router (RFC 6583).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::route::{LinkId, State};
use millstream::{DropReason, Engine, SocketId};
use millstream_wire::checksum;
use millstream_wire::ip::{self, IpHeader, Protocol};

use crate::common;

const SECONDS: u64 = 5;
/// Packets to hosts that are not there, in a millisecond.
const SCANNED: u64 = 100;

/// A router between somebody far away and a network with two hosts.
struct Net {
    router: Engine,
    hosts: Engine,
    away: PairEnd,
    pool: Pool,
    now: Instant,
}

fn address(v6: bool, number: u64) -> IpAddr {
    match v6 {
        false => IpAddr::V4((0x0a10_0000 + number as u32).into()),
        true => IpAddr::V6((0xfd08_u128 << 112 | u128::from(number)).into()),
    }
}

impl Net {
    fn new() -> Self {
        let pool = common::pool();
        let far_away = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
        let ((near, away), (out, end)) =
            (pair(far_away).expect("a pair"), pair(PairConfig::default()).expect("a pair"));
        let mut router = Engine::new(common::config(&pool, 1)).expect("an engine");
        let mut hosts = Engine::new(common::config(&pool, 2)).expect("an engine");
        router.routes().set_forwarding(true);
        for link in [near, out] {
            router.add_link(Box::new(link)).expect("a link");
        }
        hosts.add_link(Box::new(end)).expect("a link");
        let own = |engine: &mut Engine, link: u16, all: [&str; 2]| {
            for own in all {
                let own = own.parse().expect("a prefix");
                engine.add_address(LinkId(link), own).expect("an address");
            }
        };
        own(&mut router, 0, ["10.9.0.1/24", "fd09::1/64"]);
        own(&mut router, 1, ["10.16.0.1/12", "fd08::1/64"]);
        own(&mut hosts, 0, ["10.16.0.8/12", "10.16.0.9/12"]);
        own(&mut hosts, 0, ["fd08::8/64", "fd08::9/64"]);
        let now = router.now().max(hosts.now());
        Self { router, hosts, away, pool, now }
    }

    /// Datagrams from far away to these hosts, and a millisecond.
    fn send(&mut self, to: &[IpAddr]) {
        for to in to.chunks(50) {
            let mut batch = PacketBatch::new();
            for to in to {
                let packet = Packet::from_slice(&self.pool, 64, &datagram(*to)).expect("frames");
                batch.push(packet).expect("room");
            }
            self.away.transmit(self.now, &self.pool, &mut batch).expect("room");
            assert!(batch.is_empty());
            while self.router.turn(self.now).progress | self.hosts.turn(self.now).progress {}
        }
        self.now += Duration::from_millis(1);
    }

    fn heard(&mut self, socket: SocketId) -> u64 {
        (0..).take_while(|_| self.hosts.udp(socket).recv(&mut [0; 9]).is_ok()).count() as u64
    }
}

/// One to port 9.
fn datagram(to: IpAddr) -> Vec<u8> {
    let from = if to.is_ipv4() { "10.9.0.7" } else { "fd09::7" };
    let from = from.parse().expect("an address");
    let header = IpHeader::new(from, to, Protocol::UDP, 9);
    let mut packet = vec![0; header.emit_len()];
    header.emit(&mut packet);
    let mut body = vec![0x9c, 0x40, 0, 9, 0, 9, 0, 0, b'x'];
    let mut sum =
        checksum::Accumulator::new(ip::pseudo_header_sum(from, to, Protocol::UDP, body.len()));
    sum.add(&body);
    body[6..8].copy_from_slice(&sum.finish());
    packet.extend(body);
    packet
}

#[test]
fn who_is_there_is_found_while_a_hundred_thousand_a_second_are_not() {
    for v6 in [false, true] {
        let mut net = Net::new();
        let [old, new] = [8, 9].map(|number| address(v6, number));
        let [of_old, of_new] = [old, new]
            .map(|ip| net.hosts.sockets().udp_bind(SocketAddr::new(ip, 9)).expect("bind"));
        net.send(&[old]);
        assert_eq!(net.heard(of_old), 1);
        let before = net.router.stats().neighbor_solicits;
        let (mut sent, mut heard) = ([0, 0], [0, 0]);
        for ms in 0..SECONDS * 1000 {
            let scanned = (0..SCANNED).map(|at| address(v6, 1000 + ms * SCANNED + at));
            let mut to: Vec<IpAddr> = scanned.collect();
            if ms % 10 == 0 {
                to.push(old);
                sent[0] += 1;
            }
            // It is looked for in the midst of the scan, four times a second.
            if ms >= 2000 && ms % 250 == 0 {
                to.push(new);
                sent[1] += 1;
            }
            net.send(&to);
            heard[0] += net.heard(of_old);
            heard[1] += net.heard(of_new);
        }
        assert_eq!(heard[0], sent[0], "who was known stays known");
        assert!(heard[1] + 1 >= sent[1], "{} of {} to the newcomer", heard[1], sent[1]);
        // Three questions for each that was asked for, instead of half a million.
        let asked = net.router.stats().neighbor_solicits - before;
        assert!((1000..=3 * (1024 + SECONDS * 512) + 10).contains(&asked), "{asked} questions");
        let unknown =
            net.router.inspect().neighbors().filter(|it| it.state == State::Incomplete).count();
        assert!(unknown <= 2600, "{unknown} unknown at once");
        assert!(net.router.stats().dropped(DropReason::NeighborRateLimit) > 400_000);
    }
}
