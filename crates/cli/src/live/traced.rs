//! Sampled packets of an engine, asked for by its control socket (docs/trace.md).

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use millstream::trace::TracePoint;
use millstream_live::{Record, Segment};
use millstream_record::error::Error;

use super::ask::ask;
use crate::values::{seconds, whole};

/// Interval at which an engine is asked; it keeps 1,024 traces.
const INTERVAL: Duration = Duration::from_millis(50);
/// Traces that are taken at most.
const TRACES_MOST: usize = 200_000;
/// The longest that is waited for them.
const SECONDS_MOST: f64 = 3600.0;

/// Which packets, and for how long.
#[derive(Debug, Args)]
pub struct Sampling {
    /// Trace packets of this socket alone, as `millstream ss` names it
    #[arg(long, value_name = "ID")]
    pub flow: Option<String>,
    /// Take those whose traces end within SECONDS
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub seconds: f64,
    /// Sample one packet in N meanwhile, where the engine does not sample of its own accord
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole::<u32>)]
    pub sample: u32,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Its number, transport, payload, place and end.
    pub record: Record,
    /// The points that it has been at, in their order, and when, in ns of the engine's clock.
    pub times: Vec<(TracePoint, u64)>,
}

impl Traced {
    /// Reads a line; `None` where it does not say when the packet was anywhere.
    pub fn of(record: Record) -> Option<Self> {
        let points = TracePoint::ALL.iter();
        let times: Vec<_> =
            points.filter_map(|&point| Some((point, record.number(point.name())?))).collect();
        let is_whole = !times.is_empty() && times.is_sorted_by_key(|&(_, ns)| ns);
        is_whole.then_some(Self { record, times })
    }

    /// Returns its stages: the point that each ends at, and the times when it began and when it
    /// ended.
    pub fn stages(&self) -> impl Iterator<Item = (TracePoint, u64, u64)> {
        self.times.windows(2).map(|pair| (pair[1].0, pair[0].1, pair[1].1))
    }

    /// Returns the times at which its trace begins and ends.
    pub fn span(&self) -> (u64, u64) {
        (self.times[0].1, self.times[self.times.len() - 1].1)
    }
}

/// All that came, and what did not.
#[derive(Debug, Default)]
pub struct Collected {
    pub traces: Vec<Traced>,
    /// Traces that the engine had forgotten before it was asked.
    pub lost: u64,
    /// One packet in so many was sampled.
    pub sample: u64,
}

impl Sampling {
    /// Returns the moment until which it is asked. Fails where that moment, or the number to be
    /// sampled, is out of range.
    pub fn until(&self) -> Result<Instant, Error> {
        if !(0.0..=SECONDS_MOST).contains(&self.seconds) {
            return Err(Error::Refused(format!("--seconds is 0 to {SECONDS_MOST}")));
        }
        if self.sample == 0 {
            return Err(Error::Refused("--sample is 1 or more".into()));
        }
        Ok(Instant::now() + Duration::from_secs_f64(self.seconds))
    }

    /// Asks for as long as is wanted.
    pub fn collect(&self, segment: &Segment) -> Result<Collected, Error> {
        let until = self.until()?;
        let mut all = Collected::default();
        // Traces that have ended before now are not asked for.
        let mut next = self.ask(segment, u64::MAX, &mut all)?;
        while let left @ 1.. = until.saturating_duration_since(Instant::now()).as_nanos() {
            sleep(INTERVAL.min(Duration::from_nanos(left as u64)));
            next = self.ask(segment, next, &mut all)?;
            if all.traces.len() >= TRACES_MOST {
                break;
            }
        }
        Ok(all)
    }

    /// Takes the traces from this number on; the number of the next one.
    fn ask(&self, segment: &Segment, from: u64, all: &mut Collected) -> Result<u64, Error> {
        let mut next = from;
        ask(segment, &format!("traces {from} {}", self.sample), |line| {
            if line.kind == "traces" {
                next = line.number("next").unwrap_or(from);
                all.lost += line.number("lost").unwrap_or(0);
                all.sample = line.number("sample").unwrap_or(0);
            } else if self.flow.is_none() || self.flow.as_deref() == line.get("id") {
                all.traces.extend(Traced::of(line));
            }
            Ok(())
        })?;
        Ok(next)
    }
}
