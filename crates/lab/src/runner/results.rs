//! Results of the record, from the counters of the workers.

use millstream_diagnose::stats::median;
use millstream_load::worker::{EndReport, Sample};
use millstream_load::workload::{Counts, End};
use millstream_plan::{Joined, Measure, Plan};
use millstream_record::{EndsOnCpus, IntervalSeries, RunRecord, Window, keys};
use millstream_testbed::integrity::Claim;

use super::machine::MachineUse;
use super::soak;
use crate::limits;

/// Returns the bytes that arrived over the whole life of the run, as the receivers counted them,
/// and the bytes that were sent again, as the senders counted them.
pub(super) fn claim(plan: Plan, ends: &[EndReport]) -> Claim {
    let of = |which| ends.iter().find(|end| end.end == which);
    let received = |which| of(which).map_or(0, |end| end.totals.received_bytes);
    let sent = |which| of(which).map_or(0, |end| end.totals.sent_bytes);
    // Datagrams are sent once; those that nobody received may have passed the link, too.
    let more = |sender, receiver| match plan.is_of_datagrams() {
        true => sent(sender).saturating_sub(received(receiver)),
        false => of(sender).map_or(0, resent),
    };
    Claim {
        to_far_bytes: received(End::Far),
        to_near_bytes: received(End::Near),
        resent_to_far_bytes: more(End::Near, End::Far),
        resent_to_near_bytes: more(End::Far, End::Near),
    }
}

/// Payload that an end has sent again.
fn resent(end: &EndReport) -> u64 {
    sum_of_senders(end, "bytes_retransmitted") as u64
}

/// Sum of a field of all connections on which an end sends: those whose state is kept stand for the
/// others too. That of connections which only receive is zero.
fn sum_of_senders(end: &EndReport, field: &str) -> f64 {
    let known: f64 = end.tcp_info.iter().filter_map(|info| info.fields.get(field)).sum();
    let kept = end.tcp_info.len().min(end.sending);
    known * end.sending as f64 / kept.max(1) as f64
}

/// The senders' counts of repaired losses of bulk data, over the whole life of their connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Recovery {
    /// Segments with data, repeated ones included.
    pub(super) sent: f64,
    /// Segments sent again.
    pub(super) retransmitted: f64,
    /// Segments sent again that the receiver had already, by its D-SACKs.
    pub(super) spurious: f64,
}

impl Recovery {
    /// Returns the counts of the senders; `None` when no sender tells.
    pub(super) fn of(plan: Plan, ends: &[EndReport]) -> Option<Self> {
        let (near_sends, far_sends) = plan.streams()?;
        let sends = |end: &&EndReport| match end.end {
            End::Near => near_sends > 0,
            End::Far => far_sends > 0,
        };
        let mut all = Self::default();
        for end in ends.iter().filter(sends) {
            all.sent += sum_of_senders(end, "data_segments_sent");
            all.retransmitted += sum_of_senders(end, "retransmits");
            all.spurious += sum_of_senders(end, "dsack_dups");
        }
        (all.sent > 0.0).then_some(all)
    }

    /// A count as a share of what was sent.
    pub(super) fn percent(&self, count: f64) -> f64 {
        100.0 * count / self.sent
    }
}

/// Goodput of a pair of ends of bulk data, both directions together.
pub(super) fn stream_bits_per_s(plan: Plan, ends: &[EndReport]) -> Option<f64> {
    let (near_sends, far_sends) = plan.streams()?;
    let rate = |which: End, sends: usize| {
        let samples = ends.iter().find(|end| end.end == which && sends > 0)?.samples.as_slice();
        Some(Growth { samples, of: |c| c.received_bytes }.per_second() * 8.0)
    };
    let rates = [rate(End::Far, near_sends), rate(End::Near, far_sends)];
    Some(rates.into_iter().flatten().sum())
}

/// A quantity that grew over the window at one end.
struct Growth<'a> {
    samples: &'a [Sample],
    of: fn(&Counts) -> u64,
}

