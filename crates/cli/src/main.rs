//! The `millstream` command: runs experiments of the laboratory, lists, shows and
//! forgets what was kept, writes reports, makes paths bad on purpose, and replays captures.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

mod arguments;
mod clog;
mod compare;
mod doctor;
mod ends;
mod environment;
mod exits;
#[cfg(feature = "parquet")]
mod export;
mod forget;
mod gate;
mod help;
mod impair;
mod in_turns;
mod investigate;
mod keeper;
mod kept;
mod live;
#[cfg(feature = "manual")]
mod manual;
mod output;
mod prepare;
mod probe;
mod progress;
mod replay;
mod run;
mod serve;
mod setting;
#[cfg(feature = "top")]
mod top;
mod values;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::FromArgMatches;
use millstream_record::error::Error;

fn main() -> ExitCode {
    let matches = help::command().try_get_matches();
    let arguments = match matches.and_then(|found| Arguments::from_arg_matches(&found)) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    if !matches!(arguments.command, Command::Worker { .. } | Command::Guard { .. }) {
        millstream_lab::runner::survive_file_limit();
    }
    let done = match arguments.command {
        Command::Worker { parent } => return millstream_load::worker::main(parent),
        Command::Guard { of: Some(pid), .. } => return millstream_testbed::guard::watch(pid),
        Command::Guard { of: None, raised, server, command } => {
            return millstream_testbed::guard::main(&command, raised, server);
        }
        #[cfg(feature = "manual")]
        Command::Manual { folder } => manual::manual(&folder),
        Command::Undo => run::undo(),
        Command::Run(run) => run::run(&run),
        Command::Investigate(one) => investigate::investigate(&one),
        Command::Probe(one) => probe::probe(&one),
        Command::Serve(one) => serve::serve(&one),
        #[cfg(feature = "top")]
        Command::Top(one) => top::top(&one),
        Command::Clog(one) => clog::clog(&one),
        Command::Doctor(one) => doctor::doctor(&one),
        Command::Gate(gate) => Ok(gate::gate(&gate)),
        Command::Compare(one) => compare::compare(&one),
        Command::Explain(one) => compare::explain_kept(&one),
        Command::List(list) => kept::list(&list),
        Command::Show(show) => kept::show(&show),
        Command::Report(report) => kept::report(&report),
        #[cfg(feature = "parquet")]
        Command::Export(one) => export::export(&one),
        Command::Forget(forget) => forget::forget(&forget),
        Command::Impair(impair) => impair::impair(&impair),
        Command::Replay(replay) => replay::replay(&replay),
        Command::Ps(one) => live::ps(&one),
        Command::Netstat(one) => live::netstat(&one),
        Command::Drops(one) => live::drops(&one),
        Command::Stages(one) => live::stages(&one),
        Command::Trace(one) => live::trace(&one),
        Command::Events(one) => live::events(&one),
        Command::Metrics(one) => live::metrics(&one),
        Command::Ss(one) => live::ss(&one),
        Command::Queue(one) => live::queue(&one),
        Command::Census(one) => live::census(&one),
        Command::Snapshot(one) => live::snapshot(&one),
        Command::Links(one) => live::links(&one),
        Command::Pool(one) => live::pool(&one),
        Command::Neigh(one) => live::neigh(&one),
        Command::Route(one) => live::route(&one),
        Command::Groups(one) => live::groups(&one),
        Command::Timers(one) => live::timers(&one),
    };
    match done {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

/// Prints help and version as they are, and one line for a command line that is not understood.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion,
    };
    match error.kind() {
        DisplayHelp | DisplayVersion => match output::out(&error.render().to_string()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        },
        DisplayHelpOnMissingArgumentOrSubcommand if std::env::args_os().len() == 1 => {
            let code = fail(&Error::Refused(arguments::in_one_line(error, std::env::args_os())));
            output::say(format_args!("To begin with:\n{}", help::first().trim_end()));
            code
        }
        _ => {
            let code = fail(&Error::Refused(arguments::in_one_line(error, std::env::args_os())));
            let is_gate = std::env::args_os().nth(1).is_some_and(|command| command == "gate");
            if is_gate { ExitCode::from(exits::GATE_REFUSED) } else { code }
        }
    }
}

/// Writes one line on the standard error. Returns the exit code that fits.
fn fail(error: &Error) -> ExitCode {
    output::say(format_args!("millstream: {error}"));
    ExitCode::from(exits::code(error))
}
