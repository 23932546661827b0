//! The output of all commands: to the standard output and error, and to files, whole or not at all.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use millstream_foreign::lines;
use millstream_record::error::Error;
use millstream_record::own_folder::{behind_no_link_of_another, create_anew, file_name};
use millstream_record::{ExperimentRecord, FORMAT_VERSION, RunRecord};
use millstream_report::{Report, json_lines};
use serde::Serialize;
use serde_json::Value;

/// Writes the page of an experiment and gives its path.
pub fn write_page(
    folder: &Path,
    experiment: &ExperimentRecord,
    report: &Report<'_>,
) -> Result<PathBuf, Error> {
    let html = report.html().map_err(|error| Error::Store(error.to_string()))?;
    page_into(folder, &experiment.id, &html)
}

/// Writes a page into a folder, which is made where it is not there; a page of this name that is
/// there is replaced whole.
pub fn page_into(folder: &Path, name: &str, html: &str) -> Result<PathBuf, Error> {
    fs::create_dir_all(folder).map_err(Error::file(folder.display().to_string()))?;
    let path = folder.join(format!("{}.html", file_name(name)));
    write_whole(&path, lines(html.as_bytes()).as_bytes()).map(|()| path)
}

/// Writes the runs, one JSON object per line; `-` is the standard output.
pub fn write_json<'a>(
    path: &Path,
    runs: impl IntoIterator<Item = &'a RunRecord>,
) -> Result<(), Error> {
    let lines = json_lines(runs);
    if path == Path::new("-") {
        return out(&lines);
    }
    write_whole(path, lines.as_bytes())
}

/// Writes what was found: as text for people, and as JSON into a file. Where that is the standard
/// output (`-`), it has JSON alone.
pub fn tell(text: &str, found: &impl Serialize, file: Option<&Path>) -> Result<(), Error> {
    let json = || {
        let line = serde_json::to_string(found).map(|object| object + "\n");
        line.map_err(|error| Error::Store(format!("write JSON: {error}")))
    };
    match file {
        None => out(text),
        Some(path) if path == Path::new("-") => out(&json()?),
        Some(path) => {
            out(text)?;
            write_whole(path, json()?.as_bytes())
        }
    }
}

/// Writes all of a file, or leaves what was there. It is written aside and renamed once the disk
/// has all of it: neither a full disk nor whoever ends the program meanwhile leaves half of it
/// under its name. A pipe or a device is written as it is, and so is a file in a folder that takes
/// no other. A link that another user has made is not followed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    behind_no_link_of_another(path)?;
    // The target of a link is written, and the link stays.
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
    let mut part = OsString::from(".");
    part.push(target.file_name().unwrap_or_default());
    part.push(format!(".{}.part", std::process::id()));
    let part = target.with_file_name(part);
    let mut file = match create_anew(&part) {
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

/// Returns a path as it is found from anywhere.
pub fn full_path(path: &Path) -> String {
    let full: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    full.display().to_string()
}

/// Writes to the standard output, as [`lines`] has it. A reader who has seen enough (`| head`) is
/// no error.
pub fn out(text: &str) -> Result<(), Error> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(lines(text.as_bytes()).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::File { path: "standard output".to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Writes a JSON object to the standard output, as a line with the version of its format.
pub fn out_json(object: Value) -> Result<(), Error> {
    out(&format!("{}\n", versioned(object)))
}

/// Writes JSON objects to the standard output, likewise, each in a line.
pub fn lines_of_json(objects: impl Iterator<Item = Value>) -> Result<(), Error> {
    out(&objects.map(|object| format!("{}\n", versioned(object))).collect::<String>())
}

/// Returns a JSON object with the version that all JSON of this program has.
pub fn versioned(mut object: Value) -> Value {
    object["format"] = FORMAT_VERSION.into();
    object
}

/// Writes a line to the standard error, likewise. Where nobody reads it any more (`2>&1 | head`) it
/// is lost, and nothing else: `eprintln` would end the program, and a run with it.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", lines(line.to_string().as_bytes()));
}
