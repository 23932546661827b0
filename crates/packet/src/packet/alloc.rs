//! Packets from a pool.

use super::chain::RingBuilder;
use super::{Packet, PacketBatch};
use crate::limits::{FRAME_SIZE_BYTES, PACKET_LIMIT_BYTES};
use crate::memory::{FRAME_UNITS, Pool};

impl Pool {
    /// Returns one empty frame, its data starting after `headroom` bytes (at most 2,048).
    #[inline]
    pub fn alloc(&self, headroom: usize) -> Option<Packet> {
        let entry = self.take_frame()?;
        entry.reset_frame(headroom);
        Some(Packet::from_ring(entry))
    }

    /// Returns one empty block of [`BLOCK_ROOM_BYTES`](crate::BLOCK_ROOM_BYTES), its data starting
    /// after `headroom` of them: for bulk, since it is charged for whole
    /// ([`BLOCK_HELD_BYTES`](crate::BLOCK_HELD_BYTES)) however little it holds. `None` is ordinary:
    /// the pool has no blocks, or has to grow first. The caller takes frames then.
    #[inline]
    pub fn alloc_block(&self, headroom: usize) -> Option<Packet> {
        let entry = self.take_block()?;
        entry.reset_block(headroom);
        Some(Packet::from_ring(entry))
    }

    /// Returns an empty packet with spare room for at least `capacity` bytes, over as many frames
    /// as that takes, `headroom` bytes free before the first. All or nothing.
    pub fn alloc_chain(&self, headroom: usize, capacity: usize) -> Option<Packet> {
        if capacity > PACKET_LIMIT_BYTES {
            return None;
        }
        let mut ring = RingBuilder::new();
        let (mut headroom, mut room) = (headroom.min(FRAME_SIZE_BYTES), 0);
        loop {
            // On failure the frames taken so far are freed by `ring`.
            let frame = self.take_frame()?;
            frame.reset_frame(headroom);
            ring.push(frame, FRAME_UNITS);
            room += FRAME_SIZE_BYTES - headroom;
            if room >= capacity {
                return ring.finish();
            }
            headroom = 0;
        }
    }

    /// Puts up to `n` packets, as [`alloc`](Self::alloc) makes them, at the end of `batch`, as far
    /// as it has room and the pool frames. Returns their number.
    pub fn alloc_bulk(&self, headroom: usize, n: usize, batch: &mut PacketBatch) -> usize {
        let n = n.min(batch.room());
        let (mut frames, mut filling) = (self.taking_frames(), batch.filling());
        for done in 0..n {
            let Some(frame) = frames.take() else { return done };
            frame.reset_frame(headroom);
            filling.put(Packet::from_ring(frame));
        }
        n
    }
}
