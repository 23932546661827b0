//! The answer that a reader waits for: a few bytes in the only packet of a batch.
//!
//! What `copied` does for any payload, for one that is smaller than what would be done for it: its headers are those of
//! the one before ([`Trains::few`](super::trains::Trains::few)), it is verified before it is copied, and its connection
//! is visited once.

use millstream_packet::{Instant, sum};
use millstream_route::LinkId;
use millstream_tcp::PlacedData;

use super::Engine;
use super::direct::DirectRead;
use crate::socket::SocketId;
use crate::stages::Stage;

impl Engine {
    /// The only packet of a batch, if it has a few bytes for the reader; else nothing has changed.
    #[inline(never)]
    pub(super) fn carry_few_to_reader(
        &mut self,
        now: Instant,
        link: LinkId,
        id: SocketId,
        read: &mut DirectRead<'_>,
    ) -> bool {
        let Some(packet) = self.received.front() else { return false };
        let Some(few) = self.trains.few(packet, link, id) else { return false };
        let len = few.payload.len();
        let Some(memory) = read.free_mut().get_mut(..len) else { return false };
        let sharers = self.tcp.quiet.len() as u32;
        let Some((slot, socket)) = self.tcp.by_id(id) else { return false };
        if !socket.in_flows || socket.half_open {
            return false;
        }
        self.out.stats.stages.mark(Stage::Receive, 1);
        socket.brief(sharers, &mut self.account, now);
        let data = PlacedData { bytes: len, rest: None, segment_size: None, ecn: few.ecn };
        let Some(output) = socket.conn.take_plain_placed(now, &few.header, data) else {
            return false;
        };
        socket.settle_memory(&mut self.account);
        let told = output || socket.conn.has_events() || socket.conn.owed_ack_bytes() != 0;
        let deadline = socket.conn.plain_deadline();
        sum::copy_few(few.payload, memory);
        let stats = &mut self.out.stats;
        stats.batches.receive_packets.add(1);
        stats.rx_packets += 1;
        stats.rx_bytes += packet.len() as u64;
        stats.tcp_rx_segments += 1;
        stats.tcp_rx_copied_bytes += len as u64;
        drop(self.received.pop());
        read.fill(len);
        if told || !self.tcp.wheel.covers_all(slot, deadline) {
            self.settle_taken(now, slot, output);
        }
        debug_assert!(self.tcp.is_armed(slot));
        self.out.stats.stages.mark(Stage::Tcp, 1);
        true
    }
}
