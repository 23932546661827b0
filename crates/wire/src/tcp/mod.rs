//! TCP headers (RFC 9293, 3.1).

mod flags;
mod options;
mod plain;
mod seq;

pub use flags::TcpFlags;
pub use options::{FastOpenCookie, SackBlocks, TcpOptions, Timestamps};
pub use plain::PlainHeader;
pub use seq::SeqNumber;

use crate::Malformed;
use crate::bytes::{be16, be32};

/// Bytes of a TCP header without options.
pub const MIN_HEADER_LEN: usize = 20;

/// Bytes of the longest TCP header.
pub const MAX_HEADER_LEN: usize = 60;

/// Where the checksum lies in a TCP header.
pub const CHECKSUM_OFFSET: usize = 16;

/// A TCP header, without its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Number of the first byte of data, or of the `SYN`.
    pub seq: SeqNumber,
    /// Next number expected; holds when `flags` has `ACK`.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: TcpFlags,
    /// The window field, unscaled.
    pub window: u16,
    /// The urgent pointer; holds when `flags` has `URG`.
    pub urgent: u16,
    /// The options.
    pub options: TcpOptions,
}

impl TcpHeader {
    /// Reads a header at the start of `bytes` and gives it with its length in
    /// bytes, where the data starts. `bytes` may be the contiguous head of a
    /// longer segment; it must hold the whole header with its options. The
    /// checksum is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let fixed: &[u8; MIN_HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::TcpTruncated)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        let options = bytes.get(MIN_HEADER_LEN..header_len).ok_or(Malformed::TcpHeaderLength)?;
        let (src_port, dst_port) = (be16(fixed, 0), be16(fixed, 2));
        if src_port == 0 || dst_port == 0 {
            return Err(Malformed::TcpPort);
        }
        let header = Self {
            src_port,
            dst_port,
            seq: SeqNumber(be32(fixed, 4)),
            ack: SeqNumber(be32(fixed, 8)),
            flags: TcpFlags(fixed[13]),
            window: be16(fixed, 14),
            urgent: be16(fixed, 18),
            options: TcpOptions::parse(options)?,
        };
        Ok((header, header_len))
    }

    /// Returns the length in bytes of what [`TcpHeader::emit`] writes.
    pub fn header_len(&self) -> usize {
        MIN_HEADER_LEN + self.options.emit_len()
    }

    /// Writes the header into the first [`TcpHeader::header_len`] bytes of
    /// `buffer` and gives that length. The checksum field is zero: the caller
    /// stores it at [`CHECKSUM_OFFSET`].
    ///
    /// # Panics
    /// When `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let Self { src_port, dst_port, seq, ack, flags, window, urgent, options } = self;
        let (fixed, rest) = buffer.split_at_mut(MIN_HEADER_LEN);
        let header_len = MIN_HEADER_LEN + options.emit(rest);
        fixed[0..2].copy_from_slice(&src_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&dst_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&ack.0.to_be_bytes());
        fixed[12] = (header_len as u8 / 4) << 4;
        fixed[13] = flags.0;
        fixed[14..16].copy_from_slice(&window.to_be_bytes());
        fixed[16..18].fill(0);
        fixed[18..20].copy_from_slice(&urgent.to_be_bytes());
        header_len
    }

    /// Returns the header as words that lie in memory as [`emit`](Self::emit) writes them, where it
    /// has no option but timestamps (RFC 7323 appendix A). Nearly every segment of a connection is
    /// such.
    #[inline]
    pub fn words_with_timestamps(&self) -> Option<[u32; 8]> {
        let Self { src_port, dst_port, seq, ack, flags, window, urgent, options } = self;
        let Timestamps { value, echo } =
            options.timestamps.filter(|_| options.has_timestamps_only())?;
        let half = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let offset_and_flags = 8 << 12 | u16::from(flags.0);
        let words = [
            half(*src_port, *dst_port),
            seq.0,
            ack.0,
            half(offset_and_flags, *window),
            u32::from(*urgent),
            options::TIMESTAMPS_WORD,
            value,
            echo,
        ];
        Some(words.map(u32::to_be))
    }

    /// Returns the number of sequence numbers that the segment takes with `payload_len` bytes of
    /// data: `SYN` and `FIN` take one each (RFC 9293, 3.4).
    pub fn sequence_len(&self, payload_len: usize) -> usize {
        payload_len + usize::from(self.flags.syn()) + usize::from(self.flags.fin())
    }
}
