//! Engines of Millstream in the workers, over time: what they publish in their segments, and what
//! their control sockets say of their queues (docs/live.md).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use millstream_live::{Directory, Entry, Kind, Segment, Snapshot, bucket_least};
use millstream_record::{EngineSeries, EngineStretch, Probes, QueueSeries, Series, StageRecord};

use super::{Turn, limits};

/// All engines of the workers that are watched.
#[derive(Default)]
pub(super) struct Engines {
    /// Workers whose engines may be still to come, with the samples for which they are looked for.
    workers: Vec<(String, u32, usize)>,
    seen: Vec<Seen>,
    /// Steps so far.
    steps: usize,
}

/// One engine.
struct Seen {
    role: String,
    segment: Segment,
    gauges: BTreeMap<String, Series>,
    queues: QueueSeries,
    asked: Option<Instant>,
    kept: Kept,
}

/// Some snapshots of the whole time: every so many, and the last.
#[derive(Default)]
struct Kept {
    every: usize,
    count: usize,
    snapshots: Vec<Snapshot>,
    last: Option<Snapshot>,
}

impl Engines {
    /// Key of what it costs.
    pub(super) const NAME: &'static str = "engines";

    /// Watches the engines of the process `pid`, from the next sample on.
    pub(super) fn watch(&mut self, role: &str, pid: u32) {
        self.workers.push((role.to_owned(), pid, limits::ENGINE_LOOKS));
    }

    /// Opens the segments of the workers that have come since.
    fn look_for(&mut self) {
        self.workers.retain(|(_, _, looks)| *looks > 0);
        if self.workers.is_empty() {
            return;
        }
        let uid = nix::unistd::geteuid().as_raw();
        let found = Directory::all_of_user(uid);
        let found = found.iter().filter_map(|directory| directory.engines().ok()).flatten();
        let segments: Vec<Segment> = found.filter_map(|one| one.segment.ok()).collect();
        for segment in segments {
            let is_known = self.seen.iter().any(|seen| seen.segment.path() == segment.path());
            let pid = segment.header().pid;
            let worker = self.workers.iter().find(|(_, worker, _)| *worker == pid && !is_known);
            if let Some((role, _, _)) = worker {
                let mut queues = QueueSeries::default();
                (0..self.steps).for_each(|_| queues.push(None));
                self.seen.push(Seen {
                    role: role.clone(),
                    segment,
                    gauges: BTreeMap::new(),
                    queues,
                    asked: None,
                    kept: Kept::default(),
                });
            }
        }
        self.workers.iter_mut().for_each(|(_, _, looks)| *looks -= 1);
    }

    /// Takes what each engine has published last. A worker without an engine is the usual case:
    /// nothing is absent for it.
    pub(super) fn sample(&mut self, turn: Turn) {
        if turn == Turn::First {
            return;
        }
        self.look_for();
        let steps = self.steps;
        self.seen.iter_mut().for_each(|seen| seen.sample(steps));
        self.steps += 1;
    }

    /// Puts what was seen into the record.
    pub(super) fn finish(self, into: &mut Probes) {
        into.engine_series = self.seen.into_iter().map(Seen::finish).collect();
    }
}

impl Seen {
    /// Takes the value of each gauge; `steps` have gone before.
    fn sample(&mut self, steps: usize) {
        // An engine that has ended keeps what was seen.
        if let Ok(now) = self.segment.read() {
            for (entry, values) in now.iter().filter(|(entry, _)| entry.kind == Kind::Gauge) {
                let series = self.gauges.entry(name_of(entry)).or_default();
                series.resize(steps, None);
                series.push(Some(values[0]));
            }
            self.kept.take(now);
        }
        for series in self.gauges.values_mut() {
            series.resize(steps + 1, None);
        }
        // While somebody is answered the engine does not sleep: not more often than this.
        let is_due = self.asked.is_none_or(|at| at.elapsed() >= limits::QUEUES_ASKED_EVERY);
        let seen = is_due.then(|| {
            self.asked = Some(Instant::now());
            queues(&self.segment)
        });
        self.queues.push(seen.flatten());
    }

    fn finish(self) -> EngineSeries {
        let Self { role, segment: _, gauges, queues, asked: _, kept } = self;
        let mut series =
            EngineSeries { role, queues, quarters: kept.quarters(), ..EngineSeries::default() };
        for (name, values) in gauges {
            let mut known = values.iter().flatten();
            let first = known.next().copied().unwrap_or(0);
            match known.all(|&value| value == first) {
                true if first == 0 => {}
                true => drop(series.constant.insert(name, first)),
                false => drop(series.gauges.insert(name, values)),
            }
        }
        series
    }
}

