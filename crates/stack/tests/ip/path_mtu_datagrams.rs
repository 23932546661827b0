//! The size of datagrams behind a path that carries less than the link, and the hop limit of what
//! goes to groups.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch};
use millstream::{DatagramToSend, Engine, Error, Fragmentation, SocketId};
use millstream_wire::checksum::Accumulator;
use millstream_wire::icmp::{self, Icmp};
use millstream_wire::ip::{self, IpHeader, Version};

use crate::common::icmp_error::{Bytes, about};
use crate::common::{NEAR, config, engine, pool};

struct World {
    engine: Engine,
    wire: PairEnd,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(offload: bool) -> Self {
        let link = PairConfig { offload, medium: Medium::Ip, ..PairConfig::default() };
        let (near, wire) = pair(link).expect("a pair");
        let mut engine = engine(config(&pool(), 1), near, &NEAR);
        let now = engine.refresh_time();
        Self { engine, wire, now }
    }

    fn sent(&mut self) -> Vec<Bytes> {
        while self.engine.turn(self.now).progress {}
        let mut batch = PacketBatch::new();
        self.wire.receive(self.now, self.engine.pool(), &mut batch).expect("a batch");
        let bytes = |packet: Packet| packet.slices().flatten().copied().collect();
        std::iter::from_fn(|| batch.pop()).map(bytes).collect()
    }

    /// A router says that `packet` is too big.
    fn too_big(&mut self, packet: &[u8], mtu: u16) {
        let (kind, code) = match ip::parse_quoted(packet).expect("an IP packet").version() {
            Version::V4 => (3, 4),
            Version::V6 => (2, 0),
        };
        self.give(&about(packet, (kind, code, mtu.into())));
    }

    /// A packet comes.
    fn give(&mut self, bytes: &[u8]) {
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(self.engine.pool(), 0, bytes).expect("frames");
        assert!(batch.push(packet).is_ok());
        self.wire.transmit(self.now, self.engine.pool(), &mut batch).expect("sent");
        while self.engine.turn(self.now).progress {}
    }

    /// Datagrams by the long way, by that to find headers, by those, one of many and several as
    /// one; and an echo.
    fn sent_in_every_way(&mut self, to: SocketAddr) -> Vec<Bytes> {
        let socket =
            self.engine.sockets().udp_bind("[::]:4000".parse().expect("any")).expect("bind");
        let echo = self.engine.sockets().icmp_bind(77).expect("a socket");
        let mut sent = Vec::new();
        for way in 0..6 {
            let list = [DatagramToSend { data: &[8; 1400], to: Some(to) }];
            let engine = &mut self.engine;
            match way {
                3 => assert_eq!(engine.udp(socket).send_many(&list), Ok(1)),
                4 => {
                    engine.udp(socket).send_segmented(&[9; 2000], 1300, Some(to)).expect("sent");
                }
                5 => engine.echo(echo).send(to.ip(), 1, &[7; 1400]).expect("sent"),
                _ => engine.udp(socket).send(&[7; 1400], Some(to)).expect("sent"),
            }
            // Of those that the link does not take as one, the first.
            sent.extend(self.sent().into_iter().take(1));
            self.now += Duration::from_millis(60);
            self.engine.turn(self.now);
        }
        sent
    }

    fn socket(&mut self, peer: Option<SocketAddr>) -> SocketId {
        let socket = self.engine.sockets().udp_bind("[::]:0".parse().expect("any")).expect("bind");
        self.engine.udp(socket).set_fragmentation(Fragmentation::Never).expect("a socket");
        if let Some(peer) = peer {
            self.engine.udp(socket).connect(peer).expect("connect");
        }
        socket
    }
}

fn peer(is_v6: bool, last: u8) -> SocketAddr {
    let text = if is_v6 { format!("[fd09::{last}]:9") } else { format!("10.9.0.{last}:9") };
    text.parse().expect("an address")
}

