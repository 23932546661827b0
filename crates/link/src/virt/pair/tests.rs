use std::time::Duration;

use millstream_packet::{Checksum, PoolConfig};
use proptest::prelude::*;

use super::*;
use crate::DropCause;
use crate::sys::{PollEntry, poll};
use crate::testing::{Shape, bytes, kit, parse, pool};

const NOW: Instant = Instant::from_millis(3);

fn batch_of(packets: impl IntoIterator<Item = Packet>) -> PacketBatch {
    let mut batch = PacketBatch::new();
    for packet in packets {
        batch.push(packet).unwrap();
    }
    batch
}

fn numbered(pool: &Pool, range: std::ops::Range<u32>) -> PacketBatch {
    batch_of(range.map(|i| Packet::from_slice(pool, 64, &i.to_be_bytes().repeat(5)).unwrap()))
}

fn receive_all(end: &mut PairEnd, pool: &Pool) -> Vec<Packet> {
    let mut all = Vec::new();
    loop {
        let mut batch = PacketBatch::new();
        let n = end.receive(NOW, pool, &mut batch).unwrap();
        assert_eq!(n, batch.len());
        if n == 0 {
            return all;
        }
        all.extend(batch.drain());
    }
}

fn is_readable(end: &PairEnd) -> bool {
    poll(&mut [PollEntry::readable(end.wait_fd().unwrap())], Some(Duration::ZERO)).unwrap() == 1
}

#[test]
#[cfg_attr(miri, ignore = "it sleeps")]
fn the_kit_passes() {
    for (medium, offload) in
        [(Medium::Ethernet, true), (Medium::Ethernet, false), (Medium::Ip, true)]
    {
        kit::run(|| pair(PairConfig { medium, offload, ..PairConfig::default() }).unwrap());
    }
}

#[test]
fn with_offload_super_segments_pass_whole() {
    let pool = pool();
    let (mut a, mut b) = pair(PairConfig::default()).unwrap();
    let shape = Shape { segment: Some(1448), ..Shape::new(false, true, vec![9; 60_000]) };
    let sent = shape.build(&pool);
    let (content, mut meta) = (bytes(&sent), *sent.meta());
    let mut batch = batch_of([sent]);
    assert_eq!(a.transmit(NOW, &pool, &mut batch).unwrap(), 1);
    let got = receive_all(&mut b, &pool);
    assert_eq!(got.len(), 1);
    meta.arrival = NOW;
    assert_eq!((bytes(&got[0]), *got[0].meta()), (content, meta));
    assert_eq!((a.stats().tx_super_segments, b.stats().rx_super_segments), (1, 1));
}

#[test]
fn a_super_segment_in_cutting_whose_peer_goes_is_counted() {
    let pool = pool();
    let config = PairConfig { offload: false, capacity: 8, ..PairConfig::default() };
    let (mut a, b) = pair(config).unwrap();
    let shape = Shape { segment: Some(1400), ..Shape::new(false, true, vec![9; 60_000]) };
    assert_eq!(a.transmit(NOW, &pool, &mut batch_of([shape.build(&pool)])).unwrap(), 1);
    drop(b);
    for _ in 0..2 {
        a.transmit(NOW, &pool, &mut PacketBatch::new()).unwrap();
        assert_eq!((a.stats().tx_packets, a.stats().dropped(DropCause::Closed)), (8, 35));
    }
}

#[test]
fn without_offload_everything_is_as_on_a_wire() {
    let pool = pool();
    let (mut a, mut b) = pair(PairConfig { offload: false, ..PairConfig::default() }).unwrap();
    let payload: Vec<u8> = (0..60_000).map(|i| (i / 7) as u8).collect();
    for is_v6 in [false, true] {
        let shape = Shape { segment: Some(1400), ..Shape::new(is_v6, true, payload.clone()) };
        let single = Shape::new(is_v6, false, vec![1; 99]);
        let mut batch = batch_of([shape.build(&pool), single.build(&pool)]);
        assert_eq!(a.transmit(NOW, &pool, &mut batch).unwrap(), 2);
        let mut got = receive_all(&mut b, &pool);
        let last = got.pop().unwrap();
        assert_eq!(parse(&last, Medium::Ethernet).payload, vec![1; 99]);
        assert!(parse(&last, Medium::Ethernet).is_valid);
        let mut put_together = Vec::new();
        for packet in &got {
            assert!(packet.len() <= 1514);
            assert_eq!(
                (packet.meta().checksum, packet.meta().segmentation),
                (Checksum::Unverified, None)
            );
            let parsed = parse(packet, Medium::Ethernet);
            assert!(parsed.is_valid);
            put_together.extend_from_slice(&parsed.payload);
        }
        assert_eq!(put_together, payload);
    }
    assert_eq!((a.stats().tx_software_segmented, a.stats().tx_software_checksums), (2, 2));
}

