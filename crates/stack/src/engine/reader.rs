//! The buffer of a read that waits: where the next data of its connection may be put before their
//! segment has reached it.
//!
//! A thread that waits inside a read has its buffer ready before the data come. A link reads from
//! its device straight into it ([`millstream_link::Link::receive_into`]), for segments of known
//! flows alone that the connection expects next. The connection decides whether they are so when
//! they reach it ([`Payload::Placed`]); what is not is copied to where it belongs.
//!
//! A thread that waits for many connections gives one buffer for the data of any of them
//! ([`Stack::wait_read`](crate::local::Stack::wait_read)); into that one links put what they read,
//! as pieces.

use std::net::SocketAddr;
use std::ops::Range;

use millstream_link::limits::SUPER_SEGMENT_BYTES;
use millstream_packet::{FRAME_SIZE_BYTES, Packet, Pool};
use millstream_tcp::{Payload, Placed};

use crate::limits::Limits;
use crate::socket::SocketId;
use crate::tuning::DIRECT_ALIGNMENT_BYTES;

/// Data of one connection in the memory given to
/// [`Stack::wait_read`](crate::local::Stack::wait_read): the next ones of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The connection.
    pub id: SocketId,
    /// Where they lie in the memory; never empty.
    pub range: Range<usize>,
}

/// A place in the memory of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct PlacedAt {
    pub start: usize,
    pub len: usize,
    /// Bytes of each of the segments that were merged; 0: one was.
    pub part: u16,
}

/// A datagram that [`UdpHandle::recv_many`](crate::UdpHandle::recv_many) has copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// The sender.
    pub from: SocketAddr,
    /// Bytes of it in the buffer.
    pub len: usize,
}

/// The connections or the socket whose data may go into a buffer.
enum Whose<'a> {
    /// Segments of the connection whose read waits, one after the other.
    One(SocketId),
    /// Segments of every connection that agreed, each packet's as a piece.
    Any(&'a mut Vec<Received>),
    /// Datagrams of a socket, which are listed.
    Datagrams(SocketId, &'a mut Vec<ReceivedDatagram>),
}

/// The buffer of a read that waits.
///
/// ```text
///   0            filled                buffer.len()
///   |  the stream  |       free            |
/// ```
pub(crate) struct Reader<'a> {
    whose: Whose<'a>,
    buffer: &'a mut [u8],
    /// Bytes that connections have accepted.
    filled: usize,
}

impl<'a> Reader<'a> {
    fn new(whose: Whose<'a>, buffer: &'a mut [u8]) -> Self {
        Self { whose, buffer, filled: 0 }
    }

    /// For one connection.
    pub fn of_one(id: SocketId, buffer: &'a mut [u8]) -> Self {
        Self::new(Whose::One(id), buffer)
    }

    /// For all that agreed; the pieces are added to `received`.
    pub fn of_any(buffer: &'a mut [u8], received: &'a mut Vec<Received>) -> Self {
        Self::new(Whose::Any(received), buffer)
    }

    /// For the datagrams of a socket, added to `list`.
    pub fn of_datagrams(
        id: SocketId,
        buffer: &'a mut [u8],
        list: &'a mut Vec<ReceivedDatagram>,
    ) -> Self {
        Self::new(Whose::Datagrams(id, list), buffer)
    }

