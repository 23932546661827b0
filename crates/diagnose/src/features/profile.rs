//! Features from where the CPU clock found the CPUs: the share of what was met at work for the ends
//! in some parts of the kernel and of programs.

use std::collections::{BTreeMap, BTreeSet};

use millstream_record::{Probes, RUNNER, StackRecord};

use super::{Seen, distance};

/// Functions of those that carry packets of others: whoever is in them for a good part of its time
/// is on the path.
const CARRYING: &[&str] = &[
    "tun_get_user",
    "tun_do_read",
    "tun_chr_write_iter",
    "tun_chr_read_iter",
    "tun_sendmsg",
    "tun_recvmsg",
    "tap_get_user",
    "tap_do_read",
    "tap_sendmsg",
    "tap_recvmsg",
    "packet_sendmsg",
    "packet_recvmsg",
    "xsk_sendmsg",
    "xsk_recvmsg",
];

/// Functions that take packets in, in the time of whoever was on the CPU.
const RECEIVING: &[&str] = &["net_rx_action", "__netif_receive_skb", "__netif_receive_skb_core"];

/// Functions in which a disk is written.
const WRITING: &[&str] = &[
    "wb_workfn",
    "vfs_fsync_range",
    "__x64_sys_fsync",
    "blk_mq_run_hw_queue",
    "blk_mq_submit_bio",
    "generic_perform_write",
    "iomap_file_buffered_write",
    "do_writepages",
];

