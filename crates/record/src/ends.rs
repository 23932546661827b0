//! The last words of each end of a run: its engine, its connections, and bytes that were wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Counters and times of an engine of Millstream, from its start to the end of the traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineRecord {
    /// Which worker: `near`, `far`.
    pub role: String,
    /// Its counters.
    pub counters: BTreeMap<String, u64>,
    /// Turns whose stages were timed.
    pub timed_turns: u64,
    /// Time and visits of each stage in them.
    pub stages: BTreeMap<String, StageRecord>,
    /// Histograms by powers of two: least value of a bucket, and how many values lay in it.
    pub batches: BTreeMap<String, Vec<(u64, u64)>>,
    /// Its links, with their counters and notes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkRecord>,
}

/// A link of an engine at the end of the traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// The interface, or what stands for one.
    pub name: String,
    /// `up`, `down`, `failed`.
    pub state: String,
    /// The largest IP packet that it carried then.
    pub mtu_bytes: u64,
    /// Its counters from its start on, those that are not zero.
    pub counters: BTreeMap<String, u64>,
    /// Packets that it dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Features that were asked for and not granted, and changes of its interface since it was
    /// opened.
    pub notes: Vec<String>,
}

/// One stage in all timed turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRecord {
    /// Nanoseconds.
    pub ns: u64,
    /// Longest visit.
    pub max_ns: u64,
    /// Visits.
    pub visits: u64,
    /// Packets or calls dealt with in them.
    pub units: u64,
}

impl EngineRecord {
    /// Returns the share of the timed turns that each stage took.
    pub fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        let total: u64 = self.stages.values().map(|stage| stage.ns).sum();
        let share = move |stage: &StageRecord| stage.ns as f64 / total.max(1) as f64;
        self.stages.iter().map(move |(name, stage)| (name.as_str(), share(stage)))
    }

    /// Returns remarks about its links: causes of dropped packets, links that are not up, and their
    /// notes. They have no numbers, since these differ from run to run.
    pub fn remarks(&self) -> Vec<String> {
        let of = |link: &LinkRecord| {
            let LinkRecord { name, state, drops, notes, .. } = link;
            let said = |what: String| format!("{}: Millstream's link {name} {what}", self.role);
            let down = (state != "up").then(|| said(format!("was {state} at the end")));
            let dropped = drops.keys().map(|cause| said(format!("dropped packets ({cause})")));
            down.into_iter().chain(dropped).chain(notes.clone()).collect::<Vec<_>>()
        };
        self.links.iter().flat_map(of).collect()
    }
}

/// `TCP_INFO` of one connection at the end of a run (or the stack's own equivalent).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpInfoRecord {
    /// Which worker: `client`, `server`.
    pub role: String,
    /// Number of the connection in its worker.
    pub connection: u32,
    /// `kernel` or `millstream`: whose numbers they are.
    #[serde(default)]
    pub stack: String,
    /// Congestion control, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Names as in Linux's `tcp_info`, the unit at the end: `srtt_us`, `cwnd_bytes`, `retransmits`.
    #[serde(deserialize_with = "numbers")]
    pub fields: BTreeMap<String, f64>,
}

/// Bytes of `soak` that were not those sent, which follow each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WrongBytes {
    /// Its number, from 1; another one of each direction.
    pub connection: u64,
    /// `near to far`, or `far to near`.
    pub direction: String,
    /// Bytes of the direction before the first wrong one.
    pub offset: u64,
    /// When it was read: seconds, as those of the window.
    pub at_s: f64,
    /// The bytes from there on that were to come, a few.
    pub expected: Vec<u8>,
    /// As many that came.
    pub seen: Vec<u8>,
}

impl std::fmt::Display for WrongBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { connection, direction, offset, at_s, expected, seen } = self;
        let hex = |bytes: &[u8]| {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
        };
        write!(
            f,
            "connection {connection} {direction}, offset {offset}, at {at_s:.3} s: expected {}, seen {}",
            hex(expected),
            hex(seen)
        )
    }
}

/// Reads numbers by name. JSON knows no infinity: such a number was written as `null`, and is left
/// out.
pub(super) fn numbers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, f64>, D::Error> {
    let all = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}
