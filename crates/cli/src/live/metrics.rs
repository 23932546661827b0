//! `millstream metrics`: everything that engines publish, as Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::Args;
use millstream::packet::Counter;
use millstream::published;
use millstream_foreign::label;
use millstream_live::{Entry, Kind, Segment, Snapshot};
use millstream_record::error::Error;

use super::{engines, http};
use crate::output::{out, say};

/// For `metrics --help`.
pub const HELP: &str = "\
The text format of Prometheus, version 0.0.4. Each name begins with `millstream_`, that of a counter ends with `_total`;
times are in seconds and sizes in bytes. Labels are `engine`, `pid`, `number` and the engine's own. A value that the engine
has not measured is left out: stages where none is timed, rings whose size a link does not know, the sums of histograms. With --listen every request
for /metrics looks anew; there is no password, so only this machine is served unless --any-address is said. Clients are served
side by side, and have to call this host by an address, as localhost, or by a name that --host says: pages of other names,
which a browser was led here by, are told nothing.";

/// Arguments of `metrics`.
#[derive(Debug, Args)]
pub struct Metrics {
    /// Serve them by HTTP at this address, until interrupted
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Let --listen be an address that other machines reach
    #[arg(long, requires = "listen")]
    any_address: bool,
    /// A name that clients of --listen may call this host by; may be repeated
    #[arg(long = "host", value_name = "NAME", requires = "listen")]
    hosts: Vec<String>,
}

/// Writes or serves them.
pub fn metrics(arguments: &Metrics) -> Result<ExitCode, Error> {
    let Some(address) = arguments.listen else {
        out(&text()?)?;
        return Ok(ExitCode::SUCCESS);
    };
    if !address.ip().is_loopback() && !arguments.any_address {
        return Err(Error::Refused(format!(
            "others may reach {}, and there is no password; say --any-address if they may",
            address.ip()
        )));
    }
    let listener =
        TcpListener::bind(address).map_err(Error::host(format!("listen on {address}")))?;
    let address = listener.local_addr().map_err(Error::host("ask for the address"))?;
    say(format_args!("serving http://{address}/metrics"));
    let page = || text().map_err(|error| error.to_string());
    http::serve(&listener, &arguments.hosts, &page)
}

/// The values that the command itself adds for each engine.
const SEGMENT: [(Kind, Counter); 3] = [
    (
        Kind::Gauge,
        Counter::new("start_time_ns", "ns", "When the engine began to publish, since 1970."),
    ),
    (
        Kind::Gauge,
        Counter::new(
            "published_time_ns",
            "ns",
            "When it published these values, since 1970. An engine without work publishes nothing new.",
        ),
    ),
    (
        Kind::Counter,
        Counter::new("publications", "count", "Times that the engine has published its values."),
    ),
];

/// Returns the help of a value; one of a newer engine has none.
fn help(name: &str) -> Option<&'static str> {
    static ALL: LazyLock<BTreeMap<String, &str>> = LazyLock::new(|| {
        let own = SEGMENT.iter().map(|(_, one)| (one.name.to_owned(), one.help));
        own.chain(published().into_iter().map(|(name, _, one)| (name, one.help))).collect()
    });
    ALL.get(name).copied()
}

/// Returns the values that all engines publish now.
fn text() -> Result<String, Error> {
    let mut families = Families::default();
    for mut segment in engines::all(None)? {
        // One that ends meanwhile is left out.
        if let Ok(now) = segment.read() {
            families.add(&segment, &now);
        }
    }
    Ok(families.text())
}

/// All values of one name.
struct Family {
    kind: &'static str,
    help: Option<&'static str>,
    /// Its samples, a line each.
    lines: String,
}

/// Samples by the name that they are of: Prometheus wants them together.
#[derive(Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    fn add(&mut self, segment: &Segment, now: &Snapshot) {
        let header = segment.header();
        let own = [
            ("engine".to_owned(), header.name.clone()),
            ("pid".to_owned(), header.pid.to_string()),
            ("number".to_owned(), header.number.to_string()),
        ];
        for ((kind, declared), value) in
            SEGMENT.iter().zip([header.began_ns, now.time_ns, now.sequence])
        {
            let Counter { name, unit, .. } = *declared;
            let named = Named { name, kind: *kind, unit, labels: &[] };
            self.put(&own, &named, &[value]);
        }
        for (entry, values) in now.iter().filter(|(entry, values)| is_measured(entry, values, now))
        {
            let Entry { name, kind, unit, labels, .. } = entry;
            self.put(&own, &Named { name, kind: *kind, unit, labels }, values);
        }
    }

    fn put(&mut self, own: &[(String, String)], named: &Named<'_>, values: &[u64]) {
        let (name, scale) = named.as_prometheus();
        let labels: Vec<(String, String)> = own.iter().chain(named.labels).cloned().collect();
        let family = self.0.entry(name.clone()).or_insert_with(|| Family {
            kind: named.type_of(),
            help: help(named.name),
            lines: String::new(),
        });
        let lines = &mut family.lines;
        if named.kind != Kind::Histogram {
            return line(lines, &name, &labels, None, &scale.number(values[0]));
        }
        let mut total = 0u64;
        for (at, count) in values.iter().enumerate() {
            total = total.saturating_add(*count);
            // The last one has everything above, too.
            let most = match at + 1 == values.len() {
                true => "+Inf".to_owned(),
                false => scale.number(((1u128 << at) - 1) as u64),
            };
            line(lines, &format!("{name}_bucket"), &labels, Some(&most), &total.to_string());
        }
        line(lines, &format!("{name}_count"), &labels, None, &total.to_string());
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, Family { kind, help, lines }) in &self.0 {
            // A string takes everything.
            if let Some(help) = help {
                let _ = writeln!(text, "# HELP {name} {help}");
            }
            let _ = write!(text, "# TYPE {name} {kind}\n{lines}");
        }
        text
    }
}

