//! Tables of the machine's activity: CPUs with their interrupts, workers, interfaces, connections.

use std::collections::{BTreeMap, BTreeSet};

use millstream_diagnose::stats::median;
use millstream_diagnose::units::{Scale, grouped, significant};
use millstream_record::{Probes, RunRecord};
use serde::Serialize;

use super::super::model::{Case, Row};
use super::super::tables::Drawn;
use super::room::Detailed;

/// CPUs listed per stack: the busiest.
const CPUS: usize = 16;
/// Device interrupts listed per stack.
const DEVICES: usize = 5;

/// Columns of the CPU table: shares of time, then events per second.
pub(super) const CPU_COLUMNS: [&str; 11] = [
    "usr", "sys", "softirq", "irq", "steal", "wait", "idle", "RES/s", "CAL/s", "TLB/s", "NET_RX/s",
];

/// The machine in one case.
#[derive(Serialize)]
pub(super) struct Machine {
    label: String,
    sides: Vec<Side>,
    interfaces: bool,
    tables: Vec<Drawn>,
    tcp: Connections,
}

/// The machine in one case under one stack, medians over the runs that count.
#[derive(Serialize)]
struct Side {
    label: String,
    place: usize,
    cpus: Vec<(String, Vec<String>)>,
    remark: String,
    workers: Vec<[String; 7]>,
    interfaces: Vec<[String; 8]>,
    protocols: Vec<(String, String)>,
    /// CPUs with their idle states.
    idle: Vec<(String, String)>,
}

/// State of the connections of a case: a column per stack and end, a row per field.
#[derive(Serialize)]
struct Connections {
    /// Place of the stack, its label, whose connection it is.
    columns: Vec<(usize, String, String)>,
    rows: Vec<(String, Vec<String>)>,
}

/// The tables of a case, of the runs that are looked at one by one.
pub(super) fn tables(case: &Case<'_>, detailed: &Detailed<'_>) -> Machine {
    let runs = case.rows.iter().map(|row| detailed.among(row.group.valid.iter().copied()));
    let runs: Vec<Vec<&RunRecord>> = runs.collect();
    let sides: Vec<Side> = case.rows.iter().zip(&runs).map(|(row, runs)| side(row, runs)).collect();
    let interfaces = sides.iter().any(|side| !side.interfaces.is_empty());
    let tables = super::super::tables::drawn(case, &runs);
    Machine { label: case.label.clone(), sides, interfaces, tables, tcp: connections(case, &runs) }
}

fn side(row: &Row<'_>, runs: &[&RunRecord]) -> Side {
    Side {
        label: row.label.clone(),
        place: row.place,
        cpus: cpus(runs),
        remark: remark(runs),
        workers: workers(runs),
        interfaces: interfaces(runs),
        protocols: protocols(runs),
        idle: super::super::idle::states(runs).into_iter().take(CPUS).collect(),
    }
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

fn cpus(runs: &[&RunRecord]) -> Vec<(String, Vec<String>)> {
    let activities = runs.iter().filter_map(|run| run.probes.cpu.as_ref());
    let numbers: BTreeSet<u32> =
        activities.flat_map(|cpu| cpu.cpus.iter().map(|one| one.cpu)).collect();
    let mut rows: Vec<(f64, u32, Vec<String>)> = numbers
        .into_iter()
        .map(|number| {
            let busy =
                over(runs, |probes| share(probes, number, "idle")).map_or(0.0, |idle| 1.0 - idle);
            (busy, number, cpu(runs, number))
        })
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    rows.truncate(CPUS);
    rows.sort_by_key(|row| row.1);
    rows.into_iter().map(|(_, number, cells)| (format!("CPU {number}"), cells)).collect()
}

fn cpu(runs: &[&RunRecord], cpu: u32) -> Vec<String> {
    let kinds = CPU_COLUMNS[..7].iter().map(|kind| {
        let share = over(runs, |probes| share(probes, cpu, kind));
        share.map_or_else(|| "–".into(), |share| format!("{:.0}", share * 100.0))
    });
    let ipis = ["RES", "CAL", "TLB"].iter().map(|id| {
        let rate = over(runs, |probes| {
            let interrupts = probes.interrupts.as_ref()?;
            let column = interrupts.cpus.iter().position(|one| *one == cpu)?;
            let row = interrupts.rows.iter().find(|row| row.id == *id)?;
            Some(*row.counts.get(column)? as f64 / probes.length_s()?)
        });
        number(rate)
    });
    let net_rx = over(runs, |probes| {
        let received = probes.tables.get("softirqs")?.value(&cpu.to_string(), "NET_RX")?;
        Some(received / probes.length_s()?)
    });
    kinds.chain(ipis).chain([number(net_rx)]).collect()
}

fn share(probes: &Probes, cpu: u32, kind: &str) -> Option<f64> {
    let one = probes.cpu.as_ref()?.cpus.iter().find(|one| one.cpu == cpu)?;
    let all: f64 = one.kinds().iter().map(|(_, series)| series.iter().sum::<f64>()).sum();
    // Lowered priority is user code too.
    let of_kind = one.total_s(kind) + if kind == "usr" { one.total_s("nice") } else { 0.0 };
    (all > 0.0).then(|| of_kind / all)
}

/// Context switches and device interrupts in one line.
fn remark(runs: &[&RunRecord]) -> String {
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
    parts.join(" · ")
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

fn protocols(runs: &[&RunRecord]) -> Vec<(String, String)> {
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
                rows.push((format!("{host} {name}"), rate(count)));
            }
        }
    }
    rows
}

fn connections(case: &Case<'_>, runs: &[Vec<&RunRecord>]) -> Connections {
    // Fields by column; every value of every run and connection of that column.
    let mut columns: Vec<(usize, String, String)> = Vec::new();
    let mut values: Vec<BTreeMap<&str, Vec<f64>>> = Vec::new();
    for (row, runs) in case.rows.iter().zip(runs) {
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
            columns.push((row.place, row.label.clone(), end));
            values.push(fields);
        }
    }
    let names: BTreeSet<&str> = values.iter().flat_map(|fields| fields.keys().copied()).collect();
    let rows = names.into_iter().map(|name| {
        let cells = values.iter().map(|fields| {
            let middle = fields.get(name).and_then(|values| median(values));
            middle.map_or_else(|| "–".into(), rate)
        });
        (name.to_owned(), cells.collect())
    });
    Connections { columns, rows: rows.collect() }
}
