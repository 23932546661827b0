//! The verdict on a suspected cause that was forced to each of its levels.
//!
//! Observed runs formed groups, and a feature told them apart. Then the feature was set on purpose,
//! in randomised blocks. It is the cause when setting it makes the difference that was observed,
//! and when what is left within a level no longer falls into those groups: the step from an
//! association to a cause that Mytkowicz and others (ASPLOS 2009) ask for.

use serde::{Deserialize, Serialize};

use crate::compare::{Change, Comparison, Difference, compare, differ};
use crate::modes::{Mode, Options, modes};
use crate::stats::{RUNS_FOR_A_CLAIM, Rng, median, quantile};

/// Forcing must make this share of the observed difference, on a logarithmic scale, to be its
/// cause.
pub const EXPLAINED_LEAST: f64 = 0.5;

/// Without its limit a thing is better by this ratio at least: what gains less is none that anybody
/// looks for.
pub const GAIN_LEAST: f64 = 1.1;

/// The runs of one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name: `one CPU`.
    pub name: String,
    /// Results of its runs.
    pub results: Vec<f64>,
}

/// The observed runs that a verdict explains.
#[derive(Clone, Copy, Debug)]
pub struct Contrast<'a> {
    /// Groups of the runs, the lowest first; of results without groups the lowest and the highest
    /// third of them.
    pub groups: &'a [Mode],
    /// True where there were no groups: then the scatter must be gone within a level.
    pub is_continuum: bool,
}

/// Returns the lowest and the highest third of results without groups.
pub fn thirds(results: &[f64]) -> Vec<Mode> {
    let mut order: Vec<usize> = (0..results.len()).collect();
    order.sort_by(|&a, &b| results[a].total_cmp(&results[b]));
    let third = results.len() / 3;
    let part = |places: &[usize]| {
        let mut members = places.to_vec();
        let values: Vec<f64> = members.iter().map(|&at| results[at]).collect();
        members.sort_unstable();
        let range = (values[0], values[values.len() - 1]);
        Mode { median: median(&values).unwrap_or(range.0), range, members }
    };
    match third {
        0 => vec![],
        _ => vec![part(&order[..third]), part(&order[results.len() - third..])],
    }
}

/// The conclusion about a suspected cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Forcing it makes the difference, and the groups are gone within each level.
    Confirmed,
    /// It goes with the groups; forcing was not tried, or makes a difference that does not explain
    /// them.
    AssociatedOnly,
    /// Forcing it makes no difference that could be the observed one.
    Refuted,
    /// Too few runs for either.
    CannotTell,
}

/// The verdict with what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The conclusion.
    pub verdict: Verdict,
    /// Ratio of the observed groups, the highest to the lowest median; 1 where they have none.
    pub observed_ratio: f64,
    /// Level with the lower and with the higher median.
    pub levels: (String, String),
    /// The higher level compared with the lower.
    pub forced: Option<Comparison>,
    /// The change as a difference, where results at zero or below have no ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Share of the observed difference that forcing makes, on a logarithmic scale where there are
    /// ratios.
    pub explained: Option<f64>,
    /// Levels in which the runs still fall into groups as far apart as the observed ones.
    pub still_grouped: Vec<String>,
    /// Share of the observed difference that the scatter lost where the cause was held, against the
    /// level that leaves it free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calmed: Option<f64>,
    /// Runs of each level that would decide, where these did not.
    pub runs_needed: Option<usize>,
}

/// The scale on which results are apart: by the logarithm of their ratio, or, where there is none,
/// by their difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Logarithm,
    Plain,
}

impl Scale {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Logarithm => value.ln(),
            Self::Plain => value,
        }
    }
}

/// A forced change on such a scale.
struct Shift {
    scale: Scale,
    by: f64,
    /// Ends of its interval.
    ends: (f64, f64),
    least_seen: f64,
    is_change: bool,
}

