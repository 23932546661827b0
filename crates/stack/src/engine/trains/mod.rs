//! Joining received segments that follow each other before their headers are read again (generic receive
//! offload in the engine).
//!
//! The first segment of a flow in a batch takes the long way: link header, IP, TCP, its connection. Its
//! header bytes are kept. A later one of the same flow that has the very same bytes, but for what must
//! differ, is only summed and its payload put behind. What differs: IP length, identification and header
//! checksum; sequence number, which must be the next one; TCP checksum; PSH, which ends the train.
//!
//! Whatever does not join ends its flow's train before it is looked at: within a flow nothing overtakes
//! anything, and nothing waits for the next batch.

#[cfg(test)]
mod tests;

use millstream_link::Medium;
use millstream_packet::{Checksum, Packet, Segmentation, SegmentationKind};
use millstream_wire::checksum;
use millstream_wire::ip::Protocol;
use millstream_wire::tcp::TcpFlags;

use super::tcp_input::Incoming;

/// Headers that are remembered: Ethernet with a tag, IPv6 and TCP with timestamps are 90 bytes.
const HEADERS_BYTES: usize = 96;

/// Flows told apart within a batch, by a plain hash. Two in one place join less, and are not otherwise
/// affected.
const FLOWS: usize = 64;

const NONE: u8 = u8::MAX;

/// Payload of a train: what a super-segment can be.
const TRAIN_BYTES: usize = 65_535;

const ETHERNET_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// Segments of one batch in order of arrival, those that follow each other in one.
pub(super) struct Trains {
    list: Vec<Incoming>,
    heads: Vec<Head>,
    /// By hash of the flow: the place in `heads` of the train that its next segment may join.
    open: [u8; FLOWS],
    /// The packet on its way up.
    candidate: Option<Candidate>,
}

/// The first bytes of a packet as it came.
struct Candidate {
    bytes: [u8; HEADERS_BYTES],
    place: Place,
}

/// Where a packet's flow is looked for.
#[derive(Clone, Copy)]
struct Place {
    bucket: usize,
    l3: usize,
    is_v6: bool,
}

/// What the next segment of a train looks like.
struct Head {
    bytes: [u8; HEADERS_BYTES],
    /// The bits that are the same in all.
    mask: [u8; HEADERS_BYTES],
    l3: usize,
    l4: usize,
    len: usize,
    is_v6: bool,
    next_seq: u32,
    /// Payload that the train can still take.
    room: usize,
    /// Sum over the pseudo-header without the length.
    pseudo: u32,
    /// Its place in the list.
    at: usize,
}

impl Trains {
    /// For batches of `limit` packets.
    pub fn new(limit: usize) -> Self {
        Self {
            list: Vec::with_capacity(limit),
            heads: Vec::with_capacity(limit),
            open: [NONE; FLOWS],
            candidate: None,
        }
    }

    /// Joins a packet as it came from the link to its flow's train; gives it back when it has to go the long
    /// way.
    #[inline]
    pub fn join(&mut self, packet: Packet, medium: Medium) -> Result<(), Packet> {
        let Some(bytes) = packet.head().first_chunk::<HEADERS_BYTES>() else {
            self.candidate = None;
            if !self.heads.is_empty() {
                self.close(packet.head(), medium);
            }
            return Err(packet);
        };
        let Some(place) = Place::of(bytes, medium) else {
            self.candidate = None;
            return Err(packet);
        };
        let open = usize::from(self.open[place.bucket]);
        let packet = match self.heads.get_mut(open) {
            Some(head) => match head.takes(&packet) {
                Some(end) => {
                    let is_last = head.couple(&mut self.list, packet, end);
                    if is_last {
                        self.open[place.bucket] = NONE;
                    }
                    return Ok(());
                }
                None => packet,
            },
            None => packet,
        };
        self.open[place.bucket] = NONE;
        self.candidate = packet
            .head()
            .first_chunk()
            .map(|bytes: &[u8; HEADERS_BYTES]| Candidate { bytes: *bytes, place });
        Err(packet)
    }

