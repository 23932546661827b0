//! The programs whose figure is known, and the command in which one of them is.

use std::ffi::OsStr;
use std::fs;

use millstream_foreign::to_parse;
use regex::Regex;

use super::{Figure, Place, Prefixes};
use millstream_record::keys;

/// A known program, and the places of its figure.
pub(super) struct Known {
    names: &'static [&'static str],
    /// Words one of which is in the command, too; any command where there are none.
    only_with: &'static [&'static str],
    key: &'static str,
    higher_is_better: bool,
    /// Paths of a JSON document, tried before the patterns.
    json: &'static [&'static str],
    /// Patterns with what their number, `#`, is multiplied by, tried in turn.
    patterns: &'static [(&'static str, f64, Prefixes)],
    /// Patterns whose groups count its requests, and those of them that failed: its rate has both.
    requests: &'static [&'static str],
    failed: &'static [&'static str],
}

/// A number as `#` of a known pattern takes it: with its sign and its exponent.
const NUMBER: &str = r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)";

/// The counts of the statuses of HTTP in a JSON document, and of those that say that a request
/// failed.
const JSON_CODES: &str = r#""(?:-1|[1-5]\d\d)":\s*(\d+)"#;
const JSON_FAILED_CODES: &str = r#""(?:-1|[145]\d\d)":\s*(\d+)"#;

use Prefixes::{Binary, Decimal};

/// The fields that most of the known programs have.
const REQUESTS: Known = Known {
    names: &[],
    only_with: &[],
    key: "requests_per_s",
    higher_is_better: true,
    json: &[],
    patterns: &[],
    requests: &[],
    failed: &[],
};

