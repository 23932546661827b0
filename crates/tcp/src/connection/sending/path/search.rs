//! Packetisation layer path MTU discovery (RFC 4821, RFC 8899): a segment of data larger than those
//! known to arrive is sent now and then. Its arrival shows that the path carries the size; its
//! loss, alone, is no congestion.
//!
//! ```text
//!     known to arrive                     carried by the link and the peer
//!   config.mss ------------- probe ------------- high ------------- most
//!        ^ arrived: moves up        ^ lost three times: high moves below it
//! ```
//!
//! Sizes count like the MSS option: payload and TCP options.

use core::time::Duration;

use millstream_packet::Instant;

use super::PathMtu;
use crate::tuning::{MTU_PROBES, MTU_RAISE_S, MTU_SEARCH_STEP_BYTES};

/// Packet sizes that links and tunnels have: likely ends of the search (RFC 4821 7.3, RFC 1191
/// section 7).
const COMMON_MTUS: [u16; 16] = [
    1280, 1400, 1420, 1450, 1460, 1472, 1480, 1492, 1500, 2002, 4352, 8166, 8900, 9000, 17_914,
    32_000,
];

/// Factor by which a probe lost by a time-out costs more than one lost alone (RFC 4821 7.6.3).
const TIMED_OUT_FACTOR: u32 = 5;

/// The state of a search; it exists while segments are smaller than they might be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Nothing larger is tried until the search begins anew.
    pub(super) high: u16,
    /// Size that link and peer take.
    pub(super) most: u16,
    /// Size of the probes now, and how many of them got lost.
    pub(super) size: u16,
    pub(super) lost: u8,
    /// Probes in a row of whose loss nothing follows.
    vain: u8,
    /// The probe that is out: offsets of its data; empty: none.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) not_before: Instant,
}

/// Fate of a probe that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeLoss {
    /// It alone was lost, which is no congestion (RFC 4821 7.6.2).
    Alone,
    /// Its loss showed by a time-out (RFC 4821 7.6.3).
    TimedOut,
    /// Others were lost too, or a router told of it: nothing follows for its size (RFC 4821 7.6.4).
    Inconclusive,
}

/// The choice whether the next segment is a probe.
pub(crate) enum ProbeChoice {
    No,
    /// Soon, when the window has room for it.
    Wait,
    /// It is one, of so many bytes of payload.
    Probe(u64),
}

impl Search {
    /// Nothing is known of sizes up to the `most` that link and peer take.
    pub(super) fn new(most: u16, not_before: Instant) -> Search {
        let (high, size) = (most, most);
        Search { high, most, size, lost: 0, vain: 0, start: 0, end: 0, not_before }
    }

    /// The link takes other sizes than before, the peer what it took: what was found out above that
    /// is no more.
    pub(super) fn carry(&mut self, most: u16) {
        *self = Search::new(most, self.not_before);
    }

    /// The probe that is out did not arrive. Where that counts against its size the next one waits
    /// for `epoch`, as many round trips as the window has segments, which is about the time between
    /// two losses by congestion (RFC 4821 7.6.2: losses that go unpunished are to be rarer than
    /// those), five times that after a time-out (7.6.3). Where nothing follows, the next one waits
    /// longer each time, `least` and more, so that probes do not keep step with a short queue that
    /// overflows again and again.
    pub(super) fn on_lost(
        &mut self,
        now: Instant,
        loss: ProbeLoss,
        epoch: Duration,
        least: Duration,
    ) {
        (self.start, self.end) = (0, 0);
        let counts = loss != ProbeLoss::Inconclusive;
        self.vain = if counts { 0 } else { self.vain.saturating_add(1) };
        let pause = match loss {
            ProbeLoss::Alone => epoch,
            ProbeLoss::TimedOut => epoch.saturating_mul(TIMED_OUT_FACTOR),
            ProbeLoss::Inconclusive => least.saturating_mul(u32::from(self.vain)),
        };
        self.not_before = now + pause.clamp(least, Duration::from_secs(MTU_RAISE_S));
        self.lost += u8::from(counts);
        if self.lost >= MTU_PROBES {
            (self.high, self.lost) = (self.size - 1, 0);
        }
    }

    /// The size to try next above `low`; none when the search is over.
    pub(super) fn next_size(&self, low: u16, headers: u16) -> Option<u16> {
        if self.high < low.saturating_add(MTU_SEARCH_STEP_BYTES) && self.high != self.most
            || self.high <= low
        {
            return None;
        }
        if self.high == self.most {
            // most likely: large packets vanished for another reason, or do no longer
            return Some(self.high);
        }
        let between = |size: &u16| *size >= low + MTU_SEARCH_STEP_BYTES && *size <= self.high;
        let sizes = || COMMON_MTUS.iter().map(|mtu| mtu - headers).filter(between);
        let count = sizes().count();
        sizes().nth(count / 2).or(Some(low + (self.high - low).div_ceil(2)))
    }
}

