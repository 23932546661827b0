//! Two routers, one that hands on many packets at a time and one that takes each by itself, are
//! sent the same: what leaves them is the same, byte for byte and in the same order on each link,
//! and so is what they count.

use std::net::{IpAddr, Ipv4Addr};

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{
    Checksum, Instant, Packet, PacketBatch, Pool, PoolConfig, Segmentation, SegmentationKind,
};
use millstream::route::{LinkId, Reject, Route};
use millstream::tuning::FastPath;
use millstream::{DropReason, Engine, EngineStats, ReversePath};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::checksum;
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::icmp;
use millstream_wire::ip::{Fragment, IpHeader, Protocol};
use millstream_wire::ndp::{NdpMessage, NeighborAdvert};
use proptest::prelude::*;

use crate::common;

/// Media and MTUs of a router's links. The third is one that vouches for sums and takes
/// super-segments.
const LINKS: [(Medium, usize); 4] = [
    (Medium::Ethernet, 1500),
    (Medium::Ethernet, 1280),
    (Medium::Ip, 1500),
    (Medium::Ethernet, 1500),
];
const OFFLOADED: usize = 2;
/// Packets that a link holds: fewer than a batch.
const RING: usize = 48;
/// Bytes of an Ethernet header.
const LINK_BYTES: usize = 14;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The far station of a link.
fn station(link: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 9, link as u8])
}

/// A router, and the far ends of its links.
struct Router {
    engine: Engine,
    ends: Vec<PairEnd>,
    pool: Pool,
    now: Instant,
}

/// A packet that a link was given: bytes, and the work that is left to the link.
type Left = (Vec<u8>, Checksum, Option<Segmentation>);

impl Router {
    fn new(pool: &Pool, fast_path: FastPath) -> Self {
        let mut config = common::config(pool, 3);
        config.limits.tuning.fast_path = fast_path;
        let mut engine = Engine::new(config).expect("an engine");
        engine.routes().set_forwarding(true);
        engine.routes().table().expect("its own").set_multipath(true);
        let mut ends = Vec::new();
        for (at, (medium, mtu)) in LINKS.into_iter().enumerate() {
            let offload = at == OFFLOADED || at == 0;
            let config =
                PairConfig { medium, mtu, offload, capacity: RING, ..PairConfig::default() };
            let (near, far) = pair(config).expect("a pair");
            let link = engine.add_link(Box::new(near)).expect("a link");
            for own in [format!("10.{at}.0.1/24"), format!("fd0{at}::1/64")] {
                engine.add_address(link, own.parse().expect("a prefix")).expect("an address");
            }
            ends.push(far);
        }
        let mut route = |prefix: &str, route| {
            engine.routes().add(prefix.parse().expect("a prefix"), route).expect("a route");
        };
        for (link, prefix, gateway) in [
            (1, "192.0.2.0/24", "10.1.0.2"),
            (2, "192.0.2.128/25", "10.2.0.2"),
            (1, "198.18.0.0/16", "10.1.0.2"),
            (3, "198.18.0.0/16", "10.3.0.2"),
            (1, "198.19.0.0/16", "fd01::2"),
            (1, "2001:db8:1::/48", "fd01::2"),
            (2, "2001:db8:2::/48", "fd02::2"),
            (1, "2001:db8:3::/48", "fd01::2"),
            (3, "2001:db8:3::/48", "fd03::2"),
        ] {
            route(prefix, Route::via(LinkId(link), ip(gateway)));
        }
        for (prefix, reject) in
            [("203.0.113.128/25", Reject::Prohibit), ("2001:db8:4::/48", Reject::Blackhole)]
        {
            route(prefix, Route::rejecting(reject));
        }
        let narrow = Route { mtu: Some(600), ..Route::via(LinkId(1), ip("10.1.0.2")) };
        route("198.51.100.0/24", narrow);
        let now = engine.now();
        Self { engine, ends, pool: pool.clone(), now }
    }

