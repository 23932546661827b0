//! The window that the peer is offered (RFC 9293 3.8.6).

use super::Receiver;
use crate::config::Config;
use crate::rtt::RttEstimator;

/// Segments that make a burst worth ending a window with, and whole bursts that a window must hold
/// for it.
const BURST_SEGMENTS: u64 = 8;
const WINDOW_BURSTS: u64 = 3;

/// Super-segments of the peer's.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Bursts {
    /// The most data that came at once; 0: no burst came.
    longest: u16,
    /// How far `nxt` is into one that our window has cut.
    into: u16,
}

impl Receiver {
    /// Most that the window field can name.
    #[inline(always)]
    fn most_named(&self) -> u64 {
        u64::from(u16::MAX) << self.shift
    }

    /// Shift of our window field.
    pub(crate) fn shift(&self) -> u8 {
        self.shift
    }

    /// Payload that the free part of the buffer can take, by the density of what arrived lately.
    fn free_window(&self, rtt: &RttEstimator, config: &Config) -> u64 {
        let free = self.used_at_most(rtt, config).saturating_sub(self.held_bytes());
        // what is out of order has its memory already and lies inside the window
        let early = self.reassembly.as_ref().map_or(0, |r| r.bytes());
        (self.density.payload_of(free) + early).min(self.most_named())
    }

    /// The window that would be offered if the buffer were empty.
    pub(crate) fn window_limit(&self, rtt: &RttEstimator, config: &Config) -> u64 {
        self.density.payload_of(self.used_at_most(rtt, config)).min(self.most_named())
    }

    /// Returns what a SYN or SYN-ACK of ours acknowledges, or will: the peer's SYN, and data that
    /// came with it.
    fn syn_end(&self) -> u64 {
        self.nxt.max(1)
    }

    /// The window field of a SYN, never scaled (RFC 7323 2.2). One that is sent again offers no
    /// less than before, whatever became of the buffer (RFC 9293 3.8.6).
    pub(crate) fn syn_window(&self) -> u16 {
        let free = self.density.payload_of(self.limit_bytes);
        free.max(self.edge.saturating_sub(self.syn_end())).min(65_535) as u16
    }

    /// The window of a SYN is offered, behind what the SYN acknowledges.
    pub(crate) fn offer_syn_window(&mut self) {
        self.edge = self.edge.max(self.syn_end() + u64::from(self.syn_window()));
    }

    /// The window field of a segment sent now, which is offered thereby. The field is rounded up
    /// where rounding down would take back what was promised (RFC 7323 2.4).
    #[inline(always)]
    pub(crate) fn select_window(&mut self, rtt: &RttEstimator, config: &Config) -> u16 {
        let shift = self.shift;
        let floor = (self.next_edge(rtt, config) - self.nxt) >> shift;
        let mut field = floor;
        if self.nxt + (floor << shift) < self.edge {
            field += 1;
        }
        let field = field.min(u64::from(u16::MAX));
        let offered = self.nxt + (field << shift);
        debug_assert!(offered >= self.edge.min(self.nxt + self.most_named()));
        self.edge = self.edge.max(offered);
        field as u16
    }

    /// Where the right edge of the window would be moved to now. Never left of where it is (RFC
    /// 9293 3.8.6), and only by a worthwhile step (RFC 9293 3.8.6.2.2, silly window syndrome).
    #[inline(always)]
    fn next_edge(&self, rtt: &RttEstimator, config: &Config) -> u64 {
        let whole = self.density.payload_of(self.limit_bytes);
        let least = self.edge + u64::from(self.mss_estimate).min(whole / 2);
        // often it shows at once: an empty buffer would not take it there
        let may_reach = self.nxt + whole >= least || !self.is_in_order();
        if may_reach {
            let wanted = self.whole_bursts(self.nxt + self.free_window(rtt, config), rtt, config);
            if wanted >= least {
                return wanted;
            }
        }
        self.edge.max(self.nxt)
    }

    /// The right edge `wanted`, or one before it at which a super-segment of the peer's ends. It
    /// makes them of its send buffers, and cuts the one in which the window ends: both parts then
    /// cost it, and us, as much as a whole one. Only where the window is not what the buffer has,
    /// but what we found to be enough.
    #[inline(always)]
    fn whole_bursts(&self, wanted: u64, rtt: &RttEstimator, config: &Config) -> u64 {
        let (burst, segment) = (u64::from(self.bursts.longest), u64::from(self.mss_estimate));
        if burst >= BURST_SEGMENTS * segment && self.used_at_most(rtt, config) < self.limit_bytes {
            self.before_next_burst(wanted, burst).unwrap_or(wanted)
        } else {
            wanted
        }
    }

    /// The last edge up to `wanted` at which a burst ends, but for less than a segment: the window
    /// field counts in units. `None` when that would take too much off the window.
    #[inline(never)]
    fn before_next_burst(&self, wanted: u64, burst: u64) -> Option<u64> {
        let (nxt, unit) = (self.nxt, 1 << self.shift);
        let begun = nxt - u64::from(self.bursts.into);
        let bursts = wanted.checked_sub(begun)? / burst;
        let edge = |bursts: u64| {
            let end = begun + bursts * burst;
            let edge = nxt + end.checked_sub(nxt)?.next_multiple_of(unit);
            let tempts = edge - end >= u64::from(self.mss_estimate);
            (edge <= wanted && !tempts).then_some(edge)
        };
        (bursts >= WINDOW_BURSTS).then(|| edge(bursts).or_else(|| edge(bursts - 1))).flatten()
    }