impl PathMtu {
    #[inline]
    pub(super) fn search(&mut self) -> Option<&mut Search> {
        self.0.as_mut()?.search.as_mut()
    }

    /// The search, if one of its probes is out.
    #[inline]
    pub(super) fn probe_out(&mut self) -> Option<&mut Search> {
        self.search().filter(|search| search.end != 0)
    }

    /// The size that a search may find at best; 0: there is none.
    pub(super) fn searched_mss(&self) -> u16 {
        self.searched().map_or(0, |search| search.most)
    }

    /// The size above which nothing is tried at present; none: nothing is searched for.
    pub(crate) fn search_end(&self) -> Option<u16> {
        self.searched().map(|search| search.high)
    }

    fn searched(&self) -> Option<&Search> {
        self.0.as_ref()?.search.as_ref()
    }

    /// A probe left, from `start` to `end`. Returns whether it was one.
    pub(crate) fn on_probe_sent(&mut self, start: u64, end: u64) -> bool {
        let Some(search) = self.search() else { return false };
        (search.start, search.end) = (start, end);
        true
    }

    /// An ACK up to `una` was taken; `is_sacked` tells of a stretch beyond that. Returns the size
    /// of segments from now on, if the probe that is out has arrived.
    #[inline]
    pub(super) fn on_probe(
        &mut self,
        una: u64,
        is_sacked: impl Fn(u64, u64) -> bool,
    ) -> Option<u16> {
        let search = self.probe_out()?;
        let (start, end, size) = (search.start, search.end, search.size);
        if una < end && !is_sacked(start.max(una), end) {
            return None;
        }
        (search.start, search.end, search.lost, search.vain) = (0, 0, 0, 0);
        let is_whole = size >= search.most;
        if is_whole {
            self.known().search = None;
        }
        Some(size)
    }

    /// The search is over for ten minutes (RFC 8899 5.1.1: PMTU_RAISE_TIMER), or for good.
    pub(super) fn end_search(&mut self, now: Instant, low: u16) {
        let Some(search) = self.search() else { return };
        if low >= search.most {
            self.known().search = None;
            return;
        }
        search.high = search.most;
        search.lost = 0;
        search.not_before = now + Duration::from_secs(MTU_RAISE_S);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_tried_are_those_of_links_and_tunnels_then_halves() {
        let next = |low, high, most, headers| {
            Search { high, ..Search::new(most, Instant::ZERO) }.next_size(low, headers)
        };
        // the whole first, however little that is more
        assert_eq!(next(1160, 8960, 8960, 40), Some(8960));
        assert_eq!(next(1450, 1460, 1460, 40), Some(1460));
        assert_eq!(next(1460, 1460, 1460, 40), None);
        // then the middle one of those that are likely
        assert_eq!(next(1160, 8959, 8960, 40), Some(1440));
        assert_eq!(next(1160, 1459, 8960, 40), Some(1420));
        assert_eq!(next(1160, 1459, 8960, 60), Some(1400));
        // where there is none, halves, until the rest is not worth it
        assert_eq!(next(2000, 3000, 8960, 40), Some(2500));
        assert_eq!(next(2500, 2516, 8960, 40), Some(2508));
        assert_eq!(next(2500, 2515, 8960, 40), None);
        assert_eq!(next(2500, 2400, 8960, 40), None);
    }
    #[test]
    fn a_size_is_given_up_when_three_probes_of_it_were_lost_and_the_next_one_waits() {
        let (now, seconds) = (Instant::ZERO, Duration::from_secs);
        let mut search = Search { size: 4000, ..Search::new(8960, now) };
        let mut lose = |loss| {
            search.on_lost(now, loss, seconds(10), seconds(1));
            (search.high, search.not_before.as_nanos() / 1_000_000_000)
        };
        assert_eq!(lose(ProbeLoss::Alone), (8960, 10));
        // with others: nothing follows, but each waits longer than the one before
        assert_eq!(lose(ProbeLoss::Inconclusive), (8960, 1));
        assert_eq!(lose(ProbeLoss::Inconclusive), (8960, 2));
        assert_eq!(lose(ProbeLoss::TimedOut), (8960, 50));
        assert_eq!(lose(ProbeLoss::Inconclusive), (8960, 1));
        assert_eq!(lose(ProbeLoss::Alone), (3999, 10));
    }
}
