//! How much memory a connection holds, and how it does with less where its owner has little for all.
//!
//! Its own limits, which follow what it needs, hold in any case. Beyond them its owner may say that it has less: then the
//! window is not opened further than that, and what arrives beyond is dropped, its ACK taken all the same. What lies out
//! of order gives way to what is next (RFC 2018 section 8: it was not acknowledged, so the peer has it still).

use millstream_packet::{ByteQueue, FRAME_HELD_BYTES, FRAME_SIZE_BYTES, Packet, Pool};

use crate::connection::Connection;
use crate::error::ConnError;
use crate::limits::BUFFER_MIN_BYTES;
use crate::stream::queue_limits;

/// In the place of the owner's limit: no limit but its own.
pub(crate) const UNLIMITED: u32 = REFUSED - 1;

/// Beside the owner's limit: data were dropped by it, and the owner was not told yet.
const REFUSED: u32 = 1 << 31;

fn limit(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(UNLIMITED).min(UNLIMITED - 1)
}

impl Connection {
    /// What the receive side may hold from now on, in bytes of memory; `None`: as much as its own limits say. What
    /// arrives and would have it hold more is dropped. The window is offered by as much, and by
    /// [`BUFFER_MIN_BYTES`](crate::limits::BUFFER_MIN_BYTES) at least; what was offered before stays offered. To be set
    /// anew with each segment where it changes: nothing that is held is dropped by this call.
    pub fn set_memory_limit(&mut self, most_bytes: Option<usize>) {
        self.rcv.tune.memory_most = most_bytes.map_or(UNLIMITED, limit);
    }

    /// Memory for which a window may be offered by that.
    #[inline(always)]
    pub(crate) fn memory_window(&self) -> usize {
        ((self.rcv.tune.memory_most & !REFUSED) as usize).max(BUFFER_MIN_BYTES)
    }

    /// Whether its owner has set a limit.
    #[inline(always)]
    pub fn is_memory_limited(&self) -> bool {
        self.rcv.tune.memory_most != UNLIMITED
    }

    /// Most that the receive side may hold by that.
    #[inline]
    pub(crate) fn memory_most(&self) -> usize {
        match self.is_memory_limited() {
            true => (self.rcv.tune.memory_most & !REFUSED) as usize,
            false => usize::MAX,
        }
    }

    /// Bytes of memory that its queues hold, what is out of order among them.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.receive_held_bytes() + self.send_held_bytes()
    }

    /// Those that wait to be read, or are out of order.
    #[inline]
    pub fn receive_held_bytes(&self) -> usize {
        self.memory_in()
    }

    /// Those that are out of order.
    pub fn early_held_bytes(&self) -> usize {
        self.rcv.reassembly.as_ref().map_or(0, |reassembly| reassembly.held_bytes())
    }

    /// Those that wait to be sent, or to be acknowledged.
    #[inline]
    pub fn send_held_bytes(&self) -> usize {
        self.snd.queue().held_bytes()
    }

    /// How far the peer has acknowledged, and how far the application has read: offsets, wrapping. By these what is held
    /// becomes less.
    pub fn memory_passed(&self) -> (u32, u32) {
        (self.snd.una() as u32, (self.rcv.nxt as u32).wrapping_sub(self.rcv.queue.len() as u32))
    }

    /// Whether data were dropped since this was last asked, as the owner's limit had no room for them.
    pub fn take_refused(&mut self) -> bool {
        let most = &mut self.rcv.tune.memory_most;
        std::mem::replace(most, *most & !REFUSED) & REFUSED != 0
    }

    pub(crate) fn note_refused(&mut self) {
        if self.is_memory_limited() {
            self.rcv.tune.memory_most |= REFUSED;
        }
    }

    /// Drops what is out of order, the farthest first, until it holds no more than `keep_bytes`; how many bytes of
    /// memory that gave back.
    pub fn prune_early(&mut self, keep_bytes: usize) -> usize {
        self.rcv.spare = None;
        let Some(reassembly) = self.rcv.reassembly.as_mut() else { return 0 };
        let held = reassembly.held_bytes();
        reassembly.prune(keep_bytes);
        let left = reassembly.held_bytes();
        if reassembly.is_empty() {
            self.rcv.reassembly = None;
            return held;
        }
        held.saturating_sub(left)
    }

    /// Ends the connection, as it holds memory that others need and nothing of it goes on. The peer is told by RST, the
    /// application by [`ConnError::Evicted`], and what was received and not read is dropped.
    pub fn evict(&mut self) {
        let unread = self.rcv.queue.len();
        self.finish_with_reset(ConnError::Evicted);
        self.rcv.queue.discard(unread);
        self.rcv.queue.release();
    }

    /// As `store`, with a limit of the owner: into the room of what is there, or in as little memory as it takes.
    #[cold]
    pub(crate) fn store_limited(&mut self, packet: Packet, pool: &Pool) -> bool {
        let own = 2 * self.config.recv_buffer_bytes.max(self.rcv.limit_bytes);
        let most = self.memory_most().min(own);
        let needed = needed_bytes(&packet).min(packet.held_bytes());
        while self.memory_in() + needed > most && self.rcv.queue.room_behind() < packet.len() {
            let Some(reassembly) = self.rcv.reassembly.as_mut() else { break };
            if !reassembly.drop_highest() {
                self.rcv.reassembly = None;
            }
        }
        let room = most.saturating_sub(self.memory_in());
        let stored = self.rcv.queue.put_tight(packet, room, pool);
        if !stored {
            self.note_refused();
        }
        stored
    }
}

/// Memory that the bytes of a packet take in frames that are full.
fn needed_bytes(packet: &Packet) -> usize {
    packet.len().div_ceil(FRAME_SIZE_BYTES) * FRAME_HELD_BYTES
}

/// Puts `packet` to the end of `queue` in no more than `room` bytes of further memory: into the free room behind what is
/// there; as it lies; or copied, where it holds twice what its bytes need or more, as what is left of a larger packet
/// does. False, and nothing has changed, when that is too little, or there are too few frames.
pub(crate) fn put_tight(queue: &mut ByteQueue, packet: Packet, room: usize, pool: &Pool) -> bool {
    if queue.take_in(&packet) {
        return true;
    }
    let needed = needed_bytes(&packet);
    if packet.held_bytes() < 2 * needed {
        return packet.held_bytes() <= room && queue.append(packet).is_ok();
    }
    let mut copy = ByteQueue::new(queue_limits(usize::MAX / 4));
    let is_copied =
        needed <= room && packet.slices().all(|slice| copy.write(pool, slice).bytes == slice.len());
    if is_copied {
        queue.concat(&mut copy);
    }
    is_copied
}
