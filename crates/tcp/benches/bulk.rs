//! The cost of the machine by itself: one connection sends to another, nothing between them. Prints
//! the time per segment on the wire (both ends, data and ACKs together) and the rate that would be.

use core::net::SocketAddr;
use core::time::Duration;
use std::time::Instant as Clock;

use millstream_packet::{Instant, PacketBatch, Pool, PoolConfig};
use millstream_tcp::{Config, Connection, FourTuple, Payload, PayloadSource, TransmitLimits};
use millstream_wire::tcp::SeqNumber;

/// Buffers of 1 MiB: what is in flight stays in the cache, so that the machine is measured and not
/// the memory.
fn config() -> Config {
    Config::default().recv_buffer_bytes(1 << 20).send_buffer_bytes(1 << 20)
}

fn pair(now: Instant) -> (Connection, Connection) {
    let ends = [SocketAddr::from(([10, 0, 0, 1], 1)), SocketAddr::from(([10, 0, 0, 2], 2))];
    let forth = FourTuple { local: ends[0], remote: ends[1] };
    let back = FourTuple { local: ends[1], remote: ends[0] };
    let mut a = Connection::connect(config(), forth, SeqNumber(1), 0, now);
    let pool = Pool::new(PoolConfig::default()).expect("pool");
    let (limits, mut batch) = (TransmitLimits::ONE, PacketBatch::new());
    let syn = a.poll(now, &pool, &limits, &mut batch).expect("SYN");
    let mut b = Connection::accept(config(), back, SeqNumber(2), 0, &syn.header, now);
    let answer = b.poll(now, &pool, &limits, &mut batch).expect("SYN-ACK");
    a.on_segment(now, &answer.header, Payload::None, 0, &pool);
    let ack = a.poll(now, &pool, &limits, &mut batch).expect("ACK");
    b.on_segment(now, &ack.header, Payload::None, 0, &pool);
    (a, b)
}

/// Moves `total` bytes; only the machine's own calls are timed, not writing and reading.
fn bulk(name: &str, limits: TransmitLimits, total: u64) {
    let pool =
        Pool::new(PoolConfig { initial_frames: 65_536, ..PoolConfig::default() }).expect("pool");
    let mut now = Instant::from_nanos(1_000_000_000);
    let (mut a, mut b) = pair(now);
    let source = vec![7u8; 1 << 16];
    let (mut moved, mut machine) = (0u64, Duration::ZERO);
    let whole = Clock::now();
    let mut in_flight = Vec::with_capacity(4096);
    let (mut batch, mut none) = (PacketBatch::new(), PacketBatch::new());
    while moved < total {
        while a.write(&pool, &source).is_ok_and(|n| n == source.len()) {}
        let begin = Clock::now();
        while let Some(segment) = a.poll(now, &pool, &limits, &mut batch) {
            in_flight.push((segment, batch.pop()));
        }
        now += Duration::from_micros(20);
        let mut acks = [const { None }; 64];
        for chunk in in_flight.chunks_mut(32) {
            let mut count = 0;
            for (segment, payload) in chunk {
                b.on_segment(now, &segment.header, payload.take().into(), 0, &pool);
                if let Some(ack) = b.poll(now, &pool, &limits, &mut none) {
                    acks[count] = Some(ack.header);
                    count += 1;
                }
            }
            for ack in acks.iter_mut().take(count) {
                if let Some(ack) = ack.take() {
                    a.on_segment(now, &ack, Payload::None, 0, &pool);
                }
            }
        }
        in_flight.clear();
        machine += begin.elapsed();
        while let Ok(Some(packet)) = b.read_packet(1 << 16, &pool) {
            moved += packet.len() as u64;
        }
        if let Some(update) = b.poll(now, &pool, &limits, &mut none) {
            a.on_segment(now, &update.header, Payload::None, 0, &pool);
        }
        if a.next_deadline().is_some_and(|at| at <= now) {
            a.on_timer(now);
        }
        if b.next_deadline().is_some_and(|at| at <= now) {
            b.on_timer(now);
        }
    }
    let info = a.info();
    let per_segment = machine.as_nanos() as f64 / info.data_segments_out as f64;
    let rate = moved as f64 * 8.0 / machine.as_secs_f64() / 1e9;
    let all = moved as f64 * 8.0 / whole.elapsed().as_secs_f64() / 1e9;
    println!(
        "{name:28} {per_segment:7.1} ns a segment, machine {rate:7.1} Gb/s, with writing and reading {all:6.1} Gb/s; \
         retransmits {} cwnd {} acks {}",
        info.retransmits, info.cwnd_bytes, info.segments_in
    );
}

fn main() {
    let gigabyte = 1 << 30;
    // `cargo bench --bench bulk -- MSS` runs what has MSS in its name
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    for (name, super_segment_bytes, payload) in [
        ("64 KB, views", 65_000, PayloadSource::View),
        ("MSS, views", 0, PayloadSource::View),
        ("MSS, frames", 0, PayloadSource::Frames { headroom: 128 }),
    ] {
        if !name.contains(&wanted) {
            continue;
        }
        bulk(name, TransmitLimits { super_segment_bytes, segments: 1, payload }, 4 * gigabyte);
    }
}
