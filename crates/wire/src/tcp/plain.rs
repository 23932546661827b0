//! What the header of nearly every segment says: it acknowledges, and carries no option but timestamps.

use super::{
    CHECKSUM_OFFSET, MIN_HEADER_LEN, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps,
};
use crate::checksum;

/// NOP, NOP, timestamps (RFC 7323 appendix A).
const TIMESTAMPS_LAYOUT: [u8; 4] = [1, 1, 8, 10];
const TIMESTAMPS_LEN: usize = 12;

/// The header of a segment with the flags ACK and maybe PSH, and no option but timestamps; the ports are not in it.
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

impl PlainHeader {
    /// The same as `header` says, if it is such a one. Options that mean something in a SYN alone do not count.
    #[inline]
    pub fn of(header: &TcpHeader) -> Option<Self> {
        let TcpHeader { seq, ack, flags, window, options, .. } = header;
        let plain = flags.without(TcpFlags::PSH) == TcpFlags::ACK && options.sack.is_empty();
        plain.then_some(PlainHeader {
            seq: *seq,
            ack: *ack,
            window: *window,
            push: flags.contains(TcpFlags::PSH),
            timestamps: options.timestamps,
        })
    }

    /// The flags.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        if self.push { TcpFlags::ACK | TcpFlags::PSH } else { TcpFlags::ACK }
    }

    /// The whole header, from and to these ports.
    #[inline]
    pub fn header(&self, src_port: u16, dst_port: u16) -> TcpHeader {
        let Self { seq, ack, window, timestamps, .. } = *self;
        let options = TcpOptions { timestamps, ..TcpOptions::NONE };
        TcpHeader { src_port, dst_port, seq, ack, flags: self.flags(), window, urgent: 0, options }
    }

    /// Promises the length in bytes of what [`emit`](Self::emit) writes.
    #[inline]
    pub fn header_len(&self) -> usize {
        MIN_HEADER_LEN + if self.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 }
    }

    /// Writes the header to the start of `room`, its checksum complete: `sum` is that of the pseudo-header and the
    /// payload. Gives the length; `None` when `room` is shorter.
    #[inline(always)]
    pub fn emit(&self, (src, dst): (u16, u16), sum: u32, room: &mut [u8]) -> Option<usize> {
        let Self { seq, ack, window, timestamps, .. } = *self;
        let len = self.header_len();
        let offset_and_flags = u32::from((len as u16 / 4) << 12 | u16::from(self.flags().0));
        let fixed = [
            u32::from(src) << 16 | u32::from(dst),
            seq.0,
            ack.0,
            offset_and_flags << 16 | u32::from(window),
        ]
        .map(u32::to_be);
        let mut all = fixed.iter().fold(u64::from(sum), |all, &word| all + u64::from(word));
        let room = room.get_mut(..len)?;
        let (room, options) = room.split_first_chunk_mut::<MIN_HEADER_LEN>()?;
        if let (Some(Timestamps { value, echo }), Some(options)) =
            (timestamps, options.first_chunk_mut::<TIMESTAMPS_LEN>())
        {
            let words = [u32::from_ne_bytes(TIMESTAMPS_LAYOUT), value.to_be(), echo.to_be()];
            for (to, word) in options.as_chunks_mut().0.iter_mut().zip(words) {
                *to = word.to_ne_bytes();
                all += u64::from(word);
            }
        }
        for (to, word) in room.as_chunks_mut().0.iter_mut().zip(fixed) {
            *to = word.to_ne_bytes();
        }
        let [a, b] = checksum::finish64(all);
        room[CHECKSUM_OFFSET..].copy_from_slice(&[a, b, 0, 0]);
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn writes_what_the_whole_header_writes(
            (seq, ack, window, push) in any::<(u32, u32, u16, bool)>(),
            (src, dst) in (1u16.., 1u16..),
            stamps in any::<Option<(u32, u32)>>(),
            payload in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            let (seq, ack) = (SeqNumber(seq), SeqNumber(ack));
            let plain = PlainHeader { seq, ack, window, push, timestamps };
            let whole = plain.header(src, dst);
            prop_assert_eq!(PlainHeader::of(&whole), Some(plain));
            let mut expected = vec![0; whole.header_len()];
            whole.emit(&mut expected);
            let sum = checksum::sum(&payload);
            let field = checksum::finish(checksum::fold(checksum::sum(&expected)) + sum);
            expected[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&field);
            let mut written = [0xee; 40];
            prop_assert_eq!(plain.emit((src, dst), sum, &mut written), Some(expected.len()));
            prop_assert_eq!(&written[..expected.len()], &expected[..]);
            let is_short = plain.emit((src, dst), sum, &mut written[..19]).is_none();
            prop_assert!(is_short);
        }
    }
}
