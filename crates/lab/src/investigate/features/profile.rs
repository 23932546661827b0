//! Features from where the CPU clock found the CPUs: the share of what was met at work in some parts of the kernel.

use super::{Seen, distance};
use crate::record::{Probes, StackRecord};

/// A part of the kernel: the feature, and functions one of which is on each stack of it.
const PARTS: &[(&str, &[&str])] = &[
    (
        "packet_filter_time_share",
        &["nft_do_chain", "ipt_do_table", "ip6t_do_table", "nf_conntrack_in", "ebt_do_table"],
    ),
    (
        "address_space_time_share",
        &[
            "__x64_sys_munmap",
            "__x64_sys_mmap",
            "__arm64_sys_munmap",
            "exc_page_fault",
            "do_page_fault",
            "do_madvise",
        ],
    ),
    (
        "lock_spin_time_share",
        &[
            "native_queued_spin_lock_slowpath",
            "queued_spin_lock_slowpath",
            "__pv_queued_spin_lock_slowpath",
            "queued_read_lock_slowpath",
            "queued_write_lock_slowpath",
            "osq_lock",
        ],
    ),
    ("segmentation_time_share", &["skb_segment", "skb_mac_gso_segment", "tcp_gso_segment"]),
    (
        "writeback_time_share",
        &["wb_workfn", "vfs_fsync_range", "blk_mq_run_hw_queue", "generic_perform_write"],
    ),
];

/// Samples of CPUs at work below which nothing is said.
const SAMPLES_LEAST: u64 = 20;

pub(super) fn profile(seen: &mut Seen, probes: &Probes) {
    let Some(kernel) = &probes.kernel else { return };
    let count = |is_in: &dyn Fn(&StackRecord) -> bool| -> u64 {
        kernel
            .profile
            .iter()
            .filter(|one| !is_idle(one) && is_in(one))
            .map(StackRecord::count)
            .sum()
    };
    let all = count(&|_| true);
    if all < SAMPLES_LEAST {
        return;
    }
    for (feature, functions) in PARTS {
        let is_in = |one: &StackRecord| {
            let named = |name: &String| functions.contains(&name.trim_end_matches("_[k]"));
            one.stack.iter().any(named)
        };
        seen.put(*feature, count(&is_in) as f64 / all as f64, distance::MACHINE);
    }
}

/// An idle CPU: nothing but the idle loop, and no interrupt in it.
fn is_idle(one: &StackRecord) -> bool {
    let last = one.stack.last().map_or("", |name| name.trim_end_matches("_[k]"));
    one.stack.first().is_some_and(|name| name == "idle")
        && ["halt", "idle", "mwait", "wfi", "do_nothing"].iter().any(|part| last.contains(part))
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use crate::record::{KernelActivity, RunRecord, StackRecord};

    #[test]
    fn parts_of_the_kernel_have_their_share_of_the_work() {
        let stack = |names: &str, count| StackRecord {
            stack: names.split(' ').map(str::to_owned).collect(),
            by_cpu: vec![count, 0],
        };
        let mut run = RunRecord::new("x");
        run.probes.times_s = vec![0.0, 2.0];
        run.probes.kernel = Some(KernelActivity {
            cpus: vec![0, 1],
            profile: vec![
                stack("idle do_idle_[k] pv_native_safe_halt_[k]", 500),
                stack("iperf3 main nft_do_chain_[k] nft_payload_eval_[k]", 30),
                stack("idle handle_softirqs_[k] nft_do_chain_[k]", 20),
                stack("iperf3 main", 50),
            ],
            ..KernelActivity::default()
        });
        let of = |run: &RunRecord, name: &str| {
            let found = features(&[run]);
            found.iter().find(|one| one.name == name).and_then(|one| one.values[0])
        };
        assert_eq!(of(&run, "packet_filter_time_share"), Some(0.5));
        assert_eq!(of(&run, "lock_spin_time_share"), Some(0.0));
        run.probes.kernel.as_mut().unwrap().profile.truncate(1);
        assert_eq!(of(&run, "lock_spin_time_share"), None, "too few samples of work");
    }
}
