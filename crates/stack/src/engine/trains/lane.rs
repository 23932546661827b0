//! One flow's headers as they came last, and the train that its next segment may join.

use millstream_packet::{COALESCE_LIMIT_BYTES, Packet};
use millstream_route::LinkId;
use millstream_tcp::FourTuple;
use millstream_wire::checksum;
use millstream_wire::ip::Protocol;
use millstream_wire::tcp::{PlainHeader, SeqNumber, TcpFlags, Timestamps};

use super::super::tcp_input::Incoming;
use super::place::{
    COMMON, COMMON_BYTES, Candidate, HEADERS_BYTES, Layout, Place, TIMESTAMPS_BYTES,
    TIMESTAMPS_LAYOUT,
};
use super::run::Run;
use super::{Arrived, Read};
use crate::headers::segment::{ACK_AT, CHECKSUM_AT, FLAGS_AT, SEQ_AT, WINDOW_AT};
use crate::headers::{
    IPV4_BYTES, IPV6_BYTES, TCP_BYTES, be16, be32, is_same, is_sound_v4, is_trusted, length_sum,
    pseudo_sum, steady_sum, v4, v6,
};
use crate::socket::SocketId;

/// Payload of a train: what a super-segment can be.
const TRAIN_BYTES: usize = 65_535;

/// Where what is compared ends in most headers: Ethernet, IPv4, TCP with timestamps, whose values are left out.
const SHORT_BYTES: usize = 64;

/// Other headers are compared in three pieces of this many bytes, which may overlap.
const PIECE_BYTES: usize = 32;

/// What a segment says that differs from those before it.
#[derive(Clone, Copy)]
pub(super) struct Said {
    pub header: PlainHeader,
    /// Where its payload ends.
    pub end: usize,
}

/// Payload that a reader may have.
pub(in super::super) struct Offer {
    pub header: PlainHeader,
    /// Where the TCP header begins, the payload begins, and it ends.
    l4: usize,
    at: usize,
    end: usize,
    /// Bytes of each of the segments that it was merged from.
    pub part: usize,
    pub ecn: u8,
    /// Number of its lane.
    pub lane: usize,
}

impl Offer {
    /// Bytes of payload.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.at
    }
}

