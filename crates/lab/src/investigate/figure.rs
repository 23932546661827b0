//! Where a command's output has its figure.

use std::borrow::Cow;
use std::fs;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::error::Error;
use crate::record::keys;

/// The fact of an experiment that is the word behind the figure of its command.
pub const FIGURE_UNIT: &str = "command.figure_unit";

/// Where the figure of a command is in its output.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Key of the result, its unit at the end.
    pub key: String,
    /// Whether more of it is better.
    pub higher_is_better: bool,
    /// The first place that has a number counts.
    places: Vec<Place>,
}

#[derive(Clone, Debug)]
enum Place {
    /// The last match: group 1 is a number, group 2, if there is one, its prefix (K, M, Ki, m). The number is multiplied.
    Pattern(Regex, f64, Prefixes),
    /// What the first JSON document of the output has at this path.
    Json(String),
}

/// How the figure of a known program is read.
struct Known {
    names: &'static [&'static str],
    /// Words one of which is in the command, too; any command where there are none.
    only_with: &'static [&'static str],
    key: &'static str,
    higher_is_better: bool,
    /// Paths of a JSON document, tried before the patterns.
    json: &'static [&'static str],
    /// Patterns with what their number is multiplied by, tried in turn.
    patterns: &'static [(&'static str, f64, Prefixes)],
}

/// What K, M, G and T before a unit stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefixes {
    /// Powers of 1000, as of bits.
    Decimal,
    /// Powers of 1024, as iperf's of bytes.
    Binary,
}

use Prefixes::{Binary, Decimal};

const KNOWN: &[Known] = &[
    Known {
        names: &["iperf3"],
        only_with: &[],
        key: keys::THROUGHPUT,
        higher_is_better: true,
        // What the receiver has got goes before what was sent; `end.sum` is of UDP before iperf 3.10.
        json: &["end.sum_received.bits_per_second", "end.sum.bits_per_second"],
        // With several streams the sum of all; the prefix may be missing or be bytes (-f).
        patterns: &[
            // Of both directions at once (--bidir) that from the client, as in JSON.
            (r"(?m)^\[SUM\]\[TX-C\].*\s([\d.]+) ([KMGT]?)bits/sec.*receiver", 1.0, Decimal),
            (r"(?m)^\[[^\]]*\]\[TX-C\].*\s([\d.]+) ([KMGT]?)bits/sec.*receiver", 1.0, Decimal),
            (r"(?m)^\[SUM\].*\s([\d.]+) ([KMGT]?)bits/sec.*receiver", 1.0, Decimal),
            (r"(?m)^\[SUM\].*\s([\d.]+) ([KMGT]?)Bytes/sec.*receiver", 8.0, Binary),
            (r"([\d.]+) ([KMGT]?)bits/sec.*receiver", 1.0, Decimal),
            (r"([\d.]+) ([KMGT]?)Bytes/sec.*receiver", 8.0, Binary),
        ],
    },
    Known {
        names: &["iperf"],
        only_with: &[],
        key: keys::THROUGHPUT,
        higher_is_better: true,
        json: &[],
        patterns: &[
            // Of UDP the client tells what it sent, and then what the server had of it.
            (r"(?ms)^\[[^\n]*Server Report:\n.*?\s([\d.]+) ([KMGT]?)bits/sec", 1.0, Decimal),
            (r"(?m)^\[SUM\].*\s([\d.]+) ([KMGT]?)bits/sec", 1.0, Decimal),
            (r"(?m)^\[SUM\].*\s([\d.]+) ([KMGT]?)Bytes/sec", 8.0, Binary),
            (r"([\d.]+) ([KMGT]?)bits/sec", 1.0, Decimal),
            (r"([\d.]+) ([KMGT]?)Bytes/sec", 8.0, Binary),
        ],
    },
    Known {
        names: &["netperf"],
        only_with: &[],
        key: "figure",
        higher_is_better: true,
        json: &[],
        patterns: &[
            // Keys by `-- -k` or `-o`, which say what they are.
            (r"(?m)^THROUGHPUT=([\d.]+)", 1.0, Decimal),
            // A transaction test has six columns in its first line of numbers, a stream test five.
            (r"(?m)^(?:\s*[\d.]+){4,}\s+([\d.]+)\s*$", 1.0, Decimal),
        ],
    },
    Known {
        names: &["tcp_stream", "udp_stream"],
        only_with: &[],
        key: keys::THROUGHPUT,
        higher_is_better: true,
        json: &[],
        patterns: &[(r"(?m)^throughput=([\d.]+)", 1e6, Decimal)],
    },
    Known {
        names: &["tcp_rr", "tcp_crr", "udp_rr"],
        only_with: &[],
        key: keys::TRANSACTIONS,
        higher_is_better: true,
        json: &[],
        patterns: &[(r"(?m)^throughput=([\d.]+)", 1.0, Decimal)],
    },
    Known {
        names: &["wrk", "wrk2"],
        only_with: &[],
        key: "requests_per_s",
        higher_is_better: true,
        json: &[],
        patterns: &[(r"Requests/sec:\s*([\d.]+)", 1.0, Decimal)],
    },
    Known {
        names: &["ab"],
        only_with: &[],
        key: "requests_per_s",
        higher_is_better: true,
        json: &[],
        patterns: &[(r"Requests per second:\s*([\d.]+)", 1.0, Decimal)],
    },
    Known {
        names: &["sockperf"],
        only_with: &["throughput", "tp"],
        key: keys::THROUGHPUT,
        higher_is_better: true,
        json: &[],
        // Its Mbps are 2^20 bits.
        patterns: &[(r"BandWidth is .*\(([\d.]+) Mbps\)", 1_048_576.0, Decimal)],
    },
    Known {
        names: &["sockperf"],
        only_with: &[],
        key: "latency_us",
        higher_is_better: false,
        json: &[],
        patterns: &[(r"(?:Latency is|avg-latency=)\s*([\d.]+)", 1.0, Decimal)],
    },
];

