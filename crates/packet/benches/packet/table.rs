//! The table at the end: a row for each figure and each of those it is compared with.

use std::fmt;

/// One figure beside another.
pub struct Row {
    pub what: String,
    pub ours: f64,
    pub unit: &'static str,
    pub versus: String,
    pub theirs: f64,
    /// Ours over theirs, round by round.
    pub ratios: Vec<f64>,
    pub held_to: Option<Held>,
}

/// The bound that a row is held to.
#[derive(Clone, Copy)]
pub enum Held {
    AtMost(f64),
    Same,
    /// Ours itself, not the ratio, has to be zero.
    Zero,
}

/// The value below which this share of the numbers lie.
pub fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => f64::NAN,
        n => numbers[((n - 1) as f64 * share).round() as usize],
    }
}

pub fn median(numbers: &[f64]) -> f64 {
    quantile(numbers, 0.5)
}

impl Row {
    fn ratio(&self) -> f64 {
        if self.ratios.is_empty() { self.ours / self.theirs } else { median(&self.ratios) }
    }

    fn verdict(&self) -> Option<bool> {
        Some(match self.held_to? {
            Held::AtMost(limit) => self.ratio() <= limit,
            Held::Same => (self.ratio() - 1.0).abs() < 0.005,
            Held::Zero => self.ours == 0.0,
        })
    }
}

#[derive(Default)]
pub struct Table {
    pub rows: Vec<Row>,
    /// Rows left out, with the reason, and facts that are not figures.
    pub notes: Vec<String>,
}

impl Table {
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit:.3}"),
            Self::Same => write!(f, "same"),
            Self::Zero => write!(f, "none"),
        }
    }
}

fn figure(x: f64) -> String {
    match x {
        x if x.is_nan() => "–".to_owned(),
        x if x.abs() >= 1000.0 => format!("{x:.0}"),
        x if x.abs() >= 100.0 => format!("{x:.1}"),
        x if x != 0.0 && x.abs() < 0.1 => format!("{x:.4}"),
        x => format!("{x:.2}"),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<46} {:>11} {:<9} {:<24} {:>11} {:>9} {:>17} {:>9}",
            "", "millstream", "", "beside", "", "ratio", "10 % … 90 %", "held to"
        )?;
        let (mut held, mut asked) = (0, 0);
        let mut before = "";
        for row in &self.rows {
            let Row { what, ours, unit, versus, theirs, ratios, held_to } = row;
            let (shown, ours) = match what == before {
                true => (String::new(), String::new()),
                false => (what.clone(), figure(*ours)),
            };
            before = what;
            let spread = match ratios[..] {
                [] | [_] => String::new(),
                _ => {
                    format!("{} … {}", figure(quantile(ratios, 0.1)), figure(quantile(ratios, 0.9)))
                }
            };
            let limit = held_to.map_or(String::new(), |held| held.to_string());
            let verdict = match row.verdict() {
                None => "",
                Some(true) => "yes",
                Some(false) => "NO",
            };
            asked += usize::from(held_to.is_some());
            held += usize::from(row.verdict() == Some(true));
            let unit = if ours.is_empty() { "" } else { unit };
            writeln!(
                f,
                "{shown:<46} {ours:>11} {unit:<9} {versus:<24} {:>11} {:>9} {spread:>17} {limit:>9} \
                 {verdict}",
                figure(*theirs),
                figure(row.ratio()),
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        writeln!(f, "{held} of {asked} held")
    }
}