/// See the module text. What is remembered was checked when it was learned: link address, IP header, addresses, ports
/// and options are in order, and the connection is the one that the four-tuple names, if it is still there.
pub(super) struct Lane {
    bytes: [u8; HEADERS_BYTES],
    /// The bits that are the same in all.
    mask: [u8; HEADERS_BYTES],
    layout: Layout,
    /// The layout is that of most headers.
    is_common: bool,
    /// Where the last bit lies that is the same in all.
    compared: usize,
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
            layout: Layout { l3: 0, l4: 0, len: 0, is_v6: false, has_timestamps: false },
            is_common: false,
            compared: 0,
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
        (self.layout.len, self.is_common) = (0, false);
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
        if is_v6 {
            mask[l3 + v6::LENGTH_AT..][..2].fill(0);
        } else {
            for at in [v4::LENGTH_AT, v4::ID_AT, v4::CHECKSUM_AT] {
                mask[l3 + at..][..2].fill(0);
            }
        }
        for (at, len) in [(SEQ_AT, 4), (ACK_AT, 4), (WINDOW_AT, 2), (CHECKSUM_AT, 2)] {
            mask[l4 + at..][..len].fill(0);
        }
        mask[l4 + FLAGS_AT] &= !TcpFlags::PSH.0;
        self.compared = len;
        if has_timestamps {
            self.compared = l4 + TCP_BYTES + TIMESTAMPS_LAYOUT.len();
            mask[self.compared..len].fill(0);
        }
        self.pseudo = pseudo_sum(&bytes[l3..l4], is_v6, Protocol::TCP);
        self.ip_sum = if is_v6 { 0 } else { steady_sum(&bytes[l3..l4]) };
        self.bytes = bytes;
        self.layout = Layout { l3, l4, len, is_v6, has_timestamps };
        self.is_common = self.layout == COMMON;
        (self.ecn, self.link) = (segment.ecn, segment.link);
        (self.tuple, self.socket) = (segment.tuple, socket);
    }

    /// A train begins with the segment at `at` in the list, if others may join it. None joins a small one: its receive
    /// queue copies those together, where joined they would hold a frame each.
    #[inline]
    pub fn begin(&mut self, batch: u64, at: usize, header: &PlainHeader, payload: Option<&Packet>) {
        let (len, part) = payload.map_or((0, 0), size_and_part);
        let is_whole = len >= COALESCE_LIMIT_BYTES && is_multiple(len, part);
        if !is_whole || header.push || self.layout.len == 0 {
            return self.close();
        }
        self.train = Train {
            batch,
            at,
            next_seq: header.seq.0.wrapping_add(len as u32),
            room: TRAIN_BYTES.saturating_sub(len),
            part,
            ack: header.ack.0,
            window: header.window,
            timestamps: header.timestamps,
        };
    }

    /// What the packet, whose first frame is `head`, says, if it is of this flow, has the same headers but for what
    /// must differ, and is sound.
    #[inline(always)]
    pub fn read(&self, packet: &Packet, head: &[u8], link: LinkId) -> Option<Said> {
        let (said, l4) = self.unverified(packet, head, link)?;
        let is_sound = is_trusted(packet) || {
            let sum = match head.get(l4..said.end) {
                Some(bytes) => checksum::sum(bytes),
                None => packet.sum(l4, said.end - l4),
            };
            self.is_sound(l4, said.end, sum)
        };
        is_sound.then_some(said)
    }

    /// The same before its TCP checksum is looked at, and where its TCP header begins.
    #[inline(always)]
    fn unverified(&self, packet: &Packet, head: &[u8], link: LinkId) -> Option<(Said, usize)> {
        if self.link != link {
            return None;
        }
        if self.is_common
            && let Some(first) = head.first_chunk::<COMMON_BYTES>()
        {
            // The same with lengths that are known beforehand.
            let compared = first.first_chunk::<SHORT_BYTES>()?;
            if !is_same(&self.bytes, compared, &self.mask) {
                return None;
            }
            return Some((self.said(packet, first, COMMON)?, COMMON.l4));
        }
        let len = self.layout.len;
        if len < PIECE_BYTES || head.len() < len || !self.is_same(head) {
            return None;
        }
        Some((self.said(packet, head, self.layout)?, self.layout.l4))
    }

    /// What the packet says whose first bytes are `first`, the headers among them.
    #[inline(always)]
    fn said(
        &self,
        packet: &Packet,
        first: &[u8],
        Layout { l3, l4, len, is_v6, has_timestamps }: Layout,
    ) -> Option<Said> {
        let end = match is_v6 {
            true => l4 + be16(first, l3 + v6::LENGTH_AT)?,
            false => l3 + be16(first, l3 + v4::LENGTH_AT)?,
        };
        // RFC 1122, 3.2.1.2: a header that does not verify is dropped.
        if end < len || end > packet.len() || !is_v6 && !is_sound_v4(first.get(l3..)?, self.ip_sum)?
        {
            return None;
        }
        let timestamps = match has_timestamps {
            true => Some(Timestamps { value: be32(first, l4 + 24)?, echo: be32(first, l4 + 28)? }),
            false => None,
        };
        let header = PlainHeader {
            seq: SeqNumber(be32(first, l4 + SEQ_AT)?),
            ack: SeqNumber(be32(first, l4 + ACK_AT)?),
            window: be16(first, l4 + WINDOW_AT)? as u16,
            push: first.get(l4 + FLAGS_AT)? & TcpFlags::PSH.0 != 0,
            timestamps,
        };
        Some(Said { header, end })
    }

    /// Whether the checksum holds of a segment with that `sum` from its TCP header, at `l4`, to its `end`.
    #[inline(always)]
    fn is_sound(&self, l4: usize, end: usize, sum: u32) -> bool {
        checksum::is_valid(sum + self.pseudo + length_sum(end - l4))
    }

    /// What the packet, whose first frame is `head`, says before its checksum is looked at, if it is of this flow
    /// and its payload lies in its first frame, or has to be summed: else the copy to a reader saves nothing.
    #[inline(always)]
    pub fn offer(&self, packet: &Packet, head: &[u8], link: LinkId, lane: usize) -> Option<Offer> {
        let (Said { header, end }, l4) = self.unverified(packet, head, link)?;
        let at = self.layout.len;
        let part = packet.meta().segmentation.map_or(end - at, |one| usize::from(one.size));
        let ecn = self.ecn;
        let is_worth = end <= head.len() || !is_trusted(packet);
        is_worth.then_some(Offer { header, l4, at, end, part, ecn, lane })
    }

    /// Copies the payload on offer to the start of `memory`, which has room for it; false when the checksum does not
    /// hold: what was copied is no data then.
    #[inline(always)]
    pub fn copy_out(&self, packet: &Packet, head: &[u8], offer: &Offer, memory: &mut [u8]) -> bool {
        let Offer { l4, at, end, .. } = *offer;
        let Some(header) = head.get(l4..at) else { return false };
        let Some(payload) = head.get(at..end) else {
            return self.copy_out_chain(packet, header, offer, memory);
        };
        if is_trusted(packet) {
            let room = memory.get_mut(..payload.len());
            return room.map(|room| room.copy_from_slice(payload)).is_some();
        }
        // The header has an even length.
        let sum = checksum::sum(header) + checksum::copy_and_sum(payload, memory);
        self.is_sound(l4, end, sum)
    }

    /// The same where the payload, behind its `header`, lies in several frames, and is summed.
    #[inline(never)]
    fn copy_out_chain(
        &self,
        packet: &Packet,
        header: &[u8],
        offer: &Offer,
        memory: &mut [u8],
    ) -> bool {
        let Offer { l4, at, end, .. } = *offer;
        let len = offer.len();
        let Some(room) = memory.get_mut(..len) else { return false };
        let (copied, sum) = packet.copy_and_sum_to(at, room);
        copied == len && self.is_sound(l4, end, checksum::sum(header) + sum)
    }

    /// What may follow a segment of this flow, whose first frame is `head`, and which was sound.
    #[inline]
    pub fn run(&self, head: &[u8]) -> Option<Run> {
        let first = head.first_chunk().filter(|_| self.is_common)?;
        let len =
            (COMMON.l3 + be16(first, COMMON.l3 + v4::LENGTH_AT)?).checked_sub(COMMON_BYTES)?;
        Some(Run::behind(first, len, self.ip_sum, self.pseudo))
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
        let last = self.layout.len - PIECE_BYTES;
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

    /// Whether the segment continues the train of this batch.
    #[inline]
    pub fn continues(&self, batch: u64, packet: &Packet, said: &Said) -> bool {
        let train = &self.train;
        let len = said.end - self.layout.len;
        let part = packet.meta().segmentation.map_or(len, |one| usize::from(one.size));
        train.batch == batch
            && part <= usize::from(train.part)
            && train.next_seq == said.header.seq.0
            && train.ack == said.header.ack.0
            && train.window == said.header.window
            && train.timestamps == said.header.timestamps
            && len != 0
            && len <= train.room
    }

    /// Puts the payload of `packet` behind the train, which it [continues](Self::continues).
    #[inline]
    pub fn couple(&mut self, list: &mut [Arrived], mut packet: Packet, said: &Said) {
        let Some(train) = list.get_mut(self.train.at) else { return self.close() };
        // Ethernet's padding would end up inside the payload.
        packet.crop(self.layout.len, said.end);
        let (len, part) = size_and_part(&packet);
        self.train.next_seq = said.header.seq.0.wrapping_add(len as u32);
        self.train.room -= len.min(self.train.room);
        let is_last = part < self.train.part || !is_multiple(len, part);
        train.take_in(packet, self.train.part, self.layout.is_v6);
        train.header.push |= said.header.push;
        if is_last || said.header.push || self.train.room == 0 {
            self.close();
        }
    }

    /// The packet as a segment that begins a train; this is lane number `lane`.
    #[inline(always)]
    pub fn segment(&self, mut packet: Packet, said: &Said, lane: usize) -> Arrived {
        packet.crop(self.layout.len, said.end);
        let Self { ecn, link, socket, .. } = *self;
        let payload = (!packet.is_empty()).then_some(packet);
        Arrived { header: said.header, payload, socket, ecn, link, way: Read::InLane(lane as u8) }
    }

    /// The connection of its flow.
    #[inline]
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// The connection of its flow, and the ends of that.
    pub fn ends(&self) -> (SocketId, FourTuple) {
        (self.socket, self.tuple)
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
fn words(piece: &[u8]) -> [u64; PIECE_BYTES / 8] {
    let mut words = [0; PIECE_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(piece.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}
