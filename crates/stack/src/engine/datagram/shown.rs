//! Datagrams copied out of a link's own memory, for a reader that waits.
//!
//! A reader that waits for datagrams of a socket has its buffer ready before they come. A link that
//! has memory of its own ([`Link::show`](millstream_link::Link::show)) shows what it holds.
//! Datagrams of the socket whose flow is known are copied from there in the pass that verifies
//! them: no frame, no packet, no queue. The first packet that is anything else ends this: it takes
//! the way of all others, together with those behind it. While a datagram that came so waits in the
//! socket's queue, none is copied past it.

use millstream_link::Shown;
use millstream_packet::BATCH_LIMIT;
use millstream_route::LinkId;

use crate::engine::context::Context;
use crate::engine::datagram::udp_flows::{Flow, Place};
use crate::engine::datagram::udp_table::{UdpLayer, UdpSocket};
use crate::engine::ip::reach::IpReach;
use crate::engine::reader::{DatagramRead, ReceivedDatagram};
use crate::stages::Stage;

impl UdpLayer {
    /// Has the link show what it has, one batch at most, to who waits for datagrams: how many were
    /// taken.
    #[inline(never)]
    pub(in crate::engine) fn receive_shown(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        link: LinkId,
        read: DatagramRead<'_>,
    ) -> usize {
        let DatagramRead { id, buffer, filled, list } = read;
        let UdpLayer { flows, sockets, .. } = self;
        let waits = |socket: &&mut UdpSocket| {
            socket.id == id && socket.queue.is_empty() && socket.error.is_none()
        };
        let Some(socket) = sockets.get_mut(id.slot()).filter(waits) else { return 0 };
        let from = &mut reach.links[link.index()];
        let medium = from.capabilities.medium;
        let (mut last, mut bytes): (Option<&Flow>, _) = (None, 0);
        let mut take = |shown: Shown<'_>| {
            let room = buffer.get_mut(*filled..).unwrap_or_default();
            let mut copied = last.and_then(|flow| Some((flow, flow.copy(&shown, link, room)?)));
            if copied.is_none() {
                let place = Place::of(shown.bytes, medium);
                let other = place.and_then(|place| flows.at(&place));
                let other = other.filter(|flow| flow.slot == id.slot());
                copied = other.and_then(|flow| Some((flow, flow.copy(&shown, link, room)?)));
            }
            let Some((flow, len)) = copied else { return false };
            last = Some(flow);
            list.push(ReceivedDatagram { from: flow.from, len });
            *filled += len;
            bytes += shown.bytes.len();
            true
        };
        let count = from.link.show(cx.now, &cx.pool, BATCH_LIMIT, &mut take);
        if count == 0 {
            return 0;
        }
        socket.scope = Some(from.serial);
        let stats = &mut cx.stats;
        stats.rx_packets += count as u64;
        stats.rx_bytes += bytes as u64;
        stats.udp_rx += count as u64;
        stats.udp_rx_known += count as u64;
        stats.udp_rx_shown += count as u64;
        stats.batches.receive_packets.add(count);
        stats.stages.mark(Stage::Receive, count);
        count
    }
}
