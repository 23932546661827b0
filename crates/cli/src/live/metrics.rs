//! `millstream metrics`: everything that engines publish, as Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use clap::Args;
use millstream::live::{Entry, Kind, Segment, Snapshot};
use millstream_lab::error::Error;

use super::{engines, http};
use crate::output::{out, say};

/// For `metrics --help`.
pub const HELP: &str = "\
The text format of Prometheus, version 0.0.4. Each name begins with `millstream_`, that of a counter ends with `_total`;
labels are `engine`, `pid`, `number` and the engine's own. With --listen every request for /metrics looks anew; there is no
password, so only this machine is served unless --any-address is said.";

/// Arguments of `metrics`.
#[derive(Debug, Args)]
pub struct Metrics {
    /// Serve them by HTTP at this address, until interrupted
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Let --listen be an address that other machines reach
    #[arg(long, requires = "listen")]
    any_address: bool,
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
    http::serve(&listener, || text().map_err(|error| error.to_string()))
}

/// What all engines publish now.
fn text() -> Result<String, Error> {
    let mut families = Families::default();
    for mut segment in engines::all()? {
        // One that ends meanwhile is left out.
        if let Ok(now) = segment.read() {
            families.add(&segment, &now);
        }
    }
    Ok(families.text())
}

/// Samples by the name that they are of: Prometheus wants them together.
#[derive(Default)]
struct Families(BTreeMap<String, (&'static str, String)>);

impl Families {
    fn add(&mut self, segment: &Segment, now: &Snapshot) {
        let header = segment.header();
        let own = [
            ("engine".to_owned(), header.name.clone()),
            ("pid".to_owned(), header.pid.to_string()),
            ("number".to_owned(), header.number.to_string()),
        ];
        for (entry, values) in now.iter() {
            self.entry(&own, entry, values);
        }
    }

    fn entry(&mut self, own: &[(String, String)], entry: &Entry, values: &[u64]) {
        let kind = match entry.kind {
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            _ => "gauge",
        };
        let end = if entry.kind == Kind::Counter { "_total" } else { "" };
        let name = format!("millstream_{}{end}", plain(&entry.name));
        let labels: Vec<(String, String)> = own.iter().chain(&entry.labels).cloned().collect();
        let (_, lines) = self.0.entry(name.clone()).or_insert((kind, String::new()));
        if entry.kind != Kind::Histogram {
            return line(lines, &name, &labels, None, values[0]);
        }
        let mut total = 0u64;
        for (at, count) in values.iter().enumerate() {
            total = total.saturating_add(*count);
            // The last one has everything above, too.
            let most = match at + 1 == values.len() {
                true => "+Inf".to_owned(),
                false => ((1u128 << at) - 1).to_string(),
            };
            line(lines, &format!("{name}_bucket"), &labels, Some(&most), total);
        }
        line(lines, &format!("{name}_count"), &labels, None, total);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, (kind, lines)) in &self.0 {
            // A string takes everything.
            let _ = write!(text, "# TYPE {name} {kind}\n{lines}");
        }
        text
    }
}

fn line(
    lines: &mut String,
    name: &str,
    labels: &[(String, String)],
    most: Option<&str>,
    value: u64,
) {
    let pairs = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let pairs = pairs.chain(most.map(|most| ("le", most)));
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{}=\"{}\"", plain(key), escaped(value))).collect();
    let _ = writeln!(lines, "{name}{{{}}} {value}", pairs.join(","));
}

/// A name that Prometheus takes, whatever the segment says.
fn plain(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect()
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_names_are_plain() {
        let mut lines = String::new();
        let labels = [("na-me".to_owned(), "a\"b\\c\nd".to_owned())];
        line(&mut lines, "x", &labels, Some("7"), 5);
        assert_eq!(lines, "x{na_me=\"a\\\"b\\\\c\\nd\",le=\"7\"} 5\n");
    }
}