    /// Returns the socket whose datagrams are read, the place of the next one, and the list of
    /// them.
    #[inline]
    pub(in crate::engine) fn datagrams(&mut self) -> Option<DatagramRead<'_>> {
        let Self { whose: Whose::Datagrams(id, list), buffer, filled, .. } = self else {
            return None;
        };
        Some(DatagramRead { id: *id, buffer, filled, list })
    }

    /// Bytes of the stream at the start of the buffer, where it is one connection's. Whatever the
    /// connection has queued comes after them.
    pub fn filled(&self) -> usize {
        self.filled
    }

    pub(in crate::engine) fn is_for_many(&self) -> bool {
        matches!(self.whose, Whose::Any(_))
    }

    /// Returns whether the next data of a connection, which has `agreed` or not, may go there.
    pub(in crate::engine) fn may_take(&self, connection: SocketId, agreed: bool) -> bool {
        match self.whose {
            Whose::One(id) => connection == id,
            Whose::Any(_) => agreed,
            Whose::Datagrams(..) => false,
        }
    }

    /// Where a link may put the next packet's data, which must find `least` bytes: those of one
    /// connection without a gap, those of many aligned.
    pub(in crate::engine) fn next_start(&self, least: usize) -> Option<usize> {
        let rest = self.buffer.get(self.filled..).unwrap_or_default();
        let gap = match self.whose {
            Whose::Any(_) if self.filled > 0 => rest.as_ptr().align_offset(DIRECT_ALIGNMENT_BYTES),
            _ => 0,
        };
        (rest.len().checked_sub(gap)? >= least).then_some(self.filled + gap)
    }

    /// The memory from there on.
    #[inline]
    pub(in crate::engine) fn memory_from(&mut self, start: usize) -> &mut [u8] {
        self.buffer.get_mut(start..).unwrap_or_default()
    }

    /// Least room for the next packet of a link. One whose end did not fit would keep its
    /// connection from being read into.
    pub(in crate::engine) fn least_room(&self, limits: &Limits) -> usize {
        let least = limits.tuning.direct_read_bytes.max(FRAME_SIZE_BYTES);
        match self.whose {
            Whose::One(_) | Whose::Datagrams(..) => least,
            Whose::Any(_) => least.max(self.buffer.len().min(SUPER_SEGMENT_BYTES as usize)),
        }
    }

    /// Returns the placed part and the rest of a segment as its payload. Bytes that lie where the
    /// stream does not go on are copied; `None` if there is no frame for that.
    #[inline]
    pub(in crate::engine) fn payload(
        &self,
        PlacedAt { start, len, part }: PlacedAt,
        rest: Option<Packet>,
        pool: &Pool,
    ) -> Option<Payload<'_>> {
        let bytes = self.buffer.get(start..start + len).unwrap_or_default();
        if start != self.filled && !self.is_for_many() {
            return copied(bytes, rest, pool).map(Payload::Packet);
        }
        let segment_size = (part != 0 && len > usize::from(part)).then_some(part);
        Some(Payload::Placed(Placed { bytes, rest, segment_size }))
    }

    /// Counts `len` bytes that were placed from `start` on, and that the connection has accepted.
    #[inline]
    pub(in crate::engine) fn accept(&mut self, id: SocketId, start: usize, len: usize) {
        self.filled = start + len;
        if let Whose::Any(received) = &mut self.whose {
            received.push(Received { id, range: start..start + len });
        }
    }
}

#[cold]
fn copied(bytes: &[u8], rest: Option<Packet>, pool: &Pool) -> Option<Packet> {
    let mut packet = Packet::from_slice(pool, 0, bytes).ok()?;
    if let Some(rest) = rest {
        packet.concat(rest);
    }
    Some(packet)
}

/// The buffer of a read of datagrams that waits.
pub(in crate::engine) struct DatagramRead<'a> {
    pub id: SocketId,
    pub buffer: &'a mut [u8],
    /// Bytes of it that are filled.
    pub filled: &'a mut usize,
    pub list: &'a mut Vec<ReceivedDatagram>,
}

/// Copies datagrams into `buffer`, one behind the other, and lists them behind those of `list`, as
/// long as `next` has one of at most so many bytes. The first may have any number, and is cut to
/// `buffer`.
#[inline]
pub(crate) fn copy_many(
    mut buffer: &mut [u8],
    list: &mut Vec<ReceivedDatagram>,
    mut next: impl FnMut(usize) -> Option<(Packet, SocketAddr)>,
) {
    let mut room = usize::MAX;
    while let Some((packet, from)) = next(room) {
        let len = copy_out(&packet, buffer);
        list.push(ReceivedDatagram { from, len });
        buffer = &mut buffer[len..];
        room = buffer.len();
    }
}

/// Copies the packet, or as much of it as there is room for; how many bytes that was.
#[inline]
pub(crate) fn copy_out(packet: &Packet, buffer: &mut [u8]) -> usize {
    let head = packet.head();
    match buffer.get_mut(..head.len()) {
        Some(room) if head.len() == packet.len() => {
            room.copy_from_slice(head);
            head.len()
        }
        _ => packet.copy_to(0, buffer),
    }
}

#[cfg(test)]
mod tests {
    use millstream_packet::PoolConfig;

    use super::*;
    use crate::socket::SocketKind;

    #[test]
    fn what_finds_no_frame_is_not_taken_for_a_segment_without_data() {
        let pool = Pool::new(PoolConfig::fixed(64)).expect("memory");
        let mut buffer = [7; 3000];
        let reader = Reader::of_one(SocketId::new(SocketKind::Tcp, 1, 0), &mut buffer);
        // Not where the stream goes on: a segment before it was refused.
        let behind = PlacedAt { start: 1000, len: 1000, part: 0 };
        let data = |payload: Option<Payload<'_>>| payload.map(|payload| payload.len());
        assert_eq!(data(reader.payload(behind, None, &pool)), Some(1000));
        let frames: Vec<_> = std::iter::from_fn(|| pool.alloc(0)).collect();
        assert_eq!(data(reader.payload(behind, None, &pool)), None);
        drop(frames);
        // The next bytes stay where they are.
        let next = PlacedAt { start: 0, len: 1000, part: 0 };
        assert!(matches!(reader.payload(next, None, &pool), Some(Payload::Placed(_))));
    }
}
