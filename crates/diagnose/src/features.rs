//! The features of a run: numbers that can be compared between runs.
//!
//! Counters that grow with the result are divided by what was moved (a transaction, 10^6 bytes; of
//! a command with requests and answers a segment) or given as shares: otherwise each of them would
//! explain every result. CPU time by unit is none of them: where a CPU is full it is the result in
//! other words.

use std::collections::{BTreeMap, BTreeSet};

use millstream_record::{CpuActivity, Probes, RUNNER, RunRecord, keys};

use crate::separate::Feature;

/// Distances of kinds of features from a cause ([`Feature::distance`]).
mod distance {
    pub const PLACEMENT: u8 = 0;
    pub const WHERE: u8 = 1;
    pub const MACHINE: u8 = 2;
    pub const PROTOCOL: u8 = 4;
    pub const CPU_TIME: u8 = 6;
    pub const PER_UNIT: u8 = 7;
}

/// Bytes of a unit where a run counts bytes.
const UNIT_BYTES: f64 = 1e6;

/// Least of them of which a count for each is told.
const MEGABYTES_LEAST: f64 = 10.0;

mod flows;
mod kernel;
#[cfg(test)]
mod made_up;
mod measured;
mod others;
mod profile;
mod queue;
mod tables;
mod threads;
mod time;
mod way;

pub use threads::{by_threads, threads_of};
pub use time::{is_of_time, of_time};

type Values = BTreeMap<String, (f64, u8)>;

/// The features that at least one of `runs` has; where one run lacks what another has, it is not
/// measured there.
pub fn features(runs: &[&RunRecord]) -> Vec<Feature> {
    let each: Vec<Values> = runs.iter().map(|run| of_run(run)).collect();
    let names: BTreeSet<&String> = each.iter().flat_map(BTreeMap::keys).collect();
    let feature = |name: &String| {
        let at = |values: &Values| values.get(name).copied();
        let distance =
            each.iter().find_map(at).map_or(distance::PER_UNIT, |(_, distance)| distance);
        let values = each.iter().map(|values| at(values).map(|(value, _)| value)).collect();
        Feature { name: name.clone(), distance, values }
    };
    names.into_iter().map(feature).collect()
}

fn of_run(run: &RunRecord) -> Values {
    let mut values = Values::new();
    let probes = &run.probes;
    if let Some(ns) = run.result(keys::CPU_DISTANCE) {
        values.insert("cpu_distance_ns".into(), (ns, distance::WHERE));
    }
    let Some(span) = probes.length_s() else { return values };
    let mut seen = Seen { values, span, units: units(run, span) };
    placement(&mut seen, probes, megabytes(run, span));
    others::others(&mut seen, probes);
    cpu_time(&mut seen, probes);
    interrupts(&mut seen, probes);
    protocols(&mut seen, probes);
    flows::flows(&mut seen, probes);
    kernel::kernel(&mut seen, probes);
    profile::profile(&mut seen, probes);
    measured::measured(&mut seen, probes);
    tables::tables(&mut seen, probes);
    queue::queue(&mut seen, run);
    way::way(&mut seen, probes);
    highest_of_any_cpu(&mut seen);
    seen.values
}

/// Before the name of a feature of each CPU: the highest value that any of them has.
pub const ANY_CPU: &str = "any_cpu.";

/// Returns the CPU and the rest of the name of a feature of one CPU, as `cpu3.usr_share`.
pub fn of_one_cpu(name: &str) -> Option<(u32, &str)> {
    let (cpu, feature) = name.strip_prefix("cpu")?.split_once('.')?;
    Some((cpu.parse().ok()?, feature))
}

/// Adds to the features of each CPU the highest of any: which CPU is the busy one differs from run
/// to run, and then none of them goes with the result.
fn highest_of_any_cpu(seen: &mut Seen) {
    let mut highest = Values::new();
    for (name, (value, distance)) in &seen.values {
        if let Some((_, feature)) = of_one_cpu(name) {
            let one = highest.entry(format!("{ANY_CPU}{feature}")).or_insert((*value, *distance));
            one.0 = one.0.max(*value);
        }
    }
    seen.values.extend(highest);
}

