//! The page: everything of an experiment in one file without network or script.

mod activity;
mod cards;
mod data;
mod dots;
mod forest;
mod machine;
mod room;
mod soak;
mod surroundings;
mod svg;

use millstream_record::RunRecord;
use minijinja::{Environment, Template, context};
use room::{Detailed, PAGE_BYTES, Room};
use serde::Serialize;

use super::detail::spread;
use super::matrix::{self, Matrix};
use super::metric::Better;
use super::model::{Case, Model};
use super::text::{extent, interval_text};
use super::{levels, sections, verdict};

const PAGE: &str = include_str!("page.html");
/// The style of all pages, those of investigations too.
pub const STYLE: &str = include_str!("style.css");

/// The whole page. Where it would become too large, everything of which there is much has less
/// room, until it is not.
pub(super) fn render(model: &Model<'_>) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_template("page.html", PAGE)?;
    let template = environment.get_template("page.html")?;
    let detailed = Detailed::of(model);
    model.make_cells();
    let (mut part, mut page) = (1, String::new());
    while part <= LEAST_PART {
        page = without_data(&template, model, &detailed, &Room::of(part))?;
        if page.len() <= PAGE_BYTES - DATA_BYTES {
            break;
        }
        part *= 2;
    }
    let left = PAGE_BYTES.saturating_sub(page.len()).min(data::SIZE_BYTES);
    let data = data::embedded(model, &detailed, left).map_err(|error| {
        minijinja::Error::new(minijinja::ErrorKind::BadSerialization, error.to_string())
    })?;
    let at = page.rfind(DATA_ENDS).unwrap_or(page.len());
    page.insert_str(at, &data);
    Ok(page)
}

/// The smallest part of the ordinary room that is tried, and the least that is left for the
/// records.
const LEAST_PART: usize = 64;
const DATA_BYTES: usize = 100_000;
/// The text that follows the records in the page.
const DATA_ENDS: &str = "</script>";

fn without_data(
    template: &Template<'_, '_>,
    model: &Model<'_>,
    detailed: &Detailed<'_>,
    room: &Room,
) -> Result<String, minijinja::Error> {
    let experiment = model.experiment;
    let (shown, full) = room.cases(&model.cases);
    let points = room.points_each(&model.cases[..shown]);
    let cases = model.cases[..shown].iter().enumerate();
    let cases: Vec<CaseView> =
        cases.map(|(at, case)| case_view(model, at, case, points, at < full)).collect();
    let machines = model.cases[..full].iter().map(|case| machine::tables(case, detailed));
    let forest = forest::plot(model, room.lines / 2);
    let forest_left_out = forest.as_ref().map_or(0, |(_, all)| all.saturating_sub(room.lines / 2));
    let (notes, notes_left_out) = first(model.notes(), room.lines);
    let (soaks, soaks_left_out) = first(soak::views(model), room.lines / 10);
    let (matrices, matrix_left_out) = matrices(model, room.case_lines);
    let listed = listed(model, detailed, room.runs);
    template.render(context! {
        style => STYLE,
        experiment,
        verdict => verdict::sentence(model),
        facts => facts(model),
        stacks => stacks(model),
        result_sections => sections::views(model, false, room.lines),
        machine_sections => sections::views(model, true, room.lines),
        soaks,
        soaks_left_out,
        forest => forest.map(|(svg, _)| svg),
        forest_left_out,
        matrices,
        matrix_left_out,
        cases,
        all_cases => model.cases.len(),
        held => model.held.iter().filter(|(_, held)| !held.is_empty()).collect::<Vec<_>>(),
        kinds => activity::KINDS,
        activity => cards::of(&model.cases[..shown], detailed, room.steps),
        cpu_columns => machine::CPU_COLUMNS,
        machines => machines.collect::<Vec<_>>(),
        runs => listed.iter().map(|run| run_view(model, run)).collect::<Vec<_>>(),
        has_others => model.runs.iter().any(|run| !model.counts(run)),
        groups => surroundings::facts(model),
        absent => &experiment.environment.absent,
        changed => surroundings::changed(model, detailed),
        probes => surroundings::probes(model, detailed),
        notes,
        notes_left_out,
        all_runs => model.runs.len(),
        detail => detailed.said,
        applied => surroundings::applied(model, detailed),
        command => shell_words(&experiment.command_line),
    })
}

/// The first of a list, and how many more there are.
fn first<T>(mut list: Vec<T>, most: usize) -> (Vec<T>, usize) {
    let more = list.len().saturating_sub(most);
    list.truncate(most);
    (list, more)
}

