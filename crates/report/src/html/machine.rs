//! Tables of the machine's activity: CPUs with their interrupts, workers, interfaces, connections.

use std::collections::{BTreeMap, BTreeSet};

use millstream_diagnose::stats::median;
use millstream_diagnose::units::{Scale, grouped, significant};
use millstream_record::{Probes, RunRecord, Table};

use super::super::frame::{Cell, Column, Grid, Part, of_place};
use super::super::model::{Case, Row};
use super::super::per_cpu::per_cpu;
use super::super::room::{Detailed, Scope};
use super::super::{idle, tables};
use super::results;

/// CPUs listed per stack: the busiest.
const CPUS: usize = 16;
/// Device interrupts listed per stack.
const DEVICES: usize = 5;

/// Columns of the CPU table: shares of time, then events per second.
const CPU_COLUMNS: [&str; 12] = [
    "CPU",
    ">usr",
    ">sys",
    ">softirq",
    ">irq",
    ">steal",
    ">wait",
    ">idle",
    ">RES/s",
    ">CAL/s",
    ">TLB/s",
    ">NET_RX/s",
];
const WORKER_COLUMNS: [&str; 7] =
    ["worker", ">usr s", ">sys s", ">slept/s", ">preempted/s", "seen on", ">moves"];
const INTERFACE_COLUMNS: [&str; 8] =
    ["interface", ">in", ">frames", ">bytes/frame", ">out", ">frames", ">bytes/frame", ">lost"];

const LEAD: &str = "Medians over runs that count, set-up and warm-up included. Shares of time in percent; RES, CAL and TLB are \
                    interrupts that CPUs send each other: wake-ups, function calls, and unmapped memory.";
const TCP: &str = "TCP_INFO at the end of a run, as the kernel or the stack reports it: medians over connections and runs \
                   that count.";

/// Returns what all tables of machines have in common.
pub(in super::super) fn lead<'a>(scope: Scope<'_>) -> Vec<Part<'a>> {
    vec![Part::Styled("lead", format!("{LEAD} {}", scope.detailed.said))]
}

/// A stack of a case with the runs that are looked at one by one.
type Side<'r> = (&'r Row<'r>, Vec<&'r RunRecord>);

fn sides<'r>(case: &'r Case<'_>, detailed: &Detailed<'_>) -> Vec<Side<'r>> {
    let side = |row: &'r Row<'_>| (row, detailed.among(row.group.valid.iter().copied()));
    case.rows.iter().map(side).collect()
}

/// Returns the tables of a case, of the runs that are looked at one by one.
pub(in super::super) fn tables<'a>(case: &Case<'_>, detailed: &Detailed<'_>) -> Vec<Part<'a>> {
    let sides = sides(case, detailed);
    let boxes = |(row, _): &Side<'_>, said: &str, values: Vec<String>| {
        Part::Boxes(of_place(row.place), format!("{}{said}", row.label), values)
    };
    let mut parts = vec![grid("CPUs", case, CPU_COLUMNS, &sides, cpus)];
    parts.extend(sides.iter().map(|side| boxes(side, "", remarks(&side.1))));
    parts.extend(sides.iter().map(|side| {
        let states = idle::states(&side.1).into_iter().take(CPUS);
        let states = states.map(|(name, states)| format!("{name} {states}"));
        boxes(side, ", idle states of CPUs in the window:", states.collect())
    }));
    let mut folded = vec![
        grid("Worker processes", case, WORKER_COLUMNS, &sides, workers),
        grid("Interfaces", case, INTERFACE_COLUMNS, &sides, interfaces),
    ];
    let of_probes: Vec<_> = sides.iter().map(|(_, runs)| tables::medians(runs)).collect();
    let named = sides.iter().map(|(row, _)| Cell::of_stack(row.place, &row.label));
    let of_probes: Vec<_> = named.zip(&of_probes).collect();
    folded.extend(tables::grids(&case.label, "stack", &of_probes).into_iter().map(Part::Grid));
    folded.extend(sides.iter().map(|side| boxes(side, "", protocols(&side.1))));
    let what = "Workers, interfaces and protocol counters".to_owned();
    parts.push(Part::Folded(what, false, folded));
    parts
}

