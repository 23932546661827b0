//! What each run shows, as numbers that can be compared between runs.
//!
//! Counters that grow with the result are divided by what was moved (a transaction, 10^6 bytes) or given as shares:
//! otherwise each of them would explain every result. CPU time by unit is none of them: where a CPU is full it is the result
//! in other words.

use std::collections::{BTreeMap, BTreeSet};

use millstream_diagnose::separate::Feature;

use crate::record::{Probes, RUNNER, RunRecord, keys};

/// How near features of a kind are to a cause ([`Feature::distance`]).
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

mod kernel;
mod profile;

type Values = BTreeMap<String, (f64, u8)>;

/// The features that at least one of `runs` has; where one run lacks what another has, it is not measured there.
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
    let span = match (probes.times_s.first(), probes.times_s.last()) {
        (Some(first), Some(last)) if last > first => last - first,
        _ => return values,
    };
    // Counters are of the whole run, what was moved is of the window.
    let inside = ((run.window.end_s - run.window.start_s) / span).clamp(0.0, 1.0);
    let units = run
        .result(keys::TRANSACTION_COUNT)
        .or_else(|| run.result(keys::PAYLOAD).map(|bytes| bytes / UNIT_BYTES))
        .filter(|units| *units > 0.0 && inside > 0.0)
        .map(|units| units / inside);
    let mut seen = Seen { values, span, units };
    placement(&mut seen, probes);
    if let Some(share) = others(probes, span) {
        seen.put("others_on_ends_cpu_share", share, distance::PLACEMENT);
    }
    cpu_time(&mut seen, probes);
    interrupts(&mut seen, probes);
    protocols(&mut seen, probes);
    connections(&mut seen, probes);
    kernel::kernel(&mut seen, probes);
    profile::profile(&mut seen, probes);
    seen.values
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

    /// Where the run does not say what it moved there is no such feature.
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

