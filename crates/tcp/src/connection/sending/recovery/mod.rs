//! Loss recovery: when something is lost (RACK, RFC 8985; duplicate ACKs, RFC 6582), and how a
//! recovery begins and ends, and what the congestion control is told. The amount sent meanwhile is
//! in `prr`, taking it back when nothing was lost in `spurious`, the probe of a tail in `probe`.

mod probe;
mod prr;
mod rack;
mod spurious;

use core::time::Duration;

use millstream_packet::Instant;

use crate::congestion::{AckSample, DeliverySample, LossSample};
use crate::connection::context::Context;
use crate::connection::sending::Sending;
use crate::connection::sending::path::ProbeLoss;
use crate::scoreboard::{Delivery, Scoreboard};
use crate::sender::Sender;
use crate::timers::Expiry;
use crate::trace::trace;
use crate::tuning::DUPLICATE_THRESHOLD;
use probe::LossProbe;
use prr::Prr;
use rack::Rack;
use spurious::{Frto, Undo};

/// Where the sender stands. Recovery and loss last until `Recovery::recover` is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery.
    Recovery,
    /// After a time-out.
    Loss,
}

/// How an ACK ended a recovery, if it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// There is none, or it goes on.
    Not,
    /// All that was outstanding when it began is acknowledged.
    Whole,
    /// Nothing was lost.
    Spurious,
}

/// State that exists from the first loss on: most connections never have it.
#[derive(Clone, Debug, Default)]
struct Episode {
    prr: Prr,
    undo: Option<Undo>,
    /// New data sent in the second step of F-RTO; two segments at most.
    frto_sent: u64,
    /// Bytes that segments sent again since the last ACK lack to full ones: a segment counts as
    /// one, however small the hole it fills, so that a peer that tells of single bytes is not sent
    /// thousands for one ACK.
    short_bytes: u64,
}

/// State of loss detection and recovery.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// `nxt` when the last recovery or time-out began (RFC 6582: recover; RFC 6675: RecoveryPoint).
    recover: u64,
    rack: Rack,
    probe: LossProbe,
    episode: Option<Box<Episode>>,
    duplicate_acks: u32,
    phase: Phase,
    /// RFC 5682: state of F-RTO after a time-out.
    frto: Frto,
    /// One segment may be sent again whatever the window says: the first of a recovery.
    pub(crate) force_resend: bool,
}

/// An ACK as recovery sees it.
#[derive(Default)]
pub(crate) struct Acked {
    pub(crate) delivery: Delivery,
    /// Cumulatively acknowledged, FIN included.
    pub(crate) acked: u64,
    /// In flight before.
    pub(crate) in_flight: u64,
    /// RFC 5681: duplicate ACK.
    pub(crate) duplicate: bool,
    /// D-SACK reported this many bytes twice received.
    pub(crate) dsack_bytes: u64,
    /// Timestamp echoed.
    pub(crate) echo: Option<u32>,
    /// It says that a mark arrived: no reason to grow (RFC 3168 6.1.2).
    pub(crate) echoed: bool,
}

impl Recovery {
    pub(crate) fn new() -> Self {
        Recovery {
            recover: 0,
            rack: Rack::new(),
            probe: LossProbe::default(),
            episode: None,
            duplicate_acks: 0,
            phase: Phase::Open,
            frto: Frto::Off,
            force_resend: false,
        }
    }

