//! Sections of lines, which text and page show alike: a further one is a file that answers lines,
//! and an entry here.

use serde::Serialize;

use super::model::Model;
use super::{distance, forced, idle, levels, overruns, stages, sweep, tables, threads};

/// Lines of the comparison of levels in the text at most.
const LEVEL_LINES: usize = 24;

/// A place on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Among the results.
    Result,
    /// The same, to be opened by the reader.
    Folded,
    /// About the machine.
    Machine,
}

/// Lines under a heading.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) kind: Kind,
    pub(super) heading: &'static str,
    /// A sentence of the page before the lines, or nothing.
    lead: &'static str,
    /// Lines in the text at most.
    most: usize,
    /// Returns the lines, none where there is nothing to say.
    pub(super) lines: fn(&Model<'_>) -> Vec<String>,
}

/// All sections, in their order.
pub(super) const SECTIONS: [Section; 9] = [
    section(Kind::Result, "Sweeps", sweep::sentences, ""),
    Section {
        most: LEVEL_LINES,
        ..section(
            Kind::Folded,
            "Levels against the first",
            levels::lines,
            "Levels of a factor against its first, all else being equal.",
        )
    },
    section(Kind::Result, "Causes forced", forced::sentences, ""),
    section(
        Kind::Machine,
        "Where datagrams were lost",
        overruns::lines,
        "On their way by a router: medians over the runs that count of the shares of all that were dropped at a known place, \
         over the whole run.",
    ),
    section(
        Kind::Machine,
        "Where the engine's time went",
        stages::lines,
        "Of Millstream's near engine, or of its router: medians over the runs that count, as many as are named, of one turn \
         in 16, set-up and warm-up included.",
    ),
    section(
        Kind::Machine,
        "What more threads cost",
        threads::lines,
        "What a unit of work costs with more threads: CPU time of the ends and of whoever carried their packets, by how \
         often the CPU clock met each function, over all of a run.",
    ),
    section(
        Kind::Machine,
        "Where the host kept the CPUs",
        distance::lines,
        "Round trip of a cache line between the two CPUs, the longest seen before, inside and after each run. Medians over \
         runs that count; a ratio only of four runs or more of either kind.",
    ),
    section(Kind::Machine, "Trouble that the machine counted", tables::lines, ""),
    section(Kind::Machine, "Where idle CPUs were", idle::lines, ""),
];

const fn section(
    kind: Kind,
    heading: &'static str,
    lines: fn(&Model<'_>) -> Vec<String>,
    lead: &'static str,
) -> Section {
    Section { kind, heading, lead, most: usize::MAX, lines }
}

impl Section {
    /// Returns its lines for the text.
    pub(super) fn for_text(&self, model: &Model<'_>) -> Vec<String> {
        let mut lines = (self.lines)(model);
        if lines.len() > self.most {
            let more = lines.len() - (self.most - 1);
            lines.truncate(self.most - 1);
            lines.push(format!("… and {more} more lines; the page has more (`millstream report`)"));
        }
        lines
    }
}

/// A section as the page's template takes it.
#[derive(Debug, Serialize)]
pub(super) struct View {
    heading: &'static str,
    lead: &'static str,
    is_folded: bool,
    lines: Vec<String>,
}

/// Returns the sections of the page with something to say, of the machine or of the results.
pub(super) fn views(model: &Model<'_>, of_machine: bool, room: usize) -> Vec<View> {
    let wanted = SECTIONS.iter().filter(|one| (one.kind == Kind::Machine) == of_machine);
    let view = |one: &Section| View {
        heading: one.heading,
        lead: one.lead,
        is_folded: one.kind == Kind::Folded,
        lines: super::first_of((one.lines)(model), room),
    };
    wanted.map(view).filter(|one| !one.lines.is_empty()).collect()
}
