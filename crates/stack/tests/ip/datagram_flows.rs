//! Datagrams of a known flow mean what they mean by the long way: the same data from the same
//! senders in the same order, the same refused for the same reasons.

use std::net::{IpAddr, SocketAddr};

use millstream::link::{Link, LinkError, Medium, PairConfig, PairEnd, Shown, forward_link, pair};
use millstream::packet::{Checksum, Instant, Packet, PacketBatch, Pool, PoolConfig};
use millstream::{DropReason, Engine, Error, SocketId, local};
use millstream_wire::checksum::Accumulator;
use millstream_wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::udp::{self, UdpHeader};
use proptest::prelude::*;

use crate::common;

const PORT: u16 = 53;

/// A fault of a datagram, or something unusual in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twist {
    None,
    /// Link padding behind it.
    Padded,
    /// The first bytes in one frame, the rest in another.
    Split,
    /// Checksum field zero.
    NoChecksum,
    /// Somebody else vouches for a checksum that is wrong.
    Vouched,
    BadChecksum,
    /// A bit of the IP header's checksum (or of IPv6's payload length) is wrong.
    BadIp,
    /// Cut off behind this many bytes of the UDP header or the data.
    Cut(usize),
    /// UDP's length field says so many more.
    Longer,
    /// So many less: what is behind is no data.
    Shorter,
    OtherHopLimit,
    Fragment,
    /// For a port that nobody has.
    OtherPort,
    /// For another link address (Ethernet), or another IP address.
    OtherHost,
    IpOptions,
}

/// A datagram from the peer with that port.
#[derive(Clone, Debug)]
struct Shape {
    v6: bool,
    from: u16,
    data: Vec<u8>,
    twist: Twist,
}

