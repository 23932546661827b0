//! Counts of BPF programs, as text: senders of cross-calls, threads that wait for locks, latencies,
//! the cost of the probe.

use std::collections::BTreeMap;

use millstream_diagnose::flame::function_shares;
use millstream_record::{
    CallRecord, CrossCallRecord, HistogramRecord, Interrupts, KernelActivity, LockWaitRecord,
    SampledRecord, StackRecord,
};

use crate::frame::{Chapter, Frame, Grid, Part, Row, Section};

/// Lines of a list.
const TOP: usize = 10;
/// Rows of the states of the CPUs.
const STATES: usize = 3;
/// Functions of a stack that are shown.
const FRAMES: usize = 6;
const BAR: f64 = 40.0;

/// Returns all of it, over `seconds`, with the `stacks` commonest stacks. `interrupts` has the
/// names of devices.
pub fn text(
    kernel: &KernelActivity,
    interrupts: Option<&Interrupts>,
    seconds: f64,
    stacks: usize,
) -> String {
    let seconds = seconds.max(1e-9);
    let section = |heading: &str, parts| Section::new(Chapter::NONE, heading, parts);
    let calls = |list: &[CrossCallRecord]| {
        let rows = list.iter().take(TOP).map(|one| {
            let what = match one.callback.as_str() {
                "" => "wakes".to_owned(),
                callback => format!("has run {callback}"),
            };
            let rate = format!("{:.1}", one.count as f64 / seconds);
            [rate, one.sender.clone(), what, way(&one.stack, &one.program)]
        });
        let heads = [">in a second", "who", "what", "by"];
        vec![Part::Grid(Grid::new("", heads).rows(rows))]
    };
    let sampled = kernel.sampled.iter().map(|(name, sampled)| {
        let per_s = kernel.total(name).unwrap_or(0.0) / seconds;
        format!("{}: {per_s:.0}/s, {}", name.replace('_', " "), known_by(sampled))
    });
    let ms = |s: f64| format!("{:.3} ms", s * 1e3);
    let us = |s: f64| format!("{:.1} µs", s * 1e6);
    let waits = by_caller(&kernel.lock_waits).into_iter().take(TOP).map(|one| {
        let mean = us(one.total_s / one.count.max(1) as f64);
        let count = one.count.to_string();
        let by = way(&one.stack, &one.program);
        let cells = [ms(one.total_s), count, mean, us(one.longest_s), one.caller, one.kind, by];
        Row::from(cells)
    });
    let heads = [">time", ">waits", ">mean", ">longest", "who asked", "kind", "by"];
    let waits = Grid::new("", heads).rows(waits);
    let all: f64 = kernel.costs.values().map(|cost| cost.cpu_s).sum();
    let costs = kernel.costs.iter().filter(|(_, cost)| cost.runs > 0).map(|(program, cost)| {
        let each = format!("{:.0} ns", cost.cpu_s * 1e9 / cost.runs as f64);
        [program.clone(), ms(cost.cpu_s), cost.runs.to_string(), each]
    });
    let costs = Grid::new("", ["program", ">time", ">runs", ">each"]).rows(costs);
    let absent = kernel.absent.iter();
    let absent = absent.map(|(what, why)| format!("{what}: not measured, because {why}"));
    let mut sections = vec![
        section("Interrupts sent to other CPUs, by sender", calls(&kernel.cross_calls)),
        section("Functions that other CPUs were asked to run", calls(&kernel.call_requests)),
        section("", vec![Part::lines(sampled.collect())]),
        section("Waits for locks, by who asked", vec![Part::Grid(waits)]),
    ];
    sections.push(by_device(kernel, interrupts, seconds));
    sections.extend(histograms(kernel));
    sections.extend(commonest(kernel, stacks));
    sections.extend(arguments(kernel, stacks));
    let cost = format!("What the programs cost while that was counted, {} together", ms(all));
    sections.push(section(&cost, vec![Part::Grid(costs)]));
    sections.push(section("", vec![Part::lines(absent.collect())]));
    format!("\n{}", Frame { title: String::new(), sections }.text())
}

/// Returns the number of the interrupt that a histogram is of.
fn number(one: &HistogramRecord) -> Option<&str> {
    one.what.strip_prefix("interrupt_")
}

