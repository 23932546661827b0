//! Several kept experiments read together: beside each other, as a before and an after are, or
//! pooled into one sample, as a large design that was measured in slices is.

use std::collections::BTreeSet;

use millstream_plan::{Factor, Workload};
use millstream_record::{ExperimentRecord, RunRecord};

/// An experiment with its runs in the order of execution.
pub type Kept = (ExperimentRecord, Vec<RunRecord>);

/// Facts that should be the same in all parts, or the reader must know; and settings of the kernel,
/// which begin so.
const SAME: &[&str] = &["cpu.model", "kernel.release", "millstream.version", "millstream.commit"];
const SETTINGS: &str = "sysctl.";

/// The factor whose levels are the experiments that are read beside each other.
pub const EXPERIMENT: &str = "experiment";

/// Several experiments beside each other: each is a level of the factor [`EXPERIMENT`], the first
/// is the base, and no sample has runs of two. All else is as of [`pool`].
pub fn beside(parts: impl IntoIterator<Item = Kept>) -> Option<Kept> {
    let mut parts: Vec<Kept> = parts.into_iter().collect();
    if parts.len() > 1 {
        for (experiment, runs) in &mut parts {
            let id = &experiment.id;
            experiment.factors.insert(EXPERIMENT.to_owned(), vec![id.clone()]);
            for run in runs {
                run.factors.insert(EXPERIMENT.to_owned(), id.clone());
            }
        }
    }
    let (first, others) = (parts.first()?.0.id.clone(), parts.len() - 1);
    let (mut whole, runs) = join(parts)?;
    if others > 0 {
        whole.id = format!("{first}-beside-{others}-more");
    }
    Some((whole, runs))
}

/// Several experiments as one sample, which a note says.
pub fn pool(parts: impl IntoIterator<Item = Kept>) -> Option<Kept> {
    let parts: Vec<Kept> = parts.into_iter().collect();
    let ids: Vec<String> = parts.iter().map(|(experiment, _)| experiment.id.clone()).collect();
    let (mut whole, runs) = join(parts)?;
    if ids.len() > 1 {
        whole.notes.push(format!("Pooled into one sample, as was asked: {}.", ids.join(", ")));
    }
    Some((whole, runs))
}

/// One experiment of several, and their runs in the order given; `None` of none.
///
/// Question, definition, surroundings and seed are those of the first; workloads, stacks, levels of
/// factors and remarks are those of all. Runs keep their ids; orders and blocks go on counting
/// after the part before. It is for a report, and not kept.
fn join(mut parts: Vec<Kept>) -> Option<Kept> {
    if parts.len() > 1 {
        name_alike(&mut parts);
    }
    let mut parts = parts.into_iter();
    let (mut whole, mut runs) = parts.next()?;
    let mut more = 0;
    for (part, mut its) in parts {
        more += 1;
        let orders = runs.iter().map(|run| run.order + 1).max().unwrap_or(0);
        for run in &mut its {
            run.order += orders;
            run.block += whole.repeats;
        }
        runs.append(&mut its);
        add(&mut whole, part);
    }
    if more > 0 {
        let swept = whole.factors.iter_mut().filter(|(name, _)| *name != EXPERIMENT);
        swept.for_each(|(_, levels)| in_order(levels));
        whole.id = format!("{}-and-{more}-more", whole.id);
    }
    Some((whole, runs))
}

/// A factor that only one part names had one level in the others, too: their runs' settings tell
/// it. It is named in all, or runs that differ in nothing else would stand in cases of their own,
/// beside another base.
fn name_alike(parts: &mut [Kept]) {
    let runs = parts.iter().flat_map(|(_, runs)| runs);
    let of_run = |run: &RunRecord| {
        let workload = run.workload.clone();
        run.factors.keys().map(move |name| (workload.clone(), name.clone())).collect::<Vec<_>>()
    };
    let named: BTreeSet<(String, String)> = runs.flat_map(of_run).collect();
    for (experiment, runs) in parts {
        for run in runs {
            let own = named.iter().filter(|(workload, _)| *workload == run.workload);
            for (_, name) in own {
                let Some(level) = level_set(run, name) else { continue };
                unite(experiment.factors.entry(name.clone()).or_default(), vec![level.clone()]);
                run.factors.insert(name.clone(), level);
            }
        }
    }
}

