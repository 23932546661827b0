use std::task::Waker;

use millstream_packet::{Checksum, PoolConfig};
use proptest::prelude::*;

use super::*;
use crate::DropCause;
use crate::offload::vnet;
use crate::testing::{Shape, bytes, parse, pool};

const NOW: Instant = Instant::from_millis(3);

fn small(capacity: usize) -> (ChannelLink, ChannelSender, ChannelReceiver) {
    channel(&pool(), ChannelConfig { capacity, ..ChannelConfig::default() }).unwrap()
}

fn numbered(pool: &Pool, range: std::ops::Range<u32>) -> PacketBatch {
    let mut batch = PacketBatch::new();
    for number in range {
        batch.push(Packet::from_slice(pool, 64, &number.to_be_bytes()).unwrap()).unwrap();
    }
    batch
}

fn received(link: &mut ChannelLink) -> Vec<Packet> {
    let mut batch = PacketBatch::new();
    let count = link.receive(NOW, &pool(), &mut batch).unwrap();
    assert_eq!(count, batch.len());
    batch.drain().collect()
}

/// The answer of a task that asks once; nobody wakes it.
fn poll_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn an_mtu_that_cannot_be_is_refused_with_those_that_can() {
    let refused = channel(&pool(), ChannelConfig { mtu: 10, ..ChannelConfig::default() });
    assert!(refused.unwrap_err().to_string().contains("68 to 65535"));
}

#[test]
fn bytes_and_batches_go_in_and_come_out_in_order() {
    let pool = pool();
    let (mut link, mut sender, mut receiver) = small(16);
    sender.try_send(&0_u32.to_be_bytes()).unwrap();
    assert_eq!(sender.try_send_batch(&mut numbered(&pool, 1..6)).unwrap(), 5);
    let mut batch = PacketBatch::new();
    assert_eq!(link.receive(NOW, &pool, &mut batch).unwrap(), 6);
    assert!(batch.iter().all(|packet| packet.meta().arrival == NOW));
    assert_eq!(link.transmit(NOW, &pool, &mut batch).unwrap(), 6);
    assert_eq!(receiver.try_recv().unwrap().head(), 0_u32.to_be_bytes());
    assert_eq!(receiver.try_recv_batch(&mut batch).unwrap(), 5);
    for (i, packet) in batch.iter().enumerate() {
        assert_eq!(packet.head(), (1 + i as u32).to_be_bytes());
    }
    assert_eq!(kind(receiver.try_recv()), io::ErrorKind::WouldBlock);
    let stats = link.stats();
    assert_eq!((stats.rx_packets, stats.tx_packets, stats.rx_bytes), (6, 6, 24));
}

#[test]
fn a_full_ring_refuses_and_the_refusals_are_counted() {
    let pool = pool();
    let (mut link, mut sender, mut receiver) = small(4);
    let mut batch = numbered(&pool, 0..6);
    assert_eq!((sender.try_send_batch(&mut batch).unwrap(), batch.len()), (4, 2));
    assert_eq!(kind(sender.try_send_batch(&mut batch)), io::ErrorKind::WouldBlock);
    assert_eq!(kind(sender.try_send(&[0x45; 20])), io::ErrorKind::WouldBlock);
    assert_eq!(link.details(), [("sender_full", 2)]);
    assert_eq!(received(&mut link).len(), 4);
    sender.try_send(&[0x45; 20]).unwrap();
    // The engine keeps what the program does not take.
    let mut batch = numbered(&pool, 0..6);
    assert_eq!(link.transmit(NOW, &pool, &mut batch).unwrap(), 4);
    assert_eq!((batch.len(), link.stats().tx_full), (2, 1));
    receiver.try_recv().unwrap();
    assert_eq!(link.transmit(NOW, &pool, &mut batch).unwrap(), 1);
}