/// A part of the kernel or of programs: the feature, and functions one of which is on each stack of
/// it, without the modules that Rust puts before their names.
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
        "allocator_time_share",
        &[
            "malloc",
            "calloc",
            "realloc",
            "free",
            "cfree",
            "__libc_malloc",
            "__libc_calloc",
            "__libc_free",
            "_int_malloc",
            "_int_free",
            "_int_free_chunk",
            "_int_free_merge_chunk",
            "malloc_consolidate",
            "unlink_chunk",
            "__default_morecore",
            "malloc_trim",
        ],
    ),
    (
        "program_lock_time_share",
        &[
            "lock_contended",
            "pthread_mutex_lock",
            "__pthread_mutex_lock",
            "pthread_rwlock_rdlock",
            "pthread_rwlock_wrlock",
            "__lll_lock_wait",
            "futex_wait",
            "futex_wake",
            "__x64_sys_futex",
            "__arm64_sys_futex",
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
    // Copies for packet sockets.
    (
        "capture_time_share",
        &["packet_rcv", "tpacket_rcv", "packet_rcv_fanout", "dev_queue_xmit_nit"],
    ),
    (
        CLASSIFYING,
        &[
            "tcf_classify",
            "tc_run",
            "cls_bpf_classify",
            "do_xdp_generic",
            "bpf_prog_run_generic_xdp",
            "__cgroup_bpf_run_filter_skb",
        ],
    ),
    (INTERRUPTED, &["irq_exit_rcu", "__irq_exit_rcu", "irq_exit"]),
    ("system_call_filter_time_share", &["__secure_computing", "__seccomp_filter"]),
    // Of a connect().
    ("port_search_time_share", &["__inet_hash_connect", "inet_hash_connect"]),
    ("segmentation_time_share", &["skb_segment", "skb_mac_gso_segment", "tcp_gso_segment"]),
    ("writing_time_share", WRITING),
    // Work that is done once for each packet, whatever lies in it: copying is not among it.
    (
        "per_packet_time_share",
        &["__dev_queue_xmit", "__netif_receive_skb", "__netif_receive_skb_core", "net_rx_action"],
    ),
];

/// The feature of spinning for a lock, and functions in which a spin is for no lock that threads of
/// a load share: for the queue of a CPU, or of a reader for its own socket, which is still held by
/// the delivery that woke it.
const SPINNING: &str = "lock_spin_time_share";
const HANDED_OVER: &[&str] = &[
    "sk_wait_data",
    "raw_spin_rq_lock_nested",
    "try_to_wake_up",
    "sched_ttwu_pending",
    "__schedule",
    "sched_balance_rq",
    "load_balance",
];
/// The feature of packets that interrupts take in, in the time of the ends' own threads.
const INTERRUPTED: &str = "interrupted_time_share";
/// The feature of writing to a disk, which others do.
const OF_ANYBODY: &str = "writing_time_share";

/// The feature of classifiers and BPF programs that look at packets.
const CLASSIFYING: &str = "classifier_time_share";

/// Samples of CPUs at work below which nothing is said.
const SAMPLES_LEAST: u64 = 20;
/// Share of lost samples above which nothing is said: the stacks of a run's beginning have filled
/// the map, and stand for that alone.
const LOST_MOST: f64 = 0.1;

pub(super) fn profile(seen: &mut Seen, probes: &Probes) {
    let Some(kernel) = &probes.kernel else { return };
    let ends = names_of_ends(probes);
    let for_ends = |whose: Whose| ends.is_empty() || matches!(whose, Whose::Ends | Whose::Path);
    let at_work: Vec<(&StackRecord, bool)> =
        (kernel.profile.iter().zip(roles(&kernel.profile, &ends)))
            .filter_map(|(one, whose)| Some((one, for_ends(whose?))))
            .collect();
    let count = |of_anybody: bool, is_in: &dyn Fn(&StackRecord) -> bool| -> u64 {
        let those =
            at_work.iter().filter(|(one, for_ends)| (of_anybody || *for_ends) && is_in(one));
        those.map(|(one, _)| one.count()).sum()
    };
    if !is_whole(&kernel.profile) {
        return;
    }
    for (feature, functions) in PARTS {
        let of_anybody = *feature == OF_ANYBODY;
        let all = count(of_anybody, &|_| true);
        let part = count(of_anybody, &|one| {
            let is_of_it = match *feature {
                SPINNING => !is_in(one, HANDED_OVER),
                INTERRUPTED => is_in(one, RECEIVING) && ends.contains(&one.process()),
                _ => true,
            };
            let calls_a_program = *feature == CLASSIFYING && is_in_hook(one);
            is_of_it && (is_in(one, functions) || calls_a_program)
        });
        if all >= SAMPLES_LEAST {
            seen.put(*feature, part as f64 / all as f64, distance::MACHINE);
        }
    }
}

/// Returns the kernel's names of the processes of the ends, each name once.
pub(super) fn names_of_ends(probes: &Probes) -> Vec<&str> {
    let workers = probes.workers.iter().flatten().filter(|(role, _)| *role != RUNNER);
    let names: BTreeSet<&str> = workers.map(|(_, one)| one.name.as_str()).collect();
    names.into_iter().collect()
}

/// Returns true when so few samples were lost that the others stand for the whole run.
pub(super) fn is_whole(profile: &[StackRecord]) -> bool {
    let count = |is_in: &dyn Fn(&&StackRecord) -> bool| -> u64 {
        profile.iter().filter(is_in).map(StackRecord::count).sum()
    };
    count(&|one| one.is_lost()) as f64 <= LOST_MOST * count(&|_| true) as f64
}

/// Returns true when one of these functions is on a stack, or a function that lies near it in its
/// library.
fn is_in(one: &StackRecord, functions: &[&str]) -> bool {
    let named = |name: &String| {
        let name = name.trim_end_matches("_[k]");
        let name = name.strip_prefix("[near ").map_or(name, |name| name.trim_end_matches(']'));
        functions.contains(&name.rsplit("::").next().unwrap_or(name))
    };
    one.stack.iter().any(named)
}

/// Returns true when a BPF program is on a stack that packets come by: one of tcx is called by what
/// takes packets in or sends them, one of XDP by its driver. The kernel's compiler puts a suffix
/// behind the names of some.
fn is_in_hook(one: &StackRecord) -> bool {
    const CALLERS: [&str; 2] = ["__netif_receive_skb_core", "__dev_queue_xmit"];
    let calls =
        |name: &str| name.contains("xdp") || CALLERS.iter().any(|one| name.starts_with(one));
    one.stack.windows(2).any(|pair| pair[1].starts_with("bpf_prog_") && calls(&pair[0]))
}

/// The role of the process that a stack belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Ends,
    /// A process that carries packets, known by the functions in which it is found. A program with
    /// sockets of its own is none.
    Path,
    Writer,
    Others,
}

/// Share of a process's samples above which all of it is what they show.
const ROLE_LEAST: f64 = 0.1;

/// Returns the role of each stack of a profile; `None` where the CPU was idle, or the sample is
/// lost.
pub(super) fn roles(profile: &[StackRecord], ends: &[&str]) -> Vec<Option<Whose>> {
    let mut of_process: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for one in profile.iter().filter(|one| !one.is_idle() && !one.is_lost()) {
        let sums = of_process.entry(one.process()).or_default();
        let count = one.count();
        sums[0] += count;
        sums[1] += if is_in(one, CARRYING) { count } else { 0 };
        sums[2] += if is_in(one, WRITING) { count } else { 0 };
    }
    let whose = |one: &StackRecord| -> Whose {
        let name = one.process();
        let [all, carrying, writing] = of_process[name].map(|count| count as f64);
        if ends.contains(&name) {
            Whose::Ends
        } else if carrying >= ROLE_LEAST * all || is_in(one, RECEIVING) {
            Whose::Path
        } else if writing >= ROLE_LEAST * all || is_in(one, WRITING) {
            Whose::Writer
        } else {
            Whose::Others
        }
    };
    profile.iter().map(|one| (!one.is_idle() && !one.is_lost()).then(|| whose(one))).collect()
}