/// Returns the units that a run moved from its first sample to its last, `span` seconds later.
/// Without a result these are the segments.
fn units(run: &RunRecord, span: f64) -> Option<f64> {
    over_all(run, span, run.result(keys::TRANSACTION_COUNT))
        .or_else(|| over_all(run, span, payload(run)))
        .or_else(|| flows::segments(&run.probes))
}

/// Returns the 10^6 bytes that a run moved in all that time, of a command those of its TCP
/// connections. `None` where they are so few that what a program does once counts as much.
fn megabytes(run: &RunRecord, span: f64) -> Option<f64> {
    let moved = over_all(run, span, payload(run));
    moved.or_else(|| flows::acked(&run.probes)).filter(|moved| *moved >= MEGABYTES_LEAST)
}

fn payload(run: &RunRecord) -> Option<f64> {
    run.result(keys::PAYLOAD).map(|bytes| bytes / UNIT_BYTES)
}

/// Returns what a run moved from its first sample to its last: results count the window alone,
/// counters all of this time.
fn over_all(run: &RunRecord, span: f64, result: Option<f64>) -> Option<f64> {
    let inside = ((run.window.end_s - run.window.start_s) / span).clamp(0.0, 1.0);
    result.filter(|moved| *moved > 0.0 && inside > 0.0).map(|moved| moved / inside)
}

struct Seen {
    values: Values,
    span: f64,
    units: Option<f64>,
}

impl Seen {
    fn put(&mut self, name: impl Into<String>, value: f64, distance: u8) {
        if value.is_finite() {
            self.values.insert(name.into(), (value, distance));
        }
    }

    fn per_second(&mut self, name: &str, count: f64, distance: u8) {
        self.put(name, count / self.span, distance);
    }

    /// Adds a feature by unit of work; none where the run does not say what it moved.
    fn per_unit(&mut self, name: &str, count: f64) {
        if let Some(units) = self.units {
            self.put(name, count / units, distance::PER_UNIT);
        }
    }
}

/// Share of the samples in which a worker was on each CPU.
fn shares(seen_on_cpu: &BTreeMap<u32, u64>) -> BTreeMap<u32, f64> {
    let all: u64 = seen_on_cpu.values().sum();
    seen_on_cpu.iter().map(|(cpu, seen)| (*cpu, *seen as f64 / all.max(1) as f64)).collect()
}

