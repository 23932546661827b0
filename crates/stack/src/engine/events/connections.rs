//! Events of single connections, for who asks by the control socket (docs/trace.md).
//!
//! Nothing in a connection knows of it: the sink compares what the connection says of itself
//! ([`TcpInfo`]) before and after each segment, timer and transmission. What changes and changes
//! back within one of them is not seen. Few connections are watched at once, each for as long as
//! somebody asks, and of each the last events are kept. While none is watched a batch costs one
//! comparison.

use std::collections::VecDeque;
use std::time::Duration;

use millstream_packet::Instant;
use millstream_tcp::TcpInfo;

use super::Observed;
use crate::socket::SocketId;

/// Connections that are watched at once.
const WATCHED: usize = 4;
/// Events of each that are kept.
const KEPT: usize = 1024;
/// Time for which a connection is watched after a request.
const LEASE: Duration = Duration::from_secs(2);
/// Round trips alone are told of no more often.
const PAUSE: Duration = Duration::from_millis(10);

/// One event.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Event {
    /// Counts those of the connection, from 1.
    pub number: u64,
    pub at: Instant,
    /// As qlog calls it, where it has a name for it.
    pub name: &'static str,
    pub what: What,
}

/// The content of an event.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum What {
    /// It was this, and is that.
    Change { from: &'static str, to: &'static str },
    /// So much more of this was counted.
    Counted { trigger: &'static str, count: u64 },
    /// The values that the connection reckons with.
    Metrics(Metrics),
}

/// Values of a connection: its windows, round trips and rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Metrics {
    pub cwnd_bytes: u64,
    pub ssthresh_bytes: Option<u64>,
    pub in_flight_bytes: u64,
    pub pacing_rate_bytes_per_s: u64,
    pub srtt_us: u64,
    pub min_rtt_us: u64,
    pub rttvar_us: u64,
    pub rto_us: u64,
    pub snd_wnd_bytes: u64,
    pub rcv_wnd_bytes: u64,
}

impl Metrics {
    fn of(info: &TcpInfo) -> Self {
        Self {
            cwnd_bytes: info.cwnd_bytes,
            ssthresh_bytes: info.ssthresh_bytes,
            in_flight_bytes: info.in_flight_bytes,
            pacing_rate_bytes_per_s: info.pacing_rate_bytes_per_s,
            srtt_us: info.srtt_us,
            min_rtt_us: info.min_rtt_us,
            rttvar_us: info.rttvar_us,
            rto_us: info.rto_us,
            snd_wnd_bytes: info.snd_wnd_bytes,
            rcv_wnd_bytes: info.rcv_wnd_bytes,
        }
    }

    /// Returns true if it differs in values that are reported at once.
    fn is_other(&self, before: &Self) -> bool {
        let is_closed = |one: &Self| [one.snd_wnd_bytes == 0, one.rcv_wnd_bytes == 0];
        let now = |one: &Self| (one.cwnd_bytes, one.ssthresh_bytes, one.min_rtt_us);
        now(self) != now(before) || is_closed(self) != is_closed(before)
    }
}

/// A counter that makes events: their name, their trigger, and the function that reads the counter.
type Counter = (&'static str, &'static str, fn(&TcpInfo) -> u64);

const COUNTERS: &[Counter] = &[
    ("recovery:packet_lost", "bytes", |info| info.lost_bytes),
    ("recovery:marked_for_retransmit", "bytes", |info| info.bytes_retransmitted),
    ("recovery:loss_timer_updated", "rto_expired", |info| info.timeouts.into()),
    ("recovery:loss_timer_updated", "tlp_expired", |info| info.loss_probes.into()),
    ("tcp:recovery_undone", "spurious", |info| info.spurious_recoveries.into()),
    ("tcp:reordering", "segments", |info| info.reorderings.into()),
    ("tcp:ecn", "ce_received", |info| info.ce_segments_in.into()),
    ("tcp:ecn", "ece_reduction", |info| info.ecn_reductions.into()),
    ("tcp:probe", "window", |info| info.window_probes.into()),
    ("tcp:probe", "keepalive", |info| info.keepalives.into()),
    ("tcp:challenge_ack", "sent", |info| info.challenge_acks.into()),
    ("tcp:path_mtu", "black_hole", |info| info.black_holes.into()),
    ("transport:packet_dropped", "old_timestamp", |info| info.paws_rejected.into()),
    ("transport:packet_dropped", "no_timestamp", |info| info.without_timestamp.into()),
    ("transport:packet_dropped", "no_ack", |info| info.without_ack.into()),
    ("transport:packet_dropped", "unacceptable_ack", |info| info.unacceptable_acks.into()),
    ("transport:packet_dropped", "outside_window", |info| info.out_of_window.into()),
    ("transport:packet_dropped", "no_memory", |info| info.memory_drops.into()),
];

