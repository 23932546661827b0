//! An investigation: why runs of one thing differ, what limits it, and the proof.
//!
//! Equal runs are observed with their placement left free. Their results form groups; the features
//! that go with the groups name suspects of the catalogue of causes; the first suspects that can be
//! forced are forced to each of their levels, in randomised blocks; the verdict says what that
//! proves.

mod command;
mod drawings;
mod elsewhere;
mod explain;
mod figure;
mod forcing;
mod limits;
mod met;
mod other_end;
mod placement;
mod quota;
mod sections;
mod seen;
mod settings;
mod subject;
mod text;
mod tried;

use std::collections::{BTreeMap, BTreeSet};

use millstream_diagnose::causes::{Cause, Force, Kind};
use millstream_diagnose::compare::{P_CHANGE, differ, least_seen};
use millstream_diagnose::modes::Mode;
use millstream_diagnose::scaling::Scaling;
use millstream_diagnose::separate::Separation;
use millstream_diagnose::stats::{Bootstrap, RUNS_FOR_A_CLAIM, median};
use millstream_diagnose::suspects::{Fit, Rank, Results, Timed, suspects};
use millstream_diagnose::verdict::{Judgement, Verdict};
use serde::{Deserialize, Serialize};

pub use command::{BUILD, BUILDS, CommandRuns, CommandSubject};
pub use elsewhere::Namespaces;
pub use explain::explain;
#[cfg(feature = "clogs")]
pub(crate) use explain::explain_by;
pub use figure::{
    FIGURE_LESS, FIGURE_UNIT, Figure, Reading, is_other_prefix, known_figure, unit_name,
};
pub use limits::Limits;
pub use met::{Met, Rate};
pub use other_end::OtherEnd;
pub use seen::{Heat, Seen, TwoHistograms};
pub use subject::{Subject, WorkloadRuns, WorkloadSubject};
pub use tried::tried;

use millstream_diagnose::features::{features, is_of_time, of_time};
use millstream_observe::environment;
use millstream_record::error::Error;
use millstream_record::{Budget, FORMAT_VERSION, RunRecord, Tables};
use millstream_report::{budget, medians, of_machine};

/// Fewest runs that are observed: fewer form no groups.
pub const RUNS_LEAST: u32 = 8;

/// Rows of a table that are told of who a cause is.
const TOLD: usize = 3;

/// The options of an investigation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Runs that are observed.
    pub runs: u32,
    /// Runs of each level of a cause that is forced.
    pub forced_runs: u32,
    /// Causes that are forced at most; 0 forces none.
    pub causes: usize,
    /// Factors that are forced beside them, whatever the observed runs say.
    pub tried: Vec<Force>,
    /// Seed of everything random in the analysis.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { runs: 24, forced_runs: 10, causes: 2, tried: vec![], seed: 1 }
    }
}