fn twist() -> impl Strategy<Value = Twist> {
    use Twist::*;
    prop_oneof![
        8 => Just(None),
        1 => prop_oneof![Just(Padded), Just(Split), Just(NoChecksum), Just(Vouched), Just(BadChecksum)],
        1 => prop_oneof![Just(BadIp), (0..12_usize).prop_map(Cut), Just(Longer), Just(Shorter)],
        1 => prop_oneof![Just(OtherHopLimit), Just(Fragment), Just(OtherPort), Just(OtherHost)],
        1 => Just(IpOptions),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let from = prop_oneof![4 => Just(1000_u16), 1 => 1000..1003_u16];
    let data = prop::collection::vec(any::<u8>(), 0..150);
    (any::<bool>(), from, data, twist()).prop_map(|(v6, from, data, twist)| Shape {
        v6,
        from,
        data,
        twist,
    })
}

/// The end of a pair as a link that shows packets where they lie: those of one frame.
struct Showing {
    end: PairEnd,
    waiting: PacketBatch,
}

impl Link for Showing {
    forward_link!(self => self.end; capabilities, transmit, wait_fd, wants_write, prepare_sleep, stats, name);

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        if self.waiting.is_empty() {
            return self.end.receive(now, pool, batch);
        }
        let before = batch.len();
        batch.append(&mut self.waiting);
        Ok(batch.len() - before)
    }

    fn show(
        &mut self,
        now: Instant,
        pool: &Pool,
        limit: usize,
        take: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> usize {
        if self.waiting.is_empty() {
            self.end.receive(now, pool, &mut self.waiting).expect("received");
        }
        let mut count = 0;
        while count < limit {
            let Some(packet) = self.waiting.front() else { break };
            let shown = packet.sole().map(|bytes| {
                let checksum = packet.meta().checksum;
                Shown { bytes, checksum }
            });
            if !shown.is_some_and(&mut *take) {
                break;
            }
            self.waiting.pop();
            count += 1;
        }
        count
    }
}

/// An engine with a socket for any, and the other end of its link.
struct Host {
    pool: Pool,
    engine: Engine,
    wire: PairEnd,
    medium: Medium,
    socket: SocketId,
}

impl Host {
    fn new(medium: Medium) -> Self {
        Self::with(medium, |end| end)
    }

    /// One whose link shows what waits.
    fn shown(medium: Medium) -> Self {
        Self::with(medium, |end| Showing { end, waiting: PacketBatch::new() })
    }

    fn with<L: Link + 'static>(medium: Medium, link: impl FnOnce(PairEnd) -> L) -> Self {
        let pool = Pool::new(PoolConfig::fixed(512)).expect("memory for a pool");
        let config = PairConfig { offload: false, medium, ..PairConfig::default() };
        let (wire, end) = pair(config).expect("a pair");
        let mut engine = common::engine(common::config(&pool, 2), link(end), &common::FAR);
        let socket =
            engine.sockets().udp_bind(format!("[::]:{PORT}").parse().expect("any")).expect("bind");
        Self { pool, engine, wire, medium, socket }
    }

    fn packet(&self, shape: &Shape) -> Packet {
        let bytes = shape.bytes(self.medium);
        let cut = match shape.twist {
            Twist::Split => bytes.len() - shape.data.len() / 2 - 1,
            _ => bytes.len(),
        };
        let mut packet = Packet::from_slice(&self.pool, 64, &bytes[..cut]).expect("a frame");
        if cut < bytes.len() {
            packet.concat(Packet::from_slice(&self.pool, 0, &bytes[cut..]).expect("a frame"));
        }
        if shape.twist == Twist::Vouched {
            packet.meta_mut().checksum = Checksum::Verified;
        }
        packet
    }

    /// Has these arrive, in one batch or one by one with everything forgotten before each, and
    /// reads them.
    fn take(&mut self, shapes: &[Shape], together: bool) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut got = Vec::new();
        for shapes in shapes.chunks(if together { shapes.len().max(1) } else { 1 }) {
            if !together {
                self.forget();
            }
            let mut batch = PacketBatch::new();
            batch.extend(shapes.iter().map(|shape| self.packet(shape)));
            let now = self.engine.refresh_time();
            self.wire.transmit(now, &self.pool, &mut batch).expect("sent");
            assert!(batch.is_empty());
            self.engine.turn(now);
            while self.wire.receive(now, &self.pool, &mut batch).expect("received") != 0 {
                batch.clear();
            }
            self.read(&mut got);
        }
        got
    }

    /// Has these arrive in one batch, and reads them by turns that have a buffer ready.
    fn take_shown(&mut self, shapes: &[Shape]) -> Vec<(SocketAddr, Vec<u8>)> {
        self.arrive(shapes);
        let (mut got, mut buffer, mut list) = (Vec::new(), [0; 400], Vec::new());
        loop {
            let now = self.engine.refresh_time();
            let turn = self.engine.turn_receiving(now, self.socket, &mut buffer, &mut list);
            let mut rest = &buffer[..];
            for datagram in &list {
                let (data, behind) = rest.split_at(datagram.len);
                got.push((datagram.from, data.to_vec()));
                rest = behind;
            }
            self.read(&mut got);
            if !turn.progress {
                return got;
            }
        }
    }

    /// Puts these on the wire, and takes off what is there for this side.
    fn arrive(&mut self, shapes: &[Shape]) {
        let mut batch = PacketBatch::new();
        let now = self.engine.refresh_time();
        while self.wire.receive(now, &self.pool, &mut batch).expect("received") != 0 {
            batch.clear();
        }
        batch.extend(shapes.iter().map(|shape| self.packet(shape)));
        self.wire.transmit(now, &self.pool, &mut batch).expect("sent");
        assert!(batch.is_empty());
    }

    /// A socket comes and goes: no flow is known any more.
    fn forget(&mut self) {
        let other = self.engine.sockets().udp_bind("[::]:0".parse().expect("any")).expect("bind");
        self.engine.close(other);
    }

    /// All that waits, some at a time.
    fn read(&mut self, got: &mut Vec<(SocketAddr, Vec<u8>)>) {
        let (mut buffer, mut list) = ([0; 400], Vec::new());
        while let Ok(count) = self.engine.udp(self.socket).recv_many(&mut buffer, &mut list) {
            assert_eq!(count, list.len());
            let mut rest = &buffer[..];
            for datagram in &list {
                let (data, behind) = rest.split_at(datagram.len);
                got.push((datagram.from, data.to_vec()));
                rest = behind;
            }
        }
    }

    /// Returns drops by reason, then datagrams, packets and bytes received.
    fn counts(&self) -> (Vec<(&'static str, u64)>, [u64; 3]) {
        let stats = self.engine.stats();
        (stats.drops_by_name().collect(), [stats.udp_rx, stats.rx_packets, stats.rx_bytes])
    }
}

impl Shape {
    fn good(data: &[u8]) -> Self {
        Self { v6: false, from: 1000, data: data.to_vec(), twist: Twist::None }
    }

