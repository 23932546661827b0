//! Flows whose headers are known.

use millstream_packet::PacketBatch;
use proptest::prelude::*;

use super::*;

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

/// What may follow `first`, a segment of a flow not known before.
fn run_behind(trains: &mut Trains, pool: &Pool, first: &Shape) -> Run {
    assert!(carry(trains, pool, first));
    let list = trains.take();
    trains.put_back(list);
    let packet = first.build(pool);
    let Some(place) = Place::of(packet.head(), Medium::Ethernet) else { panic!("a flow") };
    trains.run(packet.head(), place.lane).expect("common headers")
}

/// A run takes the next segment, with or without PSH, and nothing that differs from it by a single bit.
#[test]
fn a_run_takes_the_next_segment_alone() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let mut trains = Trains::new(8);
    let first = Shape::data(u32::MAX - 1500, 1000);
    let run = run_behind(&mut trains, &pool, &first);
    assert_eq!(run.part(), 1000);
    let copy =
        |packet: &Packet, seq, memory: &mut [u8]| run.copy_next(packet, packet.sole(), seq, memory);
    let seq = first.seq.wrapping_add(1000);
    let next = Shape { hop_limit: 64, ..Shape::data(seq, 1000) };
    let pushed = Shape { flags: TcpFlags::ACK | TcpFlags::PSH, ..next.clone() };
    for (shape, push) in [(&next, false), (&pushed, true)] {
        let mut memory = [0; 1000];
        assert_eq!(copy(&shape.build(&pool), seq, &mut memory), Some(push));
        assert_eq!(memory[..], shape.payload());
    }
    let mut memory = [0; 1000];
    assert_eq!(copy(&next.build(&pool), seq.wrapping_add(1), &mut memory), None);
    for len in [0, 1, 999, 1001] {
        let other = Shape::data(seq, len).build(&pool);
        assert_eq!(copy(&other, seq, &mut memory), None, "{len} bytes");
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
        assert_eq!(copy(&packet, seq, &mut memory), None, "bit {bit}");
        flip(&mut packet);
    }
    assert_eq!(copy(&packet, seq, &mut memory), Some(false));
}

/// A run ends with a segment that has PSH, before one that is not sound, and where there is room for no whole one.
#[test]
fn a_run_is_copied_as_far_as_it_goes() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let mut trains = Trains::new(8);
    let run = run_behind(&mut trains, &pool, &Shape::data(7, 1000));
    let shape = |i: usize| Shape { hop_limit: 64, ..Shape::data(1007 + 1000 * i as u32, 1000) };
    for (count, pushed, unsound, room) in [
        (20, 99, 99, 20_000),
        (20, 99, 99, 9999),
        (20, 11, 99, 20_000),
        (20, 99, 3, 20_000),
        (20, 3, 5, 20_000),
        (16, 99, 99, 20_000),
        (1, 99, 0, 20_000),
    ] {
        let mut batch = PacketBatch::new();
        for i in 0..count {
            let flags = if i == pushed { TcpFlags::ACK | TcpFlags::PSH } else { TcpFlags::ACK };
            let mut packet = Shape { flags, ..shape(i) }.build(&pool);
            if i == unsound {
                *packet.head_mut().expect("its own").last_mut().expect("a byte") ^= 1;
            }
            assert!(batch.push(packet).is_ok());
        }
        let mut memory = vec![0; room];
        let taken = run.copy_all(&batch, 1007, &mut memory);
        let expected = count.min(pushed + 1).min(unsound).min(room / 1000);
        assert_eq!((taken.count, taken.pushes), (expected, pushed + 1 == expected));
        assert_eq!(taken.bytes, batch.iter().take(expected).map(Packet::len).sum::<usize>());
        let payloads = (0..expected).flat_map(|i| shape(i).payload());
        assert!(payloads.eq(memory[..1000 * expected].iter().copied()));
    }
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A segment in several frames is a reader's as one in a single frame is, and not where a bit of it is another.
    #[test]
    fn a_segment_of_several_frames_is_copied_where_it_is_sound(
        (seq, len, padding) in (any::<u32>(), 1900..9000_usize, 0..8_usize),
        is_v6 in prop::bool::weighted(0.2),
        flip in prop::option::of((14..9000_usize, 0..8_u8)),
    ) {
        let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
        let (link, medium) = (LinkId(0), Medium::Ethernet);
        let socket = SocketId::new(SocketKind::Tcp, 7, 0);
        let mut trains = Trains::new(8);
        carry(&mut trains, &pool, &Shape { is_v6, ..Shape::data(0, 10) });
        let list = trains.take();
        trains.put_back(list);
        let shape = Shape { is_v6, padding, ..Shape::data(seq, len) };
        let packet = shape.build(&pool);
        let mut bytes: Vec<u8> = packet.slices().flatten().copied().collect();
        let end = bytes.len() - padding;
        let flip = flip.filter(|&(at, _)| at < end);
        if let Some((at, bit)) = flip {
            bytes[at] ^= 1 << bit;
        }
        let packet = Packet::from_slice(&pool, 0, &bytes).expect("frames");
        let mut memory = vec![0; len];
        let sound = match trains.offer(&packet, packet.head(), link, medium, socket) {
            Offered::Payload(offer) => {
                trains.copy_out(&packet, packet.head(), &offer, &mut memory[..]) && offer.len() == len
            }
            _ => false,
        };
        prop_assert_eq!(sound, flip.is_none());
        prop_assert!(!sound || memory == shape.payload());
    }
}