/// Returns a table of all sides: of each the rows that `of` gives.
fn grid<'a, const N: usize>(
    what: &str,
    case: &Case<'_>,
    columns: [&str; N],
    sides: &[Side<'_>],
    of: fn(&[&RunRecord]) -> Vec<[String; N]>,
) -> Part<'a> {
    let rows = sides.iter().flat_map(|(row, runs)| {
        let side = Cell::of_stack(row.place, &row.label);
        let cells = move |cells: [String; N]| {
            std::iter::once(side.clone()).chain(cells.map(Cell::from)).collect::<Vec<_>>()
        };
        of(runs).into_iter().map(cells)
    });
    let columns = std::iter::once("stack").chain(columns);
    Part::Grid(Grid::new(format!("{what}: {}", case.label), columns).rows(rows))
}

/// Median over the runs in which `of` has a value.
fn over<'a>(runs: &[&'a RunRecord], of: impl Fn(&'a Probes) -> Option<f64>) -> Option<f64> {
    median(&runs.iter().filter_map(|run| of(&run.probes)).collect::<Vec<_>>())
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), rate)
}

/// Whole numbers and large ones without decimals, others with three digits.
fn rate(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 100.0 { grouped(value) } else { significant(value) }
}

fn cpus(runs: &[&RunRecord]) -> Vec<[String; 12]> {
    let tables: Vec<Table> = runs.iter().filter_map(|run| per_cpu(&run.probes)).collect();
    let value = |cpu: u32, column: &str| {
        let cpu = cpu.to_string();
        median(&tables.iter().filter_map(|table| table.value(&cpu, column)).collect::<Vec<_>>())
    };
    let numbers = tables.iter().flat_map(|table| &table.rows).filter_map(|row| row.0.parse().ok());
    let numbers: BTreeSet<u32> = numbers.collect();
    let idle = |cpu: &u32| value(*cpu, "idle").unwrap_or(1.0);
    let mut shown: Vec<u32> = numbers.into_iter().collect();
    shown.sort_by(|a, b| idle(a).total_cmp(&idle(b)));
    shown.truncate(CPUS);
    shown.sort_unstable();
    let cells = |cpu: u32| {
        std::array::from_fn(|at| {
            let name = CPU_COLUMNS[at].trim_start_matches('>');
            match name.strip_suffix("/s") {
                Some(counted) => number(value(cpu, counted)),
                None if at == 0 => format!("CPU {cpu}"),
                None => value(cpu, name)
                    .map_or_else(|| "–".into(), |share| format!("{:.0}", share * 100.0)),
            }
        })
    };
    shown.into_iter().map(cells).collect()
}

/// Context switches and device interrupts.
fn remarks(runs: &[&RunRecord]) -> Vec<String> {
    let mut parts = Vec::new();
    let switches = over(runs, |probes| {
        Some(probes.context_switches.as_ref()?.iter().sum::<u64>() as f64 / probes.length_s()?)
    });
    if let Some(switches) = switches {
        parts.push(format!("context switches {}/s", rate(switches)));
    }
    let named =
        runs.iter().filter_map(|run| run.probes.interrupts.as_ref()).flat_map(|all| &all.rows);
    let devices: BTreeSet<(&str, &str)> = named
        .filter(|row| row.id.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|row| (row.id.as_str(), row.name.as_str()))
        .collect();
    let mut devices: Vec<(f64, &str)> = devices
        .into_iter()
        .filter_map(|(id, name)| {
            let rate = over(runs, |probes| {
                let row = probes.interrupts.as_ref()?.rows.iter().find(|row| row.id == id);
                Some(
                    row.map_or(0, |row| row.counts.iter().sum::<u64>()) as f64
                        / probes.length_s()?,
                )
            })?;
            (rate >= 1.0).then_some((rate, name))
        })
        .collect();
    devices.sort_by(|a, b| b.0.total_cmp(&a.0));
    parts.extend(
        devices.iter().take(DEVICES).map(|(events, name)| format!("{name} {}/s", rate(*events))),
    );
    parts
}

