//! Kernel, processors, memory, clock, settings and limits of the machine.

use std::collections::BTreeMap;
use std::fs;

use millstream_foreign::shown;
use millstream_record::Environment;

use super::{text, value_of};

/// Settings of the kernel that change network results.
const SYSCTLS: &[&str] = &[
    "kernel.randomize_va_space",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.skb_defer_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "vm.swappiness",
];

/// Returns the names of the settings that a network namespace may have of its own.
pub fn network_settings() -> impl Iterator<Item = &'static str> {
    SYSCTLS.iter().copied().filter(|name| name.starts_with("net."))
}

pub(super) fn capture(env: &mut Environment) {
    kernel(env);
    processors(env);
    memory(env);
    for name in SYSCTLS {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let value = text(&path).map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "));
        env.record(&format!("sysctl.{name}"), value);
    }
    cgroup(env);
}

fn kernel(env: &mut Environment) {
    env.record("kernel.host_name", text("/proc/sys/kernel/hostname"));
    env.record("kernel.release", text("/proc/sys/kernel/osrelease"));
    env.record("kernel.version", text("/proc/sys/kernel/version"));
    env.record("kernel.command_line", text("/proc/cmdline"));
    env.record("kernel.boot_id", text("/proc/sys/kernel/random/boot_id"));
    env.record(
        "kernel.clock_source",
        text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    );
    env.record("kernel.lockdown", text("/sys/kernel/security/lockdown").map(|all| chosen(&all)));
    env.record("kernel.mitigations", mitigations());
    env.record("kernel.uptime_s", text("/proc/uptime").map(|all| first_word(&all)));
    env.record("kernel.load_average", text("/proc/loadavg"));
}

/// Weaknesses that the processor has, with what the kernel does about each; those that it has not
/// are left out.
fn mitigations() -> Result<String, String> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let entries = fs::read_dir(folder).map_err(|error| format!("{folder}: {error}"))?;
    let mut found = BTreeMap::new();
    for entry in entries.flatten() {
        let name = shown(entry.file_name().as_encoded_bytes());
        match millstream_foreign::read(entry.path()) {
            Ok(state) if state.trim() != "Not affected" => {
                drop(found.insert(name, state.trim().to_owned()))
            }
            _ => {}
        }
    }
    let all: Vec<String> =
        found.into_iter().map(|(name, state)| format!("{name}: {state}")).collect();
    Ok(if all.is_empty() { "none needed".into() } else { all.join("; ") })
}

fn processors(env: &mut Environment) {
    env.record("cpu.online", text("/sys/devices/system/cpu/online"));
    env.record(
        "cpu.isolated",
        text("/sys/devices/system/cpu/isolated").map(|list| none_if_empty(&list)),
    );
    match text("/proc/cpuinfo") {
        Ok(info) => {
            let count = info.lines().filter(|line| line.starts_with("processor")).count();
            env.set("cpu.count", count.to_string());
            for (name, key) in [
                ("cpu.model", "model name"),
                ("cpu.microcode", "microcode"),
                ("cpu.frequency_mhz", "cpu MHz"),
                ("cpu.cache", "cache size"),
            ] {
                let value = value_of(&info, key).map(str::to_owned);
                env.record(name, value.ok_or_else(|| format!("/proc/cpuinfo has no line {key:?}")));
            }
            let flags = value_of(&info, "flags").unwrap_or_default();
            let virtual_machine = flags.split_whitespace().any(|flag| flag == "hypervisor");
            env.set("cpu.virtual_machine", if virtual_machine { "yes" } else { "no" });
        }
        Err(reason) => env.record::<String>("cpu.model", Err(reason)),
    }
    let cpu0 = "/sys/devices/system/cpu/cpu0";
    env.record("cpu.governor", text(&format!("{cpu0}/cpufreq/scaling_governor")));
    env.record("cpu.boost", text("/sys/devices/system/cpu/cpufreq/boost"));
    env.record("cpu.idle_driver", text("/sys/devices/system/cpu/cpuidle/current_driver"));
    env.record("cpu.idle_governor", text("/sys/devices/system/cpu/cpuidle/current_governor"));
    env.record("cpu.smt", text("/sys/devices/system/cpu/smt/control"));
    env.record("cpu.thread_siblings", text(&format!("{cpu0}/topology/thread_siblings_list")));
    env.record("cpu.steal_s", steal());
}

