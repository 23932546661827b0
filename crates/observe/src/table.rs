//! One line for each CPU and interval, in the manner of Solaris' `mpstat`.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::Absent;
use crate::bpf::{Counter, Counters, Kernel, SystemCalls};
use crate::faults::Faults;
use crate::proc::stat::{self, Ticks};
use crate::proc::{ProcFile, interrupts, rise, rise32, softirqs};

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "`meaning` says it")]
pub enum Column {
    Minf,
    Mjf,
    Xcal,
    Intr,
    Ithr,
    Csw,
    Icsw,
    Migr,
    Smtx,
    Srw,
    Syscl,
    Usr,
    Sys,
    Wt,
    Idl,
    Hi,
    Si,
}

use Column::*;

impl Column {
    /// All, from left to right.
    pub const ALL: [Self; 17] =
        [Minf, Mjf, Xcal, Intr, Ithr, Csw, Icsw, Migr, Smtx, Srw, Syscl, Usr, Sys, Wt, Idl, Hi, Si];

    /// Returns the head of the column, which is its key in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Minf => "minf",
            Mjf => "mjf",
            Xcal => "xcal",
            Intr => "intr",
            Ithr => "ithr",
            Csw => "csw",
            Icsw => "icsw",
            Migr => "migr",
            Smtx => "smtx",
            Srw => "srw",
            Syscl => "syscl",
            Usr => "usr",
            Sys => "sys",
            Wt => "wt",
            Idl => "idl",
            Hi => "hi",
            Si => "si",
        }
    }

    /// Returns its meaning on Linux.
    pub fn meaning(self) -> &'static str {
        match self {
            Minf => "page faults without a disk read, per second",
            Mjf => "page faults with a disk read, per second",
            Xcal => {
                "interrupts sent to other CPUs, to wake them or to run a function there, per second"
            }
            Intr => "interrupts of any kind, per second",
            Ithr => "soft interrupts, per second",
            Csw => "context switches, per second",
            Icsw => "context switches that the thread did not ask for, per second",
            Migr => "threads moved to this CPU, per second",
            Smtx => "mutexes and spin locks that were held when asked for, per second",
            Srw => "the same of reader/writer locks, per second",
            Syscl => "system calls, per second, by the windows that counted them last",
            Usr => "percent of the time in user code",
            Sys => "percent of the time in the kernel, interrupts included",
            Wt => "percent of the time idle with a disk request outstanding",
            Idl => "percent of the time idle",
            Hi => "percent of the time in handlers of devices' interrupts, a part of sys",
            Si => "percent of the time in soft interrupts, a part of sys",
        }
    }

    /// Returns true for a share of the time, in percent.
    pub fn is_percent(self) -> bool {
        matches!(self, Usr | Sys | Wt | Idl | Hi | Si)
    }
}

/// One CPU in one interval; a column that is not measured is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Number of the CPU.
    pub cpu: u32,
    values: [Option<f64>; Column::ALL.len()],
}

impl Row {
    /// Returns the value of a column.
    pub fn get(&self, column: Column) -> Option<f64> {
        self.values[column as usize]
    }

    fn put(&mut self, column: Column, value: Option<f64>) {
        self.values[column as usize] = value;
    }
}

/// Returns the value of a column for all these CPUs together: the sum of counts, the mean of
/// shares. `None` where a CPU has no value.
pub fn of_all(rows: &[Row], column: Column) -> Option<f64> {
    let sum: f64 = rows.iter().map(|row| row.get(column)).sum::<Option<f64>>()?;
    match column.is_percent() {
        true if rows.is_empty() => None,
        true => Some(sum / rows.len() as f64),
        false => Some(sum),
    }
}

/// Rates of all CPUs that are online, from one sample to the next.
pub struct CpuTable {
    stat: ProcFile,
    interrupts: Result<ProcFile, Absent>,
    softirqs: Result<ProcFile, Absent>,
    faults: Result<Faults, Absent>,
    last: Snapshot,
    /// System calls of the last sample in which one of their windows ended.
    system_calls: SystemCalls,
}

struct Snapshot {
    at: Instant,
    ticks: Vec<(u32, Ticks)>,
    interrupts: Result<interrupts::Totals, Absent>,
    softirqs: Result<Vec<u64>, Absent>,
    faults: Result<Vec<(u32, u64, u64)>, Absent>,
    counters: Option<Vec<Counters>>,
    arrivals: Option<Vec<u64>>,
    system_calls: Option<SystemCalls>,
}

