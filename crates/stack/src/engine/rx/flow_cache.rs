//! The flow cache: the first question that a received packet is asked. The headers of a flow's
//! segments are the same but for a few fields; what was read and checked of one need not be read
//! again of the next.
//!
//! The first segment of a flow is parsed by `wire`: link header, IP, TCP, and its connection is
//! looked for. Its header bytes are kept. A later one with the very same bytes, but for what must
//! differ, is checked for what may be wrong with it (lengths and sums), and is a segment of that
//! connection. What differs: IP length, identification and header checksum; sequence and
//! acknowledgement number, window, checksum and timestamps of TCP; PSH.

mod headers;
#[cfg(test)]
mod tests;

use millstream_link::Medium;
use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_tcp::FourTuple;
use millstream_wire::checksum;
use millstream_wire::ip::Protocol;
use millstream_wire::tcp::{PlainHeader, SeqNumber, TcpFlags, TcpHeader, Timestamps};

use crate::engine::tcp::segment::Segment;
use crate::headers::segment::{ACK_AT, FLAGS_AT, SEQ_AT, WINDOW_AT};
use crate::headers::{
    FLOW_HASH_BITS, IPV4_BYTES, TCP_BYTES, be16, be32, first, is_sound_v4, is_trusted, length_sum,
    pseudo_sum, steady_sum, v4, v6,
};
use crate::socket::{SocketId, SocketKind};
use headers::{HEADERS_BYTES, Layout, Place, TIMESTAMPS_AT};

/// Flows that it has room for, found by a plain hash: each in one of four places beside each other.
/// For a thousand busy connections nearly all of them.
pub(in crate::engine) const FLOWS: usize = 2048;
pub(in crate::engine) const WAYS: usize = 4;
const _: () = assert!(FLOWS == 1 << FLOW_HASH_BITS, "as many as the hash has values");

/// Segments of known flows.
pub(in crate::engine) struct FlowCache {
    flows: Box<[Flow]>,
    /// Headers of the packet that is being parsed.
    candidate: Option<([u8; HEADERS_BYTES], Place)>,
}

/// The answer of the flow cache for a packet.
pub(in crate::engine) enum Look {
    /// It is a segment of a known flow.
    Hit(Hit),
    /// It is to be parsed: a segment of a flow that is not known, or not so, or of which something
    /// is wrong.
    Miss,
    /// It is to be parsed: no segment, or one whose flow does not show.
    Other,
}

/// A packet that has arrived.
pub(in crate::engine) struct Head<'a> {
    /// It, or what a link has not put elsewhere of it.
    packet: &'a Packet,
    /// Its first bytes.
    bytes: &'a [u8],
    /// Bytes of all of it.
    len: usize,
}

impl<'a> Head<'a> {
    /// Returns a packet of `len` bytes that begins with those of `packet`.
    #[inline]
    pub fn of(packet: &'a Packet, len: usize) -> Self {
        Self { packet, bytes: packet.head(), len }
    }

    /// Returns the sum over `len` bytes from `from` on.
    #[inline]
    fn sum(&self, from: usize, len: usize) -> u32 {
        match self.bytes.get(from..from + len) {
            Some(bytes) => checksum::sum(bytes),
            None => self.packet.sum(from, len),
        }
    }
}

/// A segment of a known flow.
pub(in crate::engine) struct Hit {
    /// The place of its flow.
    pub place: usize,
    pub header: PlainHeader,
    /// Where the payload begins and ends.
    pub start: usize,
    pub end: usize,
}

impl Hit {
    /// Bytes of payload.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns its header, as it came between the ends of its connection.
    #[inline]
    pub fn header_between(&self, ends: &FourTuple) -> TcpHeader {
        self.header.header(ends.remote.port(), ends.local.port())
    }

    /// Returns the packet's payload alone, if there is any.
    #[inline]
    pub fn payload_of(&self, mut packet: Packet) -> Option<Packet> {
        packet.crop(self.start, self.end);
        (self.len() != 0).then_some(packet)
    }
}

/// The known flow of a segment. It was checked when it was learned: link address, IP header,
/// addresses, ports and options are in order, and the connection is the one that the four-tuple
/// names, if it is still there.
#[derive(Clone)]
pub(in crate::engine) struct Flow {
    bytes: [u8; HEADERS_BYTES],
    /// Where the headers lie; `None` where no flow is known.
    layout: Option<&'static Layout>,
    pub ecn: u8,
    pub link: LinkId,
    /// Sum over the IPv4 header without length, identification and checksum.
    ip_sum: u32,
    /// Sum over the pseudo-header without the length.
    pseudo: u32,
    pub socket: SocketId,
}

impl FlowCache {
    /// One that knows no flow.
    pub fn new() -> Self {
        Self { flows: vec![Flow::UNKNOWN; FLOWS].into_boxed_slice(), candidate: None }
    }

    /// Forgets all flows: something has changed about what is received.
    pub fn forget(&mut self) {
        self.flows.fill(Flow::UNKNOWN);
    }

    /// The flow at a place.
    #[inline]
    pub fn flow(&self, place: usize) -> &Flow {
        &self.flows[place % FLOWS]
    }

