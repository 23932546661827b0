//! The sections of a report, in their order: a further one is a file that answers parts, or lines,
//! and an entry here.

use super::frame::{Chapter, Part, Section};
use super::html::{answer, results, runs, surroundings, time};
use super::model::Model;
use super::room::Scope;
use super::{
    distance, forced, html, idle, levels, overruns, soak, stages, sweep, tables, text, threads,
};

/// Lines of the comparison of levels in the text at most.
const LEVEL_LINES: usize = 24;

const fn chapter(id: &'static str, name: &'static str, heading: &'static str) -> Chapter {
    Chapter { id, name, heading }
}

const ANSWER: Chapter = chapter("answer", "Answer", "");
const RESULTS: Chapter = chapter("results", "Results", "Results");
const TIME: Chapter = chapter("time", "Over time", "Over time");
const MACHINE: Chapter = chapter("machine", "Machine", "Machine");
const TCP: Chapter = chapter("tcp", "TCP", "TCP");
const RUNS: Chapter = chapter("runs", "Runs", "Runs");
const SIDES: Chapter = chapter("sides", "Sides", "What differs between the sides");
const ENVIRONMENT: Chapter = chapter("environment", "Environment", "Environment");
const REPEAT: Chapter = chapter("repeat", "Repeat", "How to repeat");

/// Returns all sections.
pub(super) fn all<'a>(scope: Scope<'a>) -> Vec<Section<'a>> {
    let lines = |chapter, heading, lines: fn(&Model<'_>) -> Vec<String>, lead: &str| {
        listed(scope, chapter, heading, lines, lead, usize::MAX)
    };
    let mut all = vec![
        Section::new(ANSWER, "", answer::parts(scope)),
        Section::new(RESULTS, "", results::head(scope)),
        lines(RESULTS, "Sweeps", sweep::sentences, ""),
        listed(
            scope,
            RESULTS,
            "Levels against the first",
            levels::lines,
            "Levels of a factor against its first, all else being equal.",
            LEVEL_LINES,
        )
        .folded(),
        lines(RESULTS, "Causes forced", forced::sentences, ""),
        Section::new(RESULTS, "", vec![Part::on_page(move || results::matrices(scope))]),
    ];
    all.extend(results::cases(scope).map(|(label, parts)| Section::new(RESULTS, label, parts)));
    all.push(Section::new(TIME, "", vec![Part::on_page(move || time::parts(scope))]));
    all.extend(soak::sections(scope));
    all.extend([
        lines(
            MACHINE,
            "Where datagrams were lost",
            overruns::lines,
            "On their way by a router: medians over the runs that count of the shares of all that were dropped at a \
             known place, over the whole run.",
        ),
        lines(
            MACHINE,
            "Where the engine's time went",
            stages::lines,
            "Of Millstream's near engine, or of its router: medians over the runs that count, as many as are named, of \
             one turn in 16, set-up and warm-up included.",
        ),
        lines(
            MACHINE,
            "What more threads cost",
            threads::lines,
            "What a unit of work costs with more threads: CPU time of the ends and of whoever carried their packets, \
             by how often the CPU clock met each function, over all of a run.",
        ),
        lines(
            MACHINE,
            "Where the host kept the CPUs",
            distance::lines,
            "Round trip of a cache line between the two CPUs, the longest seen before, inside and after each run. \
             Medians over runs that count; a ratio only of four runs or more of either kind.",
        ),
        lines(MACHINE, "Trouble that the machine counted", tables::lines, ""),
        lines(MACHINE, "Where idle CPUs were", idle::lines, ""),
        Section::new(MACHINE, "", vec![Part::on_page(move || html::machine::lead(scope))]),
    ]);
    let full = results::full(scope).iter();
    all.extend(full.clone().map(|case| {
        let parts = Part::on_page(move || html::machine::tables(case, scope.detailed));
        Section::new(MACHINE, case.label.clone(), vec![parts])
    }));
    let connections = Part::on_page(move || html::machine::connections(scope));
    all.extend([
        Section::new(TCP, "", vec![connections]),
        Section::new(RUNS, "", vec![Part::on_page(move || runs::parts(scope))]),
        Section::new(Chapter::NONE, "Runs that do not count", text::invalid(scope.model)),
        Section::new(SIDES, SIDES.heading, surroundings::differences(scope)),
        Section::new(
            ENVIRONMENT,
            "",
            vec![Part::on_page(move || surroundings::environment(scope))],
        ),
        Section::new(REPEAT, "", vec![Part::on_page(move || surroundings::repeat(scope))]),
        Section::new(Chapter::NONE, "", text::end(scope.model)),
    ]);
    all
}

/// Returns a section of lines, after a sentence of the page.
fn listed<'a>(
    Scope { model, room, .. }: Scope<'a>,
    chapter: Chapter,
    heading: &'static str,
    lines: fn(&Model<'_>) -> Vec<String>,
    lead: &str,
    most: usize,
) -> Section<'a> {
    let lines = lines(model);
    let lead = Part::Styled("lead", lead.to_owned());
    let parts = match lines.is_empty() {
        true => vec![],
        false => vec![lead, Part::Lines(lines, [most, room.lines])],
    };
    Section::new(chapter, heading, parts)
}
