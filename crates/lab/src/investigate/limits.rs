//! The resources on the path, the one that limits, and why the result is not twice as much.

use std::fmt::Write as _;

use millstream_diagnose::resources::{
    FULL_LEAST, Limit, Resource, SATURATED_LEAST, limit, resources,
};
use millstream_diagnose::separate::Feature;
use serde::{Deserialize, Serialize};

use millstream_diagnose::units::significant;
use millstream_record::RunRecord;
use millstream_report::frame::{Grid, Part};

/// Utilisation, saturation and errors of the resources on the path, over all observed runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The resources, CPUs first.
    pub resources: Vec<Resource>,
    /// The resource that is at its limit.
    pub limit: Limit,
    /// Features that were not measured, each with the reason.
    pub absent: std::collections::BTreeMap<String, String>,
}

/// The probe that a feature comes from, where that is not `flows`.
const PROBES: [(&str, &str); 9] = [
    ("busiest_softirq_time_share", "kernel"),
    ("lock_spin_time_share", "kernel"),
    ("softnet_dropped_per_s", "softnet"),
    ("throttled_share", "throttling"),
    ("qdisc_", "qdiscs"),
    ("disk_busy_share", "disks"),
    ("io_pressure_share", "pressure"),
    ("busiest_thread_share", "workers"),
    ("waits_for_cpu_share", "workers"),
];

impl Limits {
    pub(super) fn of(runs: &[&RunRecord], features: &[Feature]) -> Self {
        let resources = resources(features);
        let why = |feature: &String| {
            let probe = PROBES.iter().find(|(begin, _)| feature.starts_with(begin));
            let probe = probe.map_or("flows", |(_, probe)| probe);
            let why = runs.iter().find_map(|run| run.probes.absent.get(probe));
            let why = why.map_or("no run had anything to tell of it", String::as_str);
            (feature.clone(), why.to_owned())
        };
        let missing = resources.iter().flat_map(|one| &one.not_measured);
        Self { limit: limit(&resources), absent: missing.map(why).collect(), resources }
    }

    /// The answer to “why not double?”, in a sentence or two.
    pub(super) fn sentence(&self) -> String {
        let Limit { resource, share, next } = &self.limit;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut said = match resource {
            Some(name) => format!(
                "What limits is {name}: full or waited for {} of the time.",
                percent(*share)
            ),
            None => format!(
                "No resource that was looked at is at its limit: none is used for {} of the time or waited for {} of it.",
                percent(FULL_LEAST),
                percent(SATURATED_LEAST)
            ),
        };
        if let (Some((name, used)), Some(gain)) = (next, self.limit.gain_at_most()) {
            let without = if resource.is_some() { "Without it the next" } else { "The next" };
            let _ = write!(
                said,
                " {without} would be {name}, used for {}: at most {gain:.2} times the result.",
                percent(*used)
            );
        }
        said
    }

    /// Returns utilisation, saturation and errors of each resource; of those of which nothing is
    /// known the reason.
    pub(super) fn grid<'a>(&self) -> Part<'a> {
        let share = |value: Option<f64>| {
            value.map_or("–".to_owned(), |value| format!("{:.0} %", value * 100.0))
        };
        let row = |one: &Resource| {
            let is_known = one.utilisation.or(one.saturation).or(one.errors_per_s).is_some();
            let errors = match (is_known, one.not_measured.first()) {
                (false, Some(feature)) => {
                    let why = self.absent.get(feature).map_or("", String::as_str);
                    format!("not measured, because {why}")
                }
                _ => one.errors_per_s.map_or("–".to_owned(), significant),
            };
            [one.name.clone(), share(one.utilisation), share(one.saturation), errors]
        };
        let columns = ["resource", ">used", ">waited for", "refused or done again in a second"];
        let grid = Grid::new("Use of the resources on the path", columns);
        Part::Grid(grid.rows(self.resources.iter().map(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(values: &[(&str, f64)]) -> String {
        let feature = |(name, value): &(&str, f64)| Feature {
            name: (*name).to_owned(),
            distance: 0,
            values: vec![Some(*value)],
        };
        let mut run = RunRecord::new("x");
        run.probes.absent.insert("throttling".into(), "there is no group".into());
        let features: Vec<Feature> = values.iter().map(feature).collect();
        let limits = Limits::of(&[&run], &features);
        let Part::Grid(grid) = limits.grid() else { panic!("a table") };
        format!("{}\n{}", limits.sentence(), grid.text())
    }

    #[test]
    fn why_not_double_names_the_limit_and_what_would_be_next() {
        let text = told(&[
            ("cpu0.idle_share", 0.5),
            ("rwnd_limited_share", 0.8),
            ("tcp_prunes_per_s", 3.0),
        ]);
        let said = "What limits is the receiver's window: full or waited for 80 % of the time. Without it the next \
                    would be CPU 0, used for 50 %: at most 2.00 times the result.";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("CPU 0") && text.contains("80 %  3.00"), "{text}");
    }

    #[test]
    fn what_was_not_measured_says_why_and_is_no_zero() {
        let text = told(&[("cpu0.idle_share", 0.5)]);
        assert!(text.contains("No resource that was looked at is at its limit"), "{text}");
        let quota = text.lines().find(|line| line.contains("the CPU quota")).unwrap();
        assert!(quota.ends_with("not measured, because there is no group"), "{quota}");
        assert!(!text.contains(" 0 %"), "{text}");
    }
}
