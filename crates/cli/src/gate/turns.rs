//! `gate --ab`: two commands in turns, on this machine or, as they were kept, on several.

use millstream_diagnose::compare::P_CHANGE;
use millstream_diagnose::paired::{self, MACHINES_LEAST, paired};
use millstream_lab::investigate::{BUILD, doubt};
use millstream_record::RunRecord;
use millstream_record::error::Error;

use super::{Answer, Arguments, Rule, Set, apart, failed, one};
use crate::in_turns::{Two, pairs};
use crate::output;

/// Refuses options that clap takes and that mean nothing together.
pub(super) fn check(arguments: &Arguments) -> Result<(), Error> {
    let why = match () {
        () if arguments.standard => "--standard is of one COMMAND".to_owned(),
        () if !arguments.ab.is_empty() => return Two::check(arguments.runs),
        () if !arguments.blocks.is_empty() && arguments.blocks.len() < MACHINES_LEAST => format!(
            "--blocks: {MACHINES_LEAST} machines at least, as fewer do not show how much machines differ"
        ),
        () => return Ok(()),
    };
    Err(Error::Refused(why))
}

/// Runs both in turns, or reads what was kept, and judges the second.
pub(super) fn answer(arguments: &Arguments) -> Result<Answer, Error> {
    let (sets, rule_of): (Vec<Vec<RunRecord>>, _) = match arguments.blocks.as_slice() {
        [] => {
            let Arguments { ab, figure, lower_is_better, runs, timeout, name, database, .. } =
                arguments;
            let (figure, lower_is_better, name) =
                (figure.as_deref(), *lower_is_better, name.as_deref());
            let two = Two {
                ab,
                figure,
                lower_is_better,
                pairs: *runs,
                timeout: *timeout,
                server: arguments.server.other_end(&arguments.by)?,
                name,
                database,
            };
            let (runs, key, lower_is_better) = two.measure()?;
            (vec![runs], (key, lower_is_better))
        }
        ids => {
            let kept = ids.iter().map(|id| Set::kept(id, &arguments.database));
            let kept = kept.collect::<Result<Vec<_>, Error>>()?;
            if let Some(twice) = named_twice(&kept) {
                let why = "--blocks: a set of each machine, but this one is named twice";
                return Err(Error::Refused(format!(
                    "{why}: {twice}; `millstream list` has the ids"
                )));
            }
            let is_less = arguments.lower_is_better || kept.iter().any(|set| set.less_is_better);
            let sets: Vec<_> = kept.into_iter().map(|set| set.runs).collect();
            let key = arguments.result.clone().or_else(|| key_of(&sets));
            let key = key.ok_or_else(|| {
                Error::Refused("--blocks: these are no runs of two commands in turns".to_owned())
            })?;
            (sets, (key, is_less))
        }
    };
    let (key, lower_is_better) = rule_of;
    let machines: Vec<_> = sets.iter().map(|runs| pairs(runs, &key)).collect();
    let rule = Rule { result: Some(&key), lower_is_better, least: arguments.least / 100.0 };
    let (answer, mut lines) = judge(&machines, &key, rule);
    lines.extend(failed(&sets.concat()));
    output::out(&(lines.join("\n") + "\n"))?;
    Ok(answer)
}

