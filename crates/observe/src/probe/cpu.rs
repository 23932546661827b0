//! Time of every CPU by kind, from `/proc/stat`.

use millstream_record::{CpuActivity, CpuSeries, Probes};

use super::sampler::tick_s;
use super::{Absent, Kind, Probe, ProcFile, Turn, rise};
use crate::proc::stat::{Ticks, parse};

pub(super) const KIND: Kind = Kind { name: "cpu", open: |_| Ok(Box::new(Cpu::open(tick_s())?)) };

pub(super) struct Cpu {
    file: ProcFile,
    tick_s: f64,
    cpus: Vec<OneCpu>,
}

struct OneCpu {
    number: u32,
    last: Ticks,
    steps: Vec<Ticks>,
}

impl Cpu {
    pub(super) fn open(tick_s: f64) -> Result<Self, Absent> {
        Ok(Self { file: ProcFile::open("/proc/stat")?, tick_s, cpus: Vec::new() })
    }
}

impl Probe for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        let lines = self.file.parse(parse)?;
        if turn == Turn::First {
            self.cpus = lines
                .into_iter()
                .map(|(number, last)| OneCpu { number, last, steps: Vec::new() })
                .collect();
            return Ok(());
        }
        for one in &mut self.cpus {
            // A CPU that went offline has no line: its steps are empty until it comes back.
            let now = lines.iter().find(|(number, _)| *number == one.number);
            let now = now.map_or(one.last, |(_, ticks)| *ticks);
            one.steps.push(std::array::from_fn(|column| rise(one.last[column], now[column])));
            one.last = now;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Self { file: _, tick_s, cpus } = *self;
        let cpus = cpus.into_iter().map(|OneCpu { number, last: _, steps }| {
            let column = |at: usize| steps.iter().map(|step| seconds(step[at], tick_s)).collect();
            CpuSeries {
                cpu: number,
                usr_s: column(0),
                nice_s: column(1),
                sys_s: column(2),
                idle_s: column(3),
                wait_s: column(4),
                irq_s: column(5),
                softirq_s: column(6),
                steal_s: column(7),
            }
        });
        into.cpu = Some(CpuActivity { resolution_s: tick_s, cpus: cpus.collect() });
    }
}

/// Ticks in seconds, rounded to the microsecond so that the record stays short.
fn seconds(ticks: u64, tick_s: f64) -> f64 {
    (ticks as f64 * tick_s * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_steps_of_about_real_time() {
        let mut probe = Box::new(Cpu::open(0.01).unwrap());
        probe.sample(Turn::First).unwrap();
        probe.sample(Turn::Last).unwrap();
        let mut probes = Probes::default();
        probe.finish(&mut probes);
        let cpu = probes.cpu.unwrap();
        assert!(!cpu.cpus.is_empty() && cpu.cpus.iter().all(|one| one.idle_s.len() == 1));
    }
}