/// The level of a factor that a run does not name, where its stack knows it and its settings tell.
fn level_set(run: &RunRecord, name: &str) -> Option<String> {
    let (factor, workload) = Factor::of(name).zip(Workload::of(&run.workload))?;
    if run.factors.contains_key(name) || !factor.applies(workload, &run.stack) {
        return None;
    }
    let set = run.environment.get(&format!("setting.{name}"))?;
    // A run over the impaired path is kept with a `link` that is none of the factor's levels.
    Some(factor.level(set).unwrap_or_else(|| factor.default.to_owned()))
}

fn add(whole: &mut ExperimentRecord, part: ExperimentRecord) {
    let mut remarks = part.notes;
    let known = [&whole.environment, &part.environment];
    let settings = known.iter().flat_map(|one| one.facts.keys()).map(String::as_str);
    let settings: BTreeSet<&str> = settings.filter(|name| name.starts_with(SETTINGS)).collect();
    for fact in SAME.iter().copied().chain(settings) {
        let (here, there) = (whole.environment.get(fact), part.environment.get(fact));
        if here != there {
            let (here, there) = (here.unwrap_or("unknown"), there.unwrap_or("unknown"));
            remarks
                .push(format!("{} was measured with another {fact}: {there}, not {here}", part.id));
        }
    }
    unite(&mut whole.workloads, part.workloads);
    unite(&mut whole.stacks, part.stacks);
    unite(&mut whole.notes, remarks);
    for (factor, levels) in part.factors {
        unite(whole.factors.entry(factor).or_default(), levels);
    }
    for difference in part.differences {
        if !whole.differences.contains(&difference) {
            whole.differences.push(difference);
        }
    }
    whole.repeats += part.repeats;
    whole.steady_cpus &= part.steady_cpus;
    whole.planned_runs += part.planned_runs;
    whole.finished_at = whole.finished_at.zip(part.finished_at).map(|(one, other)| one.max(other));
}

/// Numbers by size, whatever slice had them first; words stay in the order of the parts.
fn in_order(levels: &mut [String]) {
    let numbers: Option<Vec<f64>> = levels.iter().map(|level| level.parse().ok()).collect();
    if numbers.is_some() {
        levels.sort_by(|a, b| {
            let number = |level: &str| level.parse().unwrap_or(f64::NAN);
            number(a).total_cmp(&number(b))
        });
    }
}

