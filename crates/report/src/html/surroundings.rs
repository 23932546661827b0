//! The surroundings of the runs: facts, changes, settings by stack, probes, and how to repeat them.

use std::collections::{BTreeMap, BTreeSet};

use millstream_diagnose::units;
use millstream_record::{Environment, Timestamp};

use super::super::frame::{Cell, Column, Grid, Part, of_place};
use super::super::model::Model;
use super::super::room::{Detailed, Scope};
use super::super::text::extent;

/// Values of a setting that are listed.
const VALUES: usize = 8;

/// Settings of the machine that a reader of any result asks for, each with its fact. Those of a
/// network namespace are told with the ends that are in it.
const SETTINGS: [(&str, &str); 2] =
    [("governor", "cpu.governor"), ("queueing discipline", "sysctl.net.core.default_qdisc")];

/// Returns the facts below the answer.
pub(super) fn facts<'a>(model: &Model<'_>) -> Part<'a> {
    let experiment = model.experiment;
    let mut facts = of_machine(&experiment.started_at, &experiment.environment);
    facts.insert(1, ("extent".to_owned(), extent(model)));
    facts.push(("seed".to_owned(), experiment.seed.to_string()));
    Part::on_page(|| vec![Part::Facts(facts)])
}

/// Returns when it was measured, where, and with which settings, as names and values.
pub fn of_machine(begun: &Timestamp, environment: &Environment) -> Vec<(String, String)> {
    let fact = |name: &str| environment.get(name).map(str::to_owned);
    let begun = begun.to_string().replace('T', " ");
    let processor = fact("cpu.model").map(|cpu| match fact("cpu.count") {
        Some(count) => format!("{count} × {cpu}"),
        None => cpu,
    });
    let version = fact("millstream.version").map(|version| match fact("millstream.commit") {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    });
    let facts = [
        ("measured", Some(format!("{} UTC", begun.get(..16).unwrap_or(&begun)))),
        ("host", fact("kernel.host_name")),
        ("processor", processor),
        ("kernel", fact("kernel.release")),
        ("millstream", version),
    ];
    let facts = facts.into_iter().chain(SETTINGS.map(|(name, of)| (name, fact(of))));
    facts.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
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

/// Returns the settings that are not the same on all sides, for a text as lines; and for a page all
/// that the experiment and the runs recorded of the sides.
pub(in super::super) fn differences<'a>(scope: Scope<'a>) -> Vec<Part<'a>> {
    let model = scope.model;
    let line = |one: &millstream_record::Difference| {
        let values: Vec<&String> = one.by_stack.values().collect();
        let is_one = values.windows(2).all(|pair| pair[0] == pair[1]) && values.len() > 1;
        let sides = one.by_stack.iter().map(|(stack, how)| format!("{stack}: {how}"));
        let said = || format!("{} – {}", one.what, sides.collect::<Vec<_>>().join("; "));
        (!is_one).then(said).map(Part::InText)
    };
    let lines = model.experiment.differences.iter().filter_map(line);
    let on_page = move || {
        let stacks = stacks(model);
        let grid = |caption, name, rows: Vec<Vec<String>>| {
            let heads =
                stacks.iter().map(|(place, stack)| Column::new(stack).with_class(of_place(*place)));
            let cells = |row: Vec<String>| row.into_iter().map(Cell::from).collect::<Vec<_>>();
            Grid::new(caption, [name]).columns(heads).rows(rows.into_iter().map(cells))
        };
        let said = model.experiment.differences.iter().map(|one| {
            let of = |(_, stack): &(usize, String)| one.by_stack.get(stack).cloned();
            let of = |stack| of(stack).unwrap_or_else(|| "–".into());
            std::iter::once(one.what.clone()).chain(stacks.iter().map(of)).collect()
        });
        let applied = applied(model, scope.detailed, &stacks);
        let settings = "Settings that the runs recorded and that are not the same everywhere";
        let grids = [
            grid("Differences between the stacks", "", said.collect()),
            grid(settings, "setting", applied),
        ];
        let grids = grids.into_iter().filter(|grid| !grid.is_empty()).map(Part::Grid);
        let grids: Vec<Part<'_>> = grids.collect();
        match grids.is_empty() {
            true => vec![Part::Styled("dim", "The experiment recorded none.".to_owned())],
            false => grids,
        }
    };
    lines.chain([Part::on_page(on_page)]).collect()
}

