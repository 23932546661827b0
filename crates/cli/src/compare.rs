//! `millstream compare` and `millstream explain`: what kept runs say, without running anything.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream_diagnose::flame::flame_difference;
use millstream_diagnose::sets::{Row, compare_sets, profiles};
use millstream_lab::investigate::{BUILD, BUILDS, Options, explain};
use millstream_record::RunRecord;
use millstream_record::error::Error;
use millstream_report::kernel::functions;
use millstream_report::of_machine;

use crate::ends::{FarBy, Server};
use crate::in_turns::{Two, pairs};
use crate::output::{self, full_path};
use crate::values::{Database, seconds, whole};
use crate::{investigate, kept};

/// Functions that are told beside a flame graph.
const FUNCTIONS: usize = 20;

/// For `compare --help`.
pub const HELP: &str = "\
Each configuration that both sets have is compared by its result (the second as a ratio to the first, with the 95 %
interval of the test that gives p, and the smallest change that would have been seen) and by every other result and feature.
Other values are what probes and Millstream's engines counted, by what was moved, and histograms, of which it is said how
many powers of two they have moved. Of sets that do not differ at most 5 % are said to differ in a result; of the other values
that are named, no more than 5 % are expected to be there by chance. Four runs of each set are needed at least. `gate` has an exit status for it.
Two commands are run in turns with --ab; their figure is compared pair by pair, as `gate --ab` does:
  millstream compare --ab './bench-old' './bench-new' --figure 'rate=([0-9.]+)'";

/// For `explain --help`.
pub const EXPLAIN_HELP: &str = "\
Groups of the results, the features that go with them, and the causes of the catalogue that fit: the first half of
`investigate`, of runs that are kept. Nothing is run, so nothing is forced and no cause is confirmed. The runs have to be
of one workload, stack and level of each factor; eight at least. Of a set with several, --only chooses one:
  millstream explain first-look --only tcp_rr --only kernel
  millstream explain first-look --out pages --plot any_cpu.softirq_time_share
Runs may differ in `threads` (`run udp-path --profile --repeats 8`): then it is said, too, what threads cost each other.";

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// Id, beginning of an id, or name of the experiment that is the standard
    #[arg(required_unless_present = "ab", conflicts_with_all = ["server", "far_by"])]
    first: Option<String>,
    /// The same of the one that is compared with it
    #[arg(required_unless_present = "ab")]
    second: Option<String>,
    /// Run two commands in turns, each one line of words, and compare the second with the first
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["first", "only"])]
    ab: Vec<String>,
    /// Runs of each of the two commands, 6 at least
    #[arg(long, value_name = "N", requires = "ab", default_value_t = 10, value_parser = whole::<u32>)]
    runs: u32,
    /// Where the figure of the two commands is, as of `gate`
    #[arg(long, value_name = "WHERE", requires = "ab")]
    figure: Option<String>,
    /// Seconds after which a run of a command is ended
    #[arg(long, value_name = "SECONDS", requires = "ab", default_value_t = 120.0, value_parser = seconds)]
    timeout: f64,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    by: FarBy,
    /// Write the comparison to this file as JSON, with every value that was looked at ('-':
    /// standard output, alone)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only runs of which a word of the configuration is this, as of `explain`
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Write the flame graph of the second set, coloured by what differs from the first, to this
    /// file (SVG), and tell the functions whose shares differ most; of sets that were profiled (`run --profile`, `investigate`)
    #[arg(long, value_name = "FILE")]
    flame: Option<PathBuf>,
    #[command(flatten)]
    database: Database,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// Id, beginning of an id, or name of the experiment, several if they are of one thing
    /// [default: the last one]
    which: Vec<String>,
    /// Only runs of which a word of the configuration is this: the workload, the stack, or
    /// FACTOR=LEVEL; each one given has to be there
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Write the page of what was found into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw on the page the results over this feature; `any_cpu.…` is the highest of any CPU, coloured
    /// by the CPU that has it. May be given several times
    #[arg(long, value_name = "FEATURE", requires = "out")]
    plot: Vec<String>,
    #[command(flatten)]
    catalogue: investigate::Catalogue,
    /// Write what was found to this file as JSON ('-': standard output, alone)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    database: Database,
}

