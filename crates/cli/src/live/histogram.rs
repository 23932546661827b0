//! Histograms by powers of two, as lines with bars and as JSON.

use millstream_live::bucket_least;
use serde_json::{Map, Value, json};

use super::columns::Side::{Left, Right};
use super::columns::{columns, row};

/// Numbers of values by powers of two, and what the values are.
pub struct Histogram<'a> {
    pub name: &'a str,
    pub labels: Vec<(&'a str, &'a str)>,
    pub unit: &'a str,
    pub values: &'a [u64],
}

impl Histogram<'_> {
    pub fn json(&self) -> Value {
        let buckets = self.values.iter().enumerate().filter(|(_, count)| **count != 0);
        let buckets: Vec<Value> = buckets
            .map(|(at, count)| json!({ "least": bucket_least(at), "count": count }))
            .collect();
        let labels = self.labels.iter().map(|&(key, value)| (key.to_owned(), value.into()));
        let labels: Map<String, Value> = labels.collect();
        json!({ "name": self.name, "labels": labels, "unit": self.unit, "buckets": buckets })
    }

    /// Returns its text; empty where nothing was counted.
    pub fn text(&self) -> String {
        let labels = self.labels.iter().map(|(key, value)| format!(" {key}={value}"));
        match bars(self.values) {
            empty if empty.is_empty() => empty,
            lines => format!("\n{}{}\n{lines}", self.name, labels.collect::<String>()),
        }
    }
}

/// Powers of two that there are.
const BUCKETS: u32 = u64::BITS;

/// Notes in a histogram that so many values have the power of two that begins with `least`.
pub fn set_count(counts: &mut Vec<u64>, least: u64, count: u64) {
    let at = least.checked_ilog2().map_or(0, |power| power + 1).min(BUCKETS) as usize;
    counts.resize(counts.len().max(at + 1), 0);
    counts[at] = count;
}

/// Characters of the longest bar.
const BAR: f64 = 40.0;

/// Returns a line for each power of two between the least and the greatest that was counted, in the
/// manner of DTrace's `quantize()`.
pub fn bars(values: &[u64]) -> String {
    let is_used = |count: &u64| *count != 0;
    let (Some(first), Some(last)) =
        (values.iter().position(is_used), values.iter().rposition(is_used))
    else {
        return String::new();
    };
    let total = values.iter().map(|&count| count as f64).sum::<f64>();
    let rows = (first..=last).map(|at| {
        let bar = (values[at] as f64 / total * BAR).round() as usize;
        vec![
            bucket_least(at).to_string(),
            format!("|{:<40}", "@".repeat(bar)),
            values[at].to_string(),
        ]
    });
    let mut all = vec![row(["value", " distribution", "count"])];
    all.extend(rows);
    columns(&[Right, Left, Right], &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_a_line_for_each_power_of_two_that_matters() {
        let text = bars(&[0, 0, 3, 0, 1, 0]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].trim().starts_with(&format!("2  |{}", "@".repeat(30))), "{text}");
        assert!(lines[2].trim().ends_with('0') && lines[3].trim().starts_with('8'), "{text}");
        assert_eq!(bars(&[0; 4]), "");
    }
}