/// Returns what changed, the facts by subject, and what sampling cost and missed.
pub(in super::super) fn environment<'a>(scope: Scope<'_>) -> Vec<Part<'a>> {
    let Scope { model, detailed, .. } = scope;
    let mut parts = Vec::new();
    let changed = changed(model, detailed);
    let row = |(name, (before, now, runs)): (&str, (&str, &str, usize))| {
        [name.to_owned(), before.to_owned(), now.to_owned(), runs.to_string()]
    };
    let columns = ["fact", "at the start", "later", ">runs"];
    let grid = Grid::new("What changed while the experiment went on", columns);
    parts.push(Part::Grid(grid.rows(changed.into_iter().map(row))));
    let environment = &model.experiment.environment;
    let mut groups: BTreeMap<&str, Vec<[String; 2]>> = BTreeMap::new();
    for (name, value) in &environment.facts {
        let (group, rest) = name.split_once('.').unwrap_or(("other", name));
        groups.entry(group).or_default().push([rest.to_owned(), value.clone()]);
    }
    let absent = environment.absent.iter().map(|(name, why)| [name.clone(), why.clone()]);
    let unknown = ("not known", absent.collect::<Vec<_>>());
    let groups = groups.into_iter().chain([unknown]).filter(|(_, facts)| !facts.is_empty());
    parts.extend(groups.map(|(group, facts)| {
        let heading = format!("{group} ({})", facts.len());
        let grid = Grid::new(group, ["fact", "value"]).rows(facts);
        Part::Folded(heading, false, vec![Part::Grid(grid)])
    }));
    if !detailed.said.is_empty() {
        parts.push(Part::line(detailed.said.clone()));
    }
    let (cost, absent) = probes(model, detailed);
    parts.push(Part::line(format!("Sampling itself took {cost}.")));
    let row = |((probe, reason), runs): ((&str, &str), usize)| {
        [probe.to_owned(), reason.to_owned(), runs.to_string()]
    };
    let grid = Grid::new("Probes that were absent", ["probe", "reason", ">runs"]);
    parts.push(Part::Grid(grid.rows(absent.into_iter().map(row))));
    parts
}

/// Returns the command, the definition, and how the runs came about.
pub(in super::super) fn repeat<'a>(scope: Scope<'_>) -> Vec<Part<'a>> {
    let experiment = scope.model.experiment;
    let command = shell_words(&experiment.command_line);
    let mut parts = Vec::new();
    if !command.is_empty() {
        parts.push(Part::Code(command));
    }
    if !experiment.definition.is_empty() {
        let definition = vec![Part::Code(experiment.definition.clone())];
        parts.push(Part::Folded("The definition as it was run".to_owned(), false, definition));
    }
    parts.push(Part::Styled(
        "dim",
        format!(
            "Seed {}, {} blocks in random order inside, each second one turned around; every run was a new process. Experiment {}. The records of the \
             runs are in this page as JSON (element `data`), where there is room for them.",
            experiment.seed, experiment.repeats, experiment.id
        ),
    ));
    parts
}

/// Facts that changed from the start of the experiment to some run: at the start, then, number of
/// runs.
fn changed<'m>(
    model: &'m Model<'_>,
    detailed: &Detailed<'_>,
) -> BTreeMap<&'m str, (&'m str, &'m str, usize)> {
    let start = &model.experiment.environment;
    let mut changes: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    let runs = model.runs.iter().filter(|run| detailed.has(run));
    for run in runs.filter(|run| !run.environment.facts.is_empty()) {
        // A setting that only one of the two recorded says nothing about a change.
        for (name, before, now) in start.changes(&run.environment) {
            if let (Some(before), Some(now)) = (before, now) {
                *changes.entry((name, before, now)).or_default() += 1;
            }
        }
    }
    // Facts that change by themselves (load, free memory) have many values: one line is enough.
    let mut seen = BTreeMap::new();
    for ((name, before, now), runs) in changes {
        seen.entry(name).or_insert((before, now, 0)).2 += runs;
    }
    seen
}

/// Cost and absence of probes over all runs.
fn probes<'m>(
    model: &'m Model<'_>,
    detailed: &Detailed<'_>,
) -> (String, BTreeMap<(&'m str, &'m str), usize>) {
    let cost =
        |run: &millstream_record::RunRecord| Some(run.probes.own_cpu_s / run.probes.length_s()?);
    let costs: Vec<f64> = model.runs.iter().filter_map(cost).collect();
    let median = millstream_diagnose::stats::median(&costs);
    let cost = median.map_or_else(
        || "not measured".into(),
        |cost| {
            let (cost, runs) = (units::significant(cost * 100.0), costs.len());
            format!("{cost} % of one CPU (median over {runs} runs)")
        },
    );
    let mut absent: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for run in model.runs.iter().filter(|run| detailed.has(run)) {
        for (probe, reason) in &run.probes.absent {
            *absent.entry((probe, reason)).or_default() += 1;
        }
    }
    (cost, absent)
}

/// The first values, and how many more there are.
fn joined(values: &BTreeSet<&str>) -> String {
    let mut text = values.iter().take(VALUES).copied().collect::<Vec<_>>().join(", ");
    if values.len() > VALUES {
        text.push_str(&format!(" and {} more", values.len() - VALUES));
    }
    text
}

/// Settings that runs recorded for themselves and that are not the same on all stacks: the name,
/// and the values per stack.
fn applied(
    model: &Model<'_>,
    detailed: &Detailed<'_>,
    stacks: &[(usize, String)],
) -> Vec<Vec<String>> {
    let mut values: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for run in model.runs.iter().filter(|run| detailed.has(run)) {
        let own = run.environment.facts.iter();
        for (name, value) in
            own.filter(|(name, _)| model.experiment.environment.get(name).is_none())
        {
            values.entry(name).or_default().entry(&run.stack).or_default().insert(value);
        }
    }
    let rows = values.into_iter().filter_map(|(name, by_stack)| {
        let of = |(_, stack): &(usize, String)| by_stack.get(stack.as_str());
        let same = stacks.windows(2).all(|pair| of(&pair[0]) == of(&pair[1]));
        let cells = stacks.iter().map(|stack| of(stack).map_or_else(|| "–".into(), joined));
        (!same).then(|| std::iter::once(name.to_owned()).chain(cells).collect())
    });
    rows.collect()
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
