//! Merging received TCP segments into super-segments (generic receive offload).

use millstream_packet::{
    BATCH_LIMIT, Checksum, Packet, PacketBatch, Segmentation, SegmentationKind, sum,
};

use super::segment::{header_len, network_offset, put_u16};
use super::transport_sum;
use crate::Medium;
use crate::limits::{MERGE_FLOWS, SUPER_SEGMENT_BYTES};

const TCP_ACK: u8 = 0x10;
const TCP_PSH: u8 = 0x08;
const TCP_PROTOCOL: u8 = 6;
const TCP_CHECKSUM: usize = 16;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const NONE: u8 = u8::MAX;

/// What a [`Merger`] did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Super-segments made.
    pub super_segments: u64,
    /// Segments that went into them.
    pub segments: u64,
    /// Segments whose checksum was verified here.
    pub verified: u64,
    /// Segments left alone because a checksum of theirs was wrong.
    pub bad_checksums: u64,
}

/// Merges the TCP segments of a received batch, flow by flow, for links that do not
/// ([`Capabilities::rx_merge`](crate::Capabilities)).
///
/// A super-segment stands where its first segment stood; within a flow nothing overtakes anything,
/// and nothing waits for the next batch. Only neighbours in the byte stream whose headers say the
/// same are merged, so that [`Segmenter`](super::Segmenter) can cut the very same segments again:
///
/// - flags ACK, or ACK and PSH, and payload; a PSH ends the super-segment and stays on it;
/// - acknowledgement, window, urgent pointer and every byte of options (so also time stamps) equal;
/// - addresses, traffic class with ECN, TTL or hop limit, flow label and link header equal; IPv4
///   without options, unfragmented, identification counting up unless DF is set (RFC 6864
///   section 4.1 gives it no meaning then);
/// - each as long as the first, but the last, which may be shorter; at most 65,535 bytes in all;
/// - correct checksums: the header's, and the transport's, which is verified here unless the link
///   has done it (and marked so: nobody need sum again).
///
/// Everything else passes as it is, and ends the merging of its flow before it. Payload is chained,
/// not copied; followers lose their headers. A super-segment leaves with `meta.segmentation` and
/// [`Checksum::Partial`], as from a device. Nothing is allocated; flows beyond a bound
/// ([`MERGE_FLOWS`], by a plain hash) merge less and are not otherwise affected.
#[derive(Debug)]
pub struct Merger {
    slots: [Option<Packet>; BATCH_LIMIT],
    runs: [Run; BATCH_LIMIT],
    /// By hash of the flow: the slot that its next segment may join.
    open: [u8; MERGE_FLOWS],
    stats: MergeStats,
}

/// A slot's packet and what may join it. Alone, `parts` is below two.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    layout: Layout,
    next_seq: u32,
    ip_len: usize,
    parts: u16,
    has_psh: bool,
}

/// Where things are in one segment.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    l3: usize,
    l4: usize,
    header_len: usize,
    payload_len: usize,
    is_v6: bool,
}

/// What a packet means for merging.
enum Sort {
    /// Belongs to no TCP flow.
    Other,
    /// May belong to any: fragments, extension headers, the malformed.
    Opaque,
    /// Of the flow in this bucket, but not to be merged.
    Alone(usize),
    /// Payload that could be merged.
    Data(usize, Layout),
}

impl Default for Merger {
    fn default() -> Self {
        Self::new()
    }
}

impl Merger {
    /// One that has merged nothing yet.
    pub fn new() -> Self {
        Self {
            slots: [const { None }; BATCH_LIMIT],
            runs: [Run::default(); BATCH_LIMIT],
            open: [NONE; MERGE_FLOWS],
            stats: MergeStats::default(),
        }
    }

    /// What was done so far.
    pub fn stats(&self) -> MergeStats {
        self.stats
    }