/// Returns the interrupts of devices by device and CPU, those of most time first.
fn by_device(
    kernel: &KernelActivity,
    interrupts: Option<&Interrupts>,
    seconds: f64,
) -> Section<'static> {
    let device = |number: &str| {
        let rows = interrupts.into_iter().flat_map(|all| &all.rows);
        rows.filter(|row| row.id == number).map(|row| row.name.clone()).next().unwrap_or_default()
    };
    let of_devices = kernel.histograms.iter().filter(|one| number(one).is_some());
    let mut all: Vec<&HistogramRecord> = of_devices.collect();
    all.sort_by(|a, b| b.total_s.total_cmp(&a.total_s));
    let rows = all.into_iter().take(TOP).map(|one| {
        let number = number(one).unwrap_or_default();
        let rate = format!("{:.1}", one.count as f64 / seconds);
        let share = format!("{:.3} %", 100.0 * one.total_s / seconds);
        let mean = format!("{:.1} µs", 1e6 * one.total_s / one.count.max(1) as f64);
        [number.to_owned(), device(number), one.cpu.to_string(), rate, share, mean]
    });
    let heads = [">interrupt", "device", ">CPU", ">in a second", ">of the CPU", ">mean"];
    let grid = Grid::new("", heads).rows(rows);
    Section::new(Chapter::NONE, "Interrupts of devices, by CPU", vec![Part::Grid(grid)])
}

/// Returns the stacks that the CPU clock met most, each with its share of all samples and the
/// innermost function first.
fn commonest(kernel: &KernelActivity, most: usize) -> Option<Section<'static>> {
    let all: u64 = kernel.profile.iter().map(StackRecord::count).sum();
    let mut stacks: Vec<&StackRecord> = kernel.profile.iter().collect();
    stacks.sort_by_key(|one| std::cmp::Reverse(one.count()));
    let mut lines = Vec::new();
    for one in stacks.into_iter().take(most) {
        let share = 100.0 * one.count() as f64 / all.max(1) as f64;
        lines.push(format!("{share:5.1} %  {:6}  {}", one.count(), one.process()));
        let functions = one.stack.iter().skip(1).rev();
        lines.extend(functions.map(|function| format!("{:19}{function}", "")));
    }
    let heading = format!("Stacks that the CPU clock met most, of {all} samples");
    (!lines.is_empty()).then(|| Section::new(Chapter::NONE, heading, vec![Part::lines(lines)]))
}

/// Returns the arguments with which functions were called, and the stacks of who called: the
/// commonest of each function.
fn arguments(kernel: &KernelActivity, most: usize) -> Vec<Section<'static>> {
    let mut functions: BTreeMap<&str, Vec<&CallRecord>> = BTreeMap::new();
    kernel.calls.iter().for_each(|one| functions.entry(&one.function).or_default().push(one));
    let of_function = |(name, calls): (&str, Vec<&CallRecord>)| {
        let all: u64 = calls.iter().map(|one| one.count).sum();
        let share = |count: u64| format!("{:.1} %", 100.0 * count as f64 / all.max(1) as f64);
        let mut values: BTreeMap<u64, u64> = BTreeMap::new();
        calls.iter().for_each(|one| *values.entry(one.argument).or_default() += one.count);
        let mut values: Vec<(u64, u64)> = values.into_iter().collect();
        values.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let others: u64 = values.iter().skip(TOP).map(|(_, count)| count).sum();
        let row = |value: String, count: u64| [value, count.to_string(), share(count)];
        let rows = values.iter().take(TOP).map(|(value, count)| row(value.to_string(), *count));
        let rows = rows.chain((others > 0).then(|| row("others".to_owned(), others)));
        let grid = Grid::new("", [">argument", ">calls", ">share"]).rows(rows);
        let mut lines = Vec::new();
        for one in calls.iter().take(most) {
            let process = one.stack.first().map_or("", String::as_str);
            let (share, argument) = (share(one.count), one.argument);
            lines.push(format!("{share:>7}  {:6}  {process}, argument {argument}", one.count));
            lines.extend(one.stack.iter().skip(1).map(|function| format!("{:19}{function}", "")));
        }
        let heading = format!("Arguments of {name}, of {all} calls");
        Section::new(Chapter::NONE, heading, vec![Part::Grid(grid), Part::lines(lines)])
    };
    let mut sections: Vec<Section> = functions.into_iter().map(of_function).collect();
    let left_out = kernel.calls_left_out;
    let said = format!("{left_out} further calls, for which the map of callers had no room");
    let said = (left_out > 0).then(|| Section::new(Chapter::NONE, "", vec![Part::line(said)]));
    sections.extend(said);
    sections
}

/// Returns the innermost functions of the kernel, and behind them those of the program, as text.
fn way(stack: &[String], program: &[String]) -> String {
    let functions = |all: &[String]| {
        let all: Vec<&str> = all.iter().take(FRAMES).map(String::as_str).collect();
        all.join(" < ")
    };
    match program.split_first() {
        Some((process, of_program)) => {
            format!("{} … {process}: {}", functions(stack), functions(of_program))
        }
        None => functions(stack),
    }
}

