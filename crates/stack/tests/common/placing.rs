//! A link that puts payload straight into the buffer of a read that waits.

use std::os::fd::RawFd;

use millstream::link::{Capabilities, Link, LinkError, LinkStats, PairEnd, Placed};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};

/// A pair's end that reads as a TAP device does: the next packet's bytes go where the caller says.
pub struct Placing {
    end: PairEnd,
    waiting: PacketBatch,
}

impl Placing {
    pub fn new(end: PairEnd) -> Self {
        Self { end, waiting: PacketBatch::new() }
    }
}

impl Link for Placing {
    fn capabilities(&self) -> &Capabilities {
        self.end.capabilities()
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let mut count = 0;
        while let Some(packet) = self.waiting.pop() {
            batch.push(packet).expect("room for what one batch held");
            count += 1;
        }
        Ok(count + self.end.receive(now, pool, batch)?)
    }

    fn places(&self) -> bool {
        true
    }

    fn receive_into(
        &mut self,
        now: Instant,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        if self.waiting.is_empty() {
            self.end.receive(now, pool, &mut self.waiting)?;
        }
        let Some(packet) = self.waiting.pop() else { return Ok(None) };
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(0, &mut bytes);
        let (first, after) = bytes.split_at(head_len.min(bytes.len()));
        let (placed, rest) = after.split_at(after.len().min(memory.len()));
        memory[..placed.len()].copy_from_slice(placed);
        let mut head = Packet::from_slice(pool, 64, first).expect("a frame");
        *head.meta_mut() = *packet.meta();
        let rest = (!rest.is_empty()).then(|| Packet::from_slice(pool, 0, rest).expect("frames"));
        Ok(Some(Placed { head, bytes: placed.len(), rest }))
    }

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.end.transmit(now, pool, batch)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        self.end.wait_fd()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.waiting.is_empty() && self.end.prepare_sleep()
    }

    fn stats(&self) -> LinkStats {
        self.end.stats()
    }

    fn name(&self) -> &str {
        self.end.name()
    }
}
