//! `millstream export`: kept runs as Parquet files.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream_record::error::Error;
use millstream_record::export::{Export, RUNS, VALUES};
use millstream_record::own_folder::behind_no_link_of_another;
use millstream_record::store::Store;

use crate::output::{out, say};
use crate::values::{Database, database};

/// For `export --help`.
pub const HELP: &str = "\
Writes runs.parquet (a row for each run, with its whole record as JSON) and values.parquet (a row for each result and each level of
a factor). docs/export.md has what to ask of them with DuckDB.";

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Id of an experiment, its beginning, or a name (then the one that was kept last of that name)
    /// [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Folder of the files; what it has of their names goes
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    #[command(flatten)]
    database: Database,
}

/// Writes both files.
pub fn export(arguments: &Arguments) -> Result<ExitCode, Error> {
    let store = Store::open_existing(&database(&arguments.database)?)?;
    let ids: Vec<String> = match arguments.ids.is_empty() {
        true => store.experiments()?.into_iter().map(|one| one.id).collect(),
        false => {
            let found = arguments.ids.iter().map(|text| store.find(text).map(|one| one.id));
            found.collect::<Result<_, _>>()?
        }
    };
    behind_no_link_of_another(&arguments.out)?;
    let failed = |error| Error::file(format!("--out {}", arguments.out.display()))(error);
    let mut export = Export::create(&arguments.out).map_err(failed)?;
    let (mut count, mut seen) = (0, Vec::new());
    for id in &ids {
        if seen.contains(id) {
            continue;
        }
        seen.push(id.clone());
        let (runs, bad) = store.readable_runs(id)?;
        for error in bad {
            say(format_args!("note: a run cannot be read and is passed over: {error}"));
        }
        export.add(&runs).map_err(failed)?;
        count += runs.len();
    }
    export.finish().map_err(failed)?;
    let place = |name| arguments.out.join(name).display().to_string();
    out(&format!(
        "{count} runs of {} experiments: {} and {}\n",
        seen.len(),
        place(RUNS),
        place(VALUES)
    ))?;
    Ok(ExitCode::SUCCESS)
}
