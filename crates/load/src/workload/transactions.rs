//! Counters of the transactions at either end of a workload of request and response.

use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;

use super::{End, Outcome, Part, Progress, Tracker, monotonic_ns};

/// Longest latency that is told apart from longer ones.
const LATENCY_LIMIT_NS: u64 = 60_000_000_000;
/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// Returns an empty histogram of latencies in nanoseconds.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_LIMIT_NS, DIGITS).expect("bounds in order")
}

/// The transactions of one end, so far. Payload is counted as its end sees it.
pub(super) struct Transactions<'a> {
    progress: &'a Progress,
    sent_bytes: u64,
    received_bytes: u64,
    count: u64,
    /// Requests that were sent once more.
    repeated: u64,
    /// Latencies, at the asking end alone.
    latency: Option<Histogram<u64>>,
    tracker: Tracker,
}

impl<'a> Transactions<'a> {
    /// Returns the counters of an end, the bytes that it sends each time, and as much memory as it
    /// receives. The asking end takes latencies.
    pub(super) fn of(part: &Part<'_>, progress: &'a Progress) -> (Self, Vec<u8>, Vec<u8>) {
        let [request, response] =
            ["request_bytes", "response_bytes"].map(|name| part.task.number(name));
        let (latency, fill, sent, received) = match part.end {
            End::Near => (Some(latencies()), 0x5a, request, response),
            End::Far => (None, 0xa5, response, request),
        };
        let this = Self {
            progress,
            sent_bytes: sent as u64,
            received_bytes: received as u64,
            count: 0,
            repeated: 0,
            latency,
            tracker: Tracker::new(),
        };
        (this, vec![fill; sent], vec![0; received])
    }

    /// Returns the number of finished transactions.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of requests that were sent once more.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// A request was sent once more.
    pub(super) fn repeat(&mut self) {
        self.repeated += 1;
    }

    /// Asks for the thread's CPU. Must be called where the thread has just run.
    pub(super) fn look(&mut self) {
        self.tracker.look();
    }

    /// The asking end has the response to a request that it made at `begin`. When that was.
    pub(super) fn end(&mut self, begin: u64) -> u64 {
        let end = monotonic_ns();
        if let Some(latency) = &mut self.latency
            && self.progress.in_window(begin, end)
        {
            latency.saturating_record(end - begin);
        }
        self.look();
        self.add();
        end
    }

    /// One more is over.
    pub(super) fn add(&mut self) {
        self.count += 1;
        let sent = (self.count + self.repeated) * self.sent_bytes;
        self.progress.transactions.store(self.count, Ordering::Relaxed);
        self.progress.sent_bytes.store(sent, Ordering::Relaxed);
        self.progress.received_bytes.store(self.count * self.received_bytes, Ordering::Relaxed);
    }

    /// Latencies, and where the thread ran.
    pub(super) fn finish(self) -> Outcome {
        let whereabouts = self.tracker.finish();
        Outcome { latency_ns: self.latency, whereabouts, ..Outcome::default() }
    }
}
