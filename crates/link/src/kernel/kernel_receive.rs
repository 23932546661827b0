//! The way in, as far as it is the same for every link to the kernel.

use millstream_packet::{Instant, Packet, PacketBatch, Pool};

use crate::kernel::posted_buffers::SpareFrames;
use crate::limits::RECEIVE_BATCH_BYTES;
use crate::{DropCause, LinkError, LinkStats};

/// The next step of a [`Source`].
pub(crate) enum Next {
    Packet(Packet),
    /// One that was dropped and counted.
    Refused,
    /// There is none now, or no frame for it.
    Nothing,
}

/// Where received packets come from, one by one.
pub(crate) trait Source {
    /// The next packet with its meta data.
    fn next(&mut self, pool: &Pool) -> Result<Next, LinkError>;

    fn counters(&mut self) -> &mut LinkStats;
}

/// Moves at most `limit` packets, for which there is room, and not many more bytes than are still
/// in the processor's cache when they are looked at, from `source` to `batch` and counts them.
/// Refused ones are as much work, and count against the limit, too. Returns their number, and
/// whether there may be more. An error comes when nothing was moved before it; after packets it is
/// left to the next call, whose read fails again.
pub(crate) fn receive(
    source: &mut impl Source,
    now: Instant,
    pool: &Pool,
    batch: &mut PacketBatch,
    limit: usize,
) -> Result<(usize, bool), LinkError> {
    let (mut count, mut refused, mut bytes) = (0, 0, 0);
    while count + refused < limit && bytes < RECEIVE_BATCH_BYTES {
        let mut packet = match source.next(pool) {
            Ok(Next::Packet(packet)) => packet,
            Ok(Next::Refused) => {
                refused += 1;
                continue;
            }
            Ok(Next::Nothing) => return Ok((count, false)),
            Err(_) if count != 0 => return Ok((count, true)),
            Err(error) => return Err(error),
        };
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
/// One shorter than `shortest` is refused, or longer than the frames hold; it leaves them where
/// they are, for the next read.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pool;

    /// So many packets, then it is broken.
    struct Breaking(usize, LinkStats);

    impl Source for Breaking {
        fn next(&mut self, pool: &Pool) -> Result<Next, LinkError> {
            self.0 = match self.0.checked_sub(1) {
                Some(left) => left,
                None => return Err(LinkError::Invalid("gone".into())),
            };
            Ok(Packet::from_slice(pool, 0, &[7; 60]).map_or(Next::Nothing, Next::Packet))
        }

        fn counters(&mut self) -> &mut LinkStats {
            &mut self.1
        }
    }

    #[test]
    fn an_error_comes_after_what_came_before_it() {
        let mut source = Breaking(3, LinkStats::default());
        let mut batch = PacketBatch::new();
        let mut call = || receive(&mut source, Instant::ZERO, &pool(), &mut batch, 64);
        assert_eq!(call().unwrap(), (3, true));
        assert!(call().is_err());
        assert_eq!((batch.len(), source.1.rx_packets), (3, 3));
    }

    /// Every second one is refused, for ever.
    struct Bad(u64, LinkStats);

    impl Source for Bad {
        fn next(&mut self, pool: &Pool) -> Result<Next, LinkError> {
            self.0 += 1;
            if self.0.is_multiple_of(2) {
                return Ok(Next::Refused);
            }
            Ok(Packet::from_slice(pool, 0, &[7; 60]).map_or(Next::Nothing, Next::Packet))
        }

        fn counters(&mut self) -> &mut LinkStats {
            &mut self.1
        }
    }

    #[test]
    fn what_is_refused_counts_as_work() {
        let mut source = Bad(0, LinkStats::default());
        let mut batch = PacketBatch::new();
        for done in [10, 20] {
            let taken = receive(&mut source, Instant::ZERO, &pool(), &mut batch, 10).unwrap();
            assert_eq!((taken, source.0, batch.len()), ((5, true), done, done as usize / 2));
        }
    }
}
