//! Turns what a capture holds into a packet.

use millstream_link::offload::{guess_segmentation, network_offset};
use millstream_link::{Capabilities, DropCause, limits};
use millstream_packet::{Checksum, Packet, Pool};
use millstream_wire::ip::{self, IpHeader, Protocol};
use millstream_wire::{checksum, tcp, udp};

/// The bytes of one as a packet; `Ok(None)` when the pool has no frames for it.
pub(crate) fn build(
    bytes: &[u8],
    capabilities: &Capabilities,
    pool: &Pool,
) -> Result<Option<Packet>, DropCause> {
    let &Capabilities { medium, mtu, .. } = capabilities;
    if bytes.len() < medium.header_len().max(1) {
        return Err(DropCause::TooShort);
    }
    let l3 = network_offset(bytes, medium).unwrap_or_default();
    let network = bytes.get(l3..).unwrap_or_default();
    // A packet that is too long is too long for any pool: it shall not wait for frames that never
    // come.
    if network.len() > limits::SUPER_SEGMENT_BYTES as usize {
        return Err(DropCause::TooLong);
    }
    let ip = ip::parse(network, network.len()).ok();
    // Bytes behind an IP packet (padding, a frame check sequence) do not count.
    let len = ip.as_ref().map_or(network.len(), IpHeader::packet_len);
    let segmentation = match len > mtu {
        true => Some(guess_segmentation(bytes, medium, mtu).ok_or(DropCause::TooLong)?),
        false => None,
    };
    let Ok(mut packet) = Packet::from_slice(pool, limits::RECEIVE_HEADROOM_BYTES, bytes) else {
        return Ok(None);
    };
    let meta = packet.meta_mut();
    meta.segmentation = segmentation;
    if let Some(left) = ip.and_then(|ip| left_checksum(network, l3, &ip)) {
        meta.checksum = left;
    }
    Ok(Some(packet))
}

/// The transport checksum of the packet at `network`, which starts at byte `l3`, if it was captured
/// before a device was to complete it, or after it was merged: its field has the pseudo-header's
/// sum. Such a packet has come by no wire: nothing is behind it. A field that only happens to be
/// right so stays as it is when it is completed.
fn left_checksum(network: &[u8], l3: usize, ip: &IpHeader) -> Option<Checksum> {
    let offset = match ip.protocol {
        Protocol::TCP => tcp::CHECKSUM_OFFSET,
        Protocol::UDP => udp::CHECKSUM_OFFSET,
        _ => return None,
    };
    if ip.fragment.is_some() || ip.packet_len() != network.len() {
        return None;
    }
    let at = ip.header_len + offset;
    let pseudo = ip::pseudo_header_sum(ip.src, ip.dst, ip.protocol, ip.payload_len);
    let left = (checksum::fold(pseudo) as u16).to_ne_bytes();
    let start = u16::try_from(l3 + ip.header_len).ok()?;
    (network.get(at..at + 2)? == left).then_some(Checksum::Partial { start, offset: offset as u16 })
}