/// The findings of an investigation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Investigation {
    /// [`FORMAT_VERSION`] of the program that wrote it.
    pub format: u32,
    /// The workload or the command that was run, as the user would say it.
    pub subject: String,
    /// When and where it was measured and with which settings, as names and values.
    #[serde(default)]
    pub facts: Vec<(String, String)>,
    /// Key of the result, in base units, its unit at the end.
    pub result: String,
    /// True when more of it is better.
    pub higher_is_better: bool,
    /// Experiments in the store that hold the runs: the observed ones first.
    pub experiments: Vec<String>,
    /// Each observed run that counts, in the order of execution.
    pub observed: Vec<Point>,
    /// Runs that do not count, with their reasons.
    pub left_out: Vec<String>,
    /// Median of all observed runs and its 95 % interval.
    pub median: f64,
    /// The 95 % interval of `median`.
    pub interval: Option<(f64, f64)>,
    /// The change, as a share, that twice as many runs would show four times out of five; `None`
    /// where results have no ratio.
    pub least_seen: Option<f64>,
    /// The change as a difference, where results have no ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_difference: Option<f64>,
    /// Groups of the results, the lowest first.
    pub modes: Vec<Mode>,
    /// The groups that causes are to explain. Where there are none, and a feature goes with the
    /// results all the same, these are the lowest and the highest third of the runs.
    #[serde(default)]
    pub contrast: Vec<Mode>,
    /// Features by how well they go with the groups; with one group, with the results.
    pub separation: Separation,
    /// Causes of the catalogue that fit.
    pub suspects: Vec<Suspect>,
    /// The resources on the path, and the one that limits.
    #[serde(default)]
    pub limits: Limits,
    /// Senders of interrupts to other CPUs, threads that waited for locks, and the places of the
    /// CPUs in the code.
    #[serde(default)]
    pub met: Met,
    /// The runs over time, their histograms, and the cost of observation.
    #[serde(default)]
    pub seen: Seen,
    /// The tables of the probes, each as its median over the runs of a group, the lowest group
    /// first; of all runs where they form one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Tables>,
    /// Where the time of the ends went in a run of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Spent>,
    /// Causes of which nothing can be said, with the features that were not measured.
    pub not_judged: Vec<(String, Vec<String>)>,
    /// Features by which causes are judged, each by name, with its value in each observed run that
    /// has it.
    #[serde(default)]
    pub features: BTreeMap<String, Vec<Option<f64>>>,
    /// Features over which the page draws the results, before those that go with them most.
    #[serde(default)]
    pub plots: Vec<String>,
    /// Remarks that a reader has to know.
    pub notes: Vec<String>,
}

/// The budget of a run, and the processes that it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// The budget.
    pub budget: Budget,
    /// The processes of the client.
    pub clients: Vec<u32>,
    /// The result of the run that it was taken in.
    #[serde(default)]
    pub result: Option<f64>,
    /// Tables of the connections in it.
    #[serde(default, skip_serializing_if = "Tables::is_empty")]
    pub tables: Tables,
}

impl Spent {
    /// Returns a sentence with the first rows of a table, which say who a cause is.
    fn who(&self, table: &str) -> Option<String> {
        let table = self.tables.get(table)?;
        let column = table.columns.first()?;
        let one = |(name, count): (&str, f64)| match count {
            1.0 => name.to_owned(),
            _ => format!("{name} ({count} {})", column.name),
        };
        let told: Vec<String> = table.column(&column.name)?.take(TOLD).map(one).collect();
        let more = table.rows.len().saturating_sub(TOLD);
        let more = if more > 0 { format!("; {more} more") } else { String::new() };
        Some(format!(" Seen: {}{more}.", told.join("; ")))
    }

    /// Returns the budget of the first of `runs` that has one.
    fn of(runs: &[RunRecord], key: &str) -> Option<Self> {
        let run = runs.iter().find(|run| run.probes.budget.is_some())?;
        let probes = &run.probes;
        let is_client = |role: &str| matches!(role.split('#').next(), Some("client" | "near"));
        let workers = probes.workers.iter().flatten().filter(|(role, _)| is_client(role));
        let clients = workers.map(|(_, worker)| worker.pid).collect();
        let tables = budget::connections(probes);
        let budget = probes.budget.clone()?;
        Some(Self { budget, clients, result: run.result(key), tables })
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Id of the run.
    pub run: String,
    /// Its result.
    pub result: f64,
    /// Place of its group in `modes`.
    pub group: Option<usize>,
}

/// A cause that fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// The cause.
    pub cause: Cause,
    /// The evidence for it, as text.
    pub evidence: String,
    /// The evidence against it, as text.
    pub counter: Option<String>,
    /// The rank by which suspects are ordered.
    #[serde(default)]
    pub rank: Rank,
    /// Results of each level, where it was forced.
    pub forced: Vec<(String, Vec<f64>)>,
    /// The factor that was forced.
    #[serde(default)]
    pub forced_factor: Option<String>,
    /// The judgement of the forced runs; without it the cause is associated only.
    pub judgement: Option<Judgement>,
    /// The reason why it was not forced.
    pub not_forced: Option<String>,
    /// Ends in whose network namespaces it was set; none where it was set here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_at: Vec<String>,
}

