//! The frames that the kernel has at the moment, by their place in the socket's memory.

use millstream_packet::{Extent, FRAME_SIZE_BYTES, Packet, Pool};

use crate::LinkError;

/// Owns each packet that was handed to the kernel until it comes back. A frame is there once at
/// most, so its number finds it.
pub(super) struct KernelFrames {
    base: usize,
    len: usize,
    slots: Box<[Option<Packet>]>,
    /// Slots taken.
    count: usize,
}

impl KernelFrames {
    /// None yet, of the memory `extent`.
    pub fn new(extent: Extent) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(extent.len / FRAME_SIZE_BYTES, || None);
        let base = extent.base.as_ptr() as usize;
        Self { base, len: extent.len, slots: slots.into_boxed_slice(), count: 0 }
    }

    /// Where `at` is in the memory, as the kernel counts.
    fn address(&self, at: *const u8) -> Option<u64> {
        let offset = (at as usize).checked_sub(self.base)?;
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
        match self.address(head.as_ptr()) {
            Some(address) if head.len() == packet.len() => self.keep(address, packet),
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
        let packet = self.slots.get_mut(address as usize / FRAME_SIZE_BYTES)?.take()?;
        self.count -= 1;
        Some(packet)
    }

    /// Frames that the kernel has.
    pub fn lent(&self) -> usize {
        self.count
    }

    /// Never gives the frames back: for when the device may still write into them.
    pub fn leak(&mut self) {
        self.slots.iter_mut().filter_map(Option::take).for_each(std::mem::forget);
        self.count = 0;
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
