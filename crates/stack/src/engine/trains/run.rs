//! A run: segments behind each other that say the same. The headers of one are what those of the next are compared
//! with, bit by bit, so little of them is left to be read.

use millstream_packet::Packet;
use millstream_wire::checksum;
use millstream_wire::tcp::TcpFlags;

use super::lane::{is_same, is_trusted};
use super::place::{COMMON, COMMON_BYTES, HEADERS_BYTES};

const WORDS_BYTES: usize = COMMON_BYTES / 8 * 8;

/// Where the last two bytes of the timestamps are compared by themselves.
const TAIL_BYTES: usize = COMMON_BYTES - WORDS_BYTES;

const IP_LENGTH_AT: usize = COMMON.l3 + 2;
const IP_ID_AT: usize = COMMON.l3 + 4;
const IP_CHECKSUM_AT: usize = COMMON.l3 + 10;
const SEQ_AT: usize = COMMON.l4 + 4;
const FLAGS_AT: usize = COMMON.l4 + 13;
const TCP_CHECKSUM_AT: usize = COMMON.l4 + 16;

/// The bits that are the same in all segments of a run: all but IPv4's identification and checksum, TCP's sequence number
/// and checksum, and PSH. Ports, acknowledgement, window and timestamps are among them, and so is the length.
const MASK: [u8; HEADERS_BYTES] = {
    let mut mask = [0xff; HEADERS_BYTES];
    let differ = [(IP_ID_AT, 2), (IP_CHECKSUM_AT, 2), (SEQ_AT, 4), (TCP_CHECKSUM_AT, 2)];
    let mut which = 0;
    while which < differ.len() {
        let (at, len) = differ[which];
        let mut byte = at;
        while byte < at + len {
            mask[byte] = 0;
            byte += 1;
        }
        which += 1;
    }
    mask[FLAGS_AT] = !TcpFlags::PSH.0;
    mask
};

/// The segments behind one whose headers are Ethernet, IPv4 and TCP with timestamps.
pub(in super::super) struct Run {
    /// Headers of the first.
    bytes: [u8; HEADERS_BYTES],
    /// Bytes of payload of each.
    len: usize,
    /// Sums over what is the same: of the IPv4 header, and of the pseudo-header.
    ip_sum: u32,
    pseudo: u32,
}

impl Run {
    /// Behind a segment that begins with the headers `first`, is sound, and carries `len` bytes. The sums are those of its
    /// lane, with its lengths.
    #[inline]
    pub(super) fn behind(first: &[u8; COMMON_BYTES], len: usize, ip_sum: u32, pseudo: u32) -> Self {
        let mut bytes = [0; HEADERS_BYTES];
        bytes[..COMMON_BYTES].copy_from_slice(first);
        let ip_len = u16::from_ne_bytes([bytes[IP_LENGTH_AT], bytes[IP_LENGTH_AT + 1]]);
        let tcp_len = (COMMON_BYTES - COMMON.l4 + len) as u16;
        Self {
            bytes,
            len,
            ip_sum: ip_sum + u32::from(ip_len),
            pseudo: pseudo + u32::from(tcp_len.to_be()),
        }
    }

    /// Bytes of payload of each.
    #[inline]
    pub fn part(&self) -> usize {
        self.len
    }

    /// Copies the payload of `packet` to `memory`, which has just the room for it, if the packet is the next segment, with
    /// the sequence number `seq`, and sound: whether it has PSH. Else `None`, and what was copied is no data.
    #[inline(always)]
    pub fn copy_next(&self, packet: &Packet, seq: u32, memory: &mut [u8]) -> Option<bool> {
        let (first, behind) = packet.sole()?.split_first_chunk::<COMMON_BYTES>()?;
        let (words, tail) = first.split_first_chunk::<WORDS_BYTES>()?;
        let ours = self.bytes[WORDS_BYTES..].first_chunk::<TAIL_BYTES>()?;
        let payload = behind.get(..self.len)?;
        let is_next = is_same(&self.bytes, words, &MASK)
            && tail == ours
            && first[SEQ_AT..].first_chunk() == Some(&seq.to_be_bytes())
            && packet.meta().segmentation.is_none();
        if !is_next {
            return None;
        }
        let word = |at: usize| u32::from(u16::from_ne_bytes([first[at], first[at + 1]]));
        if !checksum::is_valid(self.ip_sum + word(IP_ID_AT) + word(IP_CHECKSUM_AT)) {
            return None;
        }
        if is_trusted(packet) {
            memory.copy_from_slice(payload);
        } else {
            let sum = checksum::sum(&first[COMMON.l4..]) + checksum::copy_and_sum(payload, memory);
            if !checksum::is_valid(sum + self.pseudo) {
                return None;
            }
        }
        Some(first[FLAGS_AT] & TcpFlags::PSH.0 != 0)
    }
}
