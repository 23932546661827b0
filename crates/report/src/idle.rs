//! The idle states of CPUs: medians over the runs that count, by CPU and state.

use std::collections::BTreeSet;

use millstream_diagnose::stats::median;
use millstream_diagnose::units::grouped;
use millstream_record::RunRecord;

use super::model::Model;

/// States below this share of the time are not worth a word.
const SHARE_LEAST: f64 = 0.005;
/// CPUs of one line: the first ones, where the hosts are.
const CPUS: usize = 8;

/// One line for each case and stack of an experiment that asked for a wake-up time at least once,
/// so that its levels can be compared: `tcp_rr idle_latency_us=0, kernel: 0 µs in force; CPU 0 POLL
/// 41 % (52,000/s); …`.
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    let asked = |run: &&RunRecord| fact(run, "asked_us").is_some_and(|asked| asked != "nothing");
    if !model.runs.iter().any(|run| asked(&run)) {
        return Vec::new();
    }
    model.lines_of(|row| {
        let runs = &row.group.valid;
        let limit = match runs.first().map(|run| fact(run, "in_force_us")) {
            None => return String::new(),
            Some(Some("none")) => "no limit in force".to_owned(),
            Some(Some(us)) => format!("{us} µs in force"),
            Some(None) => "limit in force unknown".to_owned(),
        };
        let cpus = states(runs).into_iter().take(CPUS);
        let cpus = cpus.map(|(cpu, states)| format!("{cpu} {states}"));
        std::iter::once(limit).chain(cpus).collect::<Vec<_>>().join("; ")
    })
}

fn fact<'a>(run: &'a RunRecord, name: &str) -> Option<&'a str> {
    run.environment.get(&format!("idle_latency.{name}"))
}

/// Each CPU with its states: `CPU 0`, `POLL 41 % (52,000/s), C1 3 % (400/s)`.
pub(super) fn states(runs: &[&RunRecord]) -> Vec<(String, String)> {
    let seen = || runs.iter().filter_map(|run| run.probes.idle_states.as_ref()).flatten();
    let cpus: BTreeSet<u32> = seen().map(|one| one.cpu).collect();
    let of_cpu = |cpu: u32| {
        let mut names: Vec<&str> = Vec::new();
        for state in seen().filter(|one| one.cpu == cpu).flat_map(|one| &one.states) {
            if !names.contains(&state.name.as_str()) {
                names.push(&state.name);
            }
        }
        let words = names.into_iter().filter_map(|name| of_state(runs, cpu, name));
        let words = words.collect::<Vec<_>>().join(", ");
        if words.is_empty() { "never idle".to_owned() } else { words }
    };
    cpus.into_iter().map(|cpu| (format!("CPU {cpu}"), of_cpu(cpu))).collect()
}

fn of_state(runs: &[&RunRecord], cpu: u32, name: &str) -> Option<String> {
    let values = runs.iter().filter_map(|run| {
        let length_s = run.window.end_s - run.window.start_s;
        let cpus = run.probes.idle_states.as_ref().filter(|_| length_s > 0.0)?;
        let states = &cpus.iter().find(|one| one.cpu == cpu)?.states;
        let state = states.iter().find(|state| state.name == name)?;
        Some((state.time_us as f64 / 1e6 / length_s, state.entries as f64 / length_s))
    });
    let (shares, rates): (Vec<f64>, Vec<f64>) = values.unzip();
    let (share, rate) = (median(&shares)?, median(&rates)?);
    let word = || format!("{name} {:.0} % ({}/s)", share * 100.0, grouped(rate.round()));
    (share >= SHARE_LEAST).then(word)
}