/// Returns the functions of two profiles whose shares differ most, so many at most, behind the
/// states of the CPUs. `heads` are the names of the profiles.
pub fn functions([before, after]: [&[StackRecord]; 2], heads: [&str; 2], most: usize) -> Grid {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let heads = heads.map(|head| format!(">{head}"));
    let columns = [&heads[0], &heads[1], ">difference", "function"];
    let rows = function_shares(before, after).into_iter().take(STATES + most).map(|one| {
        let difference = format!("{:+.2} points", 100.0 * one.difference());
        [percent(one.shares[0]), percent(one.shares[1]), difference, one.name]
    });
    Grid::new("Samples by the innermost function", columns).rows(rows)
}

/// Returns the accuracy of a count, as text.
fn known_by(sampled: &SampledRecord) -> String {
    let SampledRecord { share, windows, error, low_by } = *sampled;
    let windows = if windows == 1 { "1 window".to_owned() } else { format!("{windows} windows") };
    let error = error.map_or(String::new(), |error| format!(", ± {:.1} %", error * 100.0));
    let low = low_by / (1.0 - low_by).max(0.1) * 100.0;
    let low = match low < 0.1 {
        true => String::new(),
        false => format!("; up to {low:.1} % more where a CPU has no idle time"),
    };
    format!("counted in {:.2} % of the time ({windows}){error}{low}", share * 100.0)
}

/// Ways to a lock from one caller are one line; the longest time first.
fn by_caller(waits: &[LockWaitRecord]) -> Vec<LockWaitRecord> {
    let mut all: BTreeMap<(&str, &str), LockWaitRecord> = BTreeMap::new();
    for one in waits {
        let sum = all.entry((&one.caller, &one.kind)).or_insert_with(|| LockWaitRecord {
            caller: one.caller.clone(),
            kind: one.kind.clone(),
            stack: one.stack.clone(),
            program: one.program.clone(),
            ..LockWaitRecord::default()
        });
        sum.count += one.count;
        sum.total_s += one.total_s;
        sum.longest_s = sum.longest_s.max(one.longest_s);
    }
    let mut all: Vec<LockWaitRecord> = all.into_values().collect();
    all.sort_by(|a, b| b.total_s.total_cmp(&a.total_s));
    all
}

/// One kind of latency, the CPUs together.
#[derive(Default)]
struct Kind {
    count: u64,
    longer: u64,
    total_s: f64,
    buckets: BTreeMap<u64, u64>,
}

/// Returns a histogram for each kind, those of most time first.
fn histograms(kernel: &KernelActivity) -> Vec<Section<'static>> {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for one in &kernel.histograms {
        let kind = kinds.entry(&one.what).or_default();
        kind.count += one.count;
        kind.longer += one.longer;
        kind.total_s += one.total_s;
        for (from, n) in &one.buckets_ns {
            *kind.buckets.entry(*from).or_default() += n;
        }
    }
    // System calls are timed that begin in the first half of a window.
    let share = kernel.sampled.get("system_calls").map(|sampled| sampled.share / 2.0);
    let share = |what: &str| share.filter(|_| what.starts_with("system_call_"));
    let in_all = |(what, kind): &(&str, Kind)| kind.total_s / share(what).unwrap_or(1.0).max(1e-9);
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| in_all(b).total_cmp(&in_all(a)));
    let drawn = |(what, kind): (&str, Kind)| {
        let Kind { count, longer, total_s, buckets } = kind;
        let mean_us = total_s * 1e6 / count.max(1) as f64;
        let of = share(what).map_or(String::new(), |share| {
            format!(" (of those begun in {:.2} % of the time)", share * 100.0)
        });
        let most = buckets.values().copied().max().unwrap_or(1) as f64;
        let ends = buckets.keys().next().zip(buckets.keys().last());
        let (low, high) = ends.map_or((1, 0), |(low, high)| (*low, *high));
        let each = std::iter::successors(Some(low), |from| Some(from * 2));
        let mut rows: Vec<Row> = Vec::new();
        rows.extend(each.take_while(|from| *from <= high).map(|from| {
            let n = buckets.get(&from).copied().unwrap_or(0);
            let bar = "#".repeat((n as f64 / most * BAR).round() as usize);
            Row::from([time(from), n.to_string(), bar])
        }));
        let untimed = ["longer".to_owned(), longer.to_string(), "that were not timed".to_owned()];
        rows.extend((longer > 0).then(|| Row::from(untimed)));
        let heading = format!("{what}: {count}, mean {mean_us:.2} µs{of}");
        let grid = Grid::new("", [">from", ">count", ""]).rows(rows);
        Section::new(Chapter::NONE, heading, vec![Part::Grid(grid)])
    };
    kinds.into_iter().take(TOP).map(drawn).collect()
}

fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::InterruptRow;

    #[test]
    fn senders_waits_and_histograms_are_told() {
        let call = CrossCallRecord {
            sender: "smp_call".into(),
            callback: "flush_tlb_func".into(),
            count: 20,
            by_cpu: vec![20],
            stack: vec!["smp_call".into(), "flush_tlb_mm_range".into()],
            program: ["reader", "munmap", "main"].map(str::to_owned).into(),
        };
        let wait = LockWaitRecord {
            caller: "udp_recvmsg".into(),
            kind: "spin".into(),
            count: 4,
            total_s: 8e-6,
            longest_s: 5e-6,
            stack: vec![],
            program: vec![],
        };
        let called = |argument, caller: &str, count| CallRecord {
            function: "function alloc".into(),
            argument,
            stack: ["server", caller].map(str::to_owned).into(),
            count,
        };
        let histogram = |cpu, buckets_ns: &[(u64, u64)]| HistogramRecord {
            what: "softirq_net_rx".into(),
            cpu,
            count: buckets_ns.iter().map(|one| one.1).sum(),
            total_s: 1e-5,
            buckets_ns: buckets_ns.to_vec(),
            longer: 0,
        };
        let waiting = HistogramRecord {
            what: "system_call_0".into(),
            longer: 3,
            ..histogram(0, &[(512, 1)])
        };
        let sampled = SampledRecord { share: 0.016, windows: 8, error: Some(0.1), low_by: 0.2 };
        let stack = |(function, count): (&str, u64)| StackRecord {
            stack: ["reader", "main", function].map(str::to_owned).into(),
            by_cpu: vec![count],
        };
        let kernel = KernelActivity {
            cross_calls: vec![call],
            lock_waits: vec![wait.clone(), LockWaitRecord { longest_s: 1e-6, ..wait }],
            histograms: vec![
                histogram(0, &[(1024, 4)]),
                histogram(1, &[(1024, 4), (4096, 2)]),
                waiting,
                HistogramRecord { what: "interrupt_38".into(), ..histogram(1, &[(4096, 10)]) },
            ],
            counts: [("system_calls".to_owned(), vec![2000.0, 1000.0])].into(),
            sampled: [("system_calls".to_owned(), sampled)].into(),
            profile: [("walk", 3), ("read", 6), ("idle", 1)].map(stack).into(),
            calls: vec![called(64, "serve", 6), called(64, "log", 3), called(9, "log", 1)],
            calls_left_out: 5,
            absent: [("napi_polls".to_owned(), "napi_poll: no such tracepoint".to_owned())].into(),
            ..KernelActivity::default()
        };
        let row = |id: &str| InterruptRow {
            id: id.to_owned(),
            name: format!("device of {id}"),
            ..InterruptRow::default()
        };
        let interrupts = Interrupts { cpus: vec![0, 1], rows: vec![row("3"), row("38")] };
        let text = text(&kernel, Some(&interrupts), 2.0, 2);
        for line in [
            "10.0  smp_call  has run flush_tlb_func  smp_call < flush_tlb_mm_range … reader: munmap < main",
            "Arguments of function alloc, of 10 calls:\n",
            "64      9  90.0 %",
            "60.0 %       6  server, argument 64\n                     serve\n",
            "5 further calls, for which",
            "0.016 ms      8  2.0 µs   5.0 µs  udp_recvmsg  spin",
            "38  device of 38    1          5.0     0.001 %  1.0 µs",
            "softirq_net_rx: 10, mean 2.00 µs",
            "napi_polls: not measured, because napi_poll",
            "system calls: 1500/s, counted in 1.60 % of the time (8 windows), ± 10.0 %; up to 25.0 % more where",
            "system_call_0: 1, mean 10.00 µs (of those begun in 0.80 % of the time)",
            "longer      3  that were not timed",
            "Stacks that the CPU clock met most, of 10 samples",
            " 60.0 %       6  reader\n                     read\n                     main\n",
            " 30.0 %       3  reader\n                     walk\n",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
        assert!(!text.contains("10.0 %       1  reader"), "as many as were asked for: {text}");
        // Buckets without a time stand between those with.
        let bars: Vec<&str> = text.lines().filter(|line| line.contains(" µs ")).collect();
        assert!(
            bars.iter().any(|line| line.trim_start().starts_with("2.0 µs") && line.ends_with(" 0"))
        );
    }
}
