//! Packets into the tx ring, and on from there.

use millstream_packet::{BATCH_LIMIT, FRAME_SIZE_BYTES, Instant, Packet, PacketBatch, Pool};

use super::Xdp;
use super::frames::KernelFrames;
use super::open::pieces;
use super::rest::Rest;
use super::ring::Ring;
use crate::DropCause;
use crate::offload::software_offload::Outgoing;

impl Xdp {
    /// Has the kernel send what is in the ring, as far as it can now. A device that had no room, or
    /// is down, is not asked before its time.
    fn kick(&mut self, now: Instant) {
        let before = self.socket.tx.pending();
        let asks = !self.presence.is_down() && !self.rest.lasts(now, self.socket.tx.is_over_half());
        if asks {
            self.ask();
        }
        // A driver goes on by itself; the kernel's copying must be driven.
        self.blocked = !self.zero_copy && self.socket.tx.is_pending();
        match self.blocked {
            false => self.rest = Rest::default(),
            true if asks => {
                let has_moved = self.socket.tx.pending() < before;
                self.rest.begin(now, has_moved, self.socket.tx.is_over_half());
            }
            true => {}
        }
    }

    /// Calls the kernel until it has taken all of the ring, or takes no more.
    fn ask(&mut self) {
        let mut patience = Patience::new(self.socket.tx.pending(), self.socket.tx_budget);
        // Each call that drops one goes on behind it; there cannot be more than entries.
        for _ in 0..self.capabilities.tx_ring {
            if !self.socket.tx.is_pending() || !self.socket.tx.needs_wakeup() {
                break;
            }
            self.stats.tx_syscalls += 1;
            let result = self.socket.wake_tx();
            self.harvest();
            match result.err().and_then(|error| error.raw_os_error()) {
                None if self.zero_copy => break,
                None | Some(libc::EAGAIN) if patience.is_over() => break,
                None | Some(libc::EAGAIN | libc::EINTR) => {}
                // One packet dropped, for want of a carrier or by the driver.
                Some(libc::EBUSY) => self.stats.count_drop(DropCause::Refused),
                Some(libc::ENETDOWN | libc::ENXIO) => {
                    self.presence.went_down();
                    break;
                }
                Some(_) => break,
            }
        }
    }

    /// Sends what is left of a super-segment, and of `batch` as much as there is room for.
    pub(super) fn send(&mut self, now: Instant, pool: &Pool, batch: &mut PacketBatch) {
        loop {
            self.harvest();
            let is_finished = self.stage(pool, batch);
            self.kick(now);
            if is_finished {
                return;
            }
            let pieces = pieces(self.capabilities.mtu);
            if self.socket.tx.room(pieces) < pieces || self.blocked {
                self.blocked = true;
                self.stats.tx_full += 1;
                return;
            }
        }
    }

    /// Has what waits for room go on.
    pub(super) fn go_on(&mut self, now: Instant, pool: &Pool) {
        match self.cutting {
            Some(_) => self.send(now, pool, &mut PacketBatch::new()),
            None => self.kick(now),
        }
    }

    /// Puts packets into the tx ring while there is room; true when nothing is left.
    fn stage(&mut self, pool: &Pool, batch: &mut PacketBatch) -> bool {
        let pieces = pieces(self.capabilities.mtu);
        let Self { socket, frames, pool: own, cutting, capabilities, stats, .. } = self;
        let tx = &mut socket.tx;
        let mut outgoing = Outgoing { batch, cutting, capabilities, as_it_is: false, pool, stats };
        while tx.room(pieces) >= pieces {
            let Some(packet) = outgoing.next() else { break };
            let len = packet.len() as u64;
            if let Err(cause) = submit(tx, frames, own, packet) {
                outgoing.stats.tx_packets -= 1;
                outgoing.stats.tx_bytes -= len;
                outgoing.stats.count_drop(cause);
            }
        }
        tx.publish();
        outgoing.is_finished()
    }
}

/// Makes one packet an entry of the tx ring, or several.
fn submit(
    tx: &mut Ring<libc::xdp_desc>,
    frames: &mut KernelFrames,
    pool: &Pool,
    packet: Packet,
) -> Result<(), DropCause> {
    let len = packet.len();
    let packet = match frames.lend(packet) {
        Ok(addr) => {
            tx.push(libc::xdp_desc { addr, len: len as u32, options: 0 });
            return Ok(());
        }
        Err(packet) => packet,
    };
    let mut copies = PacketBatch::new();
    let pieces = len.div_ceil(FRAME_SIZE_BYTES);
    if pieces > BATCH_LIMIT || pool.alloc_bulk(0, pieces, &mut copies) < pieces {
        return Err(DropCause::PoolExhausted);
    }
    let mut entries = [libc::xdp_desc { addr: 0, len: 0, options: 0 }; BATCH_LIMIT];
    let mut done = 0;
    for (i, mut copy) in copies.drain().enumerate() {
        let n = (len - done).min(FRAME_SIZE_BYTES);
        if let Some(room) = copy.append(n) {
            packet.copy_to(done, room);
        }
        done += n;
        let options = if done < len { libc::XDP_PKT_CONTD } else { 0 };
        let Ok(addr) = frames.lend(copy) else {
            // A pool that is not the socket's gives frames that it cannot use.
            entries[..i].iter().for_each(|entry| drop(frames.take(entry.addr)));
            return Err(DropCause::PoolExhausted);
        };
        entries[i] = libc::xdp_desc { addr, len: n as u32, options };
    }
    entries[..pieces].iter().for_each(|entry| tx.push(*entry));
    Ok(())
}

/// How often the kernel is called that copies what is in the ring, before others have their turn:
/// each call sends a part, unless the device has no room, which it says in the same way.
struct Patience(u32);

impl Patience {
    /// For so many entries in the ring, of which a call takes `budget`.
    fn new(pending: u32, budget: u32) -> Self {
        Self(pending.div_ceil(budget.max(1)))
    }

    /// After a call: what is left is the device's lack of room.
    #[must_use]
    fn is_over(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_room_is_asked_no_more_often_than_the_ring_takes_calls() {
        for (pending, budget, calls) in
            [(64, 2048, 1), (2048, 2048, 1), (2048, 16, 128), (33, 16, 3)]
        {
            let mut patience = Patience::new(pending, budget);
            assert_eq!((1..=5000).find(|_| patience.is_over()), Some(calls));
        }
    }
}