impl Growth<'_> {
    fn total(&self) -> u64 {
        match self.samples {
            [first, .., last] => (self.of)(&last.counts) - (self.of)(&first.counts),
            _ => 0,
        }
    }

    fn per_second(&self) -> f64 {
        match self.samples {
            [first, .., last] if last.at_ns > first.at_ns => {
                self.total() as f64 / ((last.at_ns - first.at_ns) as f64 / 1e9)
            }
            _ => 0.0,
        }
    }

    /// Returns the growth from the first reading to a moment: as read, or in proportion between two
    /// readings.
    fn until(&self, at_ns: u64) -> f64 {
        let (Some(first), Some(last)) = (self.samples.first(), self.samples.last()) else {
            return 0.0;
        };
        let since = |sample: &Sample| ((self.of)(&sample.counts) - (self.of)(&first.counts)) as f64;
        let after = self.samples.partition_point(|sample| sample.at_ns < at_ns);
        match (after.checked_sub(1).map(|at| &self.samples[at]), self.samples.get(after)) {
            (None, _) => 0.0,
            (Some(_), None) => since(last),
            (Some(before), Some(next)) => {
                let part = (at_ns - before.at_ns) as f64 / (next.at_ns - before.at_ns) as f64;
                since(before) + part * (since(next) - since(before))
            }
        }
    }

    /// Returns the growth in each interval between the readings of `grid`. Together they are all
    /// that grew: the first and the last reading of `grid` count as those of this end.
    fn steps(&self, grid: &[Sample]) -> Vec<f64> {
        let edge = |at: usize| match at {
            0 => 0.0,
            _ if at + 1 == grid.len() => self.total() as f64,
            _ => self.until(grid[at].at_ns),
        };
        (1..grid.len()).map(|at| edge(at) - edge(at - 1)).collect()
    }
}

/// Fills in window, results and intervals.
pub(super) fn fill(
    record: &mut RunRecord,
    plan: Plan,
    ends: &[EndReport],
    machine: Option<MachineUse>,
    origin_ns: u64,
) {
    let samples = |which| {
        ends.iter().find(|end| end.end == which).map_or(&[][..], |end| end.samples.as_slice())
    };
    let (near, far) = (samples(End::Near), samples(End::Far));
    let second = |at_ns: u64| at_ns.saturating_sub(origin_ns) as f64 / 1e9;
    let reference = if near.is_empty() { far } else { near };
    if let [first, .., last] = reference {
        record.window = Window { start_s: second(first.at_ns), end_s: second(last.at_ns) };
    }
    let busy_share = machine.map(|used| used.busy_s / used.elapsed_s);
    if let Some(used) = machine {
        record.set(keys::CPU_SECONDS, used.busy_s);
        record.set("steal_s", used.steal_s);
    }
    match plan.measure {
        Measure::Bulk { near_sends, far_sends, datagram_bytes } => {
            let mut lanes = Vec::new();
            if near_sends > 0 {
                lanes.push(("send", Growth { samples: far, of: |c| c.received_bytes }));
            }
            if far_sends > 0 {
                lanes.push(("recv", Growth { samples: near, of: |c| c.received_bytes }));
            }
            let growths: Vec<&Growth> = lanes.iter().map(|(_, growth)| growth).collect();
            intervals(record, keys::THROUGHPUT, &growths, 8.0, origin_ns);
            stream(record, &lanes, busy_share);
            shares(record, ends);
            if let Some(bytes) = datagram_bytes {
                datagrams(record, ends, bytes);
            }
            let rate = record.result(keys::PACKETS).filter(|&rate| rate > 0.0);
            if let (Joined::Flows(_), Some(share), Some(rate)) = (plan.joined, busy_share, rate) {
                record.set(keys::CPU_PER_PACKET, share / rate * 1e6);
            }
            latencies(record, ends);
        }
        Measure::Transactions => {
            let growth = Growth { samples: near, of: |c| c.transactions };
            intervals(record, keys::TRANSACTIONS, &[&growth], 1.0, origin_ns);
            request_response(record, &growth, ends, busy_share);
        }
    }
    counters(record, ends, origin_ns);
}

/// Records the rate of datagrams that arrived, and the percentage that did not.
fn datagrams(record: &mut RunRecord, ends: &[EndReport], bytes: usize) {
    let bits = record.results.get(keys::THROUGHPUT).copied().unwrap_or(0.0);
    record.set(keys::PACKETS, bits / 8.0 / bytes as f64);
    let sum = |of: fn(&Counts) -> u64| ends.iter().map(|end| of(&end.totals)).sum::<u64>();
    let (sent, received) = (sum(|counts| counts.sent_bytes), sum(|counts| counts.received_bytes));
    if sent > 0 {
        record.set(keys::LOST, 100.0 * sent.saturating_sub(received) as f64 / sent as f64);
    }
}

