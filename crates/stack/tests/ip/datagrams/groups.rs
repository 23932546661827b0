//! Multicast groups: who gets what is sent to them, and what routers are told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::route::LinkId;
use millstream::{Engine, Error, GroupFilter, SocketId, local, net};
use millstream_wire::checksum::{Accumulator, finish, sum};
use millstream_wire::icmp;
use millstream_wire::ip::{self, IpHeader, Protocol};

use super::{addr, heard};
use crate::common::{self, FAR, NEAR, config, engine, settle, two};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 7));
const LOCAL_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 7));

/// Reads the socket's datagrams; returns their number.
fn count(engine: &mut Engine, socket: SocketId) -> usize {
    heard(engine, socket).len()
}

#[test]
fn a_group_s_datagrams_are_for_those_sockets_that_have_joined_it() {
    for offload in [false, true] {
        let (mut near, mut far) = two(PairConfig { offload, ..PairConfig::default() });
        let from = near.sockets().udp_bind(addr("[::]:5")).expect("bind");
        let [one, both, other] = ["0.0.0.0:9", "[::]:9", "[::]:10"]
            .map(|local| far.sockets().udp_bind(addr(local)).expect("bind"));
        let bound = far.sockets().udp_bind(addr("10.9.0.2:9")).expect("bind");
        for group in [V4, V6, LOCAL_V6] {
            let to = Some((group, 9).into());
            let mut send = |far: &mut Engine, data: &[u8]| {
                near.udp(from).send(data, to).expect("send");
                settle(&mut near, far);
                [one, both, other, bound].map(|socket| count(far, socket))
            };
            assert_eq!(send(&mut far, b"nobody"), [0; 4]);
            let ones = usize::from(group == V4);
            let joined = far.udp(one).join_group(group, None);
            assert_eq!(joined.is_ok(), group == V4, "of its version");
            assert_eq!(send(&mut far, b"one"), [ones, 0, 0, 0]);
            assert_eq!(far.udp(both).join_group(group, Some(LinkId(0))), Ok(()));
            assert_eq!(far.udp(both).join_group(group, None), Err(Error::AddrInUse));
            assert_eq!(far.udp(other).join_group(group, None), Ok(()));
            for _ in 0..3 {
                assert_eq!(send(&mut far, b"both"), [ones, 1, 0, 0]);
            }
            // In fragments, too.
            assert_eq!(send(&mut far, &[7; 5000]), [ones, 1, 0, 0]);
            assert_eq!(far.udp(both).leave_group(group, None), Ok(()));
            assert_eq!(far.udp(both).leave_group(group, None), Err(Error::AddrNotAvailable));
            assert_eq!(send(&mut far, b"one"), [ones, 0, 0, 0]);
        }
        assert_eq!(far.udp(both).join_group(V4, None), Ok(()));
        let sent = near.udp(from).send_segmented(&[1; 900], 300, Some((V4, 9).into()));
        assert_eq!(sent, Ok(()));
        settle(&mut near, &mut far);
        assert_eq!([one, both].map(|socket| count(&mut far, socket)), [3, 3]);
        // Closed sockets are in no group.
        far.close(one);
        far.close(both);
        let again = far.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
        near.udp(from).send(b"late", Some((V4, 9).into())).expect("send");
        settle(&mut near, &mut far);
        assert_eq!(count(&mut far, again), 0);
    }
}

