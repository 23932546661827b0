//! Congestion control behind one trait, made by a factory.
//!
//! A control of one's own is a type that is a [`Controller`], and a static [`Factory`] that makes
//! it: `Config::congestion` takes [`Factory::kind`]. Nothing else has to know of it.
//!
//! The connection keeps the [`Window`]; a controller moves it. Loss recovery itself (which bytes
//! are lost, how much may be sent while recovering) is the same for all and lives in `recovery`.

mod aggregation;
mod bbr;
mod cubic;
mod hystart;
mod newreno;
mod rate;

use core::any::Any;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use core::{fmt, hash};

use millstream_packet::Instant;

pub use aggregation::Aggregation;
pub use bbr::Bbr;
pub use cubic::Cubic;
pub use newreno::NewReno;
pub use rate::{RateSample, RateSampler, Sent};

/// The controls that are built in. A further one is a file with a [`Factory`], and a line here.
static BUILT_IN: [&Factory; 3] = [&newreno::FACTORY, &cubic::FACTORY, &bbr::FACTORY];

/// Which control a connection uses: the one that a [`Factory`] makes. Two are the same if their
/// factory is.
#[derive(Clone, Copy)]
pub struct CongestionKind(&'static Factory);

impl CongestionKind {
    /// RFC 5681 and 6582.
    pub const NEW_RENO: CongestionKind = newreno::FACTORY.kind();
    /// RFC 9438.
    pub const CUBIC: CongestionKind = cubic::FACTORY.kind();
    /// Version 3, draft-ietf-ccwg-bbr. Paces always.
    pub const BBR: CongestionKind = bbr::FACTORY.kind();

    /// Returns the name as Linux spells it.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The one of those built in that has this name.
    pub fn named(name: &str) -> Option<CongestionKind> {
        BUILT_IN.iter().find(|factory| factory.name == name).map(|factory| factory.kind())
    }
}

impl fmt::Debug for CongestionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl PartialEq for CongestionKind {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl Eq for CongestionKind {}

impl hash::Hash for CongestionKind {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        core::ptr::hash(self.0, state);
    }
}

/// Makes the controllers of connections: of a control that is built in, or of one from elsewhere.
///
/// ```
/// use millstream_tcp::congestion::{Factory, NewReno};
/// use millstream_tcp::Config;
///
/// static MINE: Factory = Factory { name: "mine", make: |_seed| Box::new(NewReno::default()) };
/// let config = Config::default().congestion(MINE.kind());
/// assert_eq!(config.congestion.name(), "mine");
/// ```
pub struct Factory {
    /// The name in `TcpInfo::congestion`.
    pub name: &'static str,
    /// Makes a controller for one connection. The seed is for one that draws at random; it is
    /// another for each connection, and nobody outside can guess it.
    pub make: fn(seed: u64) -> Box<dyn Controller + Send + Sync>,
}

impl Factory {
    /// Returns what a configuration takes.
    pub const fn kind(&'static self) -> CongestionKind {
        CongestionKind(self)
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The variables that a controller may move, in bytes.
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
    /// Returns the most to send in one go: about a millisecond at the present rate and a fifth, in
    /// slow start at twice the rate, so that one burst does not fill a short queue on the path (as
    /// Linux sizes its super-segments).
    #[inline]
    pub(crate) fn burst(&self, srtt_ns: u64, mss: u64) -> u64 {
        let srtt_us = srtt_ns / 1000;
        if srtt_us < 2000 {
            return u64::MAX;
        }
        let per_ms = if self.cwnd_bytes < self.ssthresh_bytes { 2000 } else { 1200 };
        (self.cwnd_bytes.saturating_mul(per_ms) / srtt_us).max(2 * mss)
    }

    /// Below the threshold the window grows with every byte acknowledged.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd_bytes < self.ssthresh_bytes
    }

    /// Two segments: the least threshold (RFC 5681 equation 4).
    pub fn minimum(&self) -> u64 {
        2 * u64::from(self.mss_bytes)
    }
}

/// The news of an acknowledgement for a controller.
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
    /// Offset of the first byte not acknowledged.
    pub una: u64,
    /// Offset of the next byte to be sent.
    pub nxt: u64,
}

