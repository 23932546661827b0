//! A few bytes that are sent as they are written, and wait for their ACK beside the queue.

use millstream_packet::{Instant, Packet, Pool, PoolConfig};
use millstream_wire::tcp::TcpFlags;

use super::alone::{drain, established, header};
use crate::*;

/// A connection that has sent `abc` so, behind one byte that was acknowledged, and nothing else.
fn with_few(pool: &Pool) -> (Connection, Instant) {
    let config = Config { nagle: false, ..Config::default() };
    let (mut connection, now) = established(pool, config);
    assert_eq!(connection.write(pool, b"0"), Ok(1));
    assert_eq!(drain(&mut connection, now, pool).len(), 1);
    acknowledge(&mut connection, now, pool, 2);
    let used = pool.stats().used_frames;
    let segment = connection.write_plain(now, pool, 100, b"abc").expect("a plain segment");
    assert_eq!((segment.payload.head(), segment.header.seq.0), (&b"abc"[..], 2));
    assert_eq!(pool.stats().used_frames, used + 1, "that of the segment");
    let stats = connection.queue_stats().0;
    assert_eq!((stats.bytes, stats.held_bytes), (3, 0));
    assert!(connection.write_plain(now, pool, 100, b"d").is_none(), "there is something");
    (connection, now)
}

fn acknowledge(connection: &mut Connection, now: Instant, pool: &Pool, to: u32) {
    connection.on_segment(now, &header(1, to, TcpFlags::ACK), Payload::None, 0, pool);
}

/// What is sent next, put together; the first number.
fn sent(connection: &mut Connection, now: Instant, pool: &Pool) -> (u32, Vec<u8>) {
    let segments = drain(connection, now, pool);
    let payloads = segments.iter().filter_map(|segment| segment.payload.as_ref());
    let bytes = payloads.flat_map(|payload| payload.slices().flatten().copied()).collect();
    (segments.first().map_or(0, |segment| segment.header.seq.0), bytes)
}

/// What is sent again once its time is over, which it is `now` then.
fn sent_again(connection: &mut Connection, now: &mut Instant, pool: &Pool) -> (u32, Vec<u8>) {
    *now = connection.next_deadline().expect("something is outstanding");
    connection.on_timer(*now);
    sent(connection, *now, pool)
}

#[test]
fn they_are_sent_again() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let (mut connection, mut now) = with_few(&pool);
    assert_eq!(sent_again(&mut connection, &mut now, &pool), (2, b"abc".to_vec()));
    acknowledge(&mut connection, now, &pool, 5);
    assert_eq!(connection.unacknowledged_bytes(), 0);
    assert_eq!(pool.stats().used_frames, 0);
}

#[test]
fn what_is_left_of_them_is_sent_again() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let (mut connection, mut now) = with_few(&pool);
    acknowledge(&mut connection, now, &pool, 4);
    assert_eq!(connection.unacknowledged_bytes(), 1);
    assert_eq!(sent_again(&mut connection, &mut now, &pool), (4, b"c".to_vec()));
}

#[test]
fn what_is_written_later_lies_behind_them() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let packet = || Packet::from_slice(&pool, 0, b"ghi").expect("a frame");
    type Write<'a> = &'a dyn Fn(&mut Connection);
    let writes: [(Write, &[u8]); 3] = [
        (&|end| assert_eq!(end.write(&pool, b"def"), Ok(3)), b"def"),
        (&|end| assert!(end.write_packet(&pool, packet()).is_ok()), b"ghi"),
        (&|end| assert_eq!(end.write(&pool, &[7; 3000]), Ok(3000)), &[7; 3000]),
    ];
    for (write, bytes) in writes {
        let (mut connection, mut now) = with_few(&pool);
        write(&mut connection);
        assert_eq!(sent(&mut connection, now, &pool), (5, bytes.to_vec()));
        acknowledge(&mut connection, now, &pool, 3);
        let all = [b"bc", bytes].concat();
        assert_eq!(connection.unacknowledged_bytes(), all.len());
        // A probe has the last segment, the time-out then the first.
        sent_again(&mut connection, &mut now, &pool);
        let (start, again) = sent_again(&mut connection, &mut now, &pool);
        assert_eq!((start, &again[..]), (3, &all[..again.len()]));
        assert!(again.len() > 2);
        acknowledge(&mut connection, now, &pool, 5 + bytes.len() as u32);
        assert_eq!(connection.unacknowledged_bytes(), 0);
    }
}

/// They take a frame when more is written: without one nothing is, and nothing is lost.
#[test]
fn without_a_frame_nothing_is_written_behind_them() {
    let pool = Pool::new(PoolConfig::fixed(64)).expect("a pool");
    let packet = Packet::from_slice(&pool, 0, b"ghi").expect("a frame");
    let (mut connection, now) = with_few(&pool);
    let all: Vec<Packet> = std::iter::from_fn(|| pool.alloc(0)).collect();
    assert_eq!(connection.write(&pool, b"def"), Err(ConnError::NoMemory));
    let refused = connection.write_packet(&pool, packet).expect_err("no frame");
    assert_eq!(refused.why, ConnError::NoMemory);
    assert_eq!(connection.unacknowledged_bytes(), 3);
    drop(all);
    assert!(connection.write_packet(&pool, refused.packet).is_ok());
    assert_eq!(sent(&mut connection, now, &pool), (5, b"ghi".to_vec()));
    acknowledge(&mut connection, now, &pool, 8);
    assert_eq!((connection.unacknowledged_bytes(), pool.stats().used_frames), (0, 0));
}
