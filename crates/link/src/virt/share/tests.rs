//! Engines that share a device, with pairs in memory as its queues.

use std::time::Duration;

use millstream_packet::{Instant, Packet, PacketBatch};

use super::*;
use crate::sys::{PollEntry, poll};
use crate::testing::{MAC_A, OUR_PORT, Shape, bytes, pool};
use crate::{PairConfig, PairEnd, Placing, pair};

/// Queues, and what fills them.
fn device(count: usize) -> (Vec<Shared<PairEnd>>, Vec<PairEnd>) {
    let ends = (0..count).map(|_| pair(PairConfig::default()).unwrap());
    let (near, far): (Vec<_>, Vec<_>) = ends.unzip();
    (Shared::over(near).unwrap(), far)
}

fn packet(payload: u8, to: u16) -> Packet {
    let mut packet = Shape::new(false, false, vec![payload; 20]).build(&pool());
    packet.head_mut().unwrap()[36..38].copy_from_slice(&to.to_be_bytes());
    packet
}

fn put(end: &mut PairEnd, packets: Vec<Packet>) {
    let mut batch = PacketBatch::new();
    packets.into_iter().for_each(|packet| batch.push(packet).unwrap());
    end.transmit(Instant::ZERO, &pool(), &mut batch).unwrap();
    assert!(batch.is_empty());
}

/// The last byte of what comes.
fn take(queue: &mut Shared<PairEnd>) -> Vec<u8> {
    let mut batch = PacketBatch::new();
    let count = queue.receive(Instant::from_millis(7), &pool(), &mut batch).unwrap();
    assert_eq!(count, batch.len());
    assert!(batch.iter().all(|packet| packet.meta().arrival == Instant::from_millis(7)));
    batch.drain().map(|packet| *bytes(&packet).last().unwrap()).collect()
}

#[test]
fn whatever_queue_a_packet_comes_from_its_owner_has_it_and_in_order() {
    let (mut queues, mut device) = device(3);
    let ports = [50_001, 50_002, 50_003];
    let owner = |port: u16| usize::from(port) % 3;
    let mixed = (0..30).map(|i| packet(i, ports[usize::from(i) % 3])).collect();
    put(&mut device[1], mixed);
    assert_eq!(take(&mut queues[1]).len(), 10);
    let others: Vec<_> = [0, 2].map(|index| take(&mut queues[index])).into();
    for (index, got) in [0, 2].into_iter().zip(others) {
        let at = ports.iter().position(|port| owner(*port) == index).unwrap() as u8;
        assert_eq!(got, (0..10).map(|i| 3 * i + at).collect::<Vec<_>>());
    }
    let stats: Vec<_> = queues.iter().map(Link::stats).collect();
    assert_eq!(stats.iter().map(|s| s.rx_packets).collect::<Vec<_>>(), [10, 10, 10]);
    assert_eq!(stats.iter().map(|s| s.rx_handed_over).collect::<Vec<_>>(), [0, 20, 0]);
    assert!(stats.iter().all(|s| s.rx_bytes == 10 * 62 && s.dropped_total() == 0));
}

#[test]
fn each_learns_of_neighbours_and_one_is_asked() {
    let (mut queues, mut device) = device(3);
    let arp = |operation: u8| {
        let mut bytes = vec![operation; 42];
        bytes[6..12].copy_from_slice(&MAC_A.0);
        bytes[12..14].copy_from_slice(&[8, 6]);
        bytes[20..22].copy_from_slice(&[0, operation]);
        bytes[28] = 10;
        Packet::from_slice(&pool(), 64, &bytes).unwrap()
    };
    put(&mut device[2], vec![arp(2), arp(1)]);
    assert_eq!(take(&mut queues[2]), [2]);
    assert_eq!(take(&mut queues[1]), [2]);
    let mut first = take(&mut queues[0]);
    first.sort_unstable();
    assert_eq!(first, [1, 2]);
}

