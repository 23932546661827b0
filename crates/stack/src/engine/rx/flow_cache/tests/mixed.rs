//! Flows in any mixture.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

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
        prop_assert_eq!(carried.len(), shapes.len());
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
