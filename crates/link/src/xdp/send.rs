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
