//! Frames that are registered with a ring.
//!
//! The kernel has their pages at hand: a read copies to where they lie in its own memory, without
//! looking the caller's addresses up and without the checks of a copy to a process.

use std::io;

use io_uring::IoUring;
use millstream_packet::{Extent, Packet, Pool, PoolConfig};

use crate::limits::{RECEIVE_HEADROOM_BYTES, REGISTERED_FRAMES};

/// A pool of its own, small enough to stay in a processor's cache, whose memory is registered.
/// Packets of it may outlive it, as those of any pool.
pub(super) struct Registered {
    pool: Pool,
    /// Where its frames lie, one extent for each registered buffer.
    extents: Vec<Extent>,
}

// SAFETY: the extents are looked at as addresses only.
unsafe impl Send for Registered {}

impl Registered {
    /// Maps [`REGISTERED_FRAMES`] frames and registers them with `ring`, which has no buffers yet.
    ///
    /// # Errors
    /// The kernel's refusal: `ENOMEM` beyond the limit of locked memory, or without memory.
    pub fn with(ring: &IoUring) -> io::Result<Self> {
        let pool = Pool::new(PoolConfig::fixed(REGISTERED_FRAMES)).map_err(io::Error::other)?;
        let extents = pool.extents();
        let buffers: Vec<_> = extents
            .iter()
            .map(|extent| libc::iovec {
                iov_base: extent.base.as_ptr().cast(),
                iov_len: extent.len,
            })
            .collect();
        // SAFETY: the ring keeps the pages themselves, and writes to them only where a read was
        // asked for that goes into a frame.
        unsafe { ring.submitter().register_buffers(&buffers)? };
        Ok(Self { pool, extents })
    }

    /// An empty frame, if one is free.
    pub fn alloc(&self) -> Option<Packet> {
        self.pool.alloc(RECEIVE_HEADROOM_BYTES)
    }

    /// The number of the registered buffer that `room` lies in.
    pub fn index_of(&self, room: &[u8]) -> Option<u16> {
        let at = room.as_ptr() as usize;
        let holds = |extent: &Extent| {
            at.checked_sub(extent.base.as_ptr() as usize)
                .is_some_and(|offset| offset + room.len() <= extent.len)
        };
        self.extents.iter().position(holds).map(|index| index as u16)
    }
}