/// Returns the CPUs on which both ends ran in the window, as their threads say.
pub(super) fn on_cpus(ends: &[EndReport]) -> Option<EndsOnCpus> {
    let of = |which| ends.iter().find(|end| end.end == which);
    let near = of(End::Near)?;
    let (first, last) = (near.samples.first()?, near.samples.last()?);
    let (begin, end) = (first.at_ns, last.at_ns);
    let mut found = EndsOnCpus::default();
    for (name, one) in [("near", Some(near)), ("far", of(End::Far))] {
        let Some(one) = one else { continue };
        let on = one.whereabouts.on_cpus(begin, end);
        let all = on.values().sum::<u64>().max(1) as f64;
        let shares = on.into_iter().map(|(cpu, ns)| (cpu, ns as f64 / all)).collect();
        found.shares.insert(name.to_owned(), shares);
        found.moves += one.whereabouts.moves(begin, end);
    }
    found.same_cpu_share =
        of(End::Far).and_then(|far| near.whereabouts.same_share(&far.whereabouts, begin, end));
    Some(found)
}

/// Fills in what the workload counted beside payload and transactions.
fn counters(record: &mut RunRecord, ends: &[EndReport], origin_ns: u64) {
    if ends.iter().any(|end| end.counters.contains_key("checked_bytes")) {
        soak::fill(record, ends, origin_ns);
    }
    for (name, value) in ends.iter().flat_map(|end| &end.counters) {
        if !matches!(name.as_str(), "checked_bytes" | "wrong_bytes" | "written_bytes") {
            record.set(name, *value);
        }
    }
}

/// Fills in a rate over time: what all of `lanes` together grew by in each interval, in units of
/// which `scale` are one counted. An interval lies between two readings of the first lane and has
/// the width that it really had, so that the sum of rate times width is the total.
fn intervals(record: &mut RunRecord, key: &str, lanes: &[&Growth], scale: f64, origin_ns: u64) {
    let Some(grid) = lanes.first().map(|lane| lane.samples).filter(|grid| grid.len() > 1) else {
        return;
    };
    let width = |pair: &[Sample]| pair[1].at_ns.saturating_sub(pair[0].at_ns) as f64 / 1e9;
    let widths_s: Vec<f64> = grid.windows(2).map(width).collect();
    let mut series = vec![0.0; widths_s.len()];
    for lane in lanes {
        series.iter_mut().zip(lane.steps(grid)).for_each(|(sum, step)| *sum += step * scale);
    }
    let rate = |(step, width): (f64, &f64)| if *width > 0.0 { step / width } else { 0.0 };
    let rates = series.into_iter().zip(&widths_s).map(rate).collect();
    record.intervals = IntervalSeries {
        start_s: grid[0].at_ns.saturating_sub(origin_ns) as f64 / 1e9,
        width_s: limits::INTERVAL_MS as f64 / 1e3,
        widths_s,
        series: [(key.to_owned(), rates)].into(),
    };
}

/// Fills in what the probes say about the same window.
pub(super) fn fill_from_probes(record: &mut RunRecord) {
    let payload = record.results.get(keys::PAYLOAD).copied().unwrap_or(0.0);
    if let Some(calls) = record.probes.cross_calls(record.window).filter(|_| payload > 0.0) {
        record.set(keys::XCAL_PER_GB, calls / (payload / 1e9));
    }
    let length_s = record.window.end_s - record.window.start_s;
    if let Some(halts) = record.probes.halts().filter(|_| length_s > 0.0) {
        record.set(keys::HALTS, halts as f64 / length_s);
    }
    let is_tested = |role: &str| matches!(role, "near" | "router");
    let near = record.probes.engines.iter().find(|engine| is_tested(&engine.role)).cloned();
    for (stage, share) in near.iter().flat_map(|engine| engine.shares()) {
        record.set(&format!("{}{stage}", keys::STAGE_SHARE), share);
    }
}

