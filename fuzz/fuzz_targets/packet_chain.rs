//! Packets and a byte queue under any sequence of operations, against vectors of
//! bytes that do the same. Packets that share frames never see one another's
//! writes, the queue never holds more than its limit allows, and no frame is lost.
//! Some operations are given the worst numbers there are, and frames of a second pool.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_fuzz::Input;
use millstream_packet::{
    ByteQueue, Cuts, FRAME_SIZE_BYTES, Packet, PacketBatch, PacketQueue, Pool, PoolConfig, sum,
};
use std::collections::VecDeque;

/// Memory that a frame holds, its descriptor included.
const FRAME_HELD_BYTES: usize = FRAME_SIZE_BYTES + 64;

thread_local! {
    static POOLS: [Pool; 2] = [96, 24].map(|frames| {
        Pool::new(PoolConfig { prefault: false, ..PoolConfig::fixed(frames) }).expect("a pool")
    });
}

fuzz_target!(|bytes: &[u8]| {
    POOLS.with(|[pool, other]| {
        let mut input = Input(bytes);
        let limit = 4096 << (input.byte() & 7);
        let mut bench = Bench {
            pool,
            other,
            packets: Vec::new(),
            datagrams: PacketQueue::new(1 << 18),
            waiting: VecDeque::new(),
            queue: ByteQueue::new(limit),
            queued: Vec::new(),
            limit,
            count: 0,
        };
        for _ in 0..400 {
            if input.is_empty() {
                break;
            }
            bench.step(&mut input);
            bench.check();
        }
        drop(bench);
        for stats in [pool.stats(), other.stats()] {
            assert_eq!(stats.used_frames, 0, "frames were lost");
            assert_eq!(stats.free_views, stats.views, "views were lost");
        }
    });
});

struct Bench<'a> {
    pool: &'a Pool,
    other: &'a Pool,
    packets: Vec<(Packet, Vec<u8>)>,
    queue: ByteQueue,
    queued: Vec<u8>,
    datagrams: PacketQueue,
    waiting: VecDeque<Vec<u8>>,
    limit: usize,
    count: u8,
}

/// A number near those where sums wrap, are cut to fewer bits, or reach the end of a frame.
fn number(input: &mut Input<'_>) -> usize {
    const NEAR: [usize; 8] = [
        0,
        128,
        FRAME_SIZE_BYTES,
        1 << 16,
        1 << 31,
        u32::MAX as usize,
        usize::MAX / 2,
        usize::MAX - 40_000,
    ];
    let which = input.byte();
    let near = NEAR[usize::from(which & 7)];
    match which >> 6 {
        0 => near.saturating_sub(usize::from(input.byte())),
        1 => near.saturating_add(usize::from(input.short())),
        2 => usize::MAX - usize::from(input.byte()),
        _ => usize::from(input.short()),
    }
}

