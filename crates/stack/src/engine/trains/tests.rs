use std::net::{IpAddr, SocketAddr};

use millstream_packet::{COALESCE_LIMIT_BYTES, Pool, PoolConfig};
use millstream_route::LinkId;
use millstream_tcp::FourTuple;
use millstream_wire::checksum;
use millstream_wire::ethernet::{EtherType, EthernetHeader, MacAddr};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::tcp::{
    CHECKSUM_OFFSET, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps,
};
use proptest::prelude::*;

use super::place::ETHERNET_BYTES;
use super::*;
use crate::socket::{SocketId, SocketKind};

/// A segment as it stands on an Ethernet.
#[derive(Clone)]
struct Shape {
    is_v6: bool,
    port: u16,
    seq: u32,
    len: usize,
    flags: TcpFlags,
    echo: u32,
    padding: usize,
    is_broken: bool,
    ack: u32,
    window: u16,
    hop_limit: u8,
    /// IPv4 alone: four bytes of options that do nothing.
    has_ip_options: bool,
}

impl Shape {
    fn data(seq: u32, len: usize) -> Self {
        let flags = TcpFlags::ACK;
        let (is_v6, is_broken, has_ip_options) = (false, false, false);
        let (ack, window, hop_limit) = (77, 1000, 64);
        Shape {
            is_v6,
            port: 7,
            seq,
            len,
            flags,
            echo: 5,
            padding: 0,
            is_broken,
            ack,
            window,
            hop_limit,
            has_ip_options,
        }
    }

    fn payload(&self) -> Vec<u8> {
        (0..self.len).map(|i| (self.seq as usize + i) as u8).collect()
    }

    fn build(&self, pool: &Pool) -> Packet {
        let [src, dst]: [IpAddr; 2] = match self.is_v6 {
            true => ["fd00::1", "fd00::2"].map(|text| text.parse().expect("an address")),
            false => ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address")),
        };
        let options = TcpOptions {
            timestamps: Some(Timestamps { value: 9, echo: self.echo }),
            ..TcpOptions::NONE
        };
        let tcp = TcpHeader {
            src_port: self.port,
            dst_port: 80,
            seq: SeqNumber(self.seq),
            ack: SeqNumber(self.ack),
            flags: self.flags,
            window: self.window,
            urgent: 0,
            options,
        };
        let mut bytes = vec![0; 128];
        let to = MacAddr([2, 0, 0, 0, 0, 1]);
        let l3 = EthernetHeader::new(to, to, EtherType::of(&dst)).emit(&mut bytes);
        let tcp_len = tcp.header_len() + self.len;
        let mut ip = IpHeader::new(src, dst, Protocol::TCP, tcp_len);
        ip.identification = self.seq as u16;
        ip.hop_limit = self.hop_limit;
        let l4 = l3 + ip.emit(&mut bytes[l3..]);
        let end = l4 + tcp.emit(&mut bytes[l4..]);
        bytes.truncate(end);
        bytes.extend(self.payload());
        let pseudo = ip::pseudo_header_sum(src, dst, Protocol::TCP, tcp_len);
        let sum = checksum::combine(pseudo, checksum::sum(&bytes[l4..]), false);
        bytes[l4 + CHECKSUM_OFFSET..l4 + CHECKSUM_OFFSET + 2]
            .copy_from_slice(&checksum::finish(sum));
        if self.is_broken {
            *bytes.last_mut().expect("bytes") ^= 0x40;
        }
        if self.has_ip_options {
            bytes.splice(l3 + 20..l3 + 20, [1; 4]);
            bytes[l3] = 0x46;
            let len = u16::from_be_bytes([bytes[l3 + 2], bytes[l3 + 3]]) + 4;
            bytes[l3 + 2..l3 + 4].copy_from_slice(&len.to_be_bytes());
            bytes[l3 + 10..l3 + 12].fill(0);
            let sum = checksum::finish(checksum::sum(&bytes[l3..l3 + 24]));
            bytes[l3 + 10..l3 + 12].copy_from_slice(&sum);
        }
        bytes.extend(vec![0xaa; self.padding]);
        Packet::from_slice(pool, 0, &bytes).expect("frames")
    }
}

