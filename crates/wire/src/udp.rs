//! UDP headers (RFC 768).

use crate::Malformed;
use crate::bytes::be16;
use crate::checksum;

/// Bytes of a UDP header.
pub const HEADER_LEN: usize = 8;

/// Where the checksum lies in a UDP header.
pub const CHECKSUM_OFFSET: usize = 6;

/// A UDP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpHeader {
    /// Source port; 0 when there is nothing to answer to.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes of data.
    pub payload_len: usize,
    /// The checksum field as it lies in the packet; zero means none, which only
    /// IPv4 allows (RFC 8200, 8.1).
    pub checksum: [u8; 2],
}

impl UdpHeader {
    /// Returns a header whose checksum the caller stores later.
    pub const fn new(src_port: u16, dst_port: u16, payload_len: usize) -> Self {
        Self { src_port, dst_port, payload_len, checksum: [0; 2] }
    }

    /// Reads the header at the start of `head`, the contiguous head of a datagram for which IP
    /// brought `available` bytes, and gives it with its length in bytes. Bytes that IP brought
    /// beyond the UDP length are not data.
    pub fn parse(head: &[u8], available: usize) -> Result<(Self, usize), Malformed> {
        let header: &[u8; HEADER_LEN] = head.first_chunk().ok_or(Malformed::UdpTruncated)?;
        let payload_len = usize::from(be16(header, 4))
            .checked_sub(HEADER_LEN)
            .filter(|payload_len| payload_len + HEADER_LEN <= available)
            .ok_or(Malformed::UdpLength)?;
        let header = Self {
            src_port: be16(header, 0),
            dst_port: be16(header, 2),
            payload_len,
            checksum: [header[6], header[7]],
        };
        if header.dst_port == 0 {
            return Err(Malformed::UdpPort);
        }
        Ok((header, HEADER_LEN))
    }

    /// Writes the header into the first [`HEADER_LEN`] bytes of `buffer` and
    /// gives that length. More data than the length field can say is written
    /// as the most that it can.
    ///
    /// # Panics
    /// When `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let Self { src_port, dst_port, payload_len, checksum } = self;
        let length = u16::try_from(payload_len + HEADER_LEN).unwrap_or(u16::MAX);
        let buffer = &mut buffer[..HEADER_LEN];
        buffer[0..2].copy_from_slice(&src_port.to_be_bytes());
        buffer[2..4].copy_from_slice(&dst_port.to_be_bytes());
        buffer[4..6].copy_from_slice(&length.to_be_bytes());
        buffer[6..8].copy_from_slice(checksum);
        HEADER_LEN
    }
}

/// Returns the checksum field for a sum over pseudo-header, header and data:
/// never zero, which would mean none (RFC 768).
pub const fn finish(sum: u32) -> [u8; 2] {
    match checksum::finish(sum) {
        [0, 0] => [0xff, 0xff],
        field => field,
    }
}
