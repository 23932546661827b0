//! The exit codes of all commands, in one table. `--help` of each command and docs/interfaces.md
//! take them from here.

use std::process::ExitCode;

use millstream_record::error::Error;

/// Something failed; of `gate`: the second set is worse.
pub const FAILED: u8 = 1;
/// The command was refused, and nothing was begun.
pub const REFUSED: u8 = 2;
/// The status of `gate` where it cannot be told, which `git bisect run` takes as a commit to skip.
pub const CANNOT_TELL: u8 = 125;
/// The status of `gate` where it is refused: `git bisect run` takes 1 to 127 as a bad commit, and
/// ends at this.
pub const GATE_REFUSED: u8 = 128;
/// The command was interrupted.
pub const INTERRUPTED: u8 = 130;

/// A command, or `ALL`; a code; its meaning.
type Row = (&'static str, &'static str, &'static str);

/// All commands that say nothing else of a code.
pub const ALL: &str = "";

/// The command that has none of the rows of `ALL`.
const APART: &str = "gate";

/// All exit codes.
pub const TABLE: [Row; 15] = [
    (ALL, "0", "done"),
    (ALL, "1", "something failed, as a place that cannot be written"),
    (
        ALL,
        "2",
        "the request was refused before anything began: a command line that is not understood; a definition, capture, \
         database, server, interface or kept experiment that is missing or invalid; a device that may not be made",
    ),
    (ALL, "130", "interrupted; what was finished is kept"),
    ("doctor", "0", "looked, whatever was found"),
    (
        "gate",
        "0",
        "the second is as good or better: a loss of --least percent would have been seen; or a standard was kept",
    ),
    ("gate", "1", "it is worse"),
    (
        "gate",
        "125",
        "it cannot be told: too few or too noisy runs, a command that fails, or nothing that both have measured (git \
         bisect skips such a commit)",
    ),
    ("gate", "128", "the request was refused (git bisect ends)"),
    ("gate", "130", "interrupted"),
    ("probe", "130", "interrupted before the --count tables were shown"),
    (
        "probe",
        "any",
        "with COMMAND: its own code, or 128 plus the number of the signal that ended it",
    ),
    ("replay", "1", "something failed, or the device took no packet, as one that is down"),
    ("run", "1", "something failed, or a configuration has no run that counts"),
    ("undo", "1", "something could not be put back"),
];

/// Returns code and meaning of each exit of a command, or of all of them.
pub fn of(command: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = TABLE.iter().filter(move |row| row.0 == command);
    let is_own = move |code| TABLE.iter().any(|row| row.0 == command && row.1 == code);
    let all = TABLE.iter().filter(move |row| row.0 == ALL && command != APART && !is_own(row.1));
    let mut rows: Vec<&Row> = if command == ALL { own.collect() } else { own.chain(all).collect() };
    rows.sort_by_key(|row| row.1.parse().unwrap_or(u32::MAX));
    rows.into_iter().map(|&(_, code, meaning)| (code, meaning))
}

/// Returns the exit code of a command that ends with an error.
pub fn code(error: &Error) -> u8 {
    match error {
        Error::Refused(_) => REFUSED,
        Error::Interrupted => INTERRUPTED,
        _ => FAILED,
    }
}

/// Returns success, or that it was interrupted.
pub fn unless_interrupted(is_interrupted: bool) -> ExitCode {
    if is_interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }
}