impl From<Fit> for Suspect {
    fn from(fit: Fit) -> Self {
        let Fit { cause, evidence, counter, rank } = fit;
        Self {
            cause,
            evidence,
            counter,
            rank,
            forced: vec![],
            forced_factor: None,
            judgement: None,
            not_forced: None,
            set_at: vec![],
        }
    }
}

impl Suspect {
    /// Returns the verdict of the judgement.
    pub fn verdict(&self) -> Verdict {
        self.judgement.as_ref().map_or(Verdict::AssociatedOnly, |judgement| judgement.verdict)
    }
}

/// Investigates `subject` with the causes of `catalogue`. `tell` hears in a sentence what begins.
///
/// An interrupt or an error during the observed runs ends it; one while a cause is forced leaves
/// the verdict open.
pub fn investigate(
    subject: &mut dyn Subject,
    catalogue: &[Cause],
    options: &Options,
    tell: &mut dyn FnMut(&str),
) -> Result<Investigation, Error> {
    if options.runs < RUNS_LEAST {
        let why =
            format!("--runs {}: {RUNS_LEAST} at least, as fewer form no groups", options.runs);
        return Err(Error::Refused(why));
    }
    for force in &options.tried {
        let refused = |why| Error::Refused(format!("--try {}: {why}", force.factor));
        subject.may_force(force).map_err(refused)?;
    }
    tell(&format!("Observing {} runs of {}.", options.runs, subject.name()));
    let observed = subject.observe(options.runs)?;
    // Runs were made: it is not refused before anything began.
    let failed = |error| match error {
        Error::Refused(why) => Error::Worker(why),
        other => other,
    };
    let mut found = look(subject, &observed, None, catalogue, options).map_err(failed)?;
    found.suspects.extend(options.tried.iter().map(tried::suspect));
    forcing::force(subject, &mut found, options, tell);
    found.experiments = subject.experiments();
    let begun = observed.first().map(|run| &run.started_at);
    found.facts = begun.map_or(vec![], |begun| of_machine(begun, &environment::capture()));
    // Confirmed causes come first, refuted ones last. A cause whose forced runs decided nothing is
    // as likely as one that was not forced.
    found.suspects.sort_by_key(|suspect| match suspect.verdict() {
        Verdict::Confirmed => 0,
        Verdict::AssociatedOnly | Verdict::CannotTell => 1,
        Verdict::Refuted => 2,
    });
    Ok(found)
}

/// Returns a doubt of results that are all the same: such a figure is not measured by each run.
pub fn doubt(results: &[f64]) -> Option<String> {
    let first = results.first().filter(|_| results.len() >= RUNS_FOR_A_CLAIM)?;
    results.iter().all(|one| one == first).then(|| {
        format!(
            "The figure is {first} in all {} runs, the same to the last digit: is that measured by the run, or set?",
            results.len()
        )
    })
}

/// Returns what runs of a command have to remark, each once.
fn remarks(runs: &[RunRecord]) -> BTreeSet<String> {
    let of_command = runs.iter().filter(|run| run.workload == "command");
    of_command.flat_map(|run| run.notes.iter().cloned()).collect()
}

