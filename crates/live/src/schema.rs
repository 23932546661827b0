//! The schema, which names the values of a snapshot: one line each, in their order.
//!
//! A line is `KIND UNIT WIDTH NAME`, and labels as `key=value`. A histogram has `WIDTH` values, one
//! for each power of two; everything else has one. A reader leaves out lines whose kind it does not
//! know, with their values.

use std::fmt::{self, Write};

use millstream_foreign::shown;

use crate::error::Damage;
use crate::record::{Fields, Record};

/// Lines that a schema has at most, and values of one line.
const LINES_MOST: usize = 65_536;
const WIDTH_MOST: usize = 64;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Only grows, from 0.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counters, one for each power of two ([`bucket_least`]).
    Histogram,
}

impl Kind {
    /// Returns its name in the schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Counter, Self::Gauge, Self::Histogram].into_iter().find(|kind| kind.name() == name)
    }
}

/// Returns the least number that the bucket of a histogram counts: 0, 1, 2, 4, 8 and so on. The
/// last bucket has everything above, too.
pub fn bucket_least(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        _ => 1u64.checked_shl(bucket as u32 - 1).unwrap_or(u64::MAX),
    }
}

/// The text of a schema while it is written.
#[derive(Debug, Default)]
pub struct SchemaText {
    pub(crate) text: String,
    pub(crate) values: usize,
}

impl SchemaText {
    /// Adds a line of `width` values. Names and units have no spaces.
    pub fn line(
        &mut self,
        kind: Kind,
        unit: &str,
        width: usize,
        name: &str,
        labels: &[(&str, &dyn fmt::Display)],
    ) {
        // A string takes everything.
        let _ = write!(self.text, "{} {unit} {width} ", kind.name());
        let mut fields = Fields::begin(&mut self.text, name);
        for (key, value) in labels {
            fields.put(key, value);
        }
        fields.end();
        self.values += width;
    }
}

/// One line of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kind of the value.
    pub kind: Kind,
    /// `count`, `bytes`, `ns`, `us`, or another that a newer engine has.
    pub unit: String,
    /// Its name; together with the labels it is unique.
    pub name: String,
    /// Labels that tell values of one name apart, as `reason=martian_source`.
    pub labels: Vec<(String, String)>,
    /// Where its values are.
    pub(crate) at: usize,
    pub(crate) width: usize,
}

impl Entry {
    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads a schema that describes `values` values.
pub(crate) fn parse(text: &str, values: usize) -> Result<Vec<Entry>, Damage> {
    let (mut entries, mut at) = (Vec::new(), 0usize);
    for line in text.lines().take(LINES_MOST) {
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().ok_or(Damage::Broken("a line of its schema"));
        let (kind, unit, width, rest) = (word()?, word()?, word()?, word()?);
        let width = width.parse().ok().filter(|width| (1..=WIDTH_MOST).contains(width));
        let width = width.ok_or(Damage::Broken("a width in its schema"))?;
        let Record { kind: name, fields: labels } = Record::parse(rest);
        if let Some(kind) = Kind::parse(kind) {
            entries.push(Entry { kind, unit: shown(unit), name, labels, at, width });
        }
        at += width;
    }
    match at == values {
        true => Ok(entries),
        false => Err(Damage::Broken("its schema is of other values")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_kind_that_is_not_known_are_left_out_with_their_values() {
        let text = "counter count 1 turns\nsketch us 3 delay\ngauge bytes 1 held link=ms%200\n";
        let entries = parse(text, 5).expect("a schema");
        let read: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.at)).collect();
        assert_eq!(read, [("turns", 0), ("held", 4)]);
        assert_eq!(entries[1].label("link"), Some("ms 0"));
    }

    #[test]
    fn a_schema_of_other_values_is_refused() {
        assert!(parse("counter count 1 turns\n", 2).is_err());
        for wrong in ["counter", "counter count 0 x\n", "counter count 65 x\n", "a b c d\n", "\n"] {
            assert!(parse(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn buckets_begin_at_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 27].map(bucket_least), [0, 1, 2, 4, 1 << 26]);
        assert_eq!(bucket_least(65), u64::MAX);
    }
}
