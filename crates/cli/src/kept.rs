//! `millstream list`, `show` and `report`: what was kept.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use millstream_diagnose::join::{Kept, beside, pool};
use millstream_foreign::{command, shown};
use millstream_plan::{Definition, builtins};
use millstream_record::error::Error;
use millstream_record::store::{Readable, Store, StoreError};
use millstream_record::{ExperimentRecord, RunRecord};
use millstream_report as report;

use crate::output::{full_path, out, say, write_json, write_page};
use crate::values::{Database, Which, database};

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub database: Database,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct Show {
    #[command(flatten)]
    pub which: Which,
    /// Markdown tables with a line for each case and ratios to the first stack, and how many of
    /// them hold
    #[arg(long, conflicts_with = "json")]
    pub matrix: bool,
    /// Write its runs to this file instead, one JSON object per line ('-': standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub database: Database,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct Report {
    #[command(flatten)]
    pub which: Which,
    /// Folder of the page
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
    /// Write its runs to this file too, one JSON object per line ('-': standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub database: Database,
}

/// A way to read the runs of an experiment.
type Reader = fn(&Store, &str) -> Result<Readable, StoreError>;

/// Returns the experiments that are named; the same one twice counts once. Without a name it is the
/// last one.
pub fn find(which: &[String], at: &Database) -> Result<Vec<Kept>, Error> {
    let store = Store::open_existing(&database(at)?)?;
    read(&store, which, Store::readable_runs)
}

fn read(store: &Store, which: &[String], reader: Reader) -> Result<Vec<Kept>, Error> {
    if which.is_empty() {
        let empty = || format!("{}: nothing is kept yet; see `millstream run`", store.at());
        let newest = store.latest(None)?;
        let newest = newest.ok_or_else(|| Error::Refused(empty()))?;
        say(format_args!("{}: {}", newest.id, command_of(&newest)));
        return Ok(vec![with_runs(store, newest, reader)?]);
    }
    let mut parts: Vec<Kept> = Vec::new();
    for text in which {
        let experiment = store.find(text)?;
        say_which(store, text, &experiment)?;
        if parts.iter().any(|(known, _)| known.id == experiment.id) {
            continue;
        }
        parts.push(with_runs(store, experiment, reader)?);
    }
    Ok(parts)
}

/// Says which set a word means, and of several with one name that it is the latest.
fn say_which(store: &Store, word: &str, found: &ExperimentRecord) -> Result<(), Error> {
    let is_name = found.id != word && found.name == word;
    let named = store.experiments()?.iter().filter(|one| is_name && one.name == word).count();
    let latest = match named {
        0 | 1 => String::new(),
        _ => format!("the latest of {named} that are named {word}; "),
    };
    say(format_args!("{}: {latest}{}", found.id, command_of(found)));
    Ok(())
}

/// Characters of a command line that are shown.
const COMMAND_MOST: usize = 100;

