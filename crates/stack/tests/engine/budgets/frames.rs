//! Frames that others hold, and release without a word.

use std::time::Duration;

use millstream::link::{PairConfig, pair};
use millstream::packet::{Packet, Pool, PoolConfig};
use millstream::tuning::RESERVE_PART;
use millstream::{DropReason, Engine, Error, SocketId, TcpHandle};

use super::settle;
use super::{addr, drain, turn};
use crate::common::device::Device;
use crate::common::{self, config, engine, pool};

/// An engine with few frames, another, and a connection between them.
fn poor(count: usize) -> (Pool, Engine, Engine, SocketId, SocketId) {
    let frames = Pool::new(PoolConfig::fixed(count)).expect("memory");
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let mut near = engine(config(&frames, 1), near, &common::NEAR);
    let mut far = engine(config(&pool(), 2), far, &common::FAR);
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), 1).expect("listen");
    let ours = near.sockets().tcp_connect(addr("10.9.0.2:80")).expect("connect");
    settle(&mut near, &mut far);
    let (theirs, _) = far.listener(listener).accept().expect("a connection");
    while near.next_event().is_some() {}
    (frames, near, far, ours, theirs)
}

fn all(frames: &Pool) -> Vec<Packet> {
    std::iter::from_fn(|| frames.alloc(0)).collect()
}

#[test]
fn who_was_refused_for_want_of_a_frame_hears_when_there_is_one() {
    type Write = fn(TcpHandle<'_>, &[u8]) -> Result<usize, Error>;
    let writes: [Write; 2] = [|mut of, data| of.write(data), |mut of, data| of.write_urgent(data)];
    for write in writes {
        let (frames, mut near, mut far, ours, theirs) = poor(256);
        let held = all(&frames);
        let refused = write(near.tcp(ours), &[3; 5000]);
        assert_eq!(refused, Err(Error::WouldBlock), "{} held", held.len());
        for _ in 0..3 {
            turn(&mut near);
            assert_eq!(near.next_event(), None);
        }
        assert_eq!(near.stats().write_starvations, 1);
        drop(held);
        let begun = std::time::Instant::now();
        while near.next_event().is_none() {
            near.run_once(Some(Duration::from_secs(30))).expect("a turn");
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        assert_eq!(write(near.tcp(ours), &[3; 5000]), Ok(5000));
        settle(&mut near, &mut far);
        assert_eq!(drain(&mut far, &[theirs]), [5000]);
    }
}

/// Nothing is made that finds no frame for its header: it would be lost, and sent again after a
/// time-out.
#[test]
fn an_end_without_data_waits_for_a_frame() {
    // So few that none is set aside.
    let (frames, mut near, mut far, ours, theirs) = poor(RESERVE_PART - 1);
    let held = all(&frames);
    let before = near.stats().tcp_tx_segments;
    near.tcp(ours).shutdown_write().expect("open");
    for _ in 0..3 {
        turn(&mut near);
    }
    assert_eq!(near.stats().tcp_tx_segments, before);
    assert_eq!(near.stats().dropped(DropReason::PoolExhausted), 0);
    drop(held);
    turn(&mut near);
    turn(&mut far);
    assert_eq!(far.tcp(theirs).read(&mut [0]), Ok(0), "the end");
}

/// The frames of what was written come back by ACKs, for which there have to be frames.
#[test]
fn those_who_write_until_there_is_no_frame_go_on_once_their_peers_read() {
    const CONNECTIONS: usize = 60;
    let (frames, wire) = (Pool::new(PoolConfig::fixed(2048)).expect("memory"), pool());
    let pair_config = PairConfig { offload: false, capacity: 4096, ..PairConfig::default() };
    let (end, far) = pair(pair_config).expect("a pair");
    let device = Device::new(end, wire.clone());
    let mut near = engine(config(&frames, 1), device, &common::NEAR);
    let mut far = engine(config(&wire, 2), far, &common::FAR);
    let listener = far.sockets().tcp_listen(addr("10.9.0.2:80"), CONNECTIONS).expect("listen");
    let connect =
        |near: &mut Engine| near.sockets().tcp_connect(addr("10.9.0.2:80")).expect("connect");
    let ours: Vec<SocketId> = (0..CONNECTIONS).map(|_| connect(&mut near)).collect();
    settle(&mut near, &mut far);
    let accepted = std::iter::from_fn(|| far.listener(listener).accept().ok());
    let theirs: Vec<SocketId> = accepted.map(|(id, _)| id).collect();
    let mut now = near.refresh_time().max(far.refresh_time());
    let mut turns = |near: &mut Engine, far: &mut Engine| {
        now += Duration::from_millis(1);
        near.turn(now);
        far.turn(now);
    };
    let mut written = 0_u64;
    for _ in 0..500 {
        for &id in &ours {
            written += near.tcp(id).write(&[7; 100_000]).unwrap_or(0) as u64;
        }
        turns(&mut near, &mut far);
    }
    assert!(near.stats().write_starvations > 0, "{written} bytes are no load");
    let mut read = 0_u64;
    for _ in 0..10_000 {
        read += drain(&mut far, &theirs).iter().sum::<u64>();
        turns(&mut near, &mut far);
    }
    assert_eq!(read, written, "{} frames are used", frames.stats().used_frames);
}
