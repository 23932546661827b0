//! The confirming runs: suspects are forced to each of their levels, and judged by what that
//! changes.

use millstream_diagnose::causes::{Cause, Force, Kind, Look, Scene};
use millstream_diagnose::compare::P_CHANGE;
use millstream_diagnose::features::features;
use millstream_diagnose::separate::Separation;
use millstream_diagnose::verdict::{Contrast, Judgement, Level, Verdict, judge, judge_limit};
use millstream_record::RunRecord;
use millstream_record::error::Error;

use super::{Investigation, Options, Subject};

/// Forces the first suspects that can be forced here, and what the user has tried; judges each
/// suspect that is forced so. An error or an interrupt leaves the verdict open.
pub(super) fn force(
    subject: &mut dyn Subject,
    found: &mut Investigation,
    options: &Options,
    tell: &mut dyn FnMut(&str),
) {
    // The runs of each way to force that was gone: another cause that is forced so is judged by
    // them, too.
    let mut gone: Vec<(Force, Vec<RunRecord>)> = Vec::new();
    for place in 0..found.suspects.len() {
        let is_tried = place >= found.suspects.len() - options.tried.len();
        let enough = !is_tried && gone.len() >= options.causes;
        let force = match way_to_force(subject, found, place, enough, &gone) {
            Ok(force) => force,
            Err(why) => {
                found.suspects[place].not_forced = Some(why);
                continue;
            }
        };
        if !gone.iter().any(|(before, _)| *before == force) {
            tell(&format!(
                "Forcing {} to {} ({} runs each).",
                force.factor,
                force.levels.join(" and "),
                options.forced_runs
            ));
            match subject.force(&force, options.forced_runs) {
                Ok(runs) => gone.push((force.clone(), runs)),
                Err(error) => {
                    found.suspects[place].not_forced = Some(error.to_string());
                    if matches!(error, Error::Interrupted) {
                        break;
                    }
                    continue;
                }
            }
        }
        if let Some((_, runs)) = gone.iter().find(|(before, _)| *before == force) {
            judge_suspect(found, place, &force, runs, options);
            found.suspects[place].set_at = subject.set_at(&force);
        }
    }
}

/// The first way to force a suspect that is open here, or why there is none.
fn way_to_force(
    subject: &dyn Subject,
    found: &Investigation,
    place: usize,
    enough: bool,
    gone: &[(Force, Vec<RunRecord>)],
) -> Result<Force, String> {
    let cause = &found.suspects[place].cause;
    if cause.kind == Kind::Separates && found.contrast.len() < 2 {
        return Err("there are no groups that it could explain".to_owned());
    }
    let mut why = "nothing here sets it".to_owned();
    for force in &cause.force {
        match subject.may_force(force) {
            Err(reason) => why = reason,
            Ok(()) if gone.iter().any(|(before, _)| before == force) || !enough => {
                return Ok(force.clone());
            }
            Ok(()) => why = format!("{} causes were forced before it", gone.len()),
        }
    }
    Err(why)
}

/// Judges a suspect by the runs in which it was forced.
fn judge_suspect(
    found: &mut Investigation,
    place: usize,
    force: &Force,
    runs: &[RunRecord],
    options: &Options,
) {
    let results = |level: &String| -> Vec<f64> {
        runs.iter()
            .filter(|run| run.validity.valid && run.factors.get(&force.factor) == Some(level))
            .filter_map(|run| run.result(&found.result))
            .collect()
    };
    let levels: Vec<Level> = force
        .levels
        .iter()
        .map(|level| Level { name: level.clone(), results: results(level) })
        .collect();
    let free = force.free.as_deref();
    // However many causes are forced, one is confirmed by chance as rarely as of a single one.
    let chance = P_CHANGE / options.causes.max(1) as f64;
    let judgement = match (found.suspects[place].cause.kind, free) {
        (Kind::Limits, Some(free)) => judge_limit(&levels, free, found.higher_is_better, chance),
        _ => {
            let is_continuum = found.modes.len() < 2;
            let observed = Contrast { groups: &found.contrast, is_continuum };
            judge(observed, &levels, free, chance, options.seed)
        }
    };
    let away = forced_away(&found.suspects[place].cause, force, runs, &judgement);
    let suspect = &mut found.suspects[place];
    let mut judgement = judgement;
    if matches!(judgement.verdict, Verdict::Refuted | Verdict::CannotTell) && !away {
        // More of such runs would not tell either.
        (judgement.verdict, judgement.runs_needed) = (Verdict::AssociatedOnly, None);
        suspect.not_forced = Some(format!(
            "setting {} did not take it away, so that its runs prove nothing",
            force.factor
        ));
    }
    suspect.forced = levels.into_iter().map(|level| (level.name, level.results)).collect();
    suspect.forced_factor = Some(force.factor.clone());
    suspect.judgement = Some(judgement);
}

/// Share of the runs in which a cause may still show where it was forced away.
const LEFT_MOST: f64 = 0.2;

/// Returns true when a cause no longer shows in the runs in which it was forced away: a program may
/// have set for itself what was set for it. A cause that limits is looked for in all best runs
/// together. A cause that separates is looked for in each run, and few may still show it. A cause
/// that shows in no single run, or looks at no feature, counts as gone.
fn forced_away(cause: &Cause, force: &Force, runs: &[RunRecord], judgement: &Judgement) -> bool {
    // A cause that looks at no feature shows in none.
    if cause.needs.is_empty() {
        return true;
    }
    let shows = |runs: &[&RunRecord]| {
        let scene = Scene::new(&features(runs), &[], &Separation::default());
        matches!(scene.look(cause), Look::Fits { .. })
    };
    let valid = || runs.iter().filter(|run| run.validity.valid);
    let level = |run: &RunRecord| run.factors.get(&force.factor).cloned();
    match cause.kind {
        Kind::Limits => {
            let best = valid().filter(|run| level(run).as_ref() == Some(&judgement.levels.1));
            !shows(&best.collect::<Vec<_>>())
        }
        // The program may have set it in a few runs.
        Kind::Separates => {
            let held: Vec<&RunRecord> = valid().filter(|run| level(run) != force.free).collect();
            let left = held.iter().filter(|run| shows(&[run])).count();
            left as f64 <= LEFT_MOST * held.len() as f64
        }
    }
}