/// Brings a segment up as the engine does; whether it went the long way.
fn carry(trains: &mut Trains, pool: &Pool, shape: &Shape) -> bool {
    let Err(mut packet) = trains.join(shape.build(pool), LinkId(0), Medium::Ethernet) else {
        return false;
    };
    if shape.is_broken {
        // The long way finds that too.
        return true;
    }
    packet.trim_front(ETHERNET_BYTES);
    let ip = ip::parse(packet.head(), packet.len()).expect("an IP header");
    packet.truncate(ip.packet_len());
    let (header, tcp_len) =
        TcpHeader::parse(&packet.head()[ip.header_len..]).expect("a TCP header");
    packet.trim_front(ip.header_len + tcp_len);
    let tuple = FourTuple {
        local: SocketAddr::new(ip.dst, header.dst_port),
        remote: SocketAddr::new(ip.src, header.src_port),
    };
    let (ecn, link) = (0, LinkId(0));
    let payload = (!packet.is_empty()).then_some(packet);
    let socket = Some(SocketId::new(SocketKind::Tcp, u32::from(header.src_port), 0));
    let segment = Incoming { tuple, header, payload, ecn, link, socket };
    trains.push(segment, ip.header_len, tcp_len);
    true
}

/// What comes of a batch: for each segment its port, first sequence number, flags and payload.
fn carried(shapes: &[Shape]) -> Vec<(u16, u32, TcpFlags, Vec<u8>)> {
    let pool = Pool::new(PoolConfig::fixed(1024)).expect("a pool");
    let mut trains = Trains::new(shapes.len());
    for shape in shapes {
        carry(&mut trains, &pool, shape);
    }
    let mut taken = trains.take();
    let bytes = |packet: &Packet| packet.slices().flatten().copied().collect();
    taken
        .iter_mut()
        .map(|segment| {
            let s = trains.whole(segment).expect("of this batch");
            let payload = s.payload.as_ref().map(bytes).unwrap_or_default();
            (s.header.src_port, s.header.seq.0, s.header.flags, payload)
        })
        .collect()
}

fn lengths(shapes: &[Shape]) -> Vec<usize> {
    carried(shapes).iter().map(|(.., payload)| payload.len()).collect()
}

#[test]
fn what_follows_joins_up_to_a_push() {
    for is_v6 in [false, true] {
        let mut shapes: Vec<Shape> = (0..5).map(|i| Shape::data(1000 * i, 1000)).collect();
        shapes.iter_mut().for_each(|shape| shape.is_v6 = is_v6);
        shapes[2].flags = TcpFlags::ACK | TcpFlags::PSH;
        let carried = carried(&shapes);
        assert_eq!(carried.len(), 2);
        assert_eq!((carried[0].1, carried[0].2), (0, TcpFlags::ACK | TcpFlags::PSH));
        assert_eq!(carried[0].3.len(), 3000);
        assert_eq!((carried[1].1, carried[1].3.len()), (3000, 2000));
    }
}

#[test]
fn what_differs_or_is_broken_stands_alone() {
    let changes: [fn(&mut Shape); 3] = [
        |shape| shape.echo = 6,
        |shape| shape.seq += 1,
        |shape| shape.flags = TcpFlags::ACK | TcpFlags::FIN,
    ];
    for change in changes {
        let mut shapes: Vec<Shape> = (0..3).map(|i| Shape::data(1000 * i, 1000)).collect();
        change(&mut shapes[1]);
        assert_eq!(lengths(&shapes), [1000, 1000, 1000]);
    }
    let mut shapes: Vec<Shape> = (0..3).map(|i| Shape::data(1000 * i, 1000)).collect();
    shapes[1].is_broken = true;
    assert_eq!(lengths(&shapes), [1000, 1000]);
}

#[test]
fn what_comes_behind_ip_options_is_not_overtaken() {
    // The third would join the first, had the second not been in between.
    let mut shapes = vec![Shape::data(0, 1000), Shape::data(1000, 500), Shape::data(1000, 1000)];
    shapes[1].has_ip_options = true;
    assert_eq!(lengths(&shapes), [1000, 500, 1000]);
}

#[test]
fn a_shorter_segment_is_the_last_and_small_ones_begin_no_train() {
    let runs = |sizes: &[usize]| {
        let mut seq = 0;
        let shapes = sizes.iter().map(|&len| {
            let shape = Shape::data(seq, len);
            seq += len as u32;
            shape
        });
        lengths(&shapes.collect::<Vec<_>>())
    };
    assert_eq!(runs(&[1000, 1000, 600, 1000, 1000]), [2600, 2000]);
    assert_eq!(runs(&[600, 1000, 1000]), [600, 2000], "a longer one does not join");
    assert_eq!(runs(&[9; 5]), [9; 5], "the receive queue copies them together");
    assert_eq!(runs(&[1000, 9, 9]), [1009, 9]);
}

