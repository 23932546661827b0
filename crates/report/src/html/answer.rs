//! The question, the answer, and what to keep in mind.

use super::super::frame::Part;
use super::super::room::Scope;
use super::super::text::held;
use super::super::verdict;
use super::{forest, surroundings};

/// Returns the question, the answer and what to keep in mind. A text has the answer at its end,
/// where a terminal shows it.
pub(in super::super) fn parts<'a>(scope: Scope<'a>) -> Vec<Part<'a>> {
    let Scope { model, room, .. } = scope;
    let experiment = model.experiment;
    let mut id = format!("{}  {}", experiment.id, experiment.started_at);
    if experiment.finished_at.is_none() {
        let (runs, planned) = (model.runs.len(), experiment.planned_runs);
        id.push_str(&format!("  (unfinished: {runs} of {planned} runs)"));
    }
    let mut parts = vec![Part::InText(id)];
    if !experiment.question.is_empty() {
        parts.push(Part::Question(experiment.question.clone()));
    }
    parts.extend(held(model).map(|(workload, levels)| {
        Part::InText(format!("{workload} everywhere with {}", levels.join(" ")))
    }));
    let remarks = model.notes().into_iter().map(|(note, runs)| match runs {
        0 => note,
        runs => format!("{note} ({runs} of {} runs)", model.runs.len()),
    });
    parts.push(Part::on_page(move || vec![Part::Answer(verdict::sentence(model))]));
    parts.push(Part::Caution(remarks.collect(), room.lines));
    parts.push(Part::on_page(move || {
        std::iter::once(surroundings::facts(model)).chain(forest::parts(scope)).collect()
    }));
    parts
}
