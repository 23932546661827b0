//! Datagrams and pings longer than their way carries at once.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, PairConfig, pair};
use millstream::packet::{Instant, Packet, PacketBatch};
use millstream::route::LinkId;
use millstream::{DropReason, EngineConfig, Error, Fragmentation, UdpSocketOptions};
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp::{Icmp, Quote};
use millstream_wire::ip::{self, Fragment, IpHeader, Protocol, Version};

use super::{addr, heard};
use crate::common::{self, FAR, NEAR, config, engine, settle, two};

/// Ends in both families, with the longest datagram between them.
const ENDS: [(&str, &str, usize); 2] =
    [("10.9.0.1:5", "10.9.0.2:9", 65_507), ("[fd09::1]:5", "[fd09::2]:9", 65_527)];

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 11 + at / 255) as u8).collect()
}

#[test]
fn datagrams_of_any_size_arrive_whole() {
    for offload in [false, true] {
        for mtu in [1280, 1500, 9000] {
            for (ours, theirs, most) in ENDS {
                let link = PairConfig { offload, mtu, ..PairConfig::default() };
                let (mut near, mut far) = two(link);
                let socket = near.sockets().udp_bind(addr(ours)).expect("bind");
                let sink = far.sockets().udp_bind(addr(theirs)).expect("bind");
                let sizes = [0, 1, mtu - 48, mtu - 47, mtu, 9001, 30_000, most - 1, most];
                // The first ones wait for the neighbour; then headers are kept ready.
                for size in sizes {
                    let data = pattern(size);
                    near.udp(socket).send(&data, Some(addr(theirs))).expect("send");
                    settle(&mut near, &mut far);
                    let mut buffer = vec![0; 66_000];
                    let (len, from) = far.udp(sink).recv(&mut buffer).expect("a datagram");
                    assert_eq!((len, from), (size, addr(ours)));
                    assert!(buffer[..len] == data[..], "{size}");
                }
                let sent = near.udp(socket).send(&pattern(most + 1), Some(addr(theirs)));
                assert_eq!(sent, Err(Error::MessageTooLong));
                assert_eq!(far.inspect().fragments_held_bytes(), 0);
                assert_eq!(far.inspect().memory_use().held_bytes, 0);
                assert!(near.stats().datagrams_fragmented >= 4);
                let counted = far.stats().datagrams_reassembled;
                assert_eq!(counted, near.stats().datagrams_fragmented);
                assert_eq!(far.stats().dropped_total() + near.stats().dropped_total(), 0);
            }
        }
    }
}

#[test]
fn pings_of_any_size_are_answered_whole() {
    for (_, theirs, most) in ENDS {
        let (mut near, mut far) = two(PairConfig::default());
        let socket = near.sockets().icmp_bind(0).expect("bind");
        let to = addr(theirs).ip();
        for (seq, size) in [0, 1472, 1473, 20_000, most].into_iter().enumerate() {
            let data = pattern(size);
            near.echo(socket).send(to, seq as u16, &data).expect("send");
            settle(&mut near, &mut far);
            let (from, got, packet) = near.echo(socket).recv().expect("an answer");
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(0, &mut bytes);
            assert_eq!((from, got), (to, seq as u16));
            assert!(bytes == data, "{size}");
        }
        let sent = near.echo(socket).send(to, 9, &pattern(most + 1));
        assert_eq!(sent, Err(Error::MessageTooLong));
    }
}

#[test]
fn who_may_cut_is_said_in_each_packet() {
    for fragmentation in [Fragmentation::Never, Fragmentation::Sender, Fragmentation::Anybody] {
        let mut wire = Wire::new();
        let socket = wire.engine.sockets().udp_bind(addr("10.9.0.1:5")).expect("bind");
        wire.engine.udp(socket).set_fragmentation(fragmentation).expect("a socket");
        let mut ids = Vec::new();
        for _ in 0..3 {
            wire.engine.udp(socket).send(&[7; 100], Some(addr("10.9.0.2:9"))).expect("send");
            let sent = wire.sent();
            let ip = ip::parse(&sent[0], sent[0].len()).expect("a packet");
            assert_eq!(ip.dont_fragment, fragmentation != Fragmentation::Anybody);
            ids.push(ip.identification);
        }
        ids.dedup();
        assert_eq!(ids.len(), if fragmentation == Fragmentation::Anybody { 3 } else { 1 });
        let long = wire.engine.udp(socket).send(&[7; 1473], Some(addr("10.9.0.2:9")));
        let refused = (fragmentation == Fragmentation::Never).then_some(Error::MessageTooLong);
        assert_eq!(long.err(), refused);
        let parts = wire.sent();
        assert_eq!(parts.len(), if refused.is_some() { 0 } else { 2 });
        for part in &parts {
            assert!(!ip::parse(part, part.len()).expect("a packet").dont_fragment);
        }
    }
}

