//! Processes that stood still while a run was measured: a worker, the probes, the runner itself. A
//! process that is stopped, or gets no CPU, takes its readings late. The numbers then show what
//! happened to it, and not what its stack does.

use millstream_load::worker::Sample;
use millstream_record::{Probes, RunRecord};

use crate::limits;

/// Nanoseconds of an interval: a reading that is later has missed another.
const INTERVAL_NS: u64 = limits::INTERVAL_MS * 1_000_000;

/// Returns the seconds for which a worker took none of the readings that were due, from the
/// beginning of the window on. Readings that are late by less than an interval do not count.
pub(super) fn of_readings(samples: &[Sample], begin_ns: u64) -> f64 {
    let Some(first) = samples.first() else { return 0.0 };
    let late_ns = Some(first.at_ns.saturating_sub(begin_ns)).filter(|&late| late > INTERVAL_NS);
    let gaps = samples.windows(2).map(|pair| pair[1].at_ns.saturating_sub(pair[0].at_ns));
    let missed = gaps.filter(|&gap| gap > 2 * INTERVAL_NS).map(|gap| gap - INTERVAL_NS);
    missed.chain(late_ns).sum::<u64>() as f64 / 1e9
}

/// Returns the same of the sampler of the probes, over the whole run, by the moments of its
/// samples.
fn of_probes(probes: &Probes) -> f64 {
    let gaps = probes.times_s.windows(2).map(|pair| pair[1] - pair[0]);
    let gaps = gaps.filter(|&gap| gap > 2.0 * probes.interval_s);
    gaps.map(|gap| gap - probes.interval_s).sum()
}

/// Returns the longest time in seconds for which a process may stand still before its readings are
/// of no use.
pub(super) fn most_s(asked_s: f64) -> f64 {
    limits::STILL_LIMIT_S.max(asked_s * limits::STILL_LIMIT_SHARE)
}

/// Says of a run that the runner, who reads the machine's counters, was late at an edge of the
/// window.
pub(super) fn tell_runner(record: &mut RunRecord, late_s: f64, asked_s: f64) {
    if late_s <= INTERVAL_NS as f64 / 1e9 {
        return;
    }
    let said = format!("The runner stood still for {late_s:.1} s at an edge of the window");
    record.notes.push(match late_s > most_s(asked_s) {
        true => format!("{said}: the CPU time of the machine is left out."),
        false => format!("{said}: the CPU time of the machine is that of a stretch as much later."),
    });
}

/// Says of a run which of its workers stood still, and refuses it where that was long.
pub(super) fn tell_workers(record: &mut RunRecord, workers: &[(&str, f64)], asked_s: f64) {
    let most = most_s(asked_s);
    for &(role, still_s) in workers.iter().filter(|(_, still_s)| *still_s > 0.0) {
        let said = format!("The {role} worker stood still for {still_s:.1} s of the window");
        match still_s > most {
            true => record.validity.reject(format!(
                "{said}, stopped or without a CPU: what was measured is not what its stack does"
            )),
            false => record.notes.push(format!("{said}, stopped or without a CPU.")),
        }
    }
}

/// Says of a run whether its probes stood still, or left samples out.
pub(super) fn tell_probes(record: &mut RunRecord) {
    if record.probes.left_out {
        record.notes.push(
            "The probes keep no more samples than they have: the last step is all the rest of the run.".to_owned(),
        );
        return;
    }
    let still_s = of_probes(&record.probes);
    if still_s > 0.0 {
        record.notes.push(format!(
            "The probes stood still for {still_s:.1} s in all: their steps are as long as times_s tells."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(at_ms: &[u64]) -> Vec<Sample> {
        let sample = |&ms: &u64| Sample { at_ns: ms * 1_000_000, ..Sample::default() };
        at_ms.iter().map(sample).collect()
    }

    #[test]
    fn a_reading_that_has_missed_others_is_a_standstill_and_a_late_one_is_none() {
        let still = |at_ms: &[u64]| of_readings(&samples(at_ms), 1_000_000_000);
        assert_eq!(still(&[1000, 1100, 1199, 1300, 1450]), 0.0);
        assert_eq!(still(&[1000, 1100, 2700, 2800]), 1.5, "in the middle");
        assert_eq!(still(&[2500, 2600, 2700]), 1.5, "over the beginning");
        assert_eq!(still(&[1000, 1100, 1200, 2800]), 1.5, "over the end");
        assert_eq!(still(&[1000, 1400, 1800]), 0.6, "twice");
        assert_eq!(still(&[]), 0.0);
    }

    #[test]
    fn a_short_standstill_is_noted_and_a_long_one_refused() {
        let told = |still_s: f64, asked_s: f64| {
            let mut record = RunRecord::default();
            tell_workers(&mut record, &[("near", 0.0), ("far", still_s)], asked_s);
            (record.validity.valid, record.notes.len(), record.validity.reasons.join(""))
        };
        assert_eq!(told(0.0, 4.0), (true, 0, String::new()));
        assert_eq!(told(0.3, 4.0), (true, 1, String::new()));
        let (valid, notes, reason) = told(1.5, 4.0);
        assert!(
            !valid && notes == 0 && reason.contains("far worker stood still for 1.5 s"),
            "{reason}"
        );
        assert!(told(1.5, 60.0).0, "a fortieth of the window");
        assert!(!told(0.6, 1.0).0);
    }

    #[test]
    fn a_runner_that_was_late_says_what_its_counters_are_worth() {
        let told = |late_s: f64| {
            let mut record = RunRecord::default();
            tell_runner(&mut record, late_s, 4.0);
            assert!(record.validity.valid, "the workers read what counts themselves");
            record.notes.join(" ")
        };
        assert_eq!(told(0.1), "");
        assert!(told(0.3).contains("0.3 s at an edge") && told(0.3).contains("stretch"));
        assert!(told(1.5).contains("left out"), "{}", told(1.5));
    }

    #[test]
    fn probes_that_stood_still_or_left_samples_out_are_noted() {
        let told = |times_s: &[f64], left_out| {
            let probes = Probes {
                interval_s: 0.1,
                times_s: times_s.to_vec(),
                left_out,
                ..Probes::default()
            };
            let mut record = RunRecord { probes, ..RunRecord::default() };
            tell_probes(&mut record);
            record.notes.join(" ")
        };
        assert_eq!(told(&[0.0, 0.1, 0.25, 0.3], false), "");
        assert!(told(&[0.0, 0.1, 1.7, 1.8], false).contains("stood still for 1.5 s"));
        assert!(told(&[0.0, 0.1, 9.0], true).contains("the last step is all the rest"));
    }
}
