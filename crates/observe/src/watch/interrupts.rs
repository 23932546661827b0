//! Interrupts by source and CPU with the time in their handlers, in the manner of Solaris'
//! `intrstat`.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use serde::Serialize;

use crate::bpf::{Kernel, Place};
use crate::probe::{Absent, ProcFile};
use crate::proc::interrupts::{Table, parse};
use crate::proc::rise32;

/// One line of `/proc/interrupts` in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SourceRates {
    /// Number, or `RES`, `CAL`, `TLB`, `LOC`, ...
    pub id: String,
    /// The device, or what the kernel calls it.
    pub name: String,
    /// Rate on all CPUs together.
    pub per_s: f64,
    /// CPUs that had some, with how many a second; the most first.
    pub by_cpu: Vec<(u32, f64)>,
    /// Percent of one CPU's time in its handlers, all CPUs together; of devices alone.
    pub busy_percent: Option<f64>,
}

/// Interrupts with this number and those beyond it are timed together (`Place::Interrupt`).
const TIMED_BELOW: u32 = 255;

pub(super) struct Interrupts {
    file: ProcFile,
    at: Instant,
    last: HashMap<String, Vec<u64>>,
    cpus: Vec<u32>,
    times: Result<BTreeMap<u32, u64>, Absent>,
}

impl Interrupts {
    pub(super) fn open(kernel: Option<&Kernel>) -> Result<Self, Absent> {
        let mut file = ProcFile::open("/proc/interrupts")?;
        let table = file.parse(parse)?;
        let mut source = Self {
            file,
            at: Instant::now(),
            last: HashMap::new(),
            cpus: table.cpus.clone(),
            times: Err(Absent(String::new())),
        };
        source.times = times(kernel.ok_or(&Absent("no programs".to_owned())));
        source.last = table.rows.into_iter().map(|(id, counts, _)| (id, counts)).collect();
        Ok(source)
    }

    /// Returns the reason why the time in handlers is not measured.
    pub(super) fn times_absent(&self) -> Option<&Absent> {
        self.times.as_ref().err()
    }

    pub(super) fn sample(
        &mut self,
        kernel: Result<&Kernel, &Absent>,
    ) -> Result<Vec<SourceRates>, Absent> {
        let now = Instant::now();
        let seconds = now.duration_since(self.at).as_secs_f64();
        let table = self.file.parse(parse)?;
        let times = times(kernel);
        let busy = |id: &str| -> Option<f64> {
            let number = id.parse().ok().filter(|number| *number < TIMED_BELOW)?;
            let (Ok(before), Ok(now)) = (&self.times, &times) else { return None };
            let of = |all: &BTreeMap<u32, u64>| all.get(&number).copied().unwrap_or(0);
            Some(of(now).saturating_sub(of(before)) as f64 / seconds / 1e7)
        };
        // With other CPUs online the columns are others: this interval has no rates.
        let same = self.cpus == table.cpus;
        let Table { cpus, rows } = table;
        let mut all = Vec::with_capacity(rows.len());
        for (id, counts, name) in rows {
            let busy_percent = busy(&id);
            let zero = vec![0; counts.len()];
            let before = if same { self.last.get(&id).unwrap_or(&zero) } else { &counts };
            let by_cpu = rates(&cpus, before, &counts, seconds);
            all.push(SourceRates {
                per_s: by_cpu.iter().fold(0.0, |sum, (_, rate)| sum + rate),
                by_cpu,
                busy_percent,
                name,
                id: id.clone(),
            });
            self.last.insert(id, counts);
        }
        (self.at, self.cpus, self.times) = (now, cpus, times);
        Ok(all)
    }
}

/// CPUs whose count rose, the fastest first.
fn rates(cpus: &[u32], before: &[u64], now: &[u64], seconds: f64) -> Vec<(u32, f64)> {
    let risen = cpus.iter().zip(before.iter().zip(now));
    let rates = risen.map(|(cpu, (before, now))| (*cpu, rise32(*before, *now) as f64 / seconds));
    let mut rates: Vec<(u32, f64)> = rates.filter(|(_, rate)| *rate > 0.0).collect();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    rates
}

/// Nanoseconds in the handlers of each number, on all CPUs together.
fn times(kernel: Result<&Kernel, &Absent>) -> Result<BTreeMap<u32, u64>, Absent> {
    let kernel = kernel.map_err(Clone::clone)?;
    if let Some(why) = kernel.why_not(crate::bpf::Counter::IrqNs) {
        return Err(Absent(why));
    }
    let mut times = BTreeMap::new();
    for one in kernel.interrupt_times()? {
        if let Place::Interrupt(number) = one.place {
            *times.entry(number).or_insert(0) += one.total_ns;
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_by_their_rate_and_idle_ones_are_not() {
        let rates = rates(&[0, 2, 3], &[5, 5, 5], &[6, 5, 25], 2.0);
        assert_eq!(rates, [(3, 10.0), (0, 0.5)]);
    }

    #[test]
    fn the_timers_of_this_machine_fire() {
        let why = Absent("none here".to_owned());
        let mut source = Interrupts::open(None).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let all = source.sample(Err(&why)).unwrap();
        assert!(all.iter().all(|one| one.per_s.is_sign_positive()), "-0 is no rate");
        assert!(all.iter().any(|one| one.per_s > 0.0 && !one.by_cpu.is_empty()));
        assert_eq!(source.times_absent(), Some(&why));
    }
}