    /// Hands the engine what comes, and has it take one turn for each batch of it; then what has
    /// left by each link that is read.
    fn turn(&mut self, coming: &[Coming], reads: [bool; LINKS.len()]) -> Vec<Vec<Left>> {
        let Self { engine, ends, pool, now } = self;
        for (link, end) in ends.iter_mut().enumerate() {
            let mut batch = PacketBatch::new();
            for coming in coming.iter().filter(|coming| coming.link == link) {
                batch.push(coming.packet(pool)).expect("room");
            }
            end.transmit(*now, pool, &mut batch).expect("a link");
        }
        while engine.turn(*now).progress {}
        let mut left = Vec::new();
        for (end, _) in ends.iter_mut().zip(reads).filter(|(_, reads)| *reads) {
            let mut batch = PacketBatch::new();
            let mut all = Vec::new();
            while end.receive(*now, pool, &mut batch).expect("a link") != 0 {
                all.extend(batch.drain().map(|packet| {
                    let mut bytes = vec![0; packet.len()];
                    packet.copy_to(0, &mut bytes);
                    (bytes, packet.meta().checksum, packet.meta().segmentation)
                }));
            }
            left.push(all);
        }
        left
    }

    /// All that is counted, but for how.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        let stats = self.engine.stats();
        let counters =
            stats.counters().into_iter().filter(|(name, _)| *name != "forwarded_in_runs");
        counters.chain(stats.drops_by_name()).filter(|(_, count)| *count != 0).collect()
    }
}

/// A packet that comes by a link.
#[derive(Clone, Debug)]
struct Coming {
    link: usize,
    bytes: Vec<u8>,
    headroom: usize,
    lies: Lies,
}

/// How a packet lies in memory, or what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    /// In one frame.
    Plain,
    /// In two, cut here.
    Cut(usize),
    /// Somebody else has the frame, too.
    Shared,
    /// Its sum is to be completed, or it is a super-segment as well.
    Partial(bool),
}

impl Coming {
    fn packet(&self, pool: &Pool) -> Packet {
        let whole = || Packet::from_slice(pool, self.headroom, &self.bytes).expect("frames");
        match self.lies {
            Lies::Plain => whole(),
            Lies::Cut(at) => {
                let (front, back) = self.bytes.split_at(at.min(self.bytes.len() - 1));
                let mut packet = Packet::from_slice(pool, self.headroom, front).expect("frames");
                packet.concat(Packet::from_slice(pool, 0, back).expect("frames"));
                packet
            }
            Lies::Shared => {
                let whole = whole();
                whole.view(pool, 0, whole.len()).expect("frames")
            }
            Lies::Partial(is_super) => {
                let mut packet = whole();
                let link_len = LINKS[self.link].0.header_len();
                let v6 = self.bytes[link_len] >> 4 == 6;
                let start = link_len + if v6 { 40 } else { 20 };
                let meta = packet.meta_mut();
                meta.checksum = Checksum::Partial { start: start as u16, offset: 6 };
                let (kind, header_len) = (SegmentationKind::Udp, start as u16 + 8);
                let parts = Segmentation { kind, ecn: false, size: 16, header_len };
                meta.segmentation = is_super.then_some(parts);
                packet
            }
        }
    }
}

