//! The room that a page has for runs and cases, and the sentences about those that are left out.

use std::collections::HashSet;

use millstream_diagnose::units::grouped;
use millstream_record::RunRecord;

use super::detail::{each, in_detail};
use super::model::{Case, Model};

/// Bytes of a page at most.
pub(super) const PAGE_BYTES: usize = 1_990_000;

/// CPUs that a row of the machine's tables has at most, as for its size.
const CPUS: usize = 16;

/// The subject of all sections, and the room for it.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) model: &'a Model<'a>,
    /// The runs that a page looks at one by one.
    pub(super) detailed: &'a Detailed<'a>,
    pub(super) room: Room,
}

/// The most that a page shows of each thing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Points of all plots of results.
    pub(super) points: usize,
    /// Lines of the table of runs.
    pub(super) runs: usize,
    /// Lines of a list, notes and ratios among them.
    pub(super) lines: usize,
    /// Lines of all tables with a line for each case.
    pub(super) case_lines: usize,
    /// About the bytes of what there is of every case: plots, tables of results, machine and
    /// connections.
    pub(super) case_bytes: usize,
    /// Steps that the runs over time have.
    pub(super) steps: usize,
}

impl Room {
    /// The `1 / part` of what there is room for where all else is of ordinary size.
    pub(super) fn of(part: usize) -> Self {
        Self {
            points: 3_000 / part,
            runs: 500 / part,
            lines: 300 / part,
            case_lines: 1_500 / part,
            case_bytes: 800_000 / part,
            steps: 5_000 / part,
        }
    }

    /// Points that each row of a plot may have.
    pub(super) fn points_each(&self, cases: &[Case<'_>]) -> usize {
        let rows = |case: &Case<'_>| {
            let plots = case.tables.iter().filter(|table| table.metric.headline).count();
            let sizes = case.rows.iter().map(|row| row.group.all().count());
            std::iter::repeat_n(sizes.collect::<Vec<_>>(), plots).flatten().collect::<Vec<_>>()
        };
        each(&cases.iter().flat_map(rows).collect::<Vec<_>>(), self.points)
    }

    /// Returns the number of cases that are shown, from the first on, and the number of those that
    /// are shown in full.
    pub(super) fn cases(&self, cases: &[Case<'_>]) -> (usize, usize) {
        let headlines =
            |case: &Case<'_>| case.tables.iter().filter(|table| table.metric.headline).count();
        let brief = |case: &Case<'_>| 600 + headlines(case) * (1_800 + case.rows.len() * 400);
        let more = |case: &Case<'_>| {
            let results = (case.tables.len() - headlines(case)) * 360;
            case.rows.iter().map(|row| results + 4_000 + cpus(row.group.all()) * 340).sum::<usize>()
        };
        // The first half is for showing many, the rest for showing all of some.
        let first = |cases: &[Case<'_>], room: usize, bytes: &dyn Fn(&Case<'_>) -> usize| {
            let mut used = 0;
            let fits = cases.iter().take_while(|case| {
                let is_in = used + bytes(case) <= room;
                used += if is_in { bytes(case) } else { 0 };
                is_in
            });
            (fits.count(), used)
        };
        let (shown, used) = first(cases, self.case_bytes / 2, &brief);
        let shown = shown.max(1).min(cases.len());
        let (full, _) = first(&cases[..shown], self.case_bytes - used, &more);
        (shown, full)
    }
}

fn cpus<'a>(mut runs: impl Iterator<Item = &'a RunRecord>) -> usize {
    let cpus = runs.find_map(|run| run.probes.cpu.as_ref());
    cpus.map_or(0, |cpu| cpu.cpus.len()).min(CPUS)
}

/// The runs that are looked at one by one.
#[derive(Default)]
pub(super) struct Detailed<'a> {
    /// Their ids; `None` where they are all runs.
    ids: Option<HashSet<&'a str>>,
    /// The sentence that says how many of how many runs these are; empty where these are all runs.
    pub(super) said: String,
}

impl<'a> Detailed<'a> {
    pub(super) fn of(model: &Model<'a>) -> Self {
        let chosen = in_detail(model.runs);
        if chosen.len() == model.runs.len() {
            return Self { ids: None, said: String::new() };
        }
        let said = format!(
            "Of {} runs {} are looked at one by one here: spread evenly over the order of execution, with the lowest and \
             the highest result of each configuration and stack among them. The results are of all.",
            grouped(model.runs.len() as f64),
            chosen.len(),
        );
        let ids = chosen.iter().map(|&at| model.runs[at].id.as_str()).collect();
        Self { ids: Some(ids), said }
    }

    /// Returns true when all runs are looked at one by one.
    pub(super) fn is_all(&self) -> bool {
        self.ids.is_none()
    }

    pub(super) fn has(&self, run: &RunRecord) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(run.id.as_str()))
    }

    /// Returns those of `runs` that are looked at one by one.
    pub(super) fn among<'r>(
        &self,
        runs: impl IntoIterator<Item = &'r RunRecord>,
    ) -> Vec<&'r RunRecord> {
        runs.into_iter().filter(|run| self.has(run)).collect()
    }
}
