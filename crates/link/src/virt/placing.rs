//! A link in memory that is read as a device is.

use millstream_packet::{Instant, Packet, PacketBatch, Pool};

use crate::{Link, LinkError, PairEnd, Placed, forward_link};

/// A pair's end for tests that reads and writes as a TAP device does: the next packet's payload
/// goes where the caller says, and comes from there. Of this crate and, by the feature `testing`,
/// of those above.
#[derive(Debug)]
pub struct Placing {
    end: PairEnd,
    waiting: PacketBatch,
}

impl Placing {
    /// Over one end of a pair.
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

    fn borrows(&self) -> bool {
        true
    }

    fn transmit_from(
        &mut self,
        now: Instant,
        pool: &Pool,
        head: Packet,
        payload: &[u8],
    ) -> Result<Option<Packet>, LinkError> {
        let copies =
            (Packet::from_slice(pool, 0, head.head()), Packet::from_slice(pool, 0, payload));
        let (Ok(mut whole), Ok(payload)) = copies else { return Ok(Some(head)) };
        *whole.meta_mut() = *head.meta();
        whole.concat(payload);
        let mut batch = PacketBatch::new();
        let _ = batch.push(whole);
        self.end.transmit(now, pool, &mut batch)?;
        Ok((!batch.is_empty()).then_some(head))
    }

    fn prepare_sleep(&mut self) -> bool {
        self.waiting.is_empty() && self.end.prepare_sleep()
    }
}