fn placement(seen: &mut Seen, probes: &Probes, megabytes: Option<f64>) {
    let ends: Vec<_> = probes
        .workers
        .iter()
        .flatten()
        .filter(|(role, activity)| *role != RUNNER && !activity.seen_on_cpu.is_empty())
        .collect();
    // Figures of the ends themselves, or of a probe of both at once, go before samples of each
    // alone.
    let sampled = || ends.iter().map(|(role, one)| ((*role).clone(), shares(&one.seen_on_cpu)));
    let by_end: BTreeMap<String, BTreeMap<u32, f64>> = match &probes.ends {
        Some(known) => known.shares.clone(),
        None => sampled().collect(),
    };
    let on: Vec<&BTreeMap<u32, f64>> = by_end.values().collect();
    let same = probes.ends.as_ref().map(|known| known.same_cpu_share);
    let same = same.unwrap_or_else(|| match on.as_slice() {
        [one, other, ..] => {
            let both = |(cpu, share): (&u32, &f64)| share * other.get(cpu).copied().unwrap_or(0.0);
            Some(one.iter().map(both).sum())
        }
        _ => None,
    });
    if let Some(same) = same {
        seen.put("same_cpu_share", same, distance::PLACEMENT);
    }
    if let Some(with) = received(probes) {
        let all: f64 = with.iter().map(|(_, count)| count).sum();
        let no_end_on = |cpu: u32| -> f64 {
            on.iter().map(|shares| 1.0 - shares.get(&cpu).copied().unwrap_or(0.0)).product()
        };
        if all > 0.0 && !on.is_empty() {
            let share: f64 = with.iter().map(|&(cpu, n)| n / all * (1.0 - no_end_on(cpu))).sum();
            seen.put("rx_on_application_cpu_share", share, distance::PLACEMENT);
        }
        for (cpu, count) in with.iter().filter(|_| all > 0.0) {
            seen.put(format!("cpu{cpu}.net_rx_share"), count / all, distance::WHERE);
        }
    }
    let (mut moves, mut voluntary, mut involuntary, mut faults) = (0.0, 0.0, 0.0, 0.0);
    for (_, activity) in &ends {
        moves += activity.moves_seen as f64;
        voluntary += activity.voluntary_switches as f64;
        involuntary += activity.involuntary_switches as f64;
        faults += activity.minor_faults as f64;
    }
    for (role, shares) in &by_end {
        for (cpu, &share) in shares {
            seen.put(format!("{role}.on_cpu{cpu}_share"), share, distance::WHERE);
        }
    }
    if let Some(known) = &probes.ends {
        moves = known.moves as f64;
    }
    if !ends.is_empty() {
        let used: f64 = ends.iter().map(|(_, one)| one.usr_s + one.sys_s).sum();
        seen.per_second("ends_cpus", used, distance::CPU_TIME);
        let busiest = ends.iter().filter_map(|(_, one)| one.busiest_thread_s).reduce(f64::max);
        if let Some(busiest) = busiest {
            seen.put("busiest_thread_share", (busiest / seen.span).min(1.0), distance::CPU_TIME);
        }
        let waits = ends.iter().filter_map(|(_, one)| one.longest_cpu_wait_s);
        if let Some(longest) = waits.reduce(f64::max) {
            // The longest of one thread: a wait of several at once costs no more.
            seen.put("waits_for_cpu_share", (longest / seen.span).min(1.0), distance::CPU_TIME);
        }
        let traced = ends.iter().any(|(_, one)| one.traced_by.is_some());
        seen.put("traced", f64::from(u8::from(traced)), distance::MACHINE);
        let filters = ends.iter().filter_map(|(_, one)| one.system_call_filters).max();
        if let Some(filters) = filters {
            seen.put("system_call_filters", f64::from(filters), distance::MACHINE);
        }
        seen.per_second("moves_per_s", moves, distance::MACHINE);
        seen.per_unit("sleeps_per_unit", voluntary);
        seen.per_unit("preemptions_per_unit", involuntary);
        seen.per_unit("page_faults_per_unit", faults);
        if let Some(megabytes) = megabytes {
            seen.put("page_faults_per_mb", faults / megabytes, distance::PER_UNIT);
        }
    }
}

/// Soft interrupts of each CPU that take packets in.
fn received(probes: &Probes) -> Option<Vec<(u32, f64)>> {
    let counts = probes.tables.get("softirqs")?.column("NET_RX")?;
    Some(counts.filter_map(|(cpu, count)| Some((cpu.parse().ok()?, count))).collect())
}

fn cpu_time(seen: &mut Seen, probes: &Probes) {
    let Some(activity) = &probes.cpu else { return };
    let steps = probes.times_s.len().saturating_sub(1);
    let (mut busiest, mut all_busy): (f64, f64) = (0.0, 0.0);
    for series in &activity.cpus {
        for kind in ["usr", "sys", "softirq", "irq", "idle"] {
            let share = series.total_s(kind) / seen.span;
            seen.put(format!("cpu{}.{kind}_share", series.cpu), share, distance::CPU_TIME);
        }
        let of_cpu: f64 = (0..steps).map(|at| series.busy_s(at)).sum();
        busiest = busiest.max(of_cpu / seen.span);
        all_busy += of_cpu / seen.span;
    }
    seen.put("busiest_cpu_share", busiest.min(1.0), distance::CPU_TIME);
    let others = activity.cpus.len().saturating_sub(1) as f64;
    // Of a machine with one CPU it is no number.
    seen.put("other_cpus_busy_share", (all_busy - busiest) / others, distance::CPU_TIME);
    seen.put("steal_share", steal_share(activity, seen.span), distance::MACHINE);
}

/// Share of the CPUs' time that a hypervisor gave to others.
fn steal_share(activity: &CpuActivity, span: f64) -> f64 {
    let steal: f64 = activity.cpus.iter().map(|one| one.total_s("steal")).sum();
    steal / span / activity.cpus.len().max(1) as f64
}

