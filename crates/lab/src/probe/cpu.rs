//! Time of every CPU by kind, from `/proc/stat`.

use super::{Absent, Probe, ProcFile, Turn, rise};
use crate::record::{CpuActivity, CpuSeries, Probes};

/// Columns of a line of `/proc/stat`: usr, nice, sys, idle, wait, irq, softirq, steal.
/// The two that follow (guest, guest nice) are already inside usr and nice.
const COLUMNS: usize = 8;

type Ticks = [u64; COLUMNS];

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

/// The lines `cpuN`; kernels before 2.6.11 have fewer columns, the missing ones count as 0.
pub(super) fn parse(text: &str) -> Result<Vec<(u32, Ticks)>, String> {
    let mut cpus = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(number) = words.next().and_then(|word| word.strip_prefix("cpu")) else { continue };
        if number.is_empty() {
            continue;
        }
        let number = number.parse().map_err(|_| format!("odd line {line:?}"))?;
        let mut ticks = Ticks::default();
        for (at, word) in words.take(COLUMNS).enumerate() {
            ticks[at] = word.parse().map_err(|_| format!("odd number {word:?} for cpu{number}"))?;
        }
        cpus.push((number, ticks));
    }
    if cpus.is_empty() { Err("no line of a CPU".into()) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cpus_are_taken_and_the_sum_is_not() {
        let cpus = parse(include_str!("samples/stat.txt")).unwrap();
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[0], (0, [1448, 0, 1085, 80935, 37, 0, 9, 4]));
        assert_eq!(cpus[1].0, 1);
    }

    #[test]
    fn odd_input_is_refused_or_completed() {
        assert_eq!(parse("cpu  1 2 3\ncpu5 1 2 3 4\n").unwrap(), [(5, [1, 2, 3, 4, 0, 0, 0, 0])]);
        assert!(parse("").is_err());
        assert!(parse("cpu 1 2 3 4\n").is_err());
        assert!(parse("cpux 1 2 3 4\n").unwrap_err().contains("cpux"));
        assert!(parse("cpu0 1 -2 3 4\n").unwrap_err().contains("-2"));
    }

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