    /// Nothing joins the train of this packet's flow any more.
    #[cold]
    fn close(&mut self, head: &[u8], medium: Medium) {
        let mut bytes = [0; HEADERS_BYTES];
        let len = head.len().min(HEADERS_BYTES);
        bytes[..len].copy_from_slice(&head[..len]);
        match Place::of(&bytes, medium) {
            Some(place) => self.open[place.bucket] = NONE,
            None => self.open = [NONE; FLOWS],
        }
    }

    /// Takes in the segment that [`join`](Self::join) gave back last, now that its headers are read:
    /// `ip_len` and `tcp_len` bytes long. Others may join it when it is plain data.
    pub fn push(&mut self, segment: Incoming, ip_len: usize, tcp_len: usize) {
        if let Some(candidate) = self.candidate.take()
            && segment.slot.is_some()
            && segment.header.flags == TcpFlags::ACK
            && !segment.payload.is_empty()
        {
            let at = self.list.len();
            if let Some(head) = Head::new(&candidate, &segment, ip_len, tcp_len, at) {
                self.open[candidate.place.bucket] = self.heads.len() as u8;
                self.heads.push(head);
            }
        }
        self.list.push(segment);
    }

    /// The segments of the batch, in the order of the first of each; [`put_back`](Self::put_back) ends it.
    #[inline]
    pub fn take(&mut self) -> Vec<Incoming> {
        if !self.heads.is_empty() {
            self.heads.clear();
            self.open = [NONE; FLOWS];
        }
        std::mem::take(&mut self.list)
    }

    /// Keeps the list's memory for the next batch.
    #[inline]
    pub fn put_back(&mut self, mut list: Vec<Incoming>) {
        list.clear();
        self.list = list;
    }

    /// Whether there is no segment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl Place {
    /// `None` for what is no TCP segment with plain headers.
    #[inline]
    fn of(bytes: &[u8; HEADERS_BYTES], medium: Medium) -> Option<Self> {
        let l3 = match (medium, bytes[12], bytes[13]) {
            (Medium::Ip, ..) => 0,
            (Medium::Ethernet, 0x81, 0x00) => ETHERNET_BYTES + VLAN_TAG_BYTES,
            (Medium::Ethernet, ..) => ETHERNET_BYTES,
        };
        let (is_v6, addresses, ports) = match bytes[l3] {
            0x45 if bytes[l3 + 9] == Protocol::TCP.0 => {
                (false, get_u32(bytes, l3 + 12), get_u32(bytes, l3 + IPV4_BYTES))
            }
            first if first >> 4 == 6 && bytes[l3 + 6] == Protocol::TCP.0 => {
                (true, get_u32(bytes, l3 + 20), get_u32(bytes, l3 + IPV6_BYTES))
            }
            _ => return None,
        };
        let hash = (addresses ^ ports.rotate_left(7)).wrapping_mul(0x9e37_79b1);
        Some(Self { bucket: (hash >> 26) as usize % FLOWS, l3, is_v6 })
    }
}

impl Head {
    fn new(
        candidate: &Candidate,
        segment: &Incoming,
        ip_len: usize,
        tcp_len: usize,
        at: usize,
    ) -> Option<Self> {
        let Candidate { bytes, place: Place { l3, is_v6, .. } } = *candidate;
        let l4 = l3 + ip_len;
        let len = l4 + tcp_len;
        let plain = if is_v6 { IPV6_BYTES } else { IPV4_BYTES };
        if ip_len != plain || len > HEADERS_BYTES {
            return None;
        }
        let mut mask = [0; HEADERS_BYTES];
        mask[..len].fill(0xff);
        let addresses = if is_v6 {
            mask[l3 + 4..l3 + 6].fill(0);
            l3 + 8..l4
        } else {
            mask[l3 + 2..l3 + 6].fill(0);
            mask[l3 + 10..l3 + 12].fill(0);
            l3 + 12..l4
        };
        mask[l4 + 4..l4 + 8].fill(0);
        mask[l4 + 13] &= !TcpFlags::PSH.0;
        mask[l4 + 16..l4 + 18].fill(0);
        let protocol = u16::from(Protocol::TCP.0).to_be();
        Some(Self {
            bytes,
            mask,
            l3,
            l4,
            len,
            is_v6,
            next_seq: segment.header.seq.0.wrapping_add(segment.payload.len() as u32),
            room: TRAIN_BYTES.saturating_sub(segment.payload.len()),
            pseudo: checksum::sum(&bytes[addresses]) + u32::from(protocol),
            at,
        })
    }

