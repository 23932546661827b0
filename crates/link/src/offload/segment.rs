//! Cutting a super-segment into packets that fit the wire.

use millstream_packet::{Checksum, Meta, Packet, Pool, Segmentation, SegmentationKind, sum};

use super::OffloadError;
use super::checksum::{field, transport_sum};
use crate::Medium;
use crate::limits::{RECEIVE_HEADROOM_BYTES, SEGMENT_HEADER_BYTES};
use crate::medium::{UDP_HEADER_BYTES, header_len, network_offset, transport_offset};

const TCP_HEADER_BYTES: usize = 20;
const TCP_FIN_PSH: u8 = 0x01 | 0x08;
const TCP_CWR: u8 = 0x80;

/// Says who completes the transport checksum of the segments cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentChecksum {
    /// Software, here and now.
    Complete,
    /// The link: each segment leaves as [`Checksum::Partial`].
    Partial,
}

/// Cuts one super-segment, a segment at a time and without heap, in order.
///
/// Every segment but the last carries `segmentation.size` bytes of payload. IPv4: total length,
/// identification (counting up) and header checksum are set; IPv6: payload length. TCP: the
/// sequence number advances, FIN and PSH stay on the last segment alone and CWR on the first alone
/// (RFC 3168 section 6.1.2). UDP: length.
#[derive(Debug)]
pub struct Segmenter {
    headers: [u8; SEGMENT_HEADER_BYTES],
    header_len: usize,
    l3: usize,
    l4: usize,
    is_v6: bool,
    is_tcp: bool,
    size: usize,
    checksum: SegmentChecksum,
    /// Payload bytes already cut off.
    cut: usize,
    index: u16,
    rest: Option<Packet>,
    meta: Meta,
}

impl Segmenter {
    /// Prepares to cut `packet`, which must have `meta.segmentation`.
    ///
    /// # Errors
    /// Gives the packet back when its meta data do not fit its bytes, or its headers are not
    /// contiguous.
    pub fn new(
        mut packet: Packet,
        medium: Medium,
        checksum: SegmentChecksum,
    ) -> Result<Self, Packet> {
        let Some(layout) = Layout::of(&mut packet, medium) else { return Err(packet) };
        let Layout { l3, l4, header_len, is_v6, is_tcp, size } = layout;
        let mut headers = [0; SEGMENT_HEADER_BYTES];
        headers[..header_len].copy_from_slice(&packet.head()[..header_len]);
        let meta = *packet.meta();
        packet.trim_front(header_len);
        Ok(Self {
            headers,
            header_len,
            l3,
            l4,
            is_v6,
            is_tcp,
            size,
            checksum,
            cut: 0,
            index: 0,
            rest: Some(packet),
            meta,
        })
    }

    /// Bytes of the headers of each segment.
    pub(crate) fn header_len(&self) -> usize {
        self.header_len
    }

    /// Segments still to come.
    pub fn remaining(&self) -> usize {
        self.rest.as_ref().map_or(0, |rest| rest.len().div_ceil(self.size).max(1))
    }

    /// The next segment; `None` when all are cut.
    ///
    /// # Errors
    /// `Exhausted` when there is no frame for it; the same segment comes with the next call.
    pub fn next(&mut self, pool: &Pool) -> Result<Option<Packet>, OffloadError> {
        let Some(rest) = &mut self.rest else { return Ok(None) };
        let Some(mut segment) = pool.alloc(RECEIVE_HEADROOM_BYTES) else {
            return Err(OffloadError::Exhausted);
        };
        let tail =
            if rest.len() > self.size { Some(rest.split_off(self.size, pool)?) } else { None };
        let is_last = tail.is_none();
        let payload = std::mem::replace(&mut self.rest, tail);
        let payload_len = payload.as_ref().map_or(0, Packet::len);

        let Some(room) = segment.append(self.header_len) else {
            return Err(OffloadError::Malformed);
        };
        room.copy_from_slice(&self.headers[..self.header_len]);
        self.stamp(room, payload_len, is_last);
        if let Some(payload) = payload.filter(|p| !p.is_empty()) {
            segment.concat(payload);
        }
        self.store_checksum(&mut segment);
        self.cut += payload_len;
        self.index = self.index.wrapping_add(1);
        Ok(Some(segment))
    }

