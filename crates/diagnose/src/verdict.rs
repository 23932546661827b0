//! What it proves when a suspected cause was forced to each of its levels.
//!
//! Observed runs formed groups, and a feature told them apart. Then the feature was set on purpose, in randomised blocks. It is
//! the cause when setting it makes the difference that was observed, and when what is left within a level no longer falls
//! into those groups: the step from an association to a cause that Mytkowicz and others (ASPLOS 2009) ask for.

use serde::{Deserialize, Serialize};

use crate::compare::{Change, Comparison, compare};
use crate::modes::{Mode, Options, modes};
use crate::stats::{RUNS_FOR_A_CLAIM, median};

/// Forcing must make this share of the observed difference, on a logarithmic scale, to be its cause.
pub const EXPLAINED_LEAST: f64 = 0.5;

/// The runs of one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name: `one CPU`.
    pub name: String,
    /// Results of its runs.
    pub results: Vec<f64>,
}

/// In plain words what was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Forcing it makes the difference, and the groups are gone within each level.
    Confirmed,
    /// It goes with the groups; forcing was not tried, or makes a difference that does not explain them.
    AssociatedOnly,
    /// Forcing it makes no difference that could be the observed one.
    Refuted,
    /// Too few runs for either.
    CannotTell,
}

/// The verdict with what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// What was proved.
    pub verdict: Verdict,
    /// Ratio of the observed groups, the highest to the lowest median.
    pub observed_ratio: f64,
    /// Level with the lower and with the higher median.
    pub levels: (String, String),
    /// The higher level compared with the lower.
    pub forced: Option<Comparison>,
    /// Share of the observed difference that forcing makes, on a logarithmic scale.
    pub explained: Option<f64>,
    /// Levels in which the runs still fall into groups as far apart as the observed ones.
    pub still_grouped: Vec<String>,
    /// Runs of each level that would decide, where these did not.
    pub runs_needed: Option<usize>,
}

/// Judges `levels` of a forced cause by the `observed` groups (lowest first, as [`modes`] gives them).
///
/// # Panics
///
/// With fewer than two levels, or fewer than two observed groups: there is nothing to judge.
pub fn judge(observed: &[Mode], levels: &[Level], seed: u64) -> Judgement {
    assert!(levels.len() >= 2 && observed.len() >= 2, "two levels and two groups at least");
    let observed_ratio = observed[observed.len() - 1].median / observed[0].median;
    let middle = |level: &Level| median(&level.results).unwrap_or(f64::NAN);
    let mut by_median: Vec<&Level> = levels.iter().collect();
    by_median.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
    let (low, high) = (by_median[0], by_median[by_median.len() - 1]);
    let mut judgement = Judgement {
        verdict: Verdict::CannotTell,
        observed_ratio,
        levels: (low.name.clone(), high.name.clone()),
        forced: None,
        explained: None,
        still_grouped: vec![],
        runs_needed: None,
    };
    let runs = levels.iter().map(|level| level.results.len()).min().unwrap_or(0);
    let Some(forced) = compare(&low.results, &high.results, seed) else {
        judgement.runs_needed = Some(2 * RUNS_FOR_A_CLAIM);
        return judgement;
    };
    let wanted = observed_ratio.ln();
    let explained = forced.ratio.ln() / wanted;
    judgement.forced = Some(forced);
    judgement.explained = Some(explained);
    judgement.still_grouped = levels
        .iter()
        .filter(|level| is_still_grouped(&level.results, observed_ratio, seed))
        .map(|level| level.name.clone())
        .collect();
    let makes_it = forced.change == Change::Changed;
    judgement.verdict = if makes_it && explained >= EXPLAINED_LEAST {
        match judgement.still_grouped.is_empty() {
            true => Verdict::Confirmed,
            false => Verdict::AssociatedOnly,
        }
    } else if makes_it {
        Verdict::AssociatedOnly
    } else if forced.interval.1.ln() < EXPLAINED_LEAST * wanted {
        Verdict::Refuted
    } else {
        // An interval shrinks with the square root of the runs.
        let short = (1.0 + forced.least_seen).ln() / (EXPLAINED_LEAST * wanted).max(1e-9);
        let needed = (runs as f64 * short * short).ceil() as usize;
        judgement.runs_needed = Some(needed.max(runs + 2));
        Verdict::CannotTell
    };
    judgement
}

