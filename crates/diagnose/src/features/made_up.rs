//! Runs that are made up for tests, of several crates.

use millstream_record::{KernelActivity, Probes, RunRecord, StackRecord, WorkerActivity, keys};

/// A run of a second on two CPUs. Of `stacks`, the process first and then the outermost function,
/// each was met so often, a hundred times in a second of CPU time; those of the process `end` are
/// the end's.
pub fn run(number: usize, packets: f64, stacks: &[(&str, u64)]) -> RunRecord {
    let of_end = stacks.iter().filter(|(stack, _)| stack.starts_with("end "));
    let usr_s = of_end.map(|(_, count)| *count as f64 / 100.0).sum();
    let worker = WorkerActivity { name: "end".to_owned(), usr_s, ..WorkerActivity::default() };
    let record = |(stack, count): &(&str, u64)| StackRecord {
        stack: stack.split(' ').map(str::to_owned).collect(),
        by_cpu: vec![*count, 0],
    };
    let mut run = RunRecord::new(format!("r{number}"));
    run.workload = "udp_pps".to_owned();
    run.stack = "kernel".to_owned();
    run.window.end_s = 1.0;
    run.results.insert(keys::PACKETS.to_owned(), packets);
    run.results.insert(keys::TRANSACTION_COUNT.to_owned(), packets);
    run.probes = Probes {
        times_s: vec![0.0, 1.0],
        workers: Some([("near".to_owned(), worker)].into()),
        kernel: Some(KernelActivity {
            cpus: vec![0, 1],
            profile: stacks.iter().map(record).collect(),
            ..KernelActivity::default()
        }),
        ..Probes::default()
    };
    run
}

/// Eight runs of one thread and eight of two, which `many` says: what they sent, and how often a
/// function of the lock was met.
pub fn set(function: &str, many: (f64, u64)) -> Vec<(u32, RunRecord)> {
    let (shared, other) = (format!("end main send {function}"), "other main work");
    let one = |at: usize| {
        let (threads, packets, met) = match at % 2 {
            0 => (1, 100_000.0, 5),
            _ => (2, many.0, many.1),
        };
        let (at_all, in_send) = (100 * u64::from(threads), 30 * u64::from(threads));
        let scatter = (at / 2 % 3) as u64;
        let stacks = [
            (shared.as_str(), met + scatter),
            ("end main send", in_send),
            ("end main send copy_[k]", at_all - in_send - met - scatter),
            ("ksoftirqd/0 net_rx_action_[k] deliver_[k]", 8 * u64::from(threads)),
            (other, 70),
        ];
        (threads, run(at, packets * (1.0 + 0.003 * scatter as f64), &stacks))
    };
    (0..16).map(one).collect()
}
