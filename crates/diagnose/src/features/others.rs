//! Shares of the ends' CPUs that other processes had. Processes that carry the ends' packets or
//! write a disk are told apart from those that have nothing to do with them.

use std::collections::BTreeMap;

use millstream_record::{CpuSeries, Probes};

use super::profile::{Whose, by_role, names_of_ends};
use super::{Seen, distance, received};

/// Share of an end's time, or of the packets, from which on a CPU has to do with the load.
const OWN_LEAST: f64 = 0.05;

pub(super) fn others(seen: &mut Seen, probes: &Probes) {
    let Some(by_cpu) = by_cpu(probes, seen.span) else { return };
    let Some(known) = &probes.ends else { return };
    let at_ends = |cpu: u32| -> f64 {
        known.shares.values().map(|shares| shares.get(&cpu).copied().unwrap_or(0.0)).sum()
    };
    let weighted = |of: &dyn Fn(u32) -> f64, weight: &dyn Fn(u32) -> f64| -> Option<f64> {
        let all: f64 = by_cpu.keys().map(|&cpu| weight(cpu)).sum();
        let sum: f64 = by_cpu.keys().map(|&cpu| weight(cpu) * of(cpu)).sum();
        (all > 0.0).then(|| sum / all)
    };
    let others = |cpu: u32| by_cpu[&cpu];
    // The CPUs that take packets in, each by how often.
    let received: BTreeMap<u32, f64> = received(probes).into_iter().flatten().collect();
    let receives = |cpu: u32| received.get(&cpu).copied().unwrap_or(0.0);
    let all_received: f64 = received.values().sum();
    // One that others fill elsewhere says nothing of the load.
    let is_own = |cpu: u32| {
        at_ends(cpu) >= OWN_LEAST || all_received > 0.0 && receives(cpu) / all_received >= OWN_LEAST
    };
    let busy = probes.cpu.iter().flat_map(|all| &all.cpus).filter(|one| is_own(one.cpu));
    if let Some(busiest) = busy.map(|one| busy_s(one, probes)).reduce(f64::max) {
        let share = (busiest / seen.span).min(1.0);
        seen.put("busiest_own_cpu_share", share, distance::CPU_TIME);
    }
    if let Some(share) = weighted(&others, &at_ends) {
        seen.put("others_on_ends_cpu_share", share, distance::PLACEMENT);
    }
    let roles = roles(probes);
    let had = |cpu: u32, whose: Whose| -> f64 {
        let of_cpu = roles.get(&cpu).into_iter().flatten();
        of_cpu.filter(|(one, _)| *one == whose).map(|(_, share)| share).sum()
    };
    let unrelated =
        |cpu: u32| (others(cpu) - had(cpu, Whose::Path) - had(cpu, Whose::Writer)).max(0.0);
    if let Some(share) = weighted(&unrelated, &at_ends) {
        seen.put("unrelated_on_ends_cpu_share", share, distance::PLACEMENT);
    }
    if !roles.is_empty() {
        for (whose, name) in
            [(Whose::Path, "path_on_ends_cpu_share"), (Whose::Writer, "writers_on_ends_cpu_share")]
        {
            if let Some(share) = weighted(&|cpu| had(cpu, whose), &at_ends) {
                seen.put(name, share, distance::PLACEMENT);
            }
        }
    }
    if let Some(share) = weighted(&unrelated, &receives) {
        seen.put("unrelated_on_receiving_cpu_share", share, distance::PLACEMENT);
    }
}

/// Returns the seconds for which a CPU worked.
fn busy_s(series: &CpuSeries, probes: &Probes) -> f64 {
    (0..probes.times_s.len().saturating_sub(1)).map(|at| series.busy_s(at)).sum()
}

/// Share of each CPU that others than the ends had, with its soft interrupts.
fn by_cpu(probes: &Probes, span: f64) -> Option<BTreeMap<u32, f64>> {
    let (cpus, known, workers) =
        (probes.cpu.as_ref()?, probes.ends.as_ref()?, probes.workers.as_ref()?);
    // A command's processes are watched one by one: `client`, `client#2`.
    let used = |end: &String| -> f64 {
        let of_end = |role: &String| role.split('#').next() == Some(end.as_str());
        workers.iter().filter(|(role, _)| of_end(role)).map(|(_, one)| one.usr_s + one.sys_s).sum()
    };
    let of_cpu = |series: &CpuSeries| {
        let on = |shares: &BTreeMap<u32, f64>| shares.get(&series.cpu).copied().unwrap_or(0.0);
        let ends: f64 = known.shares.iter().map(|(end, shares)| used(end) * on(shares)).sum();
        (series.cpu, ((busy_s(series, probes) - ends) / span).clamp(0.0, 1.0))
    };
    Some(cpus.cpus.iter().map(of_cpu).collect())
}

