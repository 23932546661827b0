//! A link in memory that takes frames of its engine's pool for what it receives, as one of the
//! kernel's does.

use millstream::link::{Link, LinkError, PairEnd, forward_link};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};

/// As a device of the kernel's: what it receives takes frames of the engine's, and what it sends
/// has left them.
pub struct Device {
    end: PairEnd,
    came: PacketBatch,
    /// For what is on its way.
    wire: Pool,
}

impl Device {
    /// Over one end of a pair; `wire` has frames for what is on its way.
    pub fn new(end: PairEnd, wire: Pool) -> Self {
        Self { end, came: PacketBatch::new(), wire }
    }
}

fn copy(packet: &Packet, pool: &Pool) -> Option<Packet> {
    let mut bytes = vec![0; packet.len()];
    packet.copy_to(0, &mut bytes);
    Packet::from_slice(pool, 0, &bytes).ok()
}

impl Link for Device {
    forward_link!(self => self.end; capabilities, wait_fd, stats, name);

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        if self.came.is_empty() {
            self.end.receive(now, &self.wire, &mut self.came)?;
        }
        let mut count = 0;
        while let Some(packet) = self.came.front().and_then(|packet| copy(packet, pool)) {
            drop(self.came.pop());
            batch.push(packet).expect("as many as there is room for");
            count += 1;
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        now: Instant,
        _: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let mut copies = PacketBatch::new();
        while let Some(packet) = batch.pop() {
            copies.push(copy(&packet, &self.wire).expect("memory")).expect("room");
        }
        self.end.transmit(now, &self.wire, &mut copies)
    }
}