    /// Writes the next segment, headers and payload, to the start of `room`, copying and summing in
    /// one pass, and returns its length; `None` when all are cut. Takes no frame. The checksum is
    /// complete, whatever was asked for.
    ///
    /// # Errors
    /// `Malformed` when `room` is shorter than the segment; the same one comes with the next call.
    pub fn write_next(&mut self, room: &mut [u8]) -> Result<Option<usize>, OffloadError> {
        let Some(rest) = &self.rest else { return Ok(None) };
        let payload_len = rest.len().min(self.size);
        let (len, is_last) = (self.header_len + payload_len, rest.len() <= self.size);
        let Some(room) = room.get_mut(..len) else { return Err(OffloadError::Malformed) };
        let (header, payload) = room.split_at_mut(self.header_len);
        header.copy_from_slice(&self.headers[..self.header_len]);
        self.stamp(header, payload_len, is_last);
        let (_, payload_sum) = rest.copy_and_sum_to(0, payload);
        let offset = self.field_offset();
        // A transport header is a whole number of words.
        let total = sum::combine(sum::sum(&header[self.l4..]), payload_sum, false);
        header[self.l4 + offset..self.l4 + offset + 2].copy_from_slice(&field(total, offset));
        self.cut += payload_len;
        self.index = self.index.wrapping_add(1);
        match &mut self.rest {
            Some(rest) if !is_last => rest.trim_front(payload_len),
            rest => *rest = None,
        }
        Ok(Some(len))
    }

    /// Writes what differs from segment to segment into `header`.
    fn stamp(&self, header: &mut [u8], payload_len: usize, is_last: bool) {
        let Self { l3, l4, header_len, .. } = *self;
        let transport_len = header_len - l4 + payload_len;
        if self.is_v6 {
            put_u16(header, l3 + 4, l4 - l3 - 40 + transport_len);
        } else {
            put_u16(header, l3 + 2, l4 - l3 + transport_len);
            let id = u16::from_be_bytes([header[l3 + 4], header[l3 + 5]]).wrapping_add(self.index);
            header[l3 + 4..l3 + 6].copy_from_slice(&id.to_be_bytes());
            header[l3 + 10..l3 + 12].fill(0);
            let value = sum::finish(sum::sum(&header[l3..l4]));
            header[l3 + 10..l3 + 12].copy_from_slice(&value);
        }
        if self.is_tcp {
            let at = l4 + 4;
            let first =
                u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            // A super-segment is under a megabyte, so the bytes cut fit.
            let seq = first.wrapping_add(u32::try_from(self.cut).unwrap_or(u32::MAX));
            header[at..at + 4].copy_from_slice(&seq.to_be_bytes());
            if !is_last {
                header[l4 + 13] &= !TCP_FIN_PSH;
            }
            if self.index > 0 {
                header[l4 + 13] &= !TCP_CWR;
            }
        } else {
            put_u16(header, l4 + 4, transport_len);
        }
        let field = l4 + self.field_offset();
        let pseudo = self.pseudo_sum(transport_len);
        let [high, low] = sum::finish(pseudo);
        header[field..field + 2].copy_from_slice(&[!high, !low]);
    }

    /// The pseudo-header's sum (RFC 9293 section 3.1, RFC 8200 section 8.1).
    fn pseudo_sum(&self, transport_len: usize) -> u32 {
        let addresses =
            if self.is_v6 { self.l3 + 8..self.l3 + 40 } else { self.l3 + 12..self.l3 + 20 };
        let protocol = if self.is_tcp { 6 } else { 17 };
        let mut tail = [0; 4];
        put_u16(&mut tail, 0, transport_len);
        tail[3] = protocol;
        sum::combine(sum::sum(&self.headers[addresses]), sum::sum(&tail), false)
    }

    /// Completes the segment's checksum, or leaves it to the link.
    fn store_checksum(&self, segment: &mut Packet) {
        let offset = self.field_offset();
        let state = match self.checksum {
            SegmentChecksum::Partial => partial(self.l4, offset),
            SegmentChecksum::Complete => {
                let value = field(transport_sum(segment, self.l4), offset);
                if let Some(head) = segment.head_mut() {
                    head[self.l4 + offset..self.l4 + offset + 2].copy_from_slice(&value);
                }
                Checksum::Unverified
            }
        };
        let meta = segment.meta_mut();
        *meta = self.meta;
        meta.segmentation = None;
        meta.payload_sum = None;
        meta.checksum = state;
    }

    /// Where the checksum field is in the transport header.
    fn field_offset(&self) -> usize {
        if self.is_tcp { 16 } else { 6 }
    }
}

/// Returns the datagrams of a super-segment of UDP, 1 of any other packet.
#[inline]
pub(crate) fn datagrams(packet: &Packet) -> usize {
    match packet.meta().segmentation {
        Some(Segmentation { kind: SegmentationKind::Udp, size, header_len, .. }) if size > 0 => {
            packet.len().saturating_sub(header_len.into()).div_ceil(size.into())
        }
        _ => 1,
    }
}

