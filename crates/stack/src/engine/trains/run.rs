//! A run: segments behind each other that say the same. The headers of one are what those of the next are compared
//! with, bit by bit, so little of them is left to be read.

use millstream_packet::{Packet, PacketBatch};
use millstream_wire::checksum;
use millstream_wire::tcp::TcpFlags;

use super::place::{COMMON, COMMON_BYTES};
use crate::headers::segment::{CHECKSUM_AT, FLAGS_AT, OFFSET_AT, SEQ_AT};
use crate::headers::{all_but, is_same, is_trusted, length_sum, v4, word};

/// The bits that are the same in all segments of a run: all but IPv4's identification and checksum, TCP's sequence
/// number and checksum, and PSH. Ports, acknowledgement, window and timestamps are among them, and so is the length.
const MASK: [u8; COMMON_BYTES] = {
    let mut mask = all_but(&[
        (COMMON.l3 + v4::ID_AT, 2),
        (COMMON.l3 + v4::CHECKSUM_AT, 2),
        (COMMON.l4 + SEQ_AT, 4),
        (COMMON.l4 + CHECKSUM_AT, 2),
    ]);
    mask[COMMON.l4 + FLAGS_AT] = !TcpFlags::PSH.0;
    mask
};

/// The segments behind one whose headers are Ethernet, IPv4 and TCP with timestamps.
pub(in super::super) struct Run {
    /// Headers of the first.
    bytes: [u8; COMMON_BYTES],
    /// Bytes of payload of each.
    len: usize,
    /// Sums over what is the same: of the IPv4 header, and of the TCP header and its pseudo-header, of those without
    /// flags.
    ip_sum: u32,
    tcp_sum: u32,
    /// IPv4's identification and checksum of the first, added.
    ip_own: u32,
}

/// What [`Run::copy_all`] has copied.
#[derive(Default)]
pub(in super::super) struct Taken {
    /// Packets, and bytes of them with their headers.
    pub count: usize,
    pub bytes: usize,
    /// The last one has PSH.
    pub pushes: bool,
}

impl Run {
    /// Behind a segment that begins with the headers `first`, is sound, and carries `len` bytes. The sums are those of
    /// its lane, with its lengths.
    #[inline]
    pub(super) fn behind(first: &[u8; COMMON_BYTES], len: usize, ip_sum: u32, pseudo: u32) -> Self {
        let mut tcp = *first;
        for at in [SEQ_AT, SEQ_AT + 2, OFFSET_AT, CHECKSUM_AT] {
            tcp[COMMON.l4 + at..][..2].fill(0);
        }
        let tcp_sum =
            pseudo + length_sum(COMMON_BYTES - COMMON.l4 + len) + checksum::sum(&tcp[COMMON.l4..]);
        let ip_sum = ip_sum + word(first, COMMON.l3 + v4::LENGTH_AT).unwrap_or(0);
        let own = |at| word(first, COMMON.l3 + at).unwrap_or(0);
        let ip_own = own(v4::ID_AT) + own(v4::CHECKSUM_AT);
        Self { bytes: *first, len, ip_sum, tcp_sum, ip_own }
    }

    /// Bytes of payload of each.
    #[inline]
    pub fn part(&self) -> usize {
        self.len
    }

    /// Copies the payloads of the first packets of `batch`, as far as they are the next segments, the first of them
    /// with the sequence number `seq`, and fit into `memory`.
    // A loop of its own, whose sums and places fit the registers.
    #[inline(never)]
    pub fn copy_all(&self, batch: &PacketBatch, mut seq: u32, memory: &mut [u8]) -> Taken {
        let mut taken = Taken::default();
        let part = self.len;
        for (room, (packet, bytes)) in memory.chunks_exact_mut(part).zip(batch.iter_ahead()) {
            let Some(pushes) = self.copy_next(packet, bytes, seq, room) else { break };
            taken.bytes += packet.len();
            taken.count += 1;
            taken.pushes = pushes;
            seq = seq.wrapping_add(part as u32);
            if pushes {
                break;
            }
        }
        taken
    }

    /// Copies the payload of `packet`, whose `bytes` lie in one piece, to `memory`, which has just the room for it, if
    /// the packet is the next segment, with the sequence number `seq`, and sound: whether it has PSH. Else `None`, and
    /// what was copied is no data.
    #[inline(always)]
    pub fn copy_next(
        &self,
        packet: &Packet,
        bytes: Option<&[u8]>,
        seq: u32,
        memory: &mut [u8],
    ) -> Option<bool> {
        let (first, behind) = bytes?.split_first_chunk::<COMMON_BYTES>()?;
        let payload = behind.get(..self.len)?;
        let is_next = is_same(&self.bytes, first, &MASK)
            && first[COMMON.l4 + SEQ_AT..].first_chunk() == Some(&seq.to_be_bytes())
            && packet.meta().segmentation.is_none();
        if !is_next {
            return None;
        }
        let own = |at| word(first, at).unwrap_or(0);
        // Nearly always the one has lost what the other has won.
        let ip_own = own(COMMON.l3 + v4::ID_AT) + own(COMMON.l3 + v4::CHECKSUM_AT);
        if ip_own != self.ip_own && !checksum::is_valid(self.ip_sum + ip_own) {
            return None;
        }
        if is_trusted(packet) {
            memory.copy_from_slice(payload);
        } else {
            let differing = own(COMMON.l4 + SEQ_AT)
                + own(COMMON.l4 + SEQ_AT + 2)
                + own(COMMON.l4 + OFFSET_AT)
                + own(COMMON.l4 + CHECKSUM_AT);
            let sum = self.tcp_sum + differing + checksum::copy_and_sum_bulk(payload, memory);
            if !checksum::is_valid(sum) {
                return None;
            }
        }
        Some(first[COMMON.l4 + FLAGS_AT] & TcpFlags::PSH.0 != 0)
    }
}