#[test]
fn packets_that_are_not_fit_are_refused() {
    let pool = pool();
    let (mut link, mut sender, _receiver) = small(4);
    for unfit in [&[][..], &[0x45; 1501]] {
        assert_eq!(kind(sender.try_send(unfit)), io::ErrorKind::InvalidInput);
    }
    sender.try_send(&[0x45; 1500]).unwrap();
    let mut batch = numbered(&pool, 0..1);
    batch.push(Packet::from_slice(&pool, 0, &[0; 1501]).unwrap()).unwrap();
    assert_eq!((sender.try_send_batch(&mut batch).unwrap(), batch.len()), (1, 1));
    assert_eq!(kind(sender.try_send_batch(&mut batch)), io::ErrorKind::InvalidInput);
    assert_eq!(received(&mut link).len(), 2);
    let config = ChannelConfig { medium: Medium::Ethernet, ..ChannelConfig::default() };
    let (_link, mut sender, _receiver) = channel(&pool, config).unwrap();
    assert_eq!(kind(sender.try_send(&[0; 14])), io::ErrorKind::InvalidInput);
    sender.try_send(&[0; 1514]).unwrap();
    assert!(channel(&pool, ChannelConfig { mtu: 10, ..ChannelConfig::default() }).is_err());
}

#[test]
fn a_dry_pool_is_an_error_and_no_loss_of_others() {
    let dry = Pool::new(PoolConfig::fixed(16)).unwrap();
    let (_link, mut sender, _receiver) = channel(&dry, ChannelConfig::default()).unwrap();
    let _all: Vec<Packet> = std::iter::from_fn(|| dry.alloc(0)).collect();
    assert_eq!(kind(sender.try_send(&[0x45; 40])), io::ErrorKind::OutOfMemory);
}

/// A program's word about checksums and segments counts with offload alone.
#[test]
fn what_a_packet_says_of_itself_counts_with_offload_alone() {
    let pool = pool();
    let shape = Shape { medium: Medium::Ip, ..Shape::new(false, true, vec![7; 900]) };
    for offload in [false, true] {
        let config = ChannelConfig { offload, ..ChannelConfig::default() };
        let (mut link, mut sender, _receiver) = channel(&pool, config).unwrap();
        let mut batch = PacketBatch::new();
        batch.push(shape.build(&pool)).unwrap();
        sender.try_send_batch(&mut batch).unwrap();
        let got = received(&mut link);
        let is_told = got[0].meta().checksum != Checksum::Unverified;
        assert_eq!(is_told, offload);
        let long = Shape { segment: Some(500), payload: vec![7; 9000], ..shape.clone() };
        batch.push(long.build(&pool)).unwrap();
        assert_eq!(sender.try_send_batch(&mut batch).is_ok(), offload);
    }
}

#[test]
fn without_offload_the_receiver_gets_packets_as_on_a_wire() {
    let pool = pool();
    let (mut link, _sender, mut receiver) = small(4);
    let payload: Vec<u8> = (0..30_000).map(|i| (i / 5) as u8).collect();
    let shape = Shape::new(true, true, payload.clone());
    let shape = Shape { medium: Medium::Ip, segment: Some(1000), ..shape };
    let mut batch = PacketBatch::new();
    batch.push(shape.build(&pool)).unwrap();
    link.transmit(NOW, &pool, &mut batch).unwrap();
    let mut got = Vec::new();
    while got.len() < payload.len() {
        let packet = receiver.try_recv().unwrap();
        let parsed = parse(&packet, Medium::Ip);
        assert!(parsed.is_valid && packet.len() <= 1500);
        got.extend_from_slice(&parsed.payload);
        // A super-segment begun goes on when there is room.
        received(&mut link);
    }
    assert_eq!(got, payload);
    assert!(link.prepare_sleep());
}

