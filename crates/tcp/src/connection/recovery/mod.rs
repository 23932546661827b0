//! Loss recovery: when something is lost (RACK, RFC 8985; duplicate ACKs, RFC 6582), and how a
//! recovery begins and ends. The amount sent meanwhile is in `prr`, taking it back when nothing was
//! lost in `spurious`, the probe of a tail in `probe`, what the congestion control is told in
//! `growth`.

mod growth;
mod probe;
mod prr;
mod rack;
mod spurious;

use millstream_packet::Instant;

use crate::connection::Connection;
use crate::connection::path::ProbeLoss;
use crate::scoreboard::{Delivery, Scoreboard};
use crate::sender::Sender;
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
    force_resend: bool,
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
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_open() && !self.probe.is_out()
    }

    /// Nothing is to be repaired or probed for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_at_rest() && !self.is_probe_due() && !self.force_resend
    }

    /// One segment may be sent again whatever the window says.
    #[inline(always)]
    pub(crate) fn forces_resend(&self) -> bool {
        self.force_resend
    }

    /// From now on until something is sent.
    pub(crate) fn force_resend(&mut self) {
        self.force_resend = true;
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
        let (una, nxt, mss) = (snd.una(), snd.nxt(), u64::from(snd.mss()));
        let head = (una + mss).min(nxt);
        if ack.acked > 0 {
            self.duplicate_acks = 0;
            board.take_off_duplicates(ack.acked.saturating_sub(mss));
            // RFC 6582 3.2 step 3: a partial acknowledgement means that the next segment is lost
            // too
            if self.phase == Phase::Recovery && una < self.recover {
                self.force_resend();
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

impl Connection {
    /// Runs loss detection and moves the window after an ACK that was taken into the scoreboard.
    #[inline(always)]
    pub(crate) fn on_delivery<const PLAIN: bool>(&mut self, now: Instant, ack: &Acked) {
        self.counters.delivered_bytes += ack.delivery.bytes;
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        self.counters.measure_rate(now, una, nxt, self.snd.data_end());
        if PLAIN {
            // in order, RACK waits for nothing
            self.recovery.on_delivered(now, ack);
            self.grow(now, ack, ack.acked);
        } else {
            self.judge_delivery(now, ack);
        }
    }

    /// Finds what is lost after such an ACK, and whether that ends a recovery.
    fn judge_delivery(&mut self, now: Instant, ack: &Acked) {
        if ack.echoed {
            self.counters.rare().delivered_ce_bytes += ack.delivery.bytes;
        }
        self.recovery.forget_short();
        self.note_dsack(ack.dsack_bytes);
        self.end_probe(now, ack);
        if ack.delivery.reordered.is_some() {
            self.recovery.rack.note_reordering();
            self.counters.count().reorderings += 1;
            let rare = self.counters.rare();
            rare.reordering_bytes = rare.reordering_bytes.max(ack.delivery.reordered_by);
        }
        self.judge_mtu_probe();
        let (mut newly_lost, delivered);
        if self.negotiated.sack {
            self.recovery.on_delivered(now, ack);
            (newly_lost, delivered) = (self.detect_lost(now), ack.delivery.bytes);
        } else {
            // RFC 9937 section 5: without SACK each duplicate stands for a segment, to be taken off
            // later
            delivered = match ack.acked {
                0 if ack.duplicate => u64::from(self.snd.mss()),
                acked => acked.saturating_sub(self.board.duplicate_bytes()),
            };
            newly_lost = self.recovery.count_duplicates(&mut self.board, &self.snd, ack);
            if newly_lost > 0 {
                self.tell_lost(now, newly_lost, self.board.oldest_at());
            }
        }
        let left = match self.judge_timeout(ack) {
            true => Left::Spurious,
            false => self.leave_recovery(ack),
        };
        if left == Left::Spurious {
            // nothing is taken for lost any more; what RACK says of it, which waits for what may be
            // late now, holds
            self.board.forget_lost();
            newly_lost = if self.negotiated.sack { self.detect_lost(now) } else { 0 };
        }
        let unfinished = left == Left::Whole && self.board.awaits_lost();
        let governed = self.congestion.governs();
        match self.recovery.phase {
            Phase::Open if newly_lost > 0 || unfinished => {
                self.enter_recovery(now, ack.acked, delivered);
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
            Phase::Open if left == Left::Not => self.grow(now, ack, ack.acked),
            // of what a hole held up, the rest has left the network before, and others have left
            // for it
            Phase::Open | Phase::Loss => self.grow(now, ack, ack.acked.min(ack.delivery.bytes)),
        }
        if governed {
            self.tell_delivery(now, ack, newly_lost);
        }
    }

    /// All that is outstanding is to be sent again, and the congestion control is not told: the
    /// network lost nothing.
    pub(crate) fn send_all_again(&mut self) {
        self.begin_rare();
        let bytes = self.board.mark_lost(self.snd.una(), self.snd.nxt());
        trace!(self, TRACE, "segments marked lost", bytes = bytes);
        self.recovery.force_resend();
    }

    /// Begins fast recovery (RFC 6675 section 5 step 4), by an ACK of `acked` bytes that says that
    /// `delivered` arrived, or without one. These were in flight when it came, and what may be sent
    /// for them was not yet: of a small window they are a large part.
    pub(crate) fn enter_recovery(&mut self, now: Instant, acked: u64, delivered: u64) {
        self.end_mtu_probe(now, ProbeLoss::Inconclusive);
        self.recovery.save_undo(&self.window, false);
        let flight = self.snd.outstanding() + acked;
        // RFC 5681 3.2 step 2: what limited transmit sent in place of what was reported does not
        // count
        let before = self.window.cwnd_bytes;
        let used = flight.min(before);
        self.congestion.on_congestion(&mut self.window, now, used);
        self.ecn.on_reduced(self.snd.nxt());
        // RFC 9937 section 5, RecoverFS: what was selectively acknowledged before is not delivered
        // while recovering
        let to_deliver = match self.negotiated.sack {
            true => self.snd.outstanding() - self.board.sacked_bytes() + delivered,
            false => used,
        };
        self.recovery.begin(Phase::Recovery, self.snd.nxt());
        self.recovery.episode().prr = Prr::begin(to_deliver);
        self.counters.count().fast_recoveries += 1;
        self.believe_claim_of_lost(now);
        if !self.congestion.governs() {
            let pipe = self.board.pipe(self.snd.una(), self.snd.nxt());
            self.recovery.reduce_proportionally(&mut self.window, pipe, delivered, false);
        }
        self.trace_window("loss", before);
    }

    /// Ends recovery where all that was outstanding when it began is acknowledged, or nothing was
    /// lost.
    fn leave_recovery(&mut self, ack: &Acked) -> Left {
        if ack.acked == 0 {
            return Left::Not;
        }
        let whole = self.snd.una() >= self.recovery.recover;
        match self.recovery.phase {
            Phase::Recovery if whole => {
                // RFC 9937 section 5: at the end of recovery
                if self.recovery.was_spurious(ack, self.snd.una(), self.board.lost_bytes()) {
                    self.undo();
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
                self.undo();
                self.open();
                Left::Spurious
            }
            _ => Left::Not,
        }
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
    pub(crate) fn enter_loss(&mut self, now: Instant) {
        self.end_mtu_probe(now, ProbeLoss::TimedOut);
        let (una, nxt) = (self.snd.una(), self.snd.nxt());
        let before = self.window.cwnd_bytes;
        let first = self.recovery.phase != Phase::Loss || una > self.recovery.recover;
        if self.board.has_peer_reneged(una, nxt) {
            self.board.forget_sacked();
        }
        // RFC 5682 2.1 step 1: only where nothing of this was sent again before
        let frto = first && self.recovery.is_open() && una > self.recovery.recover;
        if first {
            self.counters.count().timeout_recoveries += 1;
            self.recovery.save_undo(&self.window, true);
            self.congestion.on_timeout(&mut self.window, now, nxt - una);
            self.ecn.on_reduced(self.snd.nxt());
        }
        let newly = self.board.mark_all_lost(una, nxt);
        self.tell_lost(now, newly, self.board.oldest_at());
        self.window.cwnd_bytes = u64::from(self.snd.mss());
        self.trace_window("time-out", before);
        let recovery = &mut self.recovery;
        recovery.begin(Phase::Loss, nxt);
        recovery.frto = if frto { Frto::First } else { Frto::Off };
        recovery.duplicate_acks = 0;
        recovery.rack.wear();
    }
}
