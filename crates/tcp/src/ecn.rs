//! Explicit congestion notification (RFC 3168): negotiation, the echo of marks, and the answer to
//! an echo.
//!
//! ```text
//!   sender                    router            receiver
//!   data, ECT(0)    ------->  marks CE ------>  owes the echo
//!   reduces once    <-------  ACK, ECE <------  repeats it on every ACK
//!   data, CWR       ------------------------->  stops
//! ```

use millstream_wire::tcp::TcpFlags;

use crate::config::EcnMode;

/// ECN-capable transport, the codepoint senders use (RFC 3168 section 5).
pub(crate) const ECT_0: u8 = 0b10;
/// Congestion experienced.
const CE: u8 = 0b11;

const SETUP: TcpFlags = TcpFlags::ECE.union(TcpFlags::CWR);

/// State of both halves.
/// Packed as [`Pacer`](crate::pacer::Pacer) is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed)]
pub(crate) struct Ecn {
    /// Both SYNs agreed: marks are echoed and echoes answered.
    is_agreed: bool,
    /// Data is sent as ECN-capable.
    is_capable: bool,
    /// The last SYN sent asked for it.
    has_asked: bool,
    /// A mark arrived and the peer has not said CWR since.
    owes_echo: bool,
    /// The window was reduced; the next new data says so.
    is_cwr_due: bool,
    /// Echoes are not answered again until this is acknowledged: once a window (RFC 3168 6.1.2).
    high: u64,
}

impl Ecn {
    /// Both SYNs agreed.
    #[inline]
    pub(crate) fn is_agreed(&self) -> bool {
        self.is_agreed
    }

    /// Flags of a SYN sent now (RFC 3168 6.1.1). One that goes again does not ask: what got no
    /// answer may have been dropped for that (6.1.1.1).
    pub(crate) fn syn_flags(&mut self, mode: EcnMode, is_first: bool) -> TcpFlags {
        self.has_asked = mode == EcnMode::Request && is_first;
        if self.has_asked { SETUP } else { TcpFlags::NONE }
    }

    /// Flags of a SYN-ACK.
    pub(crate) fn syn_ack_flags(&self) -> TcpFlags {
        if self.is_agreed { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// Takes what the peer's SYN or SYN-ACK says; `passive`: we sent none before.
    pub(crate) fn take_syn(&mut self, flags: TcpFlags, mode: EcnMode, passive: bool) {
        let bits = (flags.ece(), flags.cwr());
        self.is_agreed = if flags.ack() {
            // RFC 3168 6.1.1: both bits in a SYN-ACK come from a host that reflects what it does
            // not know
            self.has_asked && bits == (true, false)
        } else {
            // our own SYN, in a simultaneous open, must have asked too
            mode != EcnMode::Off && (passive || self.has_asked) && bits == (true, true)
        };
        self.is_capable = self.is_agreed;
    }

    /// The peer's SYN again. One that does not ask any more means that our data must not be marked
    /// (RFC 3168 6.1.1).
    pub(crate) fn take_syn_again(&mut self, flags: TcpFlags) {
        self.is_capable &= flags.contains(SETUP);
    }

    /// Data within the window arrived with `codepoint` in its IP header, and CWR or not (RFC 3168
    /// 6.1.3): whether it carries a mark, and if so, whether that is the first since the peer said
    /// CWR.
    #[inline]
    pub(crate) fn take_data(&mut self, cwr: bool, codepoint: u8) -> Option<bool> {
        if !self.is_agreed {
            return None;
        }
        self.owes_echo &= !cwr;
        (codepoint & CE == CE).then(|| !std::mem::replace(&mut self.owes_echo, true))
    }

    /// Flag of every segment with an ACK (RFC 3168 6.1.3).
    #[inline]
    pub(crate) fn ack_flags(&self) -> TcpFlags {
        if self.owes_echo { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// Codepoint and flags of a segment with data. Only new data is ECN-capable (RFC 3168 6.1.4,
    /// 6.1.5): what is sent again is not, nor what carries no data.
    #[inline]
    pub(crate) fn mark_data(&mut self, is_new: bool) -> (u8, TcpFlags) {
        if !is_new || !self.is_agreed {
            return (0, TcpFlags::NONE);
        }
        let cwr = std::mem::take(&mut self.is_cwr_due);
        (if self.is_capable { ECT_0 } else { 0 }, if cwr { TcpFlags::CWR } else { TcpFlags::NONE })
    }

    /// The window was reduced, for whatever reason, with all below `nxt` sent: the peer is told by
    /// CWR, and echoes of marks set before do not reduce it again (RFC 3168 6.1.2).
    pub(crate) fn on_reduced(&mut self, nxt: u64) {
        self.is_cwr_due = self.is_agreed;
        self.high = nxt;
    }

    /// An echo that comes with an ACK up to `ack` is to be answered.
    pub(crate) fn is_answered(&self, ack: u64) -> bool {
        self.is_agreed && ack > self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed() -> Ecn {
        let mut ecn = Ecn::default();
        ecn.take_syn(SETUP | TcpFlags::SYN, EcnMode::Accept, true);
        ecn
    }

    #[test]
    fn both_syns_have_to_agree() {
        assert_eq!(agreed().syn_ack_flags(), TcpFlags::ECE);
        let mut ecn = Ecn::default();
        ecn.take_syn(SETUP | TcpFlags::SYN, EcnMode::Off, true);
        assert!(!ecn.is_agreed());
        // a SYN-ACK counts for who has asked, and not with both bits
        for (asks, flags, expected) in
            [(true, TcpFlags::ECE, true), (true, SETUP, false), (false, TcpFlags::ECE, false)]
        {
            ecn.syn_flags(EcnMode::Request, asks);
            ecn.take_syn(flags | TcpFlags::SYN_ACK, EcnMode::Request, false);
            assert_eq!(ecn.is_agreed(), expected, "{flags:?}");
        }
    }

    #[test]
    fn a_mark_is_echoed_until_the_peer_has_reduced_its_window() {
        let mut ecn = agreed();
        assert_eq!((ecn.take_data(false, ECT_0), ecn.ack_flags()), (None, TcpFlags::NONE));
        assert_eq!((ecn.take_data(false, CE), ecn.ack_flags()), (Some(true), TcpFlags::ECE));
        assert_eq!((ecn.take_data(false, CE), ecn.ack_flags()), (Some(false), TcpFlags::ECE));
        assert_eq!((ecn.take_data(true, ECT_0), ecn.ack_flags()), (None, TcpFlags::NONE));
        assert_eq!(Ecn::default().take_data(false, CE), None);
    }

    #[test]
    fn a_window_is_reduced_once_and_new_data_says_so_once() {
        let mut ecn = agreed();
        assert_eq!(ecn.mark_data(true), (ECT_0, TcpFlags::NONE));
        assert!(ecn.is_answered(10));
        ecn.on_reduced(50);
        assert!(!ecn.is_answered(50) && ecn.is_answered(51));
        assert_eq!(ecn.mark_data(false), (0, TcpFlags::NONE), "it is sent again");
        assert_eq!(ecn.mark_data(true), (ECT_0, TcpFlags::CWR));
        assert_eq!(ecn.mark_data(true), (ECT_0, TcpFlags::NONE));
        ecn.take_syn_again(TcpFlags::SYN);
        assert_eq!(ecn.mark_data(true), (0, TcpFlags::NONE), "the peer asks no more");
    }
}
