//! The page: everything of an experiment in one file without network or script.

mod activity;
mod cards;
mod data;
mod dots;
mod forest;
mod machine;
mod svg;

use std::collections::BTreeMap;

use minijinja::{Environment, context};
use serde::Serialize;

use super::metric::Better;
use super::model::{Case, Model};
use super::text::{extent, interval_text};
use super::{units, verdict};
use crate::record::RunRecord;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

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
        model.cases.iter().enumerate().map(|(at, case)| case_view(at, case)).collect();
    environment.get_template("page.html")?.render(context! {
        style => STYLE,
        experiment,
        verdict => verdict::sentence(model),
        facts => facts(model),
        stacks => stacks(model),
        forest => forest::plot(model),
        cases,
        held => model.held.iter().filter(|(_, held)| !held.is_empty()).collect::<Vec<_>>(),
        kinds => activity::KINDS,
        activity => cards::of(model),
        cpu_columns => machine::CPU_COLUMNS,
        machines => model.cases.iter().map(machine::tables).collect::<Vec<_>>(),
        runs => model.runs.iter().map(|run| run_view(model, run)).collect::<Vec<_>>(),
        has_invalid => model.valid_runs() < model.runs.len(),
        groups => environment_groups(model),
        absent => &experiment.environment.absent,
        changed => changed(model),
        probes => probe_view(model),
        notes => notes(model),
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

fn stacks(model: &Model<'_>) -> Vec<(usize, String)> {
    let rows = model.cases.iter().flat_map(|case| &case.rows);
    let stacks: BTreeMap<usize, String> =
        rows.map(|row| (row.place, row.group.key.stack.clone())).collect();
    stacks.into_iter().collect()
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

fn case_view(at: usize, case: &Case<'_>) -> CaseView {
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
        rows: result_views(case),
    }
}

fn result_views(case: &Case<'_>) -> Vec<ResultView> {
    let mut views = Vec::new();
    for table in &case.tables {
        for (row, cell) in case.rows.iter().zip(&table.cells) {
            let Some(summary) = &cell.summary else { continue };
            let number = |value| table.scale.number(value);
            let comparison = cell.comparison.as_ref();
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
    valid: bool,
    reasons: String,
}

fn run_view(model: &Model<'_>, run: &RunRecord) -> RunView {
    let (case, stack) = model.labels_of(run);
    let case_of = model.cases.iter().find(|one| one.label == case);
    let place = case_of
        .and_then(|one| one.rows.iter().find(|row| row.label == stack))
        .map_or(0, |row| row.place);
    let tables = case_of.map_or(&[][..], |one| &one.tables[..]);
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
        case: case.to_owned(),
        stack: stack.to_owned(),
        place,
        results: results.collect(),
        path,
        busy: busy.map_or_else(String::new, |busy| {
            format!("{:.0} %", busy * 100.0 / length / cpus as f64)
        }),
        valid: run.validity.valid,
        reasons: run.validity.reasons.join("; "),
    }
}

/// The facts of the environment by subject, the part before the first dot.
fn environment_groups(model: &Model<'_>) -> Vec<(String, Vec<(String, String)>)> {
    let mut groups: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for (name, value) in &model.experiment.environment.facts {
        let (group, rest) = name.split_once('.').unwrap_or(("other", name));
        groups.entry(group).or_default().push((rest.to_owned(), value.clone()));
    }
    groups.into_iter().map(|(group, facts)| (group.to_owned(), facts)).collect()
}

/// Facts that changed from the start of the experiment to some run: name, at the start, then, number of runs.
fn changed(model: &Model<'_>) -> Vec<(String, String, String, usize)> {
    let start = &model.experiment.environment;
    let mut changes: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for run in model.runs.iter().filter(|run| !run.environment.facts.is_empty()) {
        // What only one of the two recorded says nothing about a change.
        for (name, before, now) in start.changes(&run.environment) {
            if let (Some(before), Some(now)) = (before, now) {
                *changes.entry((name.into(), before.into(), now.into())).or_default() += 1;
            }
        }
    }
    // Facts that change by themselves (load, free memory) have many values: one line is enough.
    let mut seen = BTreeMap::new();
    for ((name, before, now), runs) in changes {
        let entry = seen.entry(name.clone()).or_insert((name, before, now, 0));
        entry.3 += runs;
    }
    seen.into_values().collect()
}

/// Cost and absence of probes over all runs.
fn probe_view(model: &Model<'_>) -> (String, Vec<(String, String, usize)>) {
    let costs: Vec<f64> = model
        .runs
        .iter()
        .filter_map(|run| {
            let times = &run.probes.times_s;
            let length = times.last()? - times.first()?;
            (length > 0.0).then(|| run.probes.own_cpu_s / length)
        })
        .collect();
    let median = crate::stats::median(&costs);
    let cost = median.map_or_else(
        || "not measured".into(),
        |cost| {
            format!(
                "{} % of one CPU (median over {} runs)",
                units::significant(cost * 100.0),
                costs.len()
            )
        },
    );
    let mut absent: BTreeMap<(String, String), usize> = BTreeMap::new();
    for run in model.runs {
        for (probe, reason) in &run.probes.absent {
            *absent.entry((probe.clone(), reason.clone())).or_default() += 1;
        }
    }
    (cost, absent.into_iter().map(|((probe, reason), runs)| (probe, reason, runs)).collect())
}

/// Remarks of the experiment and of its runs, each once.
fn notes(model: &Model<'_>) -> Vec<(String, usize)> {
    let mut notes: BTreeMap<&str, usize> = BTreeMap::new();
    for note in model.runs.iter().flat_map(|run| &run.notes) {
        *notes.entry(note).or_default() += 1;
    }
    let own = model.experiment.notes.iter().map(|note| (note.clone(), 0));
    own.chain(notes.into_iter().map(|(note, runs)| (note.to_owned(), runs))).collect()
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
