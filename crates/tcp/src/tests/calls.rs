//! What the calls of an application answer, in every order that matters.

use core::time::Duration;

use millstream_packet::{Packet, Pool, PoolConfig};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader};

use super::harness::{LIMITS, at, pool, tuple};
use super::memory::Receiver;
use crate::*;

/// A connection whose buffers do not grow.
fn open(pool: &Pool) -> Receiver {
    let config = Config { send_auto_tune: false, send_buffer_bytes: 64 << 10, ..Config::default() };
    Receiver::new(pool.clone(), config)
}

fn flush(connection: &mut Connection, pool: &Pool) {
    while connection.poll_one(at(10), pool, &LIMITS).is_some() {}
}

/// A segment without data that acknowledges `to`.
fn ack(connection: &mut Connection, pool: &Pool, to: u32, flags: TcpFlags) {
    let (seq, ack) = (SeqNumber(1), SeqNumber(to));
    let header = TcpHeader { flags, seq, ack, window: 65_535, ..TcpHeader::default() };
    connection.on_segment(at(10), &header, Payload::None, 0, pool);
}

#[test]
fn a_reader_hears_once_and_reads_all() {
    let pool = pool();
    let mut end = open(&pool);
    end.connection.take_events();
    assert!(!end.connection.is_readable() && !end.connection.has_events());
    assert!(!end.connection.take_readable());
    assert_eq!(end.connection.read(&mut [0; 9]), Err(ConnError::WouldBlock));
    assert!(matches!(end.connection.read_packet(9, &pool), Err(ConnError::WouldBlock)));
    end.receive_next(3000);
    assert!(end.connection.is_readable() && end.connection.has_events());
    assert!(end.connection.take_readable(), "that is all there is to tell");
    assert!(!end.connection.take_readable() && !end.connection.has_events(), "and once");
    let packet = end.connection.read_packet(1000, &pool).expect("open").expect("data");
    assert_eq!((packet.len(), end.connection.receiving.rcv.queue().len()), (1000, 2000));
    assert_eq!(end.read_all(1001), 2000);
    ack(&mut end.connection, &pool, 1, TcpFlags::ACK);
    let fin = TcpHeader { flags: TcpFlags::FIN | TcpFlags::ACK, ..TcpHeader::default() };
    let fin = TcpHeader { seq: SeqNumber(3001), ack: SeqNumber(1), ..fin };
    end.connection.on_segment(at(10), &fin, Payload::None, 0, &pool);
    assert!(end.connection.is_readable() && end.connection.has_events());
    assert!(!end.connection.take_readable(), "there is more to tell");
    assert!(end.connection.take_events().peer_closed);
    assert_eq!(end.connection.read(&mut [0; 9]), Ok(0));
    assert!(matches!(end.connection.read_packet(9, &pool), Ok(None)));
}

#[test]
fn a_writer_fills_the_buffer_and_is_told_of_room() {
    let pool = pool();
    let mut end = open(&pool).connection;
    assert!(end.is_writable());
    assert_eq!(end.write(&pool, &[]), Ok(0));
    assert_eq!(end.write(&pool, &[1; 3000]), Ok(3000));
    assert_eq!((end.unsent_bytes(), end.unacknowledged_bytes()), (3000, 3000));
    flush(&mut end, &pool);
    assert_eq!((end.unsent_bytes(), end.unacknowledged_bytes()), (0, 3000));
    ack(&mut end, &pool, 1461, TcpFlags::ACK);
    assert_eq!((end.unsent_bytes(), end.unacknowledged_bytes()), (0, 1540));
    end.take_events();
    ack(&mut end, &pool, 3001, TcpFlags::ACK);
    assert!(!end.take_events().writable, "nobody waits for room");
    let mut written = 0;
    while let Ok(n) = end.write(&pool, &[2; 8192]) {
        written += n;
    }
    assert_eq!(end.write(&pool, &[2; 8192]), Err(ConnError::WouldBlock));
    assert!(!end.is_writable());
    let refused = end.write_packet(Packet::from_slice(&pool, 0, &[3; 100]).expect("a frame"));
    let refused = refused.expect_err("no room");
    assert_eq!((refused.packet.len(), refused.why), (100, ConnError::WouldBlock));
    flush(&mut end, &pool);
    let mut acked = 3001;
    while !end.take_events().writable {
        acked += 1460;
        assert!(acked < 3001 + written as u32, "told too late");
        ack(&mut end, &pool, acked, TcpFlags::ACK);
        flush(&mut end, &pool);
    }
    assert!(end.is_writable());
    assert!(end.write_packet(Packet::from_slice(&pool, 0, &[3; 100]).expect("a frame")).is_ok());
}