    #[cfg(test)]
    pub(super) fn slots_are_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Merges what can be merged in `batch`, whose packets start as `medium` says, and returns how
    /// many packets fewer it has now.
    pub fn merge(&mut self, batch: &mut PacketBatch, medium: Medium) -> usize {
        let before = batch.len();
        if before < 2 {
            return 0;
        }
        self.open = [NONE; MERGE_FLOWS];
        let mut len = 0;
        while let Some(packet) = batch.pop() {
            if let Some(packet) = self.place(packet, medium, len) {
                self.slots[len] = Some(packet);
                len += 1;
            }
        }
        for (slot, run) in self.slots[..len].iter_mut().zip(&self.runs) {
            let Some(mut packet) = slot.take() else { continue };
            if run.parts > 1 {
                run.finish(&mut packet);
                self.stats.super_segments += 1;
                self.stats.segments += u64::from(run.parts);
            }
            // It came from there, so there is room.
            let _ = batch.push(packet);
        }
        before - batch.len()
    }

    /// Joins `packet` to its flow's open one; gives it back when it is to stand alone, in slot
    /// `at`.
    #[inline]
    fn place(&mut self, mut packet: Packet, medium: Medium, at: usize) -> Option<Packet> {
        self.runs[at].parts = 0;
        let (bucket, layout) = match Sort::of(&packet, medium) {
            Sort::Other => return Some(packet),
            Sort::Opaque => {
                self.open = [NONE; MERGE_FLOWS];
                return Some(packet);
            }
            Sort::Alone(bucket) => {
                self.open[bucket] = NONE;
                return Some(packet);
            }
            Sort::Data(bucket, layout) => (bucket, layout),
        };
        if !self.verify(&mut packet, &layout) {
            self.open[bucket] = NONE;
            return Some(packet);
        }
        // Ethernet's padding would end up inside the payload.
        packet.truncate(layout.header_len + layout.payload_len);
        let flags = packet.head()[layout.l4 + 13];
        let slot = usize::from(self.open[bucket]);
        if let Some(first) = self.slots.get_mut(slot).and_then(Option::as_mut) {
            let run = &mut self.runs[slot];
            if run.takes(first.head(), &layout, packet.head()) {
                run.parts += 1;
                run.next_seq = run.next_seq.wrapping_add(layout.payload_len as u32);
                run.ip_len += layout.payload_len;
                run.has_psh = flags & TCP_PSH != 0;
                if run.has_psh || layout.payload_len < run.layout.payload_len {
                    self.open[bucket] = NONE;
                }
                packet.trim_front(layout.header_len);
                first.concat(packet);
                return None;
            }
        }
        // Headers that others refer to cannot become those of a super-segment.
        let may_grow = flags & TCP_PSH == 0 && packet.head_mut().is_some();
        self.open[bucket] = if may_grow { at as u8 } else { NONE };
        self.runs[at] = Run::start(layout, packet.head());
        Some(packet)
    }

    /// Whether the checksums of a segment hold; the transport's is marked as verified then.
    fn verify(&mut self, packet: &mut Packet, layout: &Layout) -> bool {
        let Layout { l3, l4, .. } = *layout;
        let is_header_good =
            layout.is_v6 || sum::finish(sum::sum(&packet.head()[l3..l4])) == [0, 0];
        let is_good = is_header_good
            && match packet.meta().checksum {
                Checksum::Verified | Checksum::Partial { .. } => true,
                Checksum::Unverified => {
                    self.stats.verified += 1;
                    let segment_len = layout.header_len - l4 + layout.payload_len;
                    let pseudo = layout.pseudo_sum(packet.head(), segment_len);
                    let end = layout.header_len + layout.payload_len;
                    let all = if end == packet.len() {
                        transport_sum(packet, l4)
                    } else {
                        packet.sum(l4, segment_len)
                    };
                    sum::finish(sum::combine(pseudo, all, false)) == [0, 0]
                }
            };
        if !is_good {
            self.stats.bad_checksums += 1;
        } else if packet.meta().checksum == Checksum::Unverified {
            packet.meta_mut().checksum = Checksum::Verified;
        }
        is_good
    }
}