#[test]
fn who_sleeps_is_woken_by_the_device_and_by_the_others() {
    let (mut queues, mut device) = device(2);
    let ready = |queue: &Shared<PairEnd>| {
        let mut entries = [PollEntry::readable(queue.wait_fd().unwrap())];
        poll(&mut entries, Some(Duration::ZERO)).unwrap() == 1
    };
    assert!(queues[0].prepare_sleep() && !ready(&queues[0]));
    put(&mut device[1], vec![packet(1, 50_000), packet(2, 50_000)]);
    assert!(!ready(&queues[0]), "it is in the other's queue");
    assert!(take(&mut queues[1]).is_empty());
    assert!(ready(&queues[0]));
    assert_eq!(queues[1].stats().wakeups, 1, "once for both");
    assert_eq!(take(&mut queues[0]), [1, 2]);
    assert!(!ready(&queues[0]));

    // Handed over between its last look and its announcement.
    put(&mut device[1], vec![packet(3, 50_000)]);
    take(&mut queues[1]);
    assert!(!queues[0].prepare_sleep());
    assert_eq!(take(&mut queues[0]), [3]);

    assert!(queues[0].prepare_sleep());
    put(&mut device[0], vec![packet(4, 50_000)]);
    assert!(ready(&queues[0]));
    assert_eq!(take(&mut queues[0]), [4]);
}

#[test]
fn what_an_engine_does_not_take_is_bounded_and_counted() {
    let (mut queues, mut device) = device(2);
    let rounds = limits::HAND_OVER_PACKETS / 60 + 2;
    for _ in 0..rounds {
        put(&mut device[0], (0..60).map(|i| packet(i, 50_001)).collect());
        while queues[0].receive(Instant::ZERO, &pool(), &mut PacketBatch::new()).unwrap() > 0 {}
    }
    let surplus = (rounds * 60 - limits::HAND_OVER_PACKETS) as u64;
    assert_eq!(queues[0].stats().dropped(DropCause::HandOver), surplus);
    assert_eq!(queues[0].stats().rx_handed_over, limits::HAND_OVER_PACKETS as u64);
    let gone = queues.pop().unwrap();
    drop(gone);
    put(&mut device[0], vec![packet(1, 50_001), packet(2, 50_000)]);
    assert_eq!(take(&mut queues[0]), [2]);
    assert_eq!(queues[0].stats().dropped(DropCause::Closed), 1);
    assert_eq!(queues[0].stats().rx_handed_over, limits::HAND_OVER_PACKETS as u64);
}

#[test]
fn neither_the_queue_nor_the_others_crowd_each_other_out() {
    let (mut queues, mut device) = device(2);
    for _ in 0..3 {
        put(&mut device[0], (0..64).map(|_| packet(1, 50_001)).collect());
        assert!(take(&mut queues[0]).is_empty());
    }
    put(&mut device[1], (0..64).map(|_| packet(2, OUR_PORT)).collect());
    let got = take(&mut queues[1]);
    assert_eq!(got.iter().filter(|mark| **mark == 1).count(), 32);
    assert_eq!(got.iter().filter(|mark| **mark == 2).count(), 32);
}

/// An ICMPv6 error about what we sent from this port.
fn error(payload: u8, from: u16) -> Packet {
    let mut bytes = bytes(&Shape::new(true, false, vec![payload; 20]).build(&pool()));
    let mut sent = bytes[14..].to_vec();
    sent[8..40].rotate_left(16);
    sent[40..42].copy_from_slice(&from.to_be_bytes());
    bytes.truncate(54);
    bytes[20] = 58;
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(sent);
    Packet::from_slice(&pool(), 64, &bytes).unwrap()
}

