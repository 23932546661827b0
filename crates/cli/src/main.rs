//! The `millstream` command: runs experiments of the laboratory, lists and
//! shows what was kept, writes reports.

mod arguments;
mod kept;
mod progress;
mod run;

use std::process::ExitCode;

use clap::Parser;
use millstream_lab::error::Error;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Worker { parent } => return millstream_lab::worker::main(parent),
        Command::Run(run) => run::run(&run),
        Command::List(list) => kept::list(&list),
        Command::Show(show) => kept::show(&show),
        Command::Report(report) => kept::report(&report),
    };
    match done {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

/// One line on the standard error, and the exit code that fits.
fn fail(error: &Error) -> ExitCode {
    eprintln!("millstream: {error}");
    ExitCode::from(error.exit_code())
}
