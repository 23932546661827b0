//! Flows whose headers are known.

use proptest::prelude::*;

use super::*;

#[test]
fn a_known_flow_is_not_parsed_again() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    for is_v6 in [false, true] {
        let mut up = Up::new();
        let shape = |seq, len| Shape { is_v6, ..Shape::data(seq, len) };
        assert!(up.carry(&pool, &shape(0, 1000)));
        up.end();
        // Its next segments, in whatever order, of whatever length, with other timestamps.
        let next = [
            shape(1000, 1),
            Shape { padding: 5, ..shape(7000, 0) },
            Shape { echo: 6, flags: TcpFlags::ACK | TcpFlags::PSH, ..shape(2000, 30) },
        ];
        for shape in &next {
            assert!(!up.carry(&pool, shape));
        }
        let list = up.end();
        assert_eq!(list.len(), next.len());
        for ((header, bytes, tuple), shape) in list.iter().zip(&next) {
            let timestamps = Some(Timestamps { value: 9, echo: shape.echo });
            assert_eq!((header.src_port, header.dst_port), (7, 80));
            assert_eq!((header.seq.0, header.ack.0, header.window), (shape.seq, 77, 1000));
            assert_eq!((header.flags, header.options.timestamps), (shape.flags, timestamps));
            assert_eq!(*bytes, shape.payload());
            assert_eq!(tuple.remote.port(), 7);
        }
        // Another flow, other flags, a broken one, and all of them once the flows are forgotten.
        let fin = TcpFlags::ACK | TcpFlags::FIN;
        assert!(up.carry(&pool, &Shape { port: 8, ..shape(0, 10) }));
        assert!(up.carry(&pool, &Shape { is_broken: true, ..shape(0, 10) }));
        assert!(up.carry(&pool, &Shape { flags: fin, ..shape(0, 10) }));
        assert!(!up.carry(&pool, &shape(0, 10)), "what is not common is not learned");
        up.flows.forget();
        assert!(up.carry(&pool, &shape(20, 10)));
    }
}

/// Flows of one hash have a place each, until there are more than places: the last of these goes to the next then. All
/// segments name their ends.
#[test]
fn flows_of_one_hash_share_a_set_of_places() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let mut up = Up::new();
    let shape = |port| Shape { port, ..Shape::data(10, 700) };
    let mut place = |port| match up.look(&shape(port).build(&pool)) {
        Look::Miss(place) => place,
        _ => panic!("no flow is known"),
    };
    let first = place(1);
    let ports: Vec<u16> = (1..20_000).filter(|&port| place(port) == first).take(5).collect();
    let batch = [0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 3, 4, 2].map(|which| ports[which]);
    let parsed = batch.map(|port| up.carry(&pool, &shape(port)));
    let (yes, no) = (true, false);
    assert_eq!(parsed, [yes, yes, yes, yes, no, no, no, no, yes, no, yes, yes, no]);
    for ((header, _, tuple), port) in up.end().iter().zip(batch) {
        assert_eq!((tuple.remote.port(), header.src_port), (port, port));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// What is copied as it is verified is copied where it is sound, in one frame or several, and not where a bit of it
    /// is another.
    #[test]
    fn what_is_copied_is_sound(
        (seq, len, padding) in (any::<u32>(), prop_oneof![1..40_usize, 1900..9000_usize], 0..8_usize),
        is_v6 in prop::bool::weighted(0.2),
        flip in prop::option::of((14..9000_usize, 0..8_u8)),
    ) {
        let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
        let mut up = Up::new();
        up.carry(&pool, &Shape { is_v6, ..Shape::data(0, 10) });
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
        let sound = match up.look(&packet) {
            Look::Hit(hit) => {
                hit.len() == len
                    && up.flows.copy_out(&packet, &hit, &mut memory)
                    && up.flows.verifies(&packet, &hit)
            }
            _ => false,
        };
        prop_assert_eq!(sound, flip.is_none());
        prop_assert!(!sound || memory == shape.payload());
    }
}

/// What lies behind each other in a reader's memory joins, and nothing else does: neither over a gap, nor with frames.
#[test]
fn what_is_placed_joins_what_lies_before_it() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let mut up = Up::new();
    up.carry(&pool, &Shape::data(0, 10));
    up.end();
    let mut add = |seq: u32, placed: Option<usize>| {
        let packet = Shape::data(seq, 1000).build(&pool);
        let Look::Hit(hit) = up.look(&packet) else { panic!("a known flow") };
        let data = match placed {
            Some(start) => Data::Placed(PlacedAt { start, len: 1000, part: 1000 }),
            None => Data::Packet(packet),
        };
        let end = |port| SocketAddr::new([10, 0, 0, 1].into(), port);
        let ends = FourTuple { local: end(80), remote: end(7) };
        up.gro.add(&ends, up.flows.flow(hit.place), &hit, data)
    };
    assert!(!add(0, Some(0)) && add(1000, Some(1000)), "behind each other");
    assert!(!add(2000, None) && add(3000, None), "frames by themselves");
    assert!(!add(4000, Some(2000)));
    assert!(!add(5000, Some(3001)), "over a gap");
    let (list, count) = up.gro.take();
    let lens: Vec<usize> = list[..count].iter().map(|segment| segment.placed.len).collect();
    assert_eq!(lens, [2000, 0, 1000, 1000]);
    assert_eq!(list[0].len() + list[1].len(), 4000);
}
