//! The probe of a tail (RFC 8985 section 7).

use super::{Acked, Recovery};

/// The tail loss probe.
/// Packed as [`Pacer`](crate::pacer::Pacer) is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(4))]
pub(super) struct LossProbe {
    /// RFC 8985: TLP.end_seq, the end of the data outstanding when one was sent; zero when none is
    /// out.
    end: u64,
    /// One is to be sent.
    is_due: bool,
    /// The one that is out was sent again (TLP.is_retrans).
    is_resent: bool,
}

impl LossProbe {
    #[inline(always)]
    pub(super) fn is_out(self) -> bool {
        self.end != 0
    }
}

impl Recovery {
    /// A loss probe is to be sent.
    #[inline(always)]
    pub(crate) fn is_probe_due(&self) -> bool {
        self.probe.is_due
    }

    /// All that one would probe for was acknowledged before it could be sent.
    pub(crate) fn cancel_probe(&mut self) {
        self.probe.is_due = false;
    }

    /// One was sent, with all below `end` outstanding (RFC 8985 7.3).
    #[cold]
    pub(crate) fn on_probe_sent(&mut self, end: u64, is_resent: bool) {
        self.probe = LossProbe { end, is_due: false, is_resent };
    }

    /// One is to be sent.
    pub(crate) fn ask_for_probe(&mut self) {
        self.probe.is_due = true;
    }

    /// RFC 8985 7.4, for an ACK up to `una`: whether the probe that was out has repaired a loss.
    pub(super) fn has_probe_repaired(&mut self, ack: &Acked, una: u64) -> bool {
        let LossProbe { end, is_resent, .. } = self.probe;
        if end == 0 || una < end {
            return false;
        }
        let was_none = !is_resent || ack.dsack_bytes > 0;
        let has_repaired = !was_none && una > end;
        if was_none || has_repaired || ack.duplicate {
            self.probe.end = 0;
        }
        has_repaired
    }

    /// A segment that the peer had before was the probe's.
    pub(super) fn has_resent_probe(&self) -> bool {
        self.probe.is_out() && self.probe.is_resent
    }
}
