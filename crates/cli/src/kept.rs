//! `millstream list`, `show` and `report`: what was kept.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use millstream_lab::error::Error;
use millstream_lab::experiment::Definition;
use millstream_lab::experiment::builtins;
use millstream_lab::record::{ExperimentRecord, Kept, RunRecord, beside, pool};
use millstream_lab::report::{Report, json_lines};
use millstream_lab::store::{Store, StoreError};

use crate::arguments::{Database, List, Report as ReportArguments, Show, Which};

/// An error of the store as an error of the command: what was named and is not there, or no store, is refused.
pub fn stored(error: StoreError) -> Error {
    use StoreError::{Ambiguous, Missing, Newer, NoExperiment, NotAStore};
    match &error {
        Missing { .. }
        | NotAStore { .. }
        | Newer { .. }
        | NoExperiment { .. }
        | Ambiguous { .. } => Error::Refused(error.to_string()),
        StoreError::Busy { .. }
        | StoreError::Io { .. }
        | StoreError::Record { .. }
        | StoreError::Forgotten { .. } => Error::Store(error.to_string()),
    }
}

/// The database file: `--db`, else in the user's data folder.
pub fn database(database: &Database) -> Result<PathBuf, Error> {
    if let Some(file) = &database.file {
        return Ok(file.clone());
    }
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("XDG_DATA_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/share")))
        .ok_or_else(|| Error::Refused("no HOME; say --db FILE".to_owned()))?;
    Ok(folder.join("millstream").join("millstream.sqlite3"))
}

/// Writes the page of an experiment and gives its path.
pub fn write_page(
    folder: &Path,
    experiment: &ExperimentRecord,
    report: &Report<'_>,
) -> Result<PathBuf, Error> {
    let html = report.html().map_err(|error| Error::Store(error.to_string()))?;
    fs::create_dir_all(folder).map_err(Error::file(folder.display().to_string()))?;
    let path = folder.join(format!("{}.html", experiment.id));
    write_whole(&path, html.as_bytes())?;
    Ok(path)
}

/// Writes the runs, one JSON object per line; `-` is the standard output.
pub fn write_json(path: &Path, runs: &[RunRecord]) -> Result<(), Error> {
    let lines = json_lines(runs);
    if path == Path::new("-") {
        return out(&lines);
    }
    write_whole(path, lines.as_bytes())
}

/// Writes all of a file, or leaves what was there. It is written aside and renamed once the disk has all of it: neither
/// a full disk nor whoever ends the program meanwhile leaves half of it under its name. A pipe or a device is written
/// as it is, and so is a file in a folder that takes no other.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    // What a link means is written, and the link stays.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let there = target.metadata();
    let failed = |source| Error::File { path: path.display().to_string(), source };
    let in_place = || {
        fs::write(&target, bytes).map_err(|error| {
            let whole = target.metadata().is_ok_and(|meta| !meta.is_file());
            let said =
                if whole { error } else { io::Error::other(format!("{error}; it is not whole")) };
            failed(said)
        })
    };
    if there.as_ref().is_ok_and(|meta| !meta.is_file()) {
        return in_place();
    }
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let part = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let mut file = match fs::File::create(&part) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && there.is_ok() => {
            return in_place();
        }
        created => created.map_err(failed)?,
    };
    let written = file.write_all(bytes).and_then(|()| {
        if let Ok(meta) = &there {
            file.set_permissions(meta.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&part, &target)
    });
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written.map_err(failed)
}

