//! Flows in any mixture, and segments that differ in anything.

use millstream_packet::COALESCE_LIMIT_BYTES;
use proptest::prelude::*;

use super::*;

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