fn interrupts(seen: &mut Seen, probes: &Probes) {
    if let Some(interrupts) = &probes.interrupts {
        for (id, name) in
            [("RES", "wake_up_ipis"), ("CAL", "function_call_ipis"), ("TLB", "tlb_shootdowns")]
        {
            let rows = interrupts.rows.iter().filter(|row| row.id == id);
            let count: u64 = rows.flat_map(|row| &row.counts).sum();
            seen.per_unit(&format!("{name}_per_unit"), count as f64);
            seen.per_second(&format!("{name}_per_s"), count as f64, distance::PER_UNIT);
        }
    }
    if let Some(switches) = &probes.context_switches {
        seen.per_unit("context_switches_per_unit", switches.iter().sum::<u64>() as f64);
    }
    if let Some(halts) = probes.halts() {
        seen.per_unit("halts_per_unit", halts as f64);
    }
    if let Some(throttling) = &probes.throttling {
        seen.per_second("throttled_share", throttling.throttled_s, distance::MACHINE);
    }
}

fn protocols(seen: &mut Seen, probes: &Probes) {
    let Some(hosts) = &probes.hosts else { return };
    // Only counters that changed are kept.
    let sum = |name: &str| -> f64 {
        hosts.values().filter_map(|host| host.protocols.get(name)).map(|&rise| rise as f64).sum()
    };
    let (sent, again) = (sum("Tcp.OutSegs"), sum("Tcp.RetransSegs"));
    let received = sum("Tcp.InSegs");
    seen.per_second("retransmissions_per_s", again, distance::PROTOCOL);
    if sent > 0.0 {
        seen.put("retransmitted_share", again / sent, distance::PROTOCOL);
    }
    if received > 0.0 {
        seen.put("delayed_ack_share", sum("TcpExt.DelayedACKs") / received, distance::PROTOCOL);
        let out_of_order = sum("TcpExt.TCPOFOQueue") / received;
        seen.put("out_of_order_share", out_of_order, distance::PROTOCOL);
    }
    let reordered: f64 = ["TcpExt.TCPSACKReorder", "TcpExt.TCPTSReorder", "TcpExt.TCPRenoReorder"]
        .map(sum)
        .iter()
        .sum();
    seen.per_second("reorderings_per_s", reordered, distance::PROTOCOL);
    if sent > 0.0 {
        seen.put("reordered_share", reordered / sent, distance::PROTOCOL);
        // A segment that arrived twice had not been lost: the receiver says so (RFC 2883). One
        // report may be of many segments, which kernels before 5.10 do not count.
        let reports = sum("TcpExt.TCPDSACKRecv") + sum("TcpExt.TCPDSACKOfoRecv");
        let twice = reports.max(sum("TcpExt.TCPDSACKRecvSegs"));
        seen.put("lost_share", (again - twice).max(0.0) / sent, distance::PROTOCOL);
    }
    let (taken, refused) = (sum("Udp.InDatagrams"), sum("Udp.RcvbufErrors"));
    if taken + refused > 0.0 {
        seen.put("udp_refused_share", refused / (taken + refused), distance::PROTOCOL);
    }
    let pieces = sum("Ip.FragCreates")
        + sum("Ip.ReasmReqds")
        + sum("Ip6.FragCreates")
        + sum("Ip6.ReasmReqds");
    let datagrams = sum("Ip.OutRequests") + sum("Ip6.OutRequests") + pieces;
    if datagrams > 0.0 {
        seen.put("fragments_share", pieces / datagrams, distance::PROTOCOL);
    }
    for (counter, name) in [
        ("Udp.RcvbufErrors", "udp_receive_buffer_errors_per_s"),
        ("TcpExt.ListenOverflows", "listen_overflows_per_s"),
        ("TcpExt.DelayedACKs", "delayed_acks_per_s"),
        ("TcpExt.TCPTimeouts", "tcp_timeouts_per_s"),
        ("TcpExt.TCPSynRetrans", "syn_retransmissions_per_s"),
        ("TcpExt.TCPMTUPFail", "mtu_probes_lost_per_s"),
        ("TcpExt.TCPMTUPSuccess", "mtu_probes_per_s"),
        ("TcpExt.TCPMemoryPressures", "tcp_memory_pressures_per_s"),
        ("TcpExt.TCPZeroWindowDrop", "zero_window_drops_per_s"),
        ("TcpExt.TCPBacklogDrop", "tcp_backlog_drops_per_s"),
        ("Ip.ReasmFails", "reassembly_failures_per_s"),
        ("TcpExt.PruneCalled", "tcp_prunes_per_s"),
    ] {
        seen.per_second(name, sum(counter), distance::PROTOCOL);
    }
    let pressed = sum("TcpExt.TCPMemoryPressuresChrono") / 1e3;
    seen.per_second("tcp_memory_pressure_share", pressed, distance::PROTOCOL);
    seen.per_unit("delayed_acks_per_unit", sum("TcpExt.DelayedACKs"));
    // The interface that sent most counts; a packet may be a super-segment.
    let busiest = hosts.values().flat_map(|host| host.interfaces.values());
    if let Some(one) = busiest.max_by_key(|one| one.tx_bytes).filter(|one| one.tx_packets > 0) {
        let bytes = one.tx_bytes as f64;
        seen.put("sent_bytes_per_packet", bytes / one.tx_packets as f64, distance::PROTOCOL);
        seen.per_second("sent_packets_per_s", one.tx_packets as f64, distance::PROTOCOL);
        if let Some(is_off) = one.segmentation_off {
            seen.put("offloads_off", f64::from(u8::from(is_off)), distance::MACHINE);
        }
        if one.mtu_bytes > 0 {
            let mtu = f64::from(one.mtu_bytes);
            seen.put(
                "sent_mtus_per_packet",
                bytes / one.tx_packets as f64 / mtu,
                distance::PROTOCOL,
            );
            seen.put("mtu_bytes", mtu, distance::PROTOCOL);
        }
    }
    let lost = sum("Conntrack.drop") + sum("Conntrack.early_drop") + sum("Conntrack.insert_failed");
    seen.per_second("conntrack_drops_per_s", lost, distance::PROTOCOL);
    let drops = hosts.values().flat_map(|host| host.interfaces.values());
    let drops: u64 = drops.map(|one| one.rx_dropped + one.rx_fifo + one.tx_dropped).sum();
    seen.per_second("interface_drops_per_s", drops as f64, distance::PROTOCOL);
}

