//! Smaller segments for a path that carries no large ones, and the way back (RFC 1191, RFC 8201,
//! and by the ideas of RFC 4821 and RFC 8899 where no ICMP message comes). What the path carries
//! beyond that is found out by `search`.

mod search;

use core::time::Duration;
use std::sync::Arc;

use millstream_packet::Instant;
use millstream_wire::tcp::SeqNumber;

use crate::config::{Config, MtuProbing};
use crate::connection::context::Context;
use crate::connection::sending::Sending;
use crate::limits::{DEFAULT_MSS_V4_BYTES, MIN_MSS_BYTES, MIN_PATH_MTU_V4_BYTES, path_mtu_told};
use crate::scoreboard::Scoreboard;
use crate::state::State;
use crate::trace::trace;
use crate::tuning::{BLACK_HOLE_MSS_BYTES, BLACK_HOLE_TIMEOUTS, MTU_PROBE_FOLLOWERS, MTU_RAISE_S};
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
    /// The application's bound.
    own: Option<u16>,
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
pub(crate) struct LinkLimit {
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

    /// The bound that the application has set.
    pub(crate) fn own(&self) -> Option<u16> {
        self.0.as_ref()?.own
    }

    #[inline]
    fn link(&self) -> Option<LinkLimit> {
        self.0.as_ref()?.link
    }

    /// Returns the limit of a link that takes packets of `mtu_bytes`, if the way had another.
    #[inline]
    pub(crate) fn other_link(&self, cx: &Context, mtu_bytes: usize) -> Option<LinkLimit> {
        let fits = mtu_bytes.saturating_sub(usize::from(cx.tuple.header_bytes()));
        let fits = u16::try_from(fits).unwrap_or(u16::MAX);
        // Without a link's limit they were opened with what they are, are to become again, or may
        // be found to be possible.
        let LinkLimit { opened, most } = self.link().unwrap_or_else(|| {
            let opened = self.offered_mss(&cx.config);
            LinkLimit { opened, most: opened }
        });
        let limit = LinkLimit { opened, most: fits.min(opened) };
        (limit.most != most).then_some(limit)
    }

    fn take_claim(&mut self) -> Option<PathClaim> {
        self.0.as_mut()?.claim.take()
    }