/// Appends what is not there yet.
fn unite(all: &mut Vec<String>, others: Vec<String>) {
    for one in others {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::Timestamp;

    fn part(seed: u64, loss: &str, kernel: &str) -> Kept {
        let mut experiment = ExperimentRecord::new("judge", seed, Timestamp::from_unix_ms(1_000));
        experiment.factors.insert("loss_percent".into(), vec!["0".into(), loss.into()]);
        experiment.stacks = vec!["kernel".into(), "millstream".into()];
        experiment.environment.set("kernel.release", kernel);
        (experiment.repeats, experiment.planned_runs) = (2, 4);
        experiment.finished_at = Some(Timestamp::from_unix_ms(2_000 + seed));
        let runs = (0..4).map(|order| {
            let mut run = RunRecord::new(experiment.run_id(order));
            (run.order, run.block) = (order, order / 2);
            run
        });
        let runs = runs.collect();
        (experiment, runs)
    }

    #[test]
    fn slices_become_one_experiment_and_lose_no_run() {
        let (whole, runs) = pool([part(1, "3", "6.1"), part(2, "1", "6.1")]).unwrap();
        assert_eq!(whole.factors["loss_percent"], ["0", "1", "3"]);
        assert_eq!((whole.repeats, whole.planned_runs, whole.stacks.len()), (4, 8, 2));
        assert_eq!(whole.finished_at, Some(Timestamp::from_unix_ms(2_002)));
        let orders: Vec<(u32, u32)> = runs.iter().map(|run| (run.order, run.block)).collect();
        let expected = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)];
        assert_eq!(orders, expected);
        assert!(whole.id.ends_with("-and-1-more"));
        assert_eq!(whole.notes.len(), 1, "{:?}", whole.notes);
        assert!(whole.notes[0].starts_with("Pooled into one sample, as was asked: judge-"));
    }

    /// A before and an after: no sample has runs of both, and the first is what the other is
    /// compared with.
    #[test]
    fn experiments_beside_each_other_are_levels_of_a_factor() {
        let parts = [part(9, "1", "6.1"), part(2, "1", "6.1")];
        let ids = [parts[0].0.id.clone(), parts[1].0.id.clone()];
        let (whole, runs) = beside(parts.clone()).unwrap();
        assert_eq!(whole.factors[EXPERIMENT], ids);
        assert!(runs.iter().all(|run| run.factors[EXPERIMENT] == run.id[..ids[0].len()]));
        let groups = crate::groups::groups(&runs, &[], &[]);
        assert_eq!(groups.iter().map(|group| group.valid.len()).collect::<Vec<_>>(), [4, 4]);
        assert!(whole.notes.is_empty() && whole.id.ends_with("-beside-1-more"));
        let [one, _] = parts;
        assert_eq!(beside([one.clone()]), Some(one));
    }

    /// One part names what the other had as a setting: both are cases of one factor, under its
    /// levels.
    #[test]
    fn a_factor_that_one_part_names_is_a_factor_of_all() {
        let mut plain = part(1, "1", "6.1");
        let mut named = part(2, "1", "6.1");
        plain.0.factors.clear();
        named.0.factors = [("api".to_owned(), vec!["zero-copy".to_owned()])].into();
        named.0.factors.insert("engine".into(), vec!["net".into()]);
        for ((_, runs), api) in [(&mut plain, None), (&mut named, Some("zero-copy"))] {
            for run in runs {
                run.workload = "tcp_stream".into();
                run.stack = ["kernel", "millstream"][run.order as usize % 2].into();
                match api {
                    Some(api) => drop(run.factors.insert("api".into(), api.into())),
                    None => run.environment.set("setting.api", "copy"),
                }
                match (run.stack == "millstream", api) {
                    (true, Some(_)) => drop(run.factors.insert("engine".into(), "net".into())),
                    (true, None) => run.environment.set("setting.engine", "local"),
                    (false, _) => {}
                }
            }
        }
        let (whole, runs) = pool([plain, named]).unwrap();
        assert_eq!(whole.factors["api"], ["copy", "zero-copy"]);
        assert_eq!(whole.factors["engine"], ["local", "net"]);
        let levels = |name: &str| -> Vec<Option<String>> {
            runs.iter().map(|run| run.factors.get(name).cloned()).collect()
        };
        let some = |level: &str| Some(level.to_owned());
        assert_eq!(levels("api")[..5], [&vec![some("copy"); 4][..], &[some("zero-copy")]].concat());
        assert_eq!(levels("engine")[..2], [None, some("local")]);
        assert_eq!(levels("engine")[4..6], [None, some("net")]);
    }

    #[test]
    fn other_surroundings_are_said() {
        let (mut here, mut there) = (part(1, "1", "6.1"), part(2, "3", "6.2"));
        here.0.environment.set("sysctl.net.ipv4.tcp_rmem", "4096 131072 6291456");
        there.0.environment.set("sysctl.net.ipv4.tcp_rmem", "4096 8192 16384");
        let (whole, _) = beside([here, there]).unwrap();
        assert!(whole.notes[1].contains("tcp_rmem: 4096 8192 16384, not 4096 131072"));
        assert!(
            whole.notes[0].contains("another kernel.release: 6.2, not 6.1"),
            "{:?}",
            whole.notes
        );
    }

    #[test]
    fn one_part_stays_as_it_is() {
        let alone = part(1, "1", "6.1");
        assert_eq!(pool([alone.clone()]), Some(alone.clone()));
        assert_eq!(beside([alone.clone()]), Some(alone));
        assert_eq!(pool([]), None);
    }
}
