//! The command line: which commands there are, and what is said of one that is not understood. The
//! arguments of each are in its own file.

use std::ffi::OsString;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
use clap::{CommandFactory, Parser, Subcommand};

/// Finds out why network results are low or erratic, and measures TCP over the kernel and over
/// Millstream.
#[derive(Debug, Parser)]
#[command(name = "millstream", version, max_term_width = 100)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment: a built-in one by its name, or a TOML file
    #[command(after_long_help = crate::run::help())]
    Run(crate::run::Arguments),
    /// Find out why equal runs differ, and prove it: of a built-in experiment, or of any command
    #[command(after_long_help = crate::investigate::HELP)]
    Investigate(Box<crate::investigate::Arguments>),
    /// Watch this machine: what each CPU does, interval by interval, and who makes it
    #[command(after_long_help = crate::probe::HELP)]
    Probe(Box<crate::probe::Arguments>),
    /// Be the far end of another host's runs, until it is interrupted
    #[command(after_long_help = crate::serve::HELP)]
    Serve(crate::serve::Arguments),
    #[cfg(feature = "top")]
    /// Watch this machine on the terminal: CPUs, interfaces, interrupts, sockets and their queues,
    /// with keys as in top
    #[command(after_long_help = crate::top::HELP)]
    Top(crate::top::Arguments),
    /// Is this host set up for the network load it has? Reads only, with a remedy for what it finds
    #[command(after_long_help = crate::doctor::HELP)]
    Doctor(crate::doctor::Arguments),
    /// Run a historical clog of network stacks beside its cure, with its picture and diagnosis;
    /// without a name, list them
    #[command(after_long_help = crate::clog::HELP)]
    Clog(crate::clog::Arguments),
    /// Say by the exit status whether one kept set of runs, or a command, is worse than another
    /// set, for CI and `git bisect run`
    #[command(after_long_help = crate::gate::HELP)]
    Gate(crate::gate::Arguments),
    /// Compare two kept sets of runs: results and every counter, with what could have been seen
    #[command(after_long_help = crate::compare::HELP)]
    Compare(crate::compare::Compare),
    /// Say what kept runs show of their causes, without running anything
    #[command(after_long_help = crate::compare::EXPLAIN_HELP)]
    Explain(crate::compare::Explain),
    /// List the built-in experiments, and the experiments that are kept
    List(crate::kept::List),
    /// Show a kept experiment, the last one if none is named, or several beside each other, as a
    /// table or as a matrix of its cases
    Show(crate::kept::Show),
    /// Write the page of a kept experiment (one self-contained HTML file)
    Report(crate::kept::Report),
    #[cfg(feature = "parquet")]
    /// Write kept runs as Parquet files, for DuckDB and others
    #[command(after_long_help = crate::export::HELP)]
    Export(crate::export::Arguments),
    /// Take kept experiments out of the store, with all their runs
    #[command(after_long_help = crate::forget::HELP)]
    Forget(crate::forget::Arguments),
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
    /// Packets that an engine has dropped, by reason
    #[command(after_long_help = crate::live::DROPS_HELP)]
    Drops(crate::live::Drops),
    /// Where an engine's time goes, and the sizes of its batches
    #[command(after_long_help = crate::live::STAGES_HELP)]
    Stages(crate::live::Stages),
    /// Where sampled packets of an engine were, and how long: a trace for Perfetto
    #[command(after_long_help = crate::live::TRACE_HELP)]
    Trace(crate::live::Trace),
    /// Events of one connection: states, windows, losses, time-outs, as qlog
    #[command(after_long_help = crate::live::EVENTS_HELP)]
    Events(crate::live::Events),
    /// Everything that engines publish, for Prometheus
    #[command(after_long_help = crate::live::METRICS_HELP)]
    Metrics(crate::live::Metrics),
    /// The sockets of an engine that runs: state, ends, queues, memory held; with -i all of
    /// TCP_INFO, with -a handshakes and TIME-WAIT
    #[command(after_long_help = crate::live::SS_HELP)]
    Ss(crate::live::Ss),
    /// The queues of one socket: payload, memory held, limits, who waits; with -v each segment, of
    /// a listener each connection that waits
    #[command(after_long_help = crate::live::SOCKETS_HELP)]
    Queue(crate::live::Queue),
    /// The sizes of all that is queued in an engine, by powers of two: payload, and memory held
    #[command(after_long_help = crate::live::SOCKETS_HELP)]
    Census(crate::live::Census),
    /// Write all that engines publish and answer to a file, to be looked at later (`--from FILE` of
    /// every command that looks); or compare two such files
    #[command(after_long_help = crate::live::SNAPSHOT_HELP)]
    Snapshot(crate::live::KeepSnapshot),
    /// The links of an engine: rings, counters, drops by cause
    #[command(after_long_help = crate::live::SOCKETS_HELP)]
    Links(crate::live::One),
    /// The pool of an engine, and who holds how much of it
    #[command(after_long_help = crate::live::SOCKETS_HELP)]
    Pool(crate::live::One),
    /// The neighbours of an engine: state, address, age, probes, packets that wait
    #[command(after_long_help = crate::live::SOCKETS_HELP)]
    Neigh(crate::live::One),
    /// The routes of an engine, those in a prefix, or the one to an address
    #[command(after_long_help = crate::live::SOCKETS_HELP)]
    Route(crate::live::RouteTable),
    /// The multicast groups of an engine, and who listens to which sources
    #[command(after_long_help = crate::live::SOCKETS_HELP)]
    Groups(crate::live::One),
    /// The timers of an engine by kind, and how soon they are due; with -v each of them
    #[command(after_long_help = crate::live::SOCKETS_HELP)]
    Timers(crate::live::Timers),
    /// Put back what a killed `investigate --force` has changed on this machine, and end what it
    /// has left
    Undo,
    /// End a command when the laboratory is gone (started by those that start one, not by hand)
    #[command(hide = true)]
    Guard {
        /// A process that is there, in place of a command.
        #[arg(long, value_name = "PID", conflicts_with = "command")]
        of: Option<u32>,
        /// In a session of its own, with a high priority.
        #[arg(long)]
        raised: bool,
        /// The command is a server: it ends with the last of what it has started.
        #[arg(long)]
        server: bool,
        /// The command.
        #[arg(last = true)]
        command: Vec<std::ffi::OsString>,
    },
    #[cfg(feature = "manual")]
    /// Write the manual pages and the completions of this command, as a package has them
    #[command(hide = true)]
    Manual {
        /// The folder below which they come, as below `/usr/share`.
        folder: std::path::PathBuf,
    },
    /// Do the traffic of one run (started by `run`, not by hand)
    #[command(hide = true)]
    Worker {
        /// The process that started it.
        parent: u32,
    },
}

/// Returns the fault of a command line, and the remedy.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_not_understood_is_one_line_with_what_to_do() {
        let cases: [(&[&str], &str); 20] = [
            (&["run", "x", "--name", "a b"], "'a b' for '--name <NAME>': write 1 to 64 letters"),
            (&["gate", "a", "--standard", "--name", "b", "--", "c"], "cannot be used with"),
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
}
