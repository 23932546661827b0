//! Factors: the things that an experiment can vary, and the levels of each.

use std::fmt;

/// The levels that a factor allows.
#[derive(Clone, Copy, Debug)]
pub enum Levels {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number in this range.
    Number(u64, u64),
    /// One of these words, or a whole number in this range.
    WordsOrNumber(&'static [&'static str], u64, u64),
    /// A number in this range, of at most three decimal places.
    Decimal(f64, f64),
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Levels::Words(words) => f.write_str(&words.join(", ")),
            Levels::Number(low, high) => write!(f, "a whole number from {low} to {high}"),
            Levels::WordsOrNumber(words, low, high) => {
                write!(f, "{} or a whole number from {low} to {high}", words.join(", "))
            }
            Levels::Decimal(low, high) => write!(f, "a number from {low} to {high}"),
        }
    }
}

/// One thing that an experiment can vary.
#[derive(Clone, Debug)]
pub struct Factor {
    /// Its name in definitions and records.
    pub name: &'static str,
    /// Allowed levels.
    pub levels: Levels,
    /// The level when none is given.
    pub default: &'static str,
    /// The workloads that know it.
    pub scope: Scope,
    /// True when it means nothing on the kernel's stack.
    pub millstream_only: bool,
    /// True when levels other than the default mean something on the impaired path alone.
    pub needs_impaired: bool,
    /// One line for the help text.
    pub help: &'static str,
}

/// The workloads that know a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All workloads.
    All,
    /// All workloads without a router between their hosts.
    Direct,
    /// The workloads that name it.
    Named,
}

impl Factor {
    /// Returns a factor that is known only to the workloads that name it.
    pub const fn own(
        name: &'static str,
        levels: Levels,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        let (scope, millstream_only, needs_impaired) = (Scope::Named, false, false);
        Self { name, levels, default, scope, millstream_only, needs_impaired, help }
    }

    /// Returns the level as it is always written, or `None` when it is not allowed.
    pub fn level(&self, text: &str) -> Option<String> {
        self.levels.level(text)
    }
}

impl Levels {
    /// Returns the level as it is always written, or `None` when it is not allowed.
    pub fn level(&self, text: &str) -> Option<String> {
        let number = |low: u64, high: u64| {
            let value: u64 = text.replace('_', "").parse().ok()?;
            (low..=high).contains(&value).then(|| value.to_string())
        };
        match *self {
            Levels::Words(words) => words.contains(&text).then(|| text.to_owned()),
            Levels::Number(low, high) => number(low, high),
            Levels::WordsOrNumber(words, _, _) if words.contains(&text) => Some(text.to_owned()),
            Levels::WordsOrNumber(_, low, high) => number(low, high),
            Levels::Decimal(low, high) => {
                // "-0" is 0.
                let value = text.parse::<f64>().ok()? + 0.0;
                let level = ((value * 1e3).round() / 1e3).to_string();
                let is_exact = level.parse::<f64>().is_ok_and(|level| level == value);
                (is_exact && (low..=high).contains(&value)).then_some(level)
            }
        }
    }
}