/// Data leaves.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Time of leaving.
    pub now: Instant,
    /// Bytes of sequence space.
    pub bytes: u64,
    /// Bytes in flight, these included.
    pub in_flight_bytes: u64,
    /// Smoothed round trip; zero before the first sample.
    pub srtt: Duration,
}

/// Data was judged lost.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// Time of the judgement.
    pub now: Instant,
    /// Bytes.
    pub bytes: u64,
    /// When the last of it was sent.
    pub sent_at: Option<Instant>,
    /// The peer acknowledges selectively.
    pub sack: bool,
}

/// The news of an acknowledgement for a controller that governs the window by itself.
#[derive(Clone, Copy, Debug)]
pub struct DeliverySample {
    /// Time of arrival.
    pub now: Instant,
    /// Bytes newly delivered, cumulatively or selectively.
    pub bytes: u64,
    /// Bytes judged lost with this acknowledgement.
    pub lost_bytes: u64,
    /// When the last transmission among those delivered was sent.
    pub newest_at: Option<Instant>,
    /// When the first of what is still outstanding was sent.
    pub oldest_at: Option<Instant>,
    /// Round trip of the last transmission delivered that was sent once.
    pub rtt: Option<Duration>,
    /// Least round trip of the connection.
    pub min_rtt: Duration,
    /// Bytes in flight after this acknowledgement.
    pub in_flight_bytes: u64,
    /// The window held the sender back.
    pub cwnd_limited: bool,
    /// The connection recovers from loss.
    pub recovering: bool,
    /// The peer acknowledges selectively.
    pub sack: bool,
}

/// State of a controller for whoever watches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold; none before the first congestion.
    pub ssthresh_bytes: Option<u64>,
    /// Rate at which the controller has data sent; none: it sets none.
    pub rate_bytes_per_s: Option<u64>,
    /// Phase, by the controller's own name for it.
    pub phase: &'static str,
}

/// A congestion controller. Called outside of recovery (and after a time-out) for growth, and once
/// for each congestion event.
pub trait Controller: fmt::Debug + Any {
    /// New data was acknowledged while the window may grow.
    fn on_ack(&mut self, window: &mut Window, ack: &AckSample);
    /// Loss (or ECN) was found by acknowledgements: set the threshold. The window is led there by
    /// recovery.
    fn on_congestion(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64);
    /// The retransmission timer expired for the first time for this data: set the threshold.
    fn on_timeout(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64);
    /// The last congestion event turned out to be none; the window and threshold were put back.
    fn on_undo(&mut self);
    /// The sender was idle for longer than a time-out and its window restarted (RFC 5681 4.1).
    fn on_idle(&mut self, now: Instant);
    /// Returns whether it may have a rate of its own; it answers the same for as long as it lives.
    fn may_pace(&self) -> bool {
        true
    }
    /// Rate at which to send, if this controller paces.
    fn pacing_bytes_per_s(&self) -> Option<u64> {
        None
    }
    /// This controller sets the window at every acknowledgement, in recovery too, by the calls
    /// below; it answers the same for as long as it lives. Growth by [`on_ack`](Self::on_ack),
    /// proportional rate reduction and the restart after idling are left out.
    fn governs(&self) -> bool {
        false
    }
    /// Data leaves.
    fn on_transmit(&mut self, _window: &mut Window, _sent: &Transmit) {}
    /// Everything written was sent, and the window has room.
    fn on_app_limited(&mut self, _in_flight_bytes: u64) {}
    /// Data was judged lost; comes before the `on_delivery` of the same acknowledgement.
    fn on_lost(&mut self, _window: &mut Window, _loss: &LossSample) {}
    /// An acknowledgement was taken.
    fn on_delivery(&mut self, _window: &mut Window, _delivery: &DeliverySample) {}
    /// All that was outstanding when recovery began is acknowledged.
    fn on_recovered(&mut self, _window: &mut Window) {}
    /// Returns the name of the phase that it is in.
    fn phase(&self, window: &Window) -> &'static str {
        if window.in_slow_start() { "slow-start" } else { "avoidance" }
    }
    /// Returns its state for whoever watches it.
    fn metrics(&self, window: &Window) -> Metrics {
        let Window { cwnd_bytes, ssthresh_bytes, .. } = *window;
        Metrics {
            cwnd_bytes,
            ssthresh_bytes: (ssthresh_bytes != u64::MAX).then_some(ssthresh_bytes),
            rate_bytes_per_s: self.pacing_bytes_per_s(),
            phase: self.phase(window),
        }
    }
    /// The peer echoes a mark (RFC 3168): at most once a window.
    fn on_mark(&mut self, window: &mut Window, now: Instant, in_flight_bytes: u64) {
        self.on_congestion(window, now, in_flight_bytes);
    }
}

