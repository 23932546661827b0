//! What a peer's segments may hold of memory, however they are cut and wherever they lie.

use millstream_packet::{Instant, Packet, Pool, PoolConfig, Segmentation, SegmentationKind};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

use super::harness::{LIMITS, at, pool, tuple};
use crate::*;

const LIMIT: usize = 16 << 10;
/// What a packet of one frame holds, with its descriptor.
const FRAME: usize = millstream_packet::FRAME_SIZE_BYTES + 64;

/// What a range out of order takes beside frames.
const RANGE: usize = crate::receiver::Receiver::RANGE_BYTES;

/// A receiver, and what its peer has sent so far.
pub struct Receiver {
    pub connection: Connection,
    pub pool: Pool,
    now: Instant,
    /// The next byte in order, counted from the peer's SYN.
    pub next: u32,
}

/// What stands at offset `at` of the stream.
fn byte(at: u32) -> u8 {
    (at % 251) as u8
}

impl Receiver {
    pub fn new(pool: Pool, config: Config) -> Receiver {
        let mut syn = TcpHeader { flags: TcpFlags::SYN, window: 65_535, ..TcpHeader::default() };
        syn.options.sack_permitted = true;
        syn.options.window_scale = Some(0);
        syn.options.mss = Some(1460);
        let mut connection =
            Connection::accept(config, tuple(0, false), SeqNumber(0), 0, &syn, at(0));
        connection.poll_one(at(0), &pool, &LIMITS).expect("SYN-ACK");
        let ack = TcpHeader { flags: TcpFlags::ACK, seq: SeqNumber(1), ack: SeqNumber(1), ..syn };
        connection.on_segment(at(10), &ack, Payload::None, 0, &pool);
        assert_eq!(connection.state(), State::Established);
        Receiver { connection, pool, now: at(10), next: 1 }
    }

    /// With a buffer of [`LIMIT`] bytes.
    fn small() -> Receiver {
        let config =
            Config { recv_buffer_bytes: LIMIT, recv_auto_tune: false, ..Config::default() };
        Receiver::new(pool(), config)
    }

    pub fn packet(&self, at: u32, len: u32) -> Packet {
        let bytes: Vec<u8> = (at..at + len).map(byte).collect();
        Packet::from_slice(&self.pool, 0, &bytes).expect("frames")
    }

    fn take(&mut self, at: u32, packet: Packet) {
        let header = TcpHeader {
            flags: TcpFlags::ACK,
            seq: SeqNumber(at),
            ack: SeqNumber(1),
            window: 65_535,
            ..TcpHeader::default()
        };
        self.connection.on_segment(self.now, &header, Payload::Packet(packet), 0, &self.pool);
    }

    /// `len` bytes from `at` on arrive; the ACK for them.
    fn receive(&mut self, at: u32, len: u32) -> Option<TcpHeader> {
        let packet = self.packet(at, len);
        self.take(at, packet);
        self.answer()
    }

    /// The next `len` bytes arrive.
    pub fn receive_next(&mut self, len: u32) {
        self.receive(self.next, len);
        self.next += len;
    }

    fn answer(&mut self) -> Option<TcpHeader> {
        let answer = self.connection.poll_one(self.now, &self.pool, &LIMITS);
        answer.map(|segment| segment.header)
    }

    /// Reads what there is, which begins at `from` and must be what was sent.
    pub fn read_all(&mut self, from: u32) -> u32 {
        let mut at = from;
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = self.connection.read(&mut bytes) {
            for &got in &bytes[..n] {
                assert_eq!(got, byte(at), "at {at}");
                at += 1;
            }
        }
        at - from
    }
}

#[test]
fn small_segments_fill_the_window_in_the_memory_of_large_ones() {
    for (len, most) in [(1, LIMIT + FRAME), (100, LIMIT + FRAME), (900, 2 * LIMIT)] {
        let mut receiver = Receiver::small();
        let window = receiver.connection.info().rcv_wnd_bytes as u32;
        while receiver.connection.info().rcv_wnd_bytes >= u64::from(len) {
            receiver.receive_next(len);
            let held = receiver.connection.receive_held_bytes();
            assert!(held <= most, "{held} bytes held for segments of {len}");
        }
        let info = receiver.connection.info();
        assert_eq!(info.memory_drops, 0);
        assert!(receiver.next > window - len, "{} of {window}", receiver.next);
        assert_eq!(receiver.read_all(1), receiver.next - 1);
    }
}