impl Run {
    fn start(layout: Layout, head: &[u8]) -> Self {
        Self {
            layout,
            next_seq: get_u32(head, layout.l4 + 4).wrapping_add(layout.payload_len as u32),
            ip_len: layout.header_len - layout.l3 + layout.payload_len,
            parts: 1,
            has_psh: false,
        }
    }

    /// Whether a segment with `head` continues the one that starts with `first`. What is compared
    /// is everything but lengths, checksums, sequence number and PSH.
    #[inline]
    fn takes(&self, first: &[u8], next: &Layout, head: &[u8]) -> bool {
        let Layout { l3, l4, header_len, payload_len, is_v6 } = self.layout;
        let fits = next.l3 == l3
            && next.l4 == l4
            && next.header_len == header_len
            && next.is_v6 == is_v6
            && next.payload_len <= payload_len
            && self.ip_len + next.payload_len <= SUPER_SEGMENT_BYTES as usize;
        if !fits || get_u32(head, l4 + 4) != self.next_seq {
            return false;
        }
        // Differences, by words: ports; acknowledgement; flags and window; urgent pointer.
        let differ = |at| get_u32(first, at) ^ get_u32(head, at);
        let half = |at| u32::from(get_u16(first, at) ^ get_u16(head, at));
        let transport = differ(l4)
            | differ(l4 + 8)
            | differ(l4 + 12) & !(u32::from(TCP_PSH) << 16)
            | half(l4 + 18);
        let network = if is_v6 {
            // Version, class and label; next header and hop limit.
            differ(l3) | half(l3 + 6)
        } else {
            // Version, length and class; fragmentation, TTL and protocol; addresses.
            half(l3) | differ(l3 + 6) | differ(l3 + 12) | differ(l3 + 16)
        };
        let same = |from: usize, to: usize| first[from..to] == head[from..to];
        transport | network == 0
            && same(l4 + TCP_CHECKSUM + 4, header_len)
            && same(0, l3)
            && if is_v6 {
                same(l3 + 8, l3 + IPV6_BYTES)
            } else {
                first[l3 + 6] & 0x40 != 0
                    || get_u16(head, l3 + 4) == get_u16(first, l3 + 4).wrapping_add(self.parts)
            }
    }

    /// Makes the headers of the first segment those of the super-segment.
    fn finish(&self, packet: &mut Packet) {
        let Layout { l3, l4, header_len, payload_len, is_v6 } = self.layout;
        let transport_len = self.ip_len - (l4 - l3);
        // Nobody came to share it since it was found to be unshared.
        let Some(head) = packet.head_mut() else { return };
        if is_v6 {
            put_u16(head, l3 + 4, transport_len);
        } else {
            put_u16(head, l3 + 2, self.ip_len);
            head[l3 + 10..l3 + 12].fill(0);
            let value = sum::finish(sum::sum(&head[l3..l4]));
            head[l3 + 10..l3 + 12].copy_from_slice(&value);
        }
        if self.has_psh {
            head[l4 + 13] |= TCP_PSH;
        }
        let [high, low] = sum::finish(self.layout.pseudo_sum(head, transport_len));
        head[l4 + TCP_CHECKSUM..l4 + TCP_CHECKSUM + 2].copy_from_slice(&[!high, !low]);
        let meta = packet.meta_mut();
        // Headers are shorter than 256 bytes, and a segment than 64 KB.
        meta.checksum = Checksum::Partial { start: l4 as u16, offset: TCP_CHECKSUM as u16 };
        meta.segmentation = Some(Segmentation {
            kind: if is_v6 { SegmentationKind::TcpV6 } else { SegmentationKind::TcpV4 },
            ecn: false,
            size: payload_len as u16,
            header_len: header_len as u16,
        });
    }
}