/// Returns the findings from the observed runs, and from a comparison with runs of other numbers of
/// threads.
fn look(
    subject: &dyn Subject,
    runs: &[RunRecord],
    by_threads: Option<&Scaling>,
    catalogue: &[Cause],
    options: &Options,
) -> Result<Investigation, Error> {
    let (key, higher_is_better) = subject.result();
    let counts = |run: &&RunRecord| run.validity.valid && run.result(&key).is_some();
    let valid: Vec<&RunRecord> = runs.iter().filter(counts).collect();
    let left_out: Vec<String> = runs
        .iter()
        .filter(|run| !counts(run) && run.probes.budget.is_none())
        .map(|run| match run.validity.reasons.first() {
            Some(reason) => format!("{}: {reason}", run.id),
            None => format!("{}: it has no {key}", run.id),
        })
        .collect();
    if valid.len() < RUNS_LEAST as usize {
        let why = left_out.first().map_or(String::new(), |reason| format!("; {reason}"));
        return Err(Error::Refused(format!(
            "{} of {} runs count, {RUNS_LEAST} are needed{why}",
            valid.len(),
            runs.len()
        )));
    }
    let results: Vec<f64> = valid.iter().filter_map(|run| run.result(&key)).collect();
    let budget = Spent::of(runs, &key);
    let mut features = features(&valid);
    if let Some(Spent { budget, clients, .. }) = &budget {
        features.extend(of_time(budget, clients, valid.len()));
    }
    let timed = budget.as_ref().and_then(|one| one.result);
    let timed = timed.map(|result| Timed { result, has: is_of_time });
    let to_explain = Results { values: &results, higher_is_better, timed };
    let shown = suspects(to_explain, &features, by_threads, catalogue, options.seed);
    let notes =
        shown.broken.iter().map(|(cause, why)| format!("The cause {cause} cannot be used: {why}"));
    let notes = notes.chain(doubt(&results)).chain(remarks(runs));
    let mut suspects: Vec<Suspect> = shown.fits.into_iter().map(Suspect::from).collect();
    for suspect in &mut suspects {
        let who = suspect.cause.who.as_ref().zip(budget.as_ref());
        suspect.evidence += &who.and_then(|(table, budget)| budget.who(table)).unwrap_or_default();
    }
    let suspects = in_turn(suspects, shown.modes.len() < 2);
    let group_of = |run: usize| shown.modes.iter().position(|mode| mode.members.contains(&run));
    let bootstrap = Bootstrap { resamples: 2_000, seed: options.seed, ..Bootstrap::default() };
    let observed = valid
        .iter()
        .zip(&results)
        .enumerate()
        .map(|(at, (run, &result))| Point { run: run.id.clone(), result, group: group_of(at) })
        .collect();
    let share = least_seen(&results, &results);
    let met = Met::of(&valid, &shown.contrast);
    let groups = if shown.contrast.len() < 2 { &shown.modes } else { &shown.contrast };
    let seen = Seen::of(&valid, &results, groups);
    let tables = tables(&valid, groups);
    Ok(Investigation {
        format: FORMAT_VERSION,
        subject: subject.name(),
        facts: vec![],
        result: key,
        higher_is_better,
        experiments: vec![],
        observed,
        left_out,
        median: median(&results).unwrap_or(f64::NAN),
        interval: bootstrap.median(&results).map(|interval| (interval.low, interval.high)),
        least_seen: share,
        least_difference: match share {
            Some(_) => None,
            None => differ(&results, &results, P_CHANGE).map(|found| found.least_seen),
        },
        notes: notes.collect(),
        modes: shown.modes,
        contrast: shown.contrast,
        separation: shown.separation,
        suspects,
        limits: Limits::of(&valid, &features),
        met,
        seen,
        tables,
        budget,
        not_judged: shown.not_judged,
        features: features.into_iter().map(|one| (one.name, one.values)).collect(),
        plots: vec![],
    })
}

/// Returns the tables of the probes for each group.
fn tables(runs: &[&RunRecord], groups: &[Mode]) -> Vec<Tables> {
    let of = |mode: &Mode| {
        let members = mode.members.iter().filter_map(|&at| runs.get(at).copied());
        medians(&members.collect::<Vec<_>>())
    };
    let all: Vec<Tables> = match groups.len() {
        0 | 1 => vec![medians(runs)],
        _ => groups.iter().map(of).collect(),
    };
    if all.iter().all(Tables::is_empty) { vec![] } else { all }
}

/// Suspects of why runs differ and of what limits them in turn, the strongest of each first: only
/// the first ones are forced, and either question is to have its answer. What limits them comes
/// first where they hardly differ.
fn in_turn(suspects: Vec<Suspect>, limits_first: bool) -> Vec<Suspect> {
    let (limits, separates): (Vec<_>, Vec<_>) =
        suspects.into_iter().partition(|suspect| suspect.cause.kind == Kind::Limits);
    let (first, second) = if limits_first { (limits, separates) } else { (separates, limits) };
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut all = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair.iter().all(Option::is_none) {
            return all;
        }
        all.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests;