/// Returns the command that a set was measured by, without the path of its program, or else its
/// question.
fn command_of(experiment: &ExperimentRecord) -> String {
    let (program, words) =
        experiment.command_line.split_first().map_or(("", &[][..]), |all| (all.0, all.1));
    let program = Path::new(program).file_name().unwrap_or_default();
    let mut text = command(&[program]);
    text += &words.iter().map(|word| format!(" {}", shown(word))).collect::<String>();
    let text = if text.is_empty() { shown(&experiment.question) } else { text };
    match text.char_indices().nth(COMMAND_MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns several experiments beside each other, or pooled where that was asked for.
fn together(which: &Which, parts: Vec<Kept>) -> Result<Kept, Error> {
    let whole = if which.pool { pool(parts) } else { beside(parts) };
    whole.ok_or_else(|| Error::Refused("no experiment given; say an id or a name".to_owned()))
}

/// Returns their runs as they were kept.
pub fn as_kept(parts: &[Kept]) -> Vec<RunRecord> {
    parts.iter().flat_map(|(_, runs)| runs).cloned().collect()
}

/// Returns an experiment and its runs. A run that cannot be read hides no other: it is passed over,
/// which the reader must know.
fn with_runs(
    store: &Store,
    mut experiment: ExperimentRecord,
    reader: Reader,
) -> Result<Kept, Error> {
    let (runs, bad) = reader(store, &experiment.id)?;
    passed_over(&mut experiment, bad);
    Ok((experiment, runs))
}

fn passed_over(experiment: &mut ExperimentRecord, bad: Vec<StoreError>) {
    for error in bad {
        let note = format!("A run cannot be read and is passed over: {error}.");
        say(format_args!("note: {note}"));
        experiment.notes.push(note);
    }
}

/// Lists built-in experiments, and the kept ones, the newest first.
pub fn list(arguments: &List) -> Result<ExitCode, Error> {
    let mut text = String::from("Built in:\n");
    for (name, definition) in builtins() {
        let question = Definition::parse(name, definition)?.question;
        text.push_str(&format!("  {name:<14} {question}\n"));
    }
    let at = database(&arguments.database)?;
    if Store::is_missing(&at)? {
        text.push_str(&format!("\nKept: none yet (they will be in {at})\n"));
        return out(&text).map(|()| ExitCode::SUCCESS);
    }
    let store = Store::open_existing(&at)?;
    text.push_str(&format!("\nKept in {at}:\n"));
    for one in store.experiments()? {
        let state = if one.finished_at.is_some() { "finished" } else { "unfinished" };
        let invalid = one.runs - one.valid_runs;
        let invalid = if invalid > 0 { format!(", {invalid} invalid") } else { String::new() };
        let runs = format!("{} of {} runs{invalid}, {state}", one.runs, one.planned_runs);
        let said =
            store.experiment(&one.id).ok().flatten().map_or(String::new(), |one| command_of(&one));
        text.push_str(&format!("  {:<40} {runs}: {said}\n", shown(&one.id)));
    }
    out(&text).map(|()| ExitCode::SUCCESS)
}

/// Shows kept experiments as tables, as a matrix, or as JSON lines.
pub fn show(arguments: &Show) -> Result<ExitCode, Error> {
    let Show { which, matrix: as_matrix, json, database: at } = arguments;
    if let Some(path) = json {
        let parts = find(&which.ids, at)?;
        write_json(path, parts.iter().flat_map(|(_, runs)| runs))?;
        return Ok(ExitCode::SUCCESS);
    }
    let store = Store::open_existing(&database(at)?)?;
    let parts = read(&store, &which.ids, Store::readable_runs_for_tables)?;
    let (experiment, runs) = together(which, parts)?;
    match as_matrix {
        true => out(&matrix(&experiment, &runs)?)?,
        false => out(&report::Report::new(&experiment, &runs).text())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn matrix(experiment: &ExperimentRecord, runs: &[RunRecord]) -> Result<String, Error> {
    let text = report::Report::new(experiment, runs).matrix();
    if text.is_empty() {
        let why =
            "a matrix wants two cases or more that two stacks (or peers) ran; leave --matrix away";
        return Err(Error::Refused(format!("{}: {why}", experiment.id)));
    }
    Ok(text)
}

/// Writes the page of kept experiments.
pub fn report(arguments: &Report) -> Result<ExitCode, Error> {
    let Report { which, out: folder, json, database: at } = arguments;
    let store = Store::open_existing(&database(at)?)?;
    let (kept, written) = match json {
        Some(path) => {
            let parts = read(&store, &which.ids, Store::readable_runs)?;
            let written = write_json(path, parts.iter().flat_map(|(_, runs)| runs));
            (together(which, parts)?, written)
        }
        None => (for_page(&store, which)?, Ok(())),
    };
    let (experiment, runs) = kept;
    let page = write_page(folder, &experiment, &report::Report::new(&experiment, &runs));
    // One that fails does not keep the other from coming, and each is told.
    let page = match (page, written) {
        (Ok(page), written) => written.map(|()| page)?,
        (Err(error), written) => {
            written.err().iter().for_each(|error| say(format_args!("millstream: {error}")));
            return Err(error);
        }
    };
    let words = format!("Page: {}", full_path(&page));
    match json {
        // JSON alone on the standard output, as of `run`.
        Some(path) if path == Path::new("-") => say(words),
        _ => out(&format!("{words}\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the runs of a page: every run as for tables, and those in full that the page looks at
/// one by one.
fn for_page(store: &Store, which: &Which) -> Result<Kept, Error> {
    let parts = read(store, &which.ids, Store::readable_runs_for_tables)?;
    let (mut experiment, mut runs) = together(which, parts)?;
    let mut complete: HashSet<String> = HashSet::new();
    loop {
        let before = runs.len();
        let chosen = report::in_detail(&runs).into_iter().map(|at| runs[at].id.clone());
        let wanted: HashSet<String> = chosen.filter(|id| !complete.contains(id)).collect();
        let ids: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let (full, bad) = store.runs_of(&ids)?;
        passed_over(&mut experiment, bad);
        let mut full: HashMap<String, RunRecord> =
            full.into_iter().map(|run| (run.id.clone(), run)).collect();
        // One that cannot be read, or that has gone meanwhile, is passed over, and others may be
        // chosen then.
        runs.retain_mut(|run| match full.remove(&run.id) {
            Some(full) => {
                run.complete(full);
                complete.insert(run.id.clone())
            }
            None => !wanted.contains(&run.id),
        });
        if runs.len() == before {
            return Ok((experiment, runs));
        }
    }
}