    /// As it stands on the wire.
    fn bytes(&self, medium: Medium) -> Vec<u8> {
        let ip = self.ip();
        let mut packet = vec![0; ip.emit_len()];
        ip.emit(&mut packet);
        packet.extend(self.datagram(&ip));
        match self.twist {
            Twist::BadIp if self.v6 => packet[5] ^= 1,
            Twist::BadIp => packet[11] ^= 1,
            Twist::Fragment if !self.v6 => packet[6] = 0x20,
            Twist::IpOptions if !self.v6 => {
                packet.splice(20..20, [1; 4]);
                packet[0] = 0x46;
                let total = packet.len() as u16;
                packet[2..4].copy_from_slice(&total.to_be_bytes());
            }
            _ => {}
        }
        if matches!(self.twist, Twist::Fragment | Twist::IpOptions) && !self.v6 {
            let len = usize::from(packet[0] & 15) * 4;
            packet[10..12].fill(0);
            let mut sum = Accumulator::new(0);
            sum.add(&packet[..len]);
            packet[10..12].copy_from_slice(&sum.finish());
        }
        if let Twist::Cut(bytes) = self.twist {
            packet.truncate(ip.emit_len() + bytes);
        }
        if self.twist == Twist::Padded {
            packet.extend([0xaa; 7]);
        }
        if medium == Medium::Ip {
            return packet;
        }
        let [near, far] = PairConfig::default().macs;
        let to = if self.twist == Twist::OtherHost { MacAddr([2, 0, 0, 0, 9, 9]) } else { far };
        let kind = if self.v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mut frame = vec![0; HEADER_LEN];
        EthernetHeader::new(to, near, kind).emit(&mut frame);
        frame.extend(packet);
        frame
    }

    fn ip(&self) -> IpHeader {
        let ends = match (self.v6, self.twist) {
            (true, Twist::OtherHost) => ["fd09::1", "fd09::9"],
            (true, _) => ["fd09::1", "fd09::2"],
            (false, Twist::OtherHost) => ["10.9.0.1", "10.9.0.9"],
            (false, _) => ["10.9.0.1", "10.9.0.2"],
        };
        let [src, dst] = ends.map(|ip| ip.parse::<IpAddr>().expect("an address"));
        let mut ip = IpHeader::new(src, dst, Protocol::UDP, udp::HEADER_LEN + self.data.len());
        ip.identification = self.data.len() as u16 * 77;
        if self.twist == Twist::OtherHopLimit {
            ip.hop_limit = 9;
        }
        ip
    }

    fn datagram(&self, ip: &IpHeader) -> Vec<u8> {
        let port = if self.twist == Twist::OtherPort { PORT + 1 } else { PORT };
        let mut bytes = vec![0; udp::HEADER_LEN];
        UdpHeader::new(self.from, port, self.data.len()).emit(&mut bytes);
        bytes.extend(&self.data);
        match self.twist {
            Twist::Longer => bytes[5] = bytes[5].wrapping_add(3),
            Twist::Shorter => bytes[5] = bytes[5].wrapping_sub(3),
            _ => {}
        }
        let covered = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, Protocol::UDP, covered);
        let mut sum = Accumulator::new(pseudo);
        sum.add(&bytes[..covered.min(bytes.len())]);
        let field = udp::finish(sum.sum());
        bytes[6..8].copy_from_slice(&field);
        match self.twist {
            Twist::NoChecksum => bytes[6..8].fill(0),
            Twist::BadChecksum | Twist::Vouched => bytes[7] ^= 1,
            _ => {}
        }
        bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn known_flows_and_the_long_way_agree(
        batches in prop::collection::vec(prop::collection::vec(shape(), 1..40), 1..5),
        ethernet in any::<bool>(),
    ) {
        let medium = if ethernet { Medium::Ethernet } else { Medium::Ip };
        let (mut quick, mut slow) = (Host::new(medium), Host::new(medium));
        let mut shown = Host::shown(medium);
        for shapes in &batches {
            let expected = slow.take(shapes, false);
            prop_assert_eq!(&quick.take(shapes, true), &expected);
            prop_assert_eq!(quick.counts(), slow.counts());
            prop_assert_eq!(shown.take_shown(shapes), expected);
            prop_assert_eq!(shown.counts(), slow.counts());
        }
        prop_assert_eq!(slow.engine.stats().udp_rx_known, 0);
    }
}