/// Numbers at random from a seed (xorshift); equal seeds give equal numbers.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Begins the numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns the next number, below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Returns `percent` of `n`.
pub fn percent(n: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(n) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

/// The control of a connection, and what is asked of it often. Packed as
/// [`Pacer`](crate::pacer::Pacer) is.
#[repr(Rust, packed)]
pub(crate) struct Congestion {
    control: Box<dyn Controller + Send + Sync>,
    governs: bool,
    may_pace: bool,
}

impl Congestion {
    /// `seed` is for a controller that draws at random.
    pub(crate) fn new(kind: CongestionKind, seed: u64) -> Self {
        let control = (kind.0.make)(seed);
        Congestion { governs: control.governs(), may_pace: control.may_pace(), control }
    }

    /// As [`Controller::governs`].
    #[inline(always)]
    pub(crate) fn governs(&self) -> bool {
        self.governs
    }

    /// As [`Controller::may_pace`].
    #[inline(always)]
    pub(crate) fn may_pace(&self) -> bool {
        self.may_pace
    }

    /// As [`Controller::pacing_bytes_per_s`].
    #[inline]
    pub(crate) fn pacing_bytes_per_s(&self) -> Option<u64> {
        if self.may_pace { self.control.pacing_bytes_per_s() } else { None }
    }

    /// The controller itself, of the type that it is.
    #[cfg(test)]
    pub(crate) fn downcast<C: Controller>(&self) -> Option<&C> {
        let control: &dyn Any = &*self.control;
        control.downcast_ref()
    }

    /// The same, to change.
    #[cfg(test)]
    pub(crate) fn downcast_mut<C: Controller>(&mut self) -> Option<&mut C> {
        let control: &mut dyn Any = &mut *self.control;
        control.downcast_mut()
    }
}

impl fmt::Debug for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

impl Deref for Congestion {
    type Target = dyn Controller + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.control
    }
}

impl DerefMut for Congestion {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.control
    }
}

/// Controls nothing and takes no memory: of a connection that answers a SYN and is not kept.
#[derive(Debug)]
struct Uncontrolled;

static UNCONTROLLED: Factory = Factory { name: "none", make: |_seed| Box::new(Uncontrolled) };

impl CongestionKind {
    pub(crate) const UNCONTROLLED: CongestionKind = UNCONTROLLED.kind();
}

impl Controller for Uncontrolled {
    fn on_ack(&mut self, _window: &mut Window, _ack: &AckSample) {}
    fn on_congestion(&mut self, _window: &mut Window, _now: Instant, _in_flight_bytes: u64) {}
    fn on_timeout(&mut self, _window: &mut Window, _now: Instant, _in_flight_bytes: u64) {}
    fn on_undo(&mut self) {}
    fn on_idle(&mut self, _now: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_control_is_found_by_its_name_and_is_itself() {
        for factory in BUILT_IN {
            let kind = CongestionKind::named(factory.name).expect("registered");
            assert_eq!((kind, kind.name()), (factory.kind(), factory.name));
            let control = Congestion::new(kind, 1);
            assert_eq!(
                (control.governs(), control.may_pace()),
                (kind.name().starts_with("bbr"), control.governs())
            );
        }
        assert_eq!(CongestionKind::named("vegas"), None);
        assert_ne!(CongestionKind::BBR, crate::tests::bbr1());
    }
}
