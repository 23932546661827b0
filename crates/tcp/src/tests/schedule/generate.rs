//! Random schedules: small, and of every kind.

use super::plan::*;
use crate::tests::harness::Random;
use crate::*;

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

/// True once in `n`.
fn one_in(random: &mut Random, n: u64) -> bool {
    random.below(n) == 0
}

fn config(random: &mut Random) -> Config {
    let mut config = Config {
        mss: pick(random, &[1460, 1460, 536, 1220, 8960, 200]),
        recv_buffer_bytes: 8192 << random.below(6),
        send_buffer_bytes: 8192 << random.below(6),
        recv_auto_tune: !one_in(random, 3),
        send_auto_tune: !one_in(random, 3),
        nagle: !one_in(random, 3),
        delayed_ack_ms: pick(random, &[40, 40, 0, 200]),
        window_scale: !one_in(random, 4),
        timestamps: !one_in(random, 3),
        sack: !one_in(random, 3),
        ecn: pick(random, &[EcnMode::Off, EcnMode::Accept, EcnMode::Request]),
        mtu_probing: pick(random, &PROBINGS),
        pacing: one_in(random, 4),
        congestion: pick(random, &CONTROLS),
        initial_window_segments: pick(random, &[10, 10, 2, 1]),
        time_wait_ms: pick(random, &[60_000, 1000]),
        fin_wait_2_ms: pick(random, &[60_000, 1000]),
        min_rto_ms: pick(random, &[200, 200, 20, 1000]),
        ..Config::default()
    };
    if one_in(random, 12) {
        config.retries = 3 + random.below(5) as u8;
    }
    if one_in(random, 12) {
        config.user_timeout_ms = Some(1 + random.below(20_000) as u32);
    }
    if one_in(random, 16) {
        config.linger_s = Some(random.below(20) as u16);
    }
    if one_in(random, 8) {
        config.keepalive = keepalive(1 + random.below(100) as u32);
    }
    config
}

/// Bytes: mostly few, sometimes none or many.
fn size(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => 1,
        1..4 => 1 + random.below(600) as u32,
        4..7 => 1 + random.below(6000) as u32,
        _ => 1 + random.below(40_000) as u32,
    }
}

fn deed(random: &mut Random) -> Deed {
    match random.below(40) {
        0..20 => Deed::Write(size(random)),
        20..31 => Deed::Read(size(random)),
        31 => Deed::Shutdown,
        32 => Deed::Close,
        33 if one_in(random, 2) => Deed::CloseNow,
        33 => Deed::Abort,
        34 => Deed::Nodelay,
        35 if one_in(random, 3) => Deed::ShutdownRead,
        35 => Deed::RecvBuffer(pick(random, &[1, 8192, 20_000, 100_000])),
        36 => Deed::SendBuffer(pick(random, &[1, 8192, 20_000, 100_000])),
        37 => Deed::PathMtu(pick(random, &[68, 576, 1280, 1400])),
        38 => Deed::Keepalive(one_in(random, 2)),
        _ => Deed::Compact,
    }
}

fn actions(random: &mut Random) -> Vec<Action> {
    let span_us = pick(random, &[1, 20_000, 200_000, 3_000_000]);
    let mut actions: Vec<Action> = (0..1 + random.below(10))
        .map(|_| Action {
            at_us: random.below(span_us),
            end: random.below(2) as u8,
            deed: deed(random),
        })
        .collect();
    if one_in(random, 12) {
        // long silence: idle time-outs, keep-alive, raised segment sizes
        let pause_us = 1_000_000 * (1 + random.below(2000));
        let from = random.below(actions.len() as u64) as usize;
        actions.iter_mut().skip(from).for_each(|action| action.at_us += pause_us);
    }
    actions.sort_by_key(|action| action.at_us);
    actions
}

fn fate(random: &mut Random, delay_us: u64) -> Fate {
    let late = |random: &mut Random| match random.below(20) {
        0 => random.below(100_000_000),
        1..4 => random.below(1_000_000),
        _ => random.below(2 * delay_us + 2000),
    };
    match random.below(16) {
        0..6 => Fate::Lost,
        6..10 => Fate::Late(late(random)),
        10..12 => Fate::Twice(late(random)),
        12 => Fate::Cut(random.below(1400) as u32),
        13 => Fate::Split(1 + random.below(1400) as u32),
        _ => Fate::Marked,
    }
}

fn dooms(random: &mut Random, delay_us: u64) -> Vec<Doom> {
    let mut dooms = Vec::new();
    for end in 0..2 {
        // none, few, or a way on which little arrives
        let (once_in, among) = pick(random, &[(0, 0), (20, 150), (6, 60), (2, 30), (1, 12)]);
        for nth in 0..among {
            if one_in(random, once_in) {
                dooms.push(Doom { end, nth, fate: fate(random, delay_us) });
            }
        }
        if one_in(random, 8) {
            let from = random.below(40) as u32;
            let lost = from..from + 1 + random.below(12) as u32;
            dooms.retain(|doom| doom.end != end || !lost.contains(&doom.nth));
            dooms.extend(lost.map(|nth| Doom { end, nth, fate: Fate::Lost }));
        }
    }
    dooms
}

const OPENS: [Open; 9] = [
    Open::Listen,
    Open::Listen,
    Open::Queue,
    Open::Queue,
    Open::Cookie,
    Open::Both,
    Open::Ask,
    Open::Stale,
    Open::Early,
];

/// The schedule of `seed`.
pub fn generate(seed: u64) -> Schedule {
    let random = &mut Random(seed);
    let way = Way {
        delay_us: pick(random, &[0, 50, 1000, 10_000, 100_000]) + random.below(500),
        kbit_per_s: pick(random, &[0, 0, 0, 100, 2000, 50_000]),
        hole_bytes: if one_in(random, 24) { pick(random, &[1200, 1300, 1440]) } else { 0 },
        super_bytes: pick(random, &[0, 0, 4000, 65_000]),
        merge: one_in(random, 2),
        view: one_in(random, 2),
        parts: one_in(random, 3),
        v6: one_in(random, 2),
        tick_us: pick(random, &[0, 0, 0, 1000, 10_000]),
        batch_us: pick(random, &[0, 0, 0, 500]),
    };
    let mut end = || End {
        config: config(random),
        isn: match random.below(3) {
            0 => 0u32.wrapping_sub(random.below(20_000) as u32),
            _ => random.next() as u32,
        },
        eager: !one_in(random, 3),
    };
    let ends = [end(), end()];
    let open = pick(random, &OPENS);
    let actions = actions(random);
    let dooms = dooms(random, way.delay_us);
    Schedule { ends, open, way, actions, dooms }
}
