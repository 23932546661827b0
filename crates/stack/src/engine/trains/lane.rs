//! One flow's headers as they came last, and the train that its next segment may join.

use millstream_link::Medium;
use millstream_packet::{COALESCE_LIMIT_BYTES, Checksum, Packet};
use millstream_route::LinkId;
use millstream_tcp::FourTuple;
use millstream_wire::checksum;
use millstream_wire::ip::Protocol;
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps};

use super::super::tcp_input::Incoming;
use crate::socket::SocketId;

/// Headers that are remembered: Ethernet with a tag, IPv6 and TCP with timestamps are 90 bytes.
pub(super) const HEADERS_BYTES: usize = 96;

/// Lanes, found by a plain hash. Two flows in one lane take the long way more often, and are not otherwise affected.
pub(super) const LANES: usize = 128;

/// Payload of a train: what a super-segment can be.
const TRAIN_BYTES: usize = 65_535;

pub(super) const ETHERNET_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;

/// The options of nearly every segment: NOP, NOP, timestamps (RFC 7323 appendix A).
const TIMESTAMPS_LAYOUT: [u8; 4] = [1, 1, 8, 10];
const TIMESTAMPS_BYTES: usize = 12;

/// Where what is compared ends in most headers: Ethernet, IPv4, TCP with timestamps, whose values are left out.
const SHORT_BYTES: usize = 64;

/// Other headers are compared in three pieces of this many bytes, which may overlap.
const PIECE_BYTES: usize = 32;

/// The first bytes of a packet as it came.
pub(super) struct Candidate {
    pub bytes: [u8; HEADERS_BYTES],
    pub place: Place,
}

impl Candidate {
    pub fn new(head: &[u8], place: Place) -> Self {
        let mut bytes = [0; HEADERS_BYTES];
        let len = head.len().min(HEADERS_BYTES);
        bytes[..len].copy_from_slice(&head[..len]);
        Self { bytes, place }
    }
}

/// Where a packet's flow is looked for.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub lane: usize,
    l3: usize,
    is_v6: bool,
}

impl Place {
    /// `None` for what is no TCP segment with plain headers, or does not show them.
    #[inline]
    pub fn of(head: &[u8], medium: Medium) -> Option<Self> {
        let l3 = network_offset(head, medium)?;
        let ip = head.get(l3..)?;
        let (is_v6, addresses, ports) = match *ip.first()? {
            0x45 if *ip.get(9)? == Protocol::TCP.0 => (false, be32(ip, 12)?, be32(ip, IPV4_BYTES)?),
            first if first >> 4 == 6 && *ip.get(6)? == Protocol::TCP.0 => {
                (true, be32(ip, 20)?, be32(ip, IPV6_BYTES)?)
            }
            _ => return None,
        };
        let hash = (addresses ^ ports.rotate_left(7)).wrapping_mul(0x9e37_79b1);
        Some(Self { lane: (hash >> 25) as usize % LANES, l3, is_v6 })
    }
}

/// Whether `head`, which has no [`Place`], may be of a flow that has one: TCP behind IPv4 options or IPv6 extension
/// headers (RFC 8200 section 4), or not to be seen.
#[inline]
pub(super) fn hides_tcp(head: &[u8], medium: Medium) -> bool {
    let Some(ip) = network_offset(head, medium).and_then(|l3| head.get(l3..)) else { return true };
    match (ip.first().map(|first| first >> 4), ip.get(6), ip.get(9)) {
        (Some(4), _, Some(protocol)) => *protocol == Protocol::TCP.0,
        (Some(6), Some(next), _) => matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140),
        (Some(4 | 6) | None, ..) => true,
        _ => false,
    }
}

#[inline]
fn network_offset(head: &[u8], medium: Medium) -> Option<usize> {
    Some(match medium {
        Medium::Ip => 0,
        Medium::Ethernet if head.get(12..14)? == [0x81, 0x00] => ETHERNET_BYTES + VLAN_TAG_BYTES,
        Medium::Ethernet => ETHERNET_BYTES,
    })
}

/// What a segment says that differs from those before it.
#[derive(Clone, Copy)]
pub(super) struct Said {
    seq: u32,
    ack: u32,
    window: u16,
    timestamps: Option<Timestamps>,
    has_psh: bool,
    /// Where its payload ends.
    end: usize,
}