#[test]
fn what_does_not_fit_stays_with_the_sender() {
    let pool = pool();
    let (mut a, mut b) = pair(PairConfig { capacity: 8, ..PairConfig::default() }).unwrap();
    let mut batch = numbered(&pool, 0..20);
    let room = a.tx.capacity();
    assert_eq!(a.transmit(NOW, &pool, &mut batch).unwrap(), room);
    assert_eq!((batch.len(), a.stats().tx_full), (20 - room, 1));
    let mut got = receive_all(&mut b, &pool);
    while !batch.is_empty() {
        a.transmit(NOW, &pool, &mut batch).unwrap();
        got.extend(receive_all(&mut b, &pool));
    }
    for (i, packet) in got.iter().enumerate() {
        assert_eq!(packet.head()[..4], (i as u32).to_be_bytes());
    }
    assert_eq!(got.len(), 20);
}

#[test]
fn a_super_segment_longer_than_the_ring_goes_through_it() {
    let pool = pool();
    let (mut a, mut b) =
        pair(PairConfig { capacity: 4, offload: false, ..PairConfig::default() }).unwrap();
    let payload: Vec<u8> = (0..30_000).map(|i| (i / 5) as u8).collect();
    let shape = Shape { segment: Some(1000), ..Shape::new(true, true, payload.clone()) };
    let mut batch = batch_of([shape.build(&pool)]);
    let mut got = Vec::new();
    for _ in 0..100 {
        a.transmit(NOW, &pool, &mut batch).unwrap();
        for packet in receive_all(&mut b, &pool) {
            got.extend_from_slice(&parse(&packet, Medium::Ethernet).payload);
        }
    }
    assert_eq!(got, payload);
    assert!(a.prepare_sleep());
}

/// Who has nothing more to send has nothing to send again with: what is left of a super-segment
/// goes on all the same.
#[test]
fn a_super_segment_begun_goes_on_when_there_is_room() {
    let pool = pool();
    let (mut a, mut b) =
        pair(PairConfig { offload: false, capacity: 8, ..PairConfig::default() }).unwrap();
    let payload: Vec<u8> = (0..40_000_u32).map(|i| (i / 7) as u8).collect();
    let shape = Shape { segment: Some(1000), ..Shape::new(true, true, payload.clone()) };
    let mut batch = batch_of([shape.build(&pool)]);
    a.transmit(NOW, &pool, &mut batch).unwrap();
    assert!(batch.is_empty());
    let mut got = Vec::new();
    for _ in 0..10 {
        for packet in receive_all(&mut b, &pool) {
            got.extend_from_slice(&parse(&packet, Medium::Ethernet).payload);
        }
        receive_all(&mut a, &pool);
    }
    assert_eq!(got, payload);
    assert!(a.prepare_sleep());
}

