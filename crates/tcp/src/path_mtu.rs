//! Smaller segments for a path that carries no large ones, and the way back (RFC 1191, RFC 8201, and by the ideas
//! of RFC 4821 and RFC 8899 where no ICMP message comes).

use core::time::Duration;
use std::sync::Arc;

use millstream_packet::Instant;
use millstream_wire::tcp::SeqNumber;

use crate::config::MtuProbing;
use crate::connection::Connection;
use crate::limits::{
    BLACK_HOLE_MSS_BYTES, BLACK_HOLE_TIMEOUTS, DEFAULT_MSS_V4_BYTES, MIN_PATH_MTU_V4_BYTES,
    MIN_PATH_MTU_V6_BYTES, MTU_RAISE_S,
};
use crate::path_search::ProbeLoss;

/// What segments are to become again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathLimit {
    mss: u16,
    raise_at: Instant,
}

/// Segments on a link that carries less than they were `opened` with: at most of `most` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkLimit {
    opened: u16,
    most: u16,
}

/// What a router says of a path that has carried full segments: believed when the segment it names is found missing
/// (RFC 5927 7.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathClaim {
    /// Offset of the segment's first byte.
    at: u64,
    mss: u16,
    /// It asked for IPv4 packets smaller than we make.
    fragmentable: bool,
}

impl Connection {
    /// An ICMP message that quoted a segment with sequence number `seq` says that the path takes IP packets of at
    /// most `mtu_bytes` (RFC 1191, RFC 8201). Believed only while that segment is outstanding (RFC 5927 4.1): then
    /// segments shrink and what is outstanding is sent again. Once a path may have carried full segments, which it
    /// may as soon as the bytes of one have arrived, the message waits until the segment is found missing, and is
    /// dropped when that is acknowledged (RFC 5927 7.2). IPv4 packets do not become smaller than 552 bytes, IPv6
    /// packets not smaller than 1,280; who asks for smaller IPv4 packets, and is believed, may fragment those of the
    /// next ten minutes.
    pub fn set_path_mtu(&mut self, now: Instant, seq: SeqNumber, mtu_bytes: u16) {
        self.set_clock(now);
        if !self.is_about_outstanding(seq) {
            return;
        }
        let (headers, least) = match self.tuple.remote.is_ipv6() {
            // RFC 8201 section 4
            true => (60, MIN_PATH_MTU_V6_BYTES),
            false => (40, MIN_PATH_MTU_V4_BYTES),
        };
        let fragmentable = mtu_bytes < least && self.tuple.remote.is_ipv4();
        let mss = mtu_bytes.max(least) - headers;
        self.mtu_probe_refused(now, seq, mss);
        let asks_to_fragment = fragmentable && !self.may_be_fragmented();
        if mss >= self.config.mss.min(self.snd.peer_mss()) && !asks_to_fragment {
            return;
        }
        let at = self.snd.una() + u64::from(seq.distance_from(self.snd_seq(self.snd.una())));
        let claim = PathClaim { at, mss, fragmentable };
        // less than a full segment has arrived since segments have had this size: none of it was full
        if self.snd.una() < self.counters.mss_since() + u64::from(self.snd.mss()) {
            self.take_path_mtu(now, claim);
            return;
        }
        let known = self.counters.take_path_claim().filter(|claim| self.is_missing(claim));
        self.counters.rare().path_claim = known.or(Some(claim));
    }

    /// IPv4 packets may be fragmented: a router asked for smaller ones than are made.
    #[inline]
    pub fn may_be_fragmented(&self) -> bool {
        self.counters.fragmentable()
    }

    /// The claim is believed: what is outstanding is sent again, as it says.
    fn take_path_mtu(&mut self, now: Instant, claim: PathClaim) {
        // A probe that is out is sent again, too, and has not arrived when that is acknowledged.
        self.end_mtu_probe(now, ProbeLoss::Inconclusive);
        self.obey(now, claim);
        if self.state.is_synchronized() && self.snd.una() < self.snd.nxt() {
            self.send_all_again();
        }
    }

    /// For what is sent from now on, until [`raise_mss`](Self::raise_mss).
    fn obey(&mut self, now: Instant, claim: PathClaim) {
        self.counters.rare().fragmentable |= claim.fragmentable;
        self.limit_mss(now, claim.mss.min(self.config.mss));
    }

    fn is_missing(&self, claim: &PathClaim) -> bool {
        claim.at >= self.snd.una() && !self.board.is_sacked(claim.at, claim.at + 1)
    }

    /// What is outstanding got no answer in time: a router's claim about it is believed now. Whether there was one.
    pub(crate) fn believe_path_claim(&mut self, now: Instant) -> bool {
        let claim = self.counters.take_path_claim().filter(|claim| self.is_missing(claim));
        if let Some(claim) = claim {
            self.take_path_mtu(now, claim);
        }
        claim.is_some()
    }