#[cfg(test)]
fn received_by(counts: &[f64]) -> millstream_record::Tables {
    use millstream_record::{Column, Key, Kind, Table};
    let columns = vec![Column::new("NET_RX", "", Kind::Counter, "")];
    let rows = counts.iter().enumerate().map(|(cpu, count)| (cpu.to_string(), vec![*count]));
    [("softirqs".to_owned(), Table { key: Key::Cpu, columns, rows: rows.collect() })].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{CpuSeries, HostCounters, Window, WorkerActivity};

    fn run(near: &[(u32, u64)], far: &[(u32, u64)]) -> RunRecord {
        let worker = |seen: &[(u32, u64)]| WorkerActivity {
            seen_on_cpu: seen.iter().copied().collect(),
            voluntary_switches: 100,
            longest_cpu_wait_s: Some(0.5),
            busiest_thread_s: Some(1.0),
            moves_seen: 4,
            traced_by: seen.iter().any(|(cpu, _)| *cpu == 1).then_some(7),
            system_call_filters: Some(3),
            ..WorkerActivity::default()
        };
        let workers = [("near".to_owned(), worker(near)), ("far".to_owned(), worker(far))];
        let cpu = |cpu, usr: f64| CpuSeries {
            cpu,
            usr_s: vec![usr, usr],
            idle_s: vec![1.0 - usr; 2],
            ..CpuSeries::default()
        };
        let host = HostCounters {
            protocols: [("Tcp.OutSegs".to_owned(), 1000), ("Tcp.RetransSegs".to_owned(), 5)].into(),
            ..HostCounters::default()
        };
        let mut run = RunRecord::new("x");
        run.window = Window { start_s: 0.5, end_s: 1.5 };
        run.results.insert(keys::TRANSACTION_COUNT.into(), 50.0);
        run.probes = Probes {
            times_s: vec![0.0, 1.0, 2.0],
            workers: Some(workers.into()),
            tables: received_by(&[30.0, 10.0]),
            cpu: Some(CpuActivity { cpus: vec![cpu(0, 0.9), cpu(1, 0.2)], resolution_s: 0.01 }),
            hosts: Some([("near".to_owned(), host)].into()),
            ..Probes::default()
        };
        run
    }

    fn value(features: &[Feature], name: &str, run: usize) -> Option<f64> {
        let feature = features.iter().find(|feature| feature.name == name)?;
        feature.values[run].map(|value| (value * 1e6).round() / 1e6)
    }

    #[test]
    fn a_run_tells_where_its_ends_were_and_what_they_cost_by_unit() {
        let runs = [run(&[(0, 10)], &[(0, 6), (1, 4)]), run(&[(1, 8)], &[(0, 9)])];
        let found = features(&runs.iter().collect::<Vec<_>>());
        let of = |name: &str| (value(&found, name, 0), value(&found, name, 1));
        assert_eq!(of("same_cpu_share"), (Some(0.6), Some(0.0)));
        // Three quarters are received on CPU 0, where one end always is; the rest on CPU 1, where
        // the other is at times.
        assert_eq!(of("rx_on_application_cpu_share"), (Some(0.75 + 0.25 * 0.4), Some(1.0)));
        assert_eq!(of("far.on_cpu1_share"), (Some(0.4), None));
        // 50 transactions in the window are 100 in the whole run.
        assert_eq!(of("sleeps_per_unit"), (Some(2.0), Some(2.0)));
        assert_eq!(of("moves_per_s"), (Some(4.0), Some(4.0)));
        assert_eq!(of("traced"), (Some(1.0), Some(1.0)));
        assert_eq!(of("system_call_filters").0, Some(3.0));
        assert_eq!(of("busiest_cpu_share").0, Some(0.9));
        assert_eq!(of("other_cpus_busy_share").0, Some(0.2));
        assert_eq!(of("busiest_thread_share").0, Some(0.5));
        assert_eq!(of("waits_for_cpu_share").0, Some(0.25), "of the thread that waits longest");
        assert_eq!(of("cpu1.usr_share").0, Some(0.2));
        assert_eq!(of("any_cpu.usr_share").0, Some(0.9), "the higher one of two CPUs");
        assert_eq!(of("retransmitted_share").0, Some(0.005));
        assert_eq!(of("udp_receive_buffer_errors_per_s").0, Some(0.0));
        assert_eq!(of("cpu_distance_ns").0, None, "was not measured");
        assert_eq!(of("wake_up_ipis_per_s").0, None, "was not measured");
    }

    #[test]
    fn a_run_without_probes_or_units_has_no_such_feature() {
        assert!(features(&[&RunRecord::new("x")]).is_empty());
        let mut without = run(&[(0, 1)], &[(1, 1)]);
        without.results.clear();
        let found = features(&[&without]);
        assert_eq!(value(&found, "sleeps_per_unit", 0), None);
        assert_eq!(value(&found, "same_cpu_share", 0), Some(0.0));
        let alone = run(&[(0, 1)], &[(0, 1)]);
        assert_eq!(value(&features(&[&alone]), "traced", 0), Some(0.0));
    }

    #[test]
    fn what_arrived_twice_was_not_lost_however_many_segments_a_report_is_of() {
        let lost = |counters: &[(&str, i64)]| {
            let mut run = RunRecord::new("x");
            run.probes.times_s = vec![0.0, 1.0];
            let mut host = HostCounters::default();
            host.protocols.extend(counters.iter().map(|(name, rise)| ((*name).to_owned(), *rise)));
            run.probes.hosts = Some([("here".to_owned(), host)].into());
            let found = features(&[&run]);
            found.iter().find(|one| one.name == "lost_share").and_then(|one| one.values[0])
        };
        let again = [("Tcp.OutSegs", 1000), ("Tcp.RetransSegs", 90)];
        let reports = [("TcpExt.TCPDSACKRecv", 1), ("TcpExt.TCPDSACKOfoRecv", 1)];
        assert_eq!(lost(&again), Some(0.09));
        assert_eq!(lost(&[&again[..], &reports[..]].concat()), Some(0.088));
        let segments = [("TcpExt.TCPDSACKRecvSegs", 85)];
        assert_eq!(lost(&[&again[..], &reports[..], &segments[..]].concat()), Some(0.005));
    }
}
