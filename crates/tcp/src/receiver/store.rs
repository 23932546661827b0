//! Where data in the window goes: the queue if they are next, else the reassembly; and what gives
//! way for them.

use millstream_packet::{Packet, Pool};

use super::Receiver;
use super::reassembly::{Ready, Reassembly};
use crate::config::Config;
use crate::stream::needed_bytes;

/// Fate of data that are next in order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    /// They were taken.
    pub(crate) is_stored: bool,
    /// Ranges of what is out of order that gave way.
    pub(crate) dropped: u32,
}

impl Stored {
    fn only_if(is_stored: bool) -> Stored {
        Stored { is_stored, dropped: 0 }
    }
}

/// Fate of data ahead of what is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// By so many bytes more are out of order now.
    pub(crate) gained: u64,
    /// The first part that was there already.
    pub(crate) duplicate: Option<(u64, u64)>,
    /// Something found no memory.
    pub(crate) is_dropped: bool,
}

impl Receiver {
    /// `len` bytes of data that were next are where the application has them.
    #[inline(always)]
    pub(crate) fn take_placed(&mut self, len: usize) {
        // they hold no more memory than their own: the window is that of all such connections,
        // whatever came before
        self.advance(len, len);
    }

    /// Takes data that are next, which lie in the window, if memory allows.
    #[inline]
    pub(crate) fn take_next(&mut self, packet: Packet, config: &Config, pool: &Pool) -> Stored {
        let (len, held) = (packet.len(), self.queue_held_bytes());
        let stored = self.store(packet, config, pool);
        if stored.is_stored {
            self.advance(len, self.queue_held_bytes().saturating_sub(held));
        }
        stored
    }

    /// `len` bytes in order were accepted, for which `held` bytes of memory are held.
    #[inline(always)]
    fn advance(&mut self, len: usize, held: usize) {
        self.density.observe(len, held);
        self.nxt += len as u64;
    }

    /// Puts `packet` into the queue if memory allows: by what it holds, else copied tight, else
    /// after data that are out of order are given up.
    fn store(&mut self, packet: Packet, config: &Config, pool: &Pool) -> Stored {
        if self.memory_limit.is_set() {
            return self.store_limited(packet, config, pool);
        }
        if self.queue.is_empty() {
            return Stored::only_if(self.queue.append(packet).is_ok());
        }
        let with_it = self.held_bytes() + packet.held_alone_bytes();
        if with_it <= self.limit_bytes {
            return Stored::only_if(self.queue.append(packet).is_ok());
        }
        // what lies in the window was promised room
        let most = config.recv_buffer_bytes.max(self.limit_bytes);
        if config.recv_auto_tune && with_it <= most {
            self.limit_bytes = with_it;
            return Stored::only_if(self.queue.append(packet).is_ok());
        }
        if packet.len() * 2 < packet.held_bytes() && self.queue_held_bytes() + packet.len() <= most
        {
            return Stored::only_if(self.store_tight(&packet, config, pool));
        }
        // a window that was promised is kept within twice the limit; only then is taken back what
        // was said to be here
        let mut dropped = 0;
        while self.held_bytes() + packet.held_alone_bytes() > 2 * most {
            if !self.drop_highest() {
                return Stored { is_stored: false, dropped };
            }
            dropped += 1;
        }
        Stored { is_stored: self.queue.append(packet).is_ok(), dropped }
    }

    fn store_tight(&mut self, packet: &Packet, config: &Config, pool: &Pool) -> bool {
        let needed: usize = packet.len();
        if self.queue_held_bytes() + 2 * needed + 4096 > 2 * config.recv_buffer_bytes {
            return false;
        }
        let mut written = 0;
        for slice in packet.slices() {
            written += self.queue.write(pool, slice);
        }
        if written < needed {
            // cannot be taken back from the end: what was copied counts, the rest will come again
            self.nxt += written as u64;
            return false;
        }
        true
    }

    /// As [`store`](Self::store), with a limit of the owner: into the room of what is there, or in
    /// as little memory as it takes. What lies out of order gives way (RFC 2018 section 8: it was
    /// not acknowledged, so the peer has it still).
    #[cold]
    fn store_limited(&mut self, packet: Packet, config: &Config, pool: &Pool) -> Stored {
        let own = 2 * config.recv_buffer_bytes.max(self.limit_bytes);
        let most = self.memory_limit.most().min(own);
        let needed = needed_bytes(packet.len()).min(packet.held_bytes());
        let mut dropped = 0;
        while self.held_bytes() + needed > most
            && self.queue.room_behind() < packet.len()
            && self.drop_highest()
        {
            dropped += 1;
        }
        let room = most.saturating_sub(self.held_bytes());
        let is_stored = self.queue.put_tight(packet, room, pool);
        if !is_stored {
            self.memory_limit.note_refused();
        }
        Stored { is_stored, dropped }
    }

    /// Drops the last of the ranges that are out of order. False: there was none.
    fn drop_highest(&mut self) -> bool {
        let Some(reassembly) = self.reassembly.as_mut() else { return false };
        if !reassembly.drop_highest() {
            self.reassembly = None;
        }
        true
    }

    /// Moves what is next of what was out of order to the queue. The first part of it that was
    /// there already.
    pub(crate) fn join(&mut self, pool: &Pool) -> Option<(u64, u64)> {
        let Self { reassembly, queue, nxt, .. } = self;
        let mut duplicate = None;
        let mut take = |ready: Ready<'_>, pool: &Pool| match ready {
            Ready::Bytes(bytes) => queue.write(pool, bytes),
            Ready::Queue(more) => {
                let len = more.len();
                queue.concat(more);
                len
            }
        };
        let reassembly = reassembly.as_mut()?;
        while let Some(len) = reassembly.take_ready(*nxt, &mut duplicate, pool, &mut take) {
            *nxt += len;
        }
        self.release_empty_reassembly();
        duplicate
    }

    /// Keeps `packet`, which lies in the window from `start` on, until what is missing before it
    /// has come. `seed` is a number that the peer does not know.
    pub(crate) fn keep_early(
        &mut self,
        start: u64,
        packet: Packet,
        config: &Config,
        seed: u32,
        pool: &Pool,
    ) -> Kept {
        // small pieces hold much more memory than they carry: not all that the buffer may grow to
        // is theirs
        let most = config.recv_buffer_bytes.min(2 * self.limit_bytes);
        // the window promised room for bytes in frames: what the first ranges take themselves comes
        // beyond that
        let most =
            most.saturating_add(Reassembly::FIRST_RANGES_BYTES).min(self.memory_limit.most());
        let memory = most.saturating_sub(self.queue_held_bytes());
        let Self { reassembly, spare, .. } = self;
        let reassembly = reassembly
            .get_or_insert_with(|| spare.take().unwrap_or_else(|| Box::new(Reassembly::new(seed))));
        let before = reassembly.bytes();
        let inserted = reassembly.insert(start, packet, memory, pool);
        let gained = reassembly.bytes().saturating_sub(before);
        if inserted.dropped {
            self.memory_limit.note_refused();
        }
        self.release_empty_reassembly();
        Kept { gained, duplicate: inserted.duplicate, is_dropped: inserted.dropped }
    }

    /// Nothing is out of order any more. A path that reorders needs it again soon: its memory is
    /// kept, if little.
    fn release_empty_reassembly(&mut self) {
        if self.reassembly.as_ref().is_some_and(|r| r.is_empty()) {
            self.spare = self.reassembly.take().filter(|r| r.is_small());
        }
    }
}
