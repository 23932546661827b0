//! The command line: names, help, and the parsing of `--set`.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
use clap::{Args, CommandFactory, Parser, Subcommand};
use millstream_lab::error::Error;
use millstream_lab::experiment::{FACTORS, Overrides, STACKS, builtins};
use millstream_lab::remote::{FarHost, Token};
use millstream_lab::runner::{Addresses, Places};
use millstream_lab::workload::ALL;

/// Measures TCP over the kernel's stack and over Millstream, side by side.
#[derive(Debug, Parser)]
#[command(name = "millstream", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// For `--help`; docs/experiments.md has it at more length.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    something failed, or a configuration has no run that counts
  2    what was asked for was refused before anything was begun
  130  an experiment was interrupted";

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment: a built-in one by its name, or a TOML file
    #[command(after_long_help = run_help())]
    Run(Run),
    /// Find out why equal runs differ, and prove it: of a built-in experiment, or of any command
    #[command(after_long_help = crate::investigate::HELP)]
    Investigate(Box<crate::investigate::Arguments>),
    /// Watch this machine: what each CPU does, interval by interval, and who makes it
    #[command(after_long_help = crate::probe::HELP)]
    Probe(Box<crate::probe::Arguments>),
    /// Be the far end of another host's runs, until it is interrupted
    #[command(after_long_help = crate::serve::HELP)]
    Serve(crate::serve::Arguments),
    /// Watch this machine on the terminal: CPUs, interfaces, interrupts, sockets and their queues, with keys as in top
    #[command(after_long_help = crate::top::HELP)]
    Top(crate::top::Arguments),
    /// Is this host set up for the network load it has? Reads only, with a remedy for what it finds
    #[command(after_long_help = crate::doctor::HELP)]
    Doctor(crate::doctor::Arguments),
    /// Say by the exit status whether one kept set of runs is worse than another, for CI and `git bisect run`
    #[command(after_long_help = crate::gate::HELP)]
    Gate(crate::gate::Arguments),
    /// Compare two kept sets of runs: results and every counter, with what could have been seen
    #[command(after_long_help = crate::compare::HELP)]
    Compare(crate::compare::Compare),
    /// Say what kept runs show of their causes, without running anything
    #[command(after_long_help = crate::compare::EXPLAIN_HELP)]
    Explain(crate::compare::Explain),
    /// List the built-in experiments, and the experiments that are kept
    List(List),
    /// Show a kept experiment, the last one if none is named, or several beside each other, as a table or as a matrix of its cases
    Show(Show),
    /// Write the page of a kept experiment (one self-contained HTML file)
    Report(Report),
    /// Take kept experiments out of the store, with all their runs
    #[command(after_long_help = FORGET_HELP)]
    Forget(Forget),
    /// Join two TAP devices by a path with delay, loss, a rate limit and other faults
    #[command(after_long_help = crate::impair::HELP)]
    Impair(Box<crate::impair::Impair>),
    /// Send what a capture holds (pcap or pcap-ng), with its timing
    #[command(after_long_help = crate::replay::HELP)]
    Replay(crate::replay::Arguments),
    /// List the engines of this user that run and are published
    #[command(after_long_help = crate::live::HELP)]
    Ps(crate::live::Ps),
    /// Packets and errors of an engine's links, in the manner of `netstat -ni 1`
    #[command(after_long_help = crate::live::NETSTAT_HELP)]
    Netstat(crate::live::Netstat),
    /// What an engine has dropped, by reason
    #[command(after_long_help = crate::live::DROPS_HELP)]
    Drops(crate::live::Drops),
    /// Where an engine's time goes, and the sizes of its batches
    #[command(after_long_help = crate::live::STAGES_HELP)]
    Stages(crate::live::Stages),
    /// Everything that engines publish, for Prometheus
    #[command(after_long_help = crate::live::METRICS_HELP)]
    Metrics(crate::live::Metrics),
    /// Put back what a killed `investigate --force` has changed on this machine, and end what it has left
    Undo,
    /// End a command when the laboratory is gone (started by `investigate`, not by hand)
    #[command(hide = true)]
    Guard {
        /// The command.
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Do the traffic of one run (started by `run`, not by hand)
    #[command(hide = true)]
    Worker {
        /// The process that started it.
        parent: u32,
    },
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Name of a built-in experiment, or a file ending in .toml
    pub experiment: String,
    /// Stacks to measure, separated by commas; the first is the base of comparisons
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub stack: Option<Vec<String>>,
    /// Blocks: in each, every configuration runs once, in random order
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
    pub repeats: Option<u32>,
    /// Levels of a factor; may be given once for each
    #[arg(long, value_name = "FACTOR=A,B", value_parser = setting)]
    pub set: Vec<Setting>,
    /// Seconds that each run measures
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub duration: Option<f64>,
    /// Seconds of warm-up before that
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub warmup: Option<f64>,
    /// Whether a run waits until the CPUs of its two hosts are near each other, and is done again when they were not
    /// [default: what the experiment says, else true]
    #[arg(long, value_name = "BOOL")]
    pub steady_cpus: Option<bool>,
    /// Address of the far end that is there already: of this host, or of another with --serve [default: hosts made for each run]
    #[arg(long, value_name = "ADDRESS")]
    pub far: Option<IpAddr>,
    /// Address of the near end, with --far [default: the kernel chooses]
    #[arg(long, value_name = "ADDRESS", requires = "far")]
    pub near: Option<IpAddr>,
    /// Where `millstream serve` of the far host is asked
    #[arg(long, value_name = "ADDRESS:PORT", requires = "far")]
    pub serve: Option<SocketAddr>,
    /// File with the token of `millstream serve`, for its owner alone; without it MILLSTREAM_TOKEN has it
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub token_file: Option<PathBuf>,
    /// Seed of the order of runs; drawn when not given, and recorded
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// Write the runs to this file too, one JSON object per line ('-': standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder of the page
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
    #[command(flatten)]
    pub database: Database,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub database: Database,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct Show {
    #[command(flatten)]
    pub which: Which,
    /// Markdown tables with a line for each case and ratios to the first stack, and how many of them hold
    #[arg(long, conflicts_with = "json")]
    pub matrix: bool,
    /// Write its runs to this file instead, one JSON object per line ('-': standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub database: Database,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct Report {
    #[command(flatten)]
    pub which: Which,
    /// Folder of the page
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
    /// Write its runs to this file too, one JSON object per line ('-': standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub database: Database,
}

/// Arguments of `forget`.
#[derive(Debug, Args)]
pub struct Forget {
    /// Id of an experiment, or the beginning of exactly one
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub database: Database,
}

/// For `forget --help`.
const FORGET_HELP: &str = "\
All are taken out, or none. There is no way back: `millstream show ID --json FILE` keeps the runs elsewhere.
Pages and JSON files that were written stay. An experiment that is running is refused, and one
that runs beside it is not disturbed.";

/// Which kept experiments.
#[derive(Debug, Args)]
pub struct Which {
    /// Id of the experiment, its beginning, or a name (then the one that was kept last of that name); several
    /// are compared with the first [default: the one that was kept last]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Read several experiments as one sample, a large design that was measured in slices
    #[arg(long)]
    pub pool: bool,
}

/// Where experiments are kept.
#[derive(Debug, Args)]
pub struct Database {
    /// SQLite file with what is kept [default: millstream.sqlite3 in $XDG_DATA_HOME/millstream]
    #[arg(long = "db", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// One `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    factor: String,
    levels: Vec<String>,
}

fn setting(text: &str) -> Result<Setting, String> {
    let (factor, levels) = text.split_once('=').ok_or("write it as factor=a,b")?;
    let levels: Vec<String> = levels.split(',').map(|level| level.trim().to_owned()).collect();
    if factor.trim().is_empty() || levels.iter().any(String::is_empty) {
        return Err("write it as factor=a,b".to_owned());
    }
    Ok(Setting { factor: factor.trim().to_owned(), levels })
}

/// A number that counts; what it may be at most is the definition's to say.
pub fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    let text = text.trim();
    let is_long = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let why = if is_long { "it is too large" } else { "write a whole number, as 5" };
    text.parse().map_err(|_| why.to_owned())
}

