//! `millstream run`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use millstream_lab::runner;
use millstream_plan::{ALL, FACTORS, Overrides, ROUTERS, STACKS, builtins};
use millstream_record::RunRecord;
use millstream_record::error::Error;
use millstream_report::Report;
use millstream_testbed::journal::{ELSEWHERE, sweep};
use millstream_testbed::leftovers::StateDir;

use crate::ends::Ends;
use crate::keeper::Keeper;
use crate::output::{full_path, out, say, write_json, write_page};
use crate::prepare::{Made, existing_store, prepare_json};
use crate::progress::Progress;
use crate::setting::{load, look_by_bpf, setting};
use crate::values::{Database, database, name, seconds, whole};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of a built-in experiment, or a file ending in .toml
    pub experiment: String,
    /// Stacks to measure, separated by commas; the first is the base of comparisons
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub stack: Option<Vec<String>>,
    /// Blocks: every configuration once, in random order, each second block turned around
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
    pub repeats: Option<u32>,
    /// Levels of a factor; may be given once for each
    #[arg(long, value_name = "FACTOR=A,B", value_parser = level_setting)]
    pub set: Vec<LevelSetting>,
    /// Seconds that each run measures
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub duration: Option<f64>,
    /// Seconds of warm-up before that
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub warmup: Option<f64>,
    /// Have each run wait until the CPUs of its two hosts are near each other, and do it again when
    /// they were not [default: what the experiment says, else true]
    #[arg(long, value_name = "BOOL")]
    pub steady_cpus: Option<bool>,
    #[command(flatten)]
    pub ends: Ends,
    /// Look by BPF programs, too: who sends cross-calls and waits for locks, and the stacks of the
    /// CPUs (`compare --flame`)
    #[arg(long)]
    pub profile: bool,
    /// Seed of the order of runs; drawn when not given, and recorded
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// Write the runs to this file too, one JSON object per line ('-': standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Name of what is kept, for `show` and others [default: that of the experiment]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// Folder of the page
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
    #[command(flatten)]
    pub database: Database,
}

/// One `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSetting {
    factor: String,
    levels: Vec<String>,
}

fn level_setting(text: &str) -> Result<LevelSetting, String> {
    let (factor, levels) = text.split_once('=').ok_or("write it as factor=a,b")?;
    let levels: Vec<String> = levels.split(',').map(|level| level.trim().to_owned()).collect();
    if factor.trim().is_empty() || levels.iter().any(String::is_empty) {
        return Err("write it as factor=a,b".to_owned());
    }
    Ok(LevelSetting { factor: factor.trim().to_owned(), levels })
}

