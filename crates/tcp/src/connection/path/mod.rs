//! Smaller segments for a path that carries no large ones, and the way back (RFC 1191, RFC 8201,
//! and by the ideas of RFC 4821 and RFC 8899 where no ICMP message comes). What the path carries
//! beyond that is found out by `search`.

mod search;

use core::time::Duration;
use std::sync::Arc;

use millstream_packet::Instant;
use millstream_wire::tcp::SeqNumber;

use crate::config::MtuProbing;
use crate::connection::Connection;
use crate::limits::{DEFAULT_MSS_V4_BYTES, MIN_PATH_MTU_V4_BYTES, path_mtu_told};
use crate::scoreboard::Scoreboard;
use crate::tuning::{BLACK_HOLE_MSS_BYTES, BLACK_HOLE_TIMEOUTS, MTU_RAISE_S};
use search::Search;
pub(crate) use search::{ProbeChoice, ProbeLoss};

/// The knowledge of the size of segments that link and path carry; nothing as long as that is what
/// both ends take.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathMtu(Option<Box<Known>>);

#[derive(Clone, Debug, Default)]
struct Known {
    /// The path carries less than both ends would.
    limit: Option<PathLimit>,
    /// The link's limit of segments, where that is less than they were to be when the connection
    /// was opened.
    link: Option<LinkLimit>,
    claim: Option<PathClaim>,
    search: Option<Search>,
    /// Offset from which on segments have had their present size.
    mss_since: u64,
    /// A router asked for packets smaller than we make: they may be fragmented.
    is_fragmentable: bool,
}

/// The size that segments are to have again.
#[derive(Clone, Copy, Debug)]
struct PathLimit {
    mss: u16,
    raise_at: Instant,
}

/// Segments on a link that carries less than they were `opened` with: at most of `most` bytes.
#[derive(Clone, Copy, Debug)]
struct LinkLimit {
    opened: u16,
    most: u16,
}

/// The word of a router about a path that has carried full segments: believed when the segment it
/// names is found missing (RFC 5927 7.2).
#[derive(Clone, Copy, Debug)]
struct PathClaim {
    /// Offset of the segment's first byte.
    at: u64,
    mss: u16,
    /// It asked for IPv4 packets smaller than we make.
    is_fragmentable: bool,
}

impl PathClaim {
    /// Returns whether the segment that it names has not arrived.
    fn is_missing(&self, board: &Scoreboard, una: u64) -> bool {
        self.at >= una && !board.is_sacked(self.at, self.at + 1)
    }
}

impl PathMtu {
    /// Segments have the size that they keep.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.as_ref().is_none_or(|known| known.limit.is_none() && known.search.is_none())
    }

    fn known(&mut self) -> &mut Known {
        self.0.get_or_insert_default()
    }

    #[inline]
    fn limit(&self) -> Option<PathLimit> {
        self.0.as_ref()?.limit
    }

    #[inline]
    fn link(&self) -> Option<LinkLimit> {
        self.0.as_ref()?.link
    }

    fn take_claim(&mut self) -> Option<PathClaim> {
        self.0.as_mut()?.claim.take()
    }

    fn mss_since(&self) -> u64 {
        self.0.as_ref().map_or(0, |known| known.mss_since)
    }

    /// IPv4 packets may be fragmented: a router asked for smaller ones than are made.
    #[inline]
    pub(crate) fn is_fragmentable(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.is_fragmentable)
    }
}

impl Connection {
    /// An ICMP message that quoted a segment with sequence number `seq` says that the path takes IP
    /// packets of at most `mtu_bytes` (RFC 1191, RFC 8201). Believed only while that segment is
    /// outstanding (RFC 5927 4.1): then segments shrink and what is outstanding is sent again. Once
    /// a path may have carried full segments, which it may as soon as the bytes of one have
    /// arrived, the message waits until the segment is found missing, and is dropped when that is
    /// acknowledged (RFC 5927 7.2). IPv4 packets do not become smaller than 552 bytes: who asks for
    /// smaller ones, of 68 bytes at least, and is believed, may fragment those of the next ten
    /// minutes. Who asks for IPv6 packets of less than 1,280 bytes is not heard.
    pub fn set_path_mtu(&mut self, now: Instant, seq: SeqNumber, mtu_bytes: u16) {
        self.set_clock(now);
        if !self.is_about_outstanding(seq) {
            return;
        }
        let is_ipv6 = self.tuple.remote.is_ipv6();
        let Some(mtu) = path_mtu_told(is_ipv6, usize::from(mtu_bytes)) else { return };
        let is_fragmentable = !is_ipv6 && mtu_bytes < MIN_PATH_MTU_V4_BYTES;
        let mss = mtu as u16 - self.tuple.header_bytes();
        self.mtu_probe_refused(now, seq, mss);
        let asks_to_fragment = is_fragmentable && !self.may_be_fragmented();
        if mss >= self.config.mss.min(self.snd.peer_mss()) && !asks_to_fragment {
            return;
        }
        let at = self.snd.una() + u64::from(seq.distance_from(self.snd.seq(self.snd.una())));
        let claim = PathClaim { at, mss, is_fragmentable };
        // less than a full segment has arrived since segments have had this size: none of it was
        // full
        if self.snd.una() < self.path.mss_since() + u64::from(self.snd.mss()) {
            self.take_path_mtu(now, claim);
            return;
        }
        let known =
            self.path.take_claim().filter(|claim| claim.is_missing(&self.board, self.snd.una()));
        self.path.known().claim = known.or(Some(claim));
    }