#[test]
fn the_second_of_a_flow_is_learned_from_and_what_is_foreign_between_two_is_not_taken() {
    for (medium, v6) in [Medium::Ethernet, Medium::Ip].map(|m| [(m, false), (m, true)]).concat() {
        let mut host = Host::new(medium);
        let good = |n: u8| Shape { v6, ..Shape::good(&[n; 64]) };
        let twisted = |twist| Shape { twist, ..good(9) };
        let shapes = [
            good(0),
            good(1),
            good(2),
            good(3),
            twisted(Twist::BadChecksum),
            good(4),
            twisted(Twist::OtherPort),
            twisted(Twist::Longer),
            Shape { from: 1001, ..good(5) },
            twisted(Twist::Padded),
            good(6),
        ];
        let from = |port| SocketAddr::new(good(0).ip().src, port);
        let expected: Vec<_> = [0, 1, 2, 3, 4, 5, 9, 6].map(|n| vec![n; 64]).into();
        let got = host.take(&shapes, true);
        assert!(got.iter().all(|(who, data)| *who == from(if data[0] == 5 { 1001 } else { 1000 })));
        assert_eq!(got.into_iter().map(|(_, data)| data).collect::<Vec<_>>(), expected);
        assert_eq!(host.engine.stats().udp_rx_known, 5, "all but the first two and the stranger's");
    }
}

#[test]
fn a_full_queue_drops_and_counts_those_of_a_known_flow() {
    let mut host = Host::new(Medium::Ethernet);
    let shapes: Vec<_> = (0..40).map(|n| Shape::good(&[n; 10])).collect();
    host.take(&shapes[..4], true);
    host.engine.udp(host.socket).set_limit(20_000).expect("set");
    let got = host.take(&shapes, true);
    let dropped = host.engine.stats().dropped(DropReason::UdpQueueFull);
    assert!(!got.is_empty() && got.len() + dropped as usize == 40, "{} and {dropped}", got.len());
    assert!(got.iter().zip(0..).all(|((_, data), n)| *data == [n; 10]));
    assert_eq!(host.take(&shapes[..3], true).len(), 3, "there is room again");
}

#[test]
fn many_are_read_as_far_as_there_is_room_and_one_too_long_is_cut() {
    let mut host = Host::new(Medium::Ip);
    let (mut buffer, mut list) = ([0; 100], Vec::new());
    let recv = |host: &mut Host, buffer: &mut [u8], list: &mut Vec<_>| {
        host.engine.udp(host.socket).recv_many(buffer, list)
    };
    assert_eq!(recv(&mut host, &mut buffer, &mut list), Err(Error::WouldBlock));
    let mut batch = PacketBatch::new();
    let shapes = [60, 40, 0, 1, 130, 0, 5].map(|len| Shape::good(&vec![len; len.into()]));
    batch.extend(shapes.iter().map(|shape| host.packet(shape)));
    let now = host.engine.refresh_time();
    host.wire.transmit(now, &host.pool, &mut batch).expect("sent");
    host.engine.turn(now);
    let mut lens = Vec::new();
    while recv(&mut host, &mut buffer, &mut list).is_ok() {
        lens.push(list.iter().map(|datagram| datagram.len).collect::<Vec<_>>());
    }
    assert_eq!(lens, [vec![60, 40, 0], vec![1], vec![100, 0], vec![5]]);
    assert_eq!(recv(&mut host, &mut buffer, &mut list), Err(Error::WouldBlock));
    assert!(list.is_empty());
}

#[test]
fn a_reader_that_waits_has_known_datagrams_without_a_packet_and_in_order() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let mut host = Host::shown(medium);
        let good = |n: u8| Shape::good(&[n; 9]);
        let bad = Shape { twist: Twist::BadChecksum, ..good(99) };
        let stranger = Shape { from: 1001, ..good(5) };
        let shapes = [good(0), good(1), good(2), good(3)];
        let data = |got: Vec<(SocketAddr, Vec<u8>)>| -> Vec<u8> {
            got.iter().map(|(_, data)| data[0]).collect()
        };
        assert_eq!(data(host.take_shown(&shapes)), [0, 1, 2, 3]);
        assert_eq!(host.engine.stats().udp_rx_shown, 0, "the batch of an unknown one");
        assert_eq!(data(host.take_shown(&shapes)), [0, 1, 2, 3]);
        assert_eq!(host.engine.stats().udp_rx_shown, 4);
        let mixed = [good(0), good(1), bad, good(2), stranger, good(3)];
        assert_eq!(data(host.take_shown(&mixed)), [0, 1, 2, 5, 3]);
        assert_eq!(host.engine.stats().udp_rx_shown, 6, "what is behind another takes its way");
        assert_eq!(host.engine.stats().udp_rx, 13);
        // One that waits is not overtaken.
        host.arrive(&shapes[..1]);
        let now = host.engine.refresh_time();
        host.engine.turn(now);
        host.arrive(&shapes[1..]);
        let (mut buffer, mut list) = ([0; 400], Vec::new());
        host.engine.turn_receiving(now, host.socket, &mut buffer, &mut list);
        assert!(list.is_empty());
        let mut got = Vec::new();
        host.read(&mut got);
        assert_eq!(data(got), [0, 1, 2, 3]);
        host.engine.close(host.socket);
        host.arrive(&shapes);
        host.engine.turn_receiving(now, host.socket, &mut buffer, &mut list);
        assert!(list.is_empty(), "there is no such socket");
    }
}

