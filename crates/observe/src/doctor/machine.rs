//! Clock, frequency, steal, throttling.

use super::{Finding, Root, finding};
use crate::Absent;
use crate::proc::stat;

type Found = Result<Vec<Finding>, Absent>;

/// Finds a clock that takes a microsecond to read: every packet's time-stamp is one.
pub(super) fn clock(root: &Root) -> Found {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let current = root.text(format!("{folder}/current_clocksource"))?;
    let current = current.trim();
    if !matches!(current, "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies") {
        return Ok(vec![]);
    }
    let others = root.text(format!("{folder}/available_clocksource")).unwrap_or_default();
    Ok(vec![finding(
        format!("the clock is {current}, which is slow to read (available: {})", others.trim()),
        format!(
            "echo tsc > {folder}/current_clocksource, where it is available; dmesg says why it is not used"
        ),
    )])
}

/// Finds a governor that lowers the frequency of a CPU whose load comes in bursts.
pub(super) fn frequency(root: &Root) -> Found {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    let governor = root.text(path)?;
    let governor = governor.trim();
    if governor == "performance" {
        return Ok(vec![]);
    }
    Ok(vec![finding(
        format!("the frequency governor is {governor}: latencies are longer under little load"),
        "cpupower frequency-set -g performance",
    )])
}

/// Finds time that the hypervisor gave to others.
pub(super) fn steal(root: &Root) -> Found {
    let cpus = stat::parse(&root.text("/proc/stat")?).map_err(Absent)?;
    let (mut all, mut stolen) = (0, 0);
    for (_, ticks) in &cpus {
        all += ticks.iter().sum::<u64>();
        stolen += ticks[7];
    }
    // One percent in the mean of the machine's life is much more in its busy times.
    if stolen * 100 <= all {
        return Ok(vec![]);
    }
    let percent = stolen as f64 * 100.0 / all.max(1) as f64;
    Ok(vec![finding(
        format!("the hypervisor gave {percent:.1} % of the time of this machine's CPUs to others"),
        "CPUs of its own for this virtual machine, or another host",
    )])
}

/// Finds a used-up quota of CPU time, of the group that this process is in.
pub(super) fn throttling(root: &Root) -> Found {
    let text = root.text("/proc/self/cgroup")?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::"));
    let group = group.ok_or_else(|| Absent("/proc/self/cgroup: no group of version 2".into()))?;
    let path = format!("/sys/fs/cgroup{}/cpu.stat", group.trim_end_matches('/'));
    let text = root.text(&path)?;
    let of = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    };
    let (Some(periods), Some(throttled)) = (of("nr_periods"), of("nr_throttled")) else {
        return Err(Absent(format!("{path}: no quota is counted")));
    };
    if throttled == 0 {
        return Ok(vec![]);
    }
    Ok(vec![finding(
        format!("the CPU quota of {group} was used up in {throttled} of {periods} periods"),
        "a larger quota (cpu.max), or none",
    )])
}