#[test]
fn of_what_finds_no_frame_what_fits_is_taken_and_the_rest_comes_again() {
    let frames = PoolConfig { initial_frames: 64, limit_frames: 64, ..PoolConfig::default() };
    let pool = Pool::new(PoolConfig { limit_blocks: 0, ..frames }).expect("a pool");
    let config = Config { recv_buffer_bytes: LIMIT, recv_auto_tune: false, ..Config::default() };
    let mut receiver = Receiver::new(pool.clone(), config);
    // seven frames, each half full, are the buffer; one more segment fits behind the last
    (0..7).for_each(|_| receiver.receive_next(1100));
    receiver.receive_next(900);
    assert_eq!(receiver.connection.receive_held_bytes(), 7 * FRAME);
    let packet = receiver.packet(receiver.next, 500);
    let taken: Vec<Packet> =
        std::iter::from_fn(|| Packet::from_slice(&pool, 0, &[0]).ok()).collect();
    receiver.take(receiver.next, packet);
    let ack = receiver.answer().expect("an ACK at once").ack.0;
    let part = ack - receiver.next;
    assert!((1..500).contains(&part), "{part} bytes found room");
    let info = receiver.connection.info();
    assert_eq!((info.memory_drops, info.bytes_received), (1, u64::from(ack) - 1));
    drop(taken);
    receiver.next = ack;
    receiver.receive_next(500 - part);
    let info = receiver.connection.info();
    assert_eq!((info.memory_drops, info.bytes_received), (1, 7 * 1100 + 900 + 500));
    assert_eq!(receiver.read_all(1), 7 * 1100 + 900 + 500);
}

#[test]
fn early_data_gives_way_to_what_was_promised_room() {
    let mut receiver = Receiver::small();
    // full frames make the window nearly as large as the memory
    for _ in 0..100 {
        let from = receiver.next;
        receiver.receive_next(2000);
        assert_eq!(receiver.read_all(from), 2000);
        receiver.answer();
    }
    let begin = receiver.next;
    let window = receiver.connection.info().rcv_wnd_bytes;
    assert!(window > 13_320, "{window}");
    for index in 0..9 {
        receiver.receive(begin + 11_100 + 220 * index, 200);
    }
    // a frame each; the first 16 places for ranges come beyond that
    let ranges = LIMIT / FRAME;
    let info = receiver.connection.info();
    assert_eq!((info.out_of_order_ranges, info.memory_drops as usize), (ranges, 9 - ranges));
    for count in 1..=10 {
        receiver.receive_next(1100);
        let held = receiver.connection.receive_held_bytes();
        assert!(held <= 2 * LIMIT, "{held} bytes held after {count}");
    }
    // 10 frames in order leave room for 3 out of order in twice the limit: those that are next
    assert_eq!((2 * LIMIT - 16 * RANGE) / FRAME - 10, 3);
    let info = receiver.connection.info();
    assert_eq!((info.out_of_order_ranges, info.out_of_order_bytes), (3, 600));
    assert_eq!(info.memory_drops as usize, 9 - 3);
    assert_eq!(receiver.read_all(begin), 10 * 1100);
    receiver.receive_next(100);
    let answer = receiver.receive(begin + 11_300, 20).expect("an ACK");
    assert_eq!(answer.ack.0, begin + 11_520, "two of the early ones were kept");
    assert_eq!(receiver.read_all(begin + 10 * 1100), 520);
}

#[test]
fn early_segments_hold_no_more_than_a_buffer() {
    let mut receiver = Receiver::new(pool(), Config::default());
    (0..20).for_each(|_| receiver.receive_next(1460));
    // the first 16 places for ranges come beyond that
    let most = 2 * receiver.connection.info().recv_limit_bytes + 16 * RANGE;
    for index in 0..400 {
        receiver.receive(receiver.next + 10 + 300 * index, 200);
        let held = receiver.connection.receive_held_bytes();
        assert!(held <= most, "{held} bytes held, of {most}");
    }
    let info = receiver.connection.info();
    assert_eq!(info.memory_drops as usize, 400 - info.out_of_order_ranges);
    let held = receiver.connection.receive_held_bytes();
    assert!(info.memory_drops > 0 && held + FRAME + 64 * RANGE > most, "{held} bytes of {most}");
}