/// The matrices with so many lines in all, and how many more each has.
fn matrices(model: &Model<'_>, lines: usize) -> (Vec<Matrix>, Vec<usize>) {
    let mut all = matrix::of(model);
    let most = (lines / all.len().max(1)).max(1);
    let cut = |one: &mut Matrix| {
        let (lines, more) = first(std::mem::take(&mut one.lines), most);
        one.lines = lines;
        more
    };
    let more = all.iter_mut().map(cut).collect();
    (all, more)
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

/// The line of facts under the title.
fn facts(model: &Model<'_>) -> Vec<(&'static str, String)> {
    let experiment = model.experiment;
    let fact = |name: &str| experiment.environment.get(name).map(str::to_owned);
    let mut facts = vec![(
        "measured",
        experiment.started_at.to_string().replace('T', " ").replace(".000Z", " UTC"),
    )];
    if let Some((day, time)) = facts[0].1.clone().split_once(' ') {
        let minute = time.get(..5).unwrap_or(time);
        facts[0].1 = format!("{day} {minute} UTC");
    }
    facts.push(("extent", extent(model)));
    if let Some(cpu) = fact("cpu.model") {
        let count = fact("cpu.count").map_or(String::new(), |count| format!("{count} × "));
        facts.push(("processor", format!("{count}{cpu}")));
    }
    if let Some(kernel) = fact("kernel.release") {
        facts.push(("kernel", kernel));
    }
    if let Some(version) = fact("millstream.version") {
        let commit =
            fact("millstream.commit").map_or(String::new(), |commit| format!(" ({commit})"));
        facts.push(("millstream", format!("{version}{commit}")));
    }
    facts.push(("seed", experiment.seed.to_string()));
    facts
}

/// Every stack once with its colour, in the order of the cases.
fn stacks(model: &Model<'_>) -> Vec<(usize, String)> {
    let mut stacks: Vec<(usize, String)> = Vec::new();
    for row in model.cases.iter().flat_map(|case| &case.rows) {
        let stack = &row.group.key.stack;
        if stacks.iter().all(|(_, known)| known != stack) {
            stacks.push((row.place, stack.clone()));
        }
    }
    stacks
}

#[derive(Serialize)]
struct CaseView {
    id: String,
    label: String,
    sentences: Vec<String>,
    plots: Vec<PlotView>,
    rows: Vec<ResultView>,
    /// True when the rows have all results; false for the main ones alone.
    is_full: bool,
}

#[derive(Serialize)]
struct PlotView {
    label: String,
    unit: String,
    hint: &'static str,
    svg: String,
    left_out: String,
}

#[derive(Serialize)]
struct ResultView {
    metric: String,
    key: String,
    stack: String,
    place: usize,
    headline: bool,
    median: String,
    interval: String,
    n: usize,
    mad: String,
    range: String,
    ratio: String,
    judged: &'static str,
}

fn case_view(
    model: &Model<'_>,
    at: usize,
    case: &Case<'_>,
    points: usize,
    is_full: bool,
) -> CaseView {
    let headline = case.tables.iter().enumerate().filter(|(_, table)| table.metric.headline);
    let plots = headline.map(|(at, table)| {
        let (svg, left_out) = dots::plot(case, at, points);
        PlotView {
            label: table.metric.label.clone(),
            unit: table.scale.unit.clone(),
            hint: match table.metric.better {
                Better::Higher => "higher is better",
                Better::Lower => "lower is better",
                Better::Neither => "",
            },
            svg,
            left_out,
        }
    });
    CaseView {
        id: format!("case-{at}"),
        label: case.label.clone(),
        sentences: verdict::of_case(case),
        plots: plots.collect(),
        rows: result_views(model, case, is_full),
        is_full,
    }
}

fn result_views(model: &Model<'_>, case: &Case<'_>, is_full: bool) -> Vec<ResultView> {
    let mut views = Vec::new();
    for table in case.tables.iter().filter(|table| is_full || table.metric.headline) {
        for (row, cell) in case.rows.iter().zip(case.cells(table)) {
            let Some(summary) = &cell.summary else { continue };
            let number = |value| table.scale.number(value);
            let comparison = cell.comparison.or_else(|| levels::comparison(model, case, table));
            let comparison = comparison.as_ref();
            views.push(ResultView {
                metric: table.metric.label.clone(),
                key: table.metric.key.clone(),
                stack: row.label.clone(),
                place: row.place,
                headline: table.metric.headline,
                median: table.scale.with_unit(summary.median),
                interval: interval_text(summary, &table.scale),
                n: summary.n,
                mad: number(summary.mad),
                range: format!("{} to {}", number(summary.min), number(summary.max)),
                ratio: comparison.map_or_else(String::new, verdict::ratio_with_interval),
                judged: comparison.map_or("", |one| verdict::judgement(one, table.metric.better)),
            });
        }
    }
    views
}

#[derive(Serialize)]
struct RunView {
    order: u32,
    block: u32,
    case: String,
    stack: String,
    place: usize,
    results: Vec<String>,
    path: String,
    busy: String,
    counts: bool,
    reasons: String,
}

fn run_view(model: &Model<'_>, run: &RunRecord) -> RunView {
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
    RunView {
        order: run.order,
        block: run.block,
        case: place.map_or_else(String::new, |(case, _)| case.label.clone()),
        stack: place.map_or_else(String::new, |(_, row)| row.label.clone()),
        place: place.map_or(0, |(_, row)| row.place),
        results: results.collect(),
        path,
        busy: busy.map_or_else(String::new, |busy| {
            format!("{:.0} %", busy * 100.0 / length / cpus as f64)
        }),
        counts: model.counts(run),
        reasons: reasons(run),
    }
}

/// Returns the reasons why a run does not count.
fn reasons(run: &RunRecord) -> String {
    match (run.validity.valid, &run.validity.reasons[..]) {
        (true, _) => "its CPUs were apart".to_owned(),
        (false, []) => "no reason given".to_owned(),
        (false, reasons) => reasons.join("; "),
    }
}

/// The words as a shell would take them.
fn shell_words(words: &[String]) -> String {
    let plain = |word: &String| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_./=,:@%+".contains(&byte))
    };
    let quoted = words.iter().map(|word| {
        if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_survive_a_shell() {
        let words =
            ["millstream", "run", "my file.toml", "--set", "a=b,c", "it's"].map(str::to_owned);
        assert_eq!(
            super::shell_words(&words),
            "millstream run 'my file.toml' --set a=b,c 'it'\\''s'"
        );
    }
}
