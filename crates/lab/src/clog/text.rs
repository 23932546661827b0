//! The outcome of a clog as text for a terminal.

use std::fmt::Write;

use super::picture::with_unit;
use super::{Diagnosis, Outcome, VARIANTS};

impl Outcome {
    /// The picture, the ratio, and both diagnoses.
    pub fn text(&self) -> String {
        let Self { clog, title, result, medians, ratio, interval, picture, .. } = self;
        let mut text = format!("{clog}: {title}\n\n{picture}\n");
        let [clogged, cured] = VARIANTS.map(|variant| with_unit(result, medians[variant]));
        let spread = interval
            .map_or_else(String::new, |(low, high)| format!(" (95 %: {low:.3} to {high:.3})"));
        let _ = writeln!(text, "clogged : cured  {clogged} : {cured}, ratio {ratio:.3}{spread}");
        for variant in VARIANTS {
            let said = self.diagnoses[variant].text();
            let _ = write!(text, "\nThe diagnosis of the {variant} runs:\n{said}");
        }
        let _ = writeln!(text, "\n{} runs in {:.0} s", self.runs.len(), self.took_s);
        text
    }
}

impl Diagnosis {
    fn text(&self) -> String {
        let Self { causes, names_it: _, not_measured, refused } = self;
        let mut text = String::new();
        if let Some(why) = refused {
            let _ = writeln!(text, "  none: {why}");
        }
        for one in causes {
            let mark = if one.is_of_a_clog { "*" } else { " " };
            let _ = writeln!(text, "{mark} {} ({})\n    {}", one.title, one.id, one.evidence);
        }
        if !causes.iter().any(|one| one.is_of_a_clog) && refused.is_none() {
            text.push_str("  none of the five clogs\n");
        }
        if !not_measured.is_empty() {
            let _ = writeln!(text, "  not judged, as not measured: {}", not_measured.join(", "));
        }
        text
    }
}