#[test]
fn a_byte_here_and_a_byte_there_hold_no_frame() {
    let mut receiver = Receiver::new(pool(), Config::default());
    let used = receiver.pool.stats().used_frames;
    for index in 0..1000 {
        receiver.receive(receiver.next + 10 + 2 * index, 1);
    }
    assert_eq!(receiver.connection.info().out_of_order_ranges, 1000);
    assert_eq!(receiver.pool.stats().used_frames, used);
    let held = receiver.connection.receive_held_bytes();
    assert!((1000 * RANGE..1300 * RANGE).contains(&held), "{held} bytes are held");
    // and all are there once the gaps are filled
    receiver.receive_next(10);
    for _ in 0..1000 {
        receiver.next += 1;
        receiver.receive_next(1);
    }
    assert_eq!(receiver.read_all(1), 10 + 2000);
    assert_eq!(receiver.connection.receive_held_bytes(), 0);
}

#[test]
fn a_byte_before_the_last_one_holds_no_frame_of_its_own() {
    let mut receiver = Receiver::new(pool(), Config::default());
    let used = receiver.pool.stats().used_frames;
    for index in 0..3000 {
        receiver.receive(receiver.next + 5000 - index, 1);
    }
    let info = receiver.connection.info();
    assert_eq!((info.out_of_order_ranges, info.out_of_order_bytes), (1, 3000));
    assert!(receiver.pool.stats().used_frames - used <= 3);
    receiver.receive_next(2001);
    assert_eq!(receiver.read_all(1), 5001);
}

/// Nor does what is left of a large packet, when the rest of it came before.
#[test]
fn the_rest_of_a_large_packet_is_copied() {
    let mut receiver = Receiver::new(pool(), Config::default());
    let begin = receiver.next + 10;
    for index in 0..10 {
        let at = begin + index * 300;
        let packet = Packet::bulk_from_slice(&receiver.pool, &vec![0; 60_000], 60_000);
        let mut packet = packet.expect("a block");
        assert!(packet.held_bytes() >= millstream_packet::BLOCK_HELD_BYTES);
        packet.crop(at as usize, at as usize + 200);
        receiver.take(at, packet);
    }
    let held = receiver.connection.receive_held_bytes();
    assert!(held <= 10 * FRAME + 16 * RANGE, "{held} bytes held");
    assert_eq!(receiver.connection.info().out_of_order_bytes, 2000);
}

#[test]
fn a_range_that_grows_is_bounded_in_memory_too() {
    let mut receiver = Receiver::small();
    let begin = receiver.next + 10;
    for index in 0..8 {
        receiver.receive(begin + 1200 * index, 1200);
    }
    let fit = LIMIT / FRAME;
    let info = receiver.connection.info();
    assert_eq!((info.out_of_order_ranges, info.memory_drops as usize), (1, 8 - fit));
    assert_eq!(info.out_of_order_bytes as usize, fit * 1200);
    assert!(receiver.connection.receive_held_bytes() <= LIMIT + 16 * RANGE);
    // what takes no more memory still has room: behind the last one, in its frame
    receiver.receive(begin + 1200 * fit as u32, 100);
    let info = receiver.connection.info();
    assert_eq!(info.out_of_order_bytes as usize, fit * 1200 + 100);
}

#[test]
fn what_is_out_of_order_gives_way_when_the_owner_has_little() {
    let mut receiver = Receiver::new(pool(), Config::default());
    let begin = receiver.next + 10;
    for index in 0..20 {
        receiver.receive(begin + 3000 * index, 1000);
    }
    let held = receiver.connection.early_held_bytes();
    let freed = receiver.connection.prune_early(5 * FRAME + 5 * RANGE);
    let left = receiver.connection.early_held_bytes();
    assert_eq!(held - freed, left);
    assert!(left <= 5 * FRAME + 5 * RANGE, "{left} bytes left");
    let info = receiver.connection.info();
    assert_eq!((info.out_of_order_ranges, info.out_of_order_bytes), (5, 5000));
    // the nearest are kept
    receiver.receive_next(10);
    receiver.next += 1000;
    receiver.receive_next(2000);
    assert_eq!(receiver.read_all(1), 4010);
    let held = receiver.connection.receive_held_bytes();
    assert_eq!(receiver.connection.prune_early(0), held);
    assert_eq!(receiver.connection.receive_held_bytes(), 0);
}

