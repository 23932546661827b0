//! The table of all runs.

use millstream_record::RunRecord;

use super::super::detail::spread;
use super::super::frame::{Cell, Grid, Part, Row};
use super::super::model::Model;
use super::super::room::{Detailed, Scope};
use super::super::text::reasons;

const LEAD: &str = "In the order of execution. “Path” compares the bytes that the interface under test counted (headers \
                    included) with those that the application reported.";

/// Returns the table, opened where runs do not count.
pub(in super::super) fn parts<'a>(scope: Scope<'a>) -> Vec<Part<'a>> {
    let Scope { model, detailed, room } = scope;
    let listed = listed(model, detailed, room.runs);
    let all = model.runs.len();
    let has_others = model.runs.iter().any(|run| !model.counts(run));
    let mut said = match listed.len() < all {
        true => format!("{} of {all} runs", listed.len()),
        false => format!("{all} runs"),
    };
    if has_others {
        said.push_str(", some of which do not count");
    }
    let columns = [">run", ">block", "case", "stack", "results", ">CPU busy", "path", "counts?"];
    let grid = Grid::new("Runs", columns).rows(listed.iter().map(|run| row(model, run)));
    let mut folded = vec![];
    if listed.len() < all {
        folded.push(Part::line(
            "Of those that count and of those that do not, the ones listed are spread evenly over the order of execution. \
             `millstream show … --json FILE` writes all runs.",
        ));
    }
    folded.push(Part::Grid(grid));
    vec![Part::Styled("lead", LEAD.to_owned()), Part::Folded(said, has_others, folded)]
}

/// The runs of the table: all, or of those that do not count as many as half of it takes, and of
/// the others as many as go beside them.
fn listed<'a>(model: &Model<'a>, detailed: &Detailed<'_>, most: usize) -> Vec<&'a RunRecord> {
    let runs: Vec<&RunRecord> = model.runs.iter().filter(|run| detailed.has(run)).collect();
    if runs.len() <= most {
        return runs;
    }
    let (counting, others): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| model.counts(run));
    let others = spread(&others, (most / 2).max(most.saturating_sub(counting.len())));
    let mut listed = spread(&counting, most - others.len());
    listed.extend(others);
    listed.sort_by_key(|run| run.order);
    listed
}

fn row(model: &Model<'_>, run: &RunRecord) -> Row {
    let place = model.place_of(run);
    let tables = place.map_or(&[][..], |(case, _)| &case.tables[..]);
    let results = tables
        .iter()
        .filter(|table| table.metric.headline)
        .filter_map(|table| Some(table.scale.with_unit(run.result(&table.metric.key)?)));
    let path = run.path.as_ref().map_or_else(String::new, |path| {
        let share = path.counted_bytes as f64 / path.reported_bytes.max(1) as f64;
        format!("{:.1} % on {}", share * 100.0, path.interface)
    });
    let cpus = run.probes.cpu.as_ref().map_or(0, |cpu| cpu.cpus.len());
    let length = run.window.end_s - run.window.start_s;
    let busy = run.probes.busy_cpu_s(run.window).filter(|_| cpus > 0 && length > 0.0);
    let busy = busy.map(|busy| format!("{:.0} %", busy * 100.0 / length / cpus as f64));
    let counts = model.counts(run);
    let (case, stack) = place.map_or((String::new(), Cell::default()), |(case, row)| {
        (case.label.clone(), Cell::of_stack(row.place, &row.label))
    });
    let counted = if counts { "yes".to_owned() } else { format!("no: {}", reasons(run)) };
    let cells = vec![
        run.order.to_string().into(),
        run.block.to_string().into(),
        Cell::from(case).with_class("w"),
        stack,
        Cell::from(results.collect::<Vec<_>>().join(" · ")).with_class("w"),
        busy.unwrap_or_default().into(),
        Cell::from(path).with_class("w"),
        counted.into(),
    ];
    Row { class: if counts { "" } else { "invalid" }, cells }
}