/// Compares two kept sets.
pub fn compare(arguments: &Compare) -> Result<ExitCode, Error> {
    let set = |id: &String| -> Result<Vec<RunRecord>, Error> {
        let kept = kept::as_kept(&kept::find(std::slice::from_ref(id), &arguments.database)?);
        only(kept, &arguments.only)
    };
    let ([first, second], result) = match (&arguments.first, &arguments.second) {
        (Some(first), Some(second)) => ([set(first)?, set(second)?], None),
        _ => in_turns(arguments)?,
    };
    let mut found = compare_sets(&first, &second, 1);
    if let (Some(row), Some(case)) = (result, found.cases.first_mut()) {
        case.result = Some(row);
    }
    let mut text = found.text();
    if let Some(file) = &arguments.flame {
        let (subject, [before, after]) = profiles(&first, &second)?;
        let title = format!("{subject}: second set, red has more of the time than in the first");
        output::write_whole(file, flame_difference(&title, &before, &after).as_bytes())?;
        let table = functions([&before, &after], ["first set", "second set"], FUNCTIONS);
        text += &format!("\nWhere the CPUs were, by how the share differs\n{}", table.text());
    }
    output::tell(&text, &found, arguments.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Runs both commands in turns. Returns the runs of each and the row of their figure, which is of
/// their pairs.
fn in_turns(arguments: &Compare) -> Result<([Vec<RunRecord>; 2], Option<Row>), Error> {
    let Compare { ab, figure, runs, timeout, database, .. } = arguments;
    let (figure, timeout) = (figure.as_deref(), *timeout);
    Two::check(*runs)?;
    let server = arguments.server.other_end(&arguments.by)?;
    let two = Two {
        ab,
        figure,
        lower_is_better: false,
        pairs: *runs,
        timeout,
        server,
        name: None,
        database,
    };
    let (runs, key, _) = two.measure()?;
    let result = Row::of_pairs(&key, &pairs(&runs, &key));
    let of = |build: &str| {
        let of_build =
            runs.iter().filter(|run| run.factors.get(BUILD).is_some_and(|it| it == build));
        let mut runs: Vec<RunRecord> = of_build.cloned().collect();
        runs.iter_mut().for_each(|run| drop(run.factors.remove(BUILD)));
        runs
    };
    Ok((BUILDS.map(of), result))
}

/// Says what kept runs show.
pub fn explain_kept(arguments: &Explain) -> Result<ExitCode, Error> {
    let parts = kept::find(&arguments.which, &arguments.database)?;
    let causes = arguments.catalogue.causes()?;
    let runs = only(kept::as_kept(&parts), &arguments.only)?;
    let mut found = explain(&runs, &causes, &Options::default())?;
    if let Some((first, _)) = parts.first() {
        found.facts = of_machine(&first.started_at, &first.environment);
    }
    found.experiments = parts.into_iter().map(|(experiment, _)| experiment.id).collect();
    if let Some(name) = arguments.plot.iter().find(|name| !found.features.contains_key(*name)) {
        let names: Vec<&str> = found.features.keys().map(String::as_str).collect();
        let names = names.join(", ");
        return Err(Error::Refused(format!("--plot {name}: no such feature; there are: {names}")));
    }
    found.plots.clone_from(&arguments.plot);
    if let Some(folder) = &arguments.out {
        let page = investigate::write_page(folder, &found)?;
        output::say(format_args!("Page: {}", full_path(&page)));
    }
    output::tell(&found.text(), &found, arguments.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the runs whose configuration has each of `words`. Where there are none, the error names
/// the configurations.
fn only(runs: Vec<RunRecord>, words: &[String]) -> Result<Vec<RunRecord>, Error> {
    let name = |run: &RunRecord| format!("{} {}", run.configuration(), run.stack);
    let is_meant = |run: &RunRecord| {
        let name = name(run);
        words.iter().all(|word| name.split(' ').any(|one| one == word))
    };
    let configurations: BTreeSet<String> = runs.iter().map(name).collect();
    let meant: Vec<RunRecord> = runs.into_iter().filter(is_meant).collect();
    if meant.is_empty() && !words.is_empty() {
        let there: Vec<String> = configurations.into_iter().collect();
        let (words, there) = (words.join(" --only "), there.join("; "));
        return Err(Error::Refused(format!("--only {words}: no such runs; there are: {there}")));
    }
    Ok(meant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_chosen_by_whole_words_of_their_configuration() {
        let run = |workload: &str, streams: &str, stack: &str| {
            let mut run = RunRecord::new(format!("{workload}-{streams}-{stack}"));
            (run.workload, run.stack) = (workload.into(), stack.into());
            run.factors.insert("streams".into(), streams.into());
            run
        };
        let all = vec![
            run("tcp_stream", "1", "kernel"),
            run("tcp_stream", "16", "kernel"),
            run("tcp_stream", "1", "millstream"),
        ];
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            only(all.clone(), &words).map(|runs| runs.into_iter().map(|run| run.id).collect())
        };
        let ids = |words: &[&str]| -> Vec<String> { chosen(words).unwrap() };
        assert_eq!(ids(&[]).len(), 3);
        assert_eq!(ids(&["streams=1", "kernel"]), ["tcp_stream-1-kernel"]);
        assert_eq!(ids(&["kernel"]).len(), 2);
        let refused = chosen(&["tcp"]).unwrap_err().to_string();
        assert!(refused.contains("tcp_stream streams=16 kernel"), "{refused}");
    }
}
