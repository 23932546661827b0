//! Congestion control behind one trait.
//!
//! The connection keeps the [`Window`]; a controller moves it. Loss recovery itself (which bytes are lost, how
//! much may be sent while recovering) is the same for all and lives in `recovery`.

mod cubic;
mod hystart;
mod newreno;

use core::time::Duration;
use millstream_packet::Instant;

pub use cubic::Cubic;
pub use newreno::NewReno;

/// Which controller a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CongestionKind {
    /// RFC 5681 and 6582.
    NewReno,
    /// RFC 9438.
    Cubic,
}

impl CongestionKind {
    /// Name as Linux spells it.
    pub fn name(self) -> &'static str {
        match self {
            CongestionKind::NewReno => "reno",
            CongestionKind::Cubic => "cubic",
        }
    }
}

/// What a controller may move. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold; `u64::MAX` until the first congestion.
    pub ssthresh_bytes: u64,
    /// Payload of a full segment.
    pub mss_bytes: u32,
}

impl Window {
    /// Below the threshold the window grows with every byte acknowledged.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd_bytes < self.ssthresh_bytes
    }

    /// Two segments: the least threshold (RFC 5681 equation 4).
    pub fn minimum(&self) -> u64 {
        2 * u64::from(self.mss_bytes)
    }
}

/// What an acknowledgement says to a controller.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// Time of arrival.
    pub now: Instant,
    /// Bytes newly delivered.
    pub acked_bytes: u64,
    /// Bytes in flight before this acknowledgement.
    pub in_flight_bytes: u64,
    /// The window, not the application or the peer, held the sender back (RFC 7661).
    pub cwnd_limited: bool,
    /// Round trip of this acknowledgement, if it gave one.
    pub rtt: Option<Duration>,
    /// Smoothed round trip.
    pub srtt: Duration,
    /// Least round trip of late.
    pub min_rtt: Duration,
    /// Offset of the first byte not acknowledged.
    pub una: u64,
    /// Offset of the next byte to be sent.
    pub nxt: u64,
}

/// A congestion controller. Called outside of recovery (and after a time-out) for growth, and once for each
/// congestion event.
pub trait Controller {
    /// New data was acknowledged while the window may grow.
    fn on_ack(&mut self, window: &mut Window, ack: &AckSample);
    /// Loss (or ECN) was found by acknowledgements: set the threshold. The window is led there by recovery.
    fn on_congestion(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64);
    /// The retransmission timer expired for the first time for this data: set the threshold.
    fn on_timeout(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64);
    /// The last congestion event turned out to be none; the window and threshold were put back.
    fn on_undo(&mut self);
    /// The sender was idle for longer than a time-out and its window restarted (RFC 5681 4.1).
    fn on_idle(&mut self, now: Instant);
    /// Rate at which to send, if this controller paces.
    fn pacing_bytes_per_s(&self) -> Option<u64> {
        None
    }
}

/// The controllers, dispatched without a table of pointers.
#[derive(Debug)]
pub(crate) enum Congestion {
    NewReno(NewReno),
    Cubic(Cubic),
}

impl Congestion {
    pub(crate) fn new(kind: CongestionKind) -> Self {
        match kind {
            CongestionKind::NewReno => Congestion::NewReno(NewReno::default()),
            CongestionKind::Cubic => Congestion::Cubic(Cubic::default()),
        }
    }

    fn controller(&mut self) -> &mut dyn Controller {
        match self {
            Congestion::NewReno(c) => c,
            Congestion::Cubic(c) => c,
        }
    }

    pub(crate) fn kind(&self) -> CongestionKind {
        match self {
            Congestion::NewReno(_) => CongestionKind::NewReno,
            Congestion::Cubic(_) => CongestionKind::Cubic,
        }
    }
}

impl Controller for Congestion {
    fn on_ack(&mut self, window: &mut Window, ack: &AckSample) {
        match self {
            Congestion::NewReno(c) => c.on_ack(window, ack),
            Congestion::Cubic(c) => c.on_ack(window, ack),
        }
    }

    fn on_congestion(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64) {
        self.controller().on_congestion(window, now, in_flight_bytes);
    }

    fn on_timeout(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64) {
        self.controller().on_timeout(window, now, in_flight_bytes);
    }

    fn on_undo(&mut self) {
        self.controller().on_undo();
    }

    fn on_idle(&mut self, now: Instant) {
        self.controller().on_idle(now);
    }

    #[inline]
    fn pacing_bytes_per_s(&self) -> Option<u64> {
        match self {
            Congestion::NewReno(c) => c.pacing_bytes_per_s(),
            Congestion::Cubic(c) => c.pacing_bytes_per_s(),
        }
    }
}
