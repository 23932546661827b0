//! Arguments that several commands have.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use millstream_plan::is_name;
use millstream_record::error::Error;
use millstream_record::own_folder::of_another;
use millstream_record::store::Location;

/// Which kept experiments.
#[derive(Debug, Args)]
pub struct Which {
    /// Id of the experiment, its beginning, or a name (then the one that was kept last of that
    /// name); several are compared with the first [default: the one that was kept last]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Read several experiments as one sample, a large design that was measured in slices
    #[arg(long)]
    pub pool: bool,
}

/// Where experiments are kept.
#[derive(Debug, Args)]
pub struct Database {
    /// Where it is kept: an SQLite file, or postgres://USER@HOST/DATABASE (password in PGPASSWORD;
    /// TLS by sslmode) [default: millstream.sqlite3 in $XDG_DATA_HOME/millstream]
    #[arg(long = "db", value_name = "FILE|URL")]
    pub at: Option<OsString>,
}

/// Returns the place of the store: `--db`, else a file in the user's data folder, to root in no
/// other user's.
pub fn database(database: &Database) -> Result<Location, Error> {
    if let Some(at) = &database.at {
        return Ok(Location::parse(at)?);
    }
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("XDG_DATA_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/share")))
        .ok_or_else(|| Error::Refused("no HOME; say --db FILE".to_owned()))?;
    let file = folder.join("millstream").join("millstream.sqlite3");
    match of_another(&file) {
        Some(user) => Err(Error::Refused(format!(
            "{}: {user} decides where that is; say --db FILE",
            file.display()
        ))),
        None => Ok(file.into()),
    }
}

/// Reads `--timeout`: a time that something can take.
pub fn time_limit(seconds: f64) -> Result<Duration, Error> {
    let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
    limit.ok_or_else(|| {
        Error::Refused(format!("--timeout {seconds:?}: write seconds above 0, as 120"))
    })
}

/// Reads `--name`: a name of kept runs.
pub fn name(text: &str) -> Result<String, String> {
    let is_allowed = is_name(text).then(|| text.to_owned());
    is_allowed.ok_or_else(|| "write 1 to 64 letters, digits, '-' and '_'".to_owned())
}

/// Reads a number that counts; the largest is the definition's to say.
pub fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    let text = text.trim();
    let is_long = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let why = if is_long { "it is too large" } else { "write a whole number, as 5" };
    text.parse().map_err(|_| why.to_owned())
}

/// Reads a number of seconds; its limits are the definition's to say.
pub fn seconds(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| "write a number of seconds, as 0.5".to_owned())
}
