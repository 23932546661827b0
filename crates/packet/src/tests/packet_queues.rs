//! Queues of packets, against plain ones of vectors.

use super::queues::config;
use super::same;
use crate::*;
use proptest::prelude::*;
use std::collections::VecDeque;

proptest! {
    #![proptest_config(config(100))]
    #[test]
    fn packet_queues_keep_boundaries(
        ops in prop::collection::vec(
            (0..4u8, prop_oneof![0..3usize, 0..5000usize]),
            1..if cfg!(miri) { 20 } else { 80 },
        ),
        high in 0..30_000usize,
    ) {
        let pool = Pool::new(PoolConfig::fixed(300)).unwrap();
        let mut queue = PacketQueue::new(high);
        let mut model = VecDeque::<(Vec<u8>, usize)>::new();
        for (i, (op, len)) in ops.into_iter().enumerate() {
            let bytes = vec![i as u8; len];
            let held: usize = model.iter().map(|(_, held)| held).sum();
            match op {
                0 | 1 => {
                    let mut packet = Packet::from_slice(&pool, 0, &bytes).unwrap();
                    packet.meta_mut().flow_hash = i as u32;
                    let cost = packet.held_bytes();
                    match queue.push_back(packet) {
                        Ok(()) => {
                            prop_assert!(held == 0 || held + cost <= high);
                            model.push_back((bytes, cost));
                        }
                        Err(Full(back)) => {
                            prop_assert!(held + cost > high);
                            prop_assert_eq!(back.len(), len);
                        }
                    }
                }
                2 => {
                    if let Some(packet) = queue.pop() {
                        let (front, cost) = model.pop_front().unwrap();
                        prop_assert!(same(packet.slices(), &front));
                        prop_assert_eq!(packet.held_bytes(), cost);
                        if len % 2 == 0 {
                            queue.push_front(packet);
                            model.push_front((front, cost));
                        }
                    } else {
                        prop_assert!(model.is_empty());
                    }
                }
                _ => {
                    let front = model.front().map(|(bytes, _)| bytes.len());
                    prop_assert_eq!(queue.front_len(), front);
                }
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.bytes(), model.iter().map(|(b, _)| b.len()).sum::<usize>());
            prop_assert_eq!(queue.held_bytes(), model.iter().map(|(_, h)| h).sum::<usize>());
        }
        drop(queue);
        prop_assert_eq!(pool.stats().used_frames, 0);
    }
}