/// Bytes of a script that are looked through for a known program.
const SCRIPT_LIMIT: u64 = 64 << 10;

/// The figure of the known program that `command` runs: by itself, behind another one (`taskset -c 1 iperf3`), in the words
/// of a shell (`sh -c 'exec iperf3'`), or in a script that is one of its words.
pub fn known_figure(command: &[String]) -> Option<Figure> {
    let in_words = named_in(&command.join(" "));
    let in_scripts =
        || command.iter().filter_map(|word| script(word)).find_map(|text| named_in(&text));
    in_words.or_else(in_scripts).map(Known::figure)
}

/// The first known program that is a word of `text`, as a shell parts words, with the words beside it.
fn named_in(text: &str) -> Option<&'static Known> {
    let parts = |letter: char| letter.is_whitespace() || "\"'`$(){};|&<>".contains(letter);
    let words: Vec<&str> = text.split(parts).collect();
    words.iter().find_map(|word| Known::of(word.rsplit('/').next()?, &words))
}

/// The text of a file that begins as a script does.
fn script(path: &str) -> Option<String> {
    use std::io::Read;
    // A pipe or a device is read by whom it is for.
    let is_file = fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let mut text = String::new();
    let file = is_file.then(|| fs::File::open(path).ok()).flatten()?;
    file.take(SCRIPT_LIMIT).read_to_string(&mut text).ok()?;
    text.starts_with("#!").then_some(text)
}

impl Known {
    fn of(name: &str, beside: &[&str]) -> Option<&'static Self> {
        let is_meant = |known: &&Self| {
            known.names.contains(&name)
                && (known.only_with.is_empty()
                    || known.only_with.iter().any(|word| beside.contains(word)))
        };
        KNOWN.iter().find(is_meant)
    }

    fn figure(&self) -> Figure {
        let pattern = |(pattern, factor, prefixes): &(&str, f64, Prefixes)| {
            Place::Pattern(Regex::new(pattern).expect("a known pattern"), *factor, *prefixes)
        };
        let json = self.json.iter().map(|path| Place::Json((*path).to_owned()));
        Figure {
            key: self.key.to_owned(),
            higher_is_better: self.higher_is_better,
            places: json.chain(self.patterns.iter().map(pattern)).collect(),
        }
    }
}