#[test]
fn a_bare_ack_ends_the_train() {
    let shapes = [Shape::data(0, 1000), Shape::data(1000, 0), Shape::data(1000, 1000)];
    assert_eq!(lengths(&shapes), [1000, 0, 1000]);
}

#[test]
fn a_known_flow_is_not_read_again() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    for is_v6 in [false, true] {
        let mut trains = Trains::new(8);
        let shape = |seq, len| Shape { is_v6, ..Shape::data(seq, len) };
        assert!(carry(&mut trains, &pool, &shape(0, 1000)));
        let list = trains.take();
        trains.put_back(list);
        // Its next segments, in whatever order, of whatever length, with other timestamps.
        let next = [
            shape(1000, 1),
            Shape { padding: 5, ..shape(7000, 0) },
            Shape { echo: 6, flags: TcpFlags::ACK | TcpFlags::PSH, ..shape(2000, 30) },
        ];
        for shape in &next {
            assert!(!carry(&mut trains, &pool, shape));
        }
        let mut list = trains.take();
        assert_eq!(list.len(), next.len());
        for (segment, shape) in list.iter_mut().zip(&next) {
            assert!(matches!(segment.way, Read::InLane(_)));
            let segment = trains.whole(segment).expect("of this batch");
            let header = &segment.header;
            let timestamps = Some(Timestamps { value: 9, echo: shape.echo });
            assert_eq!((header.src_port, header.dst_port), (7, 80));
            assert_eq!((header.seq.0, header.ack.0, header.window), (shape.seq, 77, 1000));
            assert_eq!((header.flags, header.options.timestamps), (shape.flags, timestamps));
            let bytes: Vec<u8> =
                segment.payload.iter().flat_map(Packet::slices).flatten().copied().collect();
            assert_eq!(bytes, shape.payload());
            assert_eq!(segment.tuple.remote.port(), 7);
        }
        trains.put_back(list);
        // Another flow, other flags, a broken one, and all of them once the lanes are forgotten.
        let fin = TcpFlags::ACK | TcpFlags::FIN;
        assert!(carry(&mut trains, &pool, &Shape { port: 8, ..shape(0, 10) }));
        assert!(carry(&mut trains, &pool, &Shape { is_broken: true, ..shape(0, 10) }));
        assert!(carry(&mut trains, &pool, &Shape { flags: fin, ..shape(0, 10) }));
        assert!(carry(&mut trains, &pool, &shape(0, 10)), "what is not common is not learned");
        assert!(!carry(&mut trains, &pool, &shape(10, 10)));
        trains.forget();
        assert!(carry(&mut trains, &pool, &shape(20, 10)));
    }
}

/// A run takes the next segment, with or without PSH, and nothing that differs from it by a single bit.
#[test]
fn a_run_takes_the_next_segment_alone() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let mut trains = Trains::new(8);
    let first = Shape::data(u32::MAX - 1500, 1000);
    assert!(carry(&mut trains, &pool, &first));
    let list = trains.take();
    trains.put_back(list);
    let packet = first.build(&pool);
    let Some(place) = Place::of(packet.head(), Medium::Ethernet) else { panic!("a flow") };
    let run = trains.run(packet.head(), place.lane).expect("common headers");
    assert_eq!(run.part(), 1000);
    let seq = first.seq.wrapping_add(1000);
    let next = Shape { hop_limit: 64, ..Shape::data(seq, 1000) };
    let pushed = Shape { flags: TcpFlags::ACK | TcpFlags::PSH, ..next.clone() };
    for (shape, push) in [(&next, false), (&pushed, true)] {
        let mut memory = [0; 1000];
        assert_eq!(run.copy_next(&shape.build(&pool), seq, &mut memory), Some(push));
        assert_eq!(memory[..], shape.payload());
    }
    let mut memory = [0; 1000];
    assert_eq!(run.copy_next(&next.build(&pool), seq.wrapping_add(1), &mut memory), None);
    for len in [0, 1, 999, 1001] {
        let other = Shape::data(seq, len).build(&pool);
        assert_eq!(run.copy_next(&other, seq, &mut memory), None, "{len} bytes");
    }
    let v6 = Shape { is_v6: true, ..next.clone() };
    assert!(carry(&mut trains, &pool, &v6));
    let v6 = v6.build(&pool);
    let lane = Place::of(v6.head(), Medium::Ethernet).map(|place| place.lane);
    assert!(trains.run(v6.head(), lane.expect("a flow")).is_none(), "IPv4 alone");
    let mut packet = next.build(&pool);
    for bit in 0..8 * packet.len() {
        let flip = |packet: &mut Packet| {
            packet.head_mut().expect("its own")[bit / 8] ^= 1 << (bit % 8);
        };
        flip(&mut packet);
        assert_eq!(run.copy_next(&packet, seq, &mut memory), None, "bit {bit}");
        flip(&mut packet);
    }
    assert_eq!(run.copy_next(&packet, seq, &mut memory), Some(false));
}

