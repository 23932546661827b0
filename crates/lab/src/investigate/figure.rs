//! The place of a command's figure in its output.

mod known;
mod netperf;

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex, RegexBuilder};

pub use known::known_figure;

use known::Known;
use millstream_record::error::Error;

/// The fact of an experiment that is the word behind the figure of its command, empty where there
/// is none.
pub const FIGURE_UNIT: &str = "command.figure_unit";
/// The fact of an experiment that less of the figure of its command is better.
pub const FIGURE_LESS: &str = "command.figure_less_is_better";

/// The place of a command's figure in its output.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Key of the result, its unit at the end.
    pub key: String,
    /// True when more of it is better.
    pub higher_is_better: bool,
    /// The first place that the output has counts.
    places: Vec<Place>,
    /// True of a known program: its figure cannot be below zero, and may be in either output.
    is_known: bool,
    /// The patterns that count the requests of a known program, and those that failed.
    requests: Vec<Regex>,
    failed: Vec<Regex>,
}

#[derive(Clone, Debug)]
enum Place {
    /// The last match: group 1 is a number, group 2, if there is one, its prefix (K, M, Ki, m). The
    /// number is multiplied.
    Pattern(Regex, f64, Prefixes),
    /// The value at this path in the first JSON document of the output.
    Json(String),
    /// The rate that netperf's output has.
    Netperf,
}

/// A figure from this on is no measure: a counter of 64 bits went below zero, or wrapped.
const ABSURD: f64 = (1u64 << 63) as f64;

/// The same limit for a known program: a thousand times what any link carries, in bits a second.
const ABSURD_RATE: f64 = 1e15;

/// The base of the prefixes K, M, G and T before a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefixes {
    /// Powers of 1000, as of bits.
    Decimal,
    /// Powers of 1024, as iperf's of bytes.
    Binary,
}

impl Figure {
    /// Reads the words of the user: the name of a known program whose output it is, `json:a.b.0`,
    /// or a regular expression whose first group is the number.
    pub fn parse(text: &str, higher_is_better: bool) -> Result<Self, Error> {
        if let Some(known) = Known::of(text, &[]) {
            return Ok(known.figure());
        }
        let key = "figure".to_owned();
        let place = match text.strip_prefix("json:") {
            Some(path) => Place::Json(path.to_owned()),
            None => {
                let refuse = |why: String| Error::Refused(format!("--figure {text}: {why}"));
                // `^` and `$` are of a line.
                let pattern = RegexBuilder::new(text).multi_line(true).build();
                let pattern = pattern.map_err(|error| {
                    let why = error.to_string();
                    refuse(why.lines().last().unwrap_or("no regular expression").to_owned())
                })?;
                if pattern.captures_len() < 2 {
                    return Err(refuse("it has no group around the number: (…)".to_owned()));
                }
                Place::Pattern(pattern, 1.0, Prefixes::Decimal)
            }
        };
        Ok(Self {
            key,
            higher_is_better,
            places: vec![place],
            is_known: false,
            requests: vec![],
            failed: vec![],
        })
    }

    /// The figure in an output, or why there is none, as a reason why a run does not count.
    pub fn read(&self, output: &str) -> Result<Reading, String> {
        let output = without_colours(output);
        let reading = self
            .found(&output)
            .unwrap_or_else(|| Err("its output has no figure (--figure)".to_owned()))?;
        let value = reading.value;
        let wrong = match (value.abs(), self.is_known) {
            (size, _) if !size.is_finite() || size >= ABSURD => "more than any counter holds",
            (size, true) if size >= ABSURD_RATE => "more than any link carries",
            (_, true) if value < 0.0 => "below zero",
            _ => return Ok(reading),
        };
        Err(format!("its figure is {value:e}, {wrong}: the program measured nothing"))
    }

    fn found(&self, output: &str) -> Option<Result<Reading, String>> {
        self.places.iter().find_map(|place| place.read(output))
    }

    /// Returns the output of a command to read: the standard one, but standard error where a known
    /// program has its figure there, as fortio.
    pub fn output_of<'a>(&self, out: &'a str, err: &'a str) -> &'a str {
        let has = |output: &str| self.found(&without_colours(output)).is_some();
        if self.is_known && !has(out) && has(err) { err } else { out }
    }

    /// Returns why the figure of a known program does not count: of its requests more than one in a
    /// hundred failed.
    pub fn failed(&self, output: &str) -> Option<String> {
        let output = without_colours(output);
        let sum = |patterns: &[Regex]| -> f64 {
            let found = patterns.iter().flat_map(|pattern| pattern.captures_iter(&output));
            let count = |found: Captures<'_>| -> f64 {
                let groups = found.iter().skip(1).flatten();
                groups.filter_map(|group| group.as_str().parse::<f64>().ok()).sum()
            };
            found.map(count).sum()
        };
        let failed = sum(&self.failed);
        let is_much = failed > sum(&self.requests) / 100.0;
        is_much.then(|| format!("{failed} of its requests failed, more than 1 %"))
    }
}