    /// `len` bytes came next in order: a burst of the peer's, or as much of one as the window
    /// allowed, whose rest is the next to come. Until there was a burst there is nothing to note of
    /// less than one.
    #[inline(always)]
    pub(crate) fn note_burst(&mut self, len: u32) {
        let is_cut = self.is_window_used();
        let bursts = &mut self.bursts;
        if bursts.longest == 0 && u64::from(len) < BURST_SEGMENTS * u64::from(self.mss_estimate) {
            return;
        }
        let len = u16::try_from(len).unwrap_or(0);
        let end = bursts.into.saturating_add(len);
        bursts.into = if is_cut && end < bursts.longest { end } else { 0 };
        bursts.longest = bursts.longest.max(len);
    }

    /// Returns whether the peer has sent what the window allows, but for less than a segment.
    #[inline(always)]
    pub(crate) fn is_window_used(&self) -> bool {
        self.nxt + u64::from(self.mss_estimate) > self.edge
    }

    /// So much of the window is open that no ACK could double it: even an empty buffer is not twice
    /// that.
    #[inline(always)]
    pub(crate) fn is_wide_open(&self) -> bool {
        self.is_in_order() && 2 * self.window_bytes() > self.limit_bytes as u64
    }

    /// Returns whether an ACK would let the window double, or open (RFC 9293 3.8.6.2.2).
    #[inline(always)]
    pub(crate) fn may_double(&self, rtt: &RttEstimator, config: &Config) -> bool {
        let gained = self.next_edge(rtt, config).saturating_sub(self.edge);
        let worthwhile = || u64::from(2 * self.mss_estimate).min(self.free_window(rtt, config) / 2);
        gained > 0 && gained >= self.window_bytes() && gained >= worthwhile()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use millstream_packet::Instant;

    use super::super::tests::receiver;
    use super::*;

    #[test]
    fn the_edge_never_moves_left() {
        let (mut rcv, rtt, config) = (receiver(), RttEstimator::new(200), Config::default());
        let edge = rcv.edge;
        rcv.set_limit(5_000);
        assert_eq!((u64::from(rcv.select_window(&rtt, &config)), rcv.edge), (edge - 1, edge));
        assert_eq!(rcv.syn_window(), 65_535, "nor does a SYN that goes again");
        rcv.take_placed(60_000);
        assert_eq!(u64::from(rcv.select_window(&rtt, &config)), edge - 60_001);
        assert_eq!(rcv.edge, edge);
        // nor where the field cannot name it
        rcv.edge = edge + 70_000;
        assert_eq!((rcv.select_window(&rtt, &config), rcv.edge), (u16::MAX, edge + 70_000));
    }

    #[test]
    fn the_field_is_rounded_up_where_a_unit_would_take_back_what_was_promised() {
        let (mut rcv, rtt, config) = (receiver(), RttEstimator::new(200), Config::default());
        rcv.shift = 7;
        rcv.set_limit(5_000);
        rcv.take_placed(1);
        let left = rcv.window_bytes();
        let field = rcv.select_window(&rtt, &config);
        assert_eq!(u64::from(field), left.div_ceil(128));
        assert!(rcv.edge - rcv.nxt() < left + 128);
    }

    #[test]
    fn the_edge_is_not_moved_by_less_than_a_segment() {
        let (mut rcv, rtt, config) = (receiver(), RttEstimator::new(200), Config::default());
        rcv.shift = 0;
        rcv.edge = 1;
        let open = u64::from(rcv.select_window(&rtt, &config));
        assert!(open > 10_000, "{open}");
        let edge = rcv.edge;
        rcv.take_placed(900);
        rcv.select_window(&rtt, &config);
        assert_eq!(rcv.edge, edge, "900 bytes of segments of 1,000");
        assert!(!rcv.may_double(&rtt, &config));
        rcv.take_placed(edge as usize - 901);
        assert!(rcv.is_window_used() && rcv.may_double(&rtt, &config));
        rcv.select_window(&rtt, &config);
        assert!(rcv.edge >= edge + 1000);
    }

    #[test]
    fn the_window_ends_where_a_burst_of_the_peer_ends() {
        let (mut rcv, mut rtt, config) = (receiver(), RttEstimator::new(200), Config::default());
        rtt.sample(Instant::ZERO, Duration::from_micros(10), 1);
        rcv.set_limit(16 << 20);
        rcv.shift = 7;
        for _ in 0..4 {
            rcv.take_placed(30_000);
            rcv.note_burst(30_000);
            rcv.select_window(&rtt, &config);
        }
        let past = (rcv.edge - rcv.nxt()) % 30_000;
        assert!(past < 128, "{past} bytes of the next one");
    }
}