/// Share of each CPU's samples that each role had, by place of the CPU; nothing of a CPU without
/// samples, or where too many are lost.
pub(super) fn by_role(
    profile: &[StackRecord],
    ends: &[&str],
    cpus: usize,
) -> Vec<Option<[(Whose, f64); 4]>> {
    if !is_whole(profile) {
        return vec![None; cpus];
    }
    let all_roles = [Whose::Ends, Whose::Path, Whose::Writer, Whose::Others];
    let mut all = vec![0; cpus];
    let mut sums = vec![[0; 4]; cpus];
    for (one, role) in profile.iter().zip(roles(profile, ends)).filter(|(one, _)| !one.is_lost()) {
        for (place, &count) in one.by_cpu.iter().enumerate().take(cpus) {
            all[place] += count;
            if let Some(at) = role.and_then(|role| all_roles.iter().position(|one| *one == role)) {
                sums[place][at] += count;
            }
        }
    }
    let share = |(all, sums): (&u64, &[u64; 4])| {
        let share = |at: usize| (all_roles[at], sums[at] as f64 / *all as f64);
        (*all > 0).then(|| std::array::from_fn(share))
    };
    all.iter().zip(&sums).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use millstream_record::{KernelActivity, RunRecord, StackRecord, WorkerActivity};

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
        let activity = run.probes.kernel.as_mut().unwrap();
        activity.profile.push(stack("p std::sys::sync::mutex::futex::Mutex::lock_contended", 100));
        assert_eq!(of(&run, "program_lock_time_share"), Some(0.5));
        assert_eq!(of(&run, "allocator_time_share"), Some(0.0));
        // A program of tcx, and one of XDP; a filter of system calls is on no packet's way.
        let hooks = [
            "idle __netif_receive_skb_core.constprop.0_[k] bpf_prog_1_tcx_[k]",
            "idle veth_xdp_rcv_skb_[k] bpf_prog_2_drop_[k] bpf_map_lookup_elem_[k]",
            "p __seccomp_filter_[k] bpf_prog_3_[k]",
        ];
        let mut with = run.clone();
        with.probes.kernel.as_mut().unwrap().profile.extend(hooks.map(|one| stack(one, 25)));
        assert_eq!(of(&with, "classifier_time_share"), Some(50.0 / 275.0));
        // Spins for the queue of a CPU, or for one's own socket, are nobody's in particular, and
        // others' work is not the ends'.
        let activity = run.probes.kernel.as_mut().unwrap();
        activity.profile.extend([
            stack("p tcp_sendmsg_[k] native_queued_spin_lock_slowpath_[k]", 25),
            stack("p try_to_wake_up_[k] native_queued_spin_lock_slowpath_[k]", 25),
            stack("p sk_wait_data_[k] native_queued_spin_lock_slowpath_[k]", 25),
            stack("cc1 main", 900),
        ]);
        let worker = WorkerActivity { name: "p".to_owned(), ..WorkerActivity::default() };
        let before = run.probes.workers.replace([("client".to_owned(), worker)].into());
        assert_eq!(of(&run, "lock_spin_time_share"), Some(25.0 / 175.0));
        assert_eq!(of(&run, "program_lock_time_share"), Some(100.0 / 175.0));
        // Packets that an interrupt takes in are the end's loss, not those of its system call.
        let activity = run.probes.kernel.as_mut().unwrap();
        activity.profile.extend([
            stack("p main irq_exit_rcu_[k] net_rx_action_[k]", 30),
            stack("p tcp_sendmsg_[k] do_softirq_[k] net_rx_action_[k]", 20),
            stack("idle irq_exit_rcu_[k] net_rx_action_[k]", 50),
        ]);
        assert_eq!(of(&run, "interrupted_time_share"), Some(30.0 / 275.0));
        run.probes.workers = before;
        run.probes.kernel.as_mut().unwrap().profile.truncate(5);
        let lost = |run: &mut RunRecord, count| {
            run.probes.kernel.as_mut().unwrap().profile.push(StackRecord::lost(vec![0, count]));
        };
        lost(&mut run, 70);
        assert_eq!(of(&run, "program_lock_time_share"), Some(0.5), "a tenth of 770");
        lost(&mut run, 10);
        assert_eq!(of(&run, "program_lock_time_share"), None, "more is lost");
        run.probes.kernel.as_mut().unwrap().profile.truncate(1);
        assert_eq!(of(&run, "lock_spin_time_share"), None, "too few samples of work");
    }
}