    #[inline(always)]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Nothing is known to be lost.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// The same, and no loss probe is out.
    #[inline(always)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_open() && !self.probe.is_out()
    }

    /// Nothing is to be repaired or probed for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_at_rest() && !self.is_probe_due() && !self.force_resend
    }

    fn episode(&mut self) -> &mut Episode {
        self.episode.get_or_insert_default()
    }

    /// Gives back what only a recovery needs.
    pub(crate) fn release(&mut self) {
        if self.is_open() {
            self.episode = None;
        }
    }

    /// `bytes` are sent.
    #[inline]
    pub(crate) fn on_transmit(&mut self, bytes: u64) {
        self.force_resend = false;
        match (self.phase, self.frto) {
            (Phase::Open, _) => {}
            (Phase::Recovery, _) => self.episode().prr.on_sent(bytes),
            (Phase::Loss, Frto::Second) => self.episode().frto_sent += bytes,
            _ => {}
        }
    }

    /// `bytes` from `start` on are sent again, at timestamp `ts`, in segments of `mss`.
    pub(crate) fn on_resend(&mut self, start: u64, bytes: u64, ts: u32, mss: u64) {
        let short = bytes.next_multiple_of(mss) - bytes;
        if short > 0 && !self.is_open() {
            self.episode().short_bytes += short;
        }
        if let Some(undo) = self.undo_mut() {
            undo.on_resend(start, bytes, ts);
        }
    }

    /// Window that small segments have used beyond their length since the last ACK.
    pub(crate) fn short_bytes(&self) -> u64 {
        self.episode.as_ref().map_or(0, |episode| episode.short_bytes)
    }

    fn forget_short(&mut self) {
        if let Some(episode) = self.episode.as_mut() {
            episode.short_bytes = 0;
        }
    }

    /// Counts duplicates of a peer without SACK (RFC 5681 3.2 and RFC 6582). Returns the bytes that
    /// are judged lost for them.
    fn count_duplicates(&mut self, board: &mut Scoreboard, snd: &Sender, ack: &Acked) -> u64 {
        let (una, nxt, mss) = (snd.una(), snd.nxt(), snd.mss());
        let head = (una + mss).min(nxt);
        if ack.acked > 0 {
            self.duplicate_acks = 0;
            board.take_off_duplicates(ack.acked.saturating_sub(mss));
            // RFC 6582 3.2 step 3: a partial acknowledgement means that the next segment is lost
            // too
            if self.phase == Phase::Recovery && una < self.recover {
                self.force_resend = true;
                return board.mark_lost(una, head);
            }
            if self.is_open() {
                board.forget_duplicates();
            }
            return 0;
        }
        if !ack.duplicate {
            return 0;
        }
        self.duplicate_acks += 1;
        if self.phase != Phase::Loss {
            board.on_duplicate(snd.mss());
        }
        // RFC 6582 3.2 step 2: not for duplicates of what the last time-out sent again
        if self.duplicate_acks == DUPLICATE_THRESHOLD && self.is_open() && una > self.recover {
            return board.mark_lost(una, head);
        }
        0
    }

    /// A recovery begins, with all below `nxt` outstanding: by loss that was seen, or by a
    /// time-out.
    fn begin(&mut self, phase: Phase, nxt: u64) {
        self.phase = phase;
        self.recover = nxt;
        self.force_resend = true;
        self.probe = LossProbe::default();
        self.forget_short();
    }
}

impl Sending {
    /// Runs loss detection and moves the window after an ACK that was taken into the scoreboard.
    #[inline(always)]
    pub(crate) fn on_delivery<const PLAIN: bool>(&mut self, cx: &mut Context, ack: &Acked) {
        cx.counters.delivered_bytes += ack.delivery.bytes;
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        cx.counters.measure_rate(cx.now, una, nxt, self.snd.data_end());
        if PLAIN {
            // in order, RACK waits for nothing
            self.recovery.on_delivered(cx.now, ack);
            self.grow(cx, ack, ack.acked);
        } else {
            self.judge_delivery(cx, ack);
        }
    }

