use super::*;
use crate::causes::{Cause, Look, Scene, built_in};
use crate::separate::Separation;
use crate::stats::Rng;

/// Functions with their CPU time for a unit of work, in nanoseconds.
type Costs<'a> = &'a [(&'a str, f64)];

/// CPUs of the made-up machine.
const CPUS: usize = 4;
/// Samples in a second.
const HZ: f64 = 499.0;

/// A run of 0.7 s of so many threads that are never without work, on as many CPUs as there are:
/// each sample is drawn.
fn run<'a>(threads: u32, costs: Costs<'a>, rng: &mut Rng) -> ThreadedRun<'a> {
    let all: f64 = costs.iter().map(|(_, ns)| ns).sum();
    let cpu_s = 0.7 * f64::from(threads).min(CPUS as f64);
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for _ in 0..(cpu_s * HZ) as u64 {
        let mut at = rng.unit() * all;
        let drawn = costs.iter().find(|(_, ns)| {
            at -= ns;
            at < 0.0
        });
        *met.entry(drawn.unwrap_or(&costs[0]).0).or_default() += 1;
    }
    // Runs differ by some percent, as of a virtual machine.
    let units = cpu_s * 1e9 / all * (0.95 + 0.1 * rng.unit());
    let stacks = met.into_iter().map(|(name, count)| (vec![name, "main"], count)).collect();
    ThreadedRun { threads, units, cpu_s, wall_s: 0.7, cpus: CPUS, steal_share: 0.0, stacks }
}

/// Eight runs of each number of threads with its costs.
fn runs<'a>(levels: &[(u32, Costs<'a>)], seed: u64) -> Vec<ThreadedRun<'a>> {
    let mut rng = Rng::new(seed);
    let eight = |&(threads, costs): &(u32, Costs<'a>)| (0..8).map(move |_| (threads, costs));
    levels.iter().flat_map(eight).map(|(threads, costs)| run(threads, costs, &mut rng)).collect()
}

fn cause() -> Cause {
    built_in().into_iter().find(|cause| cause.id == "shared-between-threads").unwrap()
}

/// Returns the catalogue's judgement of it.
fn look(scaling: &Scaling) -> Look {
    Scene::new(&[], &[], &Separation::default()).with_threads(scaling).look(&cause())
}

const ONE: Costs<'static> = &[("send", 120.0), ("look_up", 60.0), ("copy", 50.0), ("turn", 40.0)];

#[test]
fn the_function_that_grows_beyond_the_others_is_named_with_its_part_of_the_loss() {
    // Everything takes 1.1 times as much, look_up 160 ns instead of 66.
    let many: Costs<'_> = &[("send", 132.0), ("look_up", 160.0), ("copy", 55.0), ("turn", 44.0)];
    let found = Scaling::of(&runs(&[(1, ONE), (2, many), (4, many)], 1), 1).unwrap();
    assert_eq!((found.from, found.to), (1, 4), "the most threads for which the CPUs suffice");
    let names: Vec<&str> = found.functions.iter().map(|one| one.function.as_str()).collect();
    assert_eq!(names, ["look_up"]);
    let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.12;
    assert!(near(found.growth, 391.0 / 270.0) && found.low > 1.3 && found.high < 1.6, "{found:?}");
    assert!(near(found.common, 1.1), "{found:?}");
    assert!(near(found.share, 94.0 / 391.0), "{found:?}");
    assert!(near(found.explained, 94.0 / 121.0), "{found:?}");
    assert_eq!(found.functions[0].caller, None, "it is not a lock's own function");
    let Look::Fits { evidence, counter } = look(&found) else { panic!("{found:?}") };
    assert!(evidence.starts_with("With 4 threads a unit of work takes 1."), "{evidence}");
    assert!(evidence.contains("of what was added is in look_up ("), "{evidence}");
    assert_eq!(counter, None);
    let stolen = Scaling { steal_rise: 0.08, ..found };
    let Look::Fits { counter, .. } = look(&stolen) else { panic!("{stolen:?}") };
    assert!(counter.is_some_and(|text| text.contains("took 8 % more")));
}

#[test]
fn what_makes_all_functions_slower_is_nothing_that_threads_share() {
    // CPUs that share a core, a lower frequency, a hypervisor.
    let many: Vec<(&str, f64)> = ONE.iter().map(|&(name, ns)| (name, 1.5 * ns)).collect();
    let found = Scaling::of(&runs(&[(1, ONE), (2, &many)], 2), 1).unwrap();
    assert!(found.low > 1.3 && found.functions.is_empty(), "{found:?}");
    assert_eq!((found.share, found.explained, found.named.as_str()), (0.0, 0.0, ""));
    assert_eq!(look(&found), Look::DoesNotFit);
}