/// Returns true for a value that the engine has measured. A value that it has not measured is left
/// out, not shown as 0.
fn is_measured(entry: &Entry, values: &[u64], now: &Snapshot) -> bool {
    match entry.name.as_str() {
        "stage_ns" | "stage_most_ns" | "stage_visits" | "stage_units" | "stage_timed_turns" => {
            now.total("stage_timed_turns") != Some(0)
        }
        "link_rx_ring" | "link_tx_ring" => values[0] != 0,
        _ => true,
    }
}

/// A value of an engine: what it is.
struct Named<'a> {
    name: &'a str,
    kind: Kind,
    unit: &'a str,
    labels: &'a [(String, String)],
}

impl Named<'_> {
    /// Returns the name that Prometheus has for it, and the way its values are written. Times are
    /// in seconds there (base units).
    fn as_prometheus(&self) -> (String, Scale) {
        let (end_of_name, digits) = match self.unit {
            "ns" => ("_ns", 9),
            "us" => ("_us", 6),
            _ => ("", 0),
        };
        let scale = Scale { digits };
        let short = self.name.strip_suffix(end_of_name).unwrap_or(self.name);
        let unit = if scale.digits == 0 { "" } else { "_seconds" };
        let end = if self.kind == Kind::Counter { "_total" } else { "" };
        (format!("millstream_{}{unit}{end}", plain(short)), scale)
    }

    fn type_of(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            _ => "gauge",
        }
    }
}

/// Whole numbers of which 10 to the power of `digits` make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    digits: u32,
}

impl Scale {
    /// Returns a number as a decimal, without zeros at its end.
    fn number(self, value: u64) -> String {
        let one = 10u64.pow(self.digits);
        let (whole, part) = (value / one, value % one);
        if part == 0 {
            return whole.to_string();
        }
        let width = self.digits as usize;
        format!("{whole}.{part:0width$}").trim_end_matches('0').to_owned()
    }
}

fn line(
    lines: &mut String,
    name: &str,
    labels: &[(String, String)],
    most: Option<&str>,
    value: &str,
) {
    let pairs = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let pairs = pairs.chain(most.map(|most| ("le", most)));
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{}=\"{}\"", plain(key), label(value))).collect();
    let _ = writeln!(lines, "{name}{{{}}} {value}", pairs.join(","));
}

/// Returns a name that Prometheus takes, whatever the segment says.
fn plain(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_names_are_plain() {
        let mut lines = String::new();
        let labels = [("na-me".to_owned(), "a\"b\\c\nd".to_owned())];
        line(&mut lines, "x", &labels, Some("7"), "5");
        assert_eq!(lines, "x{na_me=\"a\\\"b\\\\c\\\\u000ad\",le=\"7\"} 5\n");
    }

    #[test]
    fn times_are_in_seconds_and_what_has_a_unit_says_so() {
        let of = |name, kind, unit| Named { name, kind, unit, labels: &[] }.as_prometheus();
        let (name, scale) = of("stage_ns", Kind::Counter, "ns");
        assert_eq!(name, "millstream_stage_seconds_total");
        let written = [0, 1, 1_500_000_000, 2_000_000_000, u64::MAX].map(|ns| scale.number(ns));
        assert_eq!(written, ["0", "0.000000001", "1.5", "2", "18446744073.709551615"]);
        let (name, scale) = of("sleep_us", Kind::Histogram, "us");
        assert_eq!((&name[..], &scale.number(127)[..]), ("millstream_sleep_seconds", "0.000127"));
        let (name, scale) = of("rx_bytes", Kind::Counter, "bytes");
        assert_eq!((&name[..], &scale.number(10)[..]), ("millstream_rx_bytes_total", "10"));
    }

    #[test]
    fn a_family_has_its_meaning_and_its_type_before_its_samples() {
        let mut families = Families::default();
        let own = [("engine".to_owned(), "proxy".to_owned())];
        let sleeps = Named { name: "sleep_us", kind: Kind::Histogram, unit: "us", labels: &[] };
        families.put(&own, &sleeps, &[1, 0, 2]);
        let expected = "# HELP millstream_sleep_seconds Length of a sleep.\n\
                        # TYPE millstream_sleep_seconds histogram\n\
                        millstream_sleep_seconds_bucket{engine=\"proxy\",le=\"0\"} 1\n\
                        millstream_sleep_seconds_bucket{engine=\"proxy\",le=\"0.000001\"} 1\n\
                        millstream_sleep_seconds_bucket{engine=\"proxy\",le=\"+Inf\"} 3\n\
                        millstream_sleep_seconds_count{engine=\"proxy\"} 3\n";
        assert_eq!(families.text(), expected);
    }
}