    /// Finds what is lost after such an ACK, and whether that ends a recovery.
    fn judge_delivery(&mut self, cx: &mut Context, ack: &Acked) {
        if ack.echoed {
            cx.counters.rare().delivered_ce_bytes += ack.delivery.bytes;
        }
        self.recovery.forget_short();
        self.note_dsack(cx, ack.dsack_bytes);
        self.judge_probe(cx, ack);
        if ack.delivery.reordered.is_some() {
            self.recovery.rack.note_reordering();
            cx.counters.count().reorderings += 1;
            let rare = cx.counters.rare();
            rare.reordering_bytes = rare.reordering_bytes.max(ack.delivery.reordered_by);
        }
        self.judge_mtu_probe(cx);
        let (mut newly_lost, delivered);
        if cx.negotiated.sack {
            self.recovery.on_delivered(cx.now, ack);
            (newly_lost, delivered) = (self.detect_lost(cx), ack.delivery.bytes);
        } else {
            // RFC 9937 section 5: without SACK each duplicate stands for a segment, to be taken off
            // later
            delivered = match ack.acked {
                0 if ack.duplicate => self.snd.mss(),
                acked => acked.saturating_sub(self.board.duplicate_bytes()),
            };
            newly_lost = self.recovery.count_duplicates(&mut self.board, &self.snd, ack);
            if newly_lost > 0 {
                self.tell_lost(cx, newly_lost, self.board.oldest_at());
            }
        }
        let left = match self.recovery.was_timeout_spurious(ack, self.snd.una()) {
            true => self.take_back(cx),
            false => self.leave_recovery(cx, ack),
        };
        if left == Left::Spurious {
            // nothing is taken for lost any more; what RACK says of it, which waits for what may be
            // late now, holds
            self.board.forget_lost();
            newly_lost = if cx.negotiated.sack { self.detect_lost(cx) } else { 0 };
        }
        let unfinished = left == Left::Whole && self.board.awaits_lost();
        let governed = self.congestion.governs();
        match self.recovery.phase {
            Phase::Open if newly_lost > 0 || unfinished => {
                self.enter_recovery(cx, ack.acked, delivered);
            }
            _ if governed => {}
            Phase::Recovery => {
                // RFC 9937 section 5: SafeACK
                let pipe = self.board.pipe(self.snd.una(), self.snd.nxt());
                let safe = ack.acked > 0 && newly_lost == 0;
                self.recovery.reduce_proportionally(&mut self.window, pipe, delivered, safe);
            }
            // RFC 5681 3.1: by what is acknowledged cumulatively; for what is only reported others
            // leave (RFC 3042)
            Phase::Open if left == Left::Not => self.grow(cx, ack, ack.acked),
            // of what a hole held up, the rest has left the network before, and others have left
            // for it
            Phase::Open | Phase::Loss => self.grow(cx, ack, ack.acked.min(ack.delivery.bytes)),
        }
        if governed {
            self.tell_delivery(cx, ack, newly_lost);
        }
    }

    /// All that is outstanding is to be sent again, and the congestion control is not told: the
    /// network lost nothing.
    pub(super) fn send_all_again(&mut self, cx: &mut Context) {
        cx.begin_rare();
        let bytes = self.board.mark_lost(self.snd.una(), self.snd.nxt());
        trace!(cx, TRACE, "segments marked lost", bytes = bytes);
        self.recovery.force_resend = true;
    }

    /// Begins fast recovery (RFC 6675 section 5 step 4), by an ACK of `acked` bytes that says that
    /// `delivered` arrived, or without one. These were in flight when it came, and what may be sent
    /// for them was not yet: of a small window they are a large part.
    fn enter_recovery(&mut self, cx: &mut Context, acked: u64, delivered: u64) {
        self.end_mtu_probe(cx, ProbeLoss::Inconclusive);
        self.recovery.save_undo(&self.window, false);
        let flight = self.snd.outstanding() + acked;
        // RFC 5681 3.2 step 2: what limited transmit sent in place of what was reported does not
        // count
        let before = self.window.cwnd_bytes;
        let used = flight.min(before);
        self.congestion.on_congestion(&mut self.window, cx.now, used);
        self.ecn.on_reduced(self.snd.nxt());
        // RFC 9937 section 5, RecoverFS: what was selectively acknowledged before is not delivered
        // while recovering
        let to_deliver = match cx.negotiated.sack {
            true => self.snd.outstanding() - self.board.sacked_bytes() + delivered,
            false => used,
        };
        self.recovery.begin(Phase::Recovery, self.snd.nxt());
        self.recovery.episode().prr = Prr::begin(to_deliver);
        cx.counters.count().fast_recoveries += 1;
        self.believe_claim_of_lost(cx);
        if !self.congestion.governs() {
            let pipe = self.board.pipe(self.snd.una(), self.snd.nxt());
            self.recovery.reduce_proportionally(&mut self.window, pipe, delivered, false);
        }
        self.trace_window(cx, "loss", before);
    }

    /// Ends recovery where all that was outstanding when it began is acknowledged, or nothing was
    /// lost.
    fn leave_recovery(&mut self, cx: &mut Context, ack: &Acked) -> Left {
        if ack.acked == 0 {
            return Left::Not;
        }
        let whole = self.snd.una() >= self.recovery.recover;
        match self.recovery.phase {
            Phase::Recovery if whole => {
                // RFC 9937 section 5: at the end of recovery
                if self.recovery.was_spurious(ack, self.snd.una(), self.board.lost_bytes()) {
                    self.undo(cx);
                } else if !self.congestion.governs() {
                    self.window.cwnd_bytes = self.window.ssthresh_bytes;
                }
                self.open();
                Left::Whole
            }
            Phase::Loss if whole => {
                self.open();
                Left::Whole
            }
            Phase::Recovery | Phase::Loss
                if self.recovery.was_spurious(ack, self.snd.una(), self.board.lost_bytes()) =>
            {
                self.take_back(cx)
            }
            _ => Left::Not,
        }
    }

