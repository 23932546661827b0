//! Memory and queues over time, of runs that are long.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::StageRecord;

/// One value for each step between samples; `None` where it was not asked for, or not to be had.
pub type Series = Vec<Option<u64>>;

/// Queues of all TCP sockets of a host or an engine, summed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSeries {
    /// Bytes that were received and that nobody has read.
    pub received_bytes: Series,
    /// Bytes that were written and are not acknowledged.
    pub sent_bytes: Series,
    /// Bytes of memory that both hold.
    pub held_bytes: Series,
}

impl QueueSeries {
    /// Appends what was seen at the end of a step: received, sent, held.
    pub fn push(&mut self, seen: Option<[u64; 3]>) {
        self.received_bytes.push(seen.map(|seen| seen[0]));
        self.sent_bytes.push(seen.map(|seen| seen[1]));
        self.held_bytes.push(seen.map(|seen| seen[2]));
    }

    /// Returns true if any of the queues ever held something.
    pub fn is_of_something(&self) -> bool {
        let Self { received_bytes, sent_bytes, held_bytes } = self;
        [received_bytes, sent_bytes, held_bytes].into_iter().flatten().flatten().any(|&n| n > 0)
    }
}

/// The receive queue that held most memory of all TCP sockets of a host's kernel, over time. One
/// step may have another socket's than the step before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullestQueue {
    /// The socket, by its ports.
    pub socket: Series,
    /// Bytes in it.
    pub bytes: Series,
    /// Memory that they hold.
    pub held_bytes: Series,
    /// The limit of that memory.
    pub limit_bytes: Series,
    /// Bytes that the program has read of it since the connection began.
    pub read_bytes: Series,
}

impl FullestQueue {
    /// Sets what was seen in a step: the fields in their order. A step before that has nothing has
    /// none.
    pub fn set(&mut self, step: usize, seen: [u64; 5]) {
        let Self { socket, bytes, held_bytes, limit_bytes, read_bytes } = self;
        let all = [socket, bytes, held_bytes, limit_bytes, read_bytes];
        for (series, value) in all.into_iter().zip(seen) {
            series.resize(step, None);
            series.push(Some(value));
        }
    }
}

/// An engine of Millstream over time, as it published itself (docs/live.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSeries {
    /// The worker whose engine it is.
    pub role: String,
    /// Gauges that changed, with their labels: the value at the end of each step.
    pub gauges: BTreeMap<String, Series>,
    /// Gauges that stayed as they were.
    #[serde(default)]
    pub constant: BTreeMap<String, u64>,
    /// Its sockets' queues.
    pub queues: QueueSeries,
    /// Additions to its stages and histograms in the first and in the last quarter of the time it
    /// was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarters: Option<[EngineStretch; 2]>,
}

/// Additions to an engine's stages and histograms in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStretch {
    /// Length of the stretch by the engine's clock, in nanoseconds.
    pub ns: u64,
    /// Its timed turns, by stage; the longest visit is that of the whole time until then.
    pub stages: BTreeMap<String, StageRecord>,
    /// Histograms by powers of two: least value of a bucket, and how many values were added to it.
    pub histograms: BTreeMap<String, Vec<(u64, u64)>>,
}
