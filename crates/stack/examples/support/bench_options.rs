//! What the benchmark is asked for.

use std::time::Duration;

use millstream::link::{Napi, NapiMode};

use crate::udp_pps;

/// See the text of the example.
pub struct Options {
    pub offload: bool,
    pub packets: bool,
    pub queued: bool,
    pub net: bool,
    pub same: bool,
    pub seconds: f64,
    pub rounds: u64,
    pub mtu: usize,
    pub buffer: usize,
    pub call: usize,
    pub calls: usize,
    pub busy_poll_us: u64,
    pub stages: u32,
    pub turn_bytes: usize,
    pub direct_bytes: usize,
    pub control: String,
    pub napi: NapiMode,
    pub rps: bool,
    pub io_uring: Option<bool>,
    pub udp: udp_pps::Options,
}

impl Options {
    /// Those that hold for `what` when nothing is said.
    fn of(what: &str) -> Self {
        Self {
            offload: what.starts_with("tap"),
            packets: false,
            queued: false,
            net: false,
            same: false,
            seconds: 2.0,
            rounds: u64::MAX,
            mtu: 1500,
            buffer: 4 << 20,
            call: 128 << 10,
            calls: 0,
            busy_poll_us: 50,
            stages: 0,
            turn_bytes: millstream::Limits::default().transmit_turn_bytes,
            direct_bytes: millstream::Limits::default().direct_read_bytes,
            control: "cubic".into(),
            napi: NapiMode::Auto,
            rps: true,
            io_uring: None,
            udp: udp_pps::Options::default(),
        }
    }

    /// Reads the words of the command line: what to measure, and how.
    ///
    /// # Errors
    /// With what was wrong.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<(String, Self), String> {
        let what = words.next().unwrap_or_default();
        let mut o = Self::of(&what);
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let mut number = || {
                words
                    .next_if(|next| !next.starts_with("--"))
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0)
            };
            match word.as_str() {
                "--offload" => o.offload = true,
                "--no-offload" => o.offload = false,
                "--packets" => o.packets = true,
                "--queued" => o.queued = true,
                "--net" => o.net = true,
                "--same" => o.same = true,
                "--seconds" => {
                    o.seconds = words.next().and_then(|word| word.parse().ok()).unwrap_or(o.seconds)
                }
                "--rounds" => o.rounds = number() as u64,
                "--mtu" => o.mtu = number(),
                "--buffer" => o.buffer = number(),
                "--call" => o.call = number(),
                "--calls" => o.calls = number(),
                "--stages" => o.stages = Some(number() as u32).filter(|&n| n != 0).unwrap_or(16),
                "--turn-bytes" => o.turn_bytes = number(),
                "--direct-bytes" => o.direct_bytes = number(),
                "--control" => o.control = words.next().unwrap_or_default(),
                "--busy-poll-us" => o.busy_poll_us = number() as u64,
                "--no-rps" => o.rps = false,
                "--io-uring" => o.io_uring = Some(true),
                "--no-io-uring" => o.io_uring = Some(false),
                "--link" => o.udp.link = words.next().unwrap_or_default(),
                "--direction" => o.udp.send = words.next().is_some_and(|word| word == "send"),
                "--drain" => o.udp.flood = false,
                "--payload" => o.udp.payload = number(),
                "--turns" => o.udp.rounds = number().max(1),
                "--napi" => match words.next().as_deref().map(napi) {
                    Some(Some(mode)) => o.napi = mode,
                    _ => return Err("--napi auto, off, inline:US or thread:US".to_owned()),
                },
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok((what, o))
    }
}

/// How the kernel is to poll the device, in words: `thread:50` holds segments back for 50 µs.
fn napi(text: &str) -> Option<NapiMode> {
    let (how, micros) = text.split_once(':').unwrap_or((text, "0"));
    let gro_flush = Duration::from_micros(micros.parse().ok()?);
    Some(match how {
        "auto" => NapiMode::Auto,
        "off" => NapiMode::Off,
        "inline" => NapiMode::On(Napi { threaded: false, gro_flush }),
        "thread" => NapiMode::On(Napi { threaded: true, gro_flush }),
        _ => return None,
    })
}
