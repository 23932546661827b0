//! The way in, as far as it is the same for every link to the kernel.

use millstream_packet::{Instant, Packet, PacketBatch, Pool};

use crate::iov::SpareFrames;
use crate::limits::RECEIVE_BATCH_BYTES;
use crate::{DropCause, LinkError, LinkStats};

/// Where received packets come from, one by one.
pub(crate) trait Source {
    /// The next packet with its meta data; `None` when there is none now (or no frame for it).
    /// What is refused is counted here.
    fn next(&mut self, pool: &Pool) -> Result<Option<Packet>, LinkError>;

    fn counters(&mut self) -> &mut LinkStats;
}

/// Moves at most `limit` packets, for which there is room, and not many more bytes than are still in the
/// processor's cache when they are looked at, from `source` to `batch` and counts them. Also answers
/// whether there may be more. An error comes when nothing was moved before it.
#[inline]
pub(crate) fn receive(
    source: &mut impl Source,
    now: Instant,
    pool: &Pool,
    batch: &mut PacketBatch,
    limit: usize,
) -> Result<(usize, bool), LinkError> {
    let (mut count, mut bytes) = (0, 0);
    while count < limit && bytes < RECEIVE_BATCH_BYTES {
        let Some(mut packet) = source.next(pool)? else { return Ok((count, false)) };
        packet.meta_mut().arrival = now;
        let (len, is_super) = (packet.len(), packet.meta().segmentation.is_some());
        source.counters().count_received(len, is_super);
        count += 1;
        bytes += len;
        // There is room.
        let _ = batch.push(packet);
    }
    Ok((count, true))
}

/// Makes a packet of the `n` bytes just read, of which the first `header_len` are no part of it.
/// One shorter than `shortest` is refused, or longer than the frames hold; it leaves them where they
/// are, for the next read.
#[inline]
pub(crate) fn take(
    spares: &mut SpareFrames,
    n: usize,
    header_len: usize,
    shortest: usize,
) -> Result<Packet, DropCause> {
    let Some(len) = n.checked_sub(header_len) else { return Err(DropCause::VirtioTruncated) };
    if len >= spares.room() {
        return Err(DropCause::Truncated);
    }
    if len < shortest {
        return Err(DropCause::TooShort);
    }
    spares.take(len).ok_or(DropCause::PoolExhausted)
}
