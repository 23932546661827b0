//! A connection in TIME-WAIT (RFC 9293 3.10.7.4), as long as somebody holds it.

use millstream_packet::Instant;
use millstream_wire::tcp::{SeqNumber, TcpHeader};

use crate::connection::Connection;
use crate::connection::context::Context;
use crate::state::State;
use crate::stats::TcpDrop;
use crate::time_wait::{Effect, TimeWait, above, begins_anew, effect};

impl Connection {
    /// Returns what of a connection in TIME-WAIT has to be kept once nobody reads from it, and when
    /// that wait is over. None in other states, and while something is still to be sent.
    pub fn time_wait(&self) -> Option<(TimeWait, Instant)> {
        let Context { config, negotiated, .. } = &self.cx;
        let (snd, rcv) = (&self.sending.snd, &self.receiving.rcv);
        if self.cx.state != State::TimeWait
            || self.receiving.ack.is_at_once()
            || self.sending.reset_due.is_some()
        {
            return None;
        }
        let until = self.cx.timers.close_at()?;
        let window = rcv.window_bytes() >> rcv.shift();
        let (challenge_second, challenges) = self.cx.counters.challenges();
        let wait = TimeWait {
            quiet_since: self.cx.now,
            snd_nxt: snd.seq(snd.nxt()),
            rcv_nxt: rcv.next_seq(),
            ts_recent: rcv.ts_recent.value(),
            ts_offset: snd.ts_offset(),
            time_wait_ms: config.time_wait_ms,
            challenge_second,
            window: u16::try_from(window).unwrap_or(u16::MAX),
            challenges,
            timestamps: negotiated.timestamps,
        };
        Some((wait, until))
    }

    /// RFC 9293 3.10.7.4.
    pub(super) fn on_segment_time_wait(&mut self, header: &TcpHeader, payload_len: usize) {
        self.cx.counters.segments_in += 1;
        self.cx.discard(TcpDrop::TimeWait);
        let recent = self.cx.negotiated.timestamps.then_some(self.receiving.rcv.ts_recent.value());
        match effect(header, payload_len, self.receiving.rcv.next_seq(), recent) {
            Effect::None => {}
            // nothing was under way: no error
            Effect::Reset => self.finish(None),
            Effect::Fin => {
                self.cx.timers.arm_close(self.cx.now + self.cx.config.time_wait());
                self.receiving.ack.send_at_once();
            }
            Effect::Challenge => self.receiving.challenge(&mut self.cx),
        }
    }

    /// Returns whether a SYN for this pair of ends, while it is in TIME-WAIT, may begin a new
    /// connection at once. As [`TimeWait::may_reuse`].
    pub fn may_reuse(&self, syn: &TcpHeader, timestamps: bool) -> bool {
        let recent = self.cx.negotiated.timestamps.then_some(self.receiving.rcv.ts_recent.value());
        self.cx.state == State::TimeWait
            && begins_anew(syn, self.receiving.rcv.next_seq(), recent, timestamps)
    }

    /// As [`TimeWait::next_isn`].
    pub fn next_isn(&self, isn: SeqNumber) -> SeqNumber {
        above(self.sending.snd.seq(self.sending.snd.nxt()), isn)
    }
}