#[test]
fn with_offload_super_segments_pass_whole() {
    let pool = pool();
    let config = ChannelConfig { offload: true, ..ChannelConfig::default() };
    let (mut link, _sender, mut receiver) = channel(&pool, config).unwrap();
    let shape = Shape::new(false, true, vec![9; 60_000]);
    let sent = Shape { medium: Medium::Ip, segment: Some(1448), ..shape }.build(&pool);
    let (content, meta) = (bytes(&sent), *sent.meta());
    let mut batch = PacketBatch::new();
    batch.push(sent).unwrap();
    link.transmit(NOW, &pool, &mut batch).unwrap();
    let got = receiver.try_recv().unwrap();
    assert_eq!((bytes(&got), *got.meta()), (content, meta));
}

#[test]
fn packets_pass_behind_a_virtio_header() {
    let pool = pool();
    let config = ChannelConfig { offload: true, ..ChannelConfig::default() };
    let (mut link, mut sender, mut receiver) = channel(&pool, config).unwrap();
    let shape = Shape {
        medium: Medium::Ip,
        segment: Some(1400),
        ..Shape::new(false, true, (0..60_000).map(|at| at as u8).collect())
    };
    let (sent, plain) = (shape.build(&pool), [0x45; 60]);
    let behind = [&vnet::encode(sent.meta())[..], &bytes(&sent)].concat();
    sender.try_send_virtio(&behind).unwrap();
    sender.try_send_virtio(&[&[0; 10][..], &plain].concat()).unwrap();
    let mut got = received(&mut link);
    assert_eq!(
        (bytes(&got[0]), got[0].meta().segmentation),
        (bytes(&sent), sent.meta().segmentation)
    );
    assert_eq!(got[0].meta().checksum, sent.meta().checksum);
    let mut batch = PacketBatch::new();
    got.drain(..).for_each(|packet| batch.push(packet).unwrap());
    link.transmit(NOW, &pool, &mut batch).unwrap();
    let mut buffer = vec![0; 65_563];
    let len = receiver.try_recv_virtio(&mut buffer).unwrap();
    assert!(buffer[..len] == behind, "the same bytes");
    assert_eq!(kind(receiver.try_recv_virtio(&mut [0; 69])), io::ErrorKind::InvalidInput);
    // Refused: too short, of a kind that there is not, and offloads where there are none.
    let unknown = [&[0, 77, 0, 0, 1, 0, 0, 0, 0, 0][..], &plain].concat();
    for bytes in [&[0; 9][..], &unknown] {
        assert_eq!(kind(sender.try_send_virtio(bytes)), io::ErrorKind::InvalidInput);
    }
    let (_link, mut sender, _receiver) = small(4);
    assert_eq!(kind(sender.try_send_virtio(&behind)), io::ErrorKind::InvalidInput);
    sender.try_send_virtio(&[&[0; 10][..], &plain].concat()).unwrap();
}

#[test]
fn each_side_is_told_that_another_is_gone() {
    let pool = pool();
    let (mut link, sender, receiver) = small(4);
    drop((sender, receiver));
    assert_eq!(link.transmit(NOW, &pool, &mut numbered(&pool, 0..3)).unwrap(), 3);
    assert_eq!(link.stats().dropped(DropCause::Closed), 3);

    let (mut link, mut sender, mut receiver) = small(4);
    link.transmit(NOW, &pool, &mut numbered(&pool, 0..1)).unwrap();
    drop(link);
    assert_eq!(kind(sender.try_send(&[0x45; 20])), io::ErrorKind::BrokenPipe);
    assert!(poll_once(|context| sender.poll_ready(context)).is_some());
    // The receiver can still take packets that were sent before.
    receiver.try_recv().unwrap();
    assert_eq!(kind(receiver.recv()), io::ErrorKind::BrokenPipe);
}

