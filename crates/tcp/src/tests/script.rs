//! Conversations written down: what comes in, what must go out, and when.
//!
//! A script is lines of text; `#` begins a comment. Sequence numbers count from each side's SYN.
//!
//! ```text
//! config delayed_ack_ms=0          parameters, before anything else
//! connect | accept                 opens; `accept` takes the next `<` line as the SYN
//! connect fo req|HEX [MSS]         opens with Fast Open: asks for a cookie, or has one
//! accept early | accept give HEX   takes the data of the SYN and is open at once; gives a cookie
//! established [active] [ecn] [nosack] [nots] [noscale] [win=N]   a handshake with a round trip of 10 ms
//! < FLAGS seq(len) [ack N] [win N] [ts V/E|nots] [sack a-b,c-d] [mss N] [ws N] [sackok] [fo req|HEX] [urg N] [size N]
//!   [ip CODE]
//! > FLAGS seq(len) [the same]      the next segment out; what is not written is not compared
//! none                             nothing (more) goes out
//! +MS                              time passes; timers run when due
//! write N | read N | readall | shutdown | shutdown_read | close | abort | nodelay | mtu SEQ MTU | icmp SEQ [soft]
//! learnt WORD...                   what a Fast Open client learns, by words of its debug text
//! urgent N | mark N|none | event NAME | noevent NAME | quickack | linger S | user_timeout MS | delayed_ack MS
//! keepalive S
//! recv_buffer N                    from now on, in bytes of memory
//! state NAME | readable N | error NAME | eof | info FIELD VALUE
//! v4 LINE | v6 LINE                the line for one family alone
//! ```
//!
//! Each is played with the ends of both families, over a link that takes segments as they are made
//! and one that wants them cut, and with the fast path and without.

mod look;
mod notation;
mod setup;

use core::time::Duration;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use millstream_packet::{Instant, Packet, PacketBatch, Pool};
use millstream_wire::tcp::{FastOpenCookie, SeqNumber, TcpHeader, Timestamps};

use super::harness::{pool, tuple};
use crate::*;
use notation::{codepoint, cookie, number};

const OURS: u32 = 0xffff_fc00;
const THEIRS: u32 = 0x7fff_ff00;

pub struct Script {
    name: String,
    connection: Option<Connection>,
    config: Config,
    accept_next: bool,
    /// What the listener does about Fast Open.
    early: bool,
    give: Option<FastOpenCookie>,
    now: Instant,
    pool: Pool,
    out: VecDeque<(u64, TcpHeader, u32, u8)>,
    super_segment_bytes: u32,
    v6: bool,
    /// Segments are asked for as parts, one at a time.
    parts: bool,
    timestamps: bool,
    line: usize,
    ts_offset: u32,
    /// Timestamp of the last segment out, echoed where a script names none.
    last_ts: u32,
}

impl Script {
    fn new(name: &str, pool: &Pool, v6: bool, parts: bool) -> Script {
        Script {
            name: name.to_string(),
            connection: None,
            config: Config::default(),
            accept_next: false,
            early: false,
            give: None,
            now: Instant::ZERO + Duration::from_secs(1000),
            pool: pool.clone(),
            out: VecDeque::new(),
            super_segment_bytes: 0,
            v6,
            parts,
            timestamps: false,
            line: 0,
            ts_offset: 0u32.wrapping_sub(1_000_000),
            last_ts: 0,
        }
    }

    fn fail(&self, what: impl std::fmt::Display) -> ! {
        let state = self.connection.as_ref().map(|c| c.info());
        let Script { v6, parts, .. } = self;
        let slow = crate::config::SLOW_PATH.get();
        let variant = format!("v6 {v6}, parts {parts}, slow path {slow}");
        panic!(
            "{} line {} ({variant}): {what}\nwaiting: {:?}\n{state:?}",
            self.name, self.line, self.out
        );
    }

    fn conn(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a connection")
    }

    /// Changes the configuration of the open connection.
    fn change(&mut self, change: impl FnOnce(Config) -> Config) {
        let config = change(self.conn().config().clone());
        self.conn().set_config(&config);
    }

    fn ms(&self) -> u64 {
        self.now.as_nanos() / 1_000_000 - 1_000_000
    }

    fn next_segment(&mut self) -> Option<Segment> {
        let (now, limits) = (self.now, self.super_segment_bytes);
        let connection = self.connection.as_mut()?;
        // frames are not waited for: what would be one large segment leaves earlier
        let payload = match self.parts && limits == 0 {
            true => PayloadSource::Frames { headroom: 64 },
            false => PayloadSource::View,
        };
        let limits = TransmitLimits { super_segment_bytes: limits, segments: 1, payload };
        let mut batch = PacketBatch::new();
        let segment = connection.poll(now, &self.pool, &limits, &mut batch)?;
        let bytes: usize = batch.drain().map(|packet| packet.len()).sum();
        assert_eq!(bytes, segment.payload_len as usize, "{} line {}", self.name, self.line);
        Some(segment)
    }

