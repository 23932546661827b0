//! Segments that no frame holds: their bytes are copied when they are written and when they are
//! read, and not between.

use std::time::Duration;

use millstream::link::PairConfig;
use millstream_packet::FRAME_SIZE_BYTES;

use crate::common::{self, two};

const MTU: usize = 9000;
/// With timestamps.
const PART: usize = MTU - 52;

#[test]
fn jumbo_segments_are_sent_from_where_they_were_written_and_copied_to_their_reader() {
    let link = PairConfig { offload: false, mtu: MTU, ..PairConfig::default() };
    let (mut near, mut far) = two(link);
    let listener = far.sockets().tcp_listen("10.9.0.2:9".parse().unwrap(), 1).unwrap();
    let from = near.sockets().tcp_connect("10.9.0.2:9".parse().unwrap()).unwrap();
    common::settle(&mut near, &mut far);
    let to = far.listener(listener).accept().unwrap().0;
    let mut sink = vec![0; 1 << 20];
    let mut time = near.now().max(far.now());
    let (count, mut last) = (4, 0);
    for round in 0..40_u32 {
        // Calls that end within segments, too.
        let len = if round % 4 == 3 { count * PART - 3000 } else { count * PART };
        let data: Vec<u8> = (0..len as u32).map(|at| (at / 3 + at / 509 + round) as u8).collect();
        let used = near.pool().stats().used_frames;
        assert_eq!(near.tcp(from).write(&data), Ok(len));
        near.turn(time);
        last = near.pool().stats().used_frames - used;
        let mut got = Vec::new();
        while got.len() < len {
            time += Duration::from_micros(100);
            let (_, read) = far.turn_reading(time, to, &mut sink);
            got.extend_from_slice(&sink[..read]);
            while let Ok(read) = far.tcp(to).read(&mut sink) {
                got.extend_from_slice(&sink[..read]);
            }
            near.turn(time);
        }
        assert!(got == data, "round {round}");
        common::settle(&mut near, &mut far);
    }
    // One copy of the bytes, wherever they are.
    let frames = (PART + 200).div_ceil(FRAME_SIZE_BYTES);
    assert!(last <= count * frames + 1, "{last} frames for {count} segments");
    assert_eq!(near.tcp(from).info().unwrap().retransmits, 0);
}
