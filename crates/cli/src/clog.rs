//! `millstream clog`: the historical clogs, each beside its cure.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream_record::error::Error;

/// For `clog --help`.
pub const HELP: &str = "\
Examples:
  millstream clog                          # what there is
  millstream clog pullup                   # under two minutes: runs in turns, the picture, the diagnosis
  millstream clog route-lock --json -      # all of it as JSON
  millstream clog putback-walk --live      # as an engine that is published, to look into while it clogs

Clogged and cured runs take turns in this process, over links in memory. What slows the clogged ones down is in the stack
itself, and compiled in for this alone: `make clogs` builds such a command, and a package has it as millstream-clogs, which
this one calls. The diagnosis is that of `investigate`, from
what was measured; it wants root, or CAP_BPF and CAP_PERFMON, for the CPU clock's samples. docs/clogs tells of each.";

/// Arguments of `clog`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Which; without it they are listed
    name: Option<String>,
    /// Rounds, in each of which clogged and cured runs take turns [default: as many as it wants;
    /// the diagnosis needs 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = crate::values::whole::<u32>)]
    rounds: Option<u32>,
    /// Seconds of each run
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = crate::values::seconds)]
    seconds: Option<f64>,
    /// Let it live: the clogged system as an engine that is published (`millstream ps`), with a
    /// load from outside; at the end its rate is told
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "json"])]
    live: bool,
    /// Minutes that it lives
    #[arg(long, value_name = "N", default_value_t = 3.0, requires = "live", value_parser = crate::values::seconds)]
    minutes: f64,
    /// Let the cure live, in place of the clog
    #[arg(long, requires = "live")]
    cured: bool,
    /// Write what was found to this file as JSON ('-': standard output, alone)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Has the command that was built with them take this one's place, where it lies beside it, as a
/// package has both; says else how to get one.
#[cfg(not(feature = "clogs"))]
pub fn clog(_: &Arguments) -> Result<ExitCode, Error> {
    use std::os::unix::process::CommandExt;

    let own = std::env::current_exe().map_err(Error::file("the path of this command"))?;
    let beside = own.with_file_name("millstream-clogs");
    if beside.is_file() {
        let why = std::process::Command::new(&beside).args(std::env::args_os().skip(1)).exec();
        return Err(Error::file(beside.display().to_string())(why));
    }
    Err(Error::Refused(
        "this command was built without the clogs, so that the stack has no code of them; `make clogs` builds one with them"
            .to_owned(),
    ))
}

#[cfg(feature = "clogs")]
pub use with::clog;

#[cfg(feature = "clogs")]
mod with {
    use std::time::Duration;

    use millstream_lab::clog::{CLOGS, Clog, Living, Options, find};
    use millstream_lab::runner::Interrupt;
    use millstream_observe::probe::{Want, watch_kernel};

    use super::{Arguments, Error, ExitCode};
    use crate::exits;
    use crate::output::{out, say, tell};

    /// Samples of the CPU clock in a second.
    const PROFILE_HZ: u64 = 499;

    /// Lists them, or runs one and tells what was seen.
    pub fn clog(arguments: &Arguments) -> Result<ExitCode, Error> {
        let Some(name) = &arguments.name else {
            let lines = CLOGS.map(|clog| format!("{:<20}  {}\n", clog.name, clog.title));
            out(&lines.concat())?;
            return Ok(ExitCode::SUCCESS);
        };
        let clog = find(name)?;
        let interrupt = Interrupt::from_signals()?;
        if arguments.live {
            return live(clog, arguments, &interrupt);
        }
        let want = Want { no_system_calls: true, profile_hz: Some(PROFILE_HZ), ..Want::default() };
        if let Err(why) = watch_kernel(&want) {
            say(format_args!(
                "without what the kernel counts, {why}: the diagnosis may name nothing"
            ));
        }
        let options = Options { rounds: arguments.rounds, seconds: arguments.seconds };
        let mut say_run = |at: usize, of: usize| {
            if at == 1 || at == of || at.is_multiple_of(10) {
                say(format_args!("{name}: run {at} of {of}"));
            }
        };
        let found = clog.run(options, &|| interrupt.check(), &mut say_run)?;
        tell(&found.text(), &found, arguments.json.as_deref())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Lets one live, and tells its rate as `investigate` reads it.
    fn live(clog: &Clog, arguments: &Arguments, interrupt: &Interrupt) -> Result<ExitCode, Error> {
        let time = Duration::try_from_secs_f64(arguments.minutes * 60.0)
            .map_err(|_| Error::Refused("--minutes: too long".to_owned()))?;
        let (figure, rate) = clog.live(&Living {
            clogged: !arguments.cured,
            time,
            is_interrupted: &|| interrupt.is_raised(),
            say: &|line| say(format_args!("{}: {line}", clog.name)),
        })?;
        out(&format!("{figure}={rate:.0}\n"))?;
        Ok(exits::unless_interrupted(interrupt.is_raised()))
    }
}