impl Bench<'_> {
    /// Bytes like no others before.
    fn fresh(&mut self, len: usize) -> Vec<u8> {
        self.count = self.count.wrapping_add(37);
        (0..len).map(|i| self.count ^ (i as u8).wrapping_mul(3)).collect()
    }

    fn pick(&mut self, input: &mut Input<'_>) -> Option<(Packet, Vec<u8>)> {
        match self.packets.len() {
            0 => None,
            n => Some(self.packets.swap_remove(usize::from(input.byte()) % n)),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let op = input.byte();
        if op >= 240 {
            self.at_the_edge(op - 240, input);
            return self.packets.truncate(8);
        }
        match op % 24 {
            0 | 1 => {
                let (headroom, len) = (usize::from(input.byte()), input.length(8000));
                let bytes = self.fresh(len);
                if let Ok(packet) = Packet::from_slice(self.pool, headroom, &bytes) {
                    assert!(len == 0 || packet.headroom() >= headroom);
                    self.packets.push((packet, bytes));
                }
            }
            op @ 2..=12 => self.on_packet(op, input),
            op => self.on_queue(op, input),
        }
        self.packets.truncate(8);
    }

    fn on_packet(&mut self, op: u8, input: &mut Input<'_>) {
        let Some((mut packet, mut bytes)) = self.pick(input) else { return };
        let n = input.length(6000);
        match op {
            2 => {
                let more = self.fresh(n);
                if packet.extend_from_slice(self.pool, &more).is_ok() {
                    bytes.extend(more);
                }
            }
            3 => {
                let more = self.fresh(n.min(packet.headroom()));
                if let Some(room) = packet.prepend(more.len()) {
                    room.copy_from_slice(&more);
                    bytes.splice(..0, more);
                }
            }
            4 => {
                let more = self.fresh(n.min(packet.tailroom()));
                if let Some(room) = packet.append(more.len()) {
                    room.copy_from_slice(&more);
                    bytes.extend(more);
                }
            }
            5 => {
                packet.trim_front(n);
                bytes.drain(..n.min(bytes.len()));
            }
            6 => {
                packet.truncate(n);
                bytes.truncate(n);
            }
            7 => {
                if let Ok(rest) = packet.split_off(n, self.pool) {
                    let rest_bytes = bytes.split_off(n.min(bytes.len()));
                    self.packets.push((rest, rest_bytes));
                }
            }
            8 => {
                if let Some((other, other_bytes)) = self.pick(input) {
                    packet.concat(other);
                    bytes.extend(other_bytes);
                }
            }
            9 => {
                let len = input.length(6000);
                if let Ok(view) = packet.view(self.pool, n, len) {
                    let part = bytes.iter().skip(n).take(len).copied().collect();
                    self.packets.push((view, part));
                }
            }
            10 => {
                if let Ok(head) = packet.pull_up(n) {
                    assert_eq!(head[..n], bytes[..n]);
                }
            }
            11 => {
                let more = self.fresh(n.min(bytes.len()));
                if let Ok(head) = packet.make_head_mut(self.pool) {
                    let len = head.len().min(more.len());
                    head[..len].copy_from_slice(&more[..len]);
                    bytes[..len].copy_from_slice(&more[..len]);
                }
            }
            _ => self.fill_spare(&mut packet, &mut bytes, n),
        }
        self.packets.push((packet, bytes));
    }

    /// As a link reads into a chain.
    fn fill_spare(&mut self, packet: &mut Packet, bytes: &mut Vec<u8>, n: usize) {
        let Some(mut fresh) = self.pool.alloc_chain(n % 300, n) else { return };
        let data = self.fresh(n);
        let mut left = &data[..];
        for room in fresh.spare_slices() {
            let (now, later) = left.split_at(room.len().min(left.len()));
            room[..now.len()].copy_from_slice(now);
            left = later;
        }
        assert!(left.is_empty());
        let spare = fresh.commit(n);
        assert!(spare.is_none_or(|spare| spare.is_empty()));
        packet.concat(fresh);
        bytes.extend(data);
    }

    fn on_queue(&mut self, op: u8, input: &mut Input<'_>) {
        let n = input.length(10_000);
        match op {
            13..=15 => {
                let Some((packet, bytes)) = self.pick(input) else { return };
                if self.queue.held_bytes() == 0 {
                    // An empty queue takes a packet of any size.
                    self.limit = self.limit.max(packet.held_bytes());
                }
                match self.queue.append(packet) {
                    Ok(_) => self.queued.extend(bytes),
                    Err(full) => self.packets.push((full.0, bytes)),
                }
            }
            16 | 17 => {
                let bytes = self.fresh(n);
                let written = self.queue.write(self.pool, &bytes);
                self.queued.extend(&bytes[..written]);
            }
            18 => {
                if let Some(packet) = self.queue.take(n, self.pool) {
                    assert!(packet.len() <= n);
                    let bytes = self.queued.drain(..packet.len()).collect();
                    self.packets.push((packet, bytes));
                }
            }
            19 => {
                // What was taken comes back, or something else: it is never refused, so
                // the limit is stretched by as much.
                let Some((packet, bytes)) = self.pick(input) else { return };
                self.limit += packet.held_bytes();
                self.queue.put_back(packet);
                self.queued.splice(..0, bytes);
            }
            20 => {
                let mut out = vec![0; n];
                let read = self.queue.read(&mut out);
                assert_eq!(read, n.min(self.queued.len()));
                assert!(out[..read].iter().copied().eq(self.queued.drain(..read)));
            }
            21 => {
                assert_eq!(self.queue.discard(n), n.min(self.queued.len()));
                self.queued.drain(..n.min(self.queued.len()));
            }
            22 => {
                let len = input.length(4000);
                if let Ok(view) = self.queue.view(self.pool, n, len) {
                    let part = self.queued.iter().skip(n).take(len).copied().collect();
                    self.packets.push((view, part));
                }
            }
            _ => {
                let len = input.length(4000);
                if let Ok(copy) = self.queue.copy_packet(self.pool, 128, n, len) {
                    let part: Vec<u8> = self.queued.iter().skip(n).take(len).copied().collect();
                    if let Some(partial) = copy.meta().payload_sum {
                        assert_eq!(sum::fold(partial.into()), sum::sum(&part));
                    }
                    self.packets.push((copy, part));
                }
            }
        }
    }

    /// What is given any numbers at all.
    fn at_the_edge(&mut self, op: u8, input: &mut Input<'_>) {
        let (a, b) = (number(input), number(input));
        match op {
            0..=4 => self.packet_at_the_edge(op, a, b, input),
            5 => {
                let bytes = self.fresh(b.min(9000));
                if let Ok(packet) = Packet::from_slice(self.pool, a, &bytes) {
                    self.packets.push((packet, bytes));
                }
            }
            6 => {
                let bytes = self.fresh(3000);
                self.queue.set_framing(a);
                let written = self.queue.write_framed(self.other, &bytes, a, b);
                self.queued.extend(&bytes[..written]);
            }
            7 | 8 => {
                let bytes = self.fresh(3000);
                let (headroom, size) = (usize::from(input.byte()), usize::from(input.byte()) * 24);
                let written = self.queue.write_framed(self.pool, &bytes, headroom, size);
                self.queued.extend(&bytes[..written]);
            }
            9 => {
                let len = input.length(5000);
                for (headroom, offset, len) in [(a, 0, len), (0, b, len), (0, 0, a), (64, 0, len)] {
                    if let Some(packet) = self.queue.hand_out(self.other, headroom, offset, len) {
                        let part = self.queued[offset..][..len].to_vec();
                        self.packets.push((packet, part));
                    }
                }
            }
            10 => {
                let mut parts = PacketBatch::new();
                let each = usize::from(input.byte()) * 24;
                self.queue.hand_out_run(self.pool, 0, 0, (each, a), &mut parts);
                self.queue.hand_out_run(self.pool, a, 0, (b, a), &mut parts);
                let mut at = 0;
                for packet in parts.drain() {
                    let part = self.queued[at..][..packet.len()].to_vec();
                    at += packet.len();
                    self.packets.push((packet, part));
                }
            }
            11 => {
                if let Ok(copy) = self.queue.copy_packet(self.other, a, b, 700) {
                    let part = self.queued.iter().skip(b).take(700).copied().collect();
                    self.packets.push((copy, part));
                }
            }
            12 => {
                self.queue.set_whole(usize::from(u16::MAX) - 1);
                let bytes = self.fresh(20_000);
                let cuts = Cuts { segment: a, unsent: b };
                let written = self.queue.write_bulk(self.pool, &bytes, &cuts);
                self.queued.extend(&bytes[..written]);
            }
            13 => {
                if let Some((packet, bytes)) = self.pick(input) {
                    match self.datagrams.push_back(packet) {
                        Ok(_) => self.waiting.push_back(bytes),
                        Err(full) => self.packets.push((full.0, bytes)),
                    }
                }
            }
            14 => {
                if let Some((packet, bytes)) = self.pick(input) {
                    self.datagrams.push_front(packet);
                    self.waiting.push_front(bytes);
                }
            }
            _ => {
                let packet = self.datagrams.pop();
                assert_eq!(packet.is_some(), !self.waiting.is_empty());
                self.packets.extend(packet.zip(self.waiting.pop_front()));
            }
        }
    }

    fn packet_at_the_edge(&mut self, op: u8, a: usize, b: usize, input: &mut Input<'_>) {
        let Some((mut packet, mut bytes)) = self.pick(input) else { return };
        match op {
            0 => {
                packet.crop(a, b);
                bytes.truncate(b);
                bytes.drain(..a.min(bytes.len()));
            }
            1 => {
                if let Ok(rest) = packet.split_off(a, self.other) {
                    let rest_bytes = bytes.split_off(a.min(bytes.len()));
                    self.packets.push((rest, rest_bytes));
                }
            }
            2 => {
                if let Ok(view) = packet.view(self.other, a, b) {
                    let part = bytes.iter().skip(a).take(b).copied().collect();
                    self.packets.push((view, part));
                }
            }
            3 => {
                if let Some(room) = packet.prepend(a) {
                    room.fill(1);
                    bytes.splice(..0, std::iter::repeat_n(1, a));
                }
                if let Some(room) = packet.append(b) {
                    room.fill(2);
                    bytes.extend(std::iter::repeat_n(2, b));
                }
            }
            _ => {
                packet.clear(a);
                bytes.clear();
            }
        }
        self.packets.push((packet, bytes));
    }

    fn check(&mut self) {
        assert_eq!(self.datagrams.len(), self.waiting.len());
        assert_eq!(self.datagrams.bytes(), self.waiting.iter().map(Vec::len).sum());
        assert_eq!(self.datagrams.front_len(), self.waiting.front().map(Vec::len));
        for (packet, bytes) in &self.packets {
            assert_eq!(packet.len(), bytes.len());
            assert!(packet.slices().flatten().eq(bytes), "a packet is not what it should be");
            assert_eq!(packet.sum(0, bytes.len()), sum::sum(bytes));
        }
        assert_eq!(self.queue.len(), self.queued.len());
        assert!(
            self.queue.slices().flatten().eq(&self.queued),
            "the queue is not what it should be"
        );
        let held = self.queue.held_bytes();
        assert!(held <= self.limit + FRAME_HELD_BYTES, "{held} bytes held of {}", self.limit);
    }
}
