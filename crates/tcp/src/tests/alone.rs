//! A connection without a peer: opened, and fed by hand, in an order of its own.

use core::time::Duration;

use millstream_packet::{Instant, Packet, Pool};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, Timestamps};

use super::harness::{LIMITS, Sent, tuple};
use crate::*;

/// A connection opened by us, the peer's window wide open, and its clock.
pub(super) fn established(pool: &Pool, config: Config) -> (Connection, Instant) {
    established_with(pool, config, 1460)
}

/// With a peer that takes segments of `mss` bytes.
pub(super) fn established_with(pool: &Pool, config: Config, mss: u16) -> (Connection, Instant) {
    opened(pool, config, mss, Duration::from_millis(10))
}

/// With a round trip of `rtt`.
pub(super) fn established_after(
    pool: &Pool,
    config: Config,
    rtt: Duration,
) -> (Connection, Instant) {
    opened(pool, config, 1460, rtt)
}

fn opened(pool: &Pool, config: Config, mss: u16, rtt: Duration) -> (Connection, Instant) {
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let mut connection = Connection::connect(config, tuple(0, false), SeqNumber(0), 0, now);
    connection.poll_one(now, pool, &LIMITS).expect("SYN");
    now += rtt;
    let mut answer = header(0, 1, TcpFlags::SYN_ACK);
    answer.options.window_scale = Some(8);
    answer.options.sack_permitted = true;
    answer.options.mss = Some(mss);
    connection.on_segment(now, &answer, Payload::None, 0, pool);
    connection.poll_one(now, pool, &LIMITS).expect("ACK");
    connection.on_segment(now, &header(1, 1, TcpFlags::ACK), Payload::None, 0, pool);
    assert_eq!(connection.state(), State::Established);
    (connection, now)
}

pub(super) fn header(seq: u32, ack: u32, flags: TcpFlags) -> TcpHeader {
    let mut header = TcpHeader {
        src_port: 1002,
        dst_port: 1001,
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window: 65_535,
        ..TcpHeader::default()
    };
    header.options.timestamps = Some(Timestamps { value: 1, echo: 1000 });
    header
}

pub(super) fn drain(connection: &mut Connection, now: Instant, pool: &Pool) -> Vec<Sent> {
    std::iter::from_fn(|| connection.poll_one(now, pool, &LIMITS)).collect()
}

/// In-order data of `len` bytes from offset `seq` of the peer's numbers, and the ACK that answers
/// it.
pub(super) fn receive(
    connection: &mut Connection,
    now: Instant,
    pool: &Pool,
    seq: &mut u32,
    len: usize,
) {
    let packet = Packet::from_slice(pool, 0, &vec![7; len]).expect("frames");
    connection.on_segment(now, &header(*seq, 1, TcpFlags::ACK), Payload::Packet(packet), 0, pool);
    *seq += len as u32;
    drain(connection, now, pool);
}

/// Data from `seq` on, `len` bytes.
pub(super) fn data(connection: &mut Connection, now: Instant, pool: &Pool, seq: u32, len: usize) {
    let payload = Packet::from_slice(pool, 0, &vec![3; len]).expect("a frame");
    connection.on_segment(now, &header(seq, 1, TcpFlags::ACK), Payload::Packet(payload), 0, pool);
}

/// `bytes` in a waiting reader's memory, merged from segments of 1,400 where they are more than one
/// has.
pub fn placed(bytes: &[u8]) -> Payload<'_> {
    let segment_size = (bytes.len() > 1400).then_some(1400);
    Payload::Placed(Placed { bytes, rest: None, segment_size })
}
