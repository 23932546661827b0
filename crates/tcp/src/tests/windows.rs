//! Receive buffers and the windows that are offered of them.

use core::time::Duration;

use millstream_packet::{Instant, Packet};
use millstream_wire::tcp::{SeqNumber, TcpFlags, Timestamps};

use super::alone::{drain, established, established_after, header, placed, receive};
use super::harness::{LIMITS, pool, tuple};
use crate::*;

#[test]
fn a_larger_receive_buffer_is_filled() {
    let pool = pool();
    let config = Config { recv_buffer_bytes: 64 << 10, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    connection.set_buffers(Some(8 << 20), None);
    let mut seq = 1u32;
    for _ in 0..200 {
        let packet = Packet::from_slice(&pool, 0, &[1; 1460]).expect("a frame");
        connection.on_segment(
            now,
            &header(seq, 1, TcpFlags::ACK),
            Payload::Packet(packet),
            0,
            &pool,
        );
        seq += 1460;
        drain(&mut connection, now, &pool);
    }
    assert_eq!(connection.info().memory_drops, 0);
    assert_eq!(connection.receiving.rcv.queue().len(), 200 * 1460);
}

#[test]
fn the_window_follows_a_buffer_that_is_set_though_nobody_reads() {
    let pool = pool();
    let rtt = Duration::from_micros(20);
    let (mut connection, now) = established_after(&pool, Config::default(), rtt);
    let mut seq = 1;
    (0..4).for_each(|_| receive(&mut connection, now, &pool, &mut seq, 1460));
    let before = connection.info().rcv_wnd_bytes;
    assert!(before < 1 << 20, "on so short a path: {before}");
    connection.set_buffers(Some(8 << 20), None);
    assert_eq!(drain(&mut connection, now, &pool).len(), 1, "the peer is told");
    let offered = connection.info().rcv_wnd_bytes;
    assert!((4 << 20..8 << 20).contains(&offered), "{offered}");
    while connection.info().rcv_wnd_bytes >= 60_000 {
        receive(&mut connection, now, &pool, &mut seq, 60_000);
    }
    assert!(connection.receiving.rcv.queue().len() > 4 << 20, "{seq}");
}

#[test]
fn a_buffer_that_is_set_leaves_the_other_to_tuning() {
    let pool = pool();
    for (recv, send) in [(None, Some(64 << 10)), (Some(64 << 10), None)] {
        let config = Config { initial_window_segments: 200, ..Config::default() };
        let (mut connection, mut now) = established(&pool, config);
        connection.set_buffers(recv, send);
        let before = connection.info();
        let mut seq = 1;
        // Half a megabyte a round trip is read, and asks for a window of more.
        for _ in 0..800 {
            let packet = Packet::from_slice(&pool, 0, &[1; 1460]).expect("a frame");
            let mut segment = header(seq, 1, TcpFlags::ACK);
            // of an ACK of a millisecond ago
            let echo = (now.as_nanos() / 1_000_000) as u32 - 1;
            segment.options.timestamps = Some(Timestamps { value: 1, echo });
            connection.on_segment(now, &segment, Payload::Packet(packet), 0, &pool);
            seq += 1460;
            connection.read(&mut [0; 1460]).expect("data");
            now += Duration::from_micros(20);
            drain(&mut connection, now, &pool);
        }
        let after = connection.info();
        assert_eq!(after.recv_limit_bytes > before.recv_limit_bytes, recv.is_none());
        assert_ne!(
            after.rcv_space_bytes, 0,
            "what is read in a round trip is measured in any case"
        );

        // Three windows of 200 segments are more than a buffer begins with.
        connection.write(&pool, &[2; 1460]).expect("room");
        drain(&mut connection, now, &pool);
        now += Duration::from_millis(10);
        connection.on_segment(now, &header(seq, 1461, TcpFlags::ACK), Payload::None, 0, &pool);
        let grown = connection.info().send_limit_bytes > before.send_limit_bytes;
        assert_eq!(grown, send.is_none());
    }
}

#[test]
fn placed_data_take_nothing_off_the_window() {
    let pool = pool();
    let config =
        Config { recv_auto_tune: false, recv_buffer_bytes: 256 << 10, ..Config::default() };
    let (mut connection, now) = established(&pool, config);
    let before = connection.info().rcv_wnd_limit_bytes;
    for at in 0..100 {
        let segment = header(1 + at * 1000, 1, TcpFlags::ACK);
        let taken = connection.on_segment(now, &segment, placed(&[1; 1000]), 0, &pool);
        assert_eq!(taken, 1000, "segment {at}");
        drain(&mut connection, now, &pool);
    }
    let after = connection.info().rcv_wnd_limit_bytes;
    assert!(after > before && after > 240 << 10, "{before} and then {after} bytes");
}

#[test]
fn a_buffer_is_used_as_far_as_the_path_and_the_others_make_it_worth() {
    const MIB: u64 = 1 << 20;
    let pool = pool();
    let config =
        || Config { recv_buffer_bytes: 64 << 20, recv_auto_tune: false, ..Config::default() };
    // A round trip of 10 ms carries 125 MB at the rate that tuning reckons with: more than the
    // buffer.
    let (mut connection, now) = established(&pool, config());
    let mut seq = 1;
    (0..4).for_each(|_| receive(&mut connection, now, &pool, &mut seq, 1460));
    let offered = connection.info().rcv_wnd_bytes;
    assert!((16 * MIB..64 * MIB).contains(&offered), "alone: {offered}");
    // Others come: what was offered stays offered, and is not added to.
    connection.set_sharers(1000);
    let mut edge = offered + u64::from(seq);
    for _ in 0..100 {
        receive(&mut connection, now, &pool, &mut seq, 60_000);
        while connection.read(&mut [0; 4096]).is_ok() {}
        drain(&mut connection, now, &pool);
        // The window field counts in steps of 2 KiB and is rounded up.
        let now = connection.info().rcv_wnd_bytes + u64::from(seq);
        assert!(now >= edge && now - edge <= 1 << 11, "{edge} {now}");
        edge = now;
    }
    // Once that is used up, it is offered its share.
    for _ in 0..800 {
        receive(&mut connection, now, &pool, &mut seq, 60_000);
        while connection.read(&mut [0; 4096]).is_ok() {}
        drain(&mut connection, now, &pool);
    }
    let offered = connection.info().rcv_wnd_bytes;
    assert!((32 * 1024..256 * 1024).contains(&offered), "one of a thousand: {offered}");
}

#[test]
fn a_shared_window_ends_where_super_segments_of_the_peer_do() {
    const SEGMENT: usize = 1460;
    const BURST: usize = 44 * SEGMENT;
    // By how much its send buffers are out of step with the window at first.
    for skew in [0, 1, 3000, BURST / 2] {
        let pool = pool();
        let config =
            Config { recv_buffer_bytes: 64 << 20, recv_auto_tune: false, ..Config::default() };
        let (mut connection, now) = established(&pool, config);
        connection.set_sharers(1000);
        let (mut seq, mut cut) = (1, Vec::new());
        (0..4).for_each(|_| receive(&mut connection, now, &pool, &mut seq, SEGMENT));
        let mut left = BURST - skew;
        for _ in 0..2000 {
            // It sends what the window allows of the buffer, and no part of a segment but the last.
            let room = connection.info().rcv_wnd_bytes as usize;
            let part = if room < left { room / SEGMENT * SEGMENT } else { left };
            assert_ne!(part, 0, "all was read: {room}");
            receive(&mut connection, now, &pool, &mut seq, part);
            while connection.read(&mut [0; 4096]).is_ok() {}
            drain(&mut connection, now, &pool);
            left = if part == left { BURST } else { left - part };
            cut.push(part < BURST);
        }
        let offered = connection.info().rcv_wnd_bytes as usize;
        assert!((2 * BURST..=256 * 1024).contains(&offered), "{skew}: {offered}");
        assert!(cut[1500..].iter().all(|cut| !cut), "{skew}");
    }
}

/// Reads all that came after each `burst` bytes; the window offered after so many bursts.
fn window_after(bursts: u32, burst: usize) -> u64 {
    let pool = pool();
    let config = Config { recv_buffer_bytes: 64 << 20, recv_auto_tune: false, ..Config::default() };
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let mut connection = Connection::connect(config, tuple(0, false), SeqNumber(0), 0, now);
    connection.poll_one(now, &pool, &LIMITS).expect("SYN");
    now += Duration::from_micros(20);
    let mut answer = header(0, 1, TcpFlags::SYN_ACK);
    answer.options.window_scale = Some(8);
    answer.options.mss = Some(1460);
    connection.on_segment(now, &answer, Payload::None, 0, &pool);
    drain(&mut connection, now, &pool);
    let mut seq = 1;
    for _ in 0..bursts {
        // one batch: acknowledged when all of it is here
        let mut left = burst;
        while left > 0 {
            let len = left.min(60_000);
            let packet = Packet::from_slice(&pool, 0, &vec![7; len]).expect("frames");
            let segment = header(seq, 1, TcpFlags::ACK);
            connection.on_segment(now, &segment, Payload::Packet(packet), 0, &pool);
            seq += len as u32;
            left -= len;
        }
        while connection.read(&mut [0; 4096]).is_ok() {}
        drain(&mut connection, now, &pool);
    }
    connection.info().rcv_wnd_bytes
}

#[test]
fn a_window_on_a_short_path_grows_only_when_it_runs_empty() {
    let (kept, grown) = (window_after(200, 120_000), window_after(200, 480_000));
    assert!((256 << 10..1 << 20).contains(&kept), "what comes never uses it up: {kept}");
    assert!((1 << 20..3 << 20).contains(&grown), "used up at first: {grown}");
}