    fn collect(&mut self) {
        let ms = self.ms();
        loop {
            let conn = self.connection.as_ref();
            let may = conn.is_some_and(|conn| conn.has_output());
            let Some(segment) = self.next_segment() else { return };
            if !may {
                self.fail(format!("was said to have nothing to send: {:?}", segment.header));
            }
            if let Some(timestamps) = segment.header.options.timestamps {
                self.last_ts = timestamps.value;
            }
            self.out.push_back((ms, segment.header, segment.payload_len, segment.ecn));
        }
    }

    fn pass(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        loop {
            self.collect();
            let next = self.connection.as_ref().and_then(|c| c.next_deadline());
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = next.max(self.now);
            let now = self.now;
            self.conn().on_timer(now);
        }
        self.now = end;
    }

    fn input(&mut self, words: &[&str]) {
        self.collect();
        if !self.out.is_empty() {
            self.fail("unexpected output before this input");
        }
        let (mut header, len, given) = self.segment(words, false);
        let stamped = self.timestamps && !header.flags.rst() && !words.contains(&"nots");
        if header.options.timestamps.is_none() && stamped {
            header.options.timestamps =
                Some(Timestamps { value: self.ms() as u32 + 5000, echo: self.last_ts });
        }
        if self.accept_next {
            self.accept_next = false;
            let connection = Connection::accept(
                self.config.clone(),
                tuple(0, self.v6),
                SeqNumber(OURS),
                self.ts_offset,
                &header,
                self.now,
            );
            self.connection = Some(connection);
            let (now, pool) = (self.now, self.pool.clone());
            if let Some(cookie) = self.give.take() {
                self.conn().give_cookie(cookie);
            }
            if std::mem::take(&mut self.early) {
                let data = Packet::from_slice(&pool, 0, &vec![b'x'; len as usize]).expect("frames");
                self.conn().open_early(now, Some(data), &pool);
            }
            return;
        }
        let bytes = vec![b'x'; len as usize];
        let payload = (len > 0).then(|| {
            let mut packet = Packet::from_slice(&self.pool, 0, &bytes).expect("frames");
            if let Some(at) = given.iter().position(|g| g == "size") {
                let size = words[2..].iter().skip_while(|w| **w != "size").nth(1).expect("size");
                let _ = at;
                packet.meta_mut().segmentation = Some(millstream_packet::Segmentation {
                    kind: millstream_packet::SegmentationKind::TcpV4,
                    size: number(size),
                    header_len: 0,
                    ecn: false,
                });
            }
            packet
        });
        let (now, pool) = (self.now, self.pool.clone());
        let ecn = words.iter().position(|w| *w == "ip").map_or(0, |at| codepoint(words[at + 1]));
        self.conn().on_segment(now, &header, payload.into(), ecn, &pool);
    }

    fn expect(&mut self, words: &[&str]) {
        self.collect();
        let (wanted, len, given) = self.segment(words, true);
        let Some((at, got, got_len, got_ecn)) = self.out.pop_front() else {
            self.fail(format!("nothing came out, wanted {words:?}"))
        };
        let any_seq = words[1].starts_with('*');
        let named = words.iter().position(|w| *w == "ip").map(|at| codepoint(words[at + 1]));
        let mut same = named.is_none_or(|ecn| ecn == got_ecn)
            && got.flags == wanted.flags
            && (any_seq || got.seq == wanted.seq)
            && (len == u32::MAX || got_len == len);
        for field in given {
            same &= match field.as_str() {
                "ack" => got.ack == wanted.ack,
                "win" => got.window == wanted.window,
                "mss" => got.options.mss == wanted.options.mss,
                "ws" => got.options.window_scale == wanted.options.window_scale,
                "sackok" => got.options.sack_permitted,
                "urg" => got.urgent == wanted.urgent,
                "fo" => got.options.fast_open == wanted.options.fast_open,
                "nofo" => got.options.fast_open.is_none(),
                "nots" => got.options.timestamps.is_none(),
                "ts" => got.options.timestamps == wanted.options.timestamps,
                "sack" => got.options.sack == wanted.options.sack,
                _ => true,
            };
        }
        if !same {
            let relative = (got.seq - SeqNumber(OURS), got.ack - SeqNumber(THEIRS));
            self.fail(format!("wanted {words:?}, got at {at} ms {relative:?}({got_len}) {got:?}"));
        }
    }

