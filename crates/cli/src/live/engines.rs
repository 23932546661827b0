//! The engines that there are, and which one is meant.

use millstream::link::sys::effective_uid;
use millstream::live::{Directory, Segment};
use millstream_lab::error::Error;

use crate::output::say;

/// What an engine is called here: its name, its process, and its number there.
pub fn id(segment: &Segment) -> String {
    let header = segment.header();
    format!("{}-{}-{}", header.name, header.pid, header.number)
}

/// All engines of this user; what cannot be read is told on the standard error.
pub fn all() -> Result<Vec<Segment>, Error> {
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

/// The engine that is meant by `text`, or the only one.
pub fn one(text: Option<&str>) -> Result<Segment, Error> {
    let is_meant = |segment: &Segment| {
        text.is_none_or(|text| {
            let header = segment.header();
            header.name == text || header.pid.to_string() == text || id(segment) == text
        })
    };
    let mut found: Vec<Segment> = all()?.into_iter().filter(is_meant).collect();
    match (found.len(), text) {
        (1, _) => Ok(found.remove(0)),
        (0, None) => Err(Error::Refused(
            "no engine of this user is published; see `millstream ps --help`".into(),
        )),
        (0, Some(text)) => Err(Error::Refused(format!("no engine '{text}'; see `millstream ps`"))),
        _ => {
            let ids: Vec<String> = found.iter().map(id).collect();
            Err(Error::Refused(format!("several engines; name one: {}", ids.join(", "))))
        }
    }
}