    /// RFC 6691: what the path carries towards the peer does not lower what the peer may send.
    pub(crate) fn offered_mss(&self, config: &Config) -> u16 {
        let searched = self.searched_mss();
        self.limit().map_or(config.mss, |limit| limit.mss).max(searched)
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

impl Sending {
    /// A router says of the segment at `seq`, which is outstanding, that the path takes packets of
    /// at most `mtu_bytes`.
    pub(crate) fn hear_path_claim(&mut self, cx: &mut Context, seq: SeqNumber, mtu_bytes: u16) {
        let is_ipv6 = cx.tuple.remote.is_ipv6();
        let Some(mtu) = path_mtu_told(is_ipv6, usize::from(mtu_bytes)) else { return };
        let is_fragmentable = !is_ipv6 && mtu_bytes < MIN_PATH_MTU_V4_BYTES;
        let mss = mtu as u16 - cx.tuple.header_bytes();
        self.mtu_probe_refused(cx, seq, mss);
        let asks_to_fragment = is_fragmentable && !self.path.is_fragmentable();
        if mss >= cx.config.mss.min(self.peer_mss()) && !asks_to_fragment {
            return;
        }
        let at = self.snd.una() + u64::from(seq.distance_from(self.snd.seq(self.snd.una())));
        let claim = PathClaim { at, mss, is_fragmentable };
        // less than a full segment has arrived since segments have had this size: none of it was
        // full
        if self.snd.una() < self.path.mss_since() + self.snd.mss() {
            self.take_path_mtu(cx, claim);
            return;
        }
        let known =
            self.path.take_claim().filter(|claim| claim.is_missing(&self.board, self.snd.una()));
        self.path.known().claim = known.or(Some(claim));
    }

    /// The claim is believed: what is outstanding is sent again, as it says.
    fn take_path_mtu(&mut self, cx: &mut Context, claim: PathClaim) {
        // A probe that is out is sent again, too, and has not arrived when that is acknowledged.
        self.end_mtu_probe(cx, ProbeLoss::Inconclusive);
        self.obey(cx, claim);
        if cx.state.is_synchronized() && self.snd.una() < self.snd.nxt() {
            self.send_all_again(cx);
        }
    }

    /// For what is sent from now on, until [`raise_mss`](Self::raise_mss).
    fn obey(&mut self, cx: &mut Context, claim: PathClaim) {
        self.path.known().is_fragmentable |= claim.is_fragmentable;
        let mss = claim.mss.min(cx.config.mss);
        self.limit_mss(cx, mss);
    }

    /// Outstanding data got no answer in time: a router's claim about it is believed now. Returns
    /// whether there was one.
    pub(super) fn believe_path_claim(&mut self, cx: &mut Context) -> bool {
        let claim =
            self.path.take_claim().filter(|claim| claim.is_missing(&self.board, self.snd.una()));
        if let Some(claim) = claim {
            self.take_path_mtu(cx, claim);
        }
        claim.is_some()
    }

    /// The lowest segments outstanding were judged lost: a router's claim about one of these is
    /// believed now, for what is sent from now on.
    pub(super) fn believe_claim_of_lost(&mut self, cx: &mut Context) {
        let Some((start, end)) = self.board.next_lost() else { return };
        let claim = self.path.take_claim();
        match claim.filter(|claim| (start..end).contains(&claim.at)) {
            Some(claim) => self.obey(cx, claim),
            None if claim.is_some() => self.path.known().claim = claim,
            None => {}
        }
    }

    /// The path carries less: segments of at most `mss` bytes, options included, for ten minutes
    /// (RFC 1191 6.3).
    fn limit_mss(&mut self, cx: &mut Context, mss: u16) {
        let raise_at = cx.now + Duration::from_secs(MTU_RAISE_S);
        let before = self.path.limit().map_or(cx.config.mss, |limit| limit.mss);
        let una = self.snd.una();
        let known = self.path.known();
        (known.limit, known.mss_since) = (Some(PathLimit { mss: before, raise_at }), una);
        self.resize_segments(cx, mss);
    }

    /// Segments of at most `mss` bytes from now on, options included.
    fn resize_segments(&mut self, cx: &mut Context, mss: u16) {
        cx.begin_rare();
        Arc::make_mut(&mut cx.config).mss = mss;
        if cx.state.is_synchronized() {
            self.set_mss(cx);
        }
    }

    /// The link has another limit. What is known of the path beyond it stays, as far as it says
    /// less.
    #[cold]
    pub(crate) fn follow_link(&mut self, cx: &mut Context, limit: LinkLimit) {
        let LinkLimit { opened, most } = limit;
        self.end_mtu_probe(cx, ProbeLoss::Inconclusive);
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        let (before, peer) = (cx.config.mss, self.peer_mss());
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
        self.resize_segments(cx, mss);
        if cx.state.is_synchronized() && mss < before.min(peer) && una < nxt {
            self.send_all_again(cx);
        }
    }

    /// The retransmission timer expired again and again for a large segment: perhaps large ones
    /// vanish without a word (RFC 4821 7.7). The next try is smaller; should the peer be gone,
    /// nothing is lost by that.
    pub(super) fn suspect_black_hole(&mut self, cx: &mut Context) {
        if cx.rtt.backoff() < BLACK_HOLE_TIMEOUTS - 1 {
            return;
        }
        let mss = match cx.config.mss.min(self.peer_mss()) {
            // RFC 8899 5.1.2: BASE_PLPMTU
            mss if mss > BLACK_HOLE_MSS_BYTES => BLACK_HOLE_MSS_BYTES,
            mss if mss > DEFAULT_MSS_V4_BYTES && cx.tuple.remote.is_ipv4() => DEFAULT_MSS_V4_BYTES,
            _ => return,
        };
        // what is small arrives through a black hole: then it is none
        if self.snd.outstanding() <= u64::from(mss) {
            return;
        }
        cx.counters.count().black_holes += 1;
        match cx.negotiated.sack && cx.config.mtu_probing != MtuProbing::Off {
            true => self.begin_search(cx, mss),
            false => self.limit_mss(cx, mss),
        }
    }

    /// After ten minutes the larger size is tried again (RFC 1191 6.3, RFC 8899 5.1.1:
    /// PMTU_RAISE_TIMER). If the path still does not carry it, that is found as the first time.
    #[inline]
    pub(super) fn raise_mss(&mut self, cx: &mut Context) {
        let Some(limit) = self.path.limit() else { return };
        if cx.now >= limit.raise_at && self.recovery.is_open() {
            let una = self.snd.una();
            let known = self.path.known();
            (known.limit, known.mss_since, known.is_fragmentable) = (None, una, false);
            // A search may have found more meanwhile.
            let mss = cx.config.mss.max(limit.mss);
            self.resize_segments(cx, mss);
        }
    }

    /// The segment size that the peer's SYN and our application allow, options not taken off.
    pub(crate) fn peer_mss(&self) -> u16 {
        self.snd.peer_mss().min(self.path.own().unwrap_or(u16::MAX))
    }

    /// The application bounds segments to so many bytes, options included. What the path carries
    /// beyond is not searched for.
    #[cold]
    pub(crate) fn set_own_mss(&mut self, cx: &mut Context, mss: Option<u16>) {
        self.end_mtu_probe(cx, ProbeLoss::Inconclusive);
        let known = self.path.known();
        (known.own, known.search) = (mss, None);
        match mss {
            Some(mss) if cx.state == State::SynSent => {
                let config = Arc::make_mut(&mut cx.config);
                config.mss = config.mss.min(mss);
            }
            _ if cx.state.is_synchronized() => self.set_mss(cx),
            _ => {}
        }
    }

    /// Recomputes the payload of a full segment from what both sides allow (RFC 9293 3.7.1: options
    /// taken off).
    pub(crate) fn set_mss(&mut self, cx: &mut Context) {
        let options = if cx.negotiated.timestamps { 12 } else { 0 };
        let mss = cx.config.mss.min(self.peer_mss()).max(MIN_MSS_BYTES);
        let mss = u32::from(mss - options);
        self.snd.set_mss(mss);
        self.window.mss_bytes = mss;
        // one segment may always be under way (RFC 5681 3.1)
        self.window.cwnd_bytes = self.window.cwnd_bytes.max(self.snd.mss());
        // and the window that a recovery ends with holds two (equation 4)
        self.window.ssthresh_bytes = self.window.ssthresh_bytes.max(self.window.minimum());
    }

    /// Segments of `mss` bytes from now on, and a search for what the path carries above that;
    /// nothing where link and peer take no larger ones.
    pub(super) fn begin_search(&mut self, cx: &mut Context, mss: u16) {
        let before = cx.config.mss.min(self.peer_mss());
        let most = self.path.search().map_or(before, |search| search.most);
        if mss >= most {
            return;
        }
        self.path.known().search = Some(Search::new(most, cx.now));
        self.resize_segments(cx, mss);
    }

    /// Returns whether a probe should be sent now, given segments of `mss` bytes of payload (RFC
    /// 4821 7.2: enough data, enough window for what follows it, and nothing lost or out of order).
    #[inline]
    pub(super) fn choose_mtu_probe(&mut self, cx: &mut Context, mss: u64) -> ProbeChoice {
        match self.path.search() {
            Some(search) if search.end == 0 && search.not_before <= cx.now => {
                self.consider_mtu_probe(cx, mss)
            }
            _ => ProbeChoice::No,
        }
    }

    #[inline(never)]
    fn consider_mtu_probe(&mut self, cx: &mut Context, mss: u64) -> ProbeChoice {
        let plain = matches!(cx.state, State::Established | State::CloseWait)
            && cx.negotiated.sack
            && self.recovery.is_open()
            && !self.recovery.is_probe_due()
            && self.board.sacked_bytes() + self.board.lost_bytes() == 0
            && mss == self.snd.mss();
        if !plain {
            return ProbeChoice::No;
        }
        let (low, headers) = (cx.config.mss.min(self.peer_mss()), cx.tuple.header_bytes());
        let Some(search) = self.path.search() else { return ProbeChoice::No };
        let Some(size) = search.next_size(low, headers) else {
            self.path.end_search(cx.now, low);
            return ProbeChoice::No;
        };
        if search.size != size {
            (search.size, search.lost) = (size, 0);
        }
        let len = u64::from(size) - (u64::from(low) - mss);
        let whole = len + MTU_PROBE_FOLLOWERS * mss;
        let available = self.snd.data_end() - self.snd.nxt();
        let room = self.snd.room();
        if available < whole || room < whole || self.window.cwnd_bytes < whole {
            return ProbeChoice::No;
        }
        let pipe = self.board.pipe(self.snd.una(), self.snd.nxt());
        match self.window.cwnd_bytes.saturating_sub(pipe) >= len {
            true => ProbeChoice::Probe(len),
            // something is in flight: its ACKs make room
            false => ProbeChoice::Wait,
        }
    }

    /// An ACK was taken, by which the probe may have arrived.
    #[inline]
    pub(super) fn judge_mtu_probe(&mut self, cx: &mut Context) {
        let Self { path, snd, board, .. } = self;
        if let Some(size) = path.on_probe(snd.una(), |start, end| board.is_sacked(start, end)) {
            self.resize_segments(cx, size);
        }
    }

    /// `bytes` were judged lost: whether that is the probe alone, which is then sent again in
    /// smaller segments and means nothing to congestion control (RFC 4821 7.6.1).
    pub(super) fn was_mtu_probe(&mut self, cx: &mut Context, bytes: u64) -> bool {
        let Some(search) = self.path.probe_out() else {
            return false;
        };
        let (start, end) = (search.start, search.end);
        let alone = bytes == end - start
            && self.recovery.is_open()
            && self.board.lost_bytes() == bytes
            && self.board.next_lost() == Some((start, end));
        self.end_mtu_probe(cx, if alone { ProbeLoss::Alone } else { ProbeLoss::Inconclusive });
        if alone {
            self.recovery.force_resend = true;
        }
        alone
    }

    /// The probe that is out, if one is, did not arrive.
    pub(super) fn end_mtu_probe(&mut self, cx: &mut Context, loss: ProbeLoss) {
        let window = self.window.cwnd_bytes.div_ceil(self.snd.mss().max(1));
        let epoch = cx.rtt.srtt().saturating_mul(u32::try_from(window).unwrap_or(u32::MAX));
        if let Some(search) = self.path.probe_out() {
            search.on_lost(cx.now, loss, epoch, cx.rtt.base_rto());
            cx.counters.count().mtu_probes_lost += 1;
        }
    }

    /// A router says what it takes instead of the packet with sequence number `seq`: the search
    /// need not find out.
    fn mtu_probe_refused(&mut self, cx: &mut Context, seq: SeqNumber, mss: u16) {
        let low = cx.config.mss.min(self.peer_mss());
        let iss = self.snd.iss().0;
        let Some(search) = self.path.probe_out() else {
            return;
        };
        if seq.0 != iss.wrapping_add(search.start as u32) || mss < low || mss >= search.size {
            return;
        }
        let (start, end) = (search.start, search.end);
        search.high = mss;
        self.end_mtu_probe(cx, ProbeLoss::Inconclusive);
        let bytes = self.board.mark_lost(start, end);
        trace!(cx, TRACE, "segments marked lost", bytes = bytes);
        self.recovery.force_resend = true;
    }
}
