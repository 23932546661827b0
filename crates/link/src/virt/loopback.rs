//! A link whose packets come back to whoever sends them: an engine's way to itself.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use millstream_packet::{Instant, Meta, Packet, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

use crate::limits::{LOOPBACK_BYTES, LOOPBACK_MTU_BYTES, LOOPBACK_PACKETS, SUPER_SEGMENT_BYTES};
use crate::{Capabilities, Link, LinkError, LinkStats, Medium, TransmitChecksum};

/// A link in memory with one end. Packets lie in a bounded queue, in packets and in the memory that
/// they hold; what finds no room stays with the sender, who is served again when some were
/// received. Nothing is copied, summed or cut.
///
/// ```
/// use millstream_link::{Link, Loopback};
///
/// assert_eq!(Loopback::new().capabilities().mtu, 16 << 10);
/// ```
#[derive(Debug)]
pub struct Loopback {
    capabilities: Capabilities,
    queue: VecDeque<Packet>,
    held_bytes: usize,
    stats: LinkStats,
}

impl Default for Loopback {
    fn default() -> Self {
        Self::new()
    }
}

impl Loopback {
    /// An empty one.
    pub fn new() -> Self {
        let capabilities = Capabilities {
            multi_access: false,
            rx_checksum: true,
            tx_checksum: TransmitChecksum { v4: true, v6: true },
            tso_bytes: Some(SUPER_SEGMENT_BYTES),
            uso_bytes: Some(SUPER_SEGMENT_BYTES),
            rx_merge: true,
            rx_ring: LOOPBACK_PACKETS,
            tx_ring: LOOPBACK_PACKETS,
            ..Capabilities::plain(Medium::Ip, LOOPBACK_MTU_BYTES, MacAddr([0; 6]))
        };
        let queue = VecDeque::with_capacity(LOOPBACK_PACKETS);
        Self { capabilities, queue, held_bytes: 0, stats: LinkStats::default() }
    }

    fn has_room(&self) -> bool {
        self.queue.len() < LOOPBACK_PACKETS && self.held_bytes < LOOPBACK_BYTES
    }
}

impl Link for Loopback {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        _pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        while !batch.is_full()
            && let Some(mut packet) = self.queue.pop_front()
        {
            self.held_bytes -= packet.held_bytes();
            let meta = packet.meta_mut();
            let Meta { checksum, segmentation, .. } = *meta;
            *meta = Meta { arrival: now, checksum, segmentation, ..Meta::default() };
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += packet.len() as u64;
            // There is room.
            let _ = batch.push(packet);
        }
        Ok(batch.len() - before)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        while self.has_room()
            && let Some(packet) = batch.pop()
        {
            self.held_bytes += packet.held_bytes();
            self.stats.tx_packets += 1;
            self.stats.tx_bytes += packet.len() as u64;
            self.queue.push_back(packet);
        }
        self.stats.tx_full += u64::from(!batch.is_empty());
        Ok(before - batch.len())
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    /// Nobody else puts anything in.
    fn prepare_sleep(&mut self) -> bool {
        self.queue.is_empty()
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        "loopback"
    }
}
