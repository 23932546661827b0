//! A message that is sent again and again without being copied.

use std::io;

use millstream::packet::{Packet, Pool};

/// The bytes of a message in packets of a pool, from the first call on.
pub(super) struct Message {
    pool: Pool,
    packet: Option<Packet>,
    /// Bytes in each block of it, 0 in frames.
    each: usize,
}

impl Message {
    pub(super) fn new(pool: Pool) -> Self {
        Self { pool, packet: None, each: 0 }
    }

    /// A packet that shares the memory in which `data` was put by the first call: in blocks of
    /// `each` bytes, as many as it fills, or in frames (0).
    pub(super) fn view(&mut self, data: &[u8], each: usize) -> io::Result<Packet> {
        let packet = match self.packet.take().filter(|_| self.each == each) {
            Some(packet) => packet,
            None => self.put(data, each)?,
        };
        let view = packet.view(&self.pool, 0, packet.len());
        self.packet = Some(packet);
        view.map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    fn put(&mut self, data: &[u8], each: usize) -> io::Result<Packet> {
        let whole = data.len().checked_div(each).map_or(0, |blocks| blocks * each);
        let data = if whole == 0 { data } else { &data[..whole] };
        // A pool may begin without blocks: they come when they were asked for.
        while whole != 0 && self.pool.alloc_block(0).is_none() && self.pool.growth_wanted() {
            self.pool.grow().map_err(io::Error::other)?;
        }
        self.each = each;
        Packet::bulk_from_slice(&self.pool, data, each)
            .map_err(|_| io::Error::other("the pool has no frames for a message"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream::packet::PoolConfig;

    fn bytes(packet: &Packet) -> Vec<u8> {
        packet.slices().flatten().copied().collect()
    }

    #[test]
    fn a_message_fills_the_blocks_that_it_was_told_of_and_is_copied_once() {
        let pool = Pool::new(PoolConfig::default()).expect("a pool");
        let mut message = Message::new(pool.clone());
        let data: Vec<u8> = (0..128 << 10).map(|at| (at % 251) as u8).collect();
        let framed = message.view(&data, 0).expect("frames");
        assert_eq!((bytes(&framed), pool.stats().used_blocks), (data.clone(), 0));
        drop(framed);
        let each = 44 * 1448;
        let blocks = message.view(&data, each).expect("blocks");
        assert_eq!(bytes(&blocks), data[..2 * each]);
        assert_eq!((blocks.slices().count(), pool.stats().used_blocks), (2, 2));
        let again = message.view(&data, each).expect("views");
        let same = |(a, b): (&[u8], &[u8])| a.as_ptr() == b.as_ptr();
        assert!(again.slices().zip(blocks.slices()).all(same));
        assert_eq!(pool.stats().used_frames, 0);
    }
}
