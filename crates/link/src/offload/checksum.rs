//! Completing a partial transport checksum in software.

use millstream_packet::{Checksum, Packet, Pool, sum};
use millstream_wire::udp;

use super::OffloadError;

/// The folded one's complement sum of `packet`'s bytes from `start` to its end, in memory order.
pub fn transport_sum(packet: &Packet, start: usize) -> u32 {
    packet.sum(start, packet.len().saturating_sub(start))
}

/// Completes `packet`'s checksum if it is [`Checksum::Partial`], and leaves it `Unverified`: the
/// bytes now carry it. Returns whether there was anything to do.
///
/// The field at `start + offset` must hold the pseudo-header's sum, as the stack and virtio-net
/// leave it. A shared header frame is copied first, payload never.
///
/// # Errors
/// `Malformed` when the checksum lies outside the packet or beyond the contiguous headers;
/// `Exhausted` when the header frame was shared and there is no frame for the copy. The packet is
/// unchanged then.
pub fn complete_checksum(packet: &mut Packet, pool: &Pool) -> Result<bool, OffloadError> {
    let Checksum::Partial { start, offset } = packet.meta().checksum else { return Ok(false) };
    let at = usize::from(start) + usize::from(offset);
    if at + 2 > packet.len() {
        return Err(OffloadError::Malformed);
    }
    if at + 2 > packet.head().len() {
        packet.pull_up(at + 2).map_err(|_| OffloadError::Malformed)?;
    }
    let head = packet.make_head_mut(pool)?;
    debug_assert!(head.len() >= at + 2);
    let value = field(transport_sum(packet, usize::from(start)), usize::from(offset));
    let Some(head) = packet.head_mut() else { return Err(OffloadError::Exhausted) };
    head[at..at + 2].copy_from_slice(&value);
    packet.meta_mut().checksum = Checksum::Unverified;
    Ok(true)
}

/// The checksum field of a transport whose field is at `offset` in its header, for the sum over
/// everything. All ones stand for zero in UDP alone, where zero means "none" (RFC 768).
pub fn field(sum: u32, offset: usize) -> [u8; 2] {
    match sum::finish(sum) {
        [0, 0] if offset == udp::CHECKSUM_OFFSET => [0xff, 0xff],
        value => value,
    }
}
