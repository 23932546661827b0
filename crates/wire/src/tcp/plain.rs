//! The header of nearly every segment: it acknowledges, and has no option but timestamps.

use super::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

/// The header of a segment with the flags ACK and maybe PSH, and no option but timestamps; the
/// ports are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainHeader {
    /// Number of the first byte of data.
    pub seq: SeqNumber,
    /// Next number expected.
    pub ack: SeqNumber,
    /// The window field, unscaled.
    pub window: u16,
    /// It has PSH.
    pub push: bool,
    /// Timestamps (RFC 7323, 3).
    pub timestamps: Option<Timestamps>,
}

impl TcpHeader {
    /// Returns whether a [`PlainHeader`] says the same.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.flags.without(TcpFlags::PSH) == TcpFlags::ACK && self.options.sack.is_empty()
    }
}

impl PlainHeader {
    /// Returns the fields of `header`, if it is such a one. Options that mean something in a SYN
    /// alone do not count.
    #[inline]
    pub fn of(header: &TcpHeader) -> Option<Self> {
        let TcpHeader { seq, ack, flags, window, options, .. } = header;
        header.is_plain().then_some(PlainHeader {
            seq: *seq,
            ack: *ack,
            window: *window,
            push: flags.contains(TcpFlags::PSH),
            timestamps: options.timestamps,
        })
    }

    /// Returns the flags.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        if self.push { TcpFlags::ACK | TcpFlags::PSH } else { TcpFlags::ACK }
    }

    /// Returns the whole header, from and to these ports.
    #[inline]
    pub fn header(&self, src_port: u16, dst_port: u16) -> TcpHeader {
        let Self { seq, ack, window, timestamps, .. } = *self;
        let options = TcpOptions { timestamps, ..TcpOptions::NONE };
        TcpHeader { src_port, dst_port, seq, ack, flags: self.flags(), window, urgent: 0, options }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn says_what_the_whole_header_says(
            (seq, ack, window, push) in any::<(u32, u32, u16, bool)>(),
            (src, dst) in (1u16.., 1u16..),
            stamps in any::<Option<(u32, u32)>>(),
        ) {
            let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            let (seq, ack) = (SeqNumber(seq), SeqNumber(ack));
            let plain = PlainHeader { seq, ack, window, push, timestamps };
            prop_assert_eq!(PlainHeader::of(&plain.header(src, dst)), Some(plain));
        }
    }
}