/// RFC 3376, 2: what a socket wants is decided by itself, whatever another one of the port wants.
#[test]
fn each_socket_gets_a_group_from_the_sources_that_it_wants() {
    let (mut near, mut far) = two(PairConfig::default());
    for (group, sources) in [(V4, ["10.9.0.1", "10.9.0.9"]), (V6, ["fd09::1", "fd09::9"])] {
        let any = if group == V4 { "0.0.0.0:5" } else { "[::]:5" };
        let from = near.sockets().udp_bind(addr(any)).expect("bind");
        let socket = far.sockets().udp_bind(addr(any)).expect("bind");
        let [sender, other] = sources.map(|source| source.parse::<IpAddr>().unwrap());
        for (filter, gets) in [
            (GroupFilter::Include(vec![sender, other]), 1),
            (GroupFilter::Include(vec![other]), 0),
            (GroupFilter::Exclude(vec![other]), 1),
            (GroupFilter::Exclude(vec![other, sender, other]), 0),
            (GroupFilter::ALL, 1),
            (GroupFilter::Include(vec![]), 0),
        ] {
            let set = far.udp(socket).set_group_filter(group, None, filter.clone());
            assert_eq!(set, Ok(()), "{filter:?}");
            near.udp(from).send(b"hello", Some((group, 5).into())).expect("send");
            settle(&mut near, &mut far);
            assert_eq!(count(&mut far, socket), gets, "{filter:?}");
        }
        // It has left by the last.
        assert_eq!(far.udp(socket).leave_group(group, None), Err(Error::AddrNotAvailable));
        for wrong in [V4, V6, "127.0.0.1".parse().unwrap(), "::1".parse().unwrap()] {
            let set = GroupFilter::Include(vec![wrong]);
            let set = far.udp(socket).set_group_filter(group, None, set);
            assert!(matches!(set, Err(Error::Invalid(_))), "{wrong}: {set:?}");
        }
    }
}

#[test]
fn what_is_no_group_or_too_many_is_refused() {
    let pool = common::pool();
    let (near, _far) = pair(PairConfig::default()).expect("a pair");
    let mut settings = config(&pool, 1);
    settings.limits.groups = 2;
    let mut near = engine(settings, near, &NEAR);
    let [any, bound] =
        ["0.0.0.0:9", "10.9.0.1:9"].map(|at| near.sockets().udp_bind(addr(at)).expect("bind"));
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    for (socket, group, link) in [
        (any, "10.1.2.3", None),
        (any, "255.255.255.255", None),
        (any, "ff02::7", None),
        (bound, "239.1.2.3", None),
        (any, "239.1.2.3", Some(LinkId(7))),
    ] {
        let joined = near.udp(socket).join_group(ip(group), link);
        assert!(matches!(joined, Err(Error::Invalid(_))), "{group}: {joined:?}");
    }
    assert_eq!(near.udp(any).join_group(ip("239.1.2.3"), None), Ok(()));
    assert_eq!(near.udp(any).join_group(ip("239.1.2.4"), None), Ok(()));
    assert_eq!(near.udp(any).join_group(ip("239.1.2.5"), None), Err(Error::Limit("groups")));
    near.close(any);
    let any = near.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    assert_eq!(near.udp(any).join_group(ip("239.1.2.5"), None), Ok(()));
}

#[test]
fn what_is_sent_comes_back_to_members_here_unless_it_is_not_to() {
    let (mut near, mut far) = two(PairConfig::default());
    let [here, there] = [&mut near, &mut far].map(|engine| {
        let socket = engine.sockets().udp_bind(addr("[::]:9")).expect("bind");
        for group in [V4, V6, LOCAL_V6] {
            engine.udp(socket).join_group(group, None).expect("joined");
        }
        socket
    });
    for (group, source) in [(V4, "10.9.0.1:9"), (V6, "[fd09::1]:9")] {
        let to = Some((group, 9).into());
        for size in [4, 6000] {
            near.udp(here).send(&vec![3; size], to).expect("send");
            settle(&mut near, &mut far);
            let expected = [(vec![3; size], addr(source))];
            // `heard` cuts at 2,000 bytes.
            let cut = expected.map(|(data, from)| (data[..size.min(2000)].to_vec(), from));
            let drops: Vec<_> = far.stats().drops_by_name().filter(|(_, n)| *n != 0).collect();
            assert!(heard(&mut near, here) == cut, "{group} {size}");
            assert!(heard(&mut far, there) == cut, "{group} {size} {drops:?}");
        }
        near.udp(here).set_group_loop(false).expect("a socket");
        near.udp(here).send(b"only there", to).expect("send");
        settle(&mut near, &mut far);
        assert_eq!((count(&mut near, here), count(&mut far, there)), (0, 1));
        near.udp(here).set_group_loop(true).expect("a socket");
        let sent = near.udp(here).send_segmented(&[1; 900], 300, to);
        assert_eq!(sent, Ok(()));
        settle(&mut near, &mut far);
        assert_eq!((count(&mut near, here), count(&mut far, there)), (3, 3));
    }
    assert!(matches!(near.udp(here).set_group_link(Some(LinkId(4))), Err(Error::Invalid(_))));
}

