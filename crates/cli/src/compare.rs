//! `millstream compare` and `millstream explain`: what kept runs say, without running anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use millstream_lab::compare::compare_sets;
use millstream_lab::error::Error;
use millstream_lab::investigate::{Options, explain};
use millstream_lab::record::RunRecord;
use serde_json::to_string;

use crate::arguments::Database;
use crate::kept;

/// For `compare --help`.
pub const HELP: &str = "\
Each configuration that both sets have is compared by its result (the median of the second as a ratio to that of the
first, with a 95 % interval and the smallest change that would have been seen) and by every other result and feature.
Of sets that do not differ at most 5 % are said to differ in a result; of the other values that are named, no more than
5 % are expected to be there by chance. Four runs of each set are needed at least. `gate` has an exit status for it.";

/// For `explain --help`.
pub const EXPLAIN_HELP: &str = "\
Groups of the results, the features that go with them, and the causes of the catalogue that fit: the first half of
`investigate`, of runs that are kept. Nothing is run, so nothing is forced and no cause is confirmed. The runs have to be
of one workload, stack and level of each factor; eight at least.";

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// Id, beginning of an id, or name of the experiment that is the standard
    first: String,
    /// The same of the one that is compared with it
    second: String,
    /// Write the comparison to this file as JSON, with every value that was looked at ('-': standard output, alone)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    database: Database,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// Id, beginning of an id, or name of the experiment, several if they are of one thing [default: the last one]
    which: Vec<String>,
    /// A folder with causes of your own, one TOML file each
    #[arg(long, value_name = "DIR")]
    causes: Option<PathBuf>,
    /// Write what was found to this file as JSON ('-': standard output, alone)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    database: Database,
}

/// Compares two kept sets.
pub fn compare(arguments: &Compare) -> Result<ExitCode, Error> {
    let set = |id: &String| -> Result<Vec<RunRecord>, Error> {
        Ok(kept::as_kept(&kept::find(std::slice::from_ref(id), &arguments.database)?))
    };
    let found = compare_sets(&set(&arguments.first)?, &set(&arguments.second)?, 1);
    tell(&found.text(), to_string(&found), arguments.json.as_deref())
}

/// Says what kept runs show.
pub fn explain_kept(arguments: &Explain) -> Result<ExitCode, Error> {
    let parts = kept::find(&arguments.which, &arguments.database)?;
    let causes = crate::investigate::catalogue(arguments.causes.as_deref())?;
    let mut found = explain(&kept::as_kept(&parts), &causes, &Options::default())?;
    found.experiments = parts.into_iter().map(|(experiment, _)| experiment.id).collect();
    tell(&found.text(), to_string(&found), arguments.json.as_deref())
}

fn tell(
    text: &str,
    json: Result<String, serde_json::Error>,
    file: Option<&Path>,
) -> Result<ExitCode, Error> {
    let Some(file) = file else {
        kept::out(text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let json = json.map_err(|error| Error::Store(error.to_string()))? + "\n";
    if file == Path::new("-") {
        kept::out(&json)?;
    } else {
        kept::out(text)?;
        kept::write_whole(file, json.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
