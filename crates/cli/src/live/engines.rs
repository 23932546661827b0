//! The engines that there are, and which one is meant.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use millstream_link::sys::effective_uid;
use millstream_live::{Directory, Segment, read_kept};
use millstream_record::error::Error;

use super::Place;
use crate::output::{out, say};

/// Returns the ID of an engine: its name, its process, and its number there.
pub fn id(segment: &Segment) -> String {
    let header = segment.header();
    format!("{}-{}-{}", header.name, header.pid, header.number)
}

/// Returns all engines of this user, or those in the file `from`. Those that cannot be read are
/// named on the standard error.
pub fn all(from: Option<&Path>) -> Result<Vec<Segment>, Error> {
    if let Some(path) = from {
        let name = path.display().to_string();
        let file = File::open(path).map_err(Error::file(name.clone()))?;
        return read_kept(path, BufReader::new(file))
            .map_err(|damage| Error::Refused(format!("{name}: {damage}")));
    }
    let mut segments = Vec::new();
    for directory in Directory::all_of_user(effective_uid()) {
        let path = directory.path().display().to_string();
        for found in directory.engines().map_err(Error::file(path))? {
            match found.segment {
                Ok(segment) => segments.push(segment),
                Err(damage) => say(format_args!("note: {}: {damage}", found.path.display())),
            }
        }
    }
    Ok(segments)
}

/// Returns the engines that are meant, one at least, by their IDs.
pub fn meant(place: Place<'_>) -> Result<Vec<Segment>, Error> {
    let text = place.engine;
    let is_meant = |segment: &Segment| {
        text.is_none_or(|text| {
            let header = segment.header();
            let numbers = [header.pid, header.number].map(|number| number.to_string());
            header.name == text || numbers.iter().any(|one| one == text) || id(segment) == text
        })
    };
    let mut found: Vec<Segment> = all(place.from)?.into_iter().filter(is_meant).collect();
    found.sort_by_key(id);
    match (found.is_empty(), text) {
        (false, _) => Ok(found),
        (true, None) => Err(Error::Refused(
            "no engine of this user is published; see `millstream ps --help`".into(),
        )),
        (true, Some(text)) => {
            Err(Error::Refused(format!("no engine '{text}'; see `millstream ps`")))
        }
    }
}

/// Returns the engine that is meant, or the only one: for what can be of one alone.
pub fn one(place: Place<'_>) -> Result<Segment, Error> {
    only(meant(place)?)
}

/// Returns the engine that is meant; of several the one of which `has` is true.
pub fn one_that(place: Place<'_>, has: impl Fn(&Segment) -> bool) -> Result<Segment, Error> {
    let (have, others): (Vec<_>, Vec<_>) = meant(place)?.into_iter().partition(has);
    only(if have.is_empty() { others } else { have })
}

fn only(mut found: Vec<Segment>) -> Result<Segment, Error> {
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    let ids: Vec<String> = found.iter().map(id).collect();
    Err(Error::Refused(format!("several engines; name one: {}", ids.join(", "))))
}

/// Shows each engine that is meant, below its ID where there are several and text is written. A
/// failure for some of several is a note; for all of them it is the error.
pub fn each(
    place: Place<'_>,
    json: bool,
    mut show: impl FnMut(&mut Segment) -> Result<(), Error>,
) -> Result<ExitCode, Error> {
    let mut found = meant(place)?;
    let several = found.len() > 1;
    let (mut failed, mut shown) = (None, false);
    for segment in &mut found {
        if several && !json {
            out(&heading(&id(segment)))?;
        }
        match show(segment) {
            Ok(()) => shown = true,
            Err(error) if several => {
                say(format_args!("note: {}: {error}", id(segment)));
                failed = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    failed.filter(|_| !shown).map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Returns the line above what is shown of one of several engines.
pub fn heading(id: &str) -> String {
    format!("engine {id}\n")
}
