//! Captures that the tests make, and what comes of them.

mod check;
mod replay;
mod trace;

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use millstream_link::offload::complete_checksum;
use millstream_link::testing::{Shape, bytes, pool};
use millstream_link::{Link, LinkError, Medium, PairConfig, pair};
use millstream_packet::{Instant, Packet, PacketBatch};
use millstream_wire::ethernet::MacAddr;

use crate::{Direction, Pace, Replay, ReplayConfig, Trace, TraceConfig};

/// A writer whose bytes the test can see, or that fails from the beginning.
#[derive(Clone, Default)]
struct Sink {
    bytes: Arc<Mutex<Vec<u8>>>,
    fails: Arc<Mutex<bool>>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if *self.fails.lock().unwrap() {
            return Err(io::Error::other("disk full"));
        }
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Three packets received 10 ms apart, then one sent, as `Trace` writes them; and their bytes.
fn captured(medium: Medium, snap_bytes: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let pool = pool();
    let sink = Sink::default();
    let (mut a, b) = pair(PairConfig { medium, ..PairConfig::default() }).unwrap();
    let config = TraceConfig { snap_bytes, epoch_ns: 1_700_000_000_000_000_000 };
    let mut b = Trace::new(b, sink.clone(), config).unwrap();
    let mut all = Vec::new();
    for (i, len) in [700, 20_000, 3].into_iter().enumerate() {
        let shape = Shape {
            medium,
            segment: (len > 1400).then_some(1400),
            ..Shape::new(i == 0, true, vec![i as u8; len])
        };
        let mut batch = PacketBatch::new();
        batch.push(shape.build(&pool)).unwrap();
        let mut whole = shape.build(&pool);
        complete_checksum(&mut whole, &pool).unwrap();
        all.push(bytes(&whole));
        a.transmit(Instant::ZERO, &pool, &mut batch).unwrap();
        b.receive(Instant::from_millis(500 + 10 * i as u64), &pool, &mut batch).unwrap();
        if i == 2 {
            b.transmit(Instant::from_millis(600), &pool, &mut batch).unwrap();
        }
    }
    (sink.bytes.lock().unwrap().clone(), all)
}

fn replay(file: Vec<u8>, config: ReplayConfig) -> Result<Replay<Cursor<Vec<u8>>>, LinkError> {
    Replay::seekable(Cursor::new(file), "test".into(), config)
}

fn receive(link: &mut impl Link, now: Instant) -> Vec<Packet> {
    let mut batch = PacketBatch::new();
    let count = link.receive(now, &pool(), &mut batch).unwrap();
    assert_eq!(count, batch.len());
    batch.drain().collect()
}

/// A replay in which every packet is due at once.
const FAST: ReplayConfig = ReplayConfig {
    pace: Pace::Fast,
    direction: Some(Direction::In),
    mac: MacAddr([0; 6]),
    mtu: 1500,
    rounds: Some(1),
};

/// A block of pcap-ng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes(), &len, body, &len].concat()
}

/// The header of a section.
fn section() -> Vec<u8> {
    let magic = 0x1a2b_3c4d_u32.to_le_bytes();
    block(0x0a0d_0d0a, &[&magic[..], &[1, 0, 0, 0], &[0xff; 8]].concat())
}

/// A pcap file of the older format.
fn classic(is_big: bool, magic: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    classic_of(1, is_big, magic, packets)
}

fn classic_of(link: u32, is_big: bool, magic: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    let put = |file: &mut Vec<u8>, value: u32| {
        file.extend_from_slice(&if is_big { value.to_be_bytes() } else { value.to_le_bytes() });
    };
    for value in [magic, 0x0002_0004, 0, 0, 65_535, link] {
        put(&mut file, value);
    }
    for (seconds, part, bytes) in packets {
        for value in [*seconds, *part, bytes.len() as u32, bytes.len() as u32] {
            put(&mut file, value);
        }
        file.extend_from_slice(bytes);
    }
    file
}
