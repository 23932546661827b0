//! Congestion that was none: Eifel (RFC 3522, RFC 4015), D-SACK (RFC 2883, RFC 3708) and F-RTO (RFC
//! 5682) tell that nothing was lost, and the reduction is taken back.

use super::{Acked, Phase, Recovery};
use crate::congestion::Window;
use crate::sender::Sender;

/// The window to restore when a congestion event turns out to be none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    cwnd_bytes: u64,
    ssthresh_bytes: u64,
    /// Offset and timestamp of the first retransmission.
    first_resend: Option<(u64, u32)>,
    /// Bytes sent again and not reported as duplicates yet.
    resent_bytes: u64,
    /// It was a time-out: if it was none, something took long, and nothing came in another order.
    timeout: bool,
}

impl Undo {
    /// `bytes` from `start` on are sent again, at timestamp `ts`.
    pub(super) fn on_resend(&mut self, start: u64, bytes: u64, ts: u32) {
        self.resent_bytes += bytes;
        self.first_resend.get_or_insert((start, ts));
    }
}

/// Where F-RTO stands after a time-out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frto {
    Off,
    /// The first retransmission is on its way; the next ACK decides what comes.
    First,
    /// New data was sent; an ACK for anything not sent again proves the time-out spurious.
    Second,
}

impl Recovery {
    fn undo(&self) -> Option<Undo> {
        self.episode.as_ref()?.undo
    }

    pub(super) fn undo_mut(&mut self) -> Option<&mut Undo> {
        self.episode.as_mut()?.undo.as_mut()
    }

    /// Remembers the window as it is before a reduction.
    pub(super) fn save_undo(&mut self, window: &Window, timeout: bool) {
        self.episode().undo = Some(Undo {
            cwnd_bytes: window.cwnd_bytes,
            ssthresh_bytes: window.ssthresh_bytes,
            first_resend: None,
            resent_bytes: 0,
            timeout,
        });
    }

    /// RFC 3522: the ACK of the first segment sent again echoes a time before that. Only the ACK
    /// that moves on from that very segment, to `una`, tells: another may answer what an earlier
    /// recovery sent again. `lost_bytes` are taken for lost now.
    pub(super) fn was_spurious(&self, ack: &Acked, una: u64, lost_bytes: u64) -> bool {
        let Some(undo) = self.undo() else { return false };
        if undo.first_resend.is_none() {
            // all that seemed lost arrived before it could be sent again (as Linux)
            return ack.acked > 0 && lost_bytes == 0;
        }
        let (Some((start, ts)), Some(echo)) = (undo.first_resend, ack.echo) else { return false };
        ack.acked > 0 && start == una - ack.acked && (echo.wrapping_sub(ts) as i32) < 0
    }

    /// The window was reduced for another reason; what went before is not returned to.
    pub(super) fn forget_undo(&mut self) {
        if let Some(episode) = self.episode.as_mut() {
            episode.undo = None;
        }
    }

    /// Puts the window back to what it was before the last congestion event. What fast recovery
    /// took for lost was late. Returns false where nothing was remembered.
    pub(super) fn restore(&mut self, window: &mut Window) -> bool {
        let Some(undo) = self.episode.as_mut().and_then(|episode| episode.undo.take()) else {
            return false;
        };
        window.cwnd_bytes = window.cwnd_bytes.max(undo.cwnd_bytes);
        window.ssthresh_bytes = window.ssthresh_bytes.max(undo.ssthresh_bytes);
        if !undo.timeout {
            self.rack.note_reordering();
        }
        true
    }

    /// RFC 2883 and RFC 3708: `bytes` more arrived twice. Returns whether by that all that was sent
    /// again since the last reduction was in vain.
    pub(super) fn was_all_in_vain(&mut self, bytes: u64, snd: &Sender) -> bool {
        // RFC 8985 6.2 step 4: a wider window after a spurious retransmission, once a round trip
        if !self.has_resent_probe() {
            self.rack.widen(snd.una(), snd.nxt());
        }
        let Some(undo) = self.undo_mut().filter(|undo| undo.resent_bytes > 0) else {
            return false;
        };
        undo.resent_bytes = undo.resent_bytes.saturating_sub(bytes);
        undo.resent_bytes == 0
    }

    /// RFC 5682 section 2.1 (and 3.1 with SACK): whether an ACK up to `una` shows that the time-out
    /// was spurious.
    pub(super) fn was_timeout_spurious(&mut self, ack: &Acked, una: u64) -> bool {
        if self.phase != Phase::Loss {
            return false;
        }
        match self.frto {
            Frto::Off => {}
            _ if ack.acked == 0
                && (ack.duplicate || ack.delivery.bytes > 0)
                && ack.delivery.spurious_bytes == 0 =>
            {
                // step 2a, 3a: a duplicate ACK; recover as usual
                self.frto = Frto::Off;
            }
            Frto::First if ack.acked > 0 && una < self.recover => {
                // step 2b: send new data instead of sending more again
                self.frto = Frto::Second;
                self.episode().frto_sent = 0;
            }
            Frto::Second if ack.delivery.spurious_bytes > 0 => {
                // step 3b: something arrived that was not sent again
                self.frto = Frto::Off;
                return true;
            }
            Frto::Second if ack.acked > 0 => {
                // step 3: it acknowledges nothing but what was sent again, and says no more;
                // recover as usual
                self.frto = Frto::Off;
            }
            _ => {}
        }
        false
    }

    /// There was no new data to send: F-RTO cannot tell (RFC 5682 2.1 step 2b).
    pub(crate) fn give_up_frto(&mut self) {
        self.frto = Frto::Off;
    }

    /// New data to be sent as F-RTO asks, instead of what is marked lost (RFC 5682 2.1 step 2b):
    /// bytes left of two segments.
    pub(crate) fn new_data_for_frto(&self, mss: u64) -> Option<u64> {
        match (self.frto, &self.episode) {
            (Frto::Second, Some(episode)) => Some((2 * mss).saturating_sub(episode.frto_sent)),
            _ => None,
        }
    }
}
