//! `millstream gate`: whether one set of runs is slower than another, as an exit status.

mod measure;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use measure::measure;
use millstream_diagnose::compare::{Comparison, Difference, P_CHANGE, compare, differ};
use millstream_diagnose::paired::drift;
use millstream_diagnose::stats::RUNS_FOR_A_CLAIM;
use millstream_lab::investigate::{FIGURE_LESS, FIGURE_UNIT, doubt, is_other_prefix, unit_name};
use millstream_plan::is_name;
use millstream_record::error::Error;
use millstream_record::{RunRecord, keys};

use crate::ends::{FarBy, Server};
use crate::values::{Database, name, seconds, whole};
use crate::{exits, kept, output};

/// For `gate --help`.
pub const HELP: &str = "\
Of two kept sets, or of a kept one and a command that is run now:
  millstream gate BEFORE AFTER
  millstream gate --standard good --figure 'rate=([0-9.]+)' -- ./bench   # at the good commit: measure and keep
  git bisect start BAD GOOD
  git bisect run sh -c 'make || exit 125; millstream gate good --figure \"rate=([0-9.]+)\" -- ./bench'

Of two commands in turns, so that what drifts on the machine is in both:
  millstream gate --ab './bench-old' './bench-new' --figure 'rate=([0-9.]+)'
  millstream gate --ab 'iperf3 -c host2 -t 2 -J' './iperf3-new -c host2 -t 2 -J' --far-by 'ssh host2' --server 'iperf3 -s -1'
  millstream gate --blocks ab-one ab-two ab-three       # kept so on three machines, with --name

Configurations are compared one by one, each with the other set's; that there are several is counted in.";

/// Results by which sets are compared where none is named: those that only one kind of run has.
const RESULTS: &[&str] = &[keys::THROUGHPUT, keys::TRANSACTIONS];

/// Arguments of `gate`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Id, beginning of an id, or name of the experiment that is the standard
    #[arg(required_unless_present_any = ["ab", "blocks"])]
    first: Option<String>,
    /// The same of the one that is judged; or a COMMAND, whose runs are judged
    #[arg(required_unless_present_any = ["command", "ab", "blocks"], conflicts_with_all = ["command", "server", "far_by"])]
    second: Option<String>,
    /// Run two commands in turns, each one line of words, and judge the second
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["first", "command", "blocks"])]
    ab: Vec<String>,
    /// Judge what --ab kept on several machines, three at least: ids or names
    #[arg(long, num_args = 1.., value_name = "KEPT", conflicts_with_all = ["first", "command", "server", "far_by"])]
    blocks: Vec<String>,
    /// Measure COMMAND, keep its runs under the name FIRST, and judge nothing
    #[arg(long, requires = "command")]
    standard: bool,
    /// Name of the COMMAND's runs that are judged [default: gate]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["standard", "second", "blocks"], value_parser = name)]
    name: Option<String>,
    /// Runs of the command, 4 at least; of each of two commands, 6 at least
    #[arg(long, value_name = "N", conflicts_with_all = ["second", "blocks"], default_value_t = 10, value_parser = whole::<u32>)]
    runs: u32,
    /// Where the command's figure is: json:PATH, a regular expression with one group, or the name
    /// of a program whose output it is (iperf3)
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["result", "blocks"])]
    figure: Option<String>,
    /// Seconds after which a run of the command is ended
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["second", "blocks"], default_value_t = 120.0, value_parser = seconds)]
    timeout: f64,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    by: FarBy,
    /// Key of the result (throughput_bits_per_s, latency_p99_us, figure) [default: throughput or
    /// transactions; of a command its figure]
    #[arg(long, value_name = "KEY")]
    result: Option<String>,
    /// Less of the result or figure is better: it is a time or a count. Of a key that ends in _s,
    /// _ms, _us or _ns, but not in _per_s, that is so without
    #[arg(long)]
    lower_is_better: bool,
    /// The loss, in percent, that the interval has to exclude for a 0
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    least: f64,
    #[command(flatten)]
    database: Database,
    /// The command, behind `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|percent: &f64| (0.0..=100.0).contains(percent));
    number.ok_or_else(|| "write a number of percent from 0 to 100, as 2.5".to_owned())
}

/// The answer of the gate about two sets of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Good,
    CannotTell,
    Worse,
}

