//! Packets into the tx ring.

use millstream_packet::{BATCH_LIMIT, FRAME_SIZE_BYTES, Packet, PacketBatch, Pool};

use super::frames::KernelFrames;
use super::ring::Ring;
use crate::DropCause;

/// Makes one packet an entry of the tx ring, or several.
pub(super) fn submit(
    tx: &mut Ring<libc::xdp_desc>,
    frames: &mut KernelFrames,
    pool: &Pool,
    packet: Packet,
) -> Result<(), DropCause> {
    let len = packet.len();
    let packet = match frames.lend(packet) {
        Ok(addr) => {
            tx.push(libc::xdp_desc { addr, len: len as u32, options: 0 });
            return Ok(());
        }
        Err(packet) => packet,
    };
    let mut copies = PacketBatch::new();
    let pieces = len.div_ceil(FRAME_SIZE_BYTES);
    if pieces > BATCH_LIMIT || pool.alloc_bulk(0, pieces, &mut copies) < pieces {
        return Err(DropCause::PoolExhausted);
    }
    let mut entries = [libc::xdp_desc { addr: 0, len: 0, options: 0 }; BATCH_LIMIT];
    let mut done = 0;
    for (i, mut copy) in copies.drain().enumerate() {
        let n = (len - done).min(FRAME_SIZE_BYTES);
        if let Some(room) = copy.append(n) {
            packet.copy_to(done, room);
        }
        done += n;
        let options = if done < len { libc::XDP_PKT_CONTD } else { 0 };
        let Ok(addr) = frames.lend(copy) else {
            // A pool that is not the socket's gives frames that it cannot use.
            entries[..i].iter().for_each(|entry| drop(frames.take(entry.addr)));
            return Err(DropCause::PoolExhausted);
        };
        entries[i] = libc::xdp_desc { addr, len: n as u32, options };
    }
    entries[..pieces].iter().for_each(|entry| tx.push(*entry));
    Ok(())
}

/// How often the kernel is called that copies what is in the ring, before others have their turn: each call sends a
/// part, unless the device has no room, which it says in the same way.
pub(super) struct Patience(u32);

impl Patience {
    /// For so many entries in the ring, of which a call takes `budget`.
    pub fn new(pending: u32, budget: u32) -> Self {
        Self(pending.div_ceil(budget.max(1)))
    }

    /// After a call: what is left is the device's lack of room.
    #[must_use]
    pub fn is_over(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_room_is_asked_no_more_often_than_the_ring_takes_calls() {
        for (pending, budget, calls) in
            [(64, 2048, 1), (2048, 2048, 1), (2048, 16, 128), (33, 16, 3)]
        {
            let mut patience = Patience::new(pending, budget);
            assert_eq!((1..=5000).find(|_| patience.is_over()), Some(calls));
        }
    }
}
