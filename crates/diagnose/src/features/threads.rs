//! Runs that differ in their number of threads, as what is compared by it.

use millstream_record::{RUNNER, RunRecord, THREADS};

use super::profile::{Whose, is_whole, names_of_ends, roles};
use super::{steal_share, units};
use crate::scaling::{Scaling, ThreadedRun};

/// The number of threads of a run, where that is a factor of it.
pub fn threads_of(run: &RunRecord) -> Option<u32> {
    run.factors.get(THREADS)?.parse().ok()
}

/// Returns the cost of a unit of work by the number of threads. The runs differ in nothing else;
/// invalid ones are left out.
///
/// # Errors
///
/// The reason why the cost is not known, as [`Scaling::of`] gives it.
pub fn by_threads<'a>(
    runs: impl IntoIterator<Item = (u32, &'a RunRecord)>,
    seed: u64,
) -> Result<Scaling, String> {
    let valid = runs.into_iter().filter(|(_, run)| run.validity.valid);
    let known: Vec<ThreadedRun<'a>> =
        valid.filter_map(|(threads, run)| threaded(run, threads)).collect();
    Scaling::of(&known, seed)
}

/// Returns the work of the ends and of the processes that carry their packets. The CPU time of the
/// ends was counted. The time of the others follows from it by the number of samples of either.
fn threaded(run: &RunRecord, threads: u32) -> Option<ThreadedRun<'_>> {
    let probes = &run.probes;
    let wall_s = probes.length_s()?;
    let profile = &probes.kernel.as_ref()?.profile;
    if !is_whole(profile) {
        return None;
    }
    let workers = probes.workers.as_ref()?.iter().filter(|(role, _)| *role != RUNNER);
    let ends_s: f64 = workers.map(|(_, one)| one.usr_s + one.sys_s).sum();
    let mut met = [0, 0];
    let mut stacks = Vec::new();
    for (one, whose) in profile.iter().zip(roles(profile, &names_of_ends(probes))) {
        let Some(place) = [Whose::Ends, Whose::Path].iter().position(|role| whose == Some(*role))
        else {
            continue;
        };
        met[place] += one.count();
        // The first entry is the process.
        let innermost_first = one.stack.iter().skip(1).rev().map(String::as_str).collect();
        stacks.push((innermost_first, one.count()));
    }
    let [of_ends, of_path] = met.map(|count| count as f64);
    Some(ThreadedRun {
        threads,
        units: units(run, wall_s)?,
        cpu_s: (of_ends > 0.0).then(|| ends_s * (of_ends + of_path) / of_ends)?,
        wall_s,
        cpus: probes.kernel.as_ref().map_or(0, |kernel| kernel.cpus.len()),
        steal_share: probes.cpu.as_ref().map_or(0.0, |activity| steal_share(activity, wall_s)),
        stacks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(u32, RunRecord)]) -> Result<Scaling, String> {
        by_threads(set.iter().map(|(threads, run)| (*threads, run)), 1)
    }

    #[test]
    fn the_cost_is_of_the_ends_and_of_who_carries_their_packets() {
        // Twice the CPUs for the same rate: what is added is spun away.
        let set = super::super::made_up::set("_raw_spin_lock_[k]", (120_000.0, 80));
        let found = of(&set).unwrap();
        assert_eq!((found.from, found.to), (1, 2));
        // 1.08 s for 100,000 packets; the 70 samples of another program are none of it.
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.02;
        assert!(near(found.at_once.0, 1.08) && near(found.cost_ns.0, 10_800.0), "{found:?}");
        assert!(near(found.growth, 2.0 / 1.2), "{found:?}");
        assert_eq!(found.functions.len(), 1, "{found:?}");
        let grown = &found.functions[0];
        assert_eq!(
            (grown.function.as_str(), grown.caller.as_deref()),
            ("_raw_spin_lock", Some("send"))
        );
        assert!(found.share > 0.3 && found.explained > 0.8, "{found:?}");
    }

    #[test]
    fn runs_that_do_not_count_or_were_not_profiled_are_not_looked_at() {
        let set = super::super::made_up::set("look_up", (120_000.0, 80));
        let without = |leave: &dyn Fn(&mut RunRecord)| {
            let mut set = set.clone();
            set.iter_mut().for_each(|(_, run)| leave(run));
            of(&set)
        };
        assert!(without(&|_| {}).is_ok());
        assert!(without(&|run| run.validity.reject("x")).is_err());
        assert!(without(&|run| run.probes.kernel = None).is_err());
        assert!(without(&|run| run.probes.workers = None).is_err());
        assert!(without(&|run| run.results.clear()).is_err());
        assert!(without(&|run| run.probes.times_s.truncate(1)).is_err());
    }
}