#[test]
fn after_the_end_nothing_is_written() {
    let pool = pool();
    let mut end = open(&pool).connection;
    end.shutdown_write();
    assert_eq!(end.may_write(), Err(ConnError::Closed));
    assert_eq!(end.write(&pool, &[1]), Err(ConnError::Closed));
    let refused = end.write_packet(Packet::from_slice(&pool, 0, &[3; 100]).expect("a frame"));
    assert_eq!(refused.expect_err("shut").why, ConnError::Closed);
    assert!(end.is_writable(), "a writer does not wait for what will not come");
    assert!(!end.is_closed());
    flush(&mut end, &pool);
    ack(&mut end, &pool, 2, TcpFlags::RST | TcpFlags::ACK);
    assert!(end.is_closed() && end.is_readable());
    assert_eq!(end.may_write(), Err(ConnError::Reset));
}

/// As the kernel's SO_ERROR: whichever call comes first.
#[test]
fn why_a_connection_ended_is_told_once() {
    let pool = pool();
    let packet = || Packet::from_slice(&pool, 0, &[3; 100]).expect("a frame");
    type Tell<'a> = &'a dyn Fn(&mut Connection) -> Option<ConnError>;
    let ways: [Tell; 6] = [
        &|end| end.read(&mut [0; 9]).err(),
        &|end| end.peek(&mut [0; 9]).err(),
        &|end| end.read_packet(9, &pool).err(),
        &|end| end.write(&pool, &[1]).err(),
        &|end| end.write_packet(packet()).err().map(|refused| refused.why),
        &|end| end.take_error(),
    ];
    for tell in ways {
        let mut end = open(&pool).connection;
        ack(&mut end, &pool, 1, TcpFlags::RST | TcpFlags::ACK);
        assert_eq!(end.may_write(), Err(ConnError::Reset), "asking is not telling");
        assert_eq!(tell(&mut end), Some(ConnError::Reset));
        assert!(end.is_readable() && end.is_writable());
        assert_eq!((end.read(&mut [0; 9]), end.peek(&mut [0; 9])), (Ok(0), Ok(0)));
        assert!(matches!(end.read_packet(9, &pool), Ok(None)));
        assert_eq!(end.write(&pool, &[1]), Err(ConnError::Closed));
        assert_eq!((end.take_error(), end.error()), (None, Some(ConnError::Reset)));
    }
}

#[test]
fn after_the_end_of_the_peer_a_reset_is_no_matter_of_reading() {
    let pool = pool();
    let mut end = open(&pool).connection;
    ack(&mut end, &pool, 1, TcpFlags::FIN | TcpFlags::ACK);
    assert_eq!(end.state(), State::CloseWait);
    let reset = TcpFlags::RST | TcpFlags::ACK;
    let reset =
        TcpHeader { flags: reset, seq: SeqNumber(2), ack: SeqNumber(1), ..TcpHeader::default() };
    end.on_segment(at(10), &reset, Payload::None, 0, &pool);
    assert!(end.is_closed());
    assert_eq!(end.read(&mut [0; 9]), Ok(0));
    assert_eq!(end.take_error(), Some(ConnError::Closed));
    assert_eq!((end.take_error(), end.error()), (None, Some(ConnError::Reset)));
}