/// CPU-seconds since boot that the hypervisor gave to others although this machine wanted them.
fn steal() -> Result<String, String> {
    let stat = text("/proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Option<f64> = line.split_whitespace().nth(8).and_then(|word| word.parse().ok());
    ticks
        .map(|ticks| format!("{}", ticks / 100.0))
        .ok_or_else(|| "/proc/stat has no such column".into())
}

fn memory(env: &mut Environment) {
    match text("/proc/meminfo") {
        Ok(info) => {
            for (name, key) in [
                ("memory.total_bytes", "MemTotal"),
                ("memory.available_bytes", "MemAvailable"),
                ("memory.dirty_bytes", "Dirty"),
                ("memory.huge_pages_bytes", "Hugetlb"),
            ] {
                let bytes =
                    value_of(&info, key).and_then(|value| first_word(value).parse::<u64>().ok());
                let bytes = bytes.map(|kib| (kib * 1024).to_string());
                env.record(name, bytes.ok_or_else(|| format!("/proc/meminfo has no line {key}")));
            }
        }
        Err(reason) => env.record::<String>("memory.total_bytes", Err(reason)),
    }
    let thp = "/sys/kernel/mm/transparent_hugepage";
    env.record(
        "memory.transparent_huge_pages",
        text(&format!("{thp}/enabled")).map(|all| chosen(&all)),
    );
    env.record("memory.numa_nodes", text("/sys/devices/system/node/online"));
}

/// Limits of the control group this process is in, of version 2 or 1.
fn cgroup(env: &mut Environment) {
    let own = match text("/proc/self/cgroup") {
        Ok(own) => own,
        Err(reason) => return env.record::<String>("cgroup.path", Err(reason)),
    };
    env.set("cgroup.path", own.lines().collect::<Vec<_>>().join(" "));
    let path = |controller: &str| cgroup_path(&own, controller);
    for (fact, controller, v2, v1) in [
        ("cgroup.cpu_limit", "cpu", "cpu.max", "cpu.cfs_quota_us"),
        ("cgroup.cpus", "cpuset", "cpuset.cpus.effective", "cpuset.cpus"),
        ("cgroup.memory_limit_bytes", "memory", "memory.max", "memory.limit_in_bytes"),
    ] {
        let new = text(&format!("/sys/fs/cgroup{}/{v2}", path("").unwrap_or("/")));
        let old = || {
            text(&format!("/sys/fs/cgroup/{controller}{}/{v1}", path(controller).unwrap_or("/")))
        };
        env.record(fact, new.or_else(|_| old()).map(|value| limit(&value)));
    }
}

/// A limit as it is written, `none` for the three ways to write that there is none.
fn limit(value: &str) -> String {
    let unlimited = value == "-1" || value == "max" || value.starts_with("max ");
    // Version 1 writes the largest number of whole pages.
    let unlimited = unlimited || value.parse::<u64>().is_ok_and(|bytes| bytes >= 1 << 62);
    if unlimited { "none".into() } else { value.into() }
}

/// Path of the group for a controller in text like `4:memory:/a`; the empty name is version 2.
fn cgroup_path<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|one| one == controller).then_some(path.trim_end_matches('/'))
    })
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

fn none_if_empty(text: &str) -> String {
    if text.is_empty() { "none".into() } else { text.into() }
}

/// The choice in brackets: `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(choice, _)| choice).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("none"), "none");
        assert_eq!(chosen("odd [text"), "odd [text");
    }

    #[test]
    fn no_limit_is_said_plainly() {
        for value in ["-1", "max", "max 100000", "9223372036854771712"] {
            assert_eq!(limit(value), "none");
        }
        for value in ["50000 100000", "1073741824", "0-1"] {
            assert_eq!(limit(value), value);
        }
    }

    #[test]
    fn control_groups_of_both_versions_are_found() {
        let own = "4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/d\n";
        assert_eq!(cgroup_path(own, "memory"), Some("/a/b"));
        assert_eq!(cgroup_path(own, "cpuacct"), Some("/c"));
        assert_eq!(cgroup_path(own, ""), Some("/d"));
        assert_eq!(cgroup_path("0::/\n", ""), Some(""));
        assert_eq!(cgroup_path("odd", "memory"), None);
    }
}