impl Figure {
    /// By what the user says: the name of a known program whose output it is, `json:a.b.0`, or a regular expression whose
    /// first group is the number.
    pub fn parse(text: &str, higher_is_better: bool) -> Result<Self, Error> {
        if let Some(known) = Known::of(text, &[]) {
            return Ok(known.figure());
        }
        let key = "figure".to_owned();
        let place = match text.strip_prefix("json:") {
            Some(path) => Place::Json(path.to_owned()),
            None => {
                let refuse = |why: String| Error::Refused(format!("--figure {text}: {why}"));
                let pattern = Regex::new(text).map_err(|error| {
                    let why = error.to_string();
                    refuse(why.lines().last().unwrap_or("no regular expression").to_owned())
                })?;
                if pattern.captures_len() < 2 {
                    return Err(refuse("it has no group around the number: (…)".to_owned()));
                }
                Place::Pattern(pattern, 1.0, Decimal)
            }
        };
        Ok(Self { key, higher_is_better, places: vec![place] })
    }

    /// The figure in an output, or why there is none, as a reason why a run does not count.
    pub fn read(&self, output: &str) -> Result<Reading, String> {
        let output = without_colours(output);
        let mut why = "its output has no figure (--figure)".to_owned();
        for place in &self.places {
            match place.read(&output) {
                None => {}
                Some(Ok(reading)) => return Ok(reading),
                // Of several places the first that has something says what is wrong with it.
                Some(Err(wrong)) if why.starts_with("its output") => why = wrong,
                Some(Err(_)) => {}
            }
        }
        Err(why)
    }
}

/// A figure that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// It, multiplied by what its prefix stands for.
    pub value: f64,
    /// The word behind it, where nothing has said what that means.
    pub unit: Option<String>,
}

impl Reading {
    /// Whether another one is in the same unit by another prefix.
    pub fn has_other_prefix(&self, other: &Self) -> bool {
        let units = self.unit.as_ref().zip(other.unit.as_ref());
        units.is_some_and(|(one, other)| is_other_prefix(one, other))
    }
}

/// Whether both are one unit by two prefixes, as Kbits/sec and Mbits/sec, which no number shows.
pub fn is_other_prefix(one: &str, other: &str) -> bool {
    let bare = |unit: &str| {
        let rest = unit.strip_prefix(['k', 'K', 'M', 'G', 'T', 'm', 'u', 'µ', 'n']);
        rest.filter(|rest| !rest.is_empty()).map(str::to_owned)
    };
    let (bare_one, bare_other) = (bare(one), bare(other));
    one != other
        && (bare_one.as_deref() == Some(other)
            || bare_other.as_deref() == Some(one)
            || (bare_one.is_some() && bare_one == bare_other))
}

/// What a terminal is told of colours is no part of a text.
fn without_colours(text: &str) -> Cow<'_, str> {
    static SEQUENCE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\x1b\[[0-9;:?]*[A-Za-z]").expect("a pattern"));
    SEQUENCE.replace_all(text, "")
}