/// Writes to the standard output. A reader who has seen enough (`| head`) is no
/// error.
pub fn out(text: &str) -> Result<(), Error> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::File { path: "standard output".to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Writes a line to the standard error. Where nobody reads it any more (`2>&1 | head`) it is lost, and nothing else:
/// `eprintln` would end the program, and a run with it.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The experiments that are meant; the same one twice counts once. The last one where none is named.
pub fn find(which: &[String], at: &Database) -> Result<Vec<Kept>, Error> {
    let file = database(at)?;
    let store = Store::open_existing(&file).map_err(stored)?;
    if which.is_empty() {
        let empty = || format!("{}: nothing is kept yet; see `millstream run`", file.display());
        let newest = store.latest(None).map_err(stored)?;
        let newest = newest.ok_or_else(|| Error::Refused(empty()))?;
        return Ok(vec![with_runs(&store, newest)?]);
    }
    let mut parts: Vec<Kept> = Vec::new();
    for text in which {
        let experiment = store.find(text).map_err(stored)?;
        if parts.iter().any(|(known, _)| known.id == experiment.id) {
            continue;
        }
        parts.push(with_runs(&store, experiment)?);
    }
    Ok(parts)
}

/// Several experiments beside each other, or pooled where that was asked for.
fn together(which: &Which, parts: Vec<Kept>) -> Result<Kept, Error> {
    let whole = if which.pool { pool(parts) } else { beside(parts) };
    whole.ok_or_else(|| Error::Refused("no experiment given; say an id or a name".to_owned()))
}

/// Their runs as they were kept.
pub fn as_kept(parts: &[Kept]) -> Vec<RunRecord> {
    parts.iter().flat_map(|(_, runs)| runs).cloned().collect()
}

/// An experiment and its runs. One that cannot be read hides no other: it is passed over, which the reader must know.
fn with_runs(store: &Store, mut experiment: ExperimentRecord) -> Result<Kept, Error> {
    let (runs, bad) = store.readable_runs(&experiment.id).map_err(stored)?;
    for error in bad {
        let note = format!("A run cannot be read and is passed over: {error}.");
        say(format_args!("note: {note}"));
        experiment.notes.push(note);
    }
    Ok((experiment, runs))
}

/// Built-in experiments, and the kept ones, the newest first.
pub fn list(arguments: &List) -> Result<ExitCode, Error> {
    let mut text = String::from("Built in:\n");
    for (name, definition) in builtins() {
        let question = Definition::parse(name, definition)?.question;
        text.push_str(&format!("  {name:<14} {question}\n"));
    }
    let file = database(&arguments.database)?;
    if Store::is_missing(&file) {
        text.push_str(&format!("\nKept: none yet (they will be in {})\n", file.display()));
        return out(&text).map(|()| ExitCode::SUCCESS);
    }
    let kept = Store::open_existing(&file).and_then(|store| store.experiments()).map_err(stored)?;
    text.push_str(&format!("\nKept in {}:\n", file.display()));
    for one in kept {
        let state = if one.finished_at.is_some() { "finished" } else { "unfinished" };
        let invalid = one.runs - one.valid_runs;
        let invalid = if invalid > 0 { format!(", {invalid} invalid") } else { String::new() };
        let runs = format!("{} of {} runs{invalid}, {state}", one.runs, one.planned_runs);
        text.push_str(&format!("  {:<40} {runs}\n", one.id));
    }
    out(&text).map(|()| ExitCode::SUCCESS)
}

/// Kept experiments as tables, as a matrix, or as JSON lines.
pub fn show(arguments: &Show) -> Result<ExitCode, Error> {
    let parts = find(&arguments.which.ids, &arguments.database)?;
    if let Some(path) = &arguments.json {
        write_json(path, &as_kept(&parts))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (experiment, runs) = together(&arguments.which, parts)?;
    match arguments.matrix {
        true => out(&matrix(&experiment, &runs)?)?,
        false => out(&Report::new(&experiment, &runs).text())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn matrix(experiment: &ExperimentRecord, runs: &[RunRecord]) -> Result<String, Error> {
    let text = Report::new(experiment, runs).matrix();
    if text.is_empty() {
        let why =
            "a matrix wants two cases or more that two stacks (or peers) ran; leave --matrix away";
        return Err(Error::Refused(format!("{}: {why}", experiment.id)));
    }
    Ok(text)
}

/// The page of kept experiments.
pub fn report(arguments: &ReportArguments) -> Result<ExitCode, Error> {
    let parts = find(&arguments.which.ids, &arguments.database)?;
    let kept = arguments.json.as_ref().map(|_| as_kept(&parts));
    let (experiment, runs) = together(&arguments.which, parts)?;
    let page = write_page(&arguments.out, &experiment, &Report::new(&experiment, &runs));
    let written = match (&arguments.json, kept) {
        (Some(path), Some(kept)) => write_json(path, &kept),
        _ => Ok(()),
    };
    // One that fails does not keep the other from coming, and each is told.
    let page = match (page, written) {
        (Ok(page), written) => written.map(|()| page)?,
        (Err(error), written) => {
            written.err().iter().for_each(|error| say(format_args!("millstream: {error}")));
            return Err(error);
        }
    };
    let words = format!("Page: {}", fs::canonicalize(&page).unwrap_or(page).display());
    match &arguments.json {
        // JSON alone on the standard output, as of `run`.
        Some(path) if path == Path::new("-") => say(words),
        _ => out(&format!("{words}\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}