impl Arguments {
    /// Returns the changes that the options make to the definition.
    fn overrides(&self) -> Overrides {
        let pair = |set: &LevelSetting| (set.factor.clone(), set.levels.clone());
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

/// Returns the list of built-ins and factors, for `run --help`.
pub fn help() -> String {
    use std::fmt::Write;
    let names: Vec<&str> = builtins().iter().map(|(name, _)| *name).collect();
    let mut text =
        format!("Built-in experiments: {}\n\nFactors (levels; default):\n", names.join(", "));
    let _ = writeln!(text, "  {:<20} {} (both)", "stack", STACKS.join(", "));
    let (all, routed) = (ROUTERS.join(", "), ALL.iter().filter(|one| one.is_routed()));
    let routed: Vec<&str> = routed.map(|workload| workload.name()).collect();
    let _ = writeln!(
        text,
        "  {:<20}   of {} the router's: {all}; bare = no stack, a loop that moves frames between the same links",
        "",
        routed.join(", ")
    );
    for factor in FACTORS.iter() {
        let known = ALL.iter().filter(|workload| factor.is_of(**workload));
        let workloads: Vec<&str> = known.map(|workload| workload.name()).collect();
        let _ = writeln!(text, "  {:<20} {} ({})", factor.name, factor.levels, factor.default);
        let _ = writeln!(text, "  {:<20}   {} [{}]", "", factor.help, workloads.join(", "));
    }
    text.push_str("\nAn interrupt (Ctrl-C) keeps what was finished.");
    text
}

/// Runs the experiment, keeps every finished run, prints the table and names
/// the page. After an interrupt it does the same with what was finished.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let mut definition = load(&arguments.experiment)?;
    definition.apply(&arguments.overrides())?;
    definition.name = arguments.name.clone().unwrap_or(definition.name);
    let places = arguments.ends.places()?;
    let mut made = Made::default();
    made.page_folder(&arguments.out)?;
    arguments.json.as_deref().map_or(Ok(()), prepare_json)?;
    let at = database(&arguments.database)?;
    made.database_folder(&at)?;
    let setting = setting(places)?;
    if arguments.profile {
        look_by_bpf(false);
    }
    let store = existing_store(&at)?;
    let seconds = definition.duration_s + definition.warmup_s;
    let progress = Progress::new(seconds);
    let mut keeper = Keeper::new(store, at, made, progress);
    let done = runner::run(&definition, &setting, &mut keeper).map(drop);
    keeper.progress.end();
    // Whatever ended it, what was measured is shown.
    let mut failed =
        keeper.experiment.as_ref().map_or_else(Vec::new, |_| finish(arguments, &keeper));
    failed.extend(done.err());
    // Each is said; the command ends with what ended the experiment, else with the last.
    let Some(last) = failed.pop() else { return Ok(verdict(&keeper.runs)) };
    failed.iter().for_each(|error| say(format_args!("millstream: {error}")));
    Err(last)
}

/// Puts right what killed runs have left, and says what that was.
pub fn undo() -> Result<ExitCode, Error> {
    let lines = sweep(&StateDir::locate()?)?;
    match lines.is_empty() {
        true => out("nothing to undo\n")?,
        false => out(&(lines.join("\n") + "\n"))?,
    }
    let failed = lines.iter().any(|line| line.starts_with("cannot") || line.starts_with(ELSEWHERE));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Writes table, page and JSON of the finished runs. Returns the errors: one that fails does not
/// keep the others from coming.
fn finish(arguments: &Arguments, keeper: &Keeper) -> Vec<Error> {
    let (Some(experiment), runs) = (&keeper.experiment, &keeper.runs) else { return Vec::new() };
    if runs.is_empty() {
        let id = &experiment.id;
        say(format_args!("No run was finished; the experiment is kept as {id}."));
        return Vec::new();
    }
    let report = Report::new(experiment, runs);
    let page = write_page(&arguments.out, experiment, &report);
    let written = arguments.json.as_ref().map_or(Ok(()), |path| write_json(path, runs));
    let mut summary = format!("{}\n", report.text());
    if let Ok(page) = &page {
        summary.push_str(&format!("Page: {}\n", full_path(page)));
    }
    summary.push_str(&format!("{}\n", keeper.kept_where(&experiment.id)));
    let printed = match &arguments.json {
        // JSON alone on the standard output: what people read goes beside it.
        Some(path) if path == Path::new("-") => {
            say(summary.trim_end());
            Ok(())
        }
        _ => out(&summary),
    };
    [page.map(drop), written, printed].into_iter().filter_map(Result::err).collect()
}

/// Returns success when every configuration has at least one run that counts.
fn verdict(runs: &[RunRecord]) -> ExitCode {
    let mut valid: BTreeMap<(String, &str), u32> = BTreeMap::new();
    for run in runs {
        let count = valid.entry((run.configuration(), &run.stack)).or_default();
        *count += u32::from(run.validity.valid);
    }
    let mut code = ExitCode::SUCCESS;
    for ((configuration, stack), _) in valid.iter().filter(|(_, count)| **count == 0) {
        let what = format_args!("{configuration} on {stack}");
        say(format_args!("millstream: no valid run of {what}; see the reasons above"));
        code = ExitCode::FAILURE;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_factor_and_its_levels() {
        let parsed = level_setting("streams=1, 4").unwrap();
        assert_eq!((parsed.factor.as_str(), parsed.levels.len()), ("streams", 2));
        for wrong in ["streams", "=1", "streams=", "streams=1,,2", "="] {
            assert!(level_setting(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_help_names_every_factor() {
        let help = help();
        assert!(FACTORS.iter().all(|factor| help.contains(factor.name)));
        assert!(help.contains("first-look"));
    }
}
