//! A link that breaks for good, as one whose interface is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream::link::{Link, LinkError, PairEnd, forward_link};
use millstream::packet::{Instant, PacketBatch, Pool};

/// Fails once it is told to; its interface is down before.
pub struct Breaking {
    end: PairEnd,
    is_broken: Arc<AtomicBool>,
}

impl Breaking {
    /// A link over this end, and what breaks it: when it is asked next, for which it is not woken.
    pub fn new(end: PairEnd) -> (Self, Arc<AtomicBool>) {
        let is_broken = Arc::new(AtomicBool::new(false));
        (Self { end, is_broken: Arc::clone(&is_broken) }, is_broken)
    }
}

impl Link for Breaking {
    forward_link!(self => self.end; capabilities, transmit, wait_fd, wants_write, prepare_sleep, stats);

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        match self.is_broken.load(Ordering::SeqCst) {
            true => Err(LinkError::Invalid("ms0 was removed".into())),
            false => self.end.receive(now, pool, batch),
        }
    }

    /// Long past, as of a link that would look what became of its interface.
    fn next_deadline(&self) -> Option<Instant> {
        self.is_broken.load(Ordering::SeqCst).then_some(Instant::ZERO)
    }

    fn is_down(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        vec![("parts", 3)]
    }

    fn name(&self) -> &str {
        "ms0"
    }
}