/// Returns the answer about the pairs of each machine, and lines about it.
fn judge(machines: &[Vec<(f64, f64)>], key: &str, rule: Rule<'_>) -> (Answer, Vec<String>) {
    let (mut lines, rule) = (Vec::new(), rule.of(key));
    let several = machines.iter().filter(|pairs| !pairs.is_empty()).count();
    let several = if several > 1 { format!(" on {several} machines") } else { String::new() };
    let of = format!("{} pairs{several}", machines.iter().map(Vec::len).sum::<usize>());
    let by_ratio = paired(machines, P_CHANGE).map(|found| one(&found, 1, &of, rule));
    let by_difference =
        || paired::differ(machines, P_CHANGE).map(|found| apart(&found, 1, &of, rule));
    let (answer, said) = by_ratio
        .or_else(by_difference)
        .unwrap_or_else(|| (Answer::CannotTell, "too few pairs".to_owned()));
    lines.push(format!("B against A, {key}: {}: {said}", answer.words()));
    for (at, pairs) in machines.iter().enumerate() {
        let place =
            if machines.len() > 1 { format!("machine {}: ", at + 1) } else { String::new() };
        if let Some(by) = paired::drift(pairs) {
            let by = by * 100.0;
            lines.push(format!(
                "{place}both drifted by {by:+.1} % from the first pair to the last; the ratio of each pair is hardly touched by that"
            ));
        }
        let (of_a, of_b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        for (build, results) in [("A", of_a), ("B", of_b)] {
            lines.extend(doubt(&results).map(|said| format!("{place}{build}: {said}")));
        }
    }
    (answer, lines)
}

/// Returns the id of a set that is there twice, whatever its names.
fn named_twice(sets: &[Set]) -> Option<&str> {
    let is_before = |(at, set): &(usize, &Set)| sets[..*at].iter().any(|one| one.id == set.id);
    sets.iter().enumerate().find(is_before).map(|(_, set)| set.id.as_str())
}

/// Returns the key of the figure that the runs have.
fn key_of(sets: &[Vec<RunRecord>]) -> Option<String> {
    let mut runs = sets.iter().flatten();
    let run = runs.find(|run| run.validity.valid && run.factors.contains_key(BUILD))?;
    run.results.keys().next().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(results: &[(f64, f64)]) -> Vec<RunRecord> {
        let one = |(at, (block, build, result)): (usize, (usize, &str, f64))| {
            let mut run = RunRecord::new(format!("r{at}"));
            run.block = block as u32;
            run.factors.insert(BUILD.to_owned(), build.to_owned());
            run.results.insert("figure".to_owned(), result);
            run
        };
        let each = results.iter().enumerate();
        let each = each.flat_map(|(block, (a, b))| [(block, "b", *b), (block, "a", *a)]);
        each.enumerate().map(one).collect()
    }

    const RULE: Rule<'_> = Rule { result: None, lower_is_better: false, least: 0.05 };

    #[test]
    fn the_second_is_judged_by_its_pairs_and_a_drift_is_said() {
        // Both rise by half; the second is a twentieth slower in each pair.
        let of = |ratio: f64| -> Vec<RunRecord> {
            let one = |at: usize| 100.0 * (1.0 + at as f64 / 20.0);
            runs(&(0..10).map(|at| (one(at), one(at) * ratio)).collect::<Vec<_>>())
        };
        let (answer, lines) = judge(&[pairs(&of(0.95), "figure")], "figure", RULE);
        assert_eq!(answer, Answer::Worse);
        assert!(lines[0].contains("B against A, figure: worse: ratio 0.950"), "{lines:?}");
        assert!(lines[1].contains("both drifted by +44.6 %"), "{lines:?}");
        assert_eq!(judge(&[pairs(&of(1.05), "figure")], "figure", RULE).0, Answer::Good);
        // A pair without one of the two is none.
        let mut lost = of(0.95);
        (0..5).for_each(|at| lost[2 * at].validity.reject("lost"));
        assert_eq!(pairs(&lost, "figure").len(), 5);
        let (answer, lines) = judge(&[pairs(&lost, "figure")], "figure", RULE);
        assert!(answer == Answer::CannotTell && lines[0].contains("too few pairs"), "{lines:?}");
        assert_eq!(key_of(&[of(1.0)]).as_deref(), Some("figure"));
    }

    /// A loss of 5 % is within each of the intervals.
    #[test]
    fn few_pairs_and_few_machines_exclude_no_loss_that_they_would_not_have_seen() {
        let machines = [98.02, 95.12, 92.31].map(|b| vec![(100.0, b); 10]);
        let six: Vec<(f64, f64)> = [-0.06, -0.06, 0.001, -0.06, -0.06, -0.06]
            .map(|log: f64| (100.0, 100.0 * log.exp()))
            .into();
        for (of, expected) in
            [(&machines[..], "(95 %: 0.883 to 1.025)"), (&[six][..], "0.942 to 1.001)")]
        {
            let (answer, lines) = judge(of, "figure", RULE);
            assert_eq!(answer, Answer::CannotTell, "{lines:?}");
            assert!(lines[0].contains(expected), "{lines:?}");
        }
        // The whole interval is above a loss of 5 %.
        let near = [0.99, 1.0, 1.01].map(|b| vec![(1.0, b); 10]);
        assert_eq!(judge(&near, "figure", RULE).0, Answer::Good);
    }

    #[test]
    fn a_set_counts_once_as_a_machine() {
        let set =
            |id: &str| Set { id: id.to_owned(), runs: vec![], unit: None, less_is_better: false };
        assert_eq!(named_twice(&["one", "two", "one"].map(set)), Some("one"));
        assert_eq!(named_twice(&["one", "two", "three"].map(set)), None);
    }

    #[test]
    fn a_figure_that_stands_is_doubted_in_each_build() {
        let pairs: [Vec<(f64, f64)>; 1] =
            [(0..6).map(|at| (1000.0, 900.0 + f64::from(at))).collect()];
        let (_, lines) = judge(&pairs, "figure", RULE);
        assert!(lines.iter().any(|line| line.starts_with("A: The figure is 1000 in all 6 runs")));
        assert!(!lines.iter().any(|line| line.starts_with("B: ")), "{lines:?}");
        let (_, lines) = judge(&[1, 2, 3].map(|_| vec![(1000.0, 900.0); 6]), "figure", RULE);
        assert!(lines.iter().any(|line| line.starts_with("machine 3: B: The figure")), "{lines:?}");
    }

    #[test]
    fn a_figure_of_zero_is_judged_by_its_difference() {
        let less = Rule { lower_is_better: true, ..RULE };
        let gone = [vec![(5.0, 0.0); 10]];
        let (answer, lines) = judge(&gone, "figure", RULE);
        assert_eq!(answer, Answer::Worse);
        assert!(lines[0].contains("worse: difference -5 (95 %: -5 to -5), p 0.0020"), "{lines:?}");
        assert_eq!(judge(&gone, "figure", less).0, Answer::Good);
        // One figure alone is zero.
        let counts: [Vec<(f64, f64)>; 1] =
            [(0..=10).map(f64::from).map(|k| (k, 3.0 * k + 1.0)).collect()];
        assert_eq!(judge(&counts, "figure", less).0, Answer::Worse);
        assert_eq!(judge(&counts, "figure", RULE).0, Answer::Good);
        let never = [vec![(0.0, 0.0); 6]];
        assert_eq!(judge(&never, "figure", less).0, Answer::Good);
        let machines = [[5.0, 0.0], [6.0, 1.0], [5.0, 0.5]].map(|[a, b]| vec![(a, b); 6]);
        assert_eq!(judge(&machines, "figure", RULE).0, Answer::Worse);
    }

    #[test]
    fn less_of_a_time_is_better_whoever_has_measured_it() {
        let slower: [Vec<(f64, f64)>; 1] =
            [(0..10).map(|at| f64::from(100 + at)).map(|a| (a, 1.5 * a)).collect()];
        assert_eq!(judge(&slower, "latency_us", RULE).0, Answer::Worse);
        assert_eq!(judge(&slower, "requests_per_s", RULE).0, Answer::Good);
        assert_eq!(judge(&slower, "figure", RULE).0, Answer::Good);
        let less = Rule { lower_is_better: true, ..RULE };
        assert_eq!(judge(&slower, "figure", less).0, Answer::Worse);
    }
}