impl Answer {
    fn words(self) -> &'static str {
        match self {
            Self::Good => "as good or better",
            Self::CannotTell => "cannot tell",
            Self::Worse => "worse",
        }
    }

    fn status(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Worse => exits::FAILED,
            Self::CannotTell => exits::CANNOT_TELL,
        }
    }
}

/// A set of runs, with what is known of the figure of its command.
struct Set {
    /// Id of the experiment that holds them.
    id: String,
    runs: Vec<RunRecord>,
    /// The word behind the figure.
    unit: Option<String>,
    less_is_better: bool,
}

impl Set {
    /// Returns the set that is kept under this id or name.
    fn kept(which: &str, at: &Database) -> Result<Self, Error> {
        let parts = kept::find(&[which.to_owned()], at)?;
        let fact = |name| parts.iter().find_map(|(kept, _)| kept.environment.get(name));
        Ok(Self {
            id: parts.first().map(|(kept, _)| kept.id.clone()).unwrap_or_default(),
            runs: kept::as_kept(&parts),
            unit: fact(FIGURE_UNIT).map(str::to_owned),
            less_is_better: fact(FIGURE_LESS).is_some(),
        })
    }
}

/// The rule by which `gate` judges.
#[derive(Clone, Copy, Debug)]
struct Rule<'a> {
    result: Option<&'a str>,
    lower_is_better: bool,
    /// A share.
    least: f64,
}

/// Compares both sets, prints the result, and returns the exit status that fits. A failure is no
/// judgement: the status then says that it cannot be told.
pub fn gate(arguments: &Arguments) -> ExitCode {
    let (status, what, error) = match answer(arguments) {
        Ok(answer) => return ExitCode::from(answer.status()),
        Err(error @ Error::Refused(_)) => (exits::GATE_REFUSED, "", error),
        Err(error @ Error::Interrupted) => (exits::INTERRUPTED, "", error),
        Err(error) => (exits::CANNOT_TELL, "cannot tell: ", error),
    };
    output::say(format_args!("millstream: {what}{error}"));
    ExitCode::from(status)
}

fn answer(arguments: &Arguments) -> Result<Answer, Error> {
    let Arguments { second, result, least, database, .. } = arguments;
    check(arguments)?;
    let Some(first) = &arguments.first else { return turns::answer(arguments) };
    if arguments.standard {
        let (kept, _) = measure(arguments)?;
        let valid = kept.runs.iter().filter(|run| run.validity.valid).count();
        output::out(&format!("Standard: {first}, {valid} runs that count, kept as {}\n", kept.id))?;
        return Ok(if valid < RUNS_FOR_A_CLAIM { Answer::CannotTell } else { Answer::Good });
    }
    // Refused before anything is run.
    let standard = Set::kept(first, database)?;
    let (judged, key) = match second {
        Some(second) => (Set::kept(second, database)?, result.clone()),
        None => measure(arguments).map(|(set, key)| (set, Some(key)))?,
    };
    if let Some((one, other)) = standard.unit.as_ref().zip(judged.unit.as_ref())
        && is_other_prefix(one, other)
    {
        output::out(&format!(
            "cannot tell: the figure of {first} is in {}, the other in {}: have a second group of --figure take \
             the prefix, for both\n",
            unit_name(one),
            unit_name(other)
        ))?;
        return Ok(Answer::CannotTell);
    }
    let is_said = second.is_some() && arguments.lower_is_better;
    let lower_is_better = is_said || standard.less_is_better || judged.less_is_better;
    let rule = Rule { result: key.as_deref(), lower_is_better, least: least / 100.0 };
    let (answer, mut lines) = judge(&standard.runs, &judged.runs, rule);
    for (which, set) in [("first", &standard), ("second", &judged)] {
        lines.extend(failed(&set.runs).map(|said| format!("{which} set: {said}")));
    }
    output::out(&(lines.join("\n") + "\n"))?;
    Ok(answer)
}

/// Returns how many of the runs failed, if any did: their results count nowhere. One that had a
/// budget beside it does not count either, but did not fail.
fn failed(runs: &[RunRecord]) -> Option<String> {
    let all = runs.iter().filter(|run| run.probes.budget.is_none());
    let failed = all.clone().filter(|run| !run.validity.valid).count();
    (failed > 0).then(|| format!("{failed} of {} runs failed", all.count()))
}