#[test]
fn beyond_the_owners_limit_data_are_dropped_and_their_acks_taken() {
    let pool = pool();
    let mut receiver = Receiver::new(pool.clone(), Config::default());
    receiver.connection.write(&pool, &[7; 1000]).expect("room");
    receiver.connection.poll_one(at(10), &pool, &LIMITS).expect("data");
    receiver.connection.set_memory_limit(Some(2 * FRAME));
    (0..2).for_each(|_| receiver.receive_next(1460));
    assert!(!receiver.connection.take_refused());
    let next = receiver.next;
    let packet = receiver.packet(next, 1460);
    let header = TcpHeader {
        flags: TcpFlags::ACK,
        seq: SeqNumber(next),
        ack: SeqNumber(1001),
        window: 65_535,
        ..TcpHeader::default()
    };
    receiver.connection.on_segment(at(10), &header, Payload::Packet(packet), 0, &pool);
    assert!(receiver.connection.take_refused() && !receiver.connection.take_refused());
    assert_eq!(receiver.connection.unacknowledged_bytes(), 0);
    assert_eq!(receiver.answer().expect("at once").ack.0, next);
    // early data has no room either, but what fits into the last frame has
    receiver.receive(next + 5000, 1460);
    assert!(receiver.connection.take_refused());
    assert_eq!(receiver.connection.early_held_bytes(), 0);
    receiver.receive_next(300);
    assert!(!receiver.connection.take_refused());
    assert_eq!(receiver.connection.receive_held_bytes(), 2 * FRAME);
    // the window is not opened beyond what a least buffer has
    assert_eq!(receiver.read_all(1), 2 * 1460 + 300);
    let window = receiver.connection.info().rcv_wnd_limit_bytes as usize;
    assert!(window <= limits::BUFFER_MIN_BYTES, "{window}");
    receiver.connection.set_memory_limit(None);
    assert!(receiver.connection.info().rcv_wnd_limit_bytes as usize > 8 * window);
}

#[test]
fn who_is_evicted_holds_nothing_and_both_ends_are_told() {
    let pool = pool();
    let mut receiver = Receiver::new(pool.clone(), Config::default());
    receiver.connection.write(&pool, &[7; 5000]).expect("room");
    receiver.receive_next(1460);
    receiver.receive(receiver.next + 100, 1000);
    receiver.connection.evict();
    assert_eq!(receiver.connection.held_bytes(), 0);
    assert!(receiver.answer().expect("a reset").flags.rst());
    assert_eq!(receiver.connection.error(), Some(ConnError::Evicted));
    assert_eq!(receiver.connection.read(&mut [0; 10]), Err(ConnError::Evicted));
    assert_eq!(receiver.connection.read(&mut [0; 10]), Ok(0));
}

#[test]
fn ranges_are_limited_too_but_not_what_joins_them() {
    let config = Config { recv_auto_tune: false, ..Config::default() };
    let mut receiver = Receiver::new(pool(), config);
    let most = limits::REASSEMBLY_RANGES;
    let begin = receiver.next + 10;
    for index in 0..=most as u32 {
        receiver.receive(begin + 2 * index, 1);
    }
    let ranges = |receiver: &Receiver| {
        let info = receiver.connection.info();
        (info.out_of_order_ranges, info.out_of_order_bytes, info.memory_drops)
    };
    assert_eq!(ranges(&receiver), (most, most as u64, 1));
    // before the first, behind the last, and between two
    receiver.receive(begin - 1, 1);
    receiver.receive(begin + 2 * most as u32 - 1, 1);
    assert_eq!(ranges(&receiver), (most, most as u64 + 2, 1));
    receiver.receive(begin + 11, 1);
    assert_eq!(ranges(&receiver), (most - 1, most as u64 + 3, 1));
    receiver.receive(begin + 2 * most as u32 + 10, 1);
    assert_eq!(ranges(&receiver), (most, most as u64 + 4, 1));
}