pub fn seconds(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| "write a number of seconds, as 0.5".to_owned())
}

impl Run {
    /// Where the two ends are.
    pub fn places(&self) -> Result<Places, Error> {
        let Some(far) = self.far else { return Ok(Places::Made) };
        let host = |control| {
            Token::find(self.token_file.as_deref()).map(|token| FarHost { control, token })
        };
        let host = self.serve.map(host).transpose()?;
        let addresses = Addresses { near: self.near, far, host };
        addresses.check()?;
        Ok(Places::There(addresses))
    }

    /// What the options change of the definition.
    pub fn overrides(&self) -> Overrides {
        let pair = |set: &Setting| (set.factor.clone(), set.levels.clone());
        Overrides {
            stacks: self.stack.clone(),
            repeats: self.repeats,
            duration_s: self.duration,
            warmup_s: self.warmup,
            seed: self.seed,
            steady_cpus: self.steady_cpus,
            set: self.set.iter().map(pair).collect(),
        }
    }
}

/// What was wrong with a command line, and what to do.
pub fn in_one_line(error: &clap::Error, mut words: impl Iterator<Item = OsString>) -> String {
    let text = error.render().to_string();
    let missing = error.kind() == DisplayHelpOnMissingArgumentOrSubcommand;
    let what = text.split_once("Usage: ").map_or(text.as_str(), |(what, _)| what);
    let lines = what.lines().map(str::trim);
    let kept = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let sentence = kept.collect::<Vec<_>>().join(" ").replace(" tip: ", "; ");
    let sentence = if missing { "a command is missing" } else { &sentence };
    let sentence = sentence.strip_prefix("error: ").unwrap_or(sentence);
    let given = words.nth(1).unwrap_or_default();
    let commands = Arguments::command();
    let command = commands.find_subcommand(given).filter(|command| !command.is_hide_set());
    let help = command.map_or_else(String::new, |command| format!("{} ", command.get_name()));
    format!("{sentence}; see `millstream {help}--help`")
}