impl Layout {
    /// The pseudo-header's sum (RFC 9293 section 3.1, RFC 8200 section 8.1).
    fn pseudo_sum(&self, head: &[u8], transport_len: usize) -> u32 {
        let addresses =
            if self.is_v6 { self.l3 + 8..self.l3 + 40 } else { self.l3 + 12..self.l3 + 20 };
        let mut tail = [0, 0, 0, TCP_PROTOCOL];
        put_u16(&mut tail, 0, transport_len);
        sum::combine(sum::sum(&head[addresses]), sum::sum(&tail), false)
    }
}

impl Sort {
    #[inline]
    fn of(packet: &Packet, medium: Medium) -> Self {
        let head = packet.head();
        let Some(l3) = network_offset(head, medium) else { return Self::Other };
        let version = head.get(l3).map_or(0, |first| first >> 4);
        let announced = match medium {
            Medium::Ip => version,
            Medium::Ethernet => match head[l3 - 2..l3] {
                [0x08, 0x00] => 4,
                [0x86, 0xdd] => 6,
                _ => return Self::Other,
            },
        };
        match (announced, version) {
            (4, 4) if head.len() >= l3 + IPV4_BYTES => Self::of_v4(packet, l3),
            (6, 6) if head.len() >= l3 + IPV6_BYTES => Self::of_v6(packet, l3),
            _ => Self::Opaque,
        }
    }

    #[inline]
    fn of_v4(packet: &Packet, l3: usize) -> Self {
        let head = packet.head();
        let ip_header_len = usize::from(head[l3] & 0x0f) * 4;
        if head[l3 + 9] != TCP_PROTOCOL {
            return Self::Other;
        }
        // More fragments, or an offset.
        if get_u16(head, l3 + 6) & 0x3fff != 0 || ip_header_len < IPV4_BYTES {
            return Self::Opaque;
        }
        let addresses = get_u32(head, l3 + 12) ^ get_u32(head, l3 + 16).rotate_left(5);
        let ip_len = usize::from(get_u16(head, l3 + 2));
        let l4 = l3 + ip_header_len;
        Self::of_tcp(packet, l3, l4, l3 + ip_len, addresses, false)
    }

    #[inline]
    fn of_v6(packet: &Packet, l3: usize) -> Self {
        let head = packet.head();
        match head[l3 + 6] {
            TCP_PROTOCOL => {}
            17 | 58 => return Self::Other,
            // An extension header, with anything behind it.
            _ => return Self::Opaque,
        }
        let l4 = l3 + IPV6_BYTES;
        let addresses =
            (l3 + 8..l4).step_by(4).fold(0_u32, |hash, at| hash.rotate_left(5) ^ get_u32(head, at));
        let end = l4 + usize::from(get_u16(head, l3 + 4));
        Self::of_tcp(packet, l3, l4, end, addresses, true)
    }

    #[inline]
    fn of_tcp(
        packet: &Packet,
        l3: usize,
        l4: usize,
        end: usize,
        addresses: u32,
        is_v6: bool,
    ) -> Self {
        let head = packet.head();
        if head.len() < l4 + 20 {
            return Self::Opaque;
        }
        let hash = (addresses ^ get_u32(head, l4)).wrapping_mul(0x9e37_79b1);
        let bucket = (hash >> 16) as usize % MERGE_FLOWS;
        let meta = packet.meta();
        let is_plain = head[l4 + 13] & !TCP_PSH == TCP_ACK
            && meta.segmentation.is_none()
            && (is_v6 || l4 == l3 + IPV4_BYTES)
            && match meta.checksum {
                Checksum::Partial { start, offset } => {
                    usize::from(start) == l4 && usize::from(offset) == TCP_CHECKSUM
                }
                _ => true,
            };
        let header_len = header_len(head, l4, SegmentationKind::TcpV4);
        match header_len {
            Some(header_len) if is_plain && end > header_len && end <= packet.len() => {
                let payload_len = end - header_len;
                Self::Data(bucket, Layout { l3, l4, header_len, payload_len, is_v6 })
            }
            _ => Self::Alone(bucket),
        }
    }
}

#[inline]
fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