/// An engine of two links without link headers, whose other ends are in the test's hands.
pub struct Wires {
    pub engine: Engine,
    ends: [PairEnd; 2],
    pool: Pool,
    now: Instant,
}

impl Wires {
    pub fn new() -> Self {
        let pool = common::pool();
        let wire = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
        let ((near, end), (other, second)) = (pair(wire.clone()).unwrap(), pair(wire).unwrap());
        let mut engine =
            engine(config(&pool, 1), near, &["10.9.0.1/24", "fd09::1/64", "fe80::1/64"]);
        let link = engine.add_link(Box::new(other)).expect("a link");
        for address in ["10.8.0.1/24", "fd08::1/64"] {
            engine.add_address(link, address.parse().unwrap()).expect("an address");
        }
        let now = engine.refresh_time();
        Self { engine, ends: [end, second], pool, now }
    }

    /// Returns the packets that leave by a link within `ms` milliseconds from now.
    pub fn sent(&mut self, link: usize, ms: u64) -> Vec<Vec<u8>> {
        let mut list = Vec::new();
        let until = self.now + Duration::from_millis(ms);
        loop {
            let turn = self.engine.turn(self.now);
            let mut batch = PacketBatch::new();
            self.ends[link].receive(self.now, &self.pool, &mut batch).expect("a link");
            list.extend(batch.drain().map(|packet| {
                let mut bytes = vec![0; packet.len()];
                packet.copy_to(0, &mut bytes);
                bytes
            }));
            match turn.next_deadline.filter(|&due| due <= until) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
        }
        self.now = until;
        list
    }

    pub fn give(&mut self, bytes: &[u8]) {
        let mut batch = PacketBatch::new();
        assert!(batch.push(Packet::from_slice(&self.pool, 64, bytes).expect("frames")).is_ok());
        self.ends[0].transmit(self.now, &self.pool, &mut batch).expect("room");
        while self.engine.turn(self.now).progress {}
    }

    fn ignored(&self) -> u64 {
        let mut drops = self.engine.stats().drops_by_name();
        drops.find(|(name, _)| *name == "group_message_ignored").map_or(0, |(_, count)| count)
    }
}

/// A message of IGMP, without Router Alert, or of MLD.
fn message(src: IpAddr, dst: IpAddr, hop_limit: u8, alert: bool, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    let mut extension = Vec::new();
    let protocol = match src.is_ipv4() {
        true => {
            let field = finish(sum(&body));
            body[2..4].copy_from_slice(&field);
            Protocol::IGMP
        }
        false => {
            let mut all = Accumulator::new(icmp::pseudo_sum(src, dst, body.len()));
            all.add(&body);
            body[2..4].copy_from_slice(&all.finish());
            extension = match alert {
                true => vec![58, 0, 5, 2, 0, 0, 1, 0],
                false => vec![58, 0, 1, 4, 0, 0, 0, 0],
            };
            Protocol::HOP_BY_HOP
        }
    };
    let len = extension.len() + body.len();
    let ip = IpHeader { hop_limit, ..IpHeader::new(src, dst, protocol, len) };
    let mut bytes = vec![0; ip.emit_len()];
    ip.emit(&mut bytes);
    bytes.extend(extension);
    bytes.extend(body);
    bytes
}