/// Fills in the CPU time of the workers in the window. A far worker without any is none: both ends
/// are in the near one, whose time is of neither.
pub(super) fn fill_from_workers(record: &mut RunRecord, near_s: f64, far_s: f64) {
    record.set("near_process_cpu_s", near_s);
    if far_s > 0.0 {
        record.set("far_process_cpu_s", far_s);
        if let Some(payload) = record.result(keys::PAYLOAD).filter(|bytes| *bytes > 0.0) {
            record.set(keys::NEAR_CPU_PER_KB, near_s * 1e6 / (payload / 1e3));
            record.set(keys::FAR_CPU_PER_KB, far_s * 1e6 / (payload / 1e3));
        }
    }
}

/// Takes out what divides the work of the whole machine by the payload of one pair: where a rival
/// worked beside it, that is no cost of either.
pub(super) fn forget_costs(record: &mut RunRecord) {
    for key in [keys::CPU_PER_GB, keys::XCAL_PER_GB] {
        record.results.remove(key);
    }
}

/// Records the evenness with which the connections of each direction shared it: of two directions
/// the less even one.
fn shares(record: &mut RunRecord, ends: &[EndReport]) {
    for end in ends.iter().filter(|end| end.received_by.len() > 1) {
        let bytes: Vec<f64> = end.received_by.iter().map(|&bytes| bytes as f64).collect();
        let (sum, n) = (bytes.iter().sum::<f64>(), bytes.len() as f64);
        if sum == 0.0 {
            continue;
        }
        let shares: Vec<f64> = bytes.iter().map(|bytes| bytes * n / sum).collect();
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let jain = sum * sum / (n * bytes.iter().map(|bytes| bytes * bytes).sum::<f64>());
        let values = [
            (keys::LEAST_SHARE, least),
            (keys::MEDIAN_SHARE, median(&shares).unwrap_or(0.0)),
            (keys::STREAM_JAIN, jain),
        ];
        for (key, value) in values {
            let lower = record.results.get(key).map_or(value, |known| known.min(value));
            record.set(key, lower);
        }
    }
}

fn stream(record: &mut RunRecord, lanes: &[(&str, Growth)], busy_share: Option<f64>) {
    let bytes_per_s: f64 = lanes.iter().map(|(_, growth)| growth.per_second()).sum();
    let payload: u64 = lanes.iter().map(|(_, growth)| growth.total()).sum();
    record.set(keys::THROUGHPUT, bytes_per_s * 8.0);
    record.set(keys::PAYLOAD, payload as f64);
    for (direction, growth) in lanes {
        if lanes.len() > 1 {
            let key = format!("throughput_{direction}_bits_per_s");
            record.set(&key, growth.per_second() * 8.0);
        }
    }
    if payload == 0 {
        record.validity.reject("no payload arrived inside the measured window");
    } else if let Some(share) = busy_share {
        record.set(keys::CPU_PER_GB, share / (bytes_per_s / 1e9));
    }
}

fn request_response(
    record: &mut RunRecord,
    growth: &Growth,
    ends: &[EndReport],
    busy_share: Option<f64>,
) {
    let per_s = growth.per_second();
    record.set(keys::TRANSACTIONS, per_s);
    record.set(keys::TRANSACTION_COUNT, growth.total() as f64);
    if growth.total() == 0 {
        record.validity.reject("no transaction finished inside the measured window");
        return;
    }
    if let Some(share) = busy_share {
        record.set(keys::CPU_PER_TRANSACTION, share / per_s * 1e6);
    }
    latencies(record, ends);
}