/// Whether results still fall into groups that are at least half as far apart as the observed ones.
fn is_still_grouped(results: &[f64], observed_ratio: f64, seed: u64) -> bool {
    let found = modes(results, &Options { seed, ..Options::default() });
    match (found.first(), found.last()) {
        (Some(low), Some(high)) if found.len() > 1 => {
            (high.median / low.median).ln() >= EXPLAINED_LEAST * observed_ratio.ln()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Rng;

    fn results(rng: &mut Rng, middle: f64, runs: usize) -> Vec<f64> {
        (0..runs).map(|_| middle * (1.0 + 0.04 * (rng.unit() - 0.5))).collect()
    }

    fn observed(rng: &mut Rng) -> Vec<Mode> {
        let mut values = results(rng, 10.0, 8);
        values.extend(results(rng, 50.0, 8));
        let found = modes(&values, &Options::default());
        assert_eq!(found.len(), 2);
        found
    }

    fn level(name: &str, results: Vec<f64>) -> Level {
        Level { name: name.into(), results }
    }

    #[test]
    fn what_makes_the_groups_when_it_is_forced_is_confirmed() {
        let mut rng = Rng::new(1);
        let groups = observed(&mut rng);
        let same = level("one CPU", results(&mut rng, 50.0, 8));
        let apart = level("two CPUs", results(&mut rng, 10.0, 8));
        let judged = judge(&groups, &[same, apart], 1);
        assert_eq!(judged.verdict, Verdict::Confirmed);
        assert_eq!(judged.levels, ("two CPUs".to_string(), "one CPU".to_string()));
        assert!(judged.explained.is_some_and(|share| (0.95..1.05).contains(&share)));
        assert!(judged.still_grouped.is_empty() && judged.runs_needed.is_none());
    }

    #[test]
    fn groups_that_stay_within_a_level_are_not_explained_by_it() {
        let mut rng = Rng::new(2);
        let groups = observed(&mut rng);
        let mut mixed = results(&mut rng, 50.0, 8);
        mixed.extend(results(&mut rng, 10.0, 4));
        let levels = [level("mixed", mixed), level("low", results(&mut rng, 10.0, 12))];
        let judged = judge(&groups, &levels, 1);
        assert_eq!(judged.verdict, Verdict::AssociatedOnly);
        assert_eq!(judged.still_grouped, ["mixed"]);
        // A difference that is shown, and a tenth of what was observed.
        let small =
            [level("a", results(&mut rng, 10.0, 9)), level("b", results(&mut rng, 11.5, 9))];
        assert_eq!(judge(&groups, &small, 1).verdict, Verdict::AssociatedOnly);
    }

    #[test]
    fn what_makes_no_difference_is_refuted() {
        let mut rng = Rng::new(3);
        let groups = observed(&mut rng);
        let levels =
            [level("a", results(&mut rng, 10.0, 8)), level("b", results(&mut rng, 10.0, 8))];
        let judged = judge(&groups, &levels, 1);
        assert_eq!(judged.verdict, Verdict::Refuted, "{judged:?}");
    }

    #[test]
    fn too_few_or_too_noisy_runs_cannot_tell_and_say_how_many_would() {
        let mut rng = Rng::new(4);
        let groups = observed(&mut rng);
        let few = [level("a", vec![10.0; 3]), level("b", vec![50.0; 3])];
        let judged = judge(&groups, &few, 1);
        assert_eq!((judged.verdict, judged.runs_needed), (Verdict::CannotTell, Some(8)));
        let wide = |rng: &mut Rng| (0..4).map(|_| 2.0 + 60.0 * rng.unit()).collect();
        let noisy = [level("a", wide(&mut rng)), level("b", wide(&mut rng))];
        let judged = judge(&groups, &noisy, 1);
        assert_eq!(judged.verdict, Verdict::CannotTell, "{judged:?}");
        assert!(judged.runs_needed.is_some_and(|runs| runs > 4));
    }
}
