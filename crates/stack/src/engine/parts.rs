//! Many segments of one decision: their headers are built once and stamped anew for each.

use millstream_packet::{Packet, PacketBatch};
use millstream_route::{HeaderTemplate, Stamp};
use millstream_tcp::{PlainSegment, Segment};
use millstream_wire::checksum;
use millstream_wire::tcp::{CHECKSUM_OFFSET, TcpFlags};

use super::output::{Output, Way};
use super::path::Path;
use super::transmit::TCP_HEADER_MAX_BYTES;
use crate::stats::DropReason;

/// Where flags and sequence number are in a TCP header.
const SEQ_AT: usize = 4;
const FLAGS_AT: usize = 13;

/// Flags of the last segment, and of the first.
const LAST: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::PSH.0);
const FIRST: TcpFlags = TcpFlags::CWR;

/// Length of a TCP header with timestamps alone, as nearly all are.
const COMMON_BYTES: usize = 32;

/// The headers of the segments of one decision.
struct Headers<'a> {
    template: &'a HeaderTemplate,
    /// The TCP header without sequence number, flags and checksum.
    tcp: [u8; TCP_HEADER_MAX_BYTES],
    tcp_len: usize,
    /// Its sum.
    sum: u32,
    flags: TcpFlags,
    seq: u32,
    stamp: Stamp,
}

impl<'a> Headers<'a> {
    fn new(template: &'a HeaderTemplate, segment: &Segment, identification: u16) -> Self {
        let mut tcp = [0; TCP_HEADER_MAX_BYTES];
        let tcp_len = segment.header.emit(&mut tcp);
        tcp[SEQ_AT..SEQ_AT + 4].fill(0);
        tcp[FLAGS_AT] = 0;
        tcp[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].fill(0);
        let sum = checksum::sum(&tcp[..tcp_len]);
        let stamp = Stamp { identification, ecn: segment.ecn, ..Stamp::default() };
        let (flags, seq) = (segment.header.flags, segment.header.seq.0);
        Self { template, tcp, tcp_len, sum, flags, seq, stamp }
    }

    /// Bytes of all headers.
    fn len(&self) -> usize {
        self.template.header_len() + self.tcp_len
    }

    /// Writes the headers of the next segment to `room`, which has their length: its payload is `len` bytes with the sum
    /// `payload_sum`. False when that is too long. They are laid down first and then changed where they lie: bytes that
    /// were just written one by one are slow to copy.
    #[inline]
    fn put(&mut self, room: &mut [u8], len: usize, payload_sum: u32, flags: TcpFlags) -> bool {
        let Self { template, tcp, tcp_len, sum, seq, stamp, .. } = self;
        let number = seq.to_be_bytes();
        let Ok(pseudo) = template.put(room, *tcp_len + len, *stamp) else { return false };
        let own = room.get_mut(template.header_len()..).unwrap_or_default();
        match own.first_chunk_mut::<COMMON_BYTES>() {
            Some(own) if *tcp_len == COMMON_BYTES => {
                own.copy_from_slice(&tcp[..COMMON_BYTES]);
                write(own, number, flags, *sum + pseudo + payload_sum);
            }
            _ => {
                own.copy_from_slice(&tcp[..*tcp_len]);
                write(own, number, flags, *sum + pseudo + payload_sum);
            }
        }
        stamp.identification = stamp.identification.wrapping_add(1);
        true
    }
}

/// Completes a TCP header that has no number, flags and checksum yet, `sum` being that of all else.
#[inline(always)]
fn write(header: &mut [u8], number: [u8; 4], flags: TcpFlags, sum: u32) {
    header[SEQ_AT..SEQ_AT + 4].copy_from_slice(&number);
    header[FLAGS_AT] = flags.0;
    let changed = [
        u16::from_ne_bytes([number[0], number[1]]),
        u16::from_ne_bytes([number[2], number[3]]),
        u16::from_ne_bytes([0, flags.0]),
    ];
    let all = changed.iter().fold(sum, |all, &word| all + u32::from(word));
    header[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&checksum::finish(all));
}

impl Output {
    /// A plain segment with its headers, a frame for the link of `path`; what cannot be one is dropped and counted.
    #[inline(always)]
    pub(super) fn frame_plain(&mut self, path: &mut Path, segment: PlainSegment) -> Option<Packet> {
        let PlainSegment { header, payload: mut packet, ecn, .. } = segment;
        let identification = path.identification;
        path.identification = identification.wrapping_add(1);
        let len = packet.len();
        let payload_sum = match packet.meta().payload_sum {
            Some(sum) => u32::from(sum),
            None => packet.sum(0, len),
        };
        packet.meta_mut().payload_sum = None;
        let (template, ports) = path.plain()?;
        let (l4, header_len) = (template.header_len(), header.header_len());
        let Some(room) = packet.prepend(l4 + header_len) else {
            self.stats.drop(DropReason::PoolExhausted);
            return None;
        };
        let stamp = Stamp { identification, ecn, ..Stamp::default() };
        let Ok(pseudo) = template.put(room, header_len + len, stamp) else {
            self.stats.drop(DropReason::TooLong);
            return None;
        };
        header.emit(ports, pseudo + payload_sum, &mut room[l4..]);
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += packet.len() as u64;
        self.stats.tcp_tx_segments += 1;
        Some(packet)
    }

    /// Puts headers before each of the `parts` of a segment, which is empty then, and queues them for the link, whose
    /// queue has room for them.
    pub(super) fn send_parts(
        &mut self,
        way: Way,
        path: &mut Path,
        segment: &Segment,
        parts: &mut PacketBatch,
    ) {
        let count = parts.len();
        let first_id = path.identification;
        path.identification = first_id.wrapping_add(count as u16);
        let Some(template) = path.template() else { return parts.clear() };
        let mut headers = Headers::new(template, segment, first_id);
        let header_len = headers.len();
        let link = &mut self.links[way.link.index()];
        self.waiting = true;
        let mut bytes = 0;
        let mut left = count;
        while let Some(mut packet) = parts.pop() {
            let mut flags = headers.flags;
            if left != 1 {
                flags = flags.without(LAST);
            }
            if left != count {
                flags = flags.without(FIRST);
            }
            left -= 1;
            let payload_sum = match packet.meta().payload_sum {
                Some(sum) => u32::from(sum),
                None => packet.sum(0, packet.len()),
            };
            let len = packet.len();
            let refused = match packet.prepend(header_len) {
                Some(room) => {
                    let is_put = headers.put(room, len, payload_sum, flags);
                    (!is_put).then_some(DropReason::TooLong)
                }
                None => Some(DropReason::PoolExhausted),
            };
            // Those behind one that is not sent keep their place in the stream.
            headers.seq = headers.seq.wrapping_add(len as u32);
            if let Some(reason) = refused {
                self.stats.drop(reason);
                continue;
            }
            packet.meta_mut().payload_sum = None;
            bytes += packet.len();
            if link.queue.push(packet).is_err() {
                self.stats.drop(DropReason::TransmitQueueFull);
            }
        }
        self.stats.tx_packets += count as u64;
        self.stats.tx_bytes += bytes as u64;
        self.stats.tcp_tx_segments += count as u64;
    }
}
