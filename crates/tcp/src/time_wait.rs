//! TIME-WAIT (RFC 9293 3.10.7.4): what old segments meet there, and who may come before it is over.

use millstream_packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use core::time::Duration;

use crate::config::FourTuple;
use crate::tuning::{CHALLENGE_ACKS_PER_S, TIME_WAIT_REUSE_MS};

/// A new incarnation begins this far above the old one's numbers: beyond any window without
/// scaling.
const REUSE_DISTANCE: usize = 65_537;

/// A connection in TIME-WAIT that nobody holds any more: numbers to answer old segments with.
///
/// The owner keeps the two ends and the time at which it is over.
#[derive(Clone, Debug)]
pub struct TimeWait {
    /// When the connection last said something, or after that.
    pub(crate) quiet_since: Instant,
    pub(crate) snd_nxt: SeqNumber,
    pub(crate) rcv_nxt: SeqNumber,
    pub(crate) ts_recent: u32,
    pub(crate) ts_offset: u32,
    pub(crate) time_wait_ms: u32,
    pub(crate) challenge_second: u32,
    pub(crate) window: u16,
    pub(crate) challenges: u8,
    pub(crate) timestamps: bool,
}

/// Effect of a segment in TIME-WAIT.
pub(crate) enum Effect {
    None,
    /// The peer's FIN again: our ACK was lost, and the wait begins anew.
    Fin,
    /// It is answered, within limits (RFC 5961 section 7).
    Challenge,
    /// The peer knows nothing of the connection any more: the wait is over.
    Reset,
}

/// Outcome of a segment for the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It goes on.
    GoesOn,
    /// It begins anew.
    BeginsAnew,
    /// It is over: a reset came.
    Over,
}

/// In TIME-WAIT a retransmitted FIN has an effect, and a RST at exactly `rcv_nxt`, as one is that
/// answers our ACK to a new SYN (RFC 9293 3.10.7.4). Old duplicates (RFC 1337) have other numbers,
/// or a timestamp before `ts_recent`.
pub(crate) fn effect(
    header: &TcpHeader,
    payload_len: usize,
    rcv_nxt: SeqNumber,
    ts_recent: Option<u32>,
) -> Effect {
    if header.flags.rst() {
        let is_old = match (header.options.timestamps, ts_recent) {
            (Some(timestamps), Some(recent)) => (timestamps.value.wrapping_sub(recent) as i32) < 0,
            _ => false,
        };
        return if header.seq == rcv_nxt && !is_old { Effect::Reset } else { Effect::None };
    }
    let end = header.seq + payload_len + usize::from(header.flags.fin());
    // fifth: one without ACK is nobody's FIN again
    if header.flags.fin() && header.flags.ack() && end == rcv_nxt {
        return Effect::Fin;
    }
    // what is new to it is answered, be it a FIN; without an ACK it is nobody's
    let is_empty = payload_len == 0 && !header.flags.syn();
    let acceptable =
        header.seq == rcv_nxt && is_empty && !(header.flags.fin() && header.flags.ack());
    if acceptable { Effect::None } else { Effect::Challenge }
}

/// Returns whether `syn` begins a new connection (RFC 6191 section 2): by a later timestamp, by the
/// first one, which old segments lack (RFC 7323 3.2), or by a sequence number above the old ones
/// (RFC 9293 3.6.1). `ts_recent` is the last timestamp of the peer, if there were any; with
/// `granted` the new connection may have them.
pub(crate) fn begins_anew(
    syn: &TcpHeader,
    rcv_nxt: SeqNumber,
    ts_recent: Option<u32>,
    granted: bool,
) -> bool {
    let flags = syn.flags;
    if !flags.syn() || flags.ack() || flags.rst() {
        return false;
    }
    match (syn.options.timestamps.filter(|_| granted), ts_recent) {
        (Some(_), None) => true,
        (Some(timestamps), Some(recent)) if timestamps.value != recent => {
            timestamps.value.wrapping_sub(recent) as i32 > 0
        }
        _ => syn.seq.gt(rcv_nxt),
    }
}

impl TimeWait {
    /// Takes a segment between the two ends. Returns the answer, if it gets one, and what becomes
    /// of the wait of [`duration`](Self::duration).
    pub fn on_segment(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        header: &TcpHeader,
        payload_len: usize,
    ) -> (Option<TcpHeader>, Wait) {
        let recent = self.timestamps.then_some(self.ts_recent);
        match effect(header, payload_len, self.rcv_nxt, recent) {
            Effect::None => (None, Wait::GoesOn),
            Effect::Reset => (None, Wait::Over),
            Effect::Fin => (Some(self.ack(now, tuple)), Wait::BeginsAnew),
            Effect::Challenge => {
                let second = (now.as_nanos() / 1_000_000_000) as u32;
                if self.challenge_second != second {
                    (self.challenge_second, self.challenges) = (second, 0);
                }
                let allowed = self.challenges < CHALLENGE_ACKS_PER_S;
                self.challenges += u8::from(allowed);
                (allowed.then(|| self.ack(now, tuple)), Wait::GoesOn)
            }
        }
    }

    fn ack(&mut self, now: Instant, tuple: FourTuple) -> TcpHeader {
        self.quiet_since = now;
        let value = ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.ts_offset);
        let timestamps = Timestamps { value, echo: self.ts_recent };
        TcpHeader {
            src_port: tuple.local.port(),
            dst_port: tuple.remote.port(),
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: TcpFlags::ACK,
            window: self.window,
            options: TcpOptions {
                timestamps: self.timestamps.then_some(timestamps),
                ..TcpOptions::default()
            },
            ..TcpHeader::default()
        }
    }

    /// Returns the length of the wait: two maximum segment lifetimes.
    pub fn duration(&self) -> Duration {
        Duration::from_millis(u64::from(self.time_wait_ms))
    }

    /// Returns whether `syn` may begin a new connection at once, with timestamps if `timestamps`
    /// grants them. The owner then drops this and treats the SYN as for a listener, answering from
    /// [`next_isn`](Self::next_isn).
    pub fn may_reuse(&self, syn: &TcpHeader, timestamps: bool) -> bool {
        begins_anew(syn, self.rcv_nxt, self.timestamps.then_some(self.ts_recent), timestamps)
    }

    /// Returns whether a new connection may be opened from here at once: the peer can tell it from
    /// the old one by later timestamps (RFC 6191 section 2, RFC 7323 appendix B.2), the last of
    /// which is a second old.
    pub fn may_connect(&self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.quiet_since);
        self.timestamps && quiet >= Duration::from_millis(TIME_WAIT_REUSE_MS)
    }

    /// The initial number for a new connection between these ends, `isn` if that is above the old
    /// ones (RFC 9293 3.6.1).
    pub fn next_isn(&self, isn: SeqNumber) -> SeqNumber {
        above(self.snd_nxt, isn)
    }
}

pub(crate) fn above(snd_nxt: SeqNumber, isn: SeqNumber) -> SeqNumber {
    if isn.gt(snd_nxt) { isn } else { snd_nxt + REUSE_DISTANCE }
}

// Tens of thousands of these are kept for a minute.
const _: () = assert!(size_of::<TimeWait>() <= 40);

#[cfg(test)]
#[path = "tests/time_wait.rs"]
mod tests;