/// Returns the share of each CPU that each role had, by the samples of the CPU clock; empty without
/// such samples.
fn roles(probes: &Probes) -> BTreeMap<u32, [(Whose, f64); 4]> {
    let Some(kernel) = &probes.kernel else { return BTreeMap::new() };
    let found = by_role(&kernel.profile, &names_of_ends(probes), kernel.cpus.len());
    kernel.cpus.iter().zip(found).filter_map(|(cpu, shares)| Some((*cpu, shares?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{features, received_by};
    use millstream_record::{
        CpuActivity, CpuSeries, EndsOnCpus, KernelActivity, Probes, RunRecord, StackRecord,
        WorkerActivity,
    };

    /// A CPU that works for 2 s, of which both ends have half.
    fn run() -> RunRecord {
        let mut run = RunRecord::new("x");
        let worker = |name: &str| WorkerActivity {
            name: name.to_owned(),
            sys_s: 0.5,
            ..WorkerActivity::default()
        };
        let cpu = CpuSeries { cpu: 0, usr_s: vec![1.0, 1.0], ..CpuSeries::default() };
        let shares = ["client", "server"].map(|end| (end.to_owned(), [(0, 1.0)].into()));
        run.probes = Probes {
            times_s: vec![0.0, 1.0, 2.0],
            cpu: Some(CpuActivity { resolution_s: 0.01, cpus: vec![cpu] }),
            workers: Some(
                [("client".to_owned(), worker("iperf3")), ("server".to_owned(), worker("iperf3"))]
                    .into(),
            ),
            ends: Some(EndsOnCpus { shares: shares.into(), ..EndsOnCpus::default() }),
            tables: received_by(&[9.0]),
            ..Probes::default()
        };
        run
    }

    fn of(run: &RunRecord, name: &str) -> Option<f64> {
        let found = features(&[run]);
        let value = found.iter().find(|one| one.name == name)?.values[0];
        value.map(|value| (value * 1e6).round() / 1e6)
    }

    #[test]
    fn what_others_had_is_what_the_ends_did_not_use() {
        let mut run = run();
        assert_eq!(of(&run, "others_on_ends_cpu_share"), Some(0.5));
        // Nobody knows who they were without a profile.
        assert_eq!(of(&run, "unrelated_on_ends_cpu_share"), Some(0.5));
        assert_eq!(of(&run, "writers_on_ends_cpu_share"), None);
        // Another CPU, which somebody else fills.
        let far = CpuSeries { cpu: 1, usr_s: vec![1.0, 1.0], ..CpuSeries::default() };
        run.probes.cpu.as_mut().unwrap().cpus.push(far);
        run.probes.cpu.as_mut().unwrap().cpus[0].usr_s = vec![1.0, 0.5];
        assert_eq!(of(&run, "busiest_own_cpu_share"), Some(0.75));
        assert_eq!(of(&run, "busiest_cpu_share"), Some(1.0));
        run.probes.ends = None;
        assert_eq!(of(&run, "others_on_ends_cpu_share"), None);
    }

    #[test]
    fn who_carries_packets_or_writes_a_disk_is_told_from_who_has_nothing_to_do_with_them() {
        let stack = |names: &str, count| StackRecord {
            stack: names.split(' ').map(str::to_owned).collect(),
            by_cpu: vec![count],
        };
        let mut run = run();
        run.probes.kernel = Some(KernelActivity {
            cpus: vec![0],
            profile: vec![
                stack("iperf3 tcp_sendmsg_[k]", 50),
                stack("millstream tun_get_user_[k]", 4),
                stack("millstream forward", 16),
                stack("ksoftirqd/0 net_rx_action_[k]", 5),
                stack("dd vfs_fsync_range_[k]", 5),
                stack("sh loop", 10),
                // With sockets of its own: it competes, and carries nothing.
                stack("other inet_sendmsg_[k] __dev_queue_xmit_[k]", 5),
                stack("sh net_rx_action_[k]", 1),
                stack("idle do_idle_[k] pv_native_safe_halt_[k]", 4),
            ],
            ..KernelActivity::default()
        });
        assert_eq!(of(&run, "path_on_ends_cpu_share"), Some(0.26));
        assert_eq!(of(&run, "writers_on_ends_cpu_share"), Some(0.05));
        assert_eq!(of(&run, "unrelated_on_ends_cpu_share"), Some(0.19));
        assert_eq!(of(&run, "unrelated_on_receiving_cpu_share"), Some(0.19));
        assert_eq!(of(&run, "others_on_ends_cpu_share"), Some(0.5));
    }
}
