//! Packets and a byte queue under any sequence of operations, against vectors of
//! bytes that do the same. Packets that share frames never see one another's
//! writes, the queue never holds more than its limit allows, and no frame is lost.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_fuzz::Input;
use millstream_packet::{ByteQueue, FRAME_SIZE_BYTES, Packet, Pool, PoolConfig, QueueLimits, sum};

/// Memory that a frame holds, its descriptor included.
const FRAME_HELD_BYTES: usize = FRAME_SIZE_BYTES + 64;

thread_local! {
    static POOL: Pool = Pool::new(PoolConfig { prefault: false, ..PoolConfig::fixed(96) })
        .expect("a pool");
}

fuzz_target!(|bytes: &[u8]| {
    POOL.with(|pool| {
        let mut input = Input(bytes);
        let high_bytes = 4096 << (input.byte() & 7);
        let limits = QueueLimits { low_bytes: high_bytes / 2, high_bytes };
        let mut bench = Bench {
            pool,
            packets: Vec::new(),
            queue: ByteQueue::new(limits),
            queued: Vec::new(),
            limit: high_bytes,
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
        let stats = pool.stats();
        assert_eq!(stats.used_frames, 0, "frames were lost");
        assert_eq!(stats.free_views, stats.views, "views were lost");
    });
});

struct Bench<'a> {
    pool: &'a Pool,
    packets: Vec<(Packet, Vec<u8>)>,
    queue: ByteQueue,
    queued: Vec<u8>,
    limit: usize,
    count: u8,
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
        match input.byte() % 24 {
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
                let written = self.queue.write(self.pool, &bytes).bytes;
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

    fn check(&mut self) {
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