fn placement(seen: &mut Seen, probes: &Probes) {
    let ends: Vec<_> = probes
        .workers
        .iter()
        .flatten()
        .filter(|(role, activity)| *role != RUNNER && !activity.seen_on_cpu.is_empty())
        .collect();
    // What the ends themselves know, or who watched both at once, goes before samples of each alone.
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
    if let Some(counts) = probes.softirqs.as_ref().and_then(|kinds| kinds.get("NET_RX")) {
        let all = counts.iter().sum::<u64>() as f64;
        let no_end_on = |cpu: u32| -> f64 {
            on.iter().map(|shares| 1.0 - shares.get(&cpu).copied().unwrap_or(0.0)).product()
        };
        let numbers = cpu_numbers(probes, counts.len());
        let with = numbers.iter().zip(counts);
        if all > 0.0 && !on.is_empty() {
            let share: f64 =
                with.clone().map(|(&cpu, &n)| n as f64 / all * (1.0 - no_end_on(cpu))).sum();
            seen.put("rx_on_application_cpu_share", share, distance::PLACEMENT);
        }
        for (cpu, &count) in with.filter(|_| all > 0.0) {
            seen.put(format!("cpu{cpu}.net_rx_share"), count as f64 / all, distance::WHERE);
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
        seen.per_second("moves_per_s", moves, distance::MACHINE);
        seen.per_unit("sleeps_per_unit", voluntary);
        seen.per_unit("preemptions_per_unit", involuntary);
        seen.per_unit("page_faults_per_unit", faults);
    }
}

/// Share of the CPUs where the ends ran that others had: each CPU's work without the ends', weighted by how long they were there.
fn others(probes: &Probes, span: f64) -> Option<f64> {
    let (cpus, known, workers) =
        (probes.cpu.as_ref()?, probes.ends.as_ref()?, probes.workers.as_ref()?);
    // A command's processes are watched one by one: `client`, `client#2`.
    let used = |end: &String| -> f64 {
        let of_end = |role: &String| role.split('#').next() == Some(end.as_str());
        workers.iter().filter(|(role, _)| of_end(role)).map(|(_, one)| one.usr_s + one.sys_s).sum()
    };
    let steps = probes.times_s.len().saturating_sub(1);
    let (mut others, mut weights) = (0.0, 0.0);
    for series in &cpus.cpus {
        let on = |shares: &BTreeMap<u32, f64>| shares.get(&series.cpu).copied().unwrap_or(0.0);
        let weight: f64 = known.shares.values().map(on).sum();
        let ends: f64 = known.shares.iter().map(|(end, shares)| used(end) * on(shares)).sum();
        let busy: f64 = (0..steps).map(|at| series.busy_s(at)).sum();
        others += weight * ((busy - ends) / span).clamp(0.0, 1.0);
        weights += weight;
    }
    (weights > 0.0).then(|| others / weights)
}

fn cpu_numbers(probes: &Probes, count: usize) -> Vec<u32> {
    match &probes.interrupts {
        Some(interrupts) if interrupts.cpus.len() == count => interrupts.cpus.clone(),
        _ => (0..count as u32).collect(),
    }
}

fn cpu_time(seen: &mut Seen, probes: &Probes) {
    let Some(activity) = &probes.cpu else { return };
    let steps = probes.times_s.len().saturating_sub(1);
    let (mut busiest, mut steal): (f64, f64) = (0.0, 0.0);
    for series in &activity.cpus {
        for kind in ["usr", "sys", "softirq", "irq", "idle"] {
            let share = series.total_s(kind) / seen.span;
            seen.put(format!("cpu{}.{kind}_share", series.cpu), share, distance::CPU_TIME);
        }
        let of_cpu: f64 = (0..steps).map(|at| series.busy_s(at)).sum();
        busiest = busiest.max(of_cpu / seen.span);
        steal += series.total_s("steal");
    }
    let cpus = activity.cpus.len().max(1) as f64;
    seen.put("busiest_cpu_share", busiest.min(1.0), distance::CPU_TIME);
    seen.put("steal_share", steal / seen.span / cpus, distance::MACHINE);
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
    if let Some(softnet) = &probes.softnet {
        let sum = |of: fn(&crate::record::SoftnetCpu) -> u64| softnet.iter().map(of).sum::<u64>();
        seen.per_second("softnet_dropped_per_s", sum(|c| c.dropped) as f64, distance::PROTOCOL);
        let squeezed = sum(|c| c.time_squeezed) as f64;
        seen.per_second("softnet_squeezed_per_s", squeezed, distance::PROTOCOL);
        let steered = sum(|c| c.received_rps) as f64;
        seen.per_unit("rps_wake_ups_per_unit", steered);
        seen.per_second("rps_wake_ups_per_s", steered, distance::PROTOCOL);
    }
    if let Some(disks) = &probes.disks {
        let busiest = disks.values().map(|one| one.busy_ms).max().unwrap_or(0);
        seen.per_second("disk_busy_share", busiest as f64 / 1e3, distance::MACHINE);
        let written = disks.values().map(|one| one.written_bytes).max().unwrap_or(0);
        seen.per_second("disk_written_bytes_per_s", written as f64, distance::MACHINE);
    }
    if let Some(throttling) = &probes.throttling {
        seen.per_second("throttled_share", throttling.throttled_s, distance::MACHINE);
    }
    if let Some(io) = probes.pressure.as_ref().and_then(|kinds| kinds.get("io")) {
        seen.put("io_pressure_share", io.some_us as f64 / 1e6 / seen.span, distance::MACHINE);
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
    for (counter, name) in [
        ("Udp.RcvbufErrors", "udp_receive_buffer_errors_per_s"),
        ("TcpExt.ListenOverflows", "listen_overflows_per_s"),
        ("TcpExt.TCPTimeouts", "tcp_timeouts_per_s"),
        ("TcpExt.PruneCalled", "tcp_prunes_per_s"),
    ] {
        seen.per_second(name, sum(counter), distance::PROTOCOL);
    }
    seen.per_unit("delayed_acks_per_unit", sum("TcpExt.DelayedACKs"));
    // Of the interface that sent most; a packet may be a super-segment.
    let busiest = hosts.values().flat_map(|host| host.interfaces.values());
    if let Some(one) = busiest.max_by_key(|one| one.tx_bytes).filter(|one| one.tx_packets > 0) {
        let bytes = one.tx_bytes as f64;
        seen.put("sent_bytes_per_packet", bytes / one.tx_packets as f64, distance::PROTOCOL);
        seen.per_second("sent_packets_per_s", one.tx_packets as f64, distance::PROTOCOL);
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
    let drops = hosts.values().flat_map(|host| host.interfaces.values());
    let drops: u64 = drops.map(|one| one.rx_dropped + one.rx_fifo + one.tx_dropped).sum();
    seen.per_second("interface_drops_per_s", drops as f64, distance::PROTOCOL);
}

fn connections(seen: &mut Seen, probes: &Probes) {
    let sum = |field: &str| -> Option<f64> {
        let known: Vec<f64> =
            probes.tcp_info.iter().filter_map(|info| info.fields.get(field)).copied().collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let Some(busy) = sum("busy_s").filter(|busy| *busy > 0.0) else { return };
    for (field, name) in
        [("rwnd_limited_s", "rwnd_limited_share"), ("sndbuf_limited_s", "sndbuf_limited_share")]
    {
        if let Some(limited) = sum(field) {
            seen.put(name, limited / busy, distance::PROTOCOL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{CpuActivity, CpuSeries, EndsOnCpus, HostCounters, Window, WorkerActivity};

    fn run(near: &[(u32, u64)], far: &[(u32, u64)]) -> RunRecord {
        let worker = |seen: &[(u32, u64)]| WorkerActivity {
            seen_on_cpu: seen.iter().copied().collect(),
            voluntary_switches: 100,
            moves_seen: 4,
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
            softirqs: Some([("NET_RX".to_owned(), vec![30, 10])].into()),
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
        // Three quarters are received on CPU 0, where one end always is; the rest on CPU 1, where the other is at times.
        assert_eq!(of("rx_on_application_cpu_share"), (Some(0.75 + 0.25 * 0.4), Some(1.0)));
        assert_eq!(of("far.on_cpu1_share"), (Some(0.4), None));
        // 50 transactions in the window are 100 in the whole run.
        assert_eq!(of("sleeps_per_unit"), (Some(2.0), Some(2.0)));
        assert_eq!(of("moves_per_s"), (Some(4.0), Some(4.0)));
        assert_eq!(of("busiest_cpu_share").0, Some(0.9));
        assert_eq!(of("cpu1.usr_share").0, Some(0.2));
        assert_eq!(of("retransmitted_share").0, Some(0.005));
        assert_eq!(of("udp_receive_buffer_errors_per_s").0, Some(0.0));
        assert_eq!(of("cpu_distance_ns").0, None, "was not measured");
        assert_eq!(of("wake_up_ipis_per_s").0, None, "was not measured");
    }

    #[test]
    fn what_others_had_of_the_ends_cpus_is_what_the_ends_did_not_use() {
        let mut one = run(&[(0, 1)], &[(0, 1)]);
        let shares: BTreeMap<String, BTreeMap<u32, f64>> =
            ["near", "far"].map(|end| (end.to_owned(), [(0, 1.0)].into())).into();
        one.probes.ends = Some(EndsOnCpus { same_cpu_share: Some(1.0), shares, moves: 0 });
        // CPU 0 worked for 1.8 s of 2, the ends for 1.
        for worker in one.probes.workers.iter_mut().flat_map(|all| all.values_mut()) {
            worker.sys_s = 0.5;
        }
        let found = features(&[&one]);
        assert_eq!(value(&found, "others_on_ends_cpu_share", 0), Some(0.4));
        assert_eq!(value(&found, "same_cpu_share", 0), Some(1.0));
    }

    #[test]
    fn a_run_without_probes_or_units_has_no_such_feature() {
        assert!(features(&[&RunRecord::new("x")]).is_empty());
        let mut without = run(&[(0, 1)], &[(1, 1)]);
        without.results.clear();
        let found = features(&[&without]);
        assert_eq!(value(&found, "sleeps_per_unit", 0), None);
        assert_eq!(value(&found, "same_cpu_share", 0), Some(0.0));
    }
}
