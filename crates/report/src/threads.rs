//! CPU time of a unit of work by the number of threads: one line for each stack whose number of
//! threads varies and that was profiled.

use std::collections::BTreeMap;

use millstream_diagnose::causes::{Cause, Look, Scene, built_in};
use millstream_diagnose::features::{by_threads, threads_of};
use millstream_diagnose::scaling::Scaling;
use millstream_diagnose::separate::Separation;
use millstream_record::{THREADS, configuration_label};

use super::model::{Model, Row};

/// The cause whose evidence is told.
const CAUSE: &str = "shared-between-threads";

/// `udp_pps, kernel: With 4 threads a unit of work takes 1.62 times the CPU time that it takes with
/// 1 (95 %: …). …`
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    let mut families: BTreeMap<String, Vec<&Row<'_>>> = BTreeMap::new();
    for case in model.cases.iter().filter(|case| case.factors.contains_key(THREADS)) {
        let mut rest = case.factors.clone();
        rest.remove(THREADS);
        for row in &case.rows {
            let name = format!("{}, {}", configuration_label(&case.workload, &rest), row.label);
            families.entry(name).or_default().push(row);
        }
    }
    let Some(cause) = built_in().into_iter().find(|cause| cause.id == CAUSE) else { return vec![] };
    let line = |(name, rows): (String, Vec<&Row<'_>>)| {
        let runs = || rows.iter().flat_map(|row| row.group.valid.iter().copied());
        // Nobody asked to profile these runs: then there is no line.
        runs().find(|run| run.probes.kernel.as_ref().is_some_and(|one| !one.profile.is_empty()))?;
        let numbered = runs().filter_map(|run| Some((threads_of(run)?, run)));
        Some(match by_threads(numbered, model.experiment.seed) {
            Ok(scaling) => format!("{name}: {}", told(&cause, &scaling)),
            Err(why) => format!("{name}: numbers of threads cannot be compared: {why}"),
        })
    };
    families.into_iter().filter_map(line).collect()
}

fn told(cause: &Cause, scaling: &Scaling) -> String {
    let scene = Scene::new(&[], &[], &Separation::default()).with_threads(scaling);
    match scene.look(cause) {
        Look::Fits { evidence, counter } => {
            [Some(evidence), counter].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        _ => format!(
            "With {} threads a unit of work takes {:.2} times the CPU time that it takes with {} (95 %: {:.2} to {:.2}); \
             no cause in what they share is named.",
            scaling.to, scaling.growth, scaling.from, scaling.low, scaling.high
        ),
    }
}
