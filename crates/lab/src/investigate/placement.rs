//! The CPUs on which the threads of two commands run, read at the same moments.
//!
//! Two ends that move share a CPU or do not; how often each of them is on which says nothing of
//! that. So the threads of both are read at the same moments, and only those count that have run
//! since the moment before.

use std::collections::BTreeMap;
use std::fs;

use millstream_record::EndsOnCpus;

/// Threads that are looked at; of more the first ones stand for all.
const THREADS_LIMIT: usize = 64;

/// The samples of both ends so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    threads: BTreeMap<(u32, u32), Thread>,
    ends: BTreeMap<String, BTreeMap<u32, f64>>,
    moves: u64,
    /// Moments in which both ends had run, and the share of them on one CPU.
    both: f64,
    same: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Thread {
    cpu: u32,
    /// Context switches and ticks: more of them, and it has run.
    ran: u64,
}

impl Watch {
    /// Looks once at the threads of each end: its name and its processes.
    pub(super) fn look(&mut self, ends: &[(&str, &[u32])]) {
        let mut now: Vec<BTreeMap<u32, f64>> = Vec::new();
        for (name, pids) in ends {
            let cpus: Vec<u32> = pids.iter().flat_map(|pid| self.active(*pid)).collect();
            let share = 1.0 / cpus.len().max(1) as f64;
            let mut on = BTreeMap::new();
            cpus.iter().for_each(|cpu| *on.entry(*cpu).or_default() += share);
            let known = self.ends.entry((*name).to_owned()).or_default();
            on.iter().for_each(|(cpu, share)| *known.entry(*cpu).or_default() += share);
            now.push(on);
        }
        if let [one, other] = now.as_slice()
            && !one.is_empty()
            && !other.is_empty()
        {
            self.both += 1.0;
            let same = |(cpu, share): (&u32, &f64)| share * other.get(cpu).copied().unwrap_or(0.0);
            self.same += one.iter().map(same).sum::<f64>();
        }
    }

    /// CPUs of the threads of a process that have run since the last look.
    fn active(&mut self, pid: u32) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut active = Vec::new();
        for task in tasks.take(THREADS_LIMIT) {
            let read = |name: &str| millstream_foreign::read(task.path().join(name)).ok();
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let thread = read("stat").zip(read("status"));
            let Some(now) = thread.and_then(|(stat, status)| parse(&stat, &status)) else {
                continue;
            };
            match self.threads.insert((pid, tid), now) {
                Some(before) if before.ran != now.ran => {
                    self.moves += u64::from(before.cpu != now.cpu);
                    active.push(now.cpu);
                }
                _ => {}
            }
        }
        active
    }

    /// Returns the share of each CPU by end, the share of time in which both ends were on one, and
    /// the moves; `None` when no thread was seen to run.
    pub(super) fn finish(self) -> Option<EndsOnCpus> {
        let shares: BTreeMap<_, _> = self
            .ends
            .into_iter()
            .filter(|(_, on)| !on.is_empty())
            .map(|(name, on)| {
                let all: f64 = on.values().sum();
                (name, on.into_iter().map(|(cpu, share)| (cpu, share / all)).collect())
            })
            .collect();
        let same_cpu_share = (self.both > 0.0).then(|| self.same / self.both);
        (!shares.is_empty()).then_some(EndsOnCpus { same_cpu_share, shares, moves: self.moves })
    }
}

/// Fields 14 (utime), 15 (stime) and 39 (processor) of proc(5)'s stat, and the switches of its
/// status.
fn parse(stat: &str, status: &str) -> Option<Thread> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let switches = status.lines().filter(|line| line.contains("voluntary_ctxt_switches:"));
    let switches = switches.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    let ran = switches.sum::<u64>() + field(14)? + field(15)?;
    Some(Thread { cpu: field(39)? as u32, ran })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_is_read_with_its_cpu_and_whether_it_ran() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("7 (a ) b) {}", fields.join(" "));
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(parse(&stat, status), Some(Thread { cpu: 39, ran: 5 + 7 + 14 + 15 }));
        assert_eq!(parse("7 (x) S 1", status), None);
    }

    #[test]
    fn who_works_is_seen_with_its_cpu_and_who_sleeps_is_not() {
        let me = std::process::id();
        let mut watch = Watch::default();
        let until = Instant::now() + Duration::from_millis(60);
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        while Instant::now() < until {
            watch.look(&[("client", &[me]), ("server", &[sleeper.id()])]);
            std::thread::sleep(Duration::from_millis(5));
        }
        let found = watch.finish().unwrap();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let of_client: f64 = found.shares["client"].values().sum();
        assert!((of_client - 1.0).abs() < 1e-9, "{found:?}");
    }

    /// A name cut within a letter, and one with an escape sequence.
    #[test]
    fn a_program_is_seen_to_run_whatever_its_name() {
        for name in [r"\320\270\320", r"\377) R\033[31m\n"] {
            let script = format!("printf '{name}' >/proc/$$/comm; while :; do :; done");
            let mut child =
                std::process::Command::new("bash").args(["-c", &script]).spawn().unwrap();
            let comm = format!("/proc/{}/comm", child.id());
            let until = Instant::now() + Duration::from_secs(60);
            // Written at once: the shell writes line by line.
            while std::fs::read(&comm).unwrap().is_ascii() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut watch = Watch::default();
            while watch.ends.values().all(BTreeMap::is_empty) && Instant::now() < until {
                watch.look(&[("client", &[child.id()])]);
                std::thread::sleep(Duration::from_millis(5));
            }
            let shown = millstream_foreign::read_name(&comm).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(watch.finish().is_some(), "{name}");
            assert!(shown.contains(r"\x") && !shown.contains(['\n', '\u{1b}']), "{shown}");
        }
    }
}