#[test]
fn a_segment_knows_its_ends_though_others_took_the_lane_of_its_flow() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let lane = |port| {
        let packet = Shape { port, ..Shape::data(0, 10) }.build(&pool);
        Place::of(packet.head(), Medium::Ethernet).expect("plain headers").lane
    };
    let ports: Vec<u16> = (1..2000).filter(|&port| lane(port) == lane(1)).take(3).collect();
    let mut trains = Trains::new(8);
    carry(&mut trains, &pool, &Shape { port: 1, ..Shape::data(0, 10) });
    let list = trains.take();
    trains.put_back(list);
    let batch = [1, ports[1], 1, ports[2], ports[1]];
    let long: Vec<bool> =
        batch.map(|port| carry(&mut trains, &pool, &Shape { port, ..Shape::data(10, 700) })).into();
    assert_eq!(long, [false, true, true, true, true]);
    let mut list = trains.take();
    for (segment, port) in list.iter_mut().zip(batch) {
        let whole = trains.whole(segment).expect("of this batch");
        assert_eq!((whole.tuple.remote.port(), whole.header.src_port), (port, port));
    }
    trains.put_back(list);
}

#[test]
fn padding_is_cut_off_and_a_train_has_an_end() {
    let mut shapes: Vec<Shape> = (0..60).map(|i| Shape::data(1400 * i, 1400)).collect();
    shapes[1].padding = 6;
    assert_eq!(lengths(&shapes), [46 * 1400, 14 * 1400]);
}

/// How a segment differs from the one before it.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    Gap,
    Overlap,
    Flags(TcpFlags),
    Ack,
    Window,
    Echo,
    Hops,
    IpOptions,
    Broken,
    Padded,
}

fn change() -> impl Strategy<Value = Change> {
    use Change::*;
    let other = [
        Gap,
        Overlap,
        Flags(TcpFlags::FIN),
        Flags(TcpFlags::URG),
        Flags(TcpFlags::CWR),
        Flags(TcpFlags::ECE),
        Ack,
        Window,
        Echo,
        Hops,
        IpOptions,
        Broken,
        Padded,
    ];
    prop_oneof![3 => Just(Nothing), 1 => prop::sample::select(other.to_vec())]
}

