//! What a segment carries, and where it lies: in frames, or in the memory of a reader that waits.

use millstream_packet::{Packet, Pool};

use crate::connection::Connection;
use crate::state::State;

/// Payload of a segment.
#[derive(Debug)]
pub enum Payload<'a> {
    /// There is none.
    None,
    /// In frames. It may be a merged burst, up to 64 KB, and may lie anywhere.
    Packet(Packet),
    /// In the memory of a reader that waits, where its owner or the link has put it.
    Placed(Placed<'a>),
}

/// Payload that lies in the memory of a reader that waits (direct placement). It stays there if it is the next of the
/// stream and the receive queue is empty; else it is copied into frames.
#[derive(Debug)]
pub struct Placed<'a> {
    /// The first bytes; never empty.
    pub bytes: &'a [u8],
    /// Those after them, for which the memory had no room.
    pub rest: Option<Packet>,
    /// Size of the parts, if it was merged from several segments.
    pub segment_size: Option<u16>,
}

impl From<Option<Packet>> for Payload<'_> {
    #[inline]
    fn from(packet: Option<Packet>) -> Self {
        packet.map_or(Payload::None, Payload::Packet)
    }
}

impl Payload<'_> {
    /// Bytes of it.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::None => 0,
            Payload::Packet(packet) => packet.len(),
            Payload::Placed(placed) => placed.len(),
        }
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of the segments that it was merged from.
    #[inline]
    pub(crate) fn segment_size(&self) -> Option<u16> {
        match self {
            Payload::None => None,
            Payload::Packet(packet) => packet.meta().segmentation.map(|parts| parts.size),
            Payload::Placed(placed) => placed.segment_size,
        }
    }

    /// All of it in frames; `None` where there is nothing, or no frame for it.
    #[inline]
    pub(crate) fn into_packet(self, pool: &Pool) -> Option<Packet> {
        match self {
            Payload::None => None,
            Payload::Packet(packet) => Some(packet),
            Payload::Placed(placed) => placed.into_packet(pool),
        }
    }
}

impl Placed<'_> {
    fn len(&self) -> usize {
        self.bytes.len() + self.rest.as_ref().map_or(0, Packet::len)
    }

    #[cold]
    fn into_packet(self, pool: &Pool) -> Option<Packet> {
        let mut packet = Packet::from_slice(pool, 0, self.bytes).ok()?;
        if let Some(rest) = self.rest {
            packet.concat(rest);
        }
        Some(packet)
    }
}

impl Connection {
    /// Whether nothing stands between the next byte that arrives and the application: no data waits to be read, and
    /// none is out of order. Then it is worth placing what comes next in a reader's memory.
    #[inline]
    pub fn awaits_data(&self) -> bool {
        self.state == State::Established
            && !self.orphaned
            && self.rcv.is_all_read()
            && !self.rcv.has_seen_fin()
            && self.rcv.is_in_order()
    }

    /// Bytes of the TCP header that a segment with data probably has.
    pub fn expected_header_len(&self) -> usize {
        if self.negotiated.timestamps { 32 } else { 20 }
    }

    /// The sequence number that the peer's next data in order begin with (RFC 9293: RCV.NXT).
    #[inline]
    pub fn next_seq(&self) -> millstream_wire::tcp::SeqNumber {
        self.rcv.next_seq()
    }
}