#[test]
fn as_many_are_shown_as_there_is_room_for() {
    let mut host = Host::shown(Medium::Ip);
    host.take_shown(&[60, 40, 0].map(|len| Shape::good(&vec![len; len.into()])));
    host.arrive(&[60, 40, 0, 1, 130, 0, 5].map(|len| Shape::good(&vec![len; len.into()])));
    let (mut buffer, mut list, mut lens) = ([0; 100], Vec::new(), Vec::new());
    for _ in 0..4 {
        let now = host.engine.refresh_time();
        host.engine.turn_receiving(now, host.socket, &mut buffer, &mut list);
        lens.push(list.iter().map(|datagram| datagram.len).collect::<Vec<_>>());
        while host.engine.udp(host.socket).recv_many(&mut buffer, &mut list).is_ok() {
            lens.push(list.iter().map(|datagram| datagram.len).collect());
        }
    }
    lens.retain(|lens| !lens.is_empty());
    assert_eq!(lens, [vec![60, 40, 0], vec![1], vec![100, 0], vec![5]]);
    assert_eq!(host.engine.stats().udp_rx_shown, 4);
}

#[test]
fn a_blocking_read_of_many_has_what_a_link_shows() {
    let mut host = Host::shown(Medium::Ethernet);
    let shapes: Vec<_> = (0..20).map(|n| Shape::good(&[n; 30])).collect();
    host.engine.close(host.socket);
    let stack = local::Stack::new(host.engine);
    let socket = local::UdpSocket::bind(&stack, format!("[::]:{PORT}"));
    let socket = socket.expect("bind");
    let (mut buffer, mut list) = ([0; 4096], Vec::new());
    for round in 0..3 {
        let mut batch = PacketBatch::new();
        for shape in &shapes {
            let bytes = shape.bytes(host.medium);
            let packet = Packet::from_slice(&host.pool, 64, &bytes).expect("a frame");
            batch.push(packet).expect("room");
        }
        let now = stack.engine().refresh_time();
        host.wire.transmit(now, &host.pool, &mut batch).expect("sent");
        assert_eq!(socket.recv_many(&mut buffer, &mut list).expect("received"), 20);
        assert!(buffer[..600].chunks(30).zip(0..).all(|(data, n)| *data == [n; 30]));
        assert_eq!(stack.engine().stats().udp_rx_shown, round * 20);
    }
}

/// A known flow is forgotten with its socket, and when another socket takes it; another's end does
/// nothing to it.
#[test]
fn a_known_flow_lasts_as_long_as_it_is_for_its_socket() {
    let mut host = Host::new(Medium::Ethernet);
    let shapes = [0, 1, 2].map(|n| Shape { v6: true, ..Shape::good(&[n; 9]) });
    let peer = |port| SocketAddr::new(shapes[0].ip().src, port);
    let own = SocketAddr::new(shapes[0].ip().dst, PORT);
    let mut sockets = host.engine.sockets();
    let (third, other) = (sockets.udp_bind(own), sockets.udp_bind("[::]:0".parse().expect("any")));
    let (third, other) = (third.expect("bind"), other.expect("bind"));
    host.engine.udp(third).connect(peer(9)).expect("connected");
    assert_eq!(host.take(&shapes, true).len(), 3);
    host.engine.close(other);
    assert_eq!(host.take(&shapes, true).len(), 3);
    assert_eq!(host.engine.stats().udp_rx_known, 4, "all but the first two");
    host.engine.udp(third).connect(peer(shapes[0].from)).expect("connected");
    assert_eq!(host.take(&shapes, true), []);
    host.engine.close(third);
    assert_eq!(host.take(&shapes, true).len(), 3);
    assert_eq!(host.engine.stats().udp_rx_known, 8, "all but the first each time");
}