#[test]
fn the_engine_is_woken_once_and_only_when_it_sleeps() {
    let pool = pool();
    let (mut link, mut sender, mut receiver) = small(4);
    let rings = |link: &ChannelLink| link.shared.0.link.event().clear();
    sender.try_send(&[0x45; 20]).unwrap();
    assert!(!link.prepare_sleep(), "a packet is waiting");
    assert_eq!((rings(&link), received(&mut link).len()), (0, 1));
    assert!(link.prepare_sleep());
    sender.try_send(&[0x45; 20]).unwrap();
    sender.try_send(&[0x45; 20]).unwrap();
    assert_eq!(rings(&link), 1);
    assert_eq!(received(&mut link).len(), 2);
    // It waits for room.
    link.transmit(NOW, &pool, &mut numbered(&pool, 0..6)).unwrap();
    assert!(link.prepare_sleep());
    receiver.try_recv().unwrap();
    assert_eq!(rings(&link), 1);
    assert!(!link.prepare_sleep(), "there is room");
}

#[test]
fn a_task_is_woken_once_for_each_wait() {
    let pool = pool();
    let (mut link, mut sender, mut receiver) = small(4);
    assert!(poll_once(|context| receiver.poll_recv(context)).is_none());
    for number in 0..2 {
        link.transmit(NOW, &pool, &mut numbered(&pool, number..number + 1)).unwrap();
    }
    assert_eq!(link.stats().wakeups, 1);
    assert!(poll_once(|context| receiver.poll_recv(context)).is_some());
    assert_eq!(sender.try_send_batch(&mut numbered(&pool, 0..4)).unwrap(), 4);
    assert!(poll_once(|context| sender.poll_ready(context)).is_none());
    received(&mut link);
    assert_eq!(link.stats().wakeups, 2);
    assert!(poll_once(|context| sender.poll_ready(context)).is_some());
}

/// Each waits for the other again and again; a wake-up that is lost would have the test hang.
#[test]
fn threads_that_wait_are_woken() {
    const COUNT: u32 = if cfg!(miri) { 50 } else { 50_000 };
    let (mut link, mut sender, mut receiver) = small(8);
    std::thread::scope(|scope| {
        scope.spawn(move || (0..COUNT).for_each(|i| sender.send(&i.to_be_bytes()).unwrap()));
        scope.spawn(move || {
            let (pool, mut batch) = (pool(), PacketBatch::new());
            let mut sent = 0;
            while sent < COUNT {
                link.receive(NOW, &pool, &mut batch).unwrap();
                sent += link.transmit(NOW, &pool, &mut batch).unwrap() as u32;
                std::thread::yield_now();
            }
        });
        for expected in 0..COUNT {
            assert_eq!(receiver.recv().unwrap().head(), expected.to_be_bytes());
        }
        assert_eq!(kind(receiver.recv()), io::ErrorKind::BrokenPipe);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 100 }))]

    #[test]
    fn every_packet_arrives_once_and_in_order(steps in prop::collection::vec((0..3_u8, 1_u32..40), 1..60)) {
        let pool = pool();
        let (mut link, mut sender, mut receiver) = small(16);
        let (mut sent, mut got) = (0_u32, 0_u32);
        let (mut waiting, mut inside) = (PacketBatch::new(), PacketBatch::new());
        for (step, n) in steps {
            match step {
                0 => {
                    waiting.append(&mut numbered(&pool, sent..sent + n.min(waiting.room() as u32)));
                    sent += waiting.len() as u32;
                    let _ = sender.try_send_batch(&mut waiting);
                    sent -= waiting.len() as u32;
                    waiting.clear();
                }
                1 => {
                    link.receive(NOW, &pool, &mut inside).unwrap();
                    link.transmit(NOW, &pool, &mut inside).unwrap();
                }
                _ => while let Ok(packet) = receiver.try_recv() {
                    prop_assert_eq!(packet.head(), got.to_be_bytes());
                    got += 1;
                },
            }
        }
        let left = sender.ring.len() + inside.len() + receiver.ring.len();
        prop_assert_eq!(got as usize + left, sent as usize);
    }
}
