//! Random paths and random segments: nothing panics, nothing grows without bound, everything
//! arrives.

use core::time::Duration;

use millstream_packet::{Instant, Packet};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, Timestamps};

use super::harness::{Net, Path, Random, pool, tuple};
use crate::*;

fn random_path(random: &mut Random) -> Path {
    let bad = |random: &mut Random, most: f64| match random.below(3) {
        0 => 0.0,
        _ => most * (random.below(100) as f64) / 100.0,
    };
    let super_segment_bytes = [0, 65_000, 200_000][random.below(3) as usize];
    Path {
        delay: Duration::from_micros(random.below(50_000)),
        jitter: Duration::from_micros(random.below(3) * random.below(10_000)),
        loss: bad(random, 0.25),
        duplicate: bad(random, 0.2),
        reorder: bad(random, 0.5),
        late: Duration::from_micros(random.below(40_000)),
        rate_bits_per_s: random.below(2) * (1 << (18 + random.below(10))),
        queue_bytes: super_segment_bytes as u64 + 70_000 + random.below(100_000),
        mark_bytes: 0,
        super_segment_bytes,
        merge: random.below(2) == 0,
        view: random.below(2) == 0,
        placed: false,
        largest: 0,
        wake_late: Duration::ZERO,
    }
}

fn random_config(random: &mut Random) -> Config {
    let on = |random: &mut Random| random.below(4) > 0;
    Config {
        mss: [1460, 536, 1220, 8960, 200][random.below(5) as usize],
        recv_buffer_bytes: 8192 << random.below(8),
        send_buffer_bytes: 8192 << random.below(8),
        recv_auto_tune: on(random),
        send_auto_tune: on(random),
        nagle: on(random),
        delayed_ack_ms: random.below(3) as u16 * 40,
        window_scale: on(random),
        timestamps: on(random),
        sack: on(random),
        congestion: match random.below(4) {
            0 => CongestionKind::CUBIC,
            1 => CongestionKind::BBR,
            2 => super::bbr1(),
            _ => CongestionKind::NEW_RENO,
        },
        keepalive: (random.below(3) == 0).then_some(Keepalive {
            idle_s: 1,
            interval_s: 1,
            probes: 200,
        }),
        // the channel may be worse than any that should be given up
        retries: 200,
        syn_retries: 60,
        syn_ack_retries: 60,
        ..Config::default()
    }
}

/// Much data over one random path, and what has become of both ends.
pub(super) fn transfer(seed: u64) -> Net {
    let mut random = Random(seed);
    let mut net = Net::new(random_path(&mut random), seed);
    net.configs = [random_config(&mut random), random_config(&mut random)];
    net.isns = [random.next() as u32, random.next() as u32];
    net.v6 = random.below(2) == 0;
    // drawn aside, so that earlier seeds go on meaning what they did
    let mut aside = Random(seed ^ 0xec);
    net.path.mark_bytes = aside.below(2) * (1 + aside.below(30_000));
    net.path.placed = seed.is_multiple_of(3);
    for config in &mut net.configs {
        config.pacing = aside.below(4) == 0;
        config.ecn = [EcnMode::Off, EcnMode::Accept, EcnMode::Request][aside.below(3) as usize];
    }
    for side in &mut net.sides {
        if random.below(4) == 0 {
            side.read_chunk = 1 + random.below(5000) as usize;
        }
    }
    let bytes = [random.below(60_000), 1 + random.below(60_000)];
    net.connect(0);
    if random.below(5) == 0 {
        net.connect(1);
    }
    net.transfer(bytes, Duration::from_secs(100_000));
    net
}

/// `MILLSTREAM_PATH_SEED=N` runs one.
#[test]
fn transfers_over_random_paths() {
    let only: Option<u64> = std::env::var("MILLSTREAM_PATH_SEED").ok().and_then(|n| n.parse().ok());
    for seed in only.map_or(1..121, |seed| seed..seed + 1) {
        if let Err(cause) = std::panic::catch_unwind(|| transfer(seed)) {
            eprintln!("seed {seed} failed");
            std::panic::resume_unwind(cause);
        }
    }
}

