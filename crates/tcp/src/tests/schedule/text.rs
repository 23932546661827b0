//! Schedules as text, one line for each thing that is not as usual.
//!
//! ```text
//! open listen|cookie|both|queue|ask|stale|early
//! way delay_us=1000 merge=1 ...             fields of `Way`
//! end 0 isn=1000 eager=1 mss=536 sack=0 ... parameters of `Config` that differ from its default
//! at 1500 end 0 write 2000                  time in µs; write|read|shutdown|shutdown_read|close|close_now|abort|...
//! segment 7 of 0 lost                       lost|late US|twice US|cut BYTES|split BYTES|marked
//! ```
//!
//! `#` begins a comment.

use core::fmt::Write;

use super::plan::*;
use crate::Config;

/// A field of `Way`: its name, how to read it and how to set it.
type Field = (&'static str, fn(&Way) -> u64, fn(&mut Way, u64));

const WAY: [Field; 10] = [
    ("delay_us", |w| w.delay_us, |w, v| w.delay_us = v),
    ("kbit_per_s", |w| w.kbit_per_s, |w, v| w.kbit_per_s = v),
    ("hole_bytes", |w| w.hole_bytes.into(), |w, v| w.hole_bytes = v as u32),
    ("super_bytes", |w| w.super_bytes.into(), |w, v| w.super_bytes = v as u32),
    ("merge", |w| w.merge.into(), |w, v| w.merge = v > 0),
    ("view", |w| w.view.into(), |w, v| w.view = v > 0),
    ("parts", |w| w.parts.into(), |w, v| w.parts = v > 0),
    ("v6", |w| w.v6.into(), |w, v| w.v6 = v > 0),
    ("tick_us", |w| w.tick_us, |w, v| w.tick_us = v),
    ("batch_us", |w| w.batch_us, |w, v| w.batch_us = v),
];

const OPEN: [(&str, Open); 7] = [
    ("listen", Open::Listen),
    ("cookie", Open::Cookie),
    ("both", Open::Both),
    ("queue", Open::Queue),
    ("ask", Open::Ask),
    ("stale", Open::Stale),
    ("early", Open::Early),
];

fn deed_text(deed: Deed) -> (&'static str, Option<u64>) {
    match deed {
        Deed::Write(n) => ("write", Some(n.into())),
        Deed::Read(n) => ("read", Some(n.into())),
        Deed::Shutdown => ("shutdown", None),
        Deed::ShutdownRead => ("shutdown_read", None),
        Deed::Close => ("close", None),
        Deed::CloseNow => ("close_now", None),
        Deed::Abort => ("abort", None),
        Deed::Nodelay => ("nodelay", None),
        Deed::RecvBuffer(n) => ("recv_buffer", Some(n.into())),
        Deed::SendBuffer(n) => ("send_buffer", Some(n.into())),
        Deed::PathMtu(n) => ("path_mtu", Some(n.into())),
        Deed::Keepalive(on) => ("keepalive", Some(on.into())),
        Deed::Compact => ("compact", None),
    }
}

fn parse_deed(word: &str, n: u64) -> Option<Deed> {
    Some(match word {
        "write" => Deed::Write(n as u32),
        "read" => Deed::Read(n as u32),
        "shutdown" => Deed::Shutdown,
        "shutdown_read" => Deed::ShutdownRead,
        "close" => Deed::Close,
        "close_now" => Deed::CloseNow,
        "abort" => Deed::Abort,
        "nodelay" => Deed::Nodelay,
        "recv_buffer" => Deed::RecvBuffer(n as u32),
        "send_buffer" => Deed::SendBuffer(n as u32),
        "path_mtu" => Deed::PathMtu(n as u16),
        "keepalive" => Deed::Keepalive(n > 0),
        "compact" => Deed::Compact,
        _ => return None,
    })
}

fn fate_text(fate: Fate) -> (&'static str, Option<u64>) {
    match fate {
        Fate::Lost => ("lost", None),
        Fate::Late(us) => ("late", Some(us)),
        Fate::Twice(us) => ("twice", Some(us)),
        Fate::Cut(n) => ("cut", Some(n.into())),
        Fate::Split(n) => ("split", Some(n.into())),
        Fate::Marked => ("marked", None),
        Fate::Corrupt => ("corrupt", None),
    }
}

fn parse_fate(word: &str, n: u64) -> Option<Fate> {
    Some(match word {
        "lost" => Fate::Lost,
        "late" => Fate::Late(n),
        "twice" => Fate::Twice(n),
        "cut" => Fate::Cut(n as u32),
        "split" => Fate::Split(n as u32),
        "marked" => Fate::Marked,
        "corrupt" => Fate::Corrupt,
        _ => return None,
    })
}

/// The schedule as text.
pub fn write(schedule: &Schedule) -> String {
    let mut text = String::new();
    let open = OPEN.iter().find(|(_, open)| *open == schedule.open).map_or("", |o| o.0);
    let _ = write!(text, "open {open}\nway");
    for (name, get, _) in WAY {
        if get(&schedule.way) != get(&Way::default()) {
            let _ = write!(text, " {name}={}", get(&schedule.way));
        }
    }
    for (index, end) in schedule.ends.iter().enumerate() {
        let _ = write!(text, "\nend {index} isn={} eager={}", end.isn, u8::from(end.eager));
        for parameter in PARAMETERS {
            let value = (parameter.get)(&end.config);
            if value != (parameter.get)(&Config::default()) {
                let _ = write!(text, " {}={value}", parameter.name);
            }
        }
    }
    text.push('\n');
    let number = |n: Option<u64>| n.map_or(String::new(), |n| format!(" {n}"));
    for Action { at_us, end, deed } in &schedule.actions {
        let (word, n) = deed_text(*deed);
        let _ = writeln!(text, "at {at_us} end {end} {word}{}", number(n));
    }
    for Doom { end, nth, fate } in &schedule.dooms {
        let (word, n) = fate_text(*fate);
        let _ = writeln!(text, "segment {nth} of {end} {word}{}", number(n));
    }
    text
}

fn value(word: &str) -> Option<(&str, u64)> {
    let (name, value) = word.split_once('=')?;
    Some((name, value.parse().ok()?))
}

fn parse_end(schedule: &mut Schedule, words: &[&str]) -> Option<()> {
    let end = schedule.ends.get_mut(words.first()?.parse::<usize>().ok()?)?;
    for word in &words[1..] {
        match value(word)? {
            ("isn", isn) => end.isn = isn as u32,
            ("eager", eager) => end.eager = eager > 0,
            (name, value) => {
                let parameter = PARAMETERS.iter().find(|p| p.name == name)?;
                (parameter.set)(&mut end.config, value);
            }
        }
    }
    Some(())
}

fn parse_line(schedule: &mut Schedule, words: &[&str]) -> Option<()> {
    let number = |at: usize| words.get(at).map_or(Some(0), |word| word.parse::<u64>().ok());
    match *words.first()? {
        "open" => schedule.open = OPEN.iter().find(|(name, _)| Some(name) == words.get(1))?.1,
        "way" => {
            for word in &words[1..] {
                let (name, value) = value(word)?;
                (WAY.iter().find(|(known, ..)| *known == name)?.2)(&mut schedule.way, value);
            }
        }
        "end" => parse_end(schedule, &words[1..])?,
        "at" if words.get(2) == Some(&"end") => {
            let deed = parse_deed(words.get(4)?, number(5)?)?;
            schedule.actions.push(Action { at_us: number(1)?, end: number(3)? as u8 & 1, deed });
        }
        "segment" if words.get(2) == Some(&"of") => {
            let fate = parse_fate(words.get(4)?, number(5)?)?;
            schedule.dooms.push(Doom { nth: number(1)? as u32, end: number(3)? as u8 & 1, fate });
        }
        _ => return None,
    }
    Some(())
}

/// Reads a schedule; the error is the line that is none.
pub fn parse(text: &str) -> Result<Schedule, String> {
    let mut schedule = Schedule::empty();
    for line in text.lines() {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        if !words.is_empty() && parse_line(&mut schedule, &words).is_none() {
            return Err(line.to_string());
        }
    }
    schedule.actions.sort_by_key(|action| action.at_us);
    Ok(schedule)
}