/// See the module text. What is remembered was checked when it was learned: link address, IP header, addresses, ports and
/// options are in order, and the connection is the one that the four-tuple names, if it is still there.
pub(super) struct Lane {
    bytes: [u8; HEADERS_BYTES],
    /// The bits that are the same in all.
    mask: [u8; HEADERS_BYTES],
    l3: usize,
    l4: usize,
    /// Bytes of headers; 0 while the lane knows none.
    len: usize,
    /// Where the last bit lies that is the same in all.
    compared: usize,
    is_v6: bool,
    has_timestamps: bool,
    ecn: u8,
    link: LinkId,
    /// Sum over the IPv4 header without length, identification and checksum.
    ip_sum: u32,
    /// Sum over the pseudo-header without the length.
    pseudo: u32,
    tuple: FourTuple,
    socket: SocketId,
    train: Train,
}

/// The train that the next segment may join.
struct Train {
    /// The batch in which it is; any other: there is none.
    batch: u64,
    /// Its place in the list.
    at: usize,
    next_seq: u32,
    /// Payload that it can still take.
    room: usize,
    /// Bytes of each of its segments: none is longer, and a shorter one is the last.
    part: u16,
    ack: u32,
    window: u16,
    timestamps: Option<Timestamps>,
}

impl Lane {
    /// A lane that knows no flow.
    pub fn unknown() -> Self {
        let nowhere = std::net::SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), 0);
        Self {
            bytes: [0; HEADERS_BYTES],
            mask: [0; HEADERS_BYTES],
            l3: 0,
            l4: 0,
            len: 0,
            compared: 0,
            is_v6: false,
            has_timestamps: false,
            ecn: 0,
            link: LinkId(0),
            ip_sum: 0,
            pseudo: 0,
            tuple: FourTuple { local: nowhere, remote: nowhere },
            socket: SocketId::new(crate::socket::SocketKind::Tcp, u32::MAX, 0),
            train: Train {
                batch: 0,
                at: 0,
                next_seq: 0,
                room: 0,
                part: 0,
                ack: 0,
                window: 0,
                timestamps: None,
            },
        }
    }

    /// Forgets the flow.
    pub fn forget(&mut self) {
        self.len = 0;
        self.close();
    }

    /// Nothing joins the train any more.
    #[inline]
    pub fn close(&mut self) {
        self.train.batch = 0;
    }

    /// Remembers the flow of a segment that took the long way, if its headers are of the common kind.
    pub fn learn(
        &mut self,
        candidate: &Candidate,
        segment: &Incoming,
        ip_len: usize,
        tcp_len: usize,
    ) {
        self.forget();
        let Candidate { bytes, place: Place { l3, is_v6, .. } } = *candidate;
        let Some(socket) = segment.socket else { return };
        let l4 = l3 + ip_len;
        let options = &bytes[(l4 + TCP_BYTES).min(HEADERS_BYTES)..];
        let has_timestamps =
            tcp_len == TCP_BYTES + TIMESTAMPS_BYTES && options.starts_with(&TIMESTAMPS_LAYOUT);
        let plain = ip_len == if is_v6 { IPV6_BYTES } else { IPV4_BYTES }
            && (tcp_len == TCP_BYTES || has_timestamps)
            && segment.header.flags.without(TcpFlags::PSH) == TcpFlags::ACK;
        if !plain {
            return;
        }
        let len = l4 + tcp_len;
        let mask = &mut self.mask;
        mask[..len].fill(0xff);
        mask[len..].fill(0);
        let addresses = if is_v6 {
            mask[l3 + 4..l3 + 6].fill(0);
            l3 + 8..l4
        } else {
            mask[l3 + 2..l3 + 6].fill(0);
            mask[l3 + 10..l3 + 12].fill(0);
            l3 + 12..l4
        };
        // Sequence and acknowledgement number; PSH; window and checksum; timestamps.
        mask[l4 + 4..l4 + 12].fill(0);
        mask[l4 + 13] &= !TcpFlags::PSH.0;
        mask[l4 + 14..l4 + 18].fill(0);
        self.compared = len;
        if has_timestamps {
            self.compared = l4 + TCP_BYTES + TIMESTAMPS_LAYOUT.len();
            mask[self.compared..len].fill(0);
        }
        let protocol = u16::from(Protocol::TCP.0).to_be();
        self.pseudo = checksum::sum(&bytes[addresses]) + u32::from(protocol);
        self.ip_sum = 0;
        for at in (0..IPV4_BYTES).step_by(2).filter(|at| ![2, 4, 10].contains(at) && !is_v6) {
            self.ip_sum += u32::from(u16::from_ne_bytes([bytes[l3 + at], bytes[l3 + at + 1]]));
        }
        (self.bytes, self.l3, self.l4, self.len) = (bytes, l3, l4, len);
        (self.is_v6, self.has_timestamps) = (is_v6, has_timestamps);
        (self.ecn, self.link) = (segment.ecn, segment.link);
        (self.tuple, self.socket) = (segment.tuple, socket);
    }

    /// A train begins with this segment, the one at `at` in the list, if others may join it. None joins a small one:
    /// its receive queue copies those together, where joined they would hold a frame each.
    #[inline]
    pub fn begin(&mut self, batch: u64, at: usize, segment: &Incoming) {
        let (len, part) = segment.payload.as_ref().map_or((0, 0), size_and_part);
        let is_whole = len >= COALESCE_LIMIT_BYTES && is_multiple(len, part);
        if !is_whole || segment.header.flags.contains(TcpFlags::PSH) || self.len == 0 {
            return self.close();
        }
        let header = &segment.header;
        self.train = Train {
            batch,
            at,
            next_seq: header.seq.0.wrapping_add(len as u32),
            room: TRAIN_BYTES.saturating_sub(len),
            part,
            ack: header.ack.0,
            window: header.window,
            timestamps: header.options.timestamps,
        };
    }

    /// What the packet says, if it is of this flow, has the same headers but for what must differ, and is sound.
    #[inline]
    pub fn read(&self, packet: &Packet, link: LinkId) -> Option<Said> {
        let head = packet.head();
        let Self { l3, l4, len, is_v6, .. } = *self;
        if len < PIECE_BYTES || head.len() < len || self.link != link || !self.is_same(head) {
            return None;
        }
        let end = match is_v6 {
            true => l4 + be16(head, l3 + 4)?,
            false => l3 + be16(head, l3 + 2)?,
        };
        // RFC 1122, 3.2.1.2: a header that does not verify is dropped.
        if end < len || end > packet.len() || !is_v6 && !self.is_sound_v4(head)? {
            return None;
        }
        let verified = match packet.meta().checksum {
            Checksum::Verified | Checksum::Partial { .. } => true,
            Checksum::Unverified => {
                let sum = match head.get(l4..end) {
                    Some(bytes) => checksum::sum(bytes),
                    None => packet.sum(l4, end - l4),
                };
                let length = ((end - l4) as u16).to_be();
                checksum::is_valid(sum + self.pseudo + u32::from(length))
            }
        };
        let timestamps = match self.has_timestamps {
            true => Some(Timestamps { value: be32(head, l4 + 24)?, echo: be32(head, l4 + 28)? }),
            false => None,
        };
        let said = Said {
            seq: be32(head, l4 + 4)?,
            ack: be32(head, l4 + 8)?,
            window: be16(head, l4 + 14)? as u16,
            timestamps,
            has_psh: head.get(l4 + 13)? & TcpFlags::PSH.0 != 0,
            end,
        };
        verified.then_some(said)
    }

    #[inline]
    fn is_same(&self, head: &[u8]) -> bool {
        // Mostly one or the other: all at once.
        if self.compared <= SHORT_BYTES {
            if let Some(head) = head.first_chunk::<SHORT_BYTES>() {
                return is_same(&self.bytes, head, &self.mask);
            }
        } else if let Some(head) = head.first_chunk::<HEADERS_BYTES>() {
            return is_same(&self.bytes, head, &self.mask);
        }
        let last = self.len - PIECE_BYTES;
        let first = self.differs(head, 0);
        let second = self.differs(head, PIECE_BYTES.min(last));
        first | second | self.differs(head, last) == 0
    }

    /// The bits of a piece of `head` that are not as they were, and should be.
    #[inline]
    fn differs(&self, head: &[u8], at: usize) -> u64 {
        let piece = at..at + PIECE_BYTES;
        match (self.bytes.get(piece.clone()), head.get(piece.clone()), self.mask.get(piece)) {
            (Some(ours), Some(theirs), Some(mask)) => {
                let (ours, theirs) = (words(ours), words(theirs));
                let mask = words(mask);
                (ours[0] ^ theirs[0]) & mask[0]
                    | (ours[1] ^ theirs[1]) & mask[1]
                    | (ours[2] ^ theirs[2]) & mask[2]
                    | (ours[3] ^ theirs[3]) & mask[3]
            }
            _ => u64::MAX,
        }
    }

    /// Whether the sum over the IPv4 header verifies.
    #[inline]
    fn is_sound_v4(&self, head: &[u8]) -> Option<bool> {
        let at = self.l3;
        let changed = head.get(at + 2..at + 12)?;
        let word = |at: usize| u32::from(u16::from_ne_bytes([changed[at], changed[at + 1]]));
        Some(checksum::is_valid(self.ip_sum + word(0) + word(2) + word(8)))
    }

    /// Whether the segment continues the train of this batch.
    #[inline]
    pub fn continues(&self, batch: u64, packet: &Packet, said: &Said) -> bool {
        let train = &self.train;
        let len = said.end - self.len;
        let part = packet.meta().segmentation.map_or(len, |one| usize::from(one.size));
        train.batch == batch
            && part <= usize::from(train.part)
            && train.next_seq == said.seq
            && train.ack == said.ack
            && train.window == said.window
            && train.timestamps == said.timestamps
            && len != 0
            && len <= train.room
    }

    /// Puts the payload of `packet` behind the train, which it [continues](Self::continues).
    #[inline]
    pub fn couple(&mut self, list: &mut [Incoming], mut packet: Packet, said: &Said) {
        let Some(train) = list.get_mut(self.train.at) else { return self.close() };
        // Ethernet's padding would end up inside the payload.
        packet.crop(self.len, said.end);
        let (len, part) = size_and_part(&packet);
        self.train.next_seq = said.seq.wrapping_add(len as u32);
        self.train.room -= len.min(self.train.room);
        let is_last = part < self.train.part || !is_multiple(len, part);
        train.take_in(packet, self.train.part, self.is_v6);
        if said.has_psh {
            train.header.flags |= TcpFlags::PSH;
        }
        if is_last || said.has_psh || self.train.room == 0 {
            self.close();
        }
    }

    /// The packet as a segment that begins a train.
    #[inline]
    pub fn segment(&self, mut packet: Packet, said: &Said) -> Incoming {
        packet.crop(self.len, said.end);
        let flags = if said.has_psh { TcpFlags::ACK | TcpFlags::PSH } else { TcpFlags::ACK };
        let header = TcpHeader {
            src_port: self.tuple.remote.port(),
            dst_port: self.tuple.local.port(),
            seq: SeqNumber(said.seq),
            ack: SeqNumber(said.ack),
            flags,
            window: said.window,
            urgent: 0,
            options: TcpOptions { timestamps: said.timestamps, ..TcpOptions::NONE },
        };
        let Self { tuple, ecn, link, socket, .. } = *self;
        let payload = (!packet.is_empty()).then_some(packet);
        Incoming { tuple, header, payload, ecn, link, socket: Some(socket) }
    }
}