fn workers(runs: &[&RunRecord]) -> Vec<[String; 7]> {
    let all = runs.iter().filter_map(|run| run.probes.workers.as_ref());
    let roles: BTreeSet<&String> = all.flat_map(|workers| workers.keys()).collect();
    let rows = roles.into_iter().map(|role| {
        let of = |pick: fn(&millstream_record::WorkerActivity) -> f64| {
            over(runs, |probes| Some(pick(probes.workers.as_ref()?.get(role)?)))
        };
        let per_s = |pick: fn(&millstream_record::WorkerActivity) -> u64| {
            number(over(runs, |probes| {
                Some(pick(probes.workers.as_ref()?.get(role)?) as f64 / probes.length_s()?)
            }))
        };
        let seconds =
            |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.2}"));
        [
            role.clone(),
            seconds(of(|worker| worker.usr_s)),
            seconds(of(|worker| worker.sys_s)),
            per_s(|worker| worker.voluntary_switches),
            per_s(|worker| worker.involuntary_switches),
            places(runs, role),
            number(of(|worker| worker.moves_seen as f64)),
        ]
    });
    rows.collect()
}

/// `CPU 0 88 %, CPU 1 12 %`: where the threads were seen, over all runs, four places at most.
fn places(runs: &[&RunRecord], role: &str) -> String {
    let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
    for worker in runs.iter().filter_map(|run| run.probes.workers.as_ref()?.get(role)) {
        for (cpu, count) in &worker.seen_on_cpu {
            *seen.entry(*cpu).or_default() += count;
        }
    }
    let all: u64 = seen.values().sum();
    let mut seen: Vec<_> = seen.into_iter().collect();
    seen.sort_by_key(|(cpu, count)| (std::cmp::Reverse(*count), *cpu));
    let text: Vec<String> = seen
        .iter()
        .take(4)
        .map(|(cpu, count)| format!("CPU {cpu} {:.0} %", *count as f64 * 100.0 / all.max(1) as f64))
        .collect();
    if text.is_empty() { "–".into() } else { text.join(", ") }
}

fn interfaces(runs: &[&RunRecord]) -> Vec<[String; 8]> {
    let all = runs.iter().filter_map(|run| run.probes.hosts.as_ref());
    let names: BTreeSet<(&String, &String)> = all
        .flat_map(|hosts| {
            hosts.iter().flat_map(|(host, one)| one.interfaces.keys().map(move |name| (host, name)))
        })
        .collect();
    let rows = names.into_iter().filter_map(|(host, name)| {
        let of = |pick: fn(&millstream_record::InterfaceCounters) -> u64| {
            over(runs, |probes| {
                Some(pick(probes.hosts.as_ref()?.get(host)?.interfaces.get(name)?) as f64)
            })
            .unwrap_or(0.0)
        };
        let (rx, tx) = (of(|one| one.rx_bytes), of(|one| one.tx_bytes));
        if rx + tx == 0.0 {
            return None;
        }
        let (rx_packets, tx_packets) = (of(|one| one.rx_packets), of(|one| one.tx_packets));
        let each = |bytes: f64, packets: f64| {
            if packets > 0.0 { rate((bytes / packets).round()) } else { "–".into() }
        };
        let bytes = |bytes: f64| Scale::of("x_bytes", bytes).with_unit(bytes);
        Some([
            format!("{host}/{name}"),
            bytes(rx),
            rate(rx_packets),
            each(rx, rx_packets),
            bytes(tx),
            rate(tx_packets),
            each(tx, tx_packets),
            rate(of(|one| one.rx_dropped + one.tx_dropped + one.rx_errors + one.tx_errors)),
        ])
    });
    rows.collect()
}