    fn run_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        let Some(&first) = words.first() else { return };
        let (pool, now) = (self.pool.clone(), self.now);
        let argument = || number::<usize>(words[1]);
        match first {
            "v4" | "v6" => {
                if self.v6 == (first == "v6") {
                    self.run_line(&words[1..].join(" "));
                }
            }
            "config" => self.configure(&words[1..]),
            "connect" => {
                let (config, isn) = (self.config.clone(), SeqNumber(OURS));
                self.connection =
                    Some(Connection::connect(config, tuple(0, self.v6), isn, self.ts_offset, now));
                if words.get(1) == Some(&"fo") {
                    let mss = words.get(3).map_or(1460, |mss| number(mss));
                    let known = (words[2] != "req").then(|| (cookie(words[2]), mss));
                    self.conn().offer_fast_open(now, known);
                }
            }
            "accept" => {
                self.accept_next = true;
                let given = words.iter().position(|word| *word == "give");
                self.give = given.map(|at| cookie(words[at + 1]));
                self.early = words.contains(&"early");
            }
            "established" => self.established(&words[1..]),
            "<" => self.input(&words[1..]),
            ">" => self.expect(&words[1..]),
            "none" => {
                self.collect();
                if !self.out.is_empty() {
                    self.fail("something came out");
                }
            }
            "write" => {
                let n = argument();
                let written = self.conn().write(&pool, &vec![b'y'; n]);
                if written != Ok(n) {
                    self.fail(format!("write: {written:?}"));
                }
            }
            "read" => {
                let n = argument();
                let read = self.conn().read(&mut vec![0; n]);
                if read != Ok(n) {
                    self.fail(format!("read: {read:?}"));
                }
            }
            "readall" => while matches!(self.conn().read(&mut [0; 65_536]), Ok(1..)) {},
            "eof" => {
                if self.conn().read(&mut [0; 10]) != Ok(0) {
                    self.fail("not at the end");
                }
            }
            "shutdown" => self.conn().shutdown_write(),
            "shutdown_read" => self.conn().shutdown_read(),
            "close" => self.conn().close(),
            "abort" => self.conn().abort(),
            "urgent" => {
                let n = argument();
                if self.conn().write_urgent(&pool, &vec![b'y'; n]) != Ok(n) {
                    self.fail("urgent");
                }
            }
            "mark" => {
                let mark = self.conn().urgent_mark().map_or("none".into(), |at| at.to_string());
                if mark != words[1] {
                    self.fail(format!("mark at {mark}"));
                }
            }
            "event" => {
                let got = format!("{:?}", self.conn().take_events());
                if !got.contains(&format!("{}: true", words[1])) {
                    self.fail(got);
                }
            }
            "noevent" => {
                let got = format!("{:?}", self.conn().take_events());
                if got.contains(&format!("{}: true", words[1])) {
                    self.fail(got);
                }
            }
            "quickack" => self.conn().quick_ack(),
            "linger" => self.change(|config| config.linger_s(Some(argument() as u16))),
            "user_timeout" => self.change(|config| config.user_timeout_ms(Some(argument() as u32))),
            "delayed_ack" => self.change(|config| config.delayed_ack_ms(argument() as u16)),
            "keepalive" => {
                let keepalive = Keepalive { idle_s: argument() as u32, ..Keepalive::default() };
                self.change(|config| config.keepalive(Some(keepalive)));
            }
            "nodelay" => self.conn().set_nodelay(true),
            "mtu" => self.conn().set_path_mtu(now, SeqNumber(OURS) + argument(), number(words[2])),
            "icmp" => {
                let (error, hard) = match words.get(2) {
                    None => (ConnError::Refused, true),
                    Some(&"prohibited") => (ConnError::Prohibited, true),
                    Some(&"host") => (ConnError::HostUnreachable, false),
                    Some(&"net") => (ConnError::NetworkUnreachable, false),
                    Some(other) => self.fail(other),
                };
                self.conn().on_icmp_error(now, SeqNumber(OURS) + argument(), error, hard);
            }
            "recv_buffer" => self.conn().set_buffers(Some(argument()), None),
            "reuse" => {
                let (header, _, _) = self.segment(&words[2..], false);
                let granted = self.config.timestamps;
                if self.conn().may_reuse(&header, granted) != (words[1] == "yes") {
                    self.fail("reuse");
                }
            }
            _ => self.run_check(first, &words),
        }
    }
}

/// Runs one conversation in all its variants.
fn run(name: &str, text: &str, pool: &Pool) {
    for variant in 0..8 {
        let [v6, parts, slow] = [1, 2, 4].map(|bit| variant & bit > 0);
        crate::config::SLOW_PATH.set(slow);
        let mut script = Script::new(name, pool, v6, parts);
        for (index, line) in text.lines().enumerate() {
            script.line = index + 1;
            script.run_line(line);
        }
        script.collect();
        if !script.out.is_empty() {
            script.fail("something came out at the end");
        }
    }
}

/// Every conversation in `scripts/`: files of `== name` and its lines.
#[test]
fn conversations() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
    let (pool, mut count, mut failed) = (pool(), 0, Vec::new());
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("scripts").map(|f| f.expect("entry").path()).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        for part in text.split("\n== ").skip(1) {
            let (name, body) = part.split_once('\n').unwrap_or((part, ""));
            count += 1;
            if catch_unwind(AssertUnwindSafe(|| run(name, body, &pool))).is_err() {
                failed.push(name.to_string());
            }
        }
    }
    assert!(failed.is_empty(), "{} of {count} conversations failed: {failed:#?}", failed.len());
    assert!(count >= 150, "only {count} conversations found");
}