/// An engine, and a wire in the test's hands.
struct Wire {
    engine: millstream::Engine,
    end: millstream::link::PairEnd,
    pool: millstream::packet::Pool,
    now: Instant,
}

const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

impl Wire {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(set: impl FnOnce(&mut EngineConfig)) -> Self {
        let pool = common::pool();
        let (near, end) = pair(PairConfig::default()).expect("a pair");
        let mut settings = config(&pool, 1);
        set(&mut settings);
        let mut engine = engine(settings, near, &NEAR);
        let now = engine.refresh_time();
        let mut wire = Self { engine, end, pool, now };
        // Everybody learns the station, by a ping each.
        for to in FAR {
            let far: IpAddr =
                to.split('/').next().and_then(|ip| ip.parse().ok()).expect("an address");
            let is_v4 = far.is_ipv4();
            let near: IpAddr =
                NEAR[usize::from(!is_v4)].split('/').next().unwrap().parse().unwrap();
            wire.know(far, near);
        }
        wire.sent();
        wire
    }

    /// The engine learns where `far` is.
    fn know(&mut self, far: IpAddr, near: IpAddr) {
        match (far, near) {
            (IpAddr::V4(far), IpAddr::V4(near)) => {
                let mut frame = vec![0; 14];
                EthernetHeader::new(MacAddr::BROADCAST, STATION, EtherType::ARP).emit(&mut frame);
                frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
                frame.extend(STATION.0);
                frame.extend(far.octets());
                frame.extend([0; 6]);
                frame.extend(near.octets());
                self.frame(&frame);
            }
            (IpAddr::V6(far), IpAddr::V6(near)) => {
                let mut body = vec![135, 0, 0, 0, 0, 0, 0, 0];
                body.extend(near.octets());
                body.extend([1, 1]);
                body.extend(STATION.0);
                let ip = IpHeader::new(far.into(), near.into(), Protocol::ICMPV6, body.len());
                let ip = IpHeader { hop_limit: 255, ..ip };
                seal(&ip, &mut body, 2);
                self.give(&packet(&ip, &body));
            }
            _ => unreachable!("of one family"),
        }
    }

    fn frame(&mut self, frame: &[u8]) {
        let packet = Packet::from_slice(&self.pool, 64, frame).expect("frames");
        let mut batch = PacketBatch::new();
        assert!(batch.push(packet).is_ok());
        self.end.transmit(self.now, &self.pool, &mut batch).expect("room");
        self.turn();
    }

    fn turn(&mut self) {
        while self.engine.turn(self.now).progress {}
    }

    /// Hands the engine an IP packet.
    fn give(&mut self, bytes: &[u8]) {
        let kind = if bytes[0] >> 4 == 6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mac = self.engine.inspect().links().next().expect("a link").mac;
        let mut frame = vec![0; 14];
        EthernetHeader::new(mac, STATION, kind).emit(&mut frame);
        frame.extend(bytes);
        self.frame(&frame);
    }

    /// IP packets that the engine has sent to the station.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        self.turn();
        let mut batch = PacketBatch::new();
        self.end.receive(self.now, &self.pool, &mut batch).expect("a link");
        let frames = batch.drain().map(|packet| {
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(0, &mut bytes);
            bytes
        });
        let is_ip = |frame: &Vec<u8>| frame[..6] == STATION.0 && frame[12..14] != [8, 6];
        frames.filter(is_ip).map(|frame| frame[14..].to_vec()).collect()
    }
}

fn packet(ip: &IpHeader, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ip.emit_len()];
    ip.emit(&mut bytes);
    bytes.extend(body);
    bytes
}

fn seal(ip: &IpHeader, body: &mut [u8], at: usize) {
    let pseudo = match ip.protocol {
        Protocol::ICMP => 0,
        protocol => ip::pseudo_header_sum(ip.src, ip.dst, protocol, body.len()),
    };
    body[at..at + 2].fill(0);
    let mut sum = millstream_wire::checksum::Accumulator::new(pseudo);
    sum.add(body);
    let sum = sum.finish();
    body[at..at + 2].copy_from_slice(&sum);
}