/// Built-ins and factors, for `run --help`.
fn run_help() -> String {
    use std::fmt::Write;
    let names: Vec<&str> = builtins().iter().map(|(name, _)| *name).collect();
    let mut text =
        format!("Built-in experiments: {}\n\nFactors (levels; default):\n", names.join(", "));
    let _ = writeln!(text, "  {:<20} {} (both)", "stack", STACKS.join(", "));
    for factor in FACTORS.iter() {
        let known = ALL.iter().filter(|workload| factor.is_of(**workload));
        let workloads: Vec<&str> = known.map(|workload| workload.name()).collect();
        let _ = writeln!(text, "  {:<20} {} ({})", factor.name, factor.levels, factor.default);
        let _ = writeln!(text, "  {:<20}   {} [{}]", "", factor.help, workloads.join(", "));
    }
    text.push_str("\nAn interrupt (Ctrl-C) keeps what was finished.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_not_understood_is_one_line_with_what_to_do() {
        let cases: [(&[&str], &str); 18] = [
            (&[], "a command is missing; see `millstream --help`"),
            (&["frobnicate"], "unrecognized subcommand 'frobnicate'; see `millstream --help`"),
            (
                &["run"],
                "the following required arguments were not provided: <EXPERIMENT>; \
                 see `millstream run --help`",
            ),
            (
                &["run", "x", "--repeat", "3"],
                "unexpected argument '--repeat' found; a similar argument exists: '--repeats'; \
                 see `millstream run --help`",
            ),
            (
                &["run", "x", "--repeats", "many"],
                "invalid value 'many' for '--repeats <N>': write a whole number, as 5; see",
            ),
            (&["run", "x", "--repeats", "4294967296"], "'--repeats <N>': it is too large"),
            (&["run", "x", "--repeats", "-1"], "'-1' for '--repeats <N>': write a whole number"),
            (&["run", "x", "--seed", "-1"], "'-1' for '--seed <N>': write a whole number"),
            (&["run", "x", "--duration", "1s"], "'1s' for '--duration <SECONDS>': write a number"),
            (&["run", "x", "--duration="], "'--duration <SECONDS>': write a number of seconds"),
            (&["run", "x", "--warmup", "no"], "'--warmup <SECONDS>': write a number of seconds"),
            (&["run", "x", "--set", "streams"], "write it as factor=a,b"),
            (&["forget"], "were not provided: <ID>...; see `millstream forget --help`"),
            (&["show", "--jsn"], "see `millstream show --help`"),
            (
                &["replay", "in.pcap"],
                "<--interface <NAME>|--tap <NAME>>; see `millstream replay --help`",
            ),
            (
                &["replay", "in.pcap", "--tap", "t", "--speed", "-1"],
                "'-1' for '--speed <FACTOR>': '-1' is not a factor",
            ),
            (&["replay", "in.pcap", "--tap", "t", "--mtu", "-1"], "'-1' for '--mtu <BYTES>': "),
            (&["report", "x", "--out"], "a value is required for '--out <DIR>'"),
        ];
        for (words, expected) in cases {
            let all = std::iter::once("millstream").chain(words.iter().copied());
            let error = Arguments::try_parse_from(all.clone()).unwrap_err();
            let line = in_one_line(&error, all.map(OsString::from));
            assert!(line.contains(expected) && !line.contains('\n'), "{line}");
            assert!(line.ends_with(" --help`"), "{line}");
        }
    }

    #[test]
    fn a_setting_is_a_factor_and_its_levels() {
        let parsed = setting("streams=1, 4").unwrap();
        assert_eq!((parsed.factor.as_str(), parsed.levels.len()), ("streams", 2));
        for wrong in ["streams", "=1", "streams=", "streams=1,,2", "="] {
            assert!(setting(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_help_names_every_factor() {
        let help = run_help();
        assert!(FACTORS.iter().all(|factor| help.contains(factor.name)));
        assert!(help.contains("first-look"));
    }
}