#[test]
fn what_a_full_segment_is_follows_the_segments_that_come() {
    let mut receiver = Receiver::small();
    let mut segments = receiver.connection.info().data_segments_in;
    // length, size of the parts of a merged burst, what is full then, parts
    let steps = [
        (100, None, 536, 1),
        (1000, None, 1000, 1),
        (999, None, 1000, 1),
        (2000, Some(700), 700, 3),
        (2000, Some(535), 700, 4),
        (699, Some(600), 700, 2),
        (700, Some(536), 536, 2),
        (536, Some(536), 536, 1),
        (600, Some(0), 600, 1),
        (2000, None, 1460, 2),
    ];
    for (len, size, full, parts) in steps {
        let from = receiver.next;
        let mut packet = receiver.packet(from, len);
        packet.meta_mut().segmentation = size.map(segmentation);
        receiver.take(from, packet);
        receiver.next += len;
        receiver.answer();
        segments += parts;
        let info = receiver.connection.info();
        assert_eq!(
            (info.rcv_mss_bytes, info.data_segments_in),
            (full, segments),
            "{len}, {size:?}"
        );
        assert_eq!(receiver.read_all(from), len);
    }
}

/// Of a burst of segments of `size` bytes.
fn segmentation(size: u16) -> Segmentation {
    Segmentation { kind: SegmentationKind::TcpV4, ecn: false, size, header_len: 0 }
}

#[test]
fn a_writer_is_told_when_a_quarter_of_the_buffer_is_free() {
    let pool = pool();
    let config = Config { send_buffer_bytes: 64 << 10, send_auto_tune: false, ..Config::default() };
    let mut receiver = Receiver::new(pool.clone(), config);
    let connection = &mut receiver.connection;
    while connection.write(&pool, &[1; 8192]).is_ok() {}
    connection.take_events();
    let ack = |connection: &mut Connection, to: u32| {
        while connection.poll_one(at(10), &pool, &LIMITS).is_some() {}
        let header = TcpHeader {
            flags: TcpFlags::ACK,
            seq: SeqNumber(1),
            ack: SeqNumber(to),
            window: 65_535,
            ..TcpHeader::default()
        };
        connection.on_segment(at(10), &header, Payload::None, 0, &pool);
        connection.take_events().writable
    };
    assert!(!ack(connection, 1));
    let mut acked = 1;
    while connection.info().send_queue_held_bytes >= 48 << 10 {
        acked += 1460;
        let told = ack(connection, acked);
        let held = connection.info().send_queue_held_bytes;
        assert_eq!(told, held < 48 << 10, "{held} bytes held");
    }
    assert!(!ack(connection, acked + 1460), "once is enough");
}

/// A loan's room is there while it lasts, in a buffer that tunes itself, and no more than that may
/// ever have.
#[test]
fn a_send_buffer_is_widened_for_a_loan() {
    const TUNED: usize = 64 << 10;
    let limit = |connection: &Connection| connection.info().send_limit_bytes;
    let config = Config { send_buffer_bytes: 1 << 20, ..Config::default() };
    let mut receiver = Receiver::new(pool(), config.clone());
    let connection = &mut receiver.connection;
    connection.sending.snd.set_queue_limit(TUNED);
    for (bytes, widened) in [(TUNED / 2, TUNED), (TUNED * 2, TUNED * 2), (2 << 20, 1 << 20)] {
        let loan = connection.widen(bytes);
        assert_eq!(limit(connection), widened);
        connection.narrow(loan);
        assert_eq!(limit(connection), TUNED);
    }
    // A buffer size that is set meanwhile holds.
    let loan = connection.widen(TUNED * 2);
    connection.set_buffers(None, Some(TUNED * 3));
    connection.narrow(loan);
    assert_eq!(limit(connection), TUNED * 3);
    // One of fixed size stays as it is.
    let loan = connection.widen(1 << 20);
    assert_eq!(limit(connection), TUNED * 3);
    connection.narrow(loan);
    assert_eq!(limit(connection), TUNED * 3);
}