impl Judgement {
    fn new(levels: (&Level, &Level)) -> Self {
        Self {
            verdict: Verdict::CannotTell,
            observed_ratio: 1.0,
            levels: (levels.0.name.clone(), levels.1.name.clone()),
            forced: None,
            difference: None,
            explained: None,
            still_grouped: vec![],
            calmed: None,
            runs_needed: None,
        }
    }

    /// Compares `high` with `low`, by ratio where they have one and it is wanted. Where there are
    /// too few runs it notes how many there have to be.
    fn compare(
        &mut self,
        (low, high): (&Level, &Level),
        by_ratio: bool,
        chance: f64,
    ) -> Option<Shift> {
        let compare = || compare(&low.results, &high.results, chance);
        self.forced = by_ratio.then(compare).flatten();
        if let Some(found) = self.forced {
            return Some(Shift {
                scale: Scale::Logarithm,
                by: found.ratio.ln(),
                ends: (found.interval.0.ln(), found.interval.1.ln()),
                least_seen: found.least_seen.ln_1p(),
                is_change: found.change == Change::Changed,
            });
        }
        self.difference = differ(&low.results, &high.results, chance);
        let Some(found) = self.difference else {
            self.runs_needed = Some(2 * RUNS_FOR_A_CLAIM);
            return None;
        };
        Some(Shift {
            scale: Scale::Plain,
            by: found.difference,
            ends: found.interval,
            least_seen: found.least_seen,
            is_change: found.change == Change::Changed,
        })
    }
}

/// Judges `levels` of a forced cause by the `observed` groups (lowest first, as [`modes`] gives
/// them).
///
/// # Panics
///
/// With fewer than two levels, or fewer than two observed groups: there is nothing to judge.
///
/// `free` names the level that leaves things as they come, where there is one: groups stay there,
/// and what counts is that the others have none and scatter less. `chance` is that of a change
/// that is none, [`P_CHANGE`](crate::compare::P_CHANGE) over the number of causes that are judged.
pub fn judge(
    observed: Contrast<'_>,
    levels: &[Level],
    free: Option<&str>,
    chance: f64,
    seed: u64,
) -> Judgement {
    let Contrast { groups: observed, is_continuum } = observed;
    assert!(levels.len() >= 2 && observed.len() >= 2, "two levels and two groups at least");
    let (lowest, highest) = (observed[0].median, observed[observed.len() - 1].median);
    let middle = |level: &Level| median(&level.results).unwrap_or(f64::NAN);
    let mut by_median: Vec<&Level> = levels.iter().collect();
    by_median.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
    let (low, high) = (by_median[0], by_median[by_median.len() - 1]);
    let mut judgement = Judgement::new((low, high));
    let runs = levels.iter().map(|level| level.results.len()).min().unwrap_or(0);
    let has_ratio = lowest > 0.0 && (highest / lowest).is_finite();
    if has_ratio {
        judgement.observed_ratio = highest / lowest;
    }
    let Some(forced) = judgement.compare((low, high), has_ratio, chance) else {
        return judgement;
    };
    let scale = forced.scale;
    let wanted = scale.of(highest) - scale.of(lowest);
    if wanted <= 0.0 {
        return judgement;
    }
    let explained = forced.by / wanted;
    judgement.explained = Some(explained);
    let held = || levels.iter().filter(|level| Some(level.name.as_str()) != free);
    judgement.still_grouped = held()
        .filter(|level| is_still_grouped(&level.results, (scale, wanted), is_continuum, seed))
        .map(|level| level.name.clone())
        .collect();
    let makes_it = forced.is_change;
    let mut was_there = true;
    if let Some(free) = free.and_then(|name| levels.iter().find(|level| level.name == name)) {
        let calmer =
            held().map(|level| calmed(&free.results, &level.results, (scale, wanted), seed));
        let (share, p) = calmer.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 1.0));
        judgement.calmed = Some(share);
        was_there = is_still_grouped(&free.results, (scale, wanted), is_continuum, seed);
        if share >= EXPLAINED_LEAST && p < chance && judgement.still_grouped.is_empty() {
            judgement.verdict = Verdict::Confirmed;
            return judgement;
        }
    }
    judgement.verdict = if makes_it && explained >= EXPLAINED_LEAST {
        match judgement.still_grouped.is_empty() {
            true => Verdict::Confirmed,
            false => Verdict::AssociatedOnly,
        }
    } else if makes_it {
        Verdict::AssociatedOnly
    } else if was_there && forced.ends.1 < EXPLAINED_LEAST * wanted {
        Verdict::Refuted
    } else {
        // An interval shrinks with the square root of the runs.
        let short = forced.least_seen / (EXPLAINED_LEAST * wanted).max(1e-9);
        let needed = (runs as f64 * short * short).ceil() as usize;
        judgement.runs_needed = Some(needed.max(runs + 2));
        Verdict::CannotTell
    };
    judgement
}