#[test]
fn what_the_path_does_not_carry_is_refused_and_nothing_else() {
    for (is_v6, is_connected) in [(false, false), (false, true), (true, false), (true, true)] {
        eprintln!("IPv6 {is_v6}, connected {is_connected}");
        let mut world = World::new();
        let to = peer(is_v6, 2);
        let socket = world.socket(is_connected.then_some(to));
        let named = (!is_connected).then_some(to);
        let fits = 1280 - 8 - if is_v6 { 40 } else { 20 };
        let data = [7; 1400];
        // By the long way, by the way to find headers, and by those.
        for _ in 0..3 {
            world.engine.udp(socket).send(&data, named).expect("sent");
        }
        let packets = world.sent();
        assert_eq!((packets.len(), world.engine.inspect().path_mtu(to.ip())), (3, Ok(1500)));
        world.too_big(&packets[2], 1280);
        assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1280));
        for _ in 0..2 {
            assert_eq!(world.engine.udp(socket).recv(&mut [0; 9]), Err(Error::WouldBlock));
            let refused = Err(Error::MessageTooLong);
            assert_eq!(world.engine.udp(socket).send(&data, named), refused);
            assert_eq!(world.engine.udp(socket).send(&data[..fits + 1], named), refused);
            world.engine.udp(socket).send(&data[..fits], named).expect("sent");
            let list =
                [fits, fits, 1400].map(|len| DatagramToSend { data: &data[..len], to: named });
            assert_eq!(world.engine.udp(socket).send_many(&list), Ok(2));
            let segmented = world.engine.udp(socket).send_segmented(&data, 1300, named);
            assert_eq!(segmented, refused);
        }
        assert_eq!(world.sent().len(), 6);
        // Not to others.
        let other = world.socket(None);
        world.engine.udp(other).send(&data, Some(peer(is_v6, 3))).expect("sent");
        assert_eq!(world.sent().len(), 1);
        // RFC 1191, 6.3: for ten minutes.
        world.now += Duration::from_secs(599);
        world.engine.turn(world.now);
        assert_eq!(world.engine.udp(socket).send(&data, named), Err(Error::MessageTooLong));
        world.now += Duration::from_secs(1);
        world.engine.turn(world.now);
        assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1500));
        world.engine.udp(socket).send(&data, named).expect("sent");
        assert_eq!(world.sent().len(), 1);
    }
}

#[test]
fn all_sockets_and_echoes_to_one_destination_know_its_path() {
    let mut world = World::new();
    let to = peer(false, 2);
    let (one, two) = (world.socket(Some(to)), world.socket(Some(to)));
    let echo = world.engine.sockets().icmp_bind(0).expect("a socket");
    for socket in [one, two, two, two] {
        world.engine.udp(socket).send(&[7; 1400], None).expect("sent");
    }
    world.engine.echo(echo).send(to.ip(), 1, &[7; 1400]).expect("sent");
    let packets = world.sent();
    // About an echo as about a datagram.
    world.too_big(&packets[4], 1300);
    let refused = Err(Error::MessageTooLong);
    for (mtu, len) in [(1300, 1273), (1000, 973)] {
        assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(mtu));
        for socket in [one, two] {
            assert_eq!(world.engine.udp(socket).send(&vec![7; len], None), refused);
            world.engine.udp(socket).send(&vec![7; len - 1], None).expect("sent");
        }
        // It goes in fragments.
        world.sent();
        world.engine.echo(echo).send(to.ip(), 1, &vec![7; len]).expect("sent");
        let parts: Vec<usize> = world.sent().iter().map(Vec::len).collect();
        assert!(parts.len() == 2 && parts.iter().all(|&part| part <= mtu), "{parts:?}");
        world.too_big(&packets[0], 1000);
    }
}

#[test]
fn what_no_socket_has_sent_or_was_not_too_big_says_nothing() {
    let mut world = World::new();
    let to = peer(false, 2);
    let socket = world.socket(Some(to));
    world.engine.udp(socket).send(&[7; 1400], None).expect("sent");
    let sent = world.sent().remove(0);
    let mut of_another = sent.clone();
    of_another[21] ^= 1;
    world.too_big(&of_another, 600);
    let mut small = sent.clone();
    small[2..4].copy_from_slice(&500_u16.to_be_bytes());
    world.too_big(&small, 400);
    let mut impossible = sent.clone();
    impossible[2..4].copy_from_slice(&2000_u16.to_be_bytes());
    world.too_big(&impossible, 1400);
    assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1500));
    // No path carries less than 552 bytes, or 1,280 of IPv6; who says less than 68 is wrong.
    world.too_big(&sent, 67);
    assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1500));
    world.too_big(&sent, 68);
    assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(552));
}

/// A packet of UDP or echo with another byte behind its IP header, whose sum is right for that.
fn forged(sent: &Bytes, at: usize) -> Bytes {
    let mut forged = sent.clone();
    let header_len = ip::parse_quoted(sent).expect("an IP packet").header_len;
    forged[header_len + at] ^= 1;
    forged
}

/// The first datagram of `len` bytes that a link makes of a super-segment.
fn first_part(whole: &Bytes, len: usize) -> Bytes {
    let ip = ip::parse_quoted(whole).expect("an IP packet");
    let (at, len) = (ip.header_len, 8 + len);
    let mut part = whole[..at + len].to_vec();
    IpHeader { payload_len: len, ..ip }.emit(&mut part);
    part[at + 4..at + 6].copy_from_slice(&(len as u16).to_be_bytes());
    part[at + 6..at + 8].fill(0);
    let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, ip::Protocol::UDP, len);
    let mut sum = Accumulator::new(pseudo);
    sum.add(&part[at..]);
    part[at + 6..at + 8].copy_from_slice(&sum.finish());
    part
}