/// A segment near what the connection expects, or far from it.
fn random_segment(random: &mut Random, ours: u32, theirs: u32) -> (TcpHeader, usize) {
    let near = |random: &mut Random, base: u32| match random.below(8) {
        0 => random.next() as u32,
        1..4 => base,
        4 => base.wrapping_sub(random.below(3000) as u32),
        _ => base.wrapping_add(random.below(20_000) as u32),
    };
    let flags = match random.below(12) {
        0 => random.next() as u8,
        1 => 0x11,
        2 => 0x12,
        3 => 0x04,
        4 => 0x02,
        _ => 0x10,
    };
    let mut header = TcpHeader {
        src_port: 1002,
        dst_port: 1001,
        seq: SeqNumber(near(random, theirs)),
        ack: SeqNumber(near(random, ours)),
        flags: TcpFlags(flags),
        window: [0, 1, 500, 65_535][random.below(4) as usize],
        ..TcpHeader::default()
    };
    if random.below(5) > 0 {
        header.options.timestamps =
            Some(Timestamps { value: random.below(100) as u32, echo: random.below(5000) as u32 });
    }
    for _ in 0..random.below(4) {
        let left = near(random, ours);
        let right = left.wrapping_add(random.below(5000) as u32);
        let _ = header.options.sack.push(SeqNumber(left), SeqNumber(right));
    }
    header.options.mss = (random.below(4) == 0).then(|| random.next() as u16);
    header.options.window_scale = (random.below(4) == 0).then(|| random.below(15) as u8);
    header.options.sack_permitted = random.below(2) == 0;
    let len = [0, 0, 1, 1448, 20_000][random.below(5) as usize];
    (header, len)
}

/// Throws segments at a connection, with calls of the application in between.
fn bombard(seed: u64, steps: usize) {
    let mut random = Random(seed);
    let pool = pool();
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let config = Config {
        recv_buffer_bytes: 100_000,
        send_buffer_bytes: 100_000,
        keepalive: seed.is_multiple_of(3).then(Keepalive::default),
        ..Config::default()
    };
    let (our_isn, their_isn) = (random.next() as u32, random.next() as u32);
    let mut syn = TcpHeader {
        seq: SeqNumber(their_isn),
        flags: TcpFlags::SYN,
        window: 5000,
        ..TcpHeader::default()
    };
    syn.options.sack_permitted = true;
    syn.options.timestamps = Some(Timestamps { value: 1, echo: 0 });
    let mut connection = match seed % 2 {
        0 => Connection::connect(config, tuple(0, false), SeqNumber(our_isn), 0, now),
        _ => Connection::accept(config, tuple(0, false), SeqNumber(our_isn), 0, &syn, now),
    };
    let (mut ours, mut theirs) = (our_isn.wrapping_add(1), their_isn.wrapping_add(1));
    let limits = TransmitLimits { super_segment_bytes: 65_000, ..TransmitLimits::ONE };
    for _ in 0..steps {
        match random.below(20) {
            0 => {
                let _ = connection.write(&pool, &[1; 5000]);
            }
            1 => {
                let _ = connection.read(&mut [0; 3000]);
            }
            2 if random.below(20) == 0 => connection.shutdown_write(),
            3 if random.below(60) == 0 => connection.close(),
            4 => now += Duration::from_millis(random.below(3000)),
            _ => {}
        }
        if connection.next_deadline().is_some_and(|at| at <= now) {
            connection.on_timer(now);
        }
        let (header, len) = random_segment(&mut random, ours, theirs);
        let payload =
            (len > 0).then(|| Packet::from_slice(&pool, 0, &vec![0; len]).expect("frames"));
        connection.on_segment(now, &header, payload.into(), 0, &pool);
        let mut out = 0;
        while let Some(segment) = connection.poll_one(now, &pool, &limits) {
            let sent = segment.header.sequence_len(segment.payload_len as usize);
            ours = (segment.header.seq + sent).0;
            if segment.header.flags.ack() {
                theirs = segment.header.ack.0;
            }
            out += 1;
            assert!(out < 1000, "never stops sending");
        }
        let info = connection.info();
        assert!(info.recv_queue_held_bytes <= 250_000, "{info:?}");
        assert!(info.send_queue_held_bytes <= 120_000, "{info:?}");
        if connection.is_closed() {
            return;
        }
    }
}

#[test]
fn segments_in_every_state() {
    for seed in 0..500 {
        if let Err(cause) = std::panic::catch_unwind(|| bombard(seed, 200)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(cause);
        }
    }
}
