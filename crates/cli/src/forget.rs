//! `millstream forget`: kept experiments are taken out of the store.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use millstream_record::error::Error;
use millstream_record::store::{Store, Summary};
use millstream_testbed::leftovers::StateDir;

use crate::output::{out, say};
use crate::values::{Database, database};

/// Arguments of `forget`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Id of an experiment, or the beginning of exactly one
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub database: Database,
}

/// For `forget --help`.
pub const HELP: &str = "\
All are taken out, or none. There is no way back: `millstream show ID --json FILE` keeps the runs elsewhere.
Pages and JSON files that were written stay. An experiment that is running is refused, and one
that runs beside it is not disturbed.";

/// Removes all that were named, or none, and gives their room back.
pub fn forget(arguments: &Arguments) -> Result<ExitCode, Error> {
    let at = database(&arguments.database)?;
    let mut store = Store::open_existing(&at)?;
    let running = StateDir::locate()?.running_ids();
    let mut gone: Vec<Summary> = Vec::new();
    for text in &arguments.ids {
        let one = store.find_one(text)?;
        if running.contains(&one.id) {
            return Err(Error::Refused(format!("{} is running; interrupt it first", one.id)));
        }
        if gone.iter().all(|known| known.id != one.id) {
            gone.push(one);
        }
    }
    let ids: Vec<&str> = gone.iter().map(|one| one.id.as_str()).collect();
    let before = at.file().map(size_bytes);
    store.forget(&ids)?;
    let given_back = store.give_back_room(running.is_empty());
    for Summary { id, runs, .. } in &gone {
        let runs = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        out(&format!("Forgotten: {id} ({runs})\n"))?;
    }
    match given_back {
        Ok(true) => out(&at.file().zip(before).map_or_else(String::new, room))?,
        Ok(false) => say(format_args!(
            "note: {at} was made by an earlier version and stays as large as it is while an experiment runs; what comes \
             next takes the room"
        )),
        // They are gone all the same.
        Err(error) => say(format_args!("note: the room is not given back yet: {error}")),
    }
    Ok(ExitCode::SUCCESS)
}

fn size_bytes(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |meta| meta.len())
}

/// Returns a line with the size of a file now and before.
fn room((file, before): (&Path, u64)) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let (before, after) = (megabytes(before), megabytes(size_bytes(file)));
    format!("{}: {after:.1} MB, {before:.1} MB before\n", file.display())
}
