//! `netstat --log`: looks in a file, a line for each; and the bursts and lulls that are found in it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use millstream_diagnose::stats::median;
use millstream_foreign::{shown, to_parse};
use millstream_record::error::Error;
use serde_json::Value;

use super::columns::Side::{Left, Right};
use super::columns::{columns, row};
use crate::output::versioned;

/// A burst has so many times the median of all intervals, a lull at most that part of it.
const TIMES: f64 = 2.0;

/// A file that grows by a line for each look.
pub struct Log(File);

impl Log {
    /// Goes on behind what the file has.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(Self).map_err(Error::file(path.display().to_string()))
    }

    /// Adds a look.
    pub fn add(&mut self, look: Value) -> Result<(), Error> {
        writeln!(self.0, "{}", versioned(look)).map_err(Error::file("--log"))
    }
}

/// The packets of an engine in one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Interval {
    /// Its end, seconds since 1970.
    end_s: f64,
    seconds: f64,
    packets: f64,
    drops: f64,
}

impl Interval {
    fn rate(self) -> f64 {
        self.packets / self.seconds
    }
}

/// Intervals that follow each other, all far above the median or all far below.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    is_burst: bool,
    /// Its begin, seconds since the first look.
    from_s: f64,
    all: Interval,
}

/// Returns the bursts and lulls of each engine in a log.
pub fn bursts(path: &Path) -> Result<String, Error> {
    let name = path.display().to_string();
    let mut lines = BufReader::new(File::open(path).map_err(Error::file(&name))?);
    let (mut engines, mut line) = (BTreeMap::<String, Vec<Interval>>::new(), Vec::new());
    while lines.read_until(b'\n', &mut line).map_err(Error::file(&name))? != 0 {
        let look: Value = serde_json::from_str(&to_parse(&line))
            .map_err(|_| Error::Refused(format!("{name}: a line is no look of netstat --log")))?;
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let (total, engine) = (&look["total"], look["engine"].as_str().unwrap_or("-"));
        let interval = Interval {
            end_s: number(&look["time_ns"]) / 1e9,
            seconds: number(&look["seconds"]),
            packets: number(&total["rx_packets"]) + number(&total["tx_packets"]),
            drops: number(&look["drops"]),
        };
        // The first look, after which a log may have begun again, is of no interval.
        let intervals = engines.entry(shown(engine)).or_default();
        intervals.extend((interval.seconds > 0.0).then_some(interval));
        line.clear();
    }
    let mut text = String::new();
    for (engine, intervals) in engines {
        let rates: Vec<f64> = intervals.iter().map(|one| one.rate()).collect();
        let middle = median(&rates).unwrap_or(0.0);
        text += &format!("{engine}: {} intervals, median {middle:.0} packets/s\n", rates.len());
        let found = stretches(&intervals, middle);
        if found.is_empty() {
            continue;
        }
        let mut rows = vec![row(["", "from s", "for s", "packets/s", "of the median", "drops"])];
        rows.extend(found.iter().map(|one| {
            let (is, all) = (if one.is_burst { "burst" } else { "lull" }, one.all);
            let times = all.rate() / middle.max(f64::MIN_POSITIVE);
            let [from, length] = [one.from_s, all.seconds].map(|s| format!("{s:.1}"));
            let [rate, drops] = [all.rate(), all.drops].map(|count| format!("{count:.0}"));
            vec![is.to_owned(), from, length, rate, format!("{times:.2}"), drops]
        }));
        text += &columns(&[Left, Right, Right, Right, Right, Right], &rows);
    }
    Ok(text)
}

/// Returns the stretches that are far from the median, in their order.
fn stretches(intervals: &[Interval], middle: f64) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let begun = intervals.first().map_or(0.0, |one| one.end_s - one.seconds);
    for one in intervals {
        let is_burst = one.rate() >= middle * TIMES;
        if !is_burst && one.rate() > middle / TIMES {
            continue;
        }
        let begins = one.end_s - one.seconds;
        match found.last_mut() {
            Some(last) if last.is_burst == is_burst && (last.all.end_s - begins).abs() < 1e-6 => {
                last.all.end_s = one.end_s;
                last.all.seconds += one.seconds;
                last.all.packets += one.packets;
                last.all.drops += one.drops;
            }
            _ => found.push(Stretch { is_burst, from_s: begins - begun, all: *one }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20,000 packets a second; from second 40 on a burst of three seconds, and from second 90 on
    /// a tenth.
    #[test]
    fn a_burst_and_a_fall_are_found_with_their_times() {
        let rate = |second: i32| match second {
            40..43 => 80_000.0,
            90.. => 2_000.0,
            _ => 20_000.0,
        };
        let interval = |at: i32| Interval {
            end_s: f64::from(at + 1),
            seconds: 1.0,
            packets: rate(at),
            drops: f64::from(at == 41),
        };
        let intervals: Vec<Interval> = (0..100).map(interval).collect();
        let found = stretches(&intervals, 20_000.0);
        let said: Vec<_> = (found.iter())
            .map(|one| (one.is_burst, one.from_s, one.all.seconds, one.all.rate(), one.all.drops))
            .collect();
        let expected = [(true, 40.0, 3.0, 80_000.0, 1.0), (false, 90.0, 10.0, 2_000.0, 0.0)];
        assert_eq!(said, expected);
        assert_eq!(stretches(&intervals[..40], 20_000.0), []);
    }
}
