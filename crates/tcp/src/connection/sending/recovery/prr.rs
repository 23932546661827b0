//! Proportional rate reduction: how much is sent while recovering (RFC 9937 section 5).

use super::Recovery;
use crate::congestion::Window;

/// Bytes delivered and sent since a recovery began.
#[derive(Clone, Debug, Default)]
pub(super) struct Prr {
    /// RFC 9937: prr_delivered, prr_out and RecoverFS.
    delivered: u64,
    out: u64,
    flight: u64,
}

impl Prr {
    /// A recovery begins, with so many bytes to be delivered.
    pub(super) fn begin(to_deliver: u64) -> Prr {
        Prr { delivered: 0, out: 0, flight: to_deliver.max(1) }
    }

    #[inline]
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// `delivered` more bytes arrived, and `pipe` are in flight: how many may be sent now. In
    /// proportion to what is delivered, so that the window reaches `ssthresh` by the end of
    /// recovery. Below it, as much as is delivered, and a segment more for an ACK that is `safe`:
    /// one that moves on and tells of nothing more that is lost (SafeACK).
    fn allow(&mut self, delivered: u64, safe: bool, pipe: u64, ssthresh: u64, mss: u64) -> u64 {
        self.delivered += delivered;
        if pipe > ssthresh {
            let due = (u128::from(self.delivered) * u128::from(ssthresh))
                .div_ceil(u128::from(self.flight.max(1))) as u64;
            return due.saturating_sub(self.out);
        }
        let conserved = self.delivered.saturating_sub(self.out).max(delivered);
        let limit = if safe { conserved + mss } else { conserved };
        limit.min(ssthresh - pipe)
    }
}

impl Recovery {
    /// Sets the window to what may be sent while recovering, after `delivered` more bytes have
    /// arrived, with `pipe` in flight.
    pub(super) fn reduce_proportionally(
        &mut self,
        window: &mut Window,
        pipe: u64,
        delivered: u64,
        safe: bool,
    ) {
        let (mss, ssthresh) = (u64::from(window.mss_bytes), window.ssthresh_bytes);
        let allowed = self.episode().prr.allow(delivered, safe, pipe, ssthresh, mss);
        window.cwnd_bytes = (pipe + allowed).max(mss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_threshold_half_of_what_is_delivered_is_sent() {
        let (mut prr, mut pipe) = (Prr::begin(20_000), 20_000);
        for _ in 0..10 {
            pipe -= 1000;
            let allowed = prr.allow(1000, true, pipe, 10_000, 1000);
            assert!(allowed <= 500 || pipe <= 10_000, "{allowed} with {pipe} in flight");
            prr.on_sent(allowed);
            pipe += allowed;
        }
        assert_eq!((pipe, prr.delivered, prr.out), (15_000, 10_000, 5_000));
    }

    #[test]
    fn below_the_threshold_what_is_delivered_is_sent_and_a_segment_more_where_that_is_safe() {
        let mut prr = Prr::begin(20_000);
        assert_eq!(prr.allow(1000, false, 4_000, 10_000, 1000), 1000);
        prr.on_sent(1000);
        assert_eq!(prr.allow(1000, true, 4_000, 10_000, 1000), 2000);
        // never beyond the threshold
        assert_eq!(prr.allow(1000, true, 9_500, 10_000, 1000), 500);
    }
}