    /// The lowest segments outstanding were judged lost: a router's claim about one of these is believed now, for what
    /// is sent from now on.
    pub(crate) fn believe_claim_of_lost(&mut self, now: Instant) {
        let Some((start, end)) = self.board.next_lost() else { return };
        let claim = self.counters.take_path_claim();
        match claim.filter(|claim| (start..end).contains(&claim.at)) {
            Some(claim) => self.obey(now, claim),
            None if claim.is_some() => self.counters.rare().path_claim = claim,
            None => {}
        }
    }

    /// RFC 6691: what the path carries towards the peer does not lower what the peer may send.
    pub(crate) fn offered_mss(&self) -> u16 {
        let searched = self.counters.searched_mss();
        self.counters.path_limit().map_or(self.config.mss, |limit| limit.mss).max(searched)
    }

    /// The path carries less: segments of at most `mss` bytes, options included, for ten minutes (RFC 1191 6.3).
    pub(crate) fn limit_mss(&mut self, now: Instant, mss: u16) {
        let raise_at = now + Duration::from_secs(MTU_RAISE_S);
        let before = self.counters.path_limit().map_or(self.config.mss, |limit| limit.mss);
        let una = self.snd.una();
        let rare = self.counters.rare();
        (rare.path_limit, rare.mss_since) = (Some(PathLimit { mss: before, raise_at }), una);
        Arc::make_mut(&mut self.config).mss = mss;
        if self.state.is_synchronized() {
            self.set_mss();
        }
    }

    /// The link of the way to the peer takes IP packets of at most `mtu_bytes`, as it is another one or as its MTU was
    /// set. No segment is larger from now on, and what is outstanding in larger ones is sent again. Where it takes more
    /// again segments grow, up to what they were to be when the connection was opened.
    #[inline]
    pub fn set_link_mtu(&mut self, now: Instant, mtu_bytes: usize) {
        let fits = mtu_bytes.saturating_sub(usize::from(self.ip_headers()));
        let fits = u16::try_from(fits).unwrap_or(u16::MAX);
        // Without a link's limit they were opened with what they are, are to become again, or may be found to be
        // possible.
        let LinkLimit { opened, most } = self.counters.link_limit().unwrap_or_else(|| {
            let opened = self.offered_mss();
            LinkLimit { opened, most: opened }
        });
        if fits.min(opened) != most {
            self.follow_link(now, LinkLimit { opened, most: fits.min(opened) });
        }
    }

    /// The link has another limit. What is known of the path beyond it stays, as far as it says less.
    #[cold]
    fn follow_link(&mut self, now: Instant, limit: LinkLimit) {
        let LinkLimit { opened, most } = limit;
        self.set_clock(now);
        self.end_mtu_probe(now, ProbeLoss::Inconclusive);
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        let (before, peer) = (self.config.mss, self.snd.peer_mss());
        let rare = self.counters.rare();
        (rare.link_limit, rare.mss_since) = ((most < opened).then_some(limit), una);
        let is_limited = rare.path_limit.is_some() || rare.path_search.is_some();
        let mss = if is_limited { before.min(most) } else { most };
        // With the path's limit ends what a router has asked for beside it.
        rare.path_limit = rare.path_limit.filter(|_| mss < most || rare.fragmentable);
        rare.path_search = rare.path_search.filter(|_| mss < most.min(peer));
        if let Some(limit) = &mut rare.path_limit {
            limit.mss = most;
        }
        if let Some(search) = &mut rare.path_search {
            search.carry(most.min(peer));
        }
        Arc::make_mut(&mut self.config).mss = mss;
        if self.state.is_synchronized() {
            self.set_mss();
            if mss < before.min(peer) && una < nxt {
                self.send_all_again();
            }
        }
    }

    /// The retransmission timer expired again and again for a large segment: perhaps large ones vanish without a
    /// word (RFC 4821 7.7). The next try is smaller; should the peer be gone, nothing is lost by that.
    pub(crate) fn suspect_black_hole(&mut self, now: Instant) {
        if self.rtt.backoff() < BLACK_HOLE_TIMEOUTS - 1 {
            return;
        }
        let mss = match self.config.mss.min(self.snd.peer_mss()) {
            // RFC 8899 5.1.2: BASE_PLPMTU
            mss if mss > BLACK_HOLE_MSS_BYTES => BLACK_HOLE_MSS_BYTES,
            mss if mss > DEFAULT_MSS_V4_BYTES && self.tuple.remote.is_ipv4() => {
                DEFAULT_MSS_V4_BYTES
            }
            _ => return,
        };
        // what is small arrives through a black hole: then it is none
        if self.snd.outstanding() <= u64::from(mss) {
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
        if now >= limit.raise_at && self.recovery.is_open() {
            let una = self.snd.una();
            let rare = self.counters.rare();
            (rare.path_limit, rare.mss_since, rare.fragmentable) = (None, una, false);
            let config = Arc::make_mut(&mut self.config);
            // A search may have found more meanwhile.
            config.mss = config.mss.max(limit.mss);
            self.set_mss();
        }
    }
}
