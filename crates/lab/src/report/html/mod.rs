//! The page: everything of an experiment in one file without network or script.

mod activity;
mod cards;
mod data;
mod dots;
mod forest;
mod machine;
mod soak;
mod surroundings;
mod svg;

use minijinja::{Environment, context};
use serde::Serialize;

use super::levels;
use super::metric::Better;
use super::model::{Case, Model};
use super::text::{extent, interval_text};
use super::verdict;
use crate::record::RunRecord;

const PAGE: &str = include_str!("page.html");
/// How pages look, those of investigations too.
pub(crate) const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(super) fn render(model: &Model<'_>) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_template("page.html", PAGE)?;
    let data = data::embedded(model).map_err(|error| {
        minijinja::Error::new(minijinja::ErrorKind::BadSerialization, error.to_string())
    })?;
    let experiment = model.experiment;
    let cases: Vec<CaseView> =
        model.cases.iter().enumerate().map(|(at, case)| case_view(model, at, case)).collect();
    environment.get_template("page.html")?.render(context! {
        style => STYLE,
        experiment,
        verdict => verdict::sentence(model),
        facts => facts(model),
        stacks => stacks(model),
        sweeps => super::sweep::sentences(model),
        levels => super::levels::lines(model),
        forced => super::forced::sentences(model),
        overruns => super::overruns::lines(model),
        stages => super::stages::lines(model),
        threads => super::threads::lines(model),
        soaks => soak::views(model),
        distances => super::distance::lines(model),
        forest => forest::plot(model),
        matrices => super::matrix::of(model),
        cases,
        held => model.held.iter().filter(|(_, held)| !held.is_empty()).collect::<Vec<_>>(),
        kinds => activity::KINDS,
        activity => cards::of(model),
        cpu_columns => machine::CPU_COLUMNS,
        machines => model.cases.iter().map(machine::tables).collect::<Vec<_>>(),
        runs => model.runs.iter().map(|run| run_view(model, run)).collect::<Vec<_>>(),
        has_others => model.runs.iter().any(|run| !model.counts(run)),
        groups => surroundings::facts(model),
        absent => &experiment.environment.absent,
        changed => surroundings::changed(model),
        probes => surroundings::probes(model),
        notes => model.notes(),
        all_runs => model.runs.len(),
        applied => surroundings::applied(model),
        command => shell_words(&experiment.command_line),
        data,
    })
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
}

#[derive(Serialize)]
struct PlotView {
    label: String,
    unit: String,
    hint: &'static str,
    svg: String,
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

fn case_view(model: &Model<'_>, at: usize, case: &Case<'_>) -> CaseView {
    let headline = case.tables.iter().enumerate().filter(|(_, table)| table.metric.headline);
    let plots = headline.map(|(at, table)| PlotView {
        label: table.metric.label.clone(),
        unit: table.scale.unit.clone(),
        hint: match table.metric.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "",
        },
        svg: dots::plot(case, at),
    });
    CaseView {
        id: format!("case-{at}"),
        label: case.label.clone(),
        sentences: verdict::of_case(case),
        plots: plots.collect(),
        rows: result_views(model, case),
    }
}

fn result_views(model: &Model<'_>, case: &Case<'_>) -> Vec<ResultView> {
    let mut views = Vec::new();
    for table in &case.tables {
        for (row, cell) in case.rows.iter().zip(&table.cells) {
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

/// Why a run does not count.
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