#[test]
fn only_who_saw_a_datagram_is_believed_about_its_path_and_not_for_long() {
    for which in 0..6 {
        for (is_v6, offload) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut world = World::with(offload);
            let to = peer(is_v6, 2);
            let sent = world.sent_in_every_way(to).swap_remove(which);
            let sent = if sent.len() > 1500 { first_part(&sent, 1300) } else { sent };
            for at in 0..8 {
                world.too_big(&forged(&sent, at), 1280);
                assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1500), "{at}");
            }
            // Said to have gone where nothing went.
            let mut elsewhere = sent.clone();
            elsewhere[if is_v6 { 39 } else { 19 }] ^= 1;
            world.too_big(&elsewhere, 1280);
            for last in [2, 3] {
                assert_eq!(world.engine.inspect().path_mtu(peer(is_v6, last).ip()), Ok(1500));
            }
            world.too_big(&sent, 1280);
            assert_eq!(
                world.engine.inspect().path_mtu(to.ip()),
                Ok(1280),
                "{which} {is_v6} {offload}"
            );
            let mut world = World::with(offload);
            world.sent_in_every_way(to);
            world.now += Duration::from_secs(5);
            world.too_big(&sent, 1280);
            assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1500), "five seconds ago");
        }
    }
}

/// Words about others, be they thousands, take nothing away from what is known.
#[test]
fn words_of_strangers_displace_no_path() {
    for is_v6 in [false, true] {
        let mut world = World::new();
        let to = peer(is_v6, 2);
        let socket = world.socket(None);
        world.engine.udp(socket).send(&[7; 1400], Some(to)).expect("sent");
        let sent = world.sent().remove(0);
        world.too_big(&sent, 1300);
        assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1300));
        let last = if is_v6 { 38 } else { 18 };
        for number in 0..2000_u16 {
            let mut forged = sent.clone();
            forged[last..last + 2].copy_from_slice(&number.to_be_bytes());
            if forged != sent {
                world.too_big(&forged, 1290);
            }
        }
        assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1300));
        assert!(
            world
                .engine
                .stats()
                .drops_by_name()
                .any(|(name, count)| { name == "icmp_no_socket" && count >= 1999 })
        );
    }
}

#[test]
fn who_finds_out_the_path_himself_is_not_told_of_it() {
    for (is_v6, how) in [false, true]
        .into_iter()
        .flat_map(|v6| [(v6, Fragmentation::Probe), (v6, Fragmentation::Omit)])
    {
        let mut world = World::new();
        let to = peer(is_v6, 2);
        let (socket, other) = (world.socket(None), world.socket(None));
        world.engine.udp(socket).set_fragmentation(how).expect("a socket");
        for _ in 0..4 {
            world.engine.udp(socket).send(&[7; 1400], Some(to)).expect("sent");
        }
        for sent in world.sent() {
            let ip = ip::parse(&sent, sent.len()).expect("a packet");
            assert_eq!(ip.dont_fragment, is_v6 || how == Fragmentation::Probe);
            world.too_big(&sent, 1280);
        }
        assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1500), "{how:?}");
        // What another socket's datagram has proven holds for that one alone.
        world.engine.udp(other).send(&[7; 1400], Some(to)).expect("sent");
        let sent = world.sent().remove(0);
        world.too_big(&sent, 1280);
        assert_eq!(world.engine.udp(other).send(&[7; 1400], Some(to)), Err(Error::MessageTooLong));
        for _ in 0..3 {
            world.engine.udp(socket).send(&[7; 1400], Some(to)).expect("sent");
            assert_eq!(world.sent().len(), 1);
        }
        // Longer than the link takes: cut, or refused.
        let long = world.engine.udp(socket).send(&[7; 1600], Some(to));
        match how {
            Fragmentation::Probe => assert_eq!(long, Err(Error::MessageTooLong)),
            _ => assert_eq!((long, world.sent().len()), (Ok(()), 2)),
        }
    }
}