/// Refuses options that clap takes and that mean nothing together.
fn check(arguments: &Arguments) -> Result<(), Error> {
    let Arguments { first, standard, runs, command, figure, result, lower_is_better, .. } =
        arguments;
    let Some(first) = first else { return turns::check(arguments) };
    let why = match () {
        () if *standard && !is_name(first) => {
            format!("{first}: a name of a standard is of letters, digits, '-' and '_'")
        }
        () if arguments.name.as_ref() == Some(first) => {
            format!(
                "--name {first}: that is the standard's; the next judgement would take these runs for it"
            )
        }
        () if !command.is_empty() && (*runs as usize) < RUNS_FOR_A_CLAIM => {
            format!("--runs {runs}: {RUNS_FOR_A_CLAIM} at least, as fewer tell nothing")
        }
        () if command.is_empty() && (*standard || figure.is_some()) => {
            "--standard and --figure are of a COMMAND, behind `--`".to_owned()
        }
        () if command.is_empty() && *lower_is_better && result.is_none() => {
            "--lower-is-better: of which --result?".to_owned()
        }
        () => return Ok(()),
    };
    Err(Error::Refused(why))
}

/// Returns the results that count, by configuration and key.
fn results(runs: &[RunRecord], rule: Rule<'_>) -> BTreeMap<(String, String), Vec<f64>> {
    let mut found: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.validity.valid) {
        let mut name = format!("{} {}", run.stack, run.workload);
        run.factors.iter().for_each(|(factor, level)| name.push_str(&format!(" {factor}={level}")));
        // A command has one figure, whatever its name.
        let all: Vec<&str> = match rule.result {
            Some(key) => vec![key],
            None if run.workload == "command" => run.results.keys().map(String::as_str).collect(),
            None => RESULTS.to_vec(),
        };
        for key in all {
            if let Some(value) = run.result(key) {
                found.entry((name.clone(), key.to_owned())).or_default().push(value);
            }
        }
    }
    found
}

/// Returns the worst answer of all configurations, and a line for each.
fn judge(first: &[RunRecord], second: &[RunRecord], rule: Rule<'_>) -> (Answer, Vec<String>) {
    let is_figure = first.iter().any(|run| run.workload == "command");
    let (first, second) = (results(first, rule), results(second, rule));
    let cases: BTreeSet<_> = first.keys().chain(second.keys()).collect();
    let mut lines = Vec::new();
    let mut worst = if cases.is_empty() { Answer::CannotTell } else { Answer::Good };
    for case in &cases {
        let (name, key) = case;
        let of = |set: &BTreeMap<(String, String), Vec<f64>>| {
            set.get(*case).cloned().unwrap_or_default()
        };
        let sets = (of(&first), of(&second));
        let rule = rule.of(key);
        // Bonferroni: one of so many may be worse by chance.
        let level = P_CHANGE / cases.len() as f64;
        let of = format!("{} and {} runs", sets.0.len(), sets.1.len());
        let by_ratio =
            compare(&sets.0, &sets.1, level).map(|found| one(&found, cases.len(), &of, rule));
        let by_difference =
            || differ(&sets.0, &sets.1, level).map(|one| apart(&one, cases.len(), &of, rule));
        let (answer, said) = by_ratio
            .or_else(by_difference)
            .unwrap_or_else(|| (Answer::CannotTell, "too few runs".to_owned()));
        lines.push(format!("{name}, {key}: {}: {said}", answer.words()));
        worst = worst.max(answer);
        for (which, set) in [("first", &sets.0), ("second", &sets.1)] {
            let by = drift(&set.iter().map(|value| (*value, *value)).collect::<Vec<_>>());
            lines.extend(by.map(|by| {
                let by = by * 100.0;
                format!("{name}: results of the {which} set drifted by {by:+.1} % while they were taken: --ab takes both in turns")
            }));
            let doubt = doubt(set).filter(|_| is_figure);
            lines.extend(doubt.map(|said| format!("{which} set: {said}")));
        }
    }
    if cases.is_empty() {
        lines.push("cannot tell: no run that counts has such a result (--result)".to_owned());
    }
    (worst, lines)
}