fn mld(kind: u8, ms: u16, group: IpAddr, more: &[u8]) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0];
    body.extend(ms.to_be_bytes());
    body.extend([0, 0]);
    match group {
        IpAddr::V6(ip) => body.extend(ip.octets()),
        IpAddr::V4(_) => body.extend([0; 16]),
    }
    body.extend(more);
    body
}

/// Where it goes and what it says: all but the checksums, which hold.
fn read(packet: &[u8]) -> (String, Vec<u8>) {
    let ip = ip::parse(packet, packet.len()).expect("a packet");
    let body = &packet[ip.header_len..];
    assert_eq!(ip.hop_limit, 1);
    let pseudo = match ip.src.is_ipv4() {
        true => {
            assert_eq!((packet[0], &packet[20..24]), (0x46, &[148, 4, 0, 0][..]));
            assert_eq!(ip.traffic_class, 0xc0);
            assert_eq!(ip.protocol, Protocol::IGMP);
            0
        }
        false => {
            assert_eq!((packet[6], &packet[40..48]), (0, &[58, 0, 5, 2, 0, 0, 1, 0][..]));
            icmp::pseudo_sum(ip.src, ip.dst, body.len())
        }
    };
    let mut all = Accumulator::new(pseudo);
    all.add(body);
    assert!(all.is_valid());
    let mut body = body.to_vec();
    body[2..4].fill(0);
    (format!("{} to {}", ip.src, ip.dst), body)
}

#[test]
fn routers_are_told_and_answered_by_igmp() {
    let mut wires = Wires::new();
    let socket = wires.engine.sockets().udp_bind(addr("0.0.0.0:9")).expect("bind");
    wires.engine.udp(socket).join_group(V4, None).expect("joined");
    let record = |kind| vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, 0, 239, 1, 2, 3];
    let all = "10.9.0.1 to 224.0.0.22".to_owned();
    let sent = wires.sent(0, 5000);
    let sent: Vec<_> = sent.iter().map(|packet| read(packet)).collect();
    assert_eq!(sent, [(all.clone(), record(4)), (all.clone(), record(4))]);
    let router = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 9));
    let everybody = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
    let general = [0x11, 20, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    // From afar, or wrong.
    wires.give(&message(router, everybody, 2, true, &general));
    wires.give(&message(router, everybody, 1, true, &general[..11]));
    let mut wrong = message(router, everybody, 1, true, &general);
    wrong[22] ^= 1;
    wires.give(&wrong);
    assert_eq!((wires.sent(0, 5000).len(), wires.ignored()), (0, 3));
    wires.give(&message(router, everybody, 1, true, &general));
    let sent: Vec<_> = wires.sent(0, 2000).iter().map(|packet| read(packet)).collect();
    assert_eq!(sent, [(all.clone(), record(2))]);
    // Of the group, and of a source of it, which is wanted as any other.
    let source = [0x11, 10, 0, 0, 239, 1, 2, 3, 2, 125, 0, 1, 10, 1, 1, 1];
    wires.give(&message(router, V4, 1, true, &source));
    let sent: Vec<_> = wires.sent(0, 1000).iter().map(|packet| read(packet)).collect();
    let wanted =
        [&[0x22, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 239, 1, 2, 3][..], &[10, 1, 1, 1]].concat();
    assert_eq!(sent, [(all.clone(), wanted)]);
    // IGMPv2.
    wires.give(&message(router, everybody, 1, true, &[0x11, 10, 0, 0, 0, 0, 0, 0]));
    let sent: Vec<_> = wires.sent(0, 1000).iter().map(|packet| read(packet)).collect();
    let report = [0x16, 0, 0, 0, 239, 1, 2, 3];
    assert_eq!(sent, [("10.9.0.1 to 239.1.2.3".to_owned(), report.to_vec())]);
    wires.give(&message(router, everybody, 1, true, &[0x11, 10, 0, 0, 0, 0, 0, 0]));
    wires.give(&message(router, V4, 1, true, &report));
    assert_eq!(wires.sent(0, 2000).len(), 0, "another has said it");
    wires.engine.close(socket);
    let sent: Vec<_> = wires.sent(0, 1000).iter().map(|packet| read(packet)).collect();
    let leave = vec![0x17, 0, 0, 0, 239, 1, 2, 3];
    assert_eq!(sent, [("10.9.0.1 to 224.0.0.2".to_owned(), leave)]);
    assert_eq!(wires.sent(1, 0).len(), 0);
}