/// Bytes of a payload, and of each segment that it was merged from.
#[inline]
fn size_and_part(payload: &Packet) -> (usize, u16) {
    let len = payload.len();
    let whole = len.min(usize::from(u16::MAX)) as u16;
    (len, payload.meta().segmentation.map_or(whole, |segmentation| segmentation.size))
}

/// Whether all of `len` bytes are in parts of the same size. Mostly it is one: not worth a division.
#[inline]
fn is_multiple(len: usize, part: u16) -> bool {
    let part = usize::from(part);
    len == part || part != 0 && len.is_multiple_of(part)
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<2>()?;
    Some(usize::from(u16::from_be_bytes(*bytes)))
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

/// Whether `theirs` are the first bytes of `ours`, the bits of `mask` counted.
#[inline]
fn is_same<const N: usize>(
    ours: &[u8; HEADERS_BYTES],
    theirs: &[u8; N],
    mask: &[u8; HEADERS_BYTES],
) -> bool {
    let (Some(ours), Some(mask)) = (ours.first_chunk::<N>(), mask.first_chunk::<N>()) else {
        return false;
    };
    let (ours, theirs, mask) = (ours.as_chunks::<8>().0, theirs.as_chunks().0, mask.as_chunks().0);
    let mut differ = 0;
    for ((ours, theirs), mask) in ours.iter().zip(theirs).zip(mask) {
        let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        differ |= (word(ours) ^ word(theirs)) & word(mask);
    }
    differ == 0
}

#[inline]
fn words(piece: &[u8]) -> [u64; PIECE_BYTES / 8] {
    let mut words = [0; PIECE_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(piece.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}
