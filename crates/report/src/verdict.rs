//! The answer in words.

use millstream_diagnose::stats::{Comparison, Interval, RUNS_FOR_A_CLAIM, median};
use millstream_diagnose::units::ratio;
use millstream_record::{Probes, RUNNER};

use super::metric::Better;
use super::model::{Case, Model, Table};

/// Share of the CPUs from which other programs are worth a word.
const OTHERS_SHARE: f64 = 0.05;

/// Returns the words for a comparison, by the better direction of the result.
pub(super) fn judgement(comparison: &Comparison, better: Better) -> &'static str {
    if !comparison.is_supported() {
        return "too few runs";
    }
    if !comparison.differs() {
        return "no difference shown";
    }
    match (better, comparison.ratio > 1.0) {
        (Better::Neither, true) => "higher",
        (Better::Neither, false) => "lower",
        (Better::Higher, true) | (Better::Lower, false) => "better",
        _ => "worse",
    }
}

/// `0.62 (0.58 to 0.66)`; a dash for too few runs, of which no ratio is told.
pub(super) fn ratio_with_interval(comparison: &Comparison) -> String {
    match comparison.interval.filter(|_| comparison.is_supported()) {
        Some(interval) => format!("{} {}", ratio(comparison.ratio), bracketed(interval)),
        None => "–".to_owned(),
    }
}

/// `(0.58 to 0.66)`; `(0.58 or more)` where the base may as well have been zero.
pub(super) fn bracketed(interval: Interval) -> String {
    let Interval { low, high } = interval;
    match high.is_finite() {
        true => format!("({} to {})", ratio(low), ratio(high)),
        false => format!("({} or more)", ratio(low)),
    }
}