/// A figure that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// It, multiplied by what its prefix stands for.
    pub value: f64,
    /// The word behind it, where nothing has said what that means; empty where there is none.
    pub unit: String,
}

impl Reading {
    /// Returns true when another one is in the same unit by another prefix.
    pub fn has_other_prefix(&self, other: &Self) -> bool {
        is_other_prefix(&self.unit, &other.unit)
    }
}

/// Returns true when both are one unit by two prefixes, as Kbits/sec and Mbits/sec, or a number
/// without a unit and with a prefix, as 9876 and 10.1k, which the number alone does not show.
pub fn is_other_prefix(one: &str, other: &str) -> bool {
    // As netperf writes them: 10^6bits/sec.
    fn power(unit: &str) -> Option<(&str, &str)> {
        unit.strip_prefix("10^")?.split_once('b')
    }
    fn bare(unit: &str) -> Option<&str> {
        unit.strip_prefix(['k', 'K', 'M', 'G', 'T', 'm', 'u', 'µ', 'n'])
    }
    if let (Some((one, unit)), Some((other, same))) = (power(one), power(other)) {
        return one != other && unit == same;
    }
    let bare = (bare(one), bare(other));
    // A prefix alone differs from any other word, as of 10.1k IOPS and 9876 IOPS.
    let is_prefix = bare.0 == Some("") || bare.1 == Some("");
    let is_same_unit =
        bare.0 == Some(other) || bare.1 == Some(one) || (bare.0.is_some() && bare.0 == bare.1);
    one != other && (is_prefix || is_same_unit)
}

/// Returns the unit of a figure as a message names it.
pub fn unit_name(unit: &str) -> &str {
    if unit.is_empty() { "plain numbers" } else { unit }
}

/// Returns the text without the sequences that set a terminal's colours.
fn without_colours(text: &str) -> Cow<'_, str> {
    static SEQUENCE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\x1b\[[0-9;:?]*[A-Za-z]").expect("a pattern"));
    SEQUENCE.replace_all(text, "")
}

/// Returns the factor of a prefix; `None` where it is none.
fn power(prefix: &str, prefixes: Prefixes) -> Option<f64> {
    let (letter, is_binary) = match prefix.strip_suffix('i') {
        Some(letter) => (letter, true),
        None => (prefix, prefixes == Prefixes::Binary),
    };
    let base: f64 = if is_binary { 1024.0 } else { 1000.0 };
    let power = match letter {
        "" if prefix.is_empty() => 0,
        "k" | "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "m" if !is_binary => -1,
        "u" | "µ" | "μ" if !is_binary => -2,
        "n" if !is_binary => -3,
        _ => return None,
    };
    Some(base.powi(power))
}

/// Returns true where a number goes on before or behind its matched part, as `234` in `1,234`, `5`
/// in `-5` and `1.5` in `1.5e6`. A comma that the pattern itself writes beside its group parts the
/// fields of a line.
fn is_cut(pattern: &Regex, found: &Captures<'_>, output: &str) -> bool {
    let (Some(whole), Some(number)) = (found.get(0), found.get(1)) else { return false };
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    let is_exponent = |letter: char| matches!(letter, 'e' | 'E');
    let (before, behind) = (&output[..number.start()], &output[number.end()..]);
    let begins_so = |of: fn(char) -> bool| number.as_str().starts_with(of);
    let is_meant = |comma: char, at: &str| comma == ',' && pattern.as_str().contains(at);
    let mut letters = before.chars().rev();
    let begins = match letters.next() {
        Some(letter) if is_meant(letter, ",(") => false,
        Some(letter) if parts_thousands(letter) || letter == '.' => is_digit(letters.next()),
        // A sign, or that of an exponent; no dash within a word or between two numbers.
        Some(sign @ ('-' | '\u{2212}' | '+')) => match letters.next() {
            Some(letter) if is_exponent(letter) => is_digit(letters.next()),
            Some(letter) => sign != '+' && (letter.is_whitespace() || "=:([\"'".contains(letter)),
            None => sign != '+',
        },
        Some(letter) if is_exponent(letter) => is_digit(letters.next()),
        last => is_digit(last) && begins_so(|c| c.is_ascii_digit()),
    };
    let mut letters = behind.chars();
    let ends = match letters.next() {
        Some(letter) if is_meant(letter, "),") => false,
        Some(letter) if parts_thousands(letter) => is_digit(letters.next()),
        // A pattern may name text behind the number, which is left away on purpose.
        Some('.') => whole.end() == number.end() && is_digit(letters.next()),
        Some(letter) if is_exponent(letter) => match letters.next() {
            Some('+' | '-') => is_digit(letters.next()),
            first => is_digit(first),
        },
        Some('x') => number.as_str() == "0",
        first => is_digit(first),
    };
    let is_number = number.as_str().ends_with(|c: char| c.is_ascii_digit());
    (begins && !begins_so(|c| "+-\u{2212}".contains(c))) || (is_number && ends)
}

