//! Where a command's output has its figure.

use regex::Regex;

use crate::error::Error;
use crate::record::keys;

/// Where the figure of a command is in its output.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Key of the result, its unit at the end.
    pub key: String,
    /// Whether more of it is better.
    pub higher_is_better: bool,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// The last match: group 1 is a number, group 2, if there is one, its prefix (K, M, G).
    Pattern(Regex, f64),
    /// The first of these paths of a JSON document that is a number.
    Json(Vec<String>),
}

/// How the figure of a known program is read: name, key, whether more is better, pattern, factor.
const KNOWN: &[(&str, &str, bool, &str, f64)] = &[
    ("iperf3", keys::THROUGHPUT, true, r"([\d.]+) ([KMGT]?)bits/sec.*receiver", 1.0),
    ("iperf", keys::THROUGHPUT, true, r"([\d.]+) ([KMGT]?)bits/sec", 1.0),
    ("netperf", "figure", true, r"(?m)^(?:\s*[\d.]+){4,}\s+([\d.]+)\s*$", 1.0),
    ("tcp_stream", "throughput_bits_per_s", true, r"(?m)^throughput=([\d.]+)", 1e6),
    ("tcp_rr", keys::TRANSACTIONS, true, r"(?m)^throughput=([\d.]+)", 1.0),
    ("wrk", "requests_per_s", true, r"Requests/sec:\s*([\d.]+)", 1.0),
    ("ab", "requests_per_s", true, r"Requests per second:\s*([\d.]+)", 1.0),
    ("sockperf", "latency_us", false, r"(?:Latency is|avg-latency=)\s*([\d.]+)", 1.0),
];

/// Where iperf3 has its figure with `-J`: TCP, then UDP.
const IPERF3_JSON: [&str; 2] = ["end.sum_received.bits_per_second", "end.sum.bits_per_second"];

/// The figure of a known program, by its name and words.
pub fn known_figure(command: &[String]) -> Option<Figure> {
    let program = command.first()?.rsplit('/').next()?;
    if program == "iperf3" && command.iter().any(|word| word == "-J" || word == "--json") {
        return Some(Figure {
            key: keys::THROUGHPUT.to_owned(),
            higher_is_better: true,
            place: Place::Json(IPERF3_JSON.map(str::to_owned).to_vec()),
        });
    }
    let (_, key, higher_is_better, pattern, factor) =
        KNOWN.iter().find(|(name, ..)| *name == program)?;
    Some(Figure {
        key: (*key).to_owned(),
        higher_is_better: *higher_is_better,
        place: Place::Pattern(Regex::new(pattern).expect("a known pattern"), *factor),
    })
}

impl Figure {
    /// By what the user says: `json:a.b.0` or a regular expression whose first group is the number.
    pub fn parse(text: &str, higher_is_better: bool) -> Result<Self, Error> {
        let key = "figure".to_owned();
        let place = match text.strip_prefix("json:") {
            Some(path) => Place::Json(vec![path.to_owned()]),
            None => {
                let refuse = |why: String| Error::Refused(format!("--figure {text}: {why}"));
                let pattern = Regex::new(text).map_err(|error| {
                    let why = error.to_string();
                    refuse(why.lines().last().unwrap_or("no regular expression").to_owned())
                })?;
                if pattern.captures_len() < 2 {
                    return Err(refuse("it has no group around the number: (…)".to_owned()));
                }
                Place::Pattern(pattern, 1.0)
            }
        };
        Ok(Self { key, higher_is_better, place })
    }

    /// The figure in an output; `None` where there is none.
    pub fn read(&self, output: &str) -> Option<f64> {
        match &self.place {
            Place::Pattern(pattern, factor) => {
                let found = pattern.captures_iter(output).last()?;
                let prefix = match found.get(2).map_or("", |group| group.as_str()) {
                    "K" => 1e3,
                    "M" => 1e6,
                    "G" => 1e9,
                    "T" => 1e12,
                    _ => 1.0,
                };
                let number: f64 = found.get(1)?.as_str().parse().ok()?;
                Some(number * prefix * factor).filter(|value| value.is_finite())
            }
            Place::Json(paths) => {
                let document: serde_json::Value = serde_json::from_str(output).ok()?;
                paths.iter().find_map(|path| {
                    let mut at = &document;
                    for step in path.split('.') {
                        at = match step.parse::<usize>() {
                            Ok(number) if at.is_array() => at.get(number)?,
                            _ => at.get(step)?,
                        };
                    }
                    at.as_f64()
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn figures_of_known_programs_are_read() {
        let of = |command: &str, output: &str| known_figure(&words(command))?.read(output);
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

    #[test]
    fn a_figure_is_named_by_a_pattern_or_a_path() {
        let figure = Figure::parse(r"rate=(\d+)", true).unwrap();
        assert_eq!(figure.read("rate=1 rate=22"), Some(22.0));
        let path = Figure::parse("json:a.1.b", false).unwrap();
        assert_eq!(path.read(r#"{"a":[0,{"b":7}]}"#), Some(7.0));
        assert_eq!(path.read("{}"), None);
        for bad in ["rate=(", "rate"] {
            let error = Figure::parse(bad, true).unwrap_err().to_string();
            assert!(error.starts_with("--figure") && error.lines().count() == 1, "{error}");
        }
    }
}