/// An event that reaches a router.
#[derive(Clone, Debug)]
enum Event {
    /// A packet with such a header and `len` bytes behind it, and what is odd about it.
    Packet { v6: bool, to: usize, hop_limit: u8, len: usize, port: u8, odd: Odd },
    /// The gateway or the host of a link, of one family, says where it is.
    Told { v6: bool, link: usize, host: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Nothing,
    From(usize),
    Protocol(u8),
    Fragment(bool, u16),
    MayCut,
    Option,
    Padding(usize),
    Headroom(usize),
    Station(u8),
    Vlan,
    Byte(usize, u8),
    Lies(Lies),
}

/// Destinations: by a gateway, rejected, by two, of an MTU that is less, on a link, ours, for all,
/// and nobody's.
const TO: [[&str; 16]; 2] = [
    [
        "192.0.2.7",
        "203.0.113.200",
        "192.0.2.200",
        "198.18.0.7",
        "198.18.9.9",
        "198.19.0.1",
        "198.51.100.7",
        "10.1.0.7",
        "10.2.0.9",
        "10.3.0.2",
        "10.0.0.1",
        "10.1.0.255",
        "203.0.113.7",
        "224.0.0.9",
        "169.254.1.1",
        "127.0.0.1",
    ],
    [
        "2001:db8:1::7",
        "2001:db8:4::8",
        "2001:db8:2::7",
        "2001:db8:3::7",
        "2001:db8:3::9",
        "2001:db8:1:1::1",
        "2001:db8:1:9::",
        "fd01::7",
        "fd02::9",
        "fd03::2",
        "fd00::1",
        "fd01::1",
        "2001:db9::7",
        "ff02::9",
        "fe80::7",
        "::ffff:192.0.2.7",
    ],
];

/// Senders: one like most, and what none should be.
const FROM: [[&str; 13]; 2] = [
    [
        "10.0.0.9",
        "10.0.0.10",
        "10.0.0.255",
        "10.2.0.1",
        "224.0.0.9",
        "0.0.0.0",
        "169.254.9.9",
        "255.255.255.255",
        "10.1.0.255",
        "10.1.0.0",
        // By another link, by two, and by none.
        "10.1.0.9",
        "198.18.0.9",
        "203.0.113.7",
    ],
    [
        "fd00::9",
        "fd00::10",
        "fd02::1",
        "ff02::9",
        "::",
        "::1",
        "fe80::9",
        "::ffff:10.0.0.9",
        "fd00::",
        "fd01::",
        "fd01::9",
        "2001:db8:3::9",
        "2001:db9::7",
    ],
];

fn lies() -> impl Strategy<Value = Lies> {
    prop_oneof![
        (1..70_usize).prop_map(Lies::Cut),
        Just(Lies::Shared),
        any::<bool>().prop_map(Lies::Partial),
    ]
}

fn odd() -> impl Strategy<Value = Odd> {
    prop_oneof![
        24 => Just(Odd::Nothing),
        4 => (0..FROM[0].len()).prop_map(Odd::From),
        2 => prop::sample::select(vec![0, 1, 6, 43, 44, 51, 58, 59, 60, 99]).prop_map(Odd::Protocol),
        1 => (any::<bool>(), 0..40_u16).prop_map(|(more, at)| Odd::Fragment(more, at * 8)),
        1 => Just(Odd::MayCut),
        1 => Just(Odd::Option),
        1 => (1..40_usize).prop_map(Odd::Padding),
        1 => (0..20_usize).prop_map(Odd::Headroom),
        1 => any::<u8>().prop_map(Odd::Station),
        1 => Just(Odd::Vlan),
        2 => (0..60_usize, any::<u8>()).prop_map(|(at, bits)| Odd::Byte(at, bits)),
        2 => lies().prop_map(Odd::Lies),
    ]
}

fn event() -> impl Strategy<Value = (usize, Event)> {
    let hop_limit = prop_oneof![8 => 2..=255_u8, 1 => 0..3_u8];
    // Most are for those that a route leads to.
    let to = prop_oneof![6 => 0..10_usize, 1 => 10..16_usize];
    let len = prop_oneof![6 => 8..60_usize, 1 => 60..1450_usize];
    let packet = (any::<bool>(), to, hop_limit, len, 0..8_u8, odd()).prop_map(
        |(v6, to, hop_limit, len, port, odd)| Event::Packet { v6, to, hop_limit, len, port, odd },
    );
    let told = (any::<bool>(), any::<bool>())
        .prop_flat_map(|(v6, host)| {
            prop::sample::select(vec![1, 3]).prop_map(move |link| (v6, host, link))
        })
        .prop_map(|(v6, host, link)| (link, Event::Told { v6, link, host }));
    let link = prop_oneof![6 => Just(0_usize), 2 => Just(OFFLOADED)];
    prop_oneof![16 => (link, packet), 1 => told]
}

fn coming((link, event): &(usize, Event)) -> Coming {
    let near = PairConfig::default().macs[0];
    let plain = |bytes| Coming { link: *link, bytes, headroom: 64, lies: Lies::Plain };
    match *event {
        Event::Told { v6, link, host } => plain(told(v6, link, host, near)),
        Event::Packet { v6, to, hop_limit, len, port, odd } => {
            // By the link that leads back, but for those of the list.
            let from = if let Odd::From(from) = odd { from } else { 0 };
            let [src, dst] = [FROM[usize::from(v6)][from], TO[usize::from(v6)][to]].map(ip);
            let protocol = if let Odd::Protocol(protocol) = odd { protocol } else { 17 };
            let mut header = IpHeader::new(src, dst, Protocol(protocol), len);
            header.hop_limit = hop_limit;
            if let Odd::Fragment(more, offset) = odd {
                header.fragment = Some(Fragment { offset, more, id: 7 });
            }
            header.dont_fragment = v6 || header.fragment.is_none() && odd != Odd::MayCut;
            let mut packet = vec![0; header.emit_len()];
            header.emit(&mut packet);
            if odd == Odd::Option && !v6 {
                // One that does nothing, four times.
                packet.splice(20..20, [1; 4]);
                packet[0] += 1;
                let total = u16::from_be_bytes([packet[2], packet[3]]) + 4;
                packet[2..4].copy_from_slice(&total.to_be_bytes());
                packet[10..12].fill(0);
                let sum = checksum::finish(checksum::sum(&packet[..24]));
                packet[10..12].copy_from_slice(&sum);
            }
            packet.extend([9, port, 9, 9]);
            packet.resize(packet.len() + len - 4, 7);
            let mut bytes = match LINKS[*link].0 {
                Medium::Ip => Vec::new(),
                Medium::Ethernet => {
                    let to = match odd {
                        Odd::Station(last) => MacAddr([last, 0, 0, 0, 0, last]),
                        _ => near,
                    };
                    let ethertype = EtherType::of(&dst);
                    let mut bytes = vec![0; LINK_BYTES];
                    EthernetHeader::new(to, station(*link), ethertype).emit(&mut bytes);
                    if odd == Odd::Vlan {
                        bytes.splice(12..12, [0x81, 0, 0x20, 0]);
                    }
                    bytes
                }
            };
            bytes.extend(packet);
            let mut coming = plain(bytes);
            match odd {
                Odd::Padding(count) => coming.bytes.resize(coming.bytes.len() + count, 0),
                Odd::Headroom(bytes) => coming.headroom = bytes,
                Odd::Byte(at, bits) => {
                    let at = at % coming.bytes.len();
                    coming.bytes[at] ^= bits;
                }
                Odd::Lies(lies) => coming.lies = lies,
                _ => {}
            }
            coming
        }
    }
}

/// The far station of a link says that it has an address there.
fn told(v6: bool, link: usize, host: bool, near: MacAddr) -> Vec<u8> {
    let (mac, number) = (station(link), if host { 7 } else { 2 });
    let mut frame = vec![0; LINK_BYTES];
    let ethertype = if v6 { EtherType::IPV6 } else { EtherType::ARP };
    EthernetHeader::new(near, mac, ethertype).emit(&mut frame);
    if !v6 {
        let address = |last| Ipv4Addr::new(10, link as u8, 0, last);
        let message = ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender_ip: address(number),
            target_mac: near,
            target_ip: address(1),
        };
        frame.resize(LINK_BYTES + 28, 0);
        message.emit(&mut frame[LINK_BYTES..]);
        return frame;
    }
    let address = |last| format!("fd0{link}::{last}").parse().expect("an address");
    let message = NdpMessage::NeighborAdvert(NeighborAdvert {
        router: !host,
        solicited: true,
        override_flag: true,
        target: address(number),
        target_ll: Some(mac),
    });
    let mut body = vec![0; message.emit_len()];
    message.emit(&mut body);
    let (src, dst) = (IpAddr::V6(address(number)), IpAddr::V6(address(1)));
    let mut sum = checksum::Accumulator::new(icmp::pseudo_sum(src, dst, body.len()));
    sum.add(&body);
    body[icmp::CHECKSUM_OFFSET..icmp::CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish());
    let header =
        IpHeader { hop_limit: 255, ..IpHeader::new(src, dst, Protocol::ICMPV6, body.len()) };
    frame.resize(LINK_BYTES + header.emit_len(), 0);
    header.emit(&mut frame[LINK_BYTES..]);
    frame.extend(body);
    frame
}

