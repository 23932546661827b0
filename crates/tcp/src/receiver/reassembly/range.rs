//! One range of bytes out of order, in no more memory than it needs.

use millstream_packet::{ByteQueue, Packet, Pool};

use super::Ready;
use crate::stream::put_tight;

/// Bytes that a range has room for in the place of a queue.
const INLINE_BYTES: usize = 176;

/// Bytes without a gap. Few of them lie here and hold no frame: a peer that sends a byte here and a
/// byte there would have a frame for each. More lie in frames, each of a queue with what fits into
/// it; what holds far more memory than its bytes, as the rest of a packet that came before does, is
/// copied.
pub(super) enum Range {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Queue(ByteQueue),
}

// A queue is smaller where addresses have 32 bits.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Range>() <= size_of::<ByteQueue>() + 8);

/// An empty queue, whose owner says how much it may hold.
fn queue() -> ByteQueue {
    ByteQueue::new(usize::MAX / 4)
}

impl Range {
    /// The bytes of `packet`, if they take no more memory than `room` bytes and there are frames.
    pub(super) fn of(packet: Packet, room: usize, pool: &Pool) -> Option<Range> {
        let len = packet.len();
        if len <= INLINE_BYTES {
            let mut bytes = [0; INLINE_BYTES];
            packet.copy_to(0, &mut bytes[..len]);
            return Some(Range::Inline { len: len as u8, bytes });
        }
        let mut range = queue();
        put_tight(&mut range, packet, room, pool).then_some(Range::Queue(range))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Range::Inline { len, .. } => usize::from(*len),
            Range::Queue(queue) => queue.len(),
        }
    }

    /// Memory beside the range itself.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Range::Inline { .. } => 0,
            // As a receive queue counts views.
            Range::Queue(queue) => queue.held_bytes().max(queue.len()),
        }
    }

    /// Puts `packet` to the end, as [`of`](Self::of).
    pub(super) fn grow(&mut self, packet: Packet, room: usize, pool: &Pool) -> bool {
        match self {
            Range::Queue(queue) => put_tight(queue, packet, room, pool),
            Range::Inline { len, bytes } => {
                let (have, more) = (usize::from(*len), packet.len());
                if let Some(free) = bytes[have..].get_mut(..more) {
                    packet.copy_to(0, free);
                    *len += more as u8;
                    return true;
                }
                let mut grown = queue();
                // Mostly there is room for them in front of what came.
                let fits = put_tight(&mut grown, packet, room, pool)
                    && grown.write_front(pool, &bytes[..have])
                    && grown.held_bytes() <= room;
                if fits {
                    *self = Range::Queue(grown);
                }
                fits
            }
        }
    }

    /// Puts the bytes of `above`, which follow, to the end; false, and nothing has changed, when
    /// that takes a frame and there is none.
    pub(super) fn join(&mut self, above: &mut Range, pool: &Pool) -> bool {
        match (&mut *self, above) {
            (Range::Queue(queue), Range::Queue(above)) => queue.concat(above),
            (Range::Queue(queue), Range::Inline { len, bytes }) => {
                let bytes = &bytes[..usize::from(*len)];
                if bytes.len() <= queue.room_behind() {
                    queue.write(pool, bytes);
                    return true;
                }
                let mut copy = self::queue();
                // All or nothing: they fit one frame.
                if copy.write(pool, bytes) < bytes.len() {
                    return false;
                }
                queue.concat(&mut copy);
            }
            (Range::Inline { len, bytes }, Range::Queue(above)) => {
                let mut joined = queue();
                joined.concat(above);
                if !joined.write_front(pool, &bytes[..usize::from(*len)]) {
                    above.concat(&mut joined);
                    return false;
                }
                *self = Range::Queue(joined);
            }
            (Range::Inline { len, bytes }, Range::Inline { len: more, bytes: those }) => {
                let (have, more) = (usize::from(*len), usize::from(*more));
                if let Some(free) = bytes[have..].get_mut(..more) {
                    free.copy_from_slice(&those[..more]);
                    *len += more as u8;
                    return true;
                }
                let mut joined = queue();
                // As above.
                if joined.write(pool, &bytes[..have]) < have {
                    return false;
                }
                joined.write(pool, &those[..more]);
                *self = Range::Queue(joined);
            }
        }
        true
    }

    /// Returns the rest behind the first `known` bytes, if there is one.
    pub(super) fn ready_behind(&mut self, known: usize) -> Option<Ready<'_>> {
        match self {
            Range::Inline { len, bytes } => {
                let rest = bytes[..usize::from(*len)].get(known..)?;
                (!rest.is_empty()).then_some(Ready::Bytes(rest))
            }
            Range::Queue(queue) => {
                queue.discard(known);
                (!queue.is_empty()).then_some(Ready::Queue(queue))
            }
        }
    }
}