/// An echo request of `len` bytes of data from a peer.
fn ping(is_v6: bool, len: usize, traffic_class: u8) -> Bytes {
    let (from, us) = match is_v6 {
        true => (peer(true, 2).ip(), "fd09::1"),
        false => (peer(false, 2).ip(), "10.9.0.1"),
    };
    let us: IpAddr = us.parse().expect("an address");
    let version = Version::of(&us);
    let mut message = vec![0; icmp::HEADER_LEN + len];
    Icmp::EchoRequest { id: 1, seq: 2 }.emit(version, &mut message);
    let mut sum = Accumulator::new(icmp::pseudo_sum(from, us, message.len()));
    sum.add(&message);
    message[2..4].copy_from_slice(&sum.finish());
    let header = IpHeader::new(from, us, icmp::protocol(version), message.len());
    let header = IpHeader { traffic_class, ..header };
    let mut bytes = vec![0; header.emit_len()];
    header.emit(&mut bytes);
    bytes.extend(message);
    bytes
}

/// RFC 8201, 4; RFC 1191, 3; RFC 1122, 3.2.2.6.
#[test]
fn echo_replies_know_their_path_and_nobody_else_goes_by_it() {
    for is_v6 in [false, true] {
        let mut world = World::new();
        let to = peer(is_v6, 2);
        let request = ping(is_v6, 1400, 0);
        let answers = |world: &mut World| {
            world.give(&request);
            world.sent()
        };
        let reply = answers(&mut world).remove(0);
        let ip = ip::parse(&reply, reply.len()).expect("a reply");
        // Routers cut what they cannot pass on whole, where they can.
        assert_eq!((ip.dont_fragment, ip.identification != 0), (is_v6, !is_v6));
        for at in [2, 4, 6] {
            world.too_big(&forged(&reply, at), 1280);
        }
        assert_eq!(answers(&mut world).len(), 1);
        world.too_big(&reply, 1280);
        let parts = answers(&mut world);
        assert!(parts.len() == 2 && parts.iter().all(|part| part.len() <= 1280), "{parts:?}");
        assert_eq!(world.engine.inspect().path_mtu(to.ip()), Ok(1500));
        // Small ones are as they were.
        world.give(&ping(is_v6, 100, 0));
        let small = world.sent().remove(0);
        assert!(ip::parse(&small, small.len()).expect("a reply").dont_fragment);
        world.now += Duration::from_secs(600);
        world.engine.turn(world.now);
        world.too_big(&reply, 1280);
        assert_eq!(answers(&mut world).len(), 1, "that reply was ten minutes ago");
    }
}

#[test]
fn an_echo_comes_back_with_its_traffic_class() {
    for is_v6 in [false, true] {
        let mut world = World::new();
        world.give(&ping(is_v6, 10, 0xb9));
        let reply = world.sent().remove(0);
        assert_eq!(ip::parse(&reply, reply.len()).expect("a reply").traffic_class, 0xb9);
    }
}

/// The hop limits of what a socket sends to a host and to a group, three times each.
fn hops(world: &mut World, socket: SocketId, host: SocketAddr, group: SocketAddr) -> Vec<u8> {
    for to in [host, group].into_iter().flat_map(|to| [to; 3]) {
        world.engine.udp(socket).send(b"hello", Some(to)).expect("sent");
    }
    world.engine.udp(socket).send_segmented(b"hello", 2, Some(group)).expect("sent");
    let header = |bytes: &Bytes| ip::parse(bytes, bytes.len()).expect("an IP packet");
    world.sent().iter().map(|bytes| header(bytes).hop_limit).collect()
}

#[test]
fn what_goes_to_a_group_stays_on_the_link_unless_asked_for() {
    for (host, group) in [("10.9.0.2:9", "224.0.0.251:5353"), ("[fd09::2]:9", "[ff02::fb]:5353")] {
        let [host, group]: [SocketAddr; 2] =
            [host, group].map(|to| to.parse().expect("an address"));
        let mut world = World::new();
        let socket = world.socket(None);
        assert_eq!(hops(&mut world, socket, host, group), [64, 64, 64, 1, 1, 1, 1, 1, 1]);
        world.engine.udp(socket).set_hop_limits(None, Some(9)).expect("set");
        assert_eq!(hops(&mut world, socket, host, group), [64, 64, 64, 9, 9, 9, 9, 9, 9]);
        world.engine.udp(socket).set_hop_limits(Some(3), None).expect("set");
        assert_eq!(hops(&mut world, socket, host, group), [3, 3, 3, 9, 9, 9, 9, 9, 9]);
        assert_eq!(
            world
                .engine
                .udp(socket)
                .options()
                .map(|options| (options.hop_limit, options.group_hop_limit)),
            Ok((3, 9))
        );
        let refused = world.engine.udp(socket).set_hop_limits(None, Some(0));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        let echo = world.engine.sockets().icmp_bind(0).expect("a socket");
        let ip: IpAddr = group.ip();
        world.engine.echo(echo).send(ip, 1, b"anybody?").expect("sent");
        let echo = world.sent().remove(0);
        assert_eq!(ip::parse(&echo, echo.len()).expect("an IP packet").hop_limit, 1);
    }
}