/// What a prefix stands for; `None` where it is none.
fn power(prefix: &str, prefixes: Prefixes) -> Option<f64> {
    let (letter, is_binary) = match prefix.strip_suffix('i') {
        Some(letter) => (letter, true),
        None => (prefix, prefixes == Binary),
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

/// Whether a number goes on before or behind what was matched of it, as `234` in `1,234`.
fn is_cut(found: &Captures<'_>, output: &str) -> bool {
    let (Some(whole), Some(number)) = (found.get(0), found.get(1)) else { return false };
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    let (before, behind) = (&output[..number.start()], &output[number.end()..]);
    let mut letters = before.chars().rev();
    let begins = match letters.next() {
        Some(',' | '.' | '\'' | '_') => is_digit(letters.next()),
        last => is_digit(last) && number.as_str().starts_with(|c: char| c.is_ascii_digit()),
    };
    let mut letters = behind.chars();
    let ends = match letters.next() {
        Some(',' | '\'' | '_') => is_digit(letters.next()),
        // What a pattern names behind the number is left away on purpose.
        Some('.') => whole.end() == number.end() && is_digit(letters.next()),
        first => is_digit(first),
    };
    let is_number = number.as_str().ends_with(|c: char| c.is_ascii_digit());
    begins || (is_number && ends)
}

impl Place {
    /// `None` where the place is not there, an error where it has no number.
    fn read(&self, output: &str) -> Option<Result<Reading, String>> {
        static UNIT: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"^ ?([A-Za-zµμ]+(?:/[A-Za-z]+)?)").expect("a pattern"));
        match self {
            Self::Pattern(pattern, factor, prefixes) => {
                let found = pattern.captures_iter(output).last()?;
                let number = found.get(1)?;
                let text = number.as_str();
                let prefix = found.get(2).map(|group| group.as_str());
                if is_cut(&found, output) {
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
                };
                Some(finite(text).map(|number| Reading { value: number * power * factor, unit }))
            }
            Self::Json(path) => {
                // What a shell or a wrapper says in lines before the document is no part of it.
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
                Some(number.map(|value| Reading { value, unit: None }))
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
mod tests {
    use super::*;

    /// As a shell parts them, where quotes do not lie in each other.
    fn words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (at, part) in text.split('\'').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }

    #[test]
    fn figures_of_known_programs_are_read() {
        let of = |command: &str, output: &str| value(&known_figure(&words(command))?, output);
        let iperf3 = "[  5]   0.00-1.00   sec  3.12 GBytes  26.8 Gbits/sec    0             sender\n\
                      [  5]   0.00-1.00   sec  3.11 GBytes  26.7 Gbits/sec                  receiver\n";
        assert_eq!(of("/usr/bin/iperf3 -c 192.0.2.1", iperf3), Some(26.7e9));
        let json = r#"{"end":{"sum_received":{"bits_per_second":2.5e9}}}"#;
        assert_eq!(of("iperf3 -J -c 192.0.2.1", json), Some(2.5e9));
        let udp = r#"{"end":{"sum":{"bits_per_second":1e6}}}"#;
        assert_eq!(of("iperf3 -u -J -c 192.0.2.1", udp), Some(1e6));
        let netperf = "Socket  Socket  Message  Elapsed\n bytes\n\n131072  16384  16384    10.00    9412.37   \n";
        assert_eq!(of("netperf -H 192.0.2.1", netperf), Some(9412.37));
        assert_eq!(of("wrk -c 9 http://x", "Requests/sec:  12345.67\n"), Some(12_345.67));
        assert_eq!(of("ab -n 9 http://x/", "Requests per second:    99.5 [#/sec]"), Some(99.5));
        assert_eq!(of("sockperf pp", "sockperf: Summary: Latency is 7.25 usec"), Some(7.25));
        assert_eq!(of("tcp_rr -c", "throughput=1234.5\n"), Some(1234.5));
        assert!(known_figure(&words("somebody -x")).is_none());
        assert_eq!(of("wrk", "no such line"), None);
    }

    fn value(figure: &Figure, output: &str) -> Option<f64> {
        figure.read(output).ok().map(|reading| reading.value)
    }

    #[test]
    fn what_is_no_number_is_told_and_none_is_cut_out_of_another() {
        let read = |pattern: &str, output: &str| {
            let reading = Figure::parse(pattern, true).unwrap().read(output);
            reading.map(|reading| reading.value)
        };
        let good = [
            (r"rate=(\S+)", "rate=-1.5", -1.5),
            (r"rate=(\S+)", "rate=1e3", 1000.0),
            (r"rate=(\S+)", "\x1b[1;32mrate=\x1b[0m\x1b[38;5;9m12.5\x1b[m\x1b[K", 12.5),
            (r"(\d+)\.\d+ s", "12.9 s", 12.0),
            (r"at (\d+)", "at 12, 13", 12.0),
            (r"at (\d+)", "at 12.", 12.0),
            (r"([\d.]+)ms", "a1.5ms", 1.5),
            (r"([\d.]+) ?([kKMG]?i?)B", "2.5 kB", 2500.0),
            (r"([\d.]+) ?([kKMG]?i?)B", "2 MiB", 2_097_152.0),
            (r"([\d.]+)([mun]?)s", "900us", 900e-6),
        ];
        for (pattern, output, value) in good {
            assert_eq!(read(pattern, output), Ok(value), "{pattern} {output}");
        }
        let bad = [
            (r"rate=(\S+)", "rate=NaN", r#"its figure is "NaN", which is no number"#),
            (r"rate=(\S+)", "rate=1e999", r#"its figure is "1e999", which is no number"#),
            (r"rate=(\S+)", "rate=inf", "no number"),
            (r"rate=(\S+)", "rate=1,234.5", r#"its figure is "1,234.5", which is no number"#),
            (r"rate=(\d+)", "rate=1,234.5", r#"takes "1" alone, out of "rate=1,234.5""#),
            (r"rate=(\d+)", "rate=12.5", r#"takes "12" alone, out of "rate=12.5""#),
            (r"(\d+) req/s", "1,234 req/s", r#"takes "234" alone, out of "1,234""#),
            (r"rate.*(\d+)", "rate: 123\n", r#"takes "3" alone, out of "123""#),
            (r"rate=(\d)", "rate=123\n", r#"takes "1" alone"#),
            (r"([\d.]+) (.)B", "2 xB", r#"the prefix of its figure is "x""#),
            (r"rate=(\S+)", "nothing", "its output has no figure (--figure)"),
        ];
        for (pattern, output, why) in bad {
            let said = read(pattern, output).unwrap_err();
            assert!(said.contains(why), "{pattern} {output}: {said}");
        }
        let path = Figure::parse("json:rate", true).unwrap();
        for (document, why) in [
            (r#"{"rate": "1,234"}"#, r#"its figure is "1,234", which is no number"#),
            (r#"{"rate": null}"#, r#"its figure is "null""#),
            (r#"{"rate": 1e999}"#, "its output has no figure"),
            (r#"{"rat": 1}"#, "its output has no figure"),
        ] {
            let said = path.read(document).unwrap_err();
            assert!(said.contains(why), "{document}: {said}");
        }
    }

    #[test]
    fn a_unit_with_another_prefix_is_another_one() {
        let of = |pattern: &str, output: &str| {
            Figure::parse(pattern, true).unwrap().read(output).unwrap()
        };
        let plain = |output: &str| of(r"rate=([\d.]+)", output);
        for (one, other, differs) in [
            ("rate=1 Kbits/sec", "rate=1 Mbits/sec", true),
            ("rate=1 bits/sec", "rate=1 Mbits/sec", true),
            ("rate=1 Mbits/sec", "rate=1 bits/sec", true),
            ("rate=900us", "rate=1.2ms", true),
            ("rate=1s", "rate=900ms", true),
            ("rate=1KiB/s", "rate=1MiB/s", true),
            ("rate=1 MB/s", "rate=2 MB/s", false),
            ("rate=1 ok", "rate=2 warning", false),
            ("rate=1", "rate=2 ms", false),
        ] {
            let differ = plain(one).has_other_prefix(&plain(other));
            assert_eq!(differ, differs, "{one}, {other}");
        }
        // Where a group takes the prefix nothing is left to differ.
        let with = |output: &str| of(r"rate=([\d.]+)([KM]?)B", output);
        assert!(!with("rate=1KB").has_other_prefix(&with("rate=1MB")));
    }

    /// What the programs of Debian 12 said over the loopback interface.
    #[test]
    fn outputs_as_programs_wrote_them_are_read_in_base_units() {
        const MIB_PER_S: f64 = 8.0 * 1024.0 * 1024.0;
        macro_rules! said {
            ($command:literal, $file:literal) => {
                ($command, $file, include_str!(concat!("outputs/", $file, ".txt")))
            };
        }
        let outputs = [
            (said!("iperf3 -c 127.0.0.1", "iperf3"), 3.48e9),
            (said!("iperf3 -c 127.0.0.1 -P 2", "iperf3-streams"), 3.14e9),
            (said!("iperf3 -c 127.0.0.1 -f M", "iperf3-bytes"), 463.0 * MIB_PER_S),
            (said!("iperf3 -c 127.0.0.1 -R -J", "iperf3-reverse-json"), 3_523_077_739.449_205),
            (said!("iperf3 -c 127.0.0.1 -u", "iperf3-udp"), 50.0e6),
            (said!("iperf3 -c 127.0.0.1 -u -J", "iperf3-udp-json"), 50_055_838.756_019_6),
            (said!("iperf3 -c 127.0.0.1 --bidir", "iperf3-both"), 2.67e9),
            (said!("iperf3 -c 127.0.0.1 --bidir -J", "iperf3-both-json"), 1_969_467_560.342_999_5),
            (said!("iperf -c 127.0.0.1", "iperf"), 4.42e9),
            (said!("iperf -c 127.0.0.1 -P 2", "iperf-streams"), 4.53e9),
            (said!("iperf -c 127.0.0.1 -f M", "iperf-bytes"), 1080.0 * MIB_PER_S),
            (said!("iperf -c 127.0.0.1 -u", "iperf-udp"), 52.4e6),
            (said!("wrk -d 1 http://127.0.0.1/", "wrk"), 979.64),
            (said!("ab -n 200 http://127.0.0.1/", "ab"), 558.42),
            (said!("sockperf ping-pong --tcp", "sockperf-ping-pong"), 35.923),
            (said!("sockperf under-load --tcp", "sockperf-under-load"), 25.334),
            (said!("sockperf throughput --tcp", "sockperf-throughput"), 1543.144 * 1_048_576.0),
        ];
        for ((command, file, output), expected) in outputs {
            let figure = known_figure(&words(command)).unwrap();
            assert_eq!(value(&figure, output), Some(expected), "{file}");
            let is_time = figure.key.ends_with("_us");
            assert_eq!(figure.higher_is_better, !is_time, "{file}");
        }
    }

    #[test]
    fn a_known_program_is_known_whatever_starts_it() {
        let json = "warning: no affinity\n{\"end\":{\"sum_received\":{\"bits_per_second\":7}}}\n";
        for command in [
            "taskset -c 1 iperf3 -J -c 192.0.2.1",
            "sh -c 'echo $$ >/sys/fs/cgroup/x/cgroup.procs; exec iperf3 -J -c 192.0.2.1'",
            "env A=b nsenter --net=/run/netns/a /usr/bin/iperf3 --json -c 192.0.2.1",
            "bash -c '(exec \"/usr/bin/iperf3\" -J) | cat'",
        ] {
            let figure = known_figure(&words(command)).unwrap_or_else(|| panic!("{command}"));
            assert_eq!((figure.key.as_str(), value(&figure, json)), (keys::THROUGHPUT, Some(7.0)));
        }
        // A name inside another word is none.
        for command in ["sh -c 'cat lab ab.txt'", "sh -c 'my-iperf3x'", "grep wrkx"] {
            assert!(known_figure(&words(command)).is_none(), "{command}");
        }
        let folder = std::env::temp_dir().join(format!("ms-figure-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("bench");
        std::fs::write(&path, "#!/bin/sh\nexec wrk -d1 \"$1\"\n").unwrap();
        let figure = known_figure(&[path.display().to_string(), "http://x".into()]).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(figure.key, "requests_per_s");
    }

    #[test]
    fn a_figure_is_named_by_a_pattern_a_path_or_a_program() {
        let figure = Figure::parse(r"rate=(\d+)", true).unwrap();
        assert_eq!(value(&figure, "rate=1 rate=22"), Some(22.0));
        let path = Figure::parse("json:a.1.b", false).unwrap();
        assert_eq!(value(&path, r#"{"a":[0,{"b":7}]}"#), Some(7.0));
        assert_eq!(value(&path, r#"{"a":[0,{"b":"7.5"}]}"#), Some(7.5));
        assert_eq!(value(&path, "{}"), None);
        let first = Figure::parse("json:0.rate", false).unwrap();
        assert_eq!(value(&first, "[note] x\n[{\"rate\":3}]"), Some(3.0));
        let named = Figure::parse("sockperf", true).unwrap();
        assert!(!named.higher_is_better, "what is known of it goes before what is not said");
        assert_eq!(value(&named, "avg-latency=3.5 (std-dev=1)"), Some(3.5));
        for bad in ["rate=(", "rate"] {
            let error = Figure::parse(bad, true).unwrap_err().to_string();
            assert!(error.starts_with("--figure") && error.lines().count() == 1, "{error}");
        }
    }
}
