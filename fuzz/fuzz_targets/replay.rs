//! A capture of any bytes, replayed at any pace, so many times over or without end. Beyond not
//! panicking: each call ends, gives what it says, and no frame is lost.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use millstream::link::Link;
use millstream::packet::{Instant, PacketBatch, Pool, PoolConfig};
use millstream_capture::{Direction, Pace, Replay, ReplayConfig};
use millstream_fuzz::Input;

/// Calls for one capture, which may be endless.
const CALLS: usize = 100;

thread_local! {
    static POOL: Pool = Pool::new(PoolConfig { prefault: false, ..PoolConfig::fixed(2048) }).expect("a pool");
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (choice, rounds, percent) = (input.byte(), input.byte(), input.short());
    let config = ReplayConfig {
        pace: match choice & 3 {
            0 => Pace::Recorded,
            1 => Pace::Scaled { percent: percent.into() },
            _ => Pace::Fast,
        },
        direction: match choice >> 2 & 3 {
            0 => Some(Direction::In),
            1 => Some(Direction::Out),
            _ => None,
        },
        mtu: if choice & 16 == 0 { 1500 } else { 68 },
        rounds: (rounds != 0).then(|| rounds.into()),
        ..ReplayConfig::default()
    };
    POOL.with(|pool| {
        let capture = Cursor::new(input.0);
        let Ok(mut link) = Replay::seekable(capture, "any".into(), config) else { return };
        let (mut now, mut batch) = (Instant::from_millis(1), PacketBatch::new());
        for _ in 0..CALLS {
            if link.is_finished() {
                break;
            }
            let Ok(count) = link.receive(now, pool, &mut batch) else { break };
            assert_eq!(count, batch.len());
            assert!(batch.iter().all(|packet| !packet.is_empty() && packet.meta().arrival == now));
            batch.clear();
            now = link.next_deadline().map_or(now, |due| now.max(due));
        }
        assert_eq!(pool.stats().used_frames, 0, "frames were lost");
    });
});
