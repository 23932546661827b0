//! Flows whose headers are known.

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

/// Flows of one hash have a place each, until there are more than places: the last of these goes to
/// the next then. All segments name their ends.
#[test]
fn flows_of_one_hash_share_a_set_of_places() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let mut up = Up::new();
    let shape = |port| Shape { port, ..Shape::data(10, 700) };
    let mut place = |port| {
        assert!(matches!(up.look(&shape(port).build(&pool)), Look::Miss), "no flow is known");
        up.flows.candidate.as_ref().map(|(_, place)| place.set)
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

#[test]
fn a_segment_whose_headers_differ_or_that_is_broken_is_parsed() {
    type Change = fn(&mut Shape);
    let changes: [Change; 8] = [
        |shape| shape.flags = TcpFlags::ACK | TcpFlags::FIN,
        |shape| shape.flags = TcpFlags::ACK | TcpFlags::CWR,
        |shape| (shape.flags, shape.urgent) = (TcpFlags::ACK | TcpFlags::URG, 5),
        |shape| shape.stamp = None,
        |shape| shape.traffic_class = 10 << 2,
        |shape| shape.traffic_class = 3,
        |shape| shape.hop_limit -= 1,
        |shape| shape.is_broken = true,
    ];
    let of_v4: [Change; 2] =
        [|shape| shape.dont_fragment = false, |shape| shape.has_ip_options = true];
    let of_v6: [Change; 1] = [|shape| shape.flow_label = 1];
    let of_both = changes.into_iter().flat_map(|change| [(false, change), (true, change)]);
    let v4 = of_v4.into_iter().map(|change| (false, change));
    let of_one = v4.chain(of_v6.into_iter().map(|change| (true, change)));
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    for (number, (is_v6, change)) in of_both.chain(of_one).enumerate() {
        let mut up = Up::new();
        let mut shape = Shape { is_v6, ..Shape::data(0, 1000) };
        assert!(up.carry(&pool, &shape) && !up.carry(&pool, &shape));
        change(&mut shape);
        assert!(up.carry(&pool, &shape), "change {number}");
    }
}