    /// Looks at a packet that has come by `link`. What is to be parsed may be
    /// [learned](Self::learn).
    #[inline]
    pub fn look(&mut self, head: &Head<'_>, link: LinkId, medium: Medium) -> Look {
        let Some(found) = Place::of(head.bytes, medium) else {
            self.candidate = None;
            return Look::Other;
        };
        let set = found.set;
        for (way, flow) in self.flows[set..set + WAYS].iter().enumerate() {
            if let Some(hit) = flow.read(head, set + way, link) {
                return Look::Hit(hit);
            }
        }
        self.propose(head.bytes, found);
        Look::Miss
    }

    /// The packet that begins with `head` may be learned, when it was parsed.
    #[cold]
    fn propose(&mut self, head: &[u8], place: Place) {
        self.candidate = Some((first(head), place));
    }

    /// Remembers the flow of the segment that was parsed, if its headers, of `ip_len` and `tcp_len`
    /// bytes, are of the common kind. A flow keeps its place; where all are taken, the last gives
    /// way.
    pub fn learn(&mut self, segment: &Segment, ip_len: usize, tcp_len: usize) {
        let (Some((bytes, place)), Some(socket)) = (self.candidate.take(), segment.socket) else {
            return;
        };
        let set = &mut self.flows[place.set..place.set + WAYS];
        let Some(fresh) = Flow::of(bytes, place, segment, socket, (ip_len, tcp_len)) else {
            return;
        };
        let own = set.iter().position(|flow| flow.socket == socket);
        let way = own.or_else(|| set.iter().position(|flow| flow.layout.is_none()));
        set[way.unwrap_or(WAYS - 1)] = fresh;
    }

    /// Forgets a flow: its connection is gone.
    #[cold]
    pub fn forget_flow(&mut self, place: usize) {
        self.candidate = None;
        self.flows[place % FLOWS] = Flow::UNKNOWN;
    }
}

impl Flow {
    const UNKNOWN: Self = Self {
        bytes: [0; HEADERS_BYTES],
        layout: None,
        ecn: 0,
        link: LinkId(0),
        ip_sum: 0,
        pseudo: 0,
        socket: SocketId::new(SocketKind::Tcp, u32::MAX, 0),
    };

    fn of(
        bytes: [u8; HEADERS_BYTES],
        Place { l3, is_v6, .. }: Place,
        segment: &Segment,
        socket: SocketId,
        (ip_len, tcp_len): (usize, usize),
    ) -> Option<Self> {
        let is_plain = segment.header.flags.without(TcpFlags::PSH) == TcpFlags::ACK;
        let layout = Layout::of(&bytes, l3, is_v6, ip_len, tcp_len).filter(|_| is_plain)?;
        let ip = &bytes[l3..layout.l4];
        Some(Self {
            bytes,
            layout: Some(layout),
            ecn: segment.ecn,
            link: segment.link,
            ip_sum: if is_v6 { 0 } else { steady_sum(ip) },
            pseudo: pseudo_sum(ip, is_v6, Protocol::TCP),
            socket,
        })
    }

    /// Reads a packet. Returns the segment if it is of this flow, at `place`, and has the same
    /// headers but for fields that must differ, and if its checksums hold, or somebody trusted has
    /// said so.
    #[inline(always)]
    fn read(&self, arrived: &Head<'_>, place: usize, link: LinkId) -> Option<Hit> {
        let head = arrived.bytes;
        let layout = self.layout?;
        let Layout { l3, l4, len: start, is_v6, has_timestamps, .. } = *layout;
        if self.link != link || !layout.is_same(&self.bytes, head) {
            return None;
        }
        let (ip, tcp) = (head.get(l3..)?, head.get(l4..)?);
        let (ip, tcp_head) = (ip.first_chunk::<IPV4_BYTES>()?, tcp.first_chunk::<TCP_BYTES>()?);
        let end = match is_v6 {
            true => l4 + be16(ip, v6::LENGTH_AT)?,
            false => l3 + be16(ip, v4::LENGTH_AT)?,
        };
        // RFC 1122, 3.2.1.2: a header that does not verify is dropped.
        let is_sound = is_v6 || is_sound_v4(ip, self.ip_sum)?;
        if end < start || end > arrived.len || !is_sound {
            return None;
        }
        let len = end - l4;
        let holds = |sum| checksum::is_valid(sum + self.pseudo + length_sum(len));
        if !is_trusted(arrived.packet) && !holds(arrived.sum(l4, len)) {
            return None;
        }
        let timestamps = match has_timestamps {
            true => {
                let values = tcp.get(TIMESTAMPS_AT..)?.first_chunk::<8>()?;
                Some(Timestamps { value: be32(values, 0)?, echo: be32(values, 4)? })
            }
            false => None,
        };
        let header = PlainHeader {
            seq: SeqNumber(be32(tcp_head, SEQ_AT)?),
            ack: SeqNumber(be32(tcp_head, ACK_AT)?),
            window: be16(tcp_head, WINDOW_AT)? as u16,
            push: tcp_head[FLAGS_AT] & TcpFlags::PSH.0 != 0,
            timestamps,
        };
        Some(Hit { place, header, start, end })
    }
}

// Two cache lines.
const _: () = assert!(size_of::<Flow>() <= 144);