#[test]
fn routers_are_told_and_answered_by_mld() {
    let mut wires = Wires::new();
    let socket = wires.engine.sockets().udp_bind(addr("[::]:9")).expect("bind");
    let IpAddr::V6(group) = V6 else { unreachable!("IPv6") };
    for (link, from) in [(0, "fe80::1"), (1, "::")] {
        wires.engine.udp(socket).join_group(V6, Some(LinkId(link))).expect("joined");
        let sent: Vec<_> =
            wires.sent(link.into(), 5000).iter().map(|packet| read(packet)).collect();
        let mut report = vec![143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0];
        report.extend(group.octets());
        let expected = (format!("{from} to ff02::16"), report);
        assert_eq!(sent, [expected.clone(), expected]);
    }
    let [router, global] = ["fe80::9", "fd09::9"].map(|ip| ip.parse::<IpAddr>().unwrap());
    let everybody: IpAddr = "ff02::1".parse().unwrap();
    let general = mld(130, 2000, V4, &[2, 125, 0, 0]);
    wires.give(&message(router, everybody, 2, true, &general));
    wires.give(&message(router, everybody, 1, false, &general));
    wires.give(&message(global, everybody, 1, true, &general));
    assert_eq!((wires.sent(0, 5000).len(), wires.ignored()), (0, 3));
    wires.give(&message(router, everybody, 1, true, &general));
    let sent: Vec<_> = wires.sent(0, 2000).iter().map(|packet| read(packet)).collect();
    let mut report = vec![143, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0];
    report.extend(group.octets());
    assert_eq!(sent, [("fe80::1 to ff02::16".to_owned(), report)]);
    // MLDv1.
    wires.give(&message(router, V6, 1, true, &mld(130, 1000, V6, &[])));
    let sent: Vec<_> = wires.sent(0, 1000).iter().map(|packet| read(packet)).collect();
    assert_eq!(sent, [(format!("fe80::1 to {group}"), mld(131, 0, V6, &[]))]);
    wires.engine.udp(socket).leave_group(V6, Some(LinkId(0))).expect("left");
    let sent: Vec<_> = wires.sent(0, 1000).iter().map(|packet| read(packet)).collect();
    assert_eq!(sent, [("fe80::1 to ff02::2".to_owned(), mld(132, 0, V6, &[]))]);
}

#[test]
fn groups_are_sent_to_by_the_link_that_is_chosen_one_hop_far_at_first() {
    let mut wires = Wires::new();
    for (local, group) in [("0.0.0.0:9", V4), ("[::]:9", V6)] {
        let socket = wires.engine.sockets().udp_bind(addr(local)).expect("bind");
        let at = if group == V4 { 8 } else { 7 };
        for (chosen, link) in [(None, 0), (Some(LinkId(1)), 1), (Some(LinkId(0)), 0)] {
            wires.engine.udp(socket).set_group_link(chosen).expect("a link");
            wires.engine.udp(socket).send(b"hello", Some((group, 7).into())).expect("send");
            let sent = wires.sent(link, 0);
            assert_eq!((sent.len(), sent[0][at]), (1, 1));
            assert_eq!(wires.sent(1 - link, 0).len(), 0);
        }
        wires.engine.udp(socket).set_hop_limits(None, Some(5)).expect("a socket");
        wires.engine.udp(socket).send(b"hello", Some((group, 7).into())).expect("send");
        assert_eq!(wires.sent(0, 0)[0][at], 5);
    }
}

