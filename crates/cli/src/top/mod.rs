//! `millstream top`: what this machine does, on the terminal or line by line, and changes nothing.

mod draw;
mod screen;
mod terminal;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use millstream_lab::runner::Interrupt;
use millstream_observe::probe::{Absent, Want, kernel, watch_kernel};
use millstream_observe::watch::{Choice, Moment, Subject, Watch, moment_json, sheet, summary};
use millstream_record::error::Error;
use screen::{Action, Screen};
use terminal::{Event, Terminal};

use crate::exits;
use crate::output::{out, out_json, say};
use crate::values::{seconds, whole};

/// For `top --help`.
pub const HELP: &str = "\
Keys:
  q          end                          space   look now
  Tab        the next table               A       that table alone, or all
  1          CPUs each, or all in one     i       lines in which nothing happens, or not
  < >        sort by the column before, behind    R  the other way around     =  as it was
  arrows, PgUp, PgDn, Home, End           move in the table
  s, d       seconds between two looks    ?, h    keys, and what is not measured

Examples:
  millstream top
  millstream top --batch -n 5 -d 2        # five times every two seconds, as text
  millstream top --json -n 1              # one object per look

'-' is \"not measured\"; `?`, the end of the text and `absent` of the JSON say why. Interfaces and sockets are those of the network
namespace it is started in. Engines of Millstream are those of this user that have a name; their sockets are asked for, as by
`millstream ss`. Without root it shows what it can.";

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Seconds from one look to the next, 0.1 at least
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 1.0, allow_negative_numbers = true, value_parser = seconds)]
    delay: f64,
    /// Looks, then it ends; without it, until it is ended
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u32>)]
    count: Option<u32>,
    /// As text, one look after the other, without a terminal
    #[arg(short, long)]
    batch: bool,
    /// As JSON, an object on a line for each look
    #[arg(long, conflicts_with = "batch")]
    json: bool,
    /// Leave out lines in which nothing happens
    #[arg(short = 'i', long)]
    busy: bool,
    /// Count no system calls: they are counted in windows of a few milliseconds, two in a second,
    /// which cost most where there are many
    #[arg(long)]
    no_system_calls: bool,
    /// Look by /proc alone: no BPF programs count in the kernel
    #[arg(long)]
    no_bpf: bool,
}

/// Shortest time between two looks.
const DELAY_LEAST: Duration = Duration::from_millis(100);

/// Returns the time between two looks, if `seconds` is one.
fn delay(seconds: f64) -> Option<Duration> {
    let delay = Duration::try_from_secs_f64(seconds).ok()?;
    (delay >= DELAY_LEAST && delay <= Duration::from_secs(86_400)).then_some(delay)
}

/// Watches, and shows.
pub fn top(arguments: &Arguments) -> Result<ExitCode, Error> {
    let delay = delay(arguments.delay).ok_or_else(|| {
        Error::Refused(format!("--delay {}: from 0.1 to 86400 seconds", arguments.delay))
    })?;
    let is_lines = arguments.batch || arguments.json;
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !is_lines && !is_terminal {
        return Err(Error::Refused("this is no terminal; say --batch or --json".to_owned()));
    }
    let programs = match arguments.no_bpf {
        true => Err(Absent("--no-bpf".to_owned())),
        false => {
            let no_system_calls = arguments.no_system_calls;
            watch_kernel(&Want { no_system_calls, ..Want::default() }).and_then(|()| kernel())
        }
    };
    let watch = Watch::open(programs).map_err(refused)?;
    if is_lines { lines(arguments, watch, delay) } else { live(arguments, watch, delay) }
}

fn refused(why: Absent) -> Error {
    Error::Refused(why.0)
}

/// Prints one look after the other as text or JSON.
fn lines(arguments: &Arguments, mut watch: Watch, delay: Duration) -> Result<ExitCode, Error> {
    let interrupt = Interrupt::from_signals()?;
    let mut absent = None;
    let mut left = arguments.count;
    while left != Some(0) {
        let until = Instant::now() + delay;
        while Instant::now() < until && !interrupt.is_raised() {
            let rest = until.saturating_duration_since(Instant::now());
            std::thread::sleep(rest.min(Duration::from_millis(50)));
        }
        if interrupt.is_raised() {
            break;
        }
        let moment = watch.sample().map_err(refused)?;
        if arguments.json {
            out_json(moment_json(&moment))?;
        } else {
            out(&text(&moment, arguments.busy))?;
            if absent.as_ref() != Some(&moment.absent) {
                for (what, why) in &moment.absent {
                    say(format_args!("{what}: {why}"));
                }
                absent = Some(moment.absent);
            }
        }
        left = left.map(|left| left - 1);
    }
    let whole = left.is_none() || left == Some(0);
    Ok(exits::unless_interrupted(!whole))
}

/// Returns all tables of a look.
fn text(moment: &Moment, busy_only: bool) -> String {
    let mut text = format!("at {:.3} s, {:.3} s wide\n", moment.at_s, moment.width_s);
    for line in summary(moment) {
        text.push_str(&format!("{line}\n"));
    }
    for subject in Subject::ALL {
        let sheet = sheet(moment, subject, Choice { together: false, busy_only });
        text.push_str(&format!("\n{}", sheet.text()));
    }
    text + "\n"
}

/// Shows looks on the terminal, until it is ended.
fn live(arguments: &Arguments, mut watch: Watch, delay: Duration) -> Result<ExitCode, Error> {
    let mut terminal = Terminal::enter()?;
    let mut screen = Screen::new(delay, arguments.busy);
    let mut moment = None;
    let mut next = Instant::now() + screen.delay;
    let mut left = arguments.count;
    loop {
        terminal.draw(|frame| draw::draw(frame, &mut screen, moment.as_ref()))?;
        let action = match terminal.wait(next.saturating_duration_since(Instant::now()))? {
            Event::Key(key) => screen.key(key),
            Event::End => return Ok(exits::unless_interrupted(true)),
            Event::Nothing => Action::None,
        };
        match action {
            Action::End => return Ok(ExitCode::SUCCESS),
            Action::Suspend => terminal.suspend()?,
            Action::Look => next = Instant::now(),
            Action::None => {}
        }
        if Instant::now() >= next {
            moment = Some(watch.sample().map_err(refused)?);
            next = Instant::now() + screen.delay;
            left = left.map(|left| left.saturating_sub(1));
            if left == Some(0) {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}