    /// Ends recovery, as nothing was lost.
    fn take_back(&mut self, cx: &mut Context) -> Left {
        self.undo(cx);
        self.open();
        Left::Spurious
    }

    fn open(&mut self) {
        if self.congestion.governs() {
            self.congestion.on_recovered(&mut self.window);
        }
        self.recovery.phase = Phase::Open;
        self.recovery.duplicate_acks = 0;
        self.recovery.force_resend = false;
        self.recovery.frto = Frto::Off;
        self.board.forget_duplicates();
    }

    /// The retransmission timer expired (RFC 5681 3.1 equation 4, RFC 6675 5.1).
    pub(super) fn enter_loss(&mut self, cx: &mut Context) {
        self.end_mtu_probe(cx, ProbeLoss::TimedOut);
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        let before = self.window.cwnd_bytes;
        let first = self.recovery.phase != Phase::Loss || una > self.recovery.recover;
        if self.board.has_peer_reneged(una, nxt) {
            self.board.forget_sacked();
        }
        // RFC 5682 2.1 step 1: only where nothing of this was sent again before
        let frto = first && self.recovery.is_open() && una > self.recovery.recover;
        if first {
            cx.counters.count().timeout_recoveries += 1;
            self.recovery.save_undo(&self.window, true);
            self.congestion.on_timeout(&mut self.window, cx.now, nxt - una);
            self.ecn.on_reduced(self.snd.nxt());
        }
        let newly = self.board.mark_all_lost(una, nxt);
        self.tell_lost(cx, newly, self.board.oldest_at());
        self.window.cwnd_bytes = self.snd.mss();
        self.trace_window(cx, "time-out", before);
        let recovery = &mut self.recovery;
        recovery.begin(Phase::Loss, nxt);
        recovery.frto = if frto { Frto::First } else { Frto::Off };
        recovery.duplicate_acks = 0;
        recovery.rack.wear();
    }

    /// The congestion window was `before`, and `cause` changed it.
    fn trace_window(&self, cx: &Context, cause: &'static str, before: u64) {
        let control = self.congestion.metrics(&self.window);
        trace!(
            cx,
            DEBUG,
            "congestion window",
            cause = cause,
            before_bytes = before,
            cwnd_bytes = control.cwnd_bytes,
            ssthresh_bytes = control.ssthresh_bytes,
            phase = control.phase
        );
    }

    /// Tells a controller that governs the window what was judged lost.
    fn tell_lost(&mut self, cx: &mut Context, bytes: u64, sent_at: Option<Instant>) {
        trace!(cx, TRACE, "segments marked lost", bytes = bytes);
        if self.congestion.governs() {
            let loss = LossSample { now: cx.now, bytes, sent_at, sack: cx.negotiated.sack };
            self.congestion.on_lost(&mut self.window, &loss);
        }
    }

    fn tell_delivery(&mut self, cx: &mut Context, ack: &Acked, lost_bytes: u64) {
        let delivery = &ack.delivery;
        let sack = cx.negotiated.sack;
        let sample = DeliverySample {
            now: cx.now,
            bytes: delivery.bytes,
            lost_bytes,
            // without SACK, an ACK of something sent again stands for more than arrived with it
            newest_at: delivery.newest.filter(|n| sack || !n.resent).map(|n| n.at),
            oldest_at: self.board.oldest_at(),
            rtt: delivery.timed().map(|at| cx.now.saturating_duration_since(at)),
            min_rtt: cx.rtt.min_rtt().unwrap_or_default(),
            in_flight_bytes: self.board.pipe(self.snd.una(), self.snd.nxt()),
            cwnd_limited: self.snd.is_cwnd_limited,
            recovering: !self.recovery.is_open(),
            sack,
        };
        self.congestion.on_delivery(&mut self.window, &sample);
    }

