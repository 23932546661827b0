//! Times that sampled packets spent in each stage: of all packets, and of single flows that
//! somebody asks for by the control socket (docs/trace.md).
//!
//! A flow is a connection or a UDP socket. Its packets are counted when their traces end. A packet
//! that is not sampled costs nothing; a sampled one costs a comparison for each flow that is asked
//! for. Few flows are asked for at once, each until [`LEASE`] after the last question.

use std::time::Duration;

use millstream_packet::Instant;

use super::record::{PacketTrace, TracePoint};
use crate::socket::SocketId;
use crate::stages::Histogram;

/// Flows that are asked for at once.
pub(in crate::engine) const FLOWS: usize = 8;
/// Time for which packets are sampled, and those of a flow counted, after a request.
pub(in crate::engine) const LEASE: Duration = Duration::from_secs(2);

/// Nanoseconds in the stage that ends at each point.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct Residence([Histogram; TracePoint::COUNT]);

impl Residence {
    /// Counts the stages of a trace that has ended.
    pub(super) fn add(&mut self, trace: &PacketTrace) {
        let mut before = None;
        for (point, time) in trace.reached() {
            if let Some(before) = before.replace(time) {
                let ns = time.saturating_duration_since(before).as_nanos();
                self.0[point as usize].add(usize::try_from(ns).unwrap_or(usize::MAX));
            }
        }
    }

    /// Returns the times of each stage, with the point at which the stage ends.
    pub fn stages(&self) -> impl Iterator<Item = (TracePoint, &Histogram)> {
        let all = TracePoint::ALL.iter().copied().zip(&self.0);
        all.filter(|(point, _)| !point.stage().is_empty())
    }
}

/// A flow that somebody has asked for.
pub(in crate::engine) struct Flow {
    id: SocketId,
    until: Instant,
    /// Since when its packets are counted.
    pub since: Instant,
    /// Number of its traces that have ended since then.
    pub traces: u64,
    pub residence: Residence,
}

/// Flows that somebody has asked for.
#[derive(Default)]
pub(in crate::engine) struct Flows(Vec<Flow>);

impl Flows {
    /// A trace has ended.
    pub(super) fn add(&mut self, trace: &PacketTrace) {
        if let Some(flow) = self.0.iter_mut().find(|flow| Some(flow.id) == trace.socket) {
            flow.traces += 1;
            flow.residence.add(trace);
        }
    }

    /// Somebody asks for this flow, which is counted from now on, or goes on; false where as many
    /// others are counted as may be.
    pub fn ask(&mut self, id: SocketId, now: Instant) -> bool {
        self.end_leases(now);
        let until = now + LEASE;
        if let Some(flow) = self.0.iter_mut().find(|flow| flow.id == id) {
            flow.until = until;
            return true;
        }
        if self.0.len() == FLOWS {
            return false;
        }
        self.0.push(Flow { id, until, since: now, traces: 0, residence: Residence::default() });
        true
    }

    /// Returns the counts of a flow that is asked for.
    pub fn get(&self, id: SocketId) -> Option<&Flow> {
        self.0.iter().find(|flow| flow.id == id)
    }

    /// Forgets those that nobody has asked for of late.
    pub fn end_leases(&mut self, now: Instant) {
        self.0.retain(|flow| flow.until > now);
    }
}