/// Fills in the latencies, where an end has taken some.
fn latencies(record: &mut RunRecord, ends: &[EndReport]) {
    // One may have ended in the window that began before it, and none lie in it: that is no latency
    // of zero.
    let timed = ends.iter().filter_map(|end| end.latency).find(|latency| latency.count > 0);
    if let Some(latency) = timed {
        record.set(keys::LATENCY_P50, latency.p50_us);
        record.set(keys::LATENCY_P90, latency.p90_us);
        record.set(keys::LATENCY_P99, latency.p99_us);
        record.set(keys::LATENCY_P999, latency.p999_us);
        record.set(keys::LATENCY_MAX, latency.max_us);
        record.set("latency_mean_us", latency.mean_us);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use millstream_plan::{Task, Workload};

    pub(in crate::runner) fn plan(workload: &str, levels: &[(&str, &str)]) -> Plan {
        Task::new(Workload::of(workload).unwrap(), levels.iter().copied()).plan()
    }

    pub(in crate::runner) fn end(end: End, received: &[u64]) -> EndReport {
        let sample = |(at, &received_bytes): (usize, &u64)| Sample {
            at_ns: 1_000_000_000 + at as u64 * 100_000_000,
            counts: Counts { received_bytes, sent_bytes: 0, transactions: received_bytes / 10 },
        };
        let samples: Vec<Sample> = received.iter().enumerate().map(sample).collect();
        let totals = samples.last().map(|s| s.counts).unwrap_or_default();
        EndReport {
            whereabouts: millstream_load::workload::Whereabouts::default(),
            counters: Default::default(),
            wrong: Vec::new(),
            end,
            samples,
            totals,
            latency: None,
            received_by: Vec::new(),
            tcp_info: Vec::new(),
            sending: 1,
            link: None,
            engine: None,
            notes: Vec::new(),
        }
    }

    pub(in crate::runner) const BUSY: MachineUse =
        MachineUse { elapsed_s: 0.2, busy_s: 0.3, steal_s: 0.0 };

    #[test]
    fn goodput_is_what_the_receiver_took_inside_the_window() {
        let ends = [end(End::Near, &[0, 0, 0]), end(End::Far, &[500, 1_000_500, 3_000_500])];
        let task = plan("tcp_stream", &[("streams", "1")]);
        let mut record = RunRecord::default();
        fill(&mut record, task, &ends, Some(BUSY), 500_000_000);
        assert_eq!(record.results[keys::THROUGHPUT], 8.0 * 3_000_000.0 / 0.2);
        assert_eq!(record.results[keys::PAYLOAD], 3_000_000.0);
        let per_gb = 0.3 / 0.003;
        assert!((record.results[keys::CPU_PER_GB] / per_gb - 1.0).abs() < 1e-9);
        assert_eq!(record.window, Window { start_s: 0.5, end_s: 0.7 });
        assert_eq!(record.intervals.series[keys::THROUGHPUT], [8e7, 16e7]);
        assert!(record.validity.valid);
        let task = plan("tcp_stream", &[("streams", "1")]);
        assert_eq!(claim(task, &ends), Claim { to_far_bytes: 3_000_500, ..Claim::default() });
    }

    #[test]
    fn each_worker_has_its_time_per_kb_where_there_are_two() {
        let with = |far_s, payload: Option<f64>| {
            let mut record = RunRecord::default();
            payload.into_iter().for_each(|bytes| record.set(keys::PAYLOAD, bytes));
            fill_from_workers(&mut record, 0.3, far_s);
            [keys::NEAR_CPU_PER_KB, keys::FAR_CPU_PER_KB].map(|key| record.result(key))
        };
        assert_eq!(with(0.6, Some(3e6)), [Some(100.0), Some(200.0)]);
        assert_eq!(with(0.0, Some(3e6)), [None, None], "both ends are in one process");
        assert_eq!(with(0.6, None), [None, None]);
        assert_eq!(with(0.6, Some(0.0)), [None, None]);
    }

    #[test]
    fn what_was_sent_again_is_the_senders_word_for_all_its_connections() {
        let mut near = end(End::Near, &[0, 0]);
        near.sending = 64;
        for _ in 0..16 {
            let mut info = millstream_record::TcpInfoRecord::default();
            info.fields.insert("bytes_retransmitted".into(), 1000.0);
            info.fields.insert("data_segments_sent".into(), 50.0);
            near.tcp_info.push(info);
        }
        let task = plan("tcp_stream", &[("streams", "64")]);
        assert_eq!(Recovery::of(task, &[near.clone()]).map(|all| all.sent), Some(3200.0));
        let task = plan("tcp_stream", &[("streams", "1")]);
        let claim = claim(task, &[near, end(End::Far, &[0, 5])]);
        assert_eq!((claim.resent_to_far_bytes, claim.resent_to_near_bytes), (64_000, 0));
    }

    #[test]
    fn repairs_are_the_word_of_those_who_send() {
        let task = plan("tcp_stream", &[("streams", "1")]);
        let mut ends = [end(End::Near, &[0, 0, 0]), end(End::Far, &[0, 500_000, 1_000_000])];
        assert_eq!(Recovery::of(task, &ends), None);
        for (end, sent) in ends.iter_mut().zip([1000.0, 3.0]) {
            let mut info = millstream_record::TcpInfoRecord::default();
            let fields = [("data_segments_sent", sent), ("retransmits", 20.0), ("dsack_dups", 5.0)];
            info.fields.extend(fields.map(|(name, value)| (name.to_owned(), value)));
            end.tcp_info = vec![info.clone(), info];
            end.sending = 2;
        }
        let recovery = Recovery::of(task, &ends).unwrap();
        assert_eq!(recovery, Recovery { sent: 2000.0, retransmitted: 40.0, spurious: 10.0 });
        assert_eq!(recovery.percent(recovery.spurious), 0.5);
        assert_eq!(stream_bits_per_s(task, &ends), Some(4e7));
    }

    #[test]
    fn both_directions_are_added_and_kept_apart() {
        let ends = [end(End::Near, &[0, 100, 200]), end(End::Far, &[0, 1000, 2000])];
        let task = plan("tcp_stream", &[("direction", "both")]);
        let mut record = RunRecord::default();
        fill(&mut record, task, &ends, Some(BUSY), 0);
        assert_eq!(record.results[keys::THROUGHPUT], 88_000.0);
        assert_eq!(record.results["throughput_send_bits_per_s"], 80_000.0);
        assert_eq!(record.results["throughput_recv_bits_per_s"], 8_000.0);
    }

    /// One end stands still over the end of the window and the other in the middle: no interval is
    /// called narrower than it was, and none of the payload is lost or counted twice.
    #[test]
    fn rates_times_the_real_widths_are_the_total() {
        let task = plan("tcp_stream", &[("direction", "both")]);
        let at = |mut report: EndReport, at_ms: &[u64]| {
            for (sample, ms) in report.samples.iter_mut().zip(at_ms) {
                sample.at_ns = ms * 1_000_000;
            }
            report
        };
        let far = at(end(End::Far, &[5, 105, 1605, 1705]), &[1000, 1100, 2600, 2700]);
        let near = at(end(End::Near, &[0, 10, 20, 30]), &[1000, 1100, 1200, 3800]);
        for ends in [vec![far.clone()], vec![far, near]] {
            let mut record = RunRecord::default();
            fill(&mut record, task, &ends, Some(BUSY), 500_000_000);
            let IntervalSeries { start_s, width_s, widths_s, series } = &record.intervals;
            assert_eq!((*start_s, *width_s), (0.5, 0.1));
            assert_eq!(widths_s, &[0.1, 1.5, 0.1]);
            let rates = &series[keys::THROUGHPUT];
            let bits: f64 = rates.iter().zip(widths_s).map(|(rate, width)| rate * width).sum();
            let payload = 8.0 * record.results[keys::PAYLOAD];
            assert!((bits / payload - 1.0).abs() < 1e-9, "{bits} of {payload}");
            assert!(rates.iter().all(|rate| *rate >= 8.0 * 100.0 / 0.1 - 1e-6), "{rates:?}");
            let spans = record.intervals.spans(3);
            assert!(
                (spans[1].0 - 0.6).abs() < 1e-9 && (spans[2].1 - 2.2).abs() < 1e-9,
                "{spans:?}"
            );
        }
    }

    #[test]
    fn shares_of_connections_are_told_for_the_less_even_direction() {
        let mut near = end(End::Near, &[0, 100]);
        near.received_by = vec![50, 50];
        let mut far = end(End::Far, &[0, 80]);
        far.received_by = vec![10, 20, 50, 0];
        let mut record = RunRecord::default();
        shares(&mut record, &[near, far]);
        assert_eq!(record.results[keys::LEAST_SHARE], 0.0);
        assert_eq!(record.results[keys::MEDIAN_SHARE], 0.75);
        assert!((record.results[keys::STREAM_JAIN] - 6400.0 / (4.0 * 3000.0)).abs() < 1e-9);
    }

    #[test]
    fn cross_calls_and_stages_come_from_the_probes() {
        use millstream_record::{EngineRecord, InterruptRow, Interrupts, StageRecord};
        let row = |id: &str, series: Vec<Vec<u64>>| InterruptRow {
            id: id.into(),
            series,
            ..InterruptRow::default()
        };
        let window = Window { start_s: 1.0, end_s: 2.5 };
        let mut record = RunRecord { window, ..RunRecord::default() };
        record.results.insert(keys::PAYLOAD.into(), 2e9);
        record.probes.times_s = vec![0.0, 1.0, 2.0, 3.0];
        record.probes.interrupts = Some(Interrupts {
            cpus: vec![0, 1],
            rows: vec![
                row("RES", vec![vec![100, 10, 20], vec![100, 1, 2]]),
                row("TLB", vec![vec![0, 3, 4], vec![0, 0, 0]]),
                row("38", vec![vec![9, 9, 9], vec![9, 9, 9]]),
            ],
        });
        let idle = |name: &str, exit_latency_us, entries| millstream_record::IdleState {
            name: name.into(),
            exit_latency_us,
            entries,
            time_us: 1,
        };
        let states = vec![idle("POLL", 0, 99), idle("C1", 1, 12), idle("C2", 50, 3)];
        let cpus = (0..2).map(|cpu| millstream_record::IdleCpu { cpu, states: states.clone() });
        record.probes.idle_states = Some(cpus.collect());
        let stage = |ns| StageRecord { ns, ..StageRecord::default() };
        record.probes.engines.push(EngineRecord {
            role: "near".into(),
            stages: [("receive".into(), stage(30)), ("tcp".into(), stage(10))].into(),
            ..EngineRecord::default()
        });
        fill_from_probes(&mut record);
        assert_eq!(record.results[keys::XCAL_PER_GB], (14.0 + 26.0 / 2.0) / 2.0);
        assert_eq!(record.results["engine_share_receive"], 0.75);
        assert_eq!(record.results[keys::HALTS], 30.0 / 1.5);
    }

    #[test]
    fn beside_a_rival_no_cost_is_told() {
        let mut record = RunRecord::default();
        for key in [keys::THROUGHPUT, keys::CPU_PER_GB, keys::XCAL_PER_GB] {
            record.set(key, 1.0);
        }
        forget_costs(&mut record);
        assert_eq!(record.results.keys().collect::<Vec<_>>(), [keys::THROUGHPUT]);
    }

    #[test]
    fn nothing_inside_the_window_is_no_result() {
        let ends = [end(End::Near, &[7, 7]), end(End::Far, &[7, 7])];
        for task in [plan("tcp_stream", &[("streams", "1")]), plan("tcp_rr", &[])] {
            let mut record = RunRecord::default();
            fill(&mut record, task, &ends, Some(BUSY), 0);
            assert!(!record.validity.valid && !record.results.contains_key(keys::CPU_PER_GB));
        }
    }

    #[test]
    fn datagrams_that_did_not_arrive_are_a_share_and_explain_what_the_link_carried() {
        let task = plan("udp_stream", &[("datagram_bytes", "100")]);
        let [mut near, far] = [end(End::Near, &[0, 0]), end(End::Far, &[0, 30_000])];
        near.totals.sent_bytes = 40_000;
        let ends = [near, far];
        let mut record = RunRecord::default();
        fill(&mut record, task, &ends, Some(BUSY), 0);
        assert!((record.results[keys::PACKETS] - 3000.0).abs() < 1e-6);
        assert_eq!(record.results[keys::LOST], 25.0);
        assert_eq!(claim(task, &ends).resent_to_far_bytes, 10_000);
    }

    #[test]
    fn transactions_come_from_the_asking_end() {
        let ends = [end(End::Near, &[0, 1000, 2000]), end(End::Far, &[0, 0, 0])];
        let task = plan("tcp_rr", &[]);
        let mut record = RunRecord::default();
        fill(&mut record, task, &ends, Some(BUSY), 0);
        assert_eq!(record.results[keys::TRANSACTIONS], 1000.0);
        assert!((record.results[keys::CPU_PER_TRANSACTION] - 1500.0).abs() < 1e-6);
    }

    #[test]
    fn without_a_transaction_that_lies_in_the_window_no_latency_is_told() {
        let task = plan("tcp_rr", &[]);
        // One that began before the window ended inside of it.
        let mut ends = [end(End::Near, &[0, 10]), end(End::Far, &[0, 0])];
        for (count, is_told) in [(0, false), (1, true)] {
            ends[0].latency =
                Some(millstream_load::worker::Latency { count, ..Default::default() });
            let mut record = RunRecord::default();
            fill(&mut record, task, &ends, Some(BUSY), 0);
            assert!(record.validity.valid && record.results[keys::TRANSACTION_COUNT] == 1.0);
            let told = record.results.keys().any(|key| key.starts_with("latency_"));
            assert_eq!(told, is_told, "{count} timed");
        }
    }
}
