//! Completing a partial transport checksum in software.

use millstream_packet::{Checksum, Packet, Pool, sum};

use super::OffloadError;

/// The folded one's complement sum of `packet`'s bytes from `start` to its end, in memory order.
pub fn transport_sum(packet: &Packet, start: usize) -> u32 {
    packet.sum(start, packet.len().saturating_sub(start))
}

/// Completes `packet`'s checksum if it is [`Checksum::Partial`], and leaves it `Unverified`: the bytes now carry it.
/// Returns whether there was anything to do.
///
/// The field at `start + offset` must hold the pseudo-header's sum, as the stack and virtio-net leave it. A shared
/// header frame is copied first, payload never.
///
/// # Errors
/// `Malformed` when the checksum lies outside the packet or beyond the contiguous headers; `Exhausted` when the header
/// frame was shared and there is no frame for the copy. The packet is unchanged then.
pub fn complete_checksum(packet: &mut Packet, pool: &Pool) -> Result<bool, OffloadError> {
    let Checksum::Partial { start, offset } = packet.meta().checksum else { return Ok(false) };
    let field = usize::from(start) + usize::from(offset);
    if field + 2 > packet.len() {
        return Err(OffloadError::Malformed);
    }
    if field + 2 > packet.head().len() {
        packet.pull_up(field + 2).map_err(|_| OffloadError::Malformed)?;
    }
    let head = packet.make_head_mut(pool)?;
    debug_assert!(head.len() >= field + 2);
    let value = not_zero(sum::finish(transport_sum(packet, usize::from(start))));
    let Some(head) = packet.head_mut() else { return Err(OffloadError::Exhausted) };
    head[field..field + 2].copy_from_slice(&value);
    packet.meta_mut().checksum = Checksum::Unverified;
    Ok(true)
}

/// A computed checksum as it is sent: all ones instead of zero, which UDP reserves for "none" (RFC 768, RFC 8200
/// section 8.1) and which TCP takes as the same number.
pub(super) fn not_zero(value: [u8; 2]) -> [u8; 2] {
    if value == [0, 0] { [0xff, 0xff] } else { value }
}