#[test]
fn the_segments_of_one_that_is_given_up_are_counted() {
    let pool = pool();
    let config = PairConfig { offload: false, capacity: 8, mtu: 1000, ..PairConfig::default() };
    let shape = Shape { segment: Some(1000), ..Shape::new(false, true, vec![1; 40_000]) };
    let (mut a, b) = pair(config.clone()).unwrap();
    a.transmit(NOW, &pool, &mut batch_of([shape.build(&pool)])).unwrap();
    assert_eq!(a.stats().dropped(DropCause::TooLong), 40, "each is longer than the MTU");

    let shape = Shape { segment: Some(800), ..shape };
    a.transmit(NOW, &pool, &mut batch_of([shape.build(&pool)])).unwrap();
    drop(b);
    a.transmit(NOW, &pool, &mut PacketBatch::new()).unwrap();
    assert_eq!((a.stats().tx_packets, a.stats().dropped(DropCause::Closed)), (8, 42));

    let (mut a, _b) = pair(config).unwrap();
    let dry = Pool::new(PoolConfig::fixed(16)).unwrap();
    let all: Vec<Packet> = std::iter::from_fn(|| dry.alloc(0)).skip(3).collect();
    a.transmit(NOW, &dry, &mut batch_of([shape.build(&pool)])).unwrap();
    let stats = a.stats();
    assert_eq!(stats.dropped(DropCause::PoolExhausted), 50 - stats.tx_packets, "{stats:?}");
    drop(all);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn a_sleeper_is_woken_once_and_only_then() {
    let pool = pool();
    let (mut a, mut b) = pair(PairConfig { capacity: 8, ..PairConfig::default() }).unwrap();
    a.transmit(NOW, &pool, &mut numbered(&pool, 0..1)).unwrap();
    assert!(!is_readable(&b), "an awake end is not to be woken");
    assert!(!b.prepare_sleep(), "a packet is waiting");
    receive_all(&mut b, &pool);
    assert!(b.prepare_sleep());
    assert!(!is_readable(&b));
    a.transmit(NOW, &pool, &mut numbered(&pool, 0..1)).unwrap();
    a.transmit(NOW, &pool, &mut numbered(&pool, 1..2)).unwrap();
    assert!(is_readable(&b));
    assert_eq!(a.stats().wakeups, 1);
    assert_eq!(receive_all(&mut b, &pool).len(), 2);
    assert!(!is_readable(&b));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn a_blocked_sender_is_woken_when_there_is_room() {
    let pool = pool();
    let (mut a, mut b) = pair(PairConfig { capacity: 8, ..PairConfig::default() }).unwrap();
    let mut batch = numbered(&pool, 0..20);
    a.transmit(NOW, &pool, &mut batch).unwrap();
    assert!(a.prepare_sleep());
    assert!(!is_readable(&a));
    receive_all(&mut b, &pool);
    assert!(is_readable(&a));
    assert!(!a.prepare_sleep(), "there is room");
    a.transmit(NOW, &pool, &mut batch).unwrap();
    assert!(!is_readable(&a));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn a_cable_with_nobody_at_the_other_end_takes_everything() {
    let pool = pool();
    let (mut a, mut b) = pair(PairConfig::default()).unwrap();
    b.transmit(NOW, &pool, &mut numbered(&pool, 0..3)).unwrap();
    assert_eq!(receive_all(&mut a, &pool).len(), 3);
    assert!(a.prepare_sleep());
    drop(b);
    assert!(is_readable(&a) && a.is_closed());
    assert_eq!(a.transmit(NOW, &pool, &mut numbered(&pool, 0..5)).unwrap(), 5);
    assert_eq!(a.stats().dropped(DropCause::Closed), 5);
}

#[test]
fn longer_than_the_mtu_is_dropped() {
    let pool = pool();
    let (mut a, mut b) = pair(PairConfig { mtu: 1000, ..PairConfig::default() }).unwrap();
    let mut batch = batch_of([Packet::from_slice(&pool, 0, &[0; 1100]).unwrap()]);
    assert_eq!(a.transmit(NOW, &pool, &mut batch).unwrap(), 1);
    assert_eq!(a.stats().dropped(DropCause::TooLong), 1);
    assert!(receive_all(&mut b, &pool).is_empty());
    assert!(pair(PairConfig { mtu: 10, ..PairConfig::default() }).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn two_threads_exchange_in_order_sleeping_in_between() {
    const COUNT: u32 = 50_000;
    let pool = pool();
    let (mut a, mut b) = pair(PairConfig { capacity: 16, ..PairConfig::default() }).unwrap();
    let sleep = |end: &mut PairEnd| {
        if end.prepare_sleep() {
            poll(&mut [PollEntry::readable(end.wait_fd().unwrap())], Some(Duration::from_secs(20)))
                .unwrap();
            assert!(is_readable(end), "nobody woke us");
        }
    };
    std::thread::scope(|scope| {
        let sender_pool = pool.clone();
        scope.spawn(move || {
            let mut next = 0;
            let mut batch = PacketBatch::new();
            while next < COUNT || !batch.is_empty() {
                while next < COUNT && batch.len() < 5 {
                    batch
                        .push(Packet::from_slice(&sender_pool, 0, &next.to_be_bytes()).unwrap())
                        .unwrap();
                    next += 1;
                }
                a.transmit(NOW, &sender_pool, &mut batch).unwrap();
                if !batch.is_empty() {
                    sleep(&mut a);
                }
            }
        });
        let mut expected = 0_u32;
        while expected < COUNT {
            let mut batch = PacketBatch::new();
            if b.receive(NOW, &pool, &mut batch).unwrap() == 0 {
                sleep(&mut b);
            }
            for packet in batch.drain() {
                assert_eq!(packet.head(), expected.to_be_bytes());
                expected += 1;
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 100 }))]

    #[test]
    fn every_packet_arrives_once_and_in_order(steps in prop::collection::vec((any::<bool>(), 1_u32..40), 1..60)) {
        let pool = pool();
        let (mut a, mut b) = pair(PairConfig { capacity: 16, ..PairConfig::default() }).unwrap();
        let (mut sent, mut got) = (0_u32, 0_u32);
        let mut batch = PacketBatch::new();
        for (is_send, n) in steps {
            if is_send {
                for _ in 0..n.min(batch.room() as u32) {
                    batch.push(Packet::from_slice(&pool, 0, &sent.to_be_bytes()).unwrap()).unwrap();
                    sent += 1;
                }
                a.transmit(NOW, &pool, &mut batch).unwrap();
            } else {
                let mut received = PacketBatch::new();
                b.receive(NOW, &pool, &mut received).unwrap();
                for packet in received.drain() {
                    prop_assert_eq!(packet.head(), u32::to_be_bytes(got));
                    got += 1;
                }
            }
        }
        prop_assert_eq!(got as usize + b.rx.len() + batch.len(), sent as usize);
    }
}
