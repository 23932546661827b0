//! Many segments of one decision: their headers are built once and stamped anew for each.

use millstream_packet::PacketBatch;
use millstream_route::{HeaderTemplate, LinkId, Stamp};
use millstream_tcp::{PlainSegment, Segment};
use millstream_wire::checksum;
use millstream_wire::tcp::{CHECKSUM_OFFSET, TcpFlags};

use super::output::{Output, Way};
use super::path::Path;
use super::transmit::TCP_HEADER_MAX_BYTES;
use crate::limits::HEADROOM_BYTES;
use crate::stats::DropReason;

/// Where flags and sequence number are in a TCP header.
const SEQ_AT: usize = 4;
const FLAGS_AT: usize = 13;

/// Flags of the last segment, and of the first.
const LAST: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::PSH.0);
const FIRST: TcpFlags = TcpFlags::CWR;

/// The headers of the segments of one decision.
struct Headers<'a> {
    template: &'a HeaderTemplate,
    bytes: [u8; HEADROOM_BYTES],
    /// Where the TCP header begins, and where it ends.
    l4: usize,
    len: usize,
    /// Sum over the TCP header without sequence number and flags.
    sum: u32,
    flags: TcpFlags,
    seq: u32,
    stamp: Stamp,
}

impl<'a> Headers<'a> {
    fn new(template: &'a HeaderTemplate, segment: &Segment, identification: u16) -> Self {
        let mut bytes = [0; HEADROOM_BYTES];
        let l4 = template.header_len();
        bytes[..l4].copy_from_slice(template.headers());
        let len = l4 + segment.header.emit(&mut bytes[l4..l4 + TCP_HEADER_MAX_BYTES]);
        bytes[l4 + SEQ_AT..l4 + SEQ_AT + 4].fill(0);
        bytes[l4 + FLAGS_AT] = 0;
        let sum = checksum::sum(&bytes[l4..len]);
        let stamp = Stamp { identification, ecn: segment.ecn, ..Stamp::default() };
        let (flags, seq) = (segment.header.flags, segment.header.seq.0);
        Self { template, bytes, l4, len, sum, flags, seq, stamp }
    }

    /// The headers of the next segment, whose payload is `len` bytes with the sum `payload_sum`.
    #[inline]
    fn next(&mut self, len: usize, payload_sum: u32, flags: TcpFlags) -> Option<&[u8]> {
        let Self { template, bytes, l4, len: headers_len, sum, seq, stamp, .. } = self;
        let l4 = *l4;
        let number = seq.to_be_bytes();
        // Those behind one that is not sent keep their place in the stream.
        *seq = seq.wrapping_add(len as u32);
        let pseudo = template.stamp(&mut bytes[..l4], *headers_len - l4 + len, *stamp).ok()?;
        bytes[l4 + SEQ_AT..l4 + SEQ_AT + 4].copy_from_slice(&number);
        bytes[l4 + FLAGS_AT] = flags.0;
        let changed = [
            u16::from_ne_bytes([number[0], number[1]]),
            u16::from_ne_bytes([number[2], number[3]]),
            u16::from_ne_bytes([0, flags.0]),
        ];
        let all = changed.iter().fold(*sum + pseudo + payload_sum, |all, &w| all + u32::from(w));
        bytes[l4 + CHECKSUM_OFFSET..l4 + CHECKSUM_OFFSET + 2]
            .copy_from_slice(&checksum::finish(all));
        stamp.identification = stamp.identification.wrapping_add(1);
        Some(&bytes[..*headers_len])
    }
}

impl Output {
    /// Puts headers before a plain segment and queues it for the link of `way`, whose queue has room for it. How many
    /// bytes of payload those are.
    #[inline]
    pub(super) fn send_plain(
        &mut self,
        link: LinkId,
        path: &mut Path,
        ports: (u16, u16),
        segment: PlainSegment,
    ) -> usize {
        let PlainSegment { header, payload: mut packet, ecn, .. } = segment;
        let identification = path.identification;
        path.identification = identification.wrapping_add(1);
        let len = packet.len();
        let payload_sum = match packet.meta().payload_sum {
            Some(sum) => u32::from(sum),
            None => packet.sum(0, len),
        };
        packet.meta_mut().payload_sum = None;
        let Some(template) = path.template() else { return len };
        let (l4, header_len) = (template.header_len(), header.header_len());
        let Some(room) = packet.prepend(l4 + header_len) else {
            self.stats.drop(DropReason::PoolExhausted);
            return len;
        };
        let stamp = Stamp { identification, ecn, ..Stamp::default() };
        let Ok(pseudo) = template.put(room, header_len + len, stamp) else {
            self.stats.drop(DropReason::TooLong);
            return len;
        };
        header.emit(ports, pseudo + payload_sum, &mut room[l4..]);
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += packet.len() as u64;
        self.stats.tcp_tx_segments += 1;
        self.put(link, packet);
        len
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
            let Some(header) = headers.next(packet.len(), payload_sum, flags) else {
                self.stats.drop(DropReason::TooLong);
                continue;
            };
            let Some(room) = packet.prepend(header.len()) else {
                self.stats.drop(DropReason::PoolExhausted);
                continue;
            };
            room.copy_from_slice(header);
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