#[test]
fn what_is_read_to_its_place_is_sorted_as_what_is_received() {
    const HEAD: usize = 42;
    let ends = (0..2).map(|_| pair(PairConfig::default()).unwrap());
    let (near, mut device): (Vec<_>, Vec<_>) =
        ends.map(|(near, far)| (Placing::new(near), far)).unzip();
    let mut queues = Shared::over(near).unwrap();
    let mut arp = vec![9; 60];
    arp[6..12].copy_from_slice(&MAC_A.0);
    arp[12..14].copy_from_slice(&[8, 6]);
    arp[20..22].copy_from_slice(&[0, 2]);
    let arp = Packet::from_slice(&pool(), 64, &arp).unwrap();
    let (own, others) = (50_000_u16, 50_001);
    let large = Shape { segment: Some(1400), ..Shape::new(false, false, vec![4; 5000]) };
    let mut large = large.build(&pool());
    large.head_mut().unwrap()[36..38].copy_from_slice(&own.to_be_bytes());
    put(&mut device[0], vec![packet(1, own), packet(2, others), error(3, others), arp, large]);

    let read = |queue: &mut Shared<Placing>| {
        const ROOM: usize = 2048;
        let mut memory = vec![0; ROOM];
        let now = Instant::from_millis(7);
        let placed = queue.receive_into(now, &pool(), HEAD, &mut memory).unwrap();
        let Some(Placed { head, bytes: n, rest }) = placed else {
            assert!(memory.iter().all(|byte| *byte == 0), "nothing of another's stays");
            return None;
        };
        assert_eq!((head.len(), head.meta().arrival), (HEAD, now));
        assert!(memory[n..].iter().all(|byte| *byte == 0));
        assert!(n == ROOM || rest.is_none());
        let mut all = [bytes(&head), memory[..n].to_vec()].concat();
        all.extend(rest.iter().flat_map(bytes));
        Some((*all.last().unwrap(), all.len()))
    };
    assert!(queues[0].places());
    assert_eq!(read(&mut queues[0]), Some((1, 62)));
    assert_eq!(read(&mut queues[0]), Some((9, 60)));
    assert_eq!(read(&mut queues[0]), Some((4, 5042)));
    assert_eq!(read(&mut queues[0]), None);
    let got: Vec<_> = std::iter::from_fn(|| read(&mut queues[1])).collect();
    assert_eq!(got.iter().map(|(last, _)| *last).collect::<Vec<_>>(), [2, 3, 9]);
    let stats: Vec<_> = queues.iter().map(Link::stats).collect();
    assert_eq!(stats.iter().map(|s| s.rx_packets).collect::<Vec<_>>(), [3, 3]);
    assert_eq!((stats[0].rx_handed_over, stats[1].dropped_total()), (2, 0));

    // Neither waits for the other.
    put(&mut device[0], (0..3).map(|_| packet(5, others)).collect());
    assert_eq!(read(&mut queues[0]), None);
    put(&mut device[1], (0..3).map(|_| packet(6, others)).collect());
    let mut got: Vec<_> = std::iter::from_fn(|| read(&mut queues[1])).collect();
    got.truncate(4);
    assert_eq!(got.iter().filter(|(last, _)| *last == 5).count(), 2);
}

/// A queue that breaks behind the packets that it has, and says so at once.
#[derive(Debug)]
struct Breaking(PairEnd);

impl Link for Breaking {
    forward_link!(self => self.0; capabilities, transmit, wait_fd, stats, name);

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.0.receive(now, pool, batch)?;
        Err(LinkError::Invalid("gone".into()))
    }
}

#[test]
fn what_a_queue_gave_before_it_broke_is_sorted() {
    let ends = (0..2).map(|_| pair(PairConfig::default()).unwrap());
    let (near, mut device): (Vec<_>, Vec<_>) =
        ends.map(|(near, far)| (Breaking(near), far)).unzip();
    let mut queues = Shared::over(near).unwrap();
    put(&mut device[0], vec![packet(1, 50_001), packet(2, 50_000), packet(3, 50_001)]);
    let mut batch = PacketBatch::new();
    assert_eq!(queues[0].receive(Instant::ZERO, &pool(), &mut batch).unwrap(), 1);
    assert_eq!(batch.drain().map(|p| *bytes(&p).last().unwrap()).collect::<Vec<_>>(), [2]);
    assert_eq!(queues[1].receive(Instant::ZERO, &pool(), &mut batch).unwrap(), 2);
    batch.clear();
    for queue in &mut queues {
        assert!(queue.receive(Instant::ZERO, &pool(), &mut batch).is_err());
    }
}

#[test]
fn a_device_without_queues_is_refused() {
    assert!(Shared::<PairEnd>::over(Vec::new()).is_err());
}