/// Judges a ratio of so many runs or pairs.
fn one(found: &Comparison, cases: usize, of: &str, rule: Rule<'_>) -> (Answer, String) {
    let Comparison { ratio, interval: (low, high), p, least_seen, .. } = *found;
    let p = (p * cases as f64).min(1.0);
    let said = format!(
        "ratio {ratio:.3} (95 %: {low:.3} to {high:.3}), p {p:.4}, {of}, which show a change of {:.1} %",
        least_seen * 100.0
    );
    (rule.answer((low - 1.0, high - 1.0), 1.0), said)
}

/// Judges values that have no ratio, as one falls to zero or is below it. The least loss is a share
/// of the larger median then.
fn apart(found: &Difference, cases: usize, of: &str, rule: Rule<'_>) -> (Answer, String) {
    let Difference { difference, interval: (low, high), p, least_seen, medians, .. } = *found;
    let p = (p * cases as f64).min(1.0);
    let said = format!(
        "difference {difference:+} (95 %: {low} to {high}), p {p:.4}, {of}, which show one of {least_seen}"
    );
    (rule.answer((low, high), medians.0.abs().max(medians.1.abs())), said)
}

impl Rule<'_> {
    /// Returns the rule for results with this key.
    fn of(self, key: &str) -> Self {
        Self { lower_is_better: self.lower_is_better || keys::is_time(key), ..self }
    }

    /// Returns the answer about a change by its interval, for results of this size: all of it is a
    /// loss, it excludes the least loss, or it does neither.
    fn answer(self, (low, high): (f64, f64), size: f64) -> Answer {
        let (loss, gain) = if self.lower_is_better { (high, -low) } else { (-low, high) };
        match () {
            () if gain < 0.0 => Answer::Worse,
            () if loss <= 0.0 || loss < self.least * size => Answer::Good,
            () => Answer::CannotTell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::Budget;

    /// Results around a middle: as wide as so many percent, and the same again each time.
    fn set(middle: f64, percent: f64, count: usize, factor: &str) -> Vec<RunRecord> {
        let one = |at: usize| {
            let mut run = RunRecord::new(format!("r{at}"));
            let place = ((at * 7 + 3) % count) as f64 / count as f64 - 0.5;
            run.results.insert(keys::THROUGHPUT.into(), middle * (1.0 + place * percent / 100.0));
            run.factors.insert("streams".into(), factor.into());
            run
        };
        (0..count).map(one).collect()
    }

    const RULE: Rule<'_> = Rule { result: None, lower_is_better: false, least: 0.05 };

    fn answer(first: &[RunRecord], second: &[RunRecord], rule: Rule<'_>) -> Answer {
        judge(first, second, rule).0
    }

    #[test]
    fn worse_as_good_and_what_cannot_be_told_are_three_answers() {
        let standard = set(100.0, 4.0, 20, "1");
        assert_eq!(answer(&standard, &standard, RULE), Answer::Good);
        assert_eq!(answer(&standard, &set(95.0, 4.0, 20, "1"), RULE), Answer::Worse);
        assert_eq!(answer(&standard, &set(105.0, 4.0, 20, "1"), RULE), Answer::Good);
        // A loss of 5 % would not be seen in sets as wide as these.
        let wide = set(100.0, 60.0, 8, "1");
        assert_eq!(answer(&wide, &wide, RULE), Answer::CannotTell);
        assert_eq!(answer(&standard, &set(95.0, 4.0, 3, "1"), RULE), Answer::CannotTell);
        assert_eq!(answer(&standard, &set(95.0, 4.0, 20, "2"), RULE), Answer::CannotTell);
        assert_eq!(answer(&[], &[], RULE), Answer::CannotTell);
    }

    #[test]
    fn less_of_a_time_is_better_and_a_result_that_nobody_has_tells_nothing() {
        let (standard, less) = (set(100.0, 4.0, 20, "1"), set(90.0, 4.0, 20, "1"));
        let time = Rule { result: Some(keys::THROUGHPUT), lower_is_better: true, ..RULE };
        assert_eq!(answer(&standard, &less, time), Answer::Good);
        assert_eq!(answer(&less, &standard, time), Answer::Worse);
        let other = Rule { result: Some("figure"), ..RULE };
        assert_eq!(answer(&standard, &less, other), Answer::CannotTell);
    }

    #[test]
    fn less_of_a_time_is_better_also_where_its_key_is_named() {
        let of = |middle: f64, key: &str| {
            let mut runs = set(middle, 4.0, 20, "1");
            for run in &mut runs {
                let value = run.results.remove(keys::THROUGHPUT).unwrap();
                run.results.insert(key.into(), value);
            }
            runs
        };
        for (key, more) in [
            (keys::LATENCY_P99, Answer::Worse),
            ("wait_ms", Answer::Worse),
            ("wait_ns", Answer::Worse),
            (keys::CPU_SECONDS, Answer::Worse),
            (keys::TRANSACTIONS, Answer::Good),
            (keys::STREAM_JAIN, Answer::Good),
        ] {
            let rule = Rule { result: Some(key), ..RULE };
            assert_eq!(answer(&of(100.0, key), &of(150.0, key), rule), more, "{key}");
        }
    }

    #[test]
    fn the_figure_of_a_command_needs_no_name() {
        let of = |middle: f64, key: &str| {
            let mut runs = set(middle, 4.0, 20, "1");
            for run in &mut runs {
                run.workload = "command".into();
                let value = run.results.remove(keys::THROUGHPUT).unwrap();
                run.results.insert(key.into(), value);
            }
            runs
        };
        for (key, less) in [
            ("figure", Answer::Worse),
            ("requests_per_s", Answer::Worse),
            ("latency_us", Answer::Good),
        ] {
            assert_eq!(answer(&of(100.0, key), &of(90.0, key), RULE), less, "{key}");
        }
    }

    #[test]
    fn the_run_with_the_budget_has_not_failed() {
        let mut runs = set(100.0, 4.0, 6, "1");
        runs[5].probes.budget = Some(Budget::default());
        runs[5].validity.reject("where its time goes was looked at");
        assert_eq!(failed(&runs), None);
        runs[1].validity.reject("exit status: 1");
        assert_eq!(failed(&runs).as_deref(), Some("1 of 5 runs failed"));
    }

    #[test]
    fn a_figure_that_stands_is_doubted_and_a_result_of_a_workload_is_not() {
        let mut command = set(100.0, 4.0, 6, "1");
        command.iter_mut().for_each(|run| run.workload = "command".into());
        let mut standing = command.clone();
        for run in &mut standing {
            run.results.insert(keys::THROUGHPUT.into(), 7.0);
        }
        let said = judge(&command, &standing, RULE).1.join("\n");
        assert!(said.contains("second set: The figure is 7 in all 6 runs"), "{said}");
        assert!(!said.contains("first set: The figure"), "{said}");
        standing.iter_mut().for_each(|run| run.workload = "tcp_rr".into());
        let said = judge(&standing, &standing, RULE).1.join("\n");
        assert!(!said.contains("The figure"), "{said}");
    }

    /// The worst there is, the best, and what is below zero.
    #[test]
    fn a_result_at_zero_or_below_is_worse_or_better_by_its_difference() {
        let of = |middle: f64| set(middle, 4.0, 6, "1");
        for (first, second, higher, lower) in [
            (5.0, 0.0, Answer::Worse, Answer::Good),
            (0.0, 5.0, Answer::Good, Answer::Worse),
            (-3.0, -5.0, Answer::Worse, Answer::Good),
            (2.0, -2.0, Answer::Worse, Answer::Good),
            (0.0, 0.0, Answer::Good, Answer::Good),
        ] {
            let rule = Rule { result: Some(keys::THROUGHPUT), ..RULE };
            assert_eq!(answer(&of(first), &of(second), rule), higher, "{first} {second}");
            let rule = Rule { lower_is_better: true, ..rule };
            assert_eq!(answer(&of(first), &of(second), rule), lower, "{first} {second}");
        }
        let (_, said) = judge(&of(5.0), &of(0.0), RULE);
        assert!(said[0].contains("worse: difference -4.98"), "{said:?}");
        // So wide a set around zero shows no loss of 5 %.
        let mut wide = of(1.0);
        for (at, run) in wide.iter_mut().enumerate() {
            run.results.insert(keys::THROUGHPUT.into(), at as f64 - 2.0);
        }
        assert_eq!(answer(&wide, &wide, RULE), Answer::CannotTell);
    }
}
