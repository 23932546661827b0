//! The cost of observation, probe by probe and program by program, and the ones to leave out to
//! have it for less.

use std::fmt::Write as _;

use millstream_record::Probes;

/// Shares of the machine's time that looking may cost.
const LIMITS_PERCENT: [f64; 2] = [1.0, 3.0];

/// A probe or a program, and its share of one CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The probe, or the BPF program.
    pub name: String,
    /// True for a BPF program in the kernel, false for a probe.
    pub is_program: bool,
    /// Percent of one CPU.
    pub percent: f64,
}

/// All of it, what costs most first. `beside` is what else looked: its name and CPU time over the
/// same samples.
pub fn costs(probes: &Probes, beside: &[(&str, f64)]) -> Vec<Cost> {
    let Some(((first, second), last)) = ends(&probes.times_s) else { return Vec::new() };
    // Probes count from the first sample to the last, programs in the first step.
    let (all_s, step_s) = (last - first, second - first);
    let own = probes.probe_cpu_s.iter().map(|(name, cpu_s)| (name.as_str(), *cpu_s));
    let own = own.chain(beside.iter().copied()).map(|(name, cpu_s)| Cost {
        name: name.to_owned(),
        is_program: false,
        percent: cpu_s * 100.0 / all_s,
    });
    let programs = probes.kernel.iter().flat_map(|kernel| &kernel.costs).map(|(name, cost)| Cost {
        name: name.clone(),
        is_program: true,
        percent: cost.cpu_s * 100.0 / step_s,
    });
    let mut all: Vec<Cost> = own.chain(programs).filter(|cost| cost.percent > 0.0).collect();
    all.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    all
}

fn ends(times_s: &[f64]) -> Option<((f64, f64), f64)> {
    let (first, second, last) = (*times_s.first()?, *times_s.get(1)?, *times_s.last()?);
    (second > first).then_some(((first, second), last))
}

/// Returns the probes and programs to leave out so that the rest takes at most `limit_percent` of
/// one CPU: the fewest, which are those that cost most.
pub fn too_much(costs: &[Cost], limit_percent: f64) -> Vec<&Cost> {
    let mut left: f64 = costs.iter().map(|cost| cost.percent).sum();
    let over = costs.iter().take_while(|cost| {
        let is_over = left > limit_percent;
        left -= cost.percent;
        is_over
    });
    over.collect()
}

/// Returns the costs as text, for a machine of so many CPUs.
pub fn text(costs: &[Cost], cpus: usize) -> String {
    let mut text = String::new();
    let all: f64 = costs.iter().map(|cost| cost.percent).sum();
    let cpus = cpus.max(1) as f64;
    let _ = writeln!(
        text,
        "\nWhat looking costs: {all:.3} % of one CPU, {:.3} % of this machine",
        all / cpus
    );
    for cost in costs {
        let what = if cost.is_program { " (program in the kernel)" } else { "" };
        let _ = writeln!(text, "  {:>8.3} %  {}{what}", cost.percent, cost.name);
    }
    for limit in LIMITS_PERCENT {
        let over = too_much(costs, limit * cpus);
        let names: Vec<&str> = over.iter().map(|cost| cost.name.as_str()).collect();
        let without = match names.is_empty() {
            true => "as it is".to_owned(),
            false => format!("without {}", names.join(", ")),
        };
        let _ = writeln!(text, "  under {limit} % of this machine: {without}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_record::{CostRecord, KernelActivity};

    fn probes() -> Probes {
        let mut kernel = KernelActivity::default();
        let cost = |runs, cpu_s| CostRecord { runs, cpu_s };
        kernel.costs.insert("sys_enter".to_owned(), cost(1000, 0.05));
        kernel.costs.insert("ipi_send_cpu".to_owned(), cost(0, 0.0));
        Probes {
            times_s: vec![10.0, 11.0, 12.0, 14.0],
            probe_cpu_s: [("cpu".to_owned(), 0.004), ("interrupts".to_owned(), 0.04)].into(),
            kernel: Some(kernel),
            ..Probes::default()
        }
    }

    #[test]
    fn shares_are_of_the_time_that_each_was_counted_in() {
        let costs = costs(&probes(), &[("table", 0.002)]);
        let found: Vec<(&str, f64)> =
            costs.iter().map(|cost| (cost.name.as_str(), cost.percent)).collect();
        assert_eq!(found.len(), 4, "what costs nothing is no line: {found:?}");
        for ((name, percent), (expected, by)) in found.iter().zip([
            ("sys_enter", 5.0),
            ("interrupts", 1.0),
            ("cpu", 0.1),
            ("table", 0.05),
        ]) {
            assert!(*name == expected && (percent - by).abs() < 1e-9, "{name} {percent}");
        }
        assert!(super::costs(&Probes::default(), &[]).is_empty());
    }

    #[test]
    fn what_costs_most_goes_first() {
        let costs = costs(&probes(), &[]);
        let names = |limit| -> Vec<String> {
            too_much(&costs, limit).iter().map(|cost| cost.name.clone()).collect()
        };
        assert_eq!(names(7.0), Vec::<String>::new());
        assert_eq!(names(2.0), ["sys_enter"]);
        assert_eq!(names(0.5), ["sys_enter", "interrupts"]);
        let said = text(&costs, 2);
        assert!(said.contains("under 1 % of this machine: without sys_enter"), "{said}");
        assert!(said.contains("under 3 % of this machine: without sys_enter"), "{said}");
        assert!(text(&costs, 7).contains("under 1 % of this machine: as it is"));
    }
}
