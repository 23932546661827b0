//! The data of a segment, and where it lies: in frames, or in the memory of a reader that waits.

use millstream_packet::{Packet, Pool};

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

/// Payload that lies in the memory of a reader that waits (direct placement). It stays there if it
/// is the next of the stream and the receive queue is empty; else it is copied into frames.
#[derive(Debug)]
pub struct Placed<'a> {
    /// The first bytes; never empty.
    pub bytes: &'a [u8],
    /// The bytes after them, for which the memory had no room.
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

    /// Returns whether there are no bytes.
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