/// Judges `levels` of a cause that limits: `free` is the level that was observed, and the better of
/// the others is what is without it. It is the limit when that is better by [`GAIN_LEAST`]. `chance`
/// is as in [`judge`].
///
/// # Panics
///
/// Without the level `free`, or without another.
pub fn judge_limit(levels: &[Level], free: &str, higher_is_better: bool, chance: f64) -> Judgement {
    let observed = levels.iter().find(|level| level.name == free).expect("the observed level");
    let middle = |level: &&Level| median(&level.results).unwrap_or(f64::NAN);
    let others = levels.iter().filter(|level| level.name != free);
    let better = |a: &&Level, b: &&Level| match higher_is_better {
        true => middle(a).total_cmp(&middle(b)),
        false => middle(b).total_cmp(&middle(a)),
    };
    let best = others.max_by(better).expect("another level");
    let mut judgement = Judgement::new((observed, best));
    let Some(forced) = judgement.compare((observed, best), true, chance) else {
        return judgement;
    };
    let gain = |by: f64| if higher_is_better { by } else { -by };
    let most = gain(forced.ends.0).max(gain(forced.ends.1));
    // Any gain from zero is larger than any ratio.
    let least = match forced.scale {
        Scale::Logarithm => GAIN_LEAST.ln(),
        Scale::Plain => (GAIN_LEAST - 1.0) * middle(&observed).abs(),
    };
    judgement.verdict = if gain(forced.by) >= least && forced.is_change {
        Verdict::Confirmed
    } else if most <= least {
        Verdict::Refuted
    } else {
        let runs = observed.results.len().min(best.results.len());
        let short = if least > 0.0 { forced.least_seen / least } else { 2.0 };
        judgement.runs_needed = Some(((runs as f64 * short * short).ceil() as usize).max(runs + 2));
        Verdict::CannotTell
    };
    judgement
}

/// Returns the share of the scatter lost between the free and the held level, as a share of the
/// observed difference (`wanted`), and the chance of that: runs dealt anew into both sets, by their
/// distance from their own median (Brown and Forsythe, 1974).
fn calmed(free: &[f64], held: &[f64], (scale, wanted): (Scale, f64), seed: u64) -> (f64, f64) {
    const EXCHANGES: usize = 1_999;
    let scaled = |values: &[f64]| -> Vec<f64> {
        values.iter().map(|value| scale.of(*value)).filter(|value| value.is_finite()).collect()
    };
    let (free, held) = (scaled(free), scaled(held));
    let width = |values: &[f64]| {
        quantile(values, 0.9).zip(quantile(values, 0.1)).map_or(0.0, |(high, low)| high - low)
    };
    let share = (width(&free) - width(&held)) / wanted;
    let from_median = |values: &[f64]| -> Vec<f64> {
        let middle = median(values).unwrap_or(0.0);
        values.iter().map(|value| (value - middle).abs()).collect()
    };
    let mut all = [from_median(&free), from_median(&held)].concat();
    let of_free = |all: &[f64]| all[..free.len()].iter().sum::<f64>();
    let seen = of_free(&all);
    let mut rng = Rng::new(seed);
    let as_far = (0..EXCHANGES).filter(|_| {
        rng.shuffle(&mut all);
        of_free(&all) >= seen - 1e-12
    });
    (share, (as_far.count() + 1) as f64 / (EXCHANGES + 1) as f64)
}

