//! Smaller segments for a path that carries no large ones, and the way back (RFC 1191, RFC 8201, and by the ideas
//! of RFC 4821 and RFC 8899 where no ICMP message comes).

use core::time::Duration;
use std::sync::Arc;

use millstream_packet::Instant;

use crate::config::MtuProbing;
use crate::connection::Connection;
use crate::limits::{BLACK_HOLE_MSS_BYTES, BLACK_HOLE_TIMEOUTS, DEFAULT_MSS_V4_BYTES, MTU_RAISE_S};
use crate::recovery::Phase;

/// What segments are to become again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathLimit {
    mss: u16,
    raise_at: Instant,
}

impl Connection {
    /// RFC 6691: what the path carries towards the peer does not lower what the peer may send.
    pub(crate) fn offered_mss(&self) -> u16 {
        let searched = self.counters.searched_mss();
        self.counters.path_limit().map_or(self.config.mss, |limit| limit.mss).max(searched)
    }

    /// The path carries less: segments of at most `mss` bytes, options included, for ten minutes (RFC 1191 6.3).
    pub(crate) fn limit_mss(&mut self, now: Instant, mss: u16) {
        let raise_at = now + Duration::from_secs(MTU_RAISE_S);
        let before = self.counters.path_limit().map_or(self.config.mss, |limit| limit.mss);
        self.counters.rare().path_limit = Some(PathLimit { mss: before, raise_at });
        Arc::make_mut(&mut self.config).mss = mss;
        if self.state.is_synchronized() {
            self.set_mss();
        }
    }

    /// The retransmission timer expired again and again for a large segment: perhaps large ones vanish without a
    /// word (RFC 4821 7.7). The next try is smaller; should the peer be gone, nothing is lost by that.
    pub(crate) fn suspect_black_hole(&mut self, now: Instant) {
        if self.rtt.backoff() < BLACK_HOLE_TIMEOUTS - 1 {
            return;
        }
        let mss = match self.config.mss.min(self.snd.peer_mss) {
            // RFC 8899 5.1.2: BASE_PLPMTU
            mss if mss > BLACK_HOLE_MSS_BYTES => BLACK_HOLE_MSS_BYTES,
            mss if mss > DEFAULT_MSS_V4_BYTES && self.tuple.remote.is_ipv4() => {
                DEFAULT_MSS_V4_BYTES
            }
            _ => return,
        };
        // what is small arrives through a black hole: then it is none
        if self.snd.nxt - self.snd.una <= u64::from(mss) {
            return;
        }
        self.counters.rare().black_holes += 1;
        match self.negotiated.sack && self.config.mtu_probing != MtuProbing::Off {
            true => self.begin_search(now, mss),
            false => self.limit_mss(now, mss),
        }
    }

    /// After ten minutes the larger size is tried again (RFC 1191 6.3, RFC 8899 5.1.1: PMTU_RAISE_TIMER). If the
    /// path still does not carry it, that is found as the first time.
    #[inline]
    pub(crate) fn raise_mss(&mut self, now: Instant) {
        let Some(limit) = self.counters.path_limit() else { return };
        if now >= limit.raise_at && self.recovery.phase == Phase::Open {
            self.counters.rare().path_limit = None;
            Arc::make_mut(&mut self.config).mss = limit.mss;
            self.set_mss();
        }
    }
}
