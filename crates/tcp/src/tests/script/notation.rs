//! How segments and values are written in a script.

use millstream_wire::tcp::{FastOpenCookie, SeqNumber, TcpFlags, TcpHeader, Timestamps};

use super::super::harness::tuple;
use super::{OURS, Script, THEIRS};

pub(super) fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("not a number: {word:?}"))
}

/// A Fast Open option as written: hexadecimal digits, or that it asks.
pub(super) fn cookie(word: &str) -> FastOpenCookie {
    if word == "req" {
        return FastOpenCookie::REQUEST;
    }
    let digits = |at| u8::from_str_radix(&word[at..at + 2], 16).expect("two digits");
    let bytes: Vec<u8> = (0..word.len()).step_by(2).map(digits).collect();
    FastOpenCookie::new(&bytes).expect("a cookie")
}

/// The ECN field by its name.
pub(super) fn codepoint(word: &str) -> u8 {
    match word {
        "ect0" => 2,
        "ect1" => 1,
        "ce" => 3,
        _ => 0,
    }
}

impl Script {
    /// Reads `FLAGS seq(len) field...` into a header; `given` says which fields were named.
    pub(super) fn segment(&self, words: &[&str], ours: bool) -> (TcpHeader, u32, Vec<String>) {
        let (own, other) = if ours { (OURS, THEIRS) } else { (THEIRS, OURS) };
        let mut header = TcpHeader::default();
        let mut given = Vec::new();
        let ends = tuple(0, self.v6);
        let (from, to) = if ours { (ends.local, ends.remote) } else { (ends.remote, ends.local) };
        (header.src_port, header.dst_port) = (from.port(), to.port());
        for letter in words[0].chars() {
            header.flags |= match letter {
                'S' => TcpFlags::SYN,
                'A' | '.' => TcpFlags::ACK,
                'F' => TcpFlags::FIN,
                'R' => TcpFlags::RST,
                'P' => TcpFlags::PSH,
                'U' => TcpFlags::URG,
                'E' => TcpFlags::ECE,
                'C' => TcpFlags::CWR,
                _ => self.fail(format!("flag {letter}")),
            };
        }
        let (seq, len) = words[1].trim_end_matches(')').split_once('(').unwrap_or((words[1], "0"));
        header.seq =
            SeqNumber(own.wrapping_add(if seq == "*" { 0 } else { number::<i64>(seq) as u32 }));
        header.window = 65_535;
        let mut words = words[2..].iter();
        while let Some(field) = words.next() {
            given.push(field.to_string());
            let mut value = || *words.next().unwrap_or(&"");
            match *field {
                "ack" => header.ack = SeqNumber(other.wrapping_add(number::<i64>(value()) as u32)),
                "win" => header.window = number(value()),
                "mss" => header.options.mss = Some(number(value())),
                "ws" => header.options.window_scale = Some(number(value())),
                "sackok" => header.options.sack_permitted = true,
                "fo" => header.options.fast_open = Some(cookie(value())),
                "nofo" | "nots" => {}
                "urg" => header.urgent = number(value()),
                "size" | "ip" => {
                    value();
                }
                "ts" => {
                    let (v, e) = value().split_once('/').unwrap_or(("0", "0"));
                    header.options.timestamps =
                        Some(Timestamps { value: number(v), echo: number(e) });
                }
                "sack" => {
                    for block in value().split(',').filter(|b| *b != "none") {
                        let (a, b) = block.split_once('-').expect("a-b");
                        let at = |n: &str| SeqNumber(other.wrapping_add(number::<i64>(n) as u32));
                        header.options.sack.push(at(a), at(b)).expect("room for a block");
                    }
                }
                other => self.fail(format!("field {other}")),
            }
        }
        (header, if len == "*" { u32::MAX } else { number(len) }, given)
    }
}