/// One step: packets that come, links that are read then, and a route that goes or comes back, if
/// any.
type Step = (Vec<(usize, Event)>, [bool; LINKS.len()], Option<bool>);

fn step() -> impl Strategy<Value = Step> {
    let reads = prop::array::uniform4(prop::bool::weighted(0.8));
    let route = prop_oneof![4 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (prop::collection::vec(event(), 1..RING), reads, route)
}

/// Steps in which the routers hear of their gateways, and of one host.
fn introduction() -> [Step; 2] {
    let ask = [0, 3, 5, 7].into_iter().flat_map(|to| [false, true].map(|v6| plain(v6, to)));
    let ask = ask.chain([false, true].map(|v6| plain(v6, 4)));
    let told = [1, 3]
        .into_iter()
        .flat_map(|link| [false, true].map(|v6| (link, Event::Told { v6, link, host: false })));
    let host = [false, true].map(|v6| (1, Event::Told { v6, link: 1, host: true }));
    let all = [true; LINKS.len()];
    [(ask.collect(), all, None), (told.chain(host).collect(), all, None)]
}

/// A packet like most, to a destination.
fn plain(v6: bool, to: usize) -> (usize, Event) {
    (0, Event::Packet { v6, to, hop_limit: 9, len: 20, port: 1, odd: Odd::Nothing })
}

/// A router with all shortcuts and one with those of `other`, which did the same.
fn same(steps: &[Step], other: FastPath, filter: Option<ReversePath>) -> [Router; 2] {
    let config = PoolConfig { prefault: false, ..PoolConfig::fixed(2048) };
    let pool = Pool::new(config).expect("memory for a pool");
    let mut routers = [FastPath::ALL, other].map(|fast_path| Router::new(&pool, fast_path));
    for (router, filter) in routers.iter_mut().flat_map(|router| filter.map(|it| (router, it))) {
        for link in [1, 0, 3] {
            router.engine.links().set_reverse_path(LinkId(link), filter).expect("a link");
        }
    }
    for (events, reads, route) in introduction().iter().chain(steps) {
        let coming: Vec<Coming> = events.iter().map(coming).collect();
        for router in &mut routers {
            let prefix = "192.0.2.0/24".parse().expect("a prefix");
            let gateway = ip("10.1.0.2");
            match *route {
                Some(true) => {
                    let _ = router.engine.routes().add(prefix, Route::via(LinkId(1), gateway));
                }
                Some(false) => {
                    router.engine.routes().table().expect("its own").remove(
                        prefix,
                        LinkId(1),
                        Some(gateway),
                    );
                }
                None => {}
            }
        }
        let [fast, slow] = routers.each_mut().map(|router| router.turn(&coming, *reads));
        for (link, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
            for (place, (fast, slow)) in fast.iter().zip(slow).enumerate() {
                assert_eq!(fast, slow, "link {link}, packet {place}");
            }
            assert_eq!(fast.len(), slow.len(), "link {link}");
        }
        let [fast, slow] = routers.each_ref().map(Router::counted);
        assert_eq!(fast, slow);
    }
    routers
}

const FILTERS: [ReversePath; 3] = [ReversePath::Off, ReversePath::Loose, ReversePath::Strict];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn many_at_a_time_as_one_by_one(
        steps in prop::collection::vec(step(), 1..6),
        none in any::<bool>(),
        filter in prop::option::of(prop::sample::select(FILTERS.to_vec())),
    ) {
        let mut other = FastPath::ALL;
        other.forward_runs = false;
        let [_, slow] = same(&steps, if none { FastPath::NONE } else { other }, filter);
        prop_assert_eq!(slow.engine.stats().forwarded_in_runs, 0);
    }
}