/// Cuts a super-segment of UDP in two, its first `most` datagrams and those behind them, whose sums
/// are left to the link: for kernels that take no more at once. The packet stays as it is.
///
/// # Errors
/// As those of [`Segmenter::next`].
pub(crate) fn split_datagrams(
    packet: &Packet,
    most: usize,
    medium: Medium,
    pool: &Pool,
) -> Result<(Packet, Packet), OffloadError> {
    let mut whole = packet.view(pool, 0, packet.len())?;
    *whole.meta_mut() = *packet.meta();
    let Ok(mut cutting) = Segmenter::new(whole, medium, SegmentChecksum::Partial) else {
        return Err(OffloadError::Malformed);
    };
    let size = cutting.size;
    let mut part = |count: usize, index: usize| -> Result<Packet, OffloadError> {
        (cutting.size, cutting.index) = (size.saturating_mul(count), index as u16);
        let mut part = cutting.next(pool)?.ok_or(OffloadError::Malformed)?;
        part.meta_mut().segmentation = packet.meta().segmentation;
        if datagrams(&part) == 1 {
            part.meta_mut().segmentation = None;
        }
        Ok(part)
    };
    Ok((part(most, 0)?, part(usize::MAX, most)?))
}

/// The layout of a super-segment's headers, checked.
struct Layout {
    l3: usize,
    l4: usize,
    header_len: usize,
    is_v6: bool,
    is_tcp: bool,
    size: usize,
}

impl Layout {
    fn of(packet: &mut Packet, medium: Medium) -> Option<Self> {
        let Segmentation { kind, size, .. } = packet.meta().segmentation?;
        let wanted = packet.len().min(SEGMENT_HEADER_BYTES);
        if packet.head().len() < wanted && packet.frame_count() > 1 {
            // Headers may be cut across frames; what cannot be pulled up is judged by what is
            // there.
            let _ = packet.pull_up(wanted);
        }
        let checksum = packet.meta().checksum;
        let head = packet.head();
        let l3 = network_offset(head, medium)?;
        let is_v6 = match head.get(l3)? >> 4 {
            4 => false,
            6 => true,
            // Another tag, or no IP at all.
            _ => return None,
        };
        let l4 = match checksum {
            Checksum::Partial { start, .. } => usize::from(start),
            _ => transport_offset(head, l3)?,
        };
        let header_len = header_len(head, l4, kind)?;
        let is_tcp = kind != SegmentationKind::Udp;
        let ip_len = if is_v6 { 40 } else { 20 };
        let transport_min = if is_tcp { TCP_HEADER_BYTES } else { UDP_HEADER_BYTES };
        let fits = l4 >= l3 + ip_len
            && header_len >= l4 + transport_min
            && header_len <= SEGMENT_HEADER_BYTES;
        (fits && size > 0).then_some(Self {
            l3,
            l4,
            header_len,
            is_v6,
            is_tcp,
            size: usize::from(size),
        })
    }
}

/// How to cut a TCP packet beyond `mtu` of which only the bytes are known; `None` when it is none.
pub fn guess_segmentation(head: &[u8], medium: Medium, mtu: usize) -> Option<Segmentation> {
    let l3 = network_offset(head, medium)?;
    let l4 = transport_offset(head, l3)?;
    let is_v6 = head.get(l3)? >> 4 == 6;
    let protocol = head.get(if is_v6 { l3 + 6 } else { l3 + 9 })?;
    // A later fragment has no TCP header, and the first only the beginning of a segment.
    let is_fragment = !is_v6 && (head.get(l3 + 6)? & 0x3f, *head.get(l3 + 7)?) != (0, 0);
    let kind = if is_v6 { SegmentationKind::TcpV6 } else { SegmentationKind::TcpV4 };
    let header_len = header_len(head, l4, kind)?;
    let size = u16::try_from(mtu.checked_sub(header_len - l3)?).ok()?;
    (*protocol == 6 && size > 0 && !is_fragment).then_some(Segmentation {
        kind,
        ecn: false,
        size,
        // A header is far shorter than 64 KB.
        header_len: header_len as u16,
    })
}

/// `Checksum::Partial` of these offsets, which are within a header of at most 256 bytes.
fn partial(start: usize, offset: usize) -> Checksum {
    match (u16::try_from(start), u16::try_from(offset)) {
        (Ok(start), Ok(offset)) => Checksum::Partial { start, offset },
        _ => Checksum::Unverified,
    }
}

/// Stores `value` in network order at `at`. Lengths here are at most a segment's.
pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).unwrap_or(u16::MAX);
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