const KNOWN: &[Known] = &[
    Known {
        names: &["iperf3"],
        key: keys::THROUGHPUT,
        // The receiver's sum goes before the sender's; `end.sum` is of UDP before iperf
        // 3.10.
        json: &["end.sum_received.bits_per_second", "end.sum.bits_per_second"],
        // With several streams the sum of all; the prefix may be missing or be bytes (-f).
        patterns: &[
            // Each event is a line (--json-stream).
            (r#"(?m)^\{"event":"end".*"sum_received":\{[^}]*"bits_per_second":#"#, 1.0, Decimal),
            // With both directions at once (--bidir) the one from the client counts, as in JSON.
            (r"(?m)^\[SUM\]\[TX-C\].*\s# ([KMGT]?)bits/sec.*receiver", 1.0, Decimal),
            (r"(?m)^\[SUM\]\[TX-C\].*\s# ([KMGT]?)Bytes/sec.*receiver", 8.0, Binary),
            (r"(?m)^\[[^\]]*\]\[TX-C\].*\s# ([KMGT]?)bits/sec.*receiver", 1.0, Decimal),
            (r"(?m)^\[[^\]]*\]\[TX-C\].*\s# ([KMGT]?)Bytes/sec.*receiver", 8.0, Binary),
            (r"(?m)^\[SUM\].*\s# ([KMGT]?)bits/sec.*receiver", 1.0, Decimal),
            (r"(?m)^\[SUM\].*\s# ([KMGT]?)Bytes/sec.*receiver", 8.0, Binary),
            (r"# ([KMGT]?)bits/sec.*receiver", 1.0, Decimal),
            (r"# ([KMGT]?)Bytes/sec.*receiver", 8.0, Binary),
        ],
        ..REQUESTS
    },
    Known {
        names: &["iperf"],
        key: keys::THROUGHPUT,
        patterns: &[
            // With UDP the client tells what it sent, and then what the server had of it.
            (r"(?m)^\[.*Server Report:\n.*?\s# ([KMGT]?)bits/sec", 1.0, Decimal),
            (r"(?m)^\[SUM\].*\s# ([KMGT]?)bits/sec", 1.0, Decimal),
            (r"(?m)^\[SUM\].*\s# ([KMGT]?)Bytes/sec", 8.0, Binary),
            (r"# ([KMGT]?)bits/sec", 1.0, Decimal),
            (r"# ([KMGT]?)Bytes/sec", 8.0, Binary),
        ],
        ..REQUESTS
    },
    Known { names: &["netperf"], key: "figure", ..REQUESTS },
    Known {
        names: &["tcp_stream", "udp_stream"],
        key: keys::THROUGHPUT,
        patterns: &[
            // Its unit is a line of its own (--throughput-opt); K, M and G of Bytes are powers of
            // 1024, of bits and B as they say. Without that line it is in Mbit/s.
            (r"(?m)^throughput=#\nthroughput_units=([KMG]?i?)bits?/s", 1.0, Decimal),
            (r"(?m)^throughput=#\nthroughput_units=([KMG]?i?)B/s", 8.0, Decimal),
            (r"(?m)^throughput=#\nthroughput_units=([KMG])Bytes/s", 8.0, Binary),
            (r"(?m)^throughput=#\nthroughput_units=10\^3bits/s", 1e3, Decimal),
            (r"(?m)^throughput=#\nthroughput_units=10\^6bits/s", 1e6, Decimal),
            (r"(?m)^throughput=#\nthroughput_units=10\^9bits/s", 1e9, Decimal),
            (r"(?m)^throughput=#", 1e6, Decimal),
            // An end that only writes has no more than what the other one read.
            (r"(?m)^remote_throughput=#", 1.0, Decimal),
        ],
        ..REQUESTS
    },
    Known {
        names: &["tcp_rr", "tcp_crr", "udp_rr"],
        key: keys::TRANSACTIONS,
        patterns: &[(r"(?m)^throughput=#", 1.0, Decimal)],
        ..REQUESTS
    },
    Known {
        names: &["wrk", "wrk2"],
        patterns: &[(r"Requests/sec:[ \t]*#", 1.0, Decimal)],
        requests: &[r"(?m)^ +(\d+) requests in "],
        failed: &[r"Non-2xx or 3xx responses: (\d+)"],
        ..REQUESTS
    },
    Known {
        names: &["hey", "oha"],
        json: &["summary.requestsPerSec"],
        patterns: &[(r"Requests/sec:[ \t]*#", 1.0, Decimal)],
        requests: &[r"(?m)^ +\[\d+\]\s+(\d+) responses", JSON_CODES],
        failed: &[
            r"(?m)^ +\[[145]\d\d\]\s+(\d+) responses",
            JSON_FAILED_CODES,
            // Errors of requests that had no answer. "aborted due to deadline" is of those that
            // were under way when the time was over (-z).
            r"(?m)^ +\[(\d+)\]\s+(?:[^\s\da]|a[^b])",
            r#""(?:[^"a]|a[^b"])[^"]* [^"]*":\s*(\d+)"#,
        ],
        ..REQUESTS
    },
    Known {
        names: &["fortio"],
        json: &["ActualQPS"],
        patterns: &[(r"(?m)^All done .*[ ,]# qps", 1.0, Decimal)],
        requests: &[r"(?m)^Code +-?\d+ : (\d+)", JSON_CODES],
        // -1 is of requests that had no answer.
        failed: &[r"(?m)^Code +(?:-1|[145]\d\d) : (\d+)", JSON_FAILED_CODES],
        ..REQUESTS
    },
    Known {
        names: &["redis-benchmark"],
        // Of several tests the last; --csv has the rate in the second column.
        patterns: &[
            (r"# requests per second", 1.0, Decimal),
            (r##"(?m)^"[^"]+","#""##, 1.0, Decimal),
        ],
        ..REQUESTS
    },
    Known {
        names: &["memtier_benchmark"],
        json: &["ALL STATS.Totals.Ops/sec"],
        patterns: &[(r"(?m)^Totals[ \t]+#", 1.0, Decimal)],
        ..REQUESTS
    },
    Known {
        names: &["pgbench"],
        key: keys::TRANSACTIONS,
        patterns: &[(r"(?m)^tps = #", 1.0, Decimal)],
        ..REQUESTS
    },
    Known {
        names: &["ab"],
        patterns: &[(r"Requests per second:[ \t]*#", 1.0, Decimal)],
        requests: &[r"Complete requests: +(\d+)"],
        // An answer of another length than the first is none that failed.
        failed: &[
            r"\(Connect: (\d+), Receive: (\d+), Length: \d+, Exceptions: (\d+)\)",
            r"Non-2xx responses: +(\d+)",
        ],
        ..REQUESTS
    },
    Known {
        names: &["sockperf"],
        only_with: &["throughput", "tp"],
        key: keys::THROUGHPUT,
        // Its Mbps are 2^20 bits, its Gbps (--giga-size) a thousand of them. Some versions write
        // Gbps for Mbps where there are nine digits.
        patterns: &[
            (r"BandWidth is .*\(# Mbps\)", 1_048_576.0, Decimal),
            (r"BandWidth is .*\((\d+\.\d{3}) Gbps\)", 1_048_576e3, Decimal),
        ],
        ..REQUESTS
    },
    Known {
        names: &["sockperf"],
        key: "latency_us",
        higher_is_better: false,
        // With --full-rtt the whole way there and back.
        patterns: &[(r"(?:(?:Latency|Round trip) is|avg-(?:latency|rtt)=)[ \t]*#", 1.0, Decimal)],
        ..REQUESTS
    },
];

/// Bytes of a script that are looked through for a known program.
const SCRIPT_LIMIT: u64 = 64 << 10;

/// The figure of the known program that `command` runs: by itself, behind another one (`taskset -c
/// 1 iperf3`), in the words of a shell (`sh -c 'exec iperf3'`), or in a script that is one of its
/// words.
pub fn known_figure(command: &[impl AsRef<OsStr>]) -> Option<Figure> {
    let in_words = named_in(&millstream_foreign::command(command));
    let in_scripts =
        || command.iter().filter_map(|word| script(word.as_ref())).find_map(|text| named_in(&text));
    in_words.or_else(in_scripts).map(Known::figure)
}

/// The first known program that is a word of `text`, as a shell parts words, with the words beside
/// it.
fn named_in(text: &str) -> Option<&'static Known> {
    let parts = |letter: char| letter.is_whitespace() || "\"'`$(){};|&<>".contains(letter);
    let words: Vec<&str> = text.split(parts).collect();
    words.iter().find_map(|word| Known::of(word.rsplit('/').next()?, &words))
}

/// The text of a file that begins as a script does.
fn script(path: &OsStr) -> Option<String> {
    use std::io::Read;
    // A pipe or a device is read by whom it is for.
    let is_file = fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let mut text = Vec::new();
    let file = is_file.then(|| fs::File::open(path).ok()).flatten()?;
    file.take(SCRIPT_LIMIT).read_to_end(&mut text).ok()?;
    text.starts_with(b"#!").then(|| to_parse(&text).into_owned())
}

impl Known {
    pub(super) fn of(name: &str, beside: &[&str]) -> Option<&'static Self> {
        let is_meant = |known: &&Self| {
            known.names.contains(&name)
                && (known.only_with.is_empty()
                    || known.only_with.iter().any(|word| beside.contains(word)))
        };
        KNOWN.iter().find(is_meant)
    }

    pub(super) fn figure(&self) -> Figure {
        let pattern = |(pattern, factor, prefixes): &(&str, f64, Prefixes)| {
            let pattern = Regex::new(&pattern.replace('#', NUMBER)).expect("a known pattern");
            Place::Pattern(pattern, *factor, *prefixes)
        };
        let counts = |patterns: &[&str]| -> Vec<Regex> {
            patterns.iter().map(|pattern| Regex::new(pattern).expect("a known pattern")).collect()
        };
        let json = self.json.iter().map(|path| Place::Json((*path).to_owned()));
        let own = self.names.contains(&"netperf").then_some(Place::Netperf);
        Figure {
            key: self.key.to_owned(),
            higher_is_better: self.higher_is_better,
            places: json.chain(self.patterns.iter().map(pattern)).chain(own).collect(),
            is_known: true,
            requests: counts(self.requests),
            failed: counts(self.failed),
        }
    }
}