#[test]
fn what_asks_for_more_goes_by_itself_in_its_place() {
    let odd = |v6, odd| (0, Event::Packet { v6, to: 0, hop_limit: 9, len: 20, port: 1, odd });
    let mut events = Vec::new();
    for v6 in [false, true] {
        events.extend((0..6).map(|to| plain(v6, to)));
        events.extend([Odd::Padding(9), Odd::Lies(Lies::Partial(false))].map(|kind| odd(v6, kind)));
        // Four that are handed on alone, and one that no route leads on; nor does that of the
        // second above.
        let alone = [Lies::Cut(30), Lies::Shared, Lies::Partial(true)].map(Odd::Lies);
        let alone = alone.into_iter().chain([Odd::Fragment(false, 8)]);
        events.extend(alone.map(|kind| odd(v6, kind)));
        events.extend([plain(v6, 12), plain(v6, 0)]);
    }
    let mut other = FastPath::ALL;
    other.forward_runs = false;
    let before = same(&[], other, None).map(|router| router.engine.stats().forwarded_in_runs);
    let routers = same(&[(events, [true; LINKS.len()], None)], other, None);
    let counted = |router: &Router, count: fn(&EngineStats) -> u64| count(router.engine.stats());
    for router in &routers {
        assert_eq!(counted(router, |stats| stats.dropped(DropReason::NoRoute)), 2);
        assert_eq!(counted(router, |stats| stats.dropped(DropReason::RejectRoute)), 2);
    }
    let in_runs = routers.each_ref().map(|router| counted(router, |stats| stats.forwarded_in_runs));
    assert_eq!([in_runs[0] - before[0], in_runs[1]], [16, 0]);
}
