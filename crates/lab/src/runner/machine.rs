//! CPU time of the whole machine over the measured window.

use millstream_load::workload::monotonic_ns;

/// Readings of /proc/stat at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineTime {
    at_ns: u64,
    idle_ticks: u64,
    steal_ticks: u64,
    cpus: u64,
}

/// CPU time of the machine between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineUse {
    /// Seconds between the readings.
    pub elapsed_s: f64,
    /// All CPUs together: user, nice, system, interrupts.
    pub busy_s: f64,
    /// CPU seconds that the hypervisor gave to others.
    pub steal_s: f64,
}

impl MachineTime {
    /// Reads /proc/stat now; `None` where there is none.
    pub fn now() -> Option<Self> {
        let stat = millstream_foreign::read("/proc/stat").ok()?;
        Self::parse(&stat, monotonic_ns())
    }

    fn parse(stat: &str, at_ns: u64) -> Option<Self> {
        let total = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> =
            total.split_ascii_whitespace().filter_map(|t| t.parse().ok()).collect();
        let one = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        // user nice system idle iowait irq softirq steal; guest time is inside user.
        let [_user, _nice, _system, idle, iowait, _irq, _softirq, steal, ..] = ticks[..] else {
            return None;
        };
        Some(Self {
            at_ns,
            idle_ticks: idle + iowait,
            steal_ticks: steal,
            cpus: stat.lines().filter(one).count() as u64,
        })
    }

    /// Returns the CPU time used since `earlier`: all time that was neither idle nor stolen, as
    /// idle time is measured while busy time is sampled at ticks.
    pub fn since(&self, earlier: &Self) -> MachineUse {
        let tick = 1.0 / ticks_per_s();
        let elapsed_s = (self.at_ns - earlier.at_ns) as f64 / 1e9;
        let span = |now: u64, then: u64| now.saturating_sub(then) as f64 * tick;
        let steal_s = span(self.steal_ticks, earlier.steal_ticks);
        let all = elapsed_s * self.cpus as f64;
        let busy_s = all - span(self.idle_ticks, earlier.idle_ticks) - steal_s;
        MachineUse { elapsed_s, busy_s: busy_s.max(0.0), steal_s }
    }
}

fn ticks_per_s() -> f64 {
    match nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK) {
        Ok(Some(hertz)) if hertz > 0 => hertz as f64,
        _ => 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: &str = "cpu  100 0 50 1000 10 0 5 0 0 0\ncpu0 50 0 25 500 5 0 2 0 0 0\n\
                        cpu1 50 0 25 500 5 0 3 0 0 0\nintr 1 2 3\n";
    const NOW: &str = "cpu  150 0 100 1080 10 0 15 10 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n\
                       cpu1 0 0 0 0 0 0 0 0 0 0\nintr 1 2 3\n";

    #[test]
    fn what_is_neither_idle_nor_stolen_was_used() {
        let then = MachineTime::parse(THEN, 0).unwrap();
        let now = MachineTime::parse(NOW, 1_000_000_000).unwrap();
        let used = now.since(&then);
        assert_eq!(used.elapsed_s, 1.0);
        assert!((used.steal_s - 0.1).abs() < 1e-9);
        assert!((used.busy_s - (2.0 - 0.8 - 0.1)).abs() < 1e-9, "{used:?}");
    }

    #[test]
    fn a_stat_without_the_columns_is_no_reading() {
        assert_eq!(MachineTime::parse("cpu  1 2 3\n", 0), None);
        assert_eq!(MachineTime::parse("", 0), None);
    }

    #[test]
    fn this_machine_has_cpus() {
        assert!(MachineTime::now().unwrap().cpus >= 1);
    }
}