    /// Has the congestion control see that `bytes` more have arrived. RFC 5681 3.1 and RFC 7661:
    /// only a window that is used may grow, and in slow start one half used.
    #[inline(always)]
    fn grow(&mut self, cx: &mut Context, ack: &Acked, bytes: u64) {
        if bytes == 0 || ack.echoed {
            return;
        }
        let is_half_used = ack.in_flight * 2 > self.window.cwnd_bytes;
        let rtt = cx.rtt.latest();
        let sample = AckSample {
            now: cx.now,
            acked_bytes: bytes,
            in_flight_bytes: ack.in_flight,
            cwnd_limited: self.snd.is_cwnd_limited || self.window.in_slow_start() && is_half_used,
            rtt: (!rtt.is_zero()).then_some(rtt),
            srtt: cx.rtt.srtt(),
            una: self.snd.una(),
            nxt: self.snd.nxt(),
        };
        self.congestion.on_ack(&mut self.window, &sample);
    }

    /// RFC 8985 6.2 step 5. Arms the reordering timer when something is to be judged later.
    fn detect_lost(&mut self, cx: &mut Context) -> u64 {
        let Rack { newest, rtt_ns, .. } = self.recovery.rack;
        if newest.1 == 0 {
            return 0;
        }
        let late = self.recovery.reordering_window(&self.board, self.snd.mss(), &cx.rtt);
        let wait = Duration::from_nanos(rtt_ns) + late;
        let judged = self.board.detect_lost(newest, wait, cx.now);
        if let Some(at) = judged.again {
            cx.timers.arm_retransmit(at, Expiry::Reorder);
        }
        if judged.bytes > 0 && self.was_mtu_probe(cx, judged.bytes) {
            return 0;
        }
        if judged.bytes > 0 {
            self.tell_lost(cx, judged.bytes, judged.sent_at);
        }
        judged.bytes
    }

    /// Nothing new has arrived; time has passed.
    pub(crate) fn judge_by_time(&mut self, cx: &mut Context) {
        let newly = self.detect_lost(cx);
        if newly > 0 && self.recovery.is_open() {
            self.enter_recovery(cx, 0, 0);
        }
    }

    /// Takes the last congestion event back (RFC 4015 section 3.2). What fast recovery took for
    /// lost was late: from now on RACK waits for what is (as Linux; RFC 8985 6.2 step 3 cannot see
    /// it, where all that is late is sent again).
    fn undo(&mut self, cx: &mut Context) {
        let before = self.window.cwnd_bytes;
        if !self.recovery.restore(&mut self.window) {
            return;
        }
        self.congestion.on_undo();
        self.trace_window(cx, "nothing was lost", before);
        cx.counters.count().spurious_recoveries += 1;
    }

    /// RFC 2883 and RFC 3708: what was sent again arrived twice.
    pub(super) fn note_dsack(&mut self, cx: &mut Context, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let stats = cx.counters.count();
        stats.dsacks_in += 1;
        stats.spurious_bytes += bytes;
        cx.rtt.sent_in_vain();
        if self.recovery.was_all_in_vain(bytes, &self.snd) {
            self.take_back(cx);
        }
    }

    /// Takes one congestion response where a loss probe repaired a loss (RFC 8985 7.4).
    pub(super) fn judge_probe(&mut self, cx: &mut Context, ack: &Acked) {
        if self.recovery.has_probe_repaired(ack, self.snd.una()) && self.recovery.is_open() {
            let before = self.window.cwnd_bytes;
            self.congestion.on_congestion(&mut self.window, cx.now, ack.in_flight);
            self.window.cwnd_bytes = self.window.cwnd_bytes.min(self.window.ssthresh_bytes);
            self.trace_window(cx, "loss that a probe repaired", before);
            self.ecn.on_reduced(self.snd.nxt());
        }
    }

    /// An acceptable ACK up to `ack` carries ECE (RFC 3168 6.1.2): reduces as for loss, at most
    /// once a window. `in_flight` is what was in flight before it.
    pub(super) fn ecn_take_echo(&mut self, cx: &mut Context, ack: u64, in_flight: u64) {
        if !self.ecn.is_answered(ack) {
            return;
        }
        if self.recovery.is_open() {
            let before = self.window.cwnd_bytes;
            self.congestion.on_mark(&mut self.window, cx.now, in_flight);
            self.window.cwnd_bytes = self.window.cwnd_bytes.min(self.window.ssthresh_bytes);
            self.trace_window(cx, "congestion mark", before);
            self.recovery.forget_undo();
            cx.counters.count().ecn_reductions += 1;
        }
        self.ecn.on_reduced(self.snd.nxt());
    }
}
