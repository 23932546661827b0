//! The times that sampled packets of one flow spend in each stage, asked for by the control socket
//! (docs/trace.md).

use std::thread::sleep;
use std::time::{Duration, Instant};

use millstream_live::{Record, Segment};
use millstream_record::error::Error;
use serde_json::{Value, json};

use super::ask::{ask_all, shown};
use super::columns::duration;
use super::histogram::{Histogram, set_count};
use super::traced::Sampling;

/// Interval at which the engine is asked: it counts for two seconds after each question.
const INTERVAL: Duration = Duration::from_millis(500);

/// The packets of a flow that the engine has counted.
pub struct Counted {
    /// The engine's line about all of it.
    flow: Record,
    stages: Vec<Stage>,
}

/// The number of packets that were so long in one stage, by powers of two.
struct Stage {
    way: String,
    name: String,
    counts: Vec<u64>,
}

impl Counted {
    /// Has the engine count for as long as is wanted.
    pub fn ask(segment: &Segment, id: &str, sampling: &Sampling) -> Result<Self, Error> {
        let until = sampling.until()?;
        let question = format!("stages {id} {}", sampling.sample);
        let mut lines = ask_all(segment, &question)?;
        while let left @ 1.. = until.saturating_duration_since(Instant::now()).as_nanos() {
            sleep(INTERVAL.min(Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))));
            lines = ask_all(segment, &question)?;
        }
        Ok(Self::read(&lines))
    }

    /// Reads the lines of an answer.
    fn read(lines: &[Record]) -> Self {
        let mut all = Self { flow: Record::default(), stages: Vec::new() };
        for line in lines {
            match line.kind.as_str() {
                "flow" => all.flow = line.clone(),
                "stage" => all.stage(line).unwrap_or(()),
                _ => {}
            }
        }
        all
    }

    fn stage(&mut self, line: &Record) -> Option<()> {
        let (way, name) = (line.get("way")?, line.get("stage")?);
        let (least, count) = (line.number("least_ns")?, line.number("count")?);
        let is_same = |last: &&mut Stage| (last.way.as_str(), last.name.as_str()) == (way, name);
        // Lines of one stage follow each other.
        let stage = match self.stages.last_mut().filter(is_same) {
            Some(last) => last,
            None => {
                let (way, name) = (way.to_owned(), name.to_owned());
                self.stages.push(Stage { way, name, counts: Vec::new() });
                self.stages.last_mut()?
            }
        };
        set_count(&mut stage.counts, least, count);
        Some(())
    }

    fn histograms(&self) -> impl Iterator<Item = Histogram<'_>> {
        self.stages.iter().map(|stage| Histogram {
            name: "packet_ns",
            labels: vec![("way", &stage.way), ("stage", &stage.name)],
            unit: "ns",
            values: &stage.counts,
        })
    }

    /// Returns the number behind a key, if the engine says one.
    fn number(&self, key: &str) -> Option<u64> {
        self.flow.number(key)
    }

    pub fn json(&self, engine: &str) -> Value {
        let histograms: Vec<Value> = self.histograms().map(|one| one.json()).collect();
        json!({
            "engine": engine,
            "flow": self.flow.get("id"),
            "sample": self.number("sample"),
            "since_us": self.number("since_us"),
            "traces": self.number("traces"),
            "histograms": histograms,
        })
    }

    pub fn text(&self) -> String {
        let since = self.number("since_us").map(|us| duration(us.saturating_mul(1000)));
        let mut text = format!(
            "{}: {} sampled packets in {}, one in {} of the engine's\n",
            shown(&self.flow, "id"),
            shown(&self.flow, "traces"),
            since.as_deref().unwrap_or("-"),
            shown(&self.flow, "sample"),
        );
        text.extend(self.histograms().map(|one| one.text()));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_shown_as_those_of_all_packets() {
        let lines = [
            "flow id=tcp0.0 sample=10 since_us=5000000 traces=4",
            "stage way=in stage=ingress least_ns=64 count=1",
            "stage way=in stage=ingress least_ns=256 count=3",
            "stage way=out stage=send_queue least_ns=0 count=4",
            "stage way=out least_ns=1",
        ];
        let counted = Counted::read(&lines.map(Record::parse));
        let text = counted.text();
        assert!(text.starts_with("tcp0.0: 4 sampled packets in 5.0 s, one in 10 "), "{text}");
        assert!(text.contains("\npacket_ns way=in stage=ingress\nvalue"), "{text}");
        let json = counted.json("proxy-1-0");
        let histograms = json["histograms"].as_array().unwrap();
        assert_eq!(histograms.len(), 2, "{json}");
        assert_eq!(
            histograms[0]["buckets"],
            json!([{ "least": 64, "count": 1 }, { "least": 256, "count": 3 }])
        );
        assert_eq!(histograms[1]["labels"], json!({ "way": "out", "stage": "send_queue" }));
    }
}