/// The fragments of a datagram of `len` bytes to port 9, cut at `cuts`.
fn cut(v6: bool, len: usize, id: u32, cuts: &[usize]) -> Vec<Vec<u8>> {
    let (near, far, _) = ENDS[usize::from(v6)];
    let (src, dst): (SocketAddr, SocketAddr) = (addr(far), addr(near));
    let mut body = vec![0; 8 + len];
    for (at, word) in [9, 5, 8 + len as u16].into_iter().enumerate() {
        body[2 * at..2 * at + 2].copy_from_slice(&u16::to_be_bytes(word));
    }
    body[8..].copy_from_slice(&pattern(len));
    let ip = IpHeader::new(src.ip(), dst.ip(), Protocol::UDP, body.len());
    seal(&ip, &mut body, 6);
    let mut ends: Vec<usize> = cuts.to_vec();
    ends.push(body.len());
    let mut from = 0;
    ends.into_iter()
        .map(|to| {
            let fragment = Some(Fragment { offset: from as u16, more: to < body.len(), id });
            let part = IpHeader { fragment, payload_len: to - from, dont_fragment: false, ..ip };
            let bytes = packet(&part, &body[from..to]);
            from = to;
            bytes
        })
        .collect()
}

#[test]
fn a_datagram_that_does_not_become_whole_is_told_of_if_its_first_fragment_came() {
    for v6 in [false, true] {
        for first in [false, true] {
            let mut wire = Wire::new();
            let parts = cut(v6, 600, 77, &[16, 400]);
            wire.give(&parts[usize::from(!first)]);
            wire.give(&parts[2]);
            assert!(wire.engine.inspect().fragments_held_bytes() > 0);
            let time = Duration::from_secs(60);
            wire.now += time - Duration::from_millis(1);
            wire.sent();
            assert!(wire.engine.inspect().fragments_held_bytes() > 0);
            wire.now += Duration::from_millis(1);
            // Neighbours may be asked for meanwhile.
            let errors: Vec<_> = wire
                .sent()
                .into_iter()
                .filter_map(|bytes| {
                    let ip = ip::parse(&bytes, bytes.len()).ok()?;
                    let version = if v6 { Version::V6 } else { Version::V4 };
                    let (message, len) = Icmp::parse(version, &bytes[ip.header_len..]).ok()?;
                    let quote = Quote::parse(version, &bytes[ip.header_len + len..]).ok()?;
                    Some((message, quote.ip.fragment?))
                })
                .collect();
            let expected = first.then_some((
                Icmp::TimeExceeded { reassembly: true },
                Fragment { offset: 0, more: true, id: 77 },
            ));
            assert_eq!(errors, Vec::from_iter(expected), "IPv6: {v6}");
            assert_eq!(wire.engine.inspect().fragments_held_bytes(), 0);
            assert_eq!(wire.engine.stats().dropped(DropReason::FragmentTimeout), 2);
        }
    }
}

#[test]
fn atomic_fragments_are_packets_and_first_fragments_hold_their_headers() {
    let mut wire = Wire::new();
    let sink = wire.engine.sockets().udp_bind(addr("[fd09::1]:5")).expect("bind");
    // RFC 6946: whatever else waits under its identification.
    let parts = cut(true, 600, 7, &[16]);
    wire.give(&parts[0]);
    let mut atomic = cut(true, 40, 7, &[]).remove(0);
    if ip::parse(&atomic, atomic.len()).expect("a packet").header_len == 40 {
        atomic.splice(40..40, [17, 0, 0, 0, 0, 0, 0, 7]);
        atomic[6] = 44;
        atomic[5] += 8;
    }
    wire.give(&atomic);
    assert_eq!(heard(&mut wire.engine, sink), [(pattern(40), addr("[fd09::2]:9"))]);
    wire.give(&parts[1]);
    assert_eq!(heard(&mut wire.engine, sink), [(pattern(600), addr("[fd09::2]:9"))]);
    // RFC 7112: TCP's header in two.
    let mut tiny = cut(true, 600, 8, &[16]).remove(0);
    tiny[40] = 6;
    wire.give(&tiny);
    assert_eq!(wire.engine.stats().dropped(DropReason::FragmentHeaders), 1);
    assert_eq!(wire.engine.inspect().fragments_held_bytes(), 0);
}

#[test]
fn a_flood_of_fragments_holds_no_more_than_it_may() {
    for v6 in [false, true] {
        let limit = 512 << 10;
        let mut wire = Wire::with(|config| config.limits.fragments_bytes = limit);
        let socket = wire.engine.sockets().udp_bind(addr(ENDS[usize::from(v6)].0)).expect("bind");
        for id in 0..3000 {
            // Another piece of each, of one source: never whole.
            wire.give(&cut(v6, 600, 1 << 8 | id << 16 | id, &[8, 400])[1 + id as usize % 2]);
            assert!(wire.engine.inspect().fragments_held_bytes() <= limit / 4);
            if id % 500 == 499 {
                cut(v6, 600, 9, &[16, 400]).iter().for_each(|part| wire.give(part));
                assert_eq!(heard(&mut wire.engine, socket).len(), 1, "one beside the flood");
            }
        }
        assert!(wire.engine.stats().dropped(DropReason::FragmentMemory) > 2000);
    }
}