/// Returns whether some locale parts the thousands of a number by it.
fn parts_thousands(letter: char) -> bool {
    matches!(letter, ',' | '\'' | '_' | '\u{2019}' | '\u{a0}' | '\u{202f}' | '\u{2009}' | '\u{66c}')
}

impl Place {
    /// Reads the figure at this place; `None` where the place is not there, an error where it has
    /// no number.
    fn read(&self, output: &str) -> Option<Result<Reading, String>> {
        static UNIT: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"^ ?([A-Za-zµμ]+(?:/[A-Za-z]+)?)").expect("a pattern"));
        match self {
            Self::Pattern(pattern, factor, prefixes) => {
                let found = pattern.captures_iter(output).last()?;
                let number = found.get(1)?;
                let text = number.as_str();
                let prefix = found.get(2).map(|group| group.as_str());
                if is_cut(pattern, &found, output) {
                    return Some(Err(format!(
                        "of its figure --figure takes {text:?} alone, out of {:?}",
                        around(output, number.start(), number.end())
                    )));
                }
                let Some(power) = power(prefix.unwrap_or(""), *prefixes) else {
                    return Some(Err(format!(
                        "the prefix of its figure is {:?}, none of k K M G T P m u n (--figure, group 2)",
                        prefix.unwrap_or("")
                    )));
                };
                let unit = match prefix {
                    Some(_) => None,
                    None => UNIT.captures(&output[number.end()..]).map(|unit| unit[1].to_owned()),
                }
                .unwrap_or_default();
                Some(finite(text).map(|number| Reading { value: number * power * factor, unit }))
            }
            Self::Netperf => netperf::read(output),
            Self::Json(path) => {
                // Lines of a shell or a wrapper before the document are no part of it.
                let document = lines_from(output)
                    .filter(|text| text.starts_with(['{', '[']))
                    .find_map(|text| {
                        let mut all = serde_json::Deserializer::from_str(text).into_iter();
                        let is_meant = |value: &serde_json::Value| {
                            value.is_object()
                                || (value.is_array()
                                    && path.starts_with(|c: char| c.is_ascii_digit()))
                        };
                        all.next()?.ok().filter(is_meant)
                    })?;
                // As iperf3 tells that a test failed, beside what it had counted until then.
                let is_of_iperf3 = document.get("end").is_some_and(serde_json::Value::is_object);
                if let Some(why) = document.get("error").and_then(|why| why.as_str())
                    && is_of_iperf3
                {
                    let why: String = why.chars().take(200).collect();
                    return Some(Err(format!("it says \"error\": {why:?}")));
                }
                let mut at = &document;
                for step in path.split('.') {
                    at = match step.parse::<usize>() {
                        Ok(number) if at.is_array() => at.get(number)?,
                        _ => at.get(step)?,
                    };
                }
                // Some programs write numbers as texts.
                let number = match at {
                    serde_json::Value::String(text) => finite(text),
                    value => value.as_f64().ok_or_else(|| no_number(&value.to_string())),
                };
                Some(number.map(|value| Reading { value, unit: String::new() }))
            }
        }
    }
}

fn finite(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim().parse().ok();
    number.filter(|number| number.is_finite()).ok_or_else(|| no_number(text))
}

fn no_number(text: &str) -> String {
    let text: String = text.chars().take(40).collect();
    format!(
        "its figure is {text:?}, which is no number (--figure; LC_ALL=C writes numbers plainly)"
    )
}

/// The word around a place of a text.
fn around(text: &str, start: usize, end: usize) -> &str {
    let begin = text[..start].rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let begin = (begin..=start).find(|at| text.is_char_boundary(*at)).unwrap_or(start);
    let length = text[end..].find(char::is_whitespace).unwrap_or(text.len() - end);
    &text[begin..end + length]
}

/// The text from the beginning of each line on.
fn lines_from(text: &str) -> impl Iterator<Item = &str> {
    let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(breaks).map(|at| &text[at..])
}

#[cfg(test)]
mod tests;