impl CpuTable {
    /// Opens what there is and takes the first sample. Only `/proc/stat` has to be there.
    pub fn open(kernel: Option<&Kernel>) -> Result<Self, Absent> {
        let mut stat = ProcFile::open("/proc/stat")?;
        let cpus: Vec<u32> = stat.parse(stat::parse)?.iter().map(|(cpu, _)| *cpu).collect();
        let mut table = Self {
            stat,
            interrupts: ProcFile::open("/proc/interrupts"),
            softirqs: ProcFile::open("/proc/softirqs"),
            faults: Faults::open(&cpus),
            last: Snapshot {
                at: Instant::now(),
                ticks: vec![],
                interrupts: Err(Absent(String::new())),
                softirqs: Err(Absent(String::new())),
                faults: Err(Absent(String::new())),
                counters: None,
                arrivals: None,
                system_calls: None,
            },
            system_calls: SystemCalls::default(),
        };
        table.last = table.look(kernel)?;
        Ok(table)
    }

    /// Takes a sample. Returns the seconds since the last one, and a row for each CPU.
    pub fn sample(&mut self, kernel: Option<&Kernel>) -> Result<(f64, Vec<Row>), Absent> {
        let now = self.look(kernel)?;
        let seconds = now.at.duration_since(self.last.at).as_secs_f64();
        let mut rows = now.since(&self.last, seconds, kernel);
        if let (Some(all), Some(before)) = (&now.system_calls, &self.last.system_calls) {
            if all.windows() > before.windows() {
                self.system_calls = all.since(before);
            }
            for row in &mut rows {
                row.put(Syscl, self.system_calls.per_s(row.cpu));
            }
        }
        self.last = now;
        Ok((seconds, rows))
    }

    /// Returns the columns that are not measured here, or in another way than [`Column::meaning`]
    /// says.
    pub fn notes(&self, kernel: Result<&Kernel, &Absent>) -> BTreeMap<&'static str, String> {
        let mut notes = BTreeMap::new();
        let mut note = |column: Column, why: String| drop(notes.insert(column.name(), why));
        let absent = |why: &str| format!("not measured, because {why}");
        if let Err(why) = &self.last.faults {
            note(Minf, absent(&why.0));
            note(Mjf, absent(&why.0));
        }
        if let Err(why) = &self.last.interrupts {
            note(Intr, absent(&why.0));
        }
        for (column, counter) in Self::COUNTED {
            let why = match kernel {
                Ok(kernel) => kernel.why_not(counter),
                Err(why) => Some(why.0.clone()),
            };
            let Some(why) = why else { continue };
            match column {
                Xcal => note(
                    Xcal,
                    format!(
                        "interrupts received from other CPUs, because those sent are not measured: {why}"
                    ),
                ),
                Ithr => note(Ithr, format!("from /proc/softirqs, because {why}")),
                Hi | Si => note(column, format!("by the ticks of /proc/stat, because {why}")),
                _ => note(column, absent(&why)),
            }
        }
        match kernel.map_err(Absent::clone).and_then(Kernel::system_calls) {
            Ok(_) => note(Syscl, SystemCalls::how()),
            Err(why) => note(Syscl, absent(&why.0)),
        }
        let arrivals = match kernel {
            Ok(kernel) => kernel.arrivals().err(),
            Err(why) => Some(why.clone()),
        };
        if let Some(why) = arrivals {
            note(Migr, absent(&why.0));
        }
        notes
    }

    /// Columns by the counter that they come from; others are made of several.
    const COUNTED: [(Column, Counter); 8] = [
        (Xcal, Counter::WakeupIpis),
        (Ithr, Counter::Softirqs(0)),
        (Csw, Counter::Switches),
        (Icsw, Counter::InvoluntarySwitches),
        (Smtx, Counter::MutexSpins),
        (Srw, Counter::RwSpins),
        (Hi, Counter::IrqNs),
        (Si, Counter::SoftirqNs),
    ];

    fn look(&mut self, kernel: Option<&Kernel>) -> Result<Snapshot, Absent> {
        let of = |file: &mut Result<ProcFile, Absent>| -> Result<interrupts::Totals, Absent> {
            file.as_mut().map_err(|why| why.clone())?.parse(interrupts::totals)
        };
        let softirqs = |file: &mut Result<ProcFile, Absent>| -> Result<Vec<u64>, Absent> {
            file.as_mut().map_err(|why| why.clone())?.parse(softirqs::totals)
        };
        Ok(Snapshot {
            at: Instant::now(),
            ticks: self.stat.parse(stat::parse)?,
            interrupts: of(&mut self.interrupts),
            softirqs: softirqs(&mut self.softirqs),
            faults: match &mut self.faults {
                Ok(faults) => faults.read(),
                Err(why) => Err(why.clone()),
            },
            counters: kernel.and_then(|kernel| kernel.counters().ok()),
            arrivals: kernel.and_then(|kernel| kernel.arrivals().ok()),
            system_calls: kernel.and_then(|kernel| kernel.system_calls().ok()),
        })
    }
}