#[test]
fn an_address_that_is_removed_is_nobodys() {
    for (ours, theirs, _) in ENDS {
        let (mut near, mut far) = two(PairConfig::default());
        let link = millstream::route::LinkId(0);
        let listener =
            far.sockets().tcp_listen(SocketAddr::new(addr(theirs).ip(), 80), 4).expect("listen");
        let server = SocketAddr::new(addr(theirs).ip(), 80);
        let client = near.sockets().tcp_connect(server).expect("connect");
        settle(&mut near, &mut far);
        far.listener(listener).accept().expect("accept");
        let socket = near.sockets().udp_bind(addr(ours)).expect("bind");
        near.udp(socket).send(b"x", Some(addr(theirs))).expect("send");
        let ip = addr(ours).ip();
        assert_eq!(
            near.links().remove_address(link, addr(theirs).ip()),
            Err(Error::AddrNotAvailable)
        );
        near.links().remove_address(link, ip).expect("removed");
        assert_eq!(near.links().remove_address(link, ip), Err(Error::AddrNotAvailable));
        assert!(near.tcp(client).write(b"x").is_err(), "its connections are reset");
        let sent = near.udp(socket).send(b"x", Some(addr(theirs)));
        assert_eq!(sent, Err(Error::NetworkUnreachable), "the route is gone");
        settle(&mut near, &mut far);
        // What comes for it is for nobody.
        let sink = far.sockets().udp_bind(addr(theirs)).expect("bind");
        far.udp(sink).send(b"x", Some(addr(ours))).expect("send");
        settle(&mut near, &mut far);
        let others = near.stats().dropped(DropReason::OtherAddress);
        let unheard = near.stats().dropped(DropReason::NeighborIgnored);
        assert!(others + unheard >= 1, "{:?}", near.stats().drops_by_name().collect::<Vec<_>>());
        // It may come back.
        let prefix = NEAR[usize::from(ip.is_ipv6())].parse().expect("a prefix");
        near.add_address(link, prefix).expect("an address");
        near.udp(socket).send(b"back", Some(addr(theirs))).expect("send");
        settle(&mut near, &mut far);
        assert_eq!(heard(&mut far, sink).pop().expect("a datagram").0, b"back");
    }
}

#[test]
fn datagrams_have_the_traffic_class_that_is_set() {
    for v6 in [false, true] {
        let (ours, theirs, _) = ENDS[usize::from(v6)];
        let mut wire = Wire::new();
        let socket = wire.engine.sockets().udp_bind(addr(ours)).expect("bind");
        for class in [0, 0xb9] {
            wire.engine.udp(socket).set_traffic_class(class).expect("a socket");
            // By headers built for it, by those kept ready, and in fragments.
            for len in [9, 9, 9, 2000] {
                wire.engine.udp(socket).send(&vec![7; len], Some(addr(theirs))).expect("send");
                let sent = wire.sent();
                assert_eq!(sent.len(), 1 + len / 1500);
                for bytes in sent {
                    let ip = ip::parse(&bytes, bytes.len()).expect("a packet");
                    assert_eq!(ip.traffic_class, class);
                }
            }
        }
    }
}

#[test]
fn every_option_of_a_socket_is_read_back_as_it_was_set() {
    let mut wire = Wire::new();
    let socket = wire.engine.sockets().udp_bind(addr("0.0.0.0:5")).expect("bind");
    let first = wire.engine.udp(socket).options().expect("a socket");
    assert_eq!((first.hop_limit, first.group_hop_limit, first.traffic_class), (64, 1, 0));
    assert!(!first.broadcast && first.group_loop && first.group_link.is_none());
    let link = wire.engine.inspect().links().next().expect("a link").id;
    let options = UdpSocketOptions {
        hop_limit: 3,
        group_hop_limit: 9,
        traffic_class: 0xb8,
        broadcast: true,
        fragmentation: Fragmentation::Probe,
        group_link: Some(link),
        group_loop: false,
        receive_limit_bytes: 100_000,
    };
    wire.engine.udp(socket).set_options(&options).expect("options");
    assert_eq!(wire.engine.udp(socket).options(), Ok(options));
    let wrong = UdpSocketOptions { hop_limit: 0, ..first };
    assert!(matches!(wire.engine.udp(socket).set_options(&wrong), Err(Error::Invalid(_))));
    let wrong = UdpSocketOptions { group_link: Some(LinkId(7)), ..first };
    assert!(matches!(wire.engine.udp(socket).set_options(&wrong), Err(Error::Invalid(_))));
    assert_eq!(wire.engine.udp(socket).options(), Ok(options), "nothing was set");
}