/// Name of a stack in a sentence.
fn spoken(stack: &str) -> String {
    match stack {
        "kernel" => "the kernel".into(),
        "millstream" => "Millstream".into(),
        "bare" => "the bare loop".into(),
        other => other.into(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The answer over all cases: the leading result of each workload, and what is missing.
pub(super) fn sentence(model: &Model<'_>) -> String {
    let mut sentences = lead(model);
    if sentences.is_empty() {
        sentences = model.cases.iter().flat_map(of_case).collect();
    }
    if model.valid_runs() == 0 {
        sentences.push("No valid run: nothing can be said.".into());
    }
    sentences.extend(gaps(model));
    sentences.extend(others(model));
    sentences.join(" ")
}

/// A word of caution when other programs had a share of the CPUs that matters.
fn others(model: &Model<'_>) -> Option<String> {
    let shares: Vec<f64> = model.runs.iter().filter_map(|run| others_share(&run.probes)).collect();
    let share = median(&shares).filter(|share| *share >= OTHERS_SHARE)?;
    Some(format!(
        "Other programs used {:.0} % of the CPUs meanwhile: repeat on a quiet machine.",
        share * 100.0
    ))
}

/// Share of the machine's time that user code outside the workers and the runner took. Kernel time
/// is left out: the interrupts of the workload may hit anybody.
fn others_share(probes: &Probes) -> Option<f64> {
    let length = probes.times_s.last()? - probes.times_s.first()?;
    let cpus = &probes.cpu.as_ref()?.cpus;
    let all: f64 = cpus.iter().map(|cpu| cpu.total_s("usr") + cpu.total_s("nice")).sum();
    let workers = probes.workers.as_ref()?;
    let own: f64 = workers.values().map(|worker| worker.usr_s).sum();
    // Sampling is a thread of the runner: where that is watched it is counted already.
    let sampling = if workers.contains_key(RUNNER) { 0.0 } else { probes.own_cpu_s };
    let machine = length * cpus.len() as f64;
    (machine > 0.0).then(|| ((all - own - sampling) / machine).max(0.0))
}

/// Returns sentences about missing runs: too few for a ratio, not counted, set aside, or planned
/// and not made.
fn gaps(model: &Model<'_>) -> Vec<String> {
    let mut gaps = Vec::new();
    let (made, planned) = (model.runs.len(), model.experiment.planned_runs as usize);
    let invalid = made - model.valid_runs();
    let few = |case: &Case<'_>| {
        let tables = case.tables.iter().filter(|table| table.metric.headline);
        let mut cells = tables.flat_map(|table| case.cells(table));
        cells.any(|cell| cell.comparison.is_some_and(|one| !one.is_supported()))
    };
    if model.cases.iter().any(few) {
        gaps.push(format!("Of fewer than {RUNS_FOR_A_CLAIM} runs a side no ratio is told."));
    }
    match invalid {
        0 => {}
        1 => gaps.push(format!("1 of {made} runs did not count.")),
        _ => gaps.push(format!("{invalid} of {made} runs did not count.")),
    }
    match model.apart().count() {
        0 => {}
        1 => gaps.push(format!("1 of {made} runs is set aside, as the host kept its CPUs apart.")),
        apart => gaps.push(format!(
            "{apart} of {made} runs are set aside, as the host kept their CPUs apart."
        )),
    }
    if made < planned {
        gaps.push(format!("Only {made} of {planned} planned runs were made."));
    }
    gaps
}

/// `Against the kernel, Millstream had 0.41 to 0.62 times the throughput in tcp_stream and …`: a
/// sentence per stack that is compared.
fn lead(model: &Model<'_>) -> Vec<String> {
    // Compared row → (base, workload → ratios of its leading result).
    let mut found: Vec<(String, String, Vec<Lead>)> = Vec::new();
    for case in &model.cases {
        let Some(table) = case.tables.iter().find(|table| table.metric.headline) else { continue };
        for (row, cell) in case.rows.iter().zip(case.cells(table)) {
            let Some(comparison) = cell.comparison.filter(Comparison::is_supported) else {
                continue;
            };
            let (stack, base) = (row.label.clone(), case.rows[0].label.clone());
            let place = found.iter().position(|(one, other, _)| *one == stack && *other == base);
            let place = place.unwrap_or_else(|| {
                found.push((stack, base, Vec::new()));
                found.len() - 1
            });
            let leads = &mut found[place].2;
            match leads.iter_mut().find(|lead| lead.workload == case.workload) {
                Some(lead) => lead.ratios.push(comparison),
                None => leads.push(Lead {
                    workload: case.workload.clone(),
                    what: what(table),
                    ratios: vec![comparison],
                }),
            }
        }
    }
    let sentences = found.into_iter().map(|(stack, base, leads)| {
        let clauses: Vec<String> = leads.iter().map(Lead::clause).collect();
        format!("Against {}, {} had {}.", spoken(&base), spoken(&stack), listed(&clauses))
    });
    sentences.collect()
}

/// The ratios of the leading result of a workload over its cases.
struct Lead {
    workload: String,
    what: String,
    ratios: Vec<Comparison>,
}

impl Lead {
    fn clause(&self) -> String {
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NEG_INFINITY, f64::max);
        let ratios = || self.ratios.iter().map(|one| one.ratio);
        let intervals = || self.ratios.iter().filter_map(|one| one.interval);
        let (low, high) = (ratio(least(&mut ratios())), ratio(most(&mut ratios())));
        let range = if low == high { low } else { format!("{low} to {high}") };
        // The intervals of all cases together.
        let interval = Interval {
            low: least(&mut intervals().map(|one| one.low)),
            high: most(&mut intervals().map(|one| one.high)),
        };
        format!("{range} {} times the {} in {}", bracketed(interval), self.what, self.workload)
    }
}

/// The sentences of one case: one per row that is compared, else one per row with its median.
pub(super) fn of_case(case: &Case<'_>) -> Vec<String> {
    let headlines: Vec<&Table> = case.tables.iter().filter(|table| table.metric.headline).collect();
    let mut sentences = Vec::new();
    for (at, row) in case.rows.iter().enumerate().skip(1) {
        let clauses = headlines.iter().filter_map(|table| {
            let comparison =
                case.cells(table)[at].comparison.as_ref().filter(|one| one.is_supported())?;
            let doubt = match judgement(comparison, table.metric.better) {
                doubt @ "no difference shown" => format!(" ({doubt})"),
                _ => String::new(),
            };
            let ratio = ratio_with_interval(comparison);
            Some(format!("{ratio} times the {}{doubt}", what(table)))
        });
        let clauses: Vec<String> = clauses.collect();
        if !clauses.is_empty() {
            let (who, base) = (capitalised(&spoken(&row.label)), spoken(&case.rows[0].label));
            sentences.push(format!("{who} had {} of {base}.", listed(&clauses)));
        }
    }
    if sentences.is_empty()
        && let Some(table) = headlines.first()
    {
        for (row, cell) in case.rows.iter().zip(case.cells(table)) {
            let Some(summary) = cell.summary else { continue };
            let (who, median) =
                (capitalised(&spoken(&row.label)), table.scale.with_unit(summary.median));
            let of = match summary.n {
                1 => "one run".to_owned(),
                n => format!("median of {n} runs"),
            };
            sentences.push(format!("{who} had {median} {} in {} ({of}).", what(table), case.label));
        }
    }
    sentences
}

/// The measure in a sentence: without the remark behind the comma, percentiles in front.
fn what(table: &Table) -> String {
    let label = &table.metric.label;
    match label.split_once(", ") {
        Some(("latency", which)) => format!("{which} latency"),
        Some((first, _)) => first.to_owned(),
        None => label.clone(),
    }
}

/// `a, b and c`.
fn listed(clauses: &[String]) -> String {
    match clauses {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn a_busy_machine_is_said_and_a_quiet_one_is_not() {
        let (experiment, mut runs) = fixture::experiment();
        assert!(!sentence(&Model::new(&experiment, &runs)).contains("Other programs"));
        for run in &mut runs {
            let cpu = run.probes.cpu.as_mut().unwrap();
            cpu.cpus[1].nice_s.fill(0.05);
        }
        let text = sentence(&Model::new(&experiment, &runs));
        assert!(text.contains("Other programs used 2"), "{text}");
    }

    #[test]
    fn the_path_of_the_runner_is_no_other_program() {
        let (experiment, mut runs) = fixture::experiment();
        for run in &mut runs {
            let cpu = run.probes.cpu.as_mut().unwrap();
            cpu.cpus[1].nice_s.fill(0.05);
            let usr_s = cpu.cpus[1].total_s("nice");
            let runner = millstream_record::WorkerActivity { usr_s, ..Default::default() };
            run.probes.workers.as_mut().unwrap().insert(RUNNER.into(), runner);
        }
        let text = sentence(&Model::new(&experiment, &runs));
        assert!(!text.contains("Other programs"), "{text}");
    }

    /// Ten runs a side are not too few because one of the kernel's had nothing to send again.
    #[test]
    fn a_base_that_was_zero_once_is_compared_all_the_same() {
        let (experiment, mut runs) = fixture::experiment();
        for run in &mut runs {
            let percent = if run.stack == "kernel" { 2.0 } else { 0.5 };
            let percent = if run.stack == "kernel" && run.block == 0 { 0.0 } else { percent };
            run.results.insert(millstream_record::keys::RETRANSMITTED.into(), percent);
        }
        let model = Model::new(&experiment, &runs);
        let mut tables =
            model.cases.iter().flat_map(|case| case.tables.iter().map(move |table| (case, table)));
        let (case, table) =
            tables.find(|(_, table)| table.metric.label == "retransmitted").unwrap();
        let comparison = case.cells(table)[1].comparison.unwrap();
        assert!(comparison.interval.is_some(), "{comparison:?}");
        assert_ne!(judgement(&comparison, table.metric.better), "too few runs");
        assert!(!sentence(&model).contains("no ratio is told"), "{}", sentence(&model));
        let open = Comparison {
            interval: Some(Interval { low: 0.25, high: f64::INFINITY }),
            ..comparison
        };
        assert_eq!(ratio_with_interval(&open), "0.25 (0.25 or more)");
        assert_eq!(judgement(&open, table.metric.better), "no difference shown");
    }

    #[test]
    fn few_runs_are_shown_without_a_claim() {
        let (experiment, runs) = fixture::experiment();
        let few: Vec<_> = runs.into_iter().filter(|run| run.block < 3).collect();
        let model = Model::new(&experiment, &few);
        let of_case = of_case(&model.cases[0]).join(" ");
        assert!(of_case.contains("(median of 3 runs)") && !of_case.contains("times"), "{of_case}");
        assert!(sentence(&model).contains("fewer than 4 runs a side"));
        assert!(!sentence(&model).contains("times"), "{}", sentence(&model));
        let one = Model::new(&experiment, &few[..1]);
        assert!(sentence(&one).contains("(one run)"), "{}", sentence(&one));
        assert!(sentence(&model).contains("Only 18 of 30 planned runs were made."));
    }
}
