//! The frames that the kernel has at the moment, by their place in the socket's memory.

use std::ptr::NonNull;

use millstream_packet::{Extent, FRAME_SIZE_BYTES, Packet, Pool};

use crate::LinkError;

/// Owns each packet that was handed to the kernel until it comes back. A frame is there once at
/// most, so its number finds it.
pub(super) struct KernelFrames {
    memory: Memory,
    len: usize,
    slots: Box<[Option<Packet>]>,
    /// Slots taken.
    count: usize,
}

/// The start of the socket's memory.
struct Memory(NonNull<u8>);

// SAFETY: an address; what it leads to is read only in frames whose packets lie beside it.
unsafe impl Send for Memory {}

impl KernelFrames {
    /// None yet, of the memory `extent`.
    pub fn new(extent: Extent) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(extent.len / FRAME_SIZE_BYTES, || None);
        Self {
            memory: Memory(extent.base),
            len: extent.len,
            slots: slots.into_boxed_slice(),
            count: 0,
        }
    }

    /// Where `at` is in the memory, as the kernel counts.
    fn address(&self, at: *const u8) -> Option<u64> {
        let offset = at.addr().checked_sub(self.memory.0.addr().get())?;
        (offset < self.len).then_some(offset as u64)
    }

    /// Takes an empty frame to receive into and returns its address; gives it back when it is not
    /// of this memory.
    pub fn lend_empty(&mut self, mut packet: Packet) -> Result<u64, Packet> {
        let at = packet.spare_slices().next().map(|room| room.as_ptr());
        match at.and_then(|at| self.address(at)) {
            Some(address) => self.keep(address, packet),
            None => Err(packet),
        }
    }

    /// Takes a packet of one frame to send and returns its address; gives it back when its bytes
    /// are not of this memory, or the kernel has that frame already.
    pub fn lend(&mut self, packet: Packet) -> Result<u64, Packet> {
        let head = packet.head();
        // Where no byte is may be the end of a frame, which is the place of the next.
        let is_one = !head.is_empty() && head.len() == packet.len();
        match self.address(head.as_ptr()) {
            Some(address) if is_one => self.keep(address, packet),
            _ => Err(packet),
        }
    }

    fn keep(&mut self, address: u64, packet: Packet) -> Result<u64, Packet> {
        let slot = &mut self.slots[address as usize / FRAME_SIZE_BYTES];
        if slot.is_some() {
            return Err(packet);
        }
        *slot = Some(packet);
        self.count += 1;
        Ok(address)
    }

    /// The packet at an address that the kernel gave back.
    pub fn take(&mut self, address: u64) -> Option<Packet> {
        let number = usize::try_from(address).ok()? / FRAME_SIZE_BYTES;
        let packet = self.slots.get_mut(number)?.take()?;
        self.count -= 1;
        Some(packet)
    }

    /// The `len` bytes at an address that the kernel gave back, in a frame that it has, where they
    /// lie. It has the frame still: before it is told that it may write there again, the borrow
    /// must be over.
    #[inline]
    pub fn written(&self, address: u64, len: usize) -> Option<&[u8]> {
        let address = usize::try_from(address).ok()?;
        self.slots.get(address / FRAME_SIZE_BYTES)?.as_ref()?;
        if len > FRAME_SIZE_BYTES - address % FRAME_SIZE_BYTES {
            return None;
        }
        // SAFETY: inside one frame of the extent, of which there are as many as slots. Its packet
        // is here, so nobody else writes to it; the kernel has given it back, and gets it again by
        // who has `self` and no borrow of it.
        Some(unsafe { std::slice::from_raw_parts(self.memory.0.as_ptr().add(address), len) })
    }

    /// Has the first bytes at an address brought into the cache.
    #[inline]
    pub fn prefetch(&self, address: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.memory.0.as_ptr().wrapping_add(address as usize).cast::<i8>();
            for line in 0..2 {
                // SAFETY: a hint, which touches nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64 * line)) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    /// Frames that the kernel has.
    pub fn lent(&self) -> usize {
        self.count
    }

    /// Returns whether any of them is one to send: those to receive into are empty.
    pub fn has_sent(&self) -> bool {
        self.slots.iter().flatten().any(|packet| !packet.is_empty())
    }

    /// Never gives the frames back: for when the device may still write into them.
    pub fn leak(&mut self) {
        self.leak_those(|_| true);
    }

    /// The same of those to send: for when it may still read them.
    pub fn leak_sent(&mut self) {
        self.leak_those(|packet| !packet.is_empty());
    }

    fn leak_those(&mut self, is_one: impl Fn(&Packet) -> bool) {
        for slot in &mut self.slots {
            if let Some(packet) = slot.take_if(|packet| is_one(packet)) {
                std::mem::forget(packet);
                self.count -= 1;
            }
        }
    }
}

/// The one extent that all frames of `pool` are in, and ever will be.
pub(super) fn whole(pool: &Pool) -> Result<Extent, LinkError> {
    let stats = pool.stats();
    match pool.extents().as_slice() {
        [extent] if stats.frames == stats.limit_frames => Ok(*extent),
        _ => Err(LinkError::Invalid(
            "AF_XDP needs a pool of one extent: make it with initial_frames = limit_frames".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_packet::PoolConfig;

    fn frames() -> (Pool, KernelFrames) {
        let pool = Pool::new(PoolConfig::fixed(8)).unwrap();
        let extent = whole(&pool).unwrap();
        (pool, KernelFrames::new(extent))
    }

    #[test]
    fn an_address_that_is_none_leads_nowhere() {
        let (pool, mut frames) = frames();
        let address = frames.lend(Packet::from_slice(&pool, 100, b"there").unwrap()).unwrap();
        let end = frames.len as u64;
        for wrong in [0, end, end - 1, 1 << 32, address ^ 1 << 40, u64::MAX, u64::MAX - 2047] {
            assert!(frames.take(wrong).is_none() && frames.written(wrong, 1).is_none(), "{wrong}");
        }
        assert_eq!(frames.written(address, 5), Some(&b"there"[..]));
        let room = FRAME_SIZE_BYTES - 100;
        assert_eq!(frames.written(address, room).map(<[u8]>::len), Some(room));
        for beyond in [room + 1, usize::MAX, usize::MAX - 2047, u32::MAX as usize] {
            assert!(frames.written(address, beyond).is_none(), "{beyond}");
        }
        assert_eq!(frames.take(address).unwrap().head(), b"there");
        assert_eq!(frames.lent(), 0);
    }

    /// One without a byte may lie where the next frame begins.
    #[test]
    fn a_packet_without_a_byte_takes_no_other_frames_place() {
        let (pool, mut frames) = frames();
        for headroom in [0, 128, FRAME_SIZE_BYTES] {
            assert!(frames.lend(pool.alloc(headroom).unwrap()).is_err());
        }
        let other = Pool::new(PoolConfig::fixed(8)).unwrap();
        assert!(frames.lend(Packet::from_slice(&other, 0, b"other").unwrap()).is_err());
        assert!(frames.lend_empty(other.alloc(0).unwrap()).is_err());
        assert_eq!(frames.lent(), 0);
    }
}
