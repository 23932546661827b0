//! The table of each CPU in a run, as mpstat(1) has it; and runs beside each other.

use millstream_record::{Column, CpuSeries, Key, Kind, Probes, Table};

use super::frame::{Cell, Grid};
use super::tables::{head, of_rate};

/// Shares of the time; interrupts that CPUs send each other; and counts of the kernel, each with
/// its name in the record.
const SHARES: [&str; 7] = ["usr", "sys", "softirq", "irq", "steal", "wait", "idle"];
const INTERRUPTS: [&str; 3] = ["RES", "CAL", "TLB"];
const COUNTS: [(&str, &str); 7] = [
    ("csw", "switches"),
    ("icsw", "involuntary_switches"),
    ("migr", "migrations"),
    ("smtx", "mutex_spins"),
    ("srw", "rw_lock_spins"),
    ("syscl", "system_calls"),
    ("minf", "minor_faults"),
];
/// All interrupts, and visits of the network's receiving soft interrupt.
const ALL: &str = "intr";
const RECEIVING: &str = "NET_RX";

/// Returns a row for each CPU: shares of its time, and what else was counted of it, in a second.
/// None where CPUs were not looked at.
pub fn per_cpu(probes: &Probes) -> Option<Table> {
    let (activity, seconds) = (probes.cpu.as_ref()?, probes.length_s()?);
    let mut columns = Vec::new();
    let mut add = |name, kind, of: &dyn Fn(&CpuSeries) -> Option<f64>| {
        let values: Vec<Option<f64>> = activity.cpus.iter().map(of).collect();
        if values.iter().any(Option::is_some) {
            columns.push((Column::new(name, "", kind, ""), values));
        }
    };
    for kind in SHARES {
        add(kind, Kind::Share, &|one| share(one, kind));
    }
    for id in [ALL].into_iter().chain(INTERRUPTS) {
        add(id, Kind::Counter, &|one| {
            let interrupts = probes.interrupts.as_ref()?;
            let at = interrupts.cpus.iter().position(|cpu| *cpu == one.cpu)?;
            let rows = interrupts.rows.iter().filter(|row| id == ALL || row.id == id);
            let counts = rows.filter_map(|row| row.counts.get(at));
            Some(counts.copied().reduce(|a, b| a + b)? as f64 / seconds)
        });
    }
    add(RECEIVING, Kind::Counter, &|one| {
        let visits = probes.tables.get("softirqs")?.value(&one.cpu.to_string(), RECEIVING)?;
        Some(visits / seconds)
    });
    for (name, key) in COUNTS {
        add(name, Kind::Counter, &|one| {
            let kernel = probes.kernel.as_ref()?;
            let at = kernel.cpus.iter().position(|cpu| *cpu == one.cpu)?;
            Some(kernel.counts.get(key)?.get(at)? / seconds)
        });
    }
    let row = |(at, one): (usize, &CpuSeries)| {
        let values = columns.iter().map(|(_, values)| values[at].unwrap_or(0.0));
        (one.cpu.to_string(), values.collect())
    };
    let rows = activity.cpus.iter().enumerate().map(row).collect();
    let columns = columns.iter().map(|(column, _)| column.clone()).collect();
    Some(Table { key: Key::Cpu, columns, rows })
}

/// Returns the share of a CPU's time that is of a kind; lowered priority is user code, too.
fn share(one: &CpuSeries, kind: &str) -> Option<f64> {
    let all: f64 = one.kinds().iter().map(|(_, series)| series.iter().sum::<f64>()).sum();
    let of_kind = one.total_s(kind) + if kind == "usr" { one.total_s("nice") } else { 0.0 };
    (all > 0.0).then(|| of_kind / all)
}

/// Returns the tables of runs beside each other: of each CPU a line for each run. Of more than
/// `most` CPUs those that were busiest in any of the runs are there.
pub fn beside(runs: &[(String, &Table)], most: usize) -> Grid {
    let Some((_, first)) = runs.first() else { return Grid::default() };
    let busy = |cpu: &str| {
        let idle = runs.iter().filter_map(|(_, table)| table.value(cpu, "idle"));
        idle.fold(1.0, f64::min)
    };
    let mut cpus: Vec<&str> = first.rows.iter().map(|(cpu, _)| cpu.as_str()).collect();
    cpus.sort_by(|a, b| busy(a).total_cmp(&busy(b)));
    cpus.truncate(most);
    cpus.sort_by_key(|cpu| cpu.parse::<u32>().ok());
    let rows = cpus.into_iter().flat_map(|cpu| {
        runs.iter().map(move |(run, table)| {
            let cell = |column: &Column| {
                let value = table.value(cpu, &column.name);
                value.map_or_else(|| "–".to_owned(), |value| of_rate(column, value))
            };
            let named = [cpu.to_owned(), run.clone()];
            named
                .into_iter()
                .chain(first.columns.iter().map(cell))
                .map(Cell::from)
                .collect::<Vec<_>>()
        })
    });
    let grid = Grid::new("Each CPU, of runs beside each other", ["CPU", "run"]);
    grid.columns(first.columns.iter().map(head)).rows(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{CpuActivity, InterruptRow, Interrupts, KernelActivity};

    /// Two CPUs for two seconds, the first of which has all the interrupts.
    fn probes(busy_s: f64) -> Probes {
        let of = |cpu, usr_s: f64| CpuSeries {
            cpu,
            usr_s: vec![usr_s],
            idle_s: vec![2.0 - usr_s],
            ..CpuSeries::default()
        };
        let row = |id: &str, counts| InterruptRow { id: id.into(), counts, ..Default::default() };
        Probes {
            times_s: vec![0.0, 2.0],
            cpu: Some(CpuActivity { cpus: vec![of(0, busy_s), of(1, 0.5)], ..Default::default() }),
            interrupts: Some(Interrupts {
                cpus: vec![0, 1],
                rows: vec![row("38", vec![500, 0]), row("CAL", vec![20, 4])],
            }),
            kernel: Some(KernelActivity {
                cpus: vec![0, 1],
                counts: [("switches".to_owned(), vec![3000.0, 10.0])].into(),
                ..KernelActivity::default()
            }),
            ..Probes::default()
        }
    }

    #[test]
    fn each_cpu_has_its_shares_and_rates() {
        let table = per_cpu(&probes(1.0)).unwrap();
        let value = |cpu, column| table.value(cpu, column);
        assert_eq!((value("0", "usr"), value("1", "idle")), (Some(0.5), Some(0.75)));
        assert_eq!((value("0", "intr"), value("1", "intr")), (Some(260.0), Some(2.0)));
        assert_eq!((value("0", "CAL"), value("0", "csw")), (Some(10.0), Some(1500.0)));
        assert_eq!((value("0", "RES"), value("0", "syscl")), (None, None), "not counted");
        assert_eq!(per_cpu(&Probes::default()), None);
    }

    #[test]
    fn runs_are_beside_each_other_by_cpu() {
        let [bad, good] = [2.0, 1.0].map(|busy_s| per_cpu(&probes(busy_s)).unwrap());
        let runs = [("lowest".to_owned(), &bad), ("highest".to_owned(), &good)];
        let text = beside(&runs, 16).text();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let begins = |line: usize| lines[line][..4].join(" ");
        assert_eq!(begins(2), "0 lowest 100.0 %", "{text}");
        assert_eq!([begins(3), begins(4)], ["0 highest 50.0 %", "1 lowest 25.0 %"], "{text}");
        assert_eq!(beside(&runs, 1).text().lines().count(), lines.len() - 2, "the busier alone");
    }
}