#[test]
fn sockets_of_either_kind_of_stack_join_and_leave() {
    let pool = common::pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let near = local::Stack::new(engine(config(&pool, 1), near, &NEAR));
    let build = move || Ok(engine(config(&pool, 2), far, &FAR));
    let far = net::Stack::spawn(build).expect("a thread");
    let here = local::UdpSocket::bind(&near, addr("[::]:9")).expect("bind");
    let there = net::UdpSocket::bind(&far, addr("[::]:9")).expect("bind");
    let wait = Some(Duration::from_secs(20));
    here.set_read_timeout(wait).expect("set");
    there.set_read_timeout(wait).expect("set");
    let mut buffer = [0; 16];
    for group in [V4, V6] {
        here.join_group(group, None).expect("joined");
        there.join_group(group, None).expect("joined");
        here.set_group_link(Some(LinkId(0))).expect("a link");
        there.set_group_link(Some(LinkId(0))).expect("a link");
        here.set_group_loop(false).expect("set");
        there.set_group_loop(false).expect("set");
        here.send_to(b"to all", (group, 9)).expect("send");
        let (len, from) = there.recv_from(&mut buffer).expect("a datagram");
        assert_eq!(&buffer[..len], b"to all");
        there.send_to(b"back", (group, 9)).expect("send");
        let (len, back) = here.recv_from(&mut buffer).expect("a datagram");
        assert_eq!((&buffer[..len], back.port()), (&b"back"[..], from.port()));
        here.leave_group(group, None).expect("left");
        there.leave_group(group, None).expect("left");
        assert!(there.leave_group(group, None).is_err());
    }
}

#[test]
fn sockets_that_share_a_port_get_each_datagram_to_their_group() {
    const MOST: usize = 64;
    let (mut near, mut far) = two(PairConfig::default());
    let from = near.sockets().udp_bind(addr("[::]:5")).expect("bind");
    let own = far.sockets().udp_bind(addr("[::]:9")).expect("bind");
    assert_eq!(far.sockets().udp_bind_shared(addr("[::]:9")), Err(Error::AddrInUse));
    let share = |far: &mut Engine| far.sockets().udp_bind_shared(addr("0.0.0.0:9"));
    let sockets: Vec<SocketId> = (0..MOST).map(|_| share(&mut far).expect("shared")).collect();
    assert!(matches!(share(&mut far), Err(Error::Limit(_))));
    assert_eq!(far.sockets().udp_bind(addr("0.0.0.0:9")), Err(Error::AddrInUse));
    // All but every third, and the one that has the address of both versions for itself.
    let members = || sockets.iter().enumerate().map(|(at, &socket)| (at % 3 != 0, socket));
    for (_, socket) in members().filter(|(is_in, _)| *is_in).chain([(true, own)]) {
        far.udp(socket).join_group(V4, None).expect("joined");
    }
    let to = |ip: IpAddr| Some((ip, 9).into());
    for data in [&b"short"[..], &[7; 5000]] {
        near.udp(from).send(data, to(V4)).expect("send");
        settle(&mut near, &mut far);
        for (is_in, socket) in members().chain([(true, own)]) {
            let lens: Vec<usize> =
                heard(&mut far, socket).iter().map(|(got, _)| got.len()).collect();
            // As much of it as `heard` has room for.
            assert_eq!(lens, if is_in { vec![data.len().min(2000)] } else { vec![] });
        }
    }
    // What is not for a group is the last one's.
    let unicast = |near: &mut Engine, far: &mut Engine| {
        near.udp(from).send(b"one", to("10.9.0.2".parse().unwrap())).expect("send");
        settle(near, far);
    };
    for last in [MOST - 1, MOST - 2] {
        unicast(&mut near, &mut far);
        assert_eq!(count(&mut far, sockets[last]), 1);
        far.close(sockets[last]);
    }
    let again = share(&mut far).expect("room again");
    unicast(&mut near, &mut far);
    assert_eq!(count(&mut far, again), 1);
}