#[test]
fn without_frames_a_write_says_so_and_a_segment_waits() {
    let frames = PoolConfig { initial_frames: 64, limit_frames: 64, ..PoolConfig::default() };
    let pool = Pool::new(PoolConfig { limit_blocks: 0, ..frames }).expect("a pool");
    let mut end = open(&pool).connection;
    let take = || std::iter::from_fn(|| Packet::from_slice(&pool, 0, &[0]).ok());
    let taken: Vec<Packet> = take().collect();
    assert_eq!(end.write(&pool, &[1; 100]), Err(ConnError::NoMemory));
    drop(taken);
    assert_eq!(end.write(&pool, &[1; 100]), Ok(100));
    let taken: Vec<Packet> = take().collect();
    let framed =
        TransmitLimits { payload: PayloadSource::Frames { headroom: 64 }, ..TransmitLimits::ONE };
    assert!(end.poll_one(at(10), &pool, &framed).is_none());
    assert!(end.is_starved_of_frames());
    drop(taken);
    let segment = end.poll_one(at(10), &pool, &framed).expect("what waited");
    assert_eq!((segment.header.seq, segment.payload_len), (SeqNumber(1), 100));
    assert!(!end.is_starved_of_frames());
}

#[test]
fn before_the_handshake_is_done_what_is_written_waits() {
    let pool = pool();
    let isn = SeqNumber(0);
    let mut end = Connection::connect(Config::default(), tuple(0, false), isn, 0, at(0));
    assert!(!end.is_writable() && !end.is_readable() && !end.is_closed());
    assert_eq!(end.write(&pool, &[1; 100]), Ok(100));
    assert_eq!(end.read(&mut [0; 9]), Err(ConnError::WouldBlock));
    flush(&mut end, &pool);
    assert_eq!((end.unsent_bytes(), end.unacknowledged_bytes()), (100, 100));
    end.shutdown_write();
    assert_eq!(end.write(&pool, &[1; 100]), Err(ConnError::Closed));
}

/// The bound of the send buffer after a long transfer with a round trip of `rtt_us` at first,
/// `most` being configured; the writer has waited for it for so long before.
fn send_limit(most: usize, (rtt_us, later_rtt_us): (u64, u64), waited: Duration) -> usize {
    let pool = pool();
    let mut now = at(10);
    let config = Config { send_buffer_bytes: most, ..Config::default() };
    let mut end = Receiver::new(pool.clone(), config).connection;
    end.cx.counters.limited.sndbuf_ns = waited.as_nanos() as u64;
    let data = [1; 64 << 10];
    for round in 0..60 {
        while end.write(&pool, &data).is_ok() {}
        while end.poll_one(now, &pool, &LIMITS).is_some() {}
        now += Duration::from_micros(if round < 3 { rtt_us } else { later_rtt_us });
        let (seq, window) = (SeqNumber(1), 65_535);
        let ack = SeqNumber(0) + end.info().bytes_sent as usize + 1;
        let header = TcpHeader { flags: TcpFlags::ACK, seq, ack, window, ..TcpHeader::default() };
        end.on_segment(now, &header, Payload::None, 0, &pool);
    }
    assert_eq!(end.info().retransmits, 0);
    end.info().send_limit_bytes
}

#[test]
fn a_send_buffer_grows_to_what_was_configured_and_what_the_path_is_worth() {
    let long = (10_000, 10_000);
    assert_eq!(send_limit(300 << 10, long, Duration::ZERO), 300 << 10);
    let free = send_limit(16 << 20, long, Duration::ZERO);
    assert!((512 << 10..16 << 20).contains(&free), "{free}");
}

/// There what waits in memory is most of the round trip.
#[test]
fn within_a_machine_a_send_buffer_stays_small_unless_it_is_what_the_writer_waits_for() {
    let (short, longer) = ((10, 100), (100, 1_000));
    let (little, much) = (Duration::from_micros(1), Duration::from_millis(10));
    assert_eq!(send_limit(16 << 20, short, little), 512 << 10);
    assert_eq!(send_limit(300 << 10, short, little), 300 << 10);
    for (round_trips, waited) in [(short, much), (longer, little)] {
        let limit = send_limit(16 << 20, round_trips, waited);
        assert!(limit > 512 << 10 && limit < 2 << 20, "{round_trips:?}, {waited:?}: {limit}");
    }
}

#[test]
fn what_is_printed_of_a_key_does_not_tell_it() {
    let key = [0xab; 16];
    let printed = [
        format!("{:?}", crate::IsnGenerator::new(key)),
        format!("{:?}", crate::SynCookies::new(key)),
        format!("{:?}", crate::FastOpenKeys::new(key)),
    ];
    for text in printed {
        assert!(!text.contains("171") && !text.contains("ab"), "{text}");
    }
}