/// Counters that tell of trouble or of a way taken; the rest is in the embedded data.
const TELLING: &[&str] = &[
    "Tcp.RetransSegs",
    "Tcp.InErrs",
    "Tcp.OutRsts",
    "TcpExt.TCPTimeouts",
    "TcpExt.TCPLossProbes",
    "TcpExt.TCPFastRetrans",
    "TcpExt.TCPSACKReorder",
    "TcpExt.TCPOFOQueue",
    "TcpExt.TCPRcvCollapsed",
    "TcpExt.PruneCalled",
    "TcpExt.TCPBacklogDrop",
    "TcpExt.TCPRcvQDrop",
    "TcpExt.TCPToZeroWindowAdv",
    "TcpExt.TCPZeroWindowDrop",
    "TcpExt.DelayedACKs",
    "TcpExt.TCPAutoCorking",
    "TcpExt.TCPMemoryPressures",
    "TcpExt.ListenDrops",
    "Ip.InDiscards",
    "Ip.ReasmFails",
];

fn protocols(runs: &[&RunRecord]) -> Vec<String> {
    let all = runs.iter().filter_map(|run| run.probes.hosts.as_ref());
    let hosts: BTreeSet<&String> = all.flat_map(|hosts| hosts.keys()).collect();
    let mut rows = Vec::new();
    for host in hosts {
        for name in TELLING {
            let count = over(runs, |probes| {
                let protocols = &probes.hosts.as_ref()?.get(host)?.protocols;
                Some(protocols.get(*name).copied().unwrap_or(0) as f64)
            });
            if let Some(count) = count.filter(|count| *count != 0.0) {
                rows.push(format!("{host} {name} {}", rate(count)));
            }
        }
    }
    rows
}

/// Returns the state of the connections of each case: a column per stack and end, a row per field.
pub(in super::super) fn connections<'a>(scope: Scope<'_>) -> Vec<Part<'a>> {
    let of_case = |(at, case): (usize, &Case<'_>)| {
        let table = match connections_of(case, scope.detailed) {
            Some(grid) => Part::Grid(grid),
            None => Part::Styled("dim", "No connection was reported.".to_owned()),
        };
        Part::Folded(case.label.clone(), at == 0, vec![table])
    };
    let cases = results::full(scope).iter().enumerate().map(of_case);
    let lead = Part::Styled("lead", format!("{TCP} {}", scope.detailed.said));
    std::iter::once(lead).chain(cases).collect()
}

fn connections_of(case: &Case<'_>, detailed: &Detailed<'_>) -> Option<Grid> {
    // Fields by column; every value of every run and connection of that column.
    let mut columns = vec![Column::new("field")];
    let mut values: Vec<BTreeMap<&str, Vec<f64>>> = Vec::new();
    for (row, runs) in sides(case, detailed) {
        let mut ends: BTreeMap<String, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
        for info in runs.iter().flat_map(|run| &run.probes.tcp_info) {
            let parts =
                [Some(info.role.as_str()), Some(info.stack.as_str()), info.congestion.as_deref()];
            let parts: Vec<&str> =
                parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
            let end = ends.entry(parts.join(", ")).or_default();
            for (name, value) in info.fields.iter().filter(|(_, value)| value.is_finite()) {
                end.entry(name).or_default().push(*value);
            }
        }
        for (end, fields) in ends {
            columns.push(Column::new(&format!(">{}: {end}", row.label)));
            values.push(fields);
        }
    }
    let names: BTreeSet<&str> = values.iter().flat_map(|fields| fields.keys().copied()).collect();
    let rows = names.into_iter().map(|name| {
        let cells = values.iter().map(|fields| {
            let middle = fields.get(name).and_then(|values| median(values));
            number(middle).into()
        });
        std::iter::once(Cell::from(name)).chain(cells).collect::<Vec<_>>()
    });
    let grid = Grid::new(format!("TCP_INFO: {}", case.label), []).columns(columns).rows(rows);
    (!grid.is_empty()).then_some(grid)
}