/// Returns the name as a line of the schema has it: `link_queued_packets link=0 name=ms0`.
fn name_of(entry: &Entry) -> String {
    let mut name = entry.name.clone();
    for (key, value) in &entry.labels {
        name.push_str(&format!(" {key}={value}"));
    }
    name
}

impl Kept {
    /// Keeps this one if its turn has come. Where there are too many, every second one goes, and
    /// half as many come.
    fn take(&mut self, now: Snapshot) {
        self.every = self.every.max(1);
        if self.count.is_multiple_of(self.every) {
            if self.snapshots.len() == limits::ENGINE_SNAPSHOTS {
                let mut place = 0;
                self.snapshots.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.every *= 2;
            }
            self.snapshots.push(now.clone());
        }
        self.count += 1;
        self.last = Some(now);
    }

    /// Returns the growth in the first and in the last quarter of the time; `None` with too few
    /// snapshots.
    fn quarters(&self) -> Option<[EngineStretch; 2]> {
        let (first, last) = self.snapshots.first().zip(self.last.as_ref())?;
        let all_ns = last.engine_ns.saturating_sub(first.engine_ns);
        let since = |one: &Snapshot| one.engine_ns.saturating_sub(first.engine_ns);
        let until = self.snapshots.iter().rev().find(|one| since(one) <= all_ns / 4)?;
        let from = self.snapshots.iter().find(|one| since(one) >= all_ns / 4 * 3)?;
        let has_both = since(until) > 0 && since(from) < all_ns;
        has_both.then(|| [stretch(first, until), stretch(from, last)])
    }
}

/// Returns the growth of stages and histograms from one snapshot to the other. The longest visit of
/// a stage is that of the whole time until `to`.
fn stretch(from: &Snapshot, to: &Snapshot) -> EngineStretch {
    let mut found = EngineStretch { ns: to.engine_ns - from.engine_ns, ..EngineStretch::default() };
    for (entry, _) in to.named("stage_ns") {
        let Some(stage) = entry.label("stage") else { continue };
        let at = |name: &str, of: &Snapshot| of.labelled(name, "stage", stage).unwrap_or(0);
        let added = |name: &str| at(name, to).saturating_sub(at(name, from));
        let record = StageRecord {
            ns: added("stage_ns"),
            max_ns: at("stage_most_ns", to),
            visits: added("stage_visits"),
            units: added("stage_units"),
        };
        if record.visits > 0 {
            found.stages.insert(stage.to_owned(), record);
        }
    }
    let before: BTreeMap<String, &[u64]> = histograms(from).collect();
    for (name, counts) in histograms(to) {
        let earlier =
            |at: usize| before.get(&name).and_then(|all| all.get(at)).copied().unwrap_or(0);
        let added = counts
            .iter()
            .enumerate()
            .map(|(at, count)| (bucket_least(at), count.saturating_sub(earlier(at))));
        let added: Vec<(u64, u64)> = added.filter(|(_, count)| *count > 0).collect();
        if !added.is_empty() {
            found.histograms.insert(name, added);
        }
    }
    found
}

fn histograms(of: &Snapshot) -> impl Iterator<Item = (String, &[u64])> {
    let all = of.iter().filter(|(entry, _)| entry.kind == Kind::Histogram);
    all.map(|(entry, values)| (name_of(entry), values))
}

/// Bytes received, bytes sent and memory held of all TCP sockets of an engine, or `None` where it
/// takes too long to say.
fn queues(segment: &Segment) -> Option<[u64; 3]> {
    let begun = Instant::now();
    let (mut sum, mut is_late) = ([0; 3], false);
    let asked = segment.ask("ss", limits::ENGINE_PATIENCE, |record| {
        // The queues of a listener are of connections.
        if record.get("state") != Some("LISTEN") && record.get("id").is_some_and(is_tcp) {
            for (sum, key) in sum.iter_mut().zip(["recv_q", "send_q", "held_bytes"]) {
                *sum += record.number(key).unwrap_or(0);
            }
        }
        is_late = begun.elapsed() > limits::ENGINE_PATIENCE;
        if is_late { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    (asked.is_ok() && !is_late).then_some(sum)
}

fn is_tcp(id: &str) -> bool {
    id.starts_with("tcp")
}
