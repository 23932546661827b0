//! Soft interrupts by kind and CPU, from `/proc/softirqs`.

use std::collections::BTreeMap;

use super::file::Ends;
use super::{Absent, Probe, Turn, rise32};
use crate::record::Probes;

type Counts = BTreeMap<String, Vec<u64>>;

pub(super) struct Softirqs(Ends<Counts>);

impl Softirqs {
    pub(super) fn open() -> Result<Self, Absent> {
        Ends::open("/proc/softirqs", parse).map(Self)
    }
}

impl Probe for Softirqs {
    fn name(&self) -> &'static str {
        "softirqs"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        self.0.sample(turn)
    }

    fn finish(self: Box<Self>, into: &mut Probes) {
        let Ends { first, last, .. } = self.0;
        let risen = last.into_iter().map(|(kind, counts)| {
            let before = first.get(&kind);
            let before = |at: usize| before.and_then(|counts| counts.get(at)).copied().unwrap_or(0);
            let counts =
                counts.iter().enumerate().map(|(at, &now)| rise32(before(at), now)).collect();
            (kind, counts)
        });
        into.softirqs = Some(risen.collect());
    }
}

/// The file has a column for every possible CPU; all are kept, CPU n at place n.
pub(super) fn parse(text: &str) -> Result<Counts, String> {
    let mut lines = text.lines();
    let columns = lines.next().ok_or("empty")?.split_ascii_whitespace().count();
    let mut kinds = Counts::new();
    for line in lines {
        let Some((kind, rest)) = line.split_once(':') else { continue };
        let counts: Result<Vec<u64>, _> = rest.split_ascii_whitespace().map(str::parse).collect();
        let counts = counts.map_err(|_| format!("odd line {line:?}"))?;
        if counts.len() != columns {
            return Err(format!("{} counts for {columns} CPUs in {line:?}", counts.len()));
        }
        kinds.insert(kind.trim().to_owned(), counts);
    }
    if kinds.is_empty() { Err("no line of a kind".into()) } else { Ok(kinds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_a_count_per_cpu() {
        let kinds = parse(include_str!("samples/softirqs.txt")).unwrap();
        assert_eq!(kinds["NET_RX"], [3024, 5109]);
        assert_eq!(kinds.len(), 10);
    }

    #[test]
    fn odd_input_is_refused() {
        assert!(parse("").is_err());
        assert!(parse("CPU0 CPU1\n").is_err());
        assert!(parse("CPU0 CPU1\nNET_RX: 1\n").unwrap_err().contains("1 counts for 2 CPUs"));
        assert!(parse("CPU0\nNET_RX: x\n").is_err());
    }
}