/// See the module text.
#[derive(Default)]
pub(in crate::engine) struct ConnectionEvents {
    /// Slots, modulo 64, of those that are watched.
    slots: u64,
    watched: Vec<Watched>,
}

/// A connection that is watched.
struct Watched {
    id: SocketId,
    until: Instant,
    before: TcpInfo,
    told: Metrics,
    told_at: Instant,
    events: VecDeque<Event>,
    /// Number of events so far.
    count: u64,
}

impl ConnectionEvents {
    /// Returns true if any connection is watched.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.slots != 0
    }

    /// Returns true if the connection in this slot may be watched.
    #[inline]
    pub fn watches(&self, slot: u32) -> bool {
        self.slots & (1 << (slot % u64::BITS)) != 0
    }

    /// Compares what a connection says with what it said before.
    pub fn look(&mut self, socket: Observed<'_>, now: Instant) {
        if let Some(watched) = self.watched.iter_mut().find(|watched| watched.id == socket.id) {
            let error = socket.conn.error().map(millstream_tcp::ConnError::name);
            watched.look(&socket.conn.info(), error, now);
        }
    }

    /// Watches a connection from now on, or goes on; false where too many others are watched.
    pub fn watch(&mut self, socket: Observed<'_>, now: Instant) -> bool {
        self.end_leases(now);
        let until = now + LEASE;
        if let Some(watched) = self.watched.iter_mut().find(|watched| watched.id == socket.id) {
            watched.until = until;
            return true;
        }
        if self.watched.len() == WATCHED {
            return false;
        }
        let before = socket.conn.info();
        let mut watched = Watched {
            id: socket.id,
            until,
            told: Metrics::of(&before),
            told_at: now,
            before,
            events: VecDeque::with_capacity(KEPT),
            count: 0,
        };
        // Where it stands is the first event.
        watched.add(now, "recovery:metrics_updated", What::Metrics(watched.told));
        self.watched.push(watched);
        self.find_slots();
        true
    }

    /// Forgets those that nobody has asked about of late.
    pub fn end_leases(&mut self, now: Instant) {
        self.watched.retain(|watched| watched.until > now);
        self.find_slots();
    }

    fn find_slots(&mut self) {
        let bits = self.watched.iter().map(|watched| 1 << (watched.id.slot() % u64::BITS));
        self.slots = bits.fold(0, |all, bit: u64| all | bit);
    }

    /// Its events from this number on, and the number of the next one; `None` where it is not
    /// watched.
    pub fn of(&self, id: SocketId, from: u64) -> Option<(impl Iterator<Item = &Event>, u64)> {
        let watched = self.watched.iter().find(|watched| watched.id == id)?;
        let events = watched.events.iter().skip_while(move |event| event.number < from);
        Some((events, watched.count + 1))
    }
}

impl Watched {
    fn look(&mut self, info: &TcpInfo, error: Option<&'static str>, now: Instant) {
        let before = std::mem::replace(&mut self.before, *info);
        let (from, to) = (before.state.name(), info.state.name());
        if from != to {
            self.add(now, "connectivity:connection_state_updated", What::Change { from, to });
            if let Some(error) = error.filter(|_| info.state == millstream_tcp::State::Closed) {
                let what = What::Counted { trigger: error, count: 1 };
                self.add(now, "connectivity:connection_closed", what);
            }
        }
        for (name, trigger, count) in COUNTERS {
            // The count of lost segments may be lower now; those lost meanwhile are told as more.
            let count = count(info).saturating_sub(count(&before));
            if count != 0 {
                self.add(now, name, What::Counted { trigger, count });
            }
        }
        let (from, to) = (before.ca_state, info.ca_state);
        if from != to {
            self.add(now, "recovery:congestion_state_updated", What::Change { from, to });
        }
        let metrics = Metrics::of(info);
        let is_due = metrics != self.told && now.saturating_duration_since(self.told_at) >= PAUSE;
        if is_due || metrics.is_other(&self.told) {
            (self.told, self.told_at) = (metrics, now);
            self.add(now, "recovery:metrics_updated", What::Metrics(metrics));
        }
    }

    fn add(&mut self, at: Instant, name: &'static str, what: What) {
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.count += 1;
        self.events.push_back(Event { number: self.count, at, name, what });
    }
}
