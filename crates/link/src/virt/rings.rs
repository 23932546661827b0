//! The parts of links whose other side is a ring of packets: pairs and channels.

use millstream_packet::ring::{Consumer, Producer};
use millstream_packet::{Instant, Meta, Packet, PacketBatch};
use millstream_wire::ethernet::MacAddr;

use crate::medium::check_mtu;
use crate::offload::Segmenter;
use crate::offload::software_offload::Outgoing;
use crate::{Capabilities, DropCause, LinkError, LinkStats, Medium, TransmitChecksum, limits};

/// Returns the capabilities of a link between these rings. With `offload` super-segments and
/// partial checksums pass whole.
///
/// # Errors
/// When the MTU is out of range.
pub(super) fn capabilities(
    (medium, mtu, mac): (Medium, usize, MacAddr),
    offload: bool,
    rx: &Consumer<Packet>,
    tx: &Producer<Packet>,
) -> Result<Capabilities, LinkError> {
    check_mtu(mtu, limits::MTU_MAX_BYTES)?;
    Ok(Capabilities {
        multi_access: false,
        rx_checksum: offload,
        tx_checksum: TransmitChecksum { v4: offload, v6: offload },
        tso_bytes: offload.then_some(limits::SUPER_SEGMENT_BYTES),
        uso_bytes: offload.then_some(limits::SUPER_SEGMENT_BYTES),
        rx_merge: offload,
        rx_ring: rx.capacity(),
        tx_ring: tx.capacity(),
        ..Capabilities::plain(medium, mtu, mac)
    })
}

/// Forgets what the sender knew about a packet, but for how it is to be cut and summed. Returns
/// whether it is a super-segment.
#[inline(always)]
pub(super) fn arrive(packet: &mut Packet, now: Instant) -> bool {
    let Meta { arrival, flow_hash, l3_offset, l4_offset, checksum: _, segmentation, payload_sum } =
        packet.meta_mut();
    *arrival = now;
    *flow_hash = 0;
    (*l3_offset, *l4_offset) = (0, 0);
    *payload_sum = None;
    segmentation.is_some()
}

/// Puts packets into a ring, made ready one at a time. Returns how many, and true if the ring has
/// no room for the rest.
pub(super) fn put(tx: &mut Producer<Packet>, mut outgoing: Outgoing<'_>) -> (usize, bool) {
    let mut sent = 0;
    while !outgoing.is_finished() {
        let count = tx.put_bulk(&mut outgoing);
        sent += count;
        if count == 0 && !outgoing.is_finished() {
            outgoing.stats.tx_full += 1;
            return (sent, true);
        }
    }
    (sent, false)
}

/// Drops everything there is to send, as the other side is gone. Returns how many packets of the
/// batch that are.
pub(super) fn drop_all(
    batch: &mut PacketBatch,
    cutting: &mut Option<Segmenter>,
    stats: &mut LinkStats,
) -> usize {
    let begun = cutting.take().map_or(0, |cutting| cutting.remaining());
    let count = batch.len();
    stats.count_drops(DropCause::Closed, count + begun);
    batch.clear();
    count
}