/// Returns true if results still fall into groups that are at least half as far apart as the
/// observed ones.
fn is_still_grouped(
    results: &[f64],
    (scale, wanted): (Scale, f64),
    is_continuum: bool,
    seed: u64,
) -> bool {
    let found = match is_continuum {
        true => thirds(results),
        false => modes(results, &Options { seed, ..Options::default() }),
    };
    match (found.first(), found.last()) {
        (Some(low), Some(high)) if found.len() > 1 => {
            scale.of(high.median) - scale.of(low.median) >= EXPLAINED_LEAST * wanted
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::P_CHANGE;
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

    fn grouped(groups: &[Mode]) -> Contrast<'_> {
        Contrast { groups, is_continuum: false }
    }

    #[test]
    fn scatter_without_groups_is_explained_by_what_takes_it_away() {
        let mut rng = Rng::new(8);
        let scattered: Vec<f64> = (0..24).map(|_| 10.0 + 40.0 * rng.unit()).collect();
        let groups = thirds(&scattered);
        assert!(groups.len() == 2 && groups[0].members.len() == 8);
        let observed = Contrast { groups: &groups, is_continuum: true };
        let same = level("same", results(&mut rng, 50.0, 10));
        let split = level("split", results(&mut rng, 10.0, 10));
        let judged = judge(observed, &[same, split], None, P_CHANGE, 1);
        assert_eq!(judged.verdict, Verdict::Confirmed, "{judged:?}");
        let wide = level("same", scattered.iter().take(10).map(|one| one * 4.0).collect());
        let split = level("split", results(&mut rng, 10.0, 10));
        let judged = judge(observed, &[wide, split], None, P_CHANGE, 1);
        assert_eq!((judged.verdict, judged.still_grouped.len()), (Verdict::AssociatedOnly, 1));
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
        let judged = judge(grouped(&groups), &[same, apart], None, P_CHANGE, 1);
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
        let judged = judge(grouped(&groups), &levels, None, P_CHANGE, 1);
        assert_eq!(judged.verdict, Verdict::AssociatedOnly);
        assert_eq!(judged.still_grouped, ["mixed"]);
        // A difference that is shown, and a tenth of what was observed.
        let small =
            [level("a", results(&mut rng, 10.0, 9)), level("b", results(&mut rng, 11.5, 9))];
        assert_eq!(
            judge(grouped(&groups), &small, None, P_CHANGE, 1).verdict,
            Verdict::AssociatedOnly
        );
    }

    #[test]
    fn a_cause_that_is_held_takes_the_groups_away_that_stay_where_it_is_free() {
        let mut rng = Rng::new(5);
        let groups = observed(&mut rng);
        let mut mixed = results(&mut rng, 50.0, 6);
        mixed.extend(results(&mut rng, 10.0, 4));
        let free = level("normal", mixed.clone());
        let held = level("high", results(&mut rng, 50.0, 10));
        let judged = judge(grouped(&groups), &[free.clone(), held], Some("normal"), P_CHANGE, 1);
        assert_eq!(judged.verdict, Verdict::Confirmed, "{judged:?}");
        // Where the groups stay they have another cause.
        mixed.reverse();
        let judged =
            judge(grouped(&groups), &[free, level("high", mixed)], Some("normal"), P_CHANGE, 1);
        assert_ne!(judged.verdict, Verdict::Confirmed, "{judged:?}");
        // And where the free level had none this time, nothing is shown.
        let calm = level("normal", results(&mut rng, 50.0, 10));
        let held = level("high", results(&mut rng, 50.0, 10));
        let judged = judge(grouped(&groups), &[calm, held], Some("normal"), P_CHANGE, 1);
        assert_eq!(judged.verdict, Verdict::CannotTell, "{judged:?}");
    }

    #[test]
    fn a_limit_is_what_makes_it_better_when_it_is_away() {
        let mut rng = Rng::new(6);
        let mut of = |name: &str, middle: f64| level(name, results(&mut rng, middle, 8));
        let levels = [of("keep", 10.0), of("16777216", 19.0)];
        assert_eq!(judge_limit(&levels, "keep", true, P_CHANGE).verdict, Verdict::Confirmed);
        assert_eq!(judge_limit(&levels, "keep", false, P_CHANGE).verdict, Verdict::Refuted);
        let same = [of("keep", 10.0), of("16777216", 10.0)];
        assert_eq!(judge_limit(&same, "keep", true, P_CHANGE).verdict, Verdict::Refuted);
    }

    #[test]
    fn what_makes_no_difference_is_refuted() {
        let mut rng = Rng::new(3);
        let groups = observed(&mut rng);
        let levels =
            [level("a", results(&mut rng, 10.0, 8)), level("b", results(&mut rng, 10.0, 8))];
        let judged = judge(grouped(&groups), &levels, None, P_CHANGE, 1);
        assert_eq!(judged.verdict, Verdict::Refuted, "{judged:?}");
    }

    #[test]
    fn too_few_or_too_noisy_runs_cannot_tell_and_say_how_many_would() {
        let mut rng = Rng::new(4);
        let groups = observed(&mut rng);
        let few = [level("a", vec![10.0; 3]), level("b", vec![50.0; 3])];
        let judged = judge(grouped(&groups), &few, None, P_CHANGE, 1);
        assert_eq!((judged.verdict, judged.runs_needed), (Verdict::CannotTell, Some(8)));
        let wide = |rng: &mut Rng| (0..4).map(|_| 2.0 + 60.0 * rng.unit()).collect();
        let noisy = [level("a", wide(&mut rng)), level("b", wide(&mut rng))];
        let judged = judge(grouped(&groups), &noisy, None, P_CHANGE, 1);
        assert_eq!(judged.verdict, Verdict::CannotTell, "{judged:?}");
        assert!(judged.runs_needed.is_some_and(|runs| runs > 4));
    }

    /// Runs that end with nothing, and a figure below zero.
    #[test]
    fn results_without_a_ratio_are_judged_by_their_difference() {
        let mut rng = Rng::new(9);
        for (low, high) in [(0.0, 50.0), (-50.0, -10.0), (-5.0, 5.0)] {
            let mut values = results(&mut rng, low, 8);
            values.extend(results(&mut rng, high, 8));
            let groups = modes(&values, &Options::default());
            assert_eq!(groups.len(), 2, "{values:?}");
            let contrast = Contrast { groups: &groups, is_continuum: false };
            let mut level = |name: &str, middle| Level {
                name: name.into(),
                results: results(&mut rng, middle, 8),
            };
            let forced = [level("one", low), level("two", high)];
            let found = judge(contrast, &forced, None, P_CHANGE, 1);
            assert_eq!(found.verdict, Verdict::Confirmed, "{found:?}");
            assert!(found.explained.is_some_and(|share| (0.9..1.1).contains(&share)), "{found:?}");
            assert!(found.forced.is_none() && found.observed_ratio == 1.0, "{found:?}");
            let same = [level("one", high), level("two", high)];
            assert_eq!(judge(contrast, &same, None, P_CHANGE, 1).verdict, Verdict::Refuted);
            let limit = judge_limit(&forced, "one", true, P_CHANGE);
            assert_eq!(limit.verdict, Verdict::Confirmed, "{limit:?}");
            assert_eq!(judge_limit(&forced, "one", false, P_CHANGE).verdict, Verdict::Refuted);
        }
    }
}