#[test]
fn what_costs_no_more_is_not_named_and_neither_is_what_hardly_does() {
    let found = Scaling::of(&runs(&[(1, ONE), (2, ONE)], 3), 1).unwrap();
    assert!(found.low < 1.0 + 0.05 && found.functions.is_empty(), "{found:?}");
    assert_eq!(look(&found), Look::DoesNotFit);
    // Shown beyond doubt, and a fortieth of the time.
    let many: Costs<'_> = &[("send", 120.0), ("look_up", 62.0), ("copy", 50.0), ("turn", 40.0)];
    let found = Scaling::of(&runs(&[(1, ONE), (2, many)], 4), 1).unwrap();
    assert_eq!(look(&found), Look::DoesNotFit, "{found:?}");
}

/// No more than one set in twenty has a function that is said to grow where none does.
#[test]
fn chance_seldom_names_a_function() {
    let named = |seed| {
        let found = Scaling::of(&runs(&[(1, ONE), (2, ONE)], seed), seed).unwrap();
        !found.functions.is_empty()
    };
    let count = (0..20).filter(|seed| named(*seed)).count();
    assert!(count <= 2, "{count} of 20");
}

#[test]
fn of_a_lock_who_called_for_it_is_said() {
    let kernel = |spins: u64| {
        let spin =
            vec!["native_queued_spin_lock_slowpath_[k]", "_raw_spin_lock_[k]", "udp_enqueue_[k]"];
        let other = vec!["native_queued_spin_lock_slowpath_[k]", "__lock_it_[k]", "wake_up_[k]"];
        let stacks = vec![
            (spin, spins),
            (other, spins / 3),
            (vec!["udp_sendmsg_[k]"], 400),
            (vec!["memcpy_[k]"], 300),
            (vec![], 20),
        ];
        let count: u64 = stacks.iter().map(|(_, count)| count).sum();
        (stacks, count as f64 / 1000.0)
    };
    let run = |(threads, spins): (u32, u64)| {
        let (stacks, cpu_s) = kernel(spins);
        let wall_s = cpu_s / f64::from(threads);
        ThreadedRun { threads, units: 1e3, cpu_s, wall_s, cpus: CPUS, steal_share: 0.0, stacks }
    };
    let levels = [(1, 0), (1, 2), (1, 1), (1, 0), (3, 600), (3, 640), (3, 630), (3, 610)];
    let found = Scaling::of(&levels.map(run), 1).unwrap();
    let [grown] = &found.functions[..] else { panic!("{found:?}") };
    assert_eq!(grown.function, "native_queued_spin_lock_slowpath");
    assert_eq!(grown.caller.as_deref(), Some("udp_enqueue"));
    assert!((found.common - 1.0).abs() < 1e-9 && found.explained > 0.99, "{found:?}");
    let said = "native_queued_spin_lock_slowpath (1 to 826 µs, called by udp_enqueue)";
    assert_eq!(found.named, said);
}

#[test]
fn without_more_cpus_at_work_nothing_is_compared() {
    let many: Costs<'_> = &[("send", 120.0), ("look_up", 600.0), ("copy", 50.0), ("turn", 40.0)];
    let why = |runs: &[ThreadedRun<'_>]| Scaling::of(runs, 1).unwrap_err();
    // More threads than CPUs, and nothing else.
    let only = runs(&[(4, ONE), (8, many), (16, many)], 5);
    assert_eq!(why(&only), "8 threads want more than the 4 CPUs that there are");
    let mut bound = runs(&[(1, ONE), (2, many)], 6);
    for run in bound.iter_mut().filter(|run| run.threads == 2) {
        run.cpu_s /= 2.0;
    }
    assert_eq!(why(&bound), "2 threads had no more CPUs at once than 1 (1.0 and 1.0)");
    let few = "4 runs of each of two numbers of threads are needed";
    assert!(why(&runs(&[(1, ONE)], 7)).starts_with(few));
    assert!(why(&runs(&[(1, ONE), (2, many)], 8)[..11]).starts_with(few));
    let mut unseen = runs(&[(1, ONE), (2, many)], 9);
    unseen.iter_mut().for_each(|run| run.stacks.truncate(0));
    assert!(why(&unseen).starts_with(few));
    assert!(why(&[]).starts_with(few));
}
