//! Explicit congestion notification (RFC 3168): negotiation, the echo of marks, and the answer to an echo.
//!
//! ```text
//!   sender                    router            receiver
//!   data, ECT(0)    ------->  marks CE ------>  owes the echo
//!   reduces once    <-------  ACK, ECE <------  repeats it on every ACK
//!   data, CWR       ------------------------->  stops
//! ```

use millstream_packet::Instant;
use millstream_wire::tcp::{TcpFlags, TcpHeader};

use crate::config::EcnMode;
use crate::connection::Connection;

/// ECN-capable transport, the codepoint senders use (RFC 3168 section 5).
pub(crate) const ECT_0: u8 = 0b10;
/// Congestion experienced.
const CE: u8 = 0b11;

/// State of both halves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ecn {
    /// Both SYNs agreed: marks are echoed and echoes answered.
    pub(crate) agreed: bool,
    /// Data is sent as ECN-capable.
    capable: bool,
    /// The last SYN sent asked for it.
    asked: bool,
    /// A mark arrived and the peer has not said CWR since.
    echo: bool,
    /// The window was reduced; the next new data says so.
    cwr_due: bool,
    /// Echoes are not answered again until this is acknowledged: once a window (RFC 3168 6.1.2).
    high: u64,
}

const SETUP: TcpFlags = TcpFlags::ECE.union(TcpFlags::CWR);

impl Connection {
    /// Flags of a SYN or SYN-ACK sent now (RFC 3168 6.1.1).
    pub(crate) fn ecn_syn_flags(&mut self, answering: bool) -> TcpFlags {
        if answering {
            return if self.ecn.agreed { TcpFlags::ECE } else { TcpFlags::NONE };
        }
        // RFC 3168 6.1.1.1: what got no answer may have been dropped for asking
        let ask = self.config.ecn == EcnMode::Request && self.snd.syn_retransmits() == 0;
        self.ecn.asked = ask;
        if ask { SETUP } else { TcpFlags::NONE }
    }

    /// Takes what the peer's SYN or SYN-ACK says.
    pub(crate) fn ecn_take_syn(&mut self, syn: &TcpHeader) {
        let bits = (syn.flags.ece(), syn.flags.cwr());
        let agreed = if syn.flags.ack() {
            // RFC 3168 6.1.1: both bits in a SYN-ACK come from a host that reflects what it does not know
            self.ecn.asked && bits == (true, false)
        } else {
            // our own SYN, in a simultaneous open, must have asked too
            let willing = self.passive || self.ecn.asked;
            self.config.ecn != EcnMode::Off && willing && bits == (true, true)
        };
        self.ecn.agreed = agreed;
        self.ecn.capable = agreed;
    }

    /// The peer's SYN again. One that does not ask any more means that our data must not be marked
    /// (RFC 3168 6.1.1).
    pub(crate) fn ecn_take_syn_again(&mut self, syn: &TcpHeader) {
        self.ecn.capable &= syn.flags.contains(SETUP);
    }

    /// Data within the window arrived with `codepoint` in its IP header (RFC 3168 6.1.3).
    #[inline]
    pub(crate) fn ecn_take_data(&mut self, header: &TcpHeader, codepoint: u8) {
        self.ecn_take_mark(header.flags.cwr(), codepoint);
    }

    /// The same for data with CWR or without.
    #[inline]
    pub(crate) fn ecn_take_mark(&mut self, cwr: bool, codepoint: u8) {
        if !self.ecn.agreed {
            return;
        }
        if cwr {
            self.ecn.echo = false;
        }
        if codepoint & CE == CE {
            self.counters.rare().ce_segments_in += 1;
            // the first mark is told at once; it is what the sender waits for
            if !self.ecn.echo {
                self.ack.send_at_once();
            }
            self.ecn.echo = true;
        }
    }

    /// Flag of every segment with an ACK (RFC 3168 6.1.3).
    #[inline]
    pub(crate) fn ecn_ack_flags(&self) -> TcpFlags {
        if self.ecn.echo { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// Codepoint and flags of a segment with data. Only new data is ECN-capable (RFC 3168 6.1.4, 6.1.5): what is
    /// sent again is not, nor what carries no data.
    #[inline]
    pub(crate) fn ecn_mark_data(&mut self, new: bool) -> (u8, TcpFlags) {
        if !new || !self.ecn.agreed {
            return (0, TcpFlags::NONE);
        }
        let cwr = std::mem::take(&mut self.ecn.cwr_due);
        (if self.ecn.capable { ECT_0 } else { 0 }, if cwr { TcpFlags::CWR } else { TcpFlags::NONE })
    }

    /// The window was reduced, for whatever reason: the peer is told by CWR, and echoes of marks set before do
    /// not reduce it again (RFC 3168 6.1.2).
    pub(crate) fn ecn_reduced(&mut self) {
        self.ecn.cwr_due = self.ecn.agreed;
        self.ecn.high = self.snd.nxt();
    }

    /// An acceptable ACK up to `ack` carries ECE (RFC 3168 6.1.2): reduces as for loss, at most once a window.
    /// `in_flight` is what was in flight before it.
    pub(crate) fn ecn_take_echo(&mut self, now: Instant, ack: u64, in_flight: u64) {
        if !self.ecn.agreed || ack <= self.ecn.high {
            return;
        }
        if self.recovery.is_open() {
            let before = self.window.cwnd_bytes;
            self.congestion.on_mark(&mut self.window, now, in_flight);
            self.window.cwnd_bytes = self.window.cwnd_bytes.min(self.window.ssthresh_bytes);
            self.trace_window("congestion mark", before);
            self.recovery.forget_undo();
            self.counters.rare().ecn_reductions += 1;
        }
        self.ecn_reduced();
    }
}
