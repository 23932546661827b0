//! A link that puts payload straight into the buffer of a read that waits.

use millstream::link::{Link, LinkError, PairEnd, Placed, forward_link};
use millstream::packet::{Instant, PacketBatch, Pool};

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
    forward_link!(self => self.end; capabilities, transmit, wait_fd, stats, name);

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
        let next = self.waiting.pop();
        Ok(next.map(|packet| Placed::lay_out(packet, pool, head_len, memory)))
    }

    fn prepare_sleep(&mut self) -> bool {
        self.waiting.is_empty() && self.end.prepare_sleep()
    }
}
