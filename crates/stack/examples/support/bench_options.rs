//! The options of the benchmark.

use std::time::Duration;

use millstream::link::{Napi, NapiMode};

use crate::udp_pps;
use crate::words::{at_least, fail, next, parsed, refuse, within};

/// Most bytes of a call, and of a buffer.
const MOST_BYTES: usize = 1 << 30;
/// Most bytes of a datagram's data in one packet of the links' MTU, 1,500 bytes.
const MOST_PAYLOAD: usize = 1472;

/// The least MTU over which something passes: a bulk segment has 88 bytes at least, and a datagram
/// here 64.
fn least_mtu(what: &str) -> usize {
    match what {
        "pair-rr" | "tap-rr" => 68,
        "pair-udp" => 92,
        _ => 128,
    }
}

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
    pub connected: usize,
    pub busy_poll_us: u64,
    pub stages: u32,
    pub live: Option<String>,
    pub turn_bytes: usize,
    pub direct_bytes: usize,
    pub control: String,
    pub napi: NapiMode,
    pub rps: bool,
    pub take_back: bool,
    pub io_uring: Option<bool>,
    pub udp: udp_pps::Options,
}

impl Options {
    /// Returns the defaults of the workload `what`.
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
            connected: 0,
            busy_poll_us: 50,
            stages: 0,
            live: None,
            turn_bytes: millstream::Limits::default().tuning.transmit_turn_bytes,
            direct_bytes: millstream::Limits::default().tuning.direct_read_bytes,
            control: "cubic".into(),
            napi: NapiMode::Auto,
            rps: true,
            take_back: true,
            io_uring: None,
            udp: udp_pps::Options::default(),
        }
    }

    /// Reads the words of the command line: what to measure, and how. Ends the program when
    /// something is wrong.
    pub fn read(words: impl Iterator<Item = String>) -> (String, Self) {
        let mut words = words.peekable();
        let what = words.next().unwrap_or_default();
        let mut o = Self::of(&what);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--offload" => o.offload = true,
                "--no-offload" => o.offload = false,
                "--packets" => o.packets = true,
                "--queued" => o.queued = true,
                "--net" => o.net = true,
                "--same" => o.same = true,
                "--no-rps" => o.rps = false,
                "--no-take-back" => o.take_back = false,
                "--io-uring" => o.io_uring = Some(true),
                "--no-io-uring" => o.io_uring = Some(false),
                "--drain" => o.udp.flood = false,
                "--stages" => {
                    let every = words.next_if(|next| !next.starts_with("--"));
                    o.stages = every.map_or(16, |every| parsed("--stages", &every));
                }
                option => o.set(option, &mut words),
            }
        }
        refuse(o.wrong(&what));
        (what, o)
    }

    /// Returns the faults of options that would move nothing, or mean nothing.
    fn wrong(&self, what: &str) -> [Option<String>; 9] {
        [
            within("--seconds", self.seconds, 0.01..=3600.0),
            within("--call", self.call, 1..=MOST_BYTES),
            within("--buffer", self.buffer, 1..=MOST_BYTES),
            at_least("--turn-bytes", self.turn_bytes, 1),
            at_least("--rounds", self.rounds, 1),
            within("--connected", self.connected, 0..=64_000),
            within("--payload", self.udp.payload, 1..=MOST_PAYLOAD),
            within("--turns", self.udp.rounds, 1..=100_000),
            within("--mtu", self.mtu, least_mtu(what)..=65_535),
        ]
    }

    /// An option that has a value, the next of `words`.
    fn set(&mut self, option: &str, words: &mut impl Iterator<Item = String>) {
        match option {
            "--seconds" => self.seconds = next(option, words),
            "--connected" => self.connected = next(option, words),
            "--rounds" => self.rounds = next(option, words),
            "--mtu" => self.mtu = next(option, words),
            "--buffer" => self.buffer = next(option, words),
            "--call" => self.call = next(option, words),
            "--calls" => self.calls = next(option, words),
            "--turn-bytes" => self.turn_bytes = next(option, words),
            "--direct-bytes" => self.direct_bytes = next(option, words),
            "--busy-poll-us" => self.busy_poll_us = next(option, words),
            "--live" => self.live = Some(next(option, words)),
            "--control" => self.control = next(option, words),
            "--link" => self.udp.link = next(option, words),
            "--direction" => {
                self.udp.send = match next::<String>(option, words).as_str() {
                    "send" => true,
                    "receive" => false,
                    _ => fail("--direction send or receive"),
                }
            }
            "--payload" => self.udp.payload = next(option, words),
            "--turns" => self.udp.rounds = next(option, words),
            "--napi" => {
                let mode = napi(&next::<String>(option, words));
                self.napi =
                    mode.unwrap_or_else(|| fail("--napi auto, off, inline:US or thread:US"));
            }
            other => fail(&format!("unknown option {other}; try --help")),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_nothing_is_refused_with_the_range() {
        let wrong = |what: &str, set: fn(&mut Options)| {
            let mut options = Options::of(what);
            set(&mut options);
            options.wrong(what).into_iter().flatten().collect::<Vec<_>>().join("; ")
        };
        for what in ["pair-bulk", "pair-rr", "pair-udp", "tap-send", "tap-rr", "udp-pps"] {
            assert_eq!(wrong(what, |_| ()), "");
        }
        assert_eq!(wrong("pair-bulk", |o| o.mtu = 68), "--mtu 68: it can be 128 to 65535");
        assert_eq!(wrong("pair-rr", |o| o.mtu = 68), "");
        assert_eq!(
            wrong("pair-bulk", |o| o.turn_bytes = 0),
            "--turn-bytes 0: it can be 1 at least"
        );
        assert_eq!(wrong("pair-rr", |o| o.rounds = 0), "--rounds 0: it can be 1 at least");
        let too_long = wrong("udp-pps", |o| o.udp.payload = 100_000);
        assert_eq!(too_long, "--payload 100000: it can be 1 to 1472");
        assert!(wrong("pair-rr", |o| o.seconds = f64::NAN).contains("0.01 to 3600"));
    }
}