impl Change {
    fn apply(self, shape: &mut Shape) {
        match self {
            Self::Nothing => {}
            Self::Gap => shape.seq += 10,
            Self::Overlap => shape.seq = shape.seq.saturating_sub(150),
            Self::Flags(flag) => shape.flags |= flag,
            Self::Ack => shape.ack += 1,
            Self::Window => shape.window += 1,
            Self::Echo => shape.echo += 1,
            Self::Hops => shape.hop_limit -= 1,
            Self::IpOptions => shape.has_ip_options = true,
            Self::Broken => shape.is_broken = shape.len > 0,
            Self::Padded => shape.padding = 6,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the segments of a batch are: for each flow what comes of it are runs of its segments, in the
    /// order of their arrival, and only what differs in nothing but its place in the stream is in one run.
    #[test]
    fn trains_are_runs_of_equal_segments_in_order(
        picks in prop::collection::vec((0..3_u16, 0..9_usize, change(), any::<bool>()), 1..64),
    ) {
        let mut next = [0_u32; 3];
        let mut shapes = Vec::new();
        for (flow, len, change, push) in picks {
            let at = &mut next[usize::from(flow)];
            let mut shape = Shape { port: flow + 1, is_v6: flow == 1, ..Shape::data(*at, 150 * len) };
            if push {
                shape.flags |= TcpFlags::PSH;
            }
            change.apply(&mut shape);
            shape.has_ip_options &= !shape.is_v6;
            *at = shape.seq + shape.len as u32;
            shapes.push(shape);
        }
        let carried = carried(&shapes);
        for flow in 0..3_u16 {
            let mut sound =
                shapes.iter().filter(|s| s.port == flow + 1 && !s.is_broken).peekable();
            for (_, seq, flags, payload) in carried.iter().filter(|(port, ..)| *port == flow + 1) {
                let first = sound.next().expect("no more than came");
                prop_assert_eq!(*seq, first.seq);
                let (mut bytes, mut last) = (first.payload(), first);
                while bytes.len() < payload.len() {
                    let next = sound.next().expect("no more than came");
                    prop_assert_eq!(next.seq, last.seq + last.len as u32, "no gap");
                    prop_assert!(next.len > 0 && last.len > 0, "no bare acknowledgement");
                    prop_assert_eq!(last.flags, TcpFlags::ACK, "nothing after PSH, nor with other flags");
                    prop_assert!(next.flags == TcpFlags::ACK || next.flags == TcpFlags::ACK | TcpFlags::PSH);
                    let rest = |s: &Shape| (s.ack, s.window, s.echo, s.hop_limit, s.has_ip_options);
                    prop_assert_eq!(rest(first), rest(next));
                    prop_assert_eq!(last.len, first.len, "only the last is shorter");
                    prop_assert!(next.len <= first.len && first.len >= COALESCE_LIMIT_BYTES);
                    bytes.extend(next.payload());
                    last = next;
                }
                prop_assert_eq!(&bytes, payload);
                prop_assert_eq!(*flags, last.flags);
            }
            prop_assert!(sound.next().is_none(), "all of it came");
        }
    }

    /// A few bytes are a reader's where, and as, any payload is, whatever bit of the packet is another.
    #[test]
    fn few_bytes_are_offered_as_any_payload_is(
        (seq, len, padding, echo) in (any::<u32>(), 0..20_usize, 0..8_usize, any::<u32>()),
        (is_v6, has_ip_options, push) in (prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>()),
        flip in prop::option::of((0..90_usize, 0..8_u8)),
    ) {
        let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
        let (link, medium) = (LinkId(0), Medium::Ethernet);
        let socket = SocketId::new(SocketKind::Tcp, 7, 0);
        let mut trains = Trains::new(8);
        let known = Shape { is_v6, ..Shape::data(0, 10) };
        carry(&mut trains, &pool, &known);
        let list = trains.take();
        trains.put_back(list);
        let packet = known.build(&pool);
        let offered = trains.offer(&packet, packet.head(), link, medium, socket);
        let Offered::Payload(offer) = &offered else { panic!("a known flow") };
        trains.note_reader(offer);
        let flags = if push { TcpFlags::ACK | TcpFlags::PSH } else { TcpFlags::ACK };
        let has_ip_options = has_ip_options && !is_v6;
        let shape = Shape { flags, padding, echo, is_v6, has_ip_options, ..Shape::data(seq, len) };
        let mut packet = shape.build(&pool);
        if let Some((at, bit)) = flip
            && let Some(byte) = packet.head_mut().and_then(|head| head.get_mut(at))
        {
            *byte ^= 1 << bit;
        }
        let mut memory = [0; 64];
        let any = match &trains.offer(&packet, packet.head(), link, medium, socket) {
            Offered::Payload(offer) => trains
                .copy_out(&packet, packet.head(), offer, &mut memory)
                .then(|| (offer.header, memory[..offer.len()].to_vec(), offer.ecn)),
            _ => None,
        };
        let expected = any.filter(|(_, bytes, _)| (1..=16).contains(&bytes.len()) && !is_v6);
        let few = trains.few(&packet, link, socket);
        prop_assert_eq!(few.map(|few| (few.header, few.payload.to_vec(), few.ecn)), expected);
    }

    /// Flows in any mixture: each one's bytes come whole and in order.
    #[test]
    fn every_flow_keeps_its_order(picks in prop::collection::vec((0..4_u16, 0..1400_usize, any::<bool>()), 1..60)) {
        let mut next = [0_u32; 4];
        let mut shapes = Vec::new();
        for (flow, len, push) in picks {
            let mut shape = Shape::data(next[usize::from(flow)], len);
            shape.port = flow + 1;
            shape.is_v6 = flow % 2 == 1;
            if push {
                shape.flags |= TcpFlags::PSH;
            }
            next[usize::from(flow)] += len as u32;
            shapes.push(shape);
        }
        let carried = carried(&shapes);
        prop_assert!(carried.len() <= shapes.len());
        for flow in 0..4_u16 {
            let sent: Vec<u8> = shapes.iter().filter(|s| s.port == flow + 1).flat_map(Shape::payload).collect();
            let mut got = Vec::new();
            for (_, seq, _, payload) in carried.iter().filter(|(port, ..)| *port == flow + 1) {
                prop_assert_eq!(*seq as usize, got.len());
                got.extend_from_slice(payload);
            }
            prop_assert_eq!(sent, got);
        }
    }
}