    /// Where the payload of `packet` ends, if the packet continues this train and is sound.
    #[inline]
    fn takes(&self, packet: &Packet) -> Option<usize> {
        let head = packet.head();
        let bytes = head.first_chunk::<HEADERS_BYTES>()?;
        let words = |bytes: &[u8; HEADERS_BYTES]| -> [u64; HEADERS_BYTES / 8] {
            std::array::from_fn(|i| {
                u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * i + byte]))
            })
        };
        let (ours, theirs, mask) = (words(&self.bytes), words(bytes), words(&self.mask));
        let differ = (0..ours.len()).fold(0, |all, i| all | (ours[i] ^ theirs[i]) & mask[i]);
        let Self { l3, l4, len, is_v6, .. } = *self;
        if differ != 0 || get_u32(bytes, l4 + 4) != self.next_seq {
            return None;
        }
        let end = match is_v6 {
            true => l4 + get_u16(bytes, l3 + 4),
            false => l3 + get_u16(bytes, l3 + 2),
        };
        // RFC 1122, 3.2.1.2: a header that does not verify is dropped.
        if end <= len
            || end > packet.len()
            || end - len > self.room
            || !is_v6 && !is_sound_v4(bytes, l3)
        {
            return None;
        }
        let sum = match packet.meta().checksum {
            Checksum::Verified | Checksum::Partial { .. } => return Some(end),
            Checksum::Unverified if end <= head.len() => checksum::sum(&head[l4..end]),
            Checksum::Unverified => packet.sum(l4, end - l4),
        };
        let length = ((end - l4) as u16).to_be();
        checksum::is_valid(sum + self.pseudo + u32::from(length)).then_some(end)
    }

    /// Puts the payload of `packet`, which ends at `end`, behind the train; whether nothing may follow.
    #[inline]
    fn couple(&mut self, list: &mut [Incoming], mut packet: Packet, end: usize) -> bool {
        let Some(train) = list.get_mut(self.at) else { return true };
        let has_psh = packet.head()[self.l4 + 13] & TcpFlags::PSH.0 != 0;
        // Ethernet's padding would end up inside the payload.
        packet.truncate(end);
        packet.trim_front(self.len);
        let part = match packet.meta().segmentation {
            Some(segmentation) => segmentation.size,
            None => packet.len().min(usize::from(u16::MAX)) as u16,
        };
        self.next_seq = self.next_seq.wrapping_add(packet.len() as u32);
        self.room -= packet.len().min(self.room);
        train.take_in(packet, part, self.is_v6);
        if has_psh {
            train.header.flags |= TcpFlags::PSH;
        }
        has_psh || self.room == 0
    }
}

impl Incoming {
    /// Takes in what follows, made of parts of `part` bytes.
    #[inline]
    fn take_in(&mut self, next: Packet, part: u16, is_v6: bool) {
        match self.payload.meta().segmentation {
            // Mostly so: nothing is written.
            Some(segmentation) if segmentation.size >= part => {}
            _ => self.note_parts(part, is_v6),
        }
        self.payload.concat(next);
    }
}

impl Incoming {
    fn note_parts(&mut self, part: u16, is_v6: bool) {
        let first = self.payload.len().min(usize::from(u16::MAX)) as u16;
        let segmentation = self.payload.meta_mut().segmentation.get_or_insert(Segmentation {
            kind: if is_v6 { SegmentationKind::TcpV6 } else { SegmentationKind::TcpV4 },
            ecn: false,
            size: first,
            header_len: 0,
        });
        segmentation.size = segmentation.size.max(part);
    }
}

/// Whether the sum over an IPv4 header without options verifies.
#[inline]
fn is_sound_v4(bytes: &[u8; HEADERS_BYTES], l3: usize) -> bool {
    let sum: u64 = (0..IPV4_BYTES / 4)
        .map(|word| u64::from(u32::from_ne_bytes(get_u32(bytes, l3 + 4 * word).to_be_bytes())))
        .sum();
    checksum::is_valid(checksum::fold(sum as u32) + (sum >> 32) as u32)
}

#[inline]
fn get_u16(bytes: &[u8; HEADERS_BYTES], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

#[inline]
fn get_u32(bytes: &[u8; HEADERS_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