impl Snapshot {
    fn since(&self, before: &Self, seconds: f64, kernel: Option<&Kernel>) -> Vec<Row> {
        let known = |cpu: u32| before.ticks.iter().find(|(number, _)| *number == cpu);
        let row = |(cpu, ticks): &(u32, Ticks)| -> Option<Row> {
            let (_, last) = known(*cpu)?;
            let mut row = Row { cpu: *cpu, values: [None; Column::ALL.len()] };
            shares(&mut row, last, ticks);
            self.proc_columns(&mut row, before, seconds);
            if let (Some(kernel), Some(now), Some(last)) =
                (kernel, &self.counters, &before.counters)
                && let (Some(now), Some(last)) = (now.get(*cpu as usize), last.get(*cpu as usize))
            {
                counted(&mut row, kernel, now, last, seconds);
            }
            if let (Some(now), Some(last)) = (&self.arrivals, &before.arrivals) {
                let of = |all: &[u64]| all.get(*cpu as usize).copied();
                let moved = of(now).zip(of(last)).map(|(now, last)| rise(last, now));
                row.put(Migr, moved.map(|moved| moved as f64 / seconds));
            }
            Some(row)
        };
        self.ticks.iter().filter_map(row).collect()
    }

    fn proc_columns(&self, row: &mut Row, before: &Self, seconds: f64) {
        let cpu = row.cpu;
        if let (Ok(now), Ok(last)) = (&self.interrupts, &before.interrupts) {
            let rates = now.of(cpu).zip(last.of(cpu)).map(|(now, last)| {
                (rise(last.all, now.all) as f64, rise(last.between, now.between) as f64)
            });
            row.put(Intr, rates.map(|(all, _)| all / seconds));
            row.put(Xcal, rates.map(|(_, between)| between / seconds));
        }
        if let (Ok(now), Ok(last)) = (&self.softirqs, &before.softirqs) {
            let of = |all: &[u64]| all.get(cpu as usize).copied();
            let rate = of(now).zip(of(last)).map(|(now, last)| rise32(last, now) as f64 / seconds);
            row.put(Ithr, rate);
        }
        if let (Ok(now), Ok(last)) = (&self.faults, &before.faults) {
            let of = |all: &[(u32, u64, u64)]| all.iter().find(|one| one.0 == cpu).copied();
            if let (Some(now), Some(last)) = (of(now), of(last)) {
                row.put(Minf, Some(rise(last.1, now.1) as f64 / seconds));
                row.put(Mjf, Some(rise(last.2, now.2) as f64 / seconds));
            }
        }
    }
}

/// Sets the shares of the time by `/proc/stat`, in ticks of the time that went by.
fn shares(row: &mut Row, last: &Ticks, now: &Ticks) {
    let risen: Ticks = std::array::from_fn(|at| rise(last[at], now[at]));
    let all: u64 = risen.iter().sum();
    if all == 0 {
        return;
    }
    let [usr, nice, sys, idle, wait, irq, softirq, _steal] = risen;
    let share = |ticks: u64| Some(ticks as f64 * 100.0 / all as f64);
    row.put(Usr, share(usr + nice));
    row.put(Sys, share(sys + irq + softirq));
    row.put(Wt, share(wait));
    row.put(Idl, share(idle));
    row.put(Hi, share(irq));
    row.put(Si, share(softirq));
}

fn counted(row: &mut Row, kernel: &Kernel, now: &Counters, last: &Counters, seconds: f64) {
    let risen = |what: Counter| -> Option<f64> {
        kernel.why_not(what).is_none().then(|| rise(last.get(what), now.get(what)) as f64)
    };
    let mut rate = |column: Column, what: Option<f64>| {
        if let Some(what) = what {
            row.put(column, Some(what / seconds));
        }
    };
    rate(Csw, risen(Counter::Switches));
    rate(Icsw, risen(Counter::InvoluntarySwitches));
    rate(Smtx, risen(Counter::MutexSpins));
    rate(Srw, risen(Counter::RwSpins));
    let sent = risen(Counter::WakeupIpis).zip(risen(Counter::CallIpis));
    rate(Xcal, sent.map(|(wake, call)| wake + call));
    rate(Ithr, (0..10).map(|vector| risen(Counter::Softirqs(vector))).sum());
    // Nanoseconds per second are 10^-7 percent.
    let percent = |what: Option<f64>| what.map(|ns| ns / 1e7);
    rate(Hi, percent(risen(Counter::IrqNs)));
    rate(Si, percent(risen(Counter::SoftirqNs)));
}