    /// IPv4 packets may be fragmented: a router asked for smaller ones than are made.
    #[inline]
    pub fn may_be_fragmented(&self) -> bool {
        self.path.is_fragmentable()
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
        self.path.known().is_fragmentable |= claim.is_fragmentable;
        self.limit_mss(now, claim.mss.min(self.config.mss));
    }

    /// Outstanding data got no answer in time: a router's claim about it is believed now. Returns
    /// whether there was one.
    pub(crate) fn believe_path_claim(&mut self, now: Instant) -> bool {
        let claim =
            self.path.take_claim().filter(|claim| claim.is_missing(&self.board, self.snd.una()));
        if let Some(claim) = claim {
            self.take_path_mtu(now, claim);
        }
        claim.is_some()
    }

    /// The lowest segments outstanding were judged lost: a router's claim about one of these is
    /// believed now, for what is sent from now on.
    pub(crate) fn believe_claim_of_lost(&mut self, now: Instant) {
        let Some((start, end)) = self.board.next_lost() else { return };
        let claim = self.path.take_claim();
        match claim.filter(|claim| (start..end).contains(&claim.at)) {
            Some(claim) => self.obey(now, claim),
            None if claim.is_some() => self.path.known().claim = claim,
            None => {}
        }
    }

    /// RFC 6691: what the path carries towards the peer does not lower what the peer may send.
    pub(crate) fn offered_mss(&self) -> u16 {
        let searched = self.path.searched_mss();
        self.path.limit().map_or(self.config.mss, |limit| limit.mss).max(searched)
    }

    /// The path carries less: segments of at most `mss` bytes, options included, for ten minutes
    /// (RFC 1191 6.3).
    pub(crate) fn limit_mss(&mut self, now: Instant, mss: u16) {
        let raise_at = now + Duration::from_secs(MTU_RAISE_S);
        let before = self.path.limit().map_or(self.config.mss, |limit| limit.mss);
        let una = self.snd.una();
        let known = self.path.known();
        (known.limit, known.mss_since) = (Some(PathLimit { mss: before, raise_at }), una);
        self.resize_segments(mss);
    }

    /// Segments of at most `mss` bytes from now on, options included.
    fn resize_segments(&mut self, mss: u16) {
        self.begin_rare();
        Arc::make_mut(&mut self.config).mss = mss;
        if self.state.is_synchronized() {
            self.set_mss();
        }
    }

    /// The link of the way to the peer takes IP packets of at most `mtu_bytes`, as it is another
    /// one or as its MTU was set. No segment is larger from now on, and what is outstanding in
    /// larger ones is sent again. Where it takes more again segments grow, up to what they were to
    /// be when the connection was opened.
    #[inline]
    pub fn set_link_mtu(&mut self, now: Instant, mtu_bytes: usize) {
        let fits = mtu_bytes.saturating_sub(usize::from(self.tuple.header_bytes()));
        let fits = u16::try_from(fits).unwrap_or(u16::MAX);
        // Without a link's limit they were opened with what they are, are to become again, or may
        // be found to be possible.
        let LinkLimit { opened, most } = self.path.link().unwrap_or_else(|| {
            let opened = self.offered_mss();
            LinkLimit { opened, most: opened }
        });
        if fits.min(opened) != most {
            self.follow_link(now, LinkLimit { opened, most: fits.min(opened) });
        }
    }

    /// The link has another limit. What is known of the path beyond it stays, as far as it says
    /// less.
    #[cold]
    fn follow_link(&mut self, now: Instant, limit: LinkLimit) {
        let LinkLimit { opened, most } = limit;
        self.set_clock(now);
        self.end_mtu_probe(now, ProbeLoss::Inconclusive);
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        let (before, peer) = (self.config.mss, self.snd.peer_mss());
        let known = self.path.known();
        (known.link, known.mss_since) = ((most < opened).then_some(limit), una);
        let is_limited = known.limit.is_some() || known.search.is_some();
        let mss = if is_limited { before.min(most) } else { most };
        // With the path's limit ends what a router has asked for beside it.
        known.limit = known.limit.filter(|_| mss < most || known.is_fragmentable);
        known.search = known.search.filter(|_| mss < most.min(peer));
        if let Some(limit) = &mut known.limit {
            limit.mss = most;
        }
        if let Some(search) = &mut known.search {
            search.carry(most.min(peer));
        }
        self.resize_segments(mss);
        if self.state.is_synchronized() && mss < before.min(peer) && una < nxt {
            self.send_all_again();
        }
    }

    /// The retransmission timer expired again and again for a large segment: perhaps large ones
    /// vanish without a word (RFC 4821 7.7). The next try is smaller; should the peer be gone,
    /// nothing is lost by that.
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
        self.counters.count().black_holes += 1;
        match self.negotiated.sack && self.config.mtu_probing != MtuProbing::Off {
            true => self.begin_search(now, mss),
            false => self.limit_mss(now, mss),
        }
    }

    /// After ten minutes the larger size is tried again (RFC 1191 6.3, RFC 8899 5.1.1:
    /// PMTU_RAISE_TIMER). If the path still does not carry it, that is found as the first time.
    #[inline]
    pub(crate) fn raise_mss(&mut self, now: Instant) {
        let Some(limit) = self.path.limit() else { return };
        if now >= limit.raise_at && self.recovery.is_open() {
            let una = self.snd.una();
            let known = self.path.known();
            (known.limit, known.mss_since, known.is_fragmentable) = (None, una, false);
            // A search may have found more meanwhile.
            self.resize_segments(self.config.mss.max(limit.mss));
        }
    }
}
