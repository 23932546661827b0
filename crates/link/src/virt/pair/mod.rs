//! A link in memory with two ends: what one end sends, the other receives.
//!
//! ```text
//!   end A                                        end B
//!   tx  Producer ──── ring of packets (SPSC) ────▶ rx Consumer      A writes tail, B writes head
//!   rx  Consumer ◀─── ring of packets (SPSC) ──── tx  Producer      B writes tail, A writes head
//!   own bell  ◀── rung by B alone                 own bell ◀── rung by A alone
//! ```
//!
//! The ends may live in different threads. A bell (eventfd) is rung only when its owner said that
//! it sleeps, once per sleep; see the doorbell module for why no wake-up is lost. What does not fit
//! the ring stays with the sender.

#[cfg(test)]
mod tests;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use millstream_packet::ring::{Consumer, Producer, spsc};
use millstream_packet::{DrainFront, Instant, Packet, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

use crate::event::LateEvent;
use crate::limits;
use crate::offload::Segmenter;
use crate::offload::software_offload::{self, Outgoing};
use crate::sys::{self, PollEntry};
use crate::virt::barrier::Barrier;
use crate::virt::doorbell::{Doorbell, FRAMES, ROOM, Sleeper};
use crate::virt::rings::{self, arrive};
use crate::{Capabilities, Link, LinkError, LinkStats, Medium};

/// How to make a [`pair()`].
///
/// ```
/// use millstream_link::{Link, Medium, PairConfig, pair};
///
/// // Packets without an Ethernet header, cut and summed as on a wire.
/// let config = PairConfig { medium: Medium::Ip, offload: false, ..PairConfig::default() };
/// let (near, far) = pair(config)?;
/// assert_eq!((near.capabilities().mtu, far.name()), (1500, "pair1"));
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Largest IP packet, in bytes; super-segments apart.
    pub mtu: usize,
    /// The header that packets start with.
    pub medium: Medium,
    /// True: super-segments and partial checksums pass whole, nothing is summed. False: every
    /// packet fits the MTU and carries its checksums, as on a wire.
    pub offload: bool,
    /// Packets each direction holds.
    pub capacity: usize,
    /// Link addresses of the two ends.
    pub macs: [MacAddr; 2],
    /// There may be others behind the other end: engines announce and check their addresses
    /// ([`Capabilities::multi_access`]). Otherwise the two ends are alone, and hear of each other
    /// when they ask.
    pub multi_access: bool,
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            mtu: 1500,
            medium: Medium::Ethernet,
            offload: true,
            capacity: limits::PAIR_CAPACITY,
            macs: [MacAddr([0x02, 0, 0, 0, 0, 0x0a]), MacAddr([0x02, 0, 0, 0, 0, 0x0b])],
            multi_access: false,
        }
    }
}

/// Makes a link in memory and returns its two ends.
///
/// # Errors
/// When the MTU is out of range.
pub fn pair(config: PairConfig) -> Result<(PairEnd, PairEnd), LinkError> {
    let PairConfig { mtu, medium, offload, capacity, macs, multi_access } = config;
    let bells = [(); 2].map(|()| Arc::new(Doorbell::new(LateEvent::default())));
    let (a_tx, b_rx) = spsc(capacity.max(1));
    let (b_tx, a_rx) = spsc(capacity.max(1));
    let end = |name, mac, tx: Producer<Packet>, rx: Consumer<Packet>, own: usize| {
        let capabilities = rings::capabilities((medium, mtu, mac), offload, &rx, &tx)?;
        Ok(PairEnd {
            capabilities: Capabilities { multi_access, ..capabilities },
            tx,
            rx,
            offload,
            cutting: None,
            blocked: false,
            sleeper: Sleeper::default(),
            barrier: Barrier::of_process(),
            stats: LinkStats::default(),
            name,
            own: Arc::clone(&bells[own]),
            peer: Hangup(Arc::clone(&bells[1 - own])),
        })
    };
    Ok((end("pair0", macs[0], a_tx, a_rx, 0)?, end("pair1", macs[1], b_tx, b_rx, 1)?))
}

/// One end of a [`pair()`].
#[derive(Debug)]
pub struct PairEnd {
    // Dropped in this order: the rings close before `peer` wakes the other side.
    tx: Producer<Packet>,
    rx: Consumer<Packet>,
    capabilities: Capabilities,
    offload: bool,
    /// A super-segment being cut, its next segments not yet in the ring.
    cutting: Option<Segmenter>,
    /// The last transmit left packets behind.
    blocked: bool,
    sleeper: Sleeper,
    /// Between sending a packet and looking whether the other end sleeps.
    barrier: Barrier,
    stats: LinkStats,
    name: &'static str,
    own: Arc<Doorbell<LateEvent>>,
    peer: Hangup,
}

/// The peer's bell; rings when this end goes, so that a sleeper sees the closed ring.
#[derive(Debug)]
struct Hangup(Arc<Doorbell<LateEvent>>);

impl Drop for Hangup {
    fn drop(&mut self) {
        fence(Ordering::SeqCst);
        self.0.notify(FRAMES | ROOM);
    }
}

impl PairEnd {
    /// True once the other end was dropped. What it sent before can still be received; what is sent
    /// is dropped.
    pub fn is_closed(&self) -> bool {
        self.tx.is_closed()
    }

    /// Sends a packet if it goes into the ring as it is; else gives it back.
    #[inline(always)]
    fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        let is_ready = software_offload::is_ready(&packet, &self.capabilities, self.offload);
        if self.cutting.is_some() || !is_ready {
            return Err(packet);
        }
        let (len, is_super) = (packet.len() as u64, packet.meta().segmentation.is_some());
        self.tx.put(packet)?;
        // The other end passes its side of this after it has said that it sleeps, and then looks at
        // the ring.
        self.barrier.light();
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += len;
        self.stats.tx_super_segments += u64::from(is_super);
        self.stats.wakeups += u64::from(self.peer.0.notify(FRAMES));
        Ok(())
    }

    /// Sends the only packet of the batch if it goes into the ring as it is; else nothing has
    /// changed.
    #[inline]
    fn send_only(&mut self, batch: &mut PacketBatch) -> bool {
        let Some(packet) = batch.pop() else { return false };
        match self.send(packet) {
            Ok(()) => true,
            Err(packet) => {
                // There is room.
                let _ = batch.push_front(packet);
                false
            }
        }
    }

    /// Sends the first packets of the batch, as far as they go into the ring as they are and there
    /// is room. Returns how many.
    #[inline]
    fn send_run(&mut self, batch: &mut PacketBatch) -> usize {
        if self.cutting.is_some() {
            return 0;
        }
        let Self { tx, capabilities, offload, stats, .. } = self;
        let mut ready = Ready {
            left: batch.drain_front(batch.len()),
            capabilities,
            offload: *offload,
            bytes: 0,
        };
        let count = tx.put_bulk(&mut ready);
        stats.tx_packets += count as u64;
        stats.tx_bytes += ready.bytes;
        count
    }

    /// Goes on with a super-segment for which there was no room, and that nobody has any more to
    /// send again.
    #[cold]
    fn go_on(&mut self, now: Instant, pool: &Pool) -> Result<(), LinkError> {
        self.transmit(now, pool, &mut PacketBatch::new()).map(drop)
    }

    /// Takes what the other end sent, which is one packet, into a batch with room for it: how many
    /// those are.
    #[inline(always)]
    fn take_only(&mut self, now: Instant, batch: &mut PacketBatch) -> usize {
        let Some(mut packet) = self.rx.poll() else { return 0 };
        self.stats.rx_packets += 1;
        self.stats.rx_bytes += packet.len() as u64;
        self.stats.rx_super_segments += u64::from(arrive(&mut packet, now));
        // There is room.
        let _ = batch.push(packet);
        1
    }

    /// The same of as many as there are and the batch has room for.
    #[inline(never)]
    fn take_many(&mut self, now: Instant, batch: &mut PacketBatch) -> usize {
        let Self { rx, stats, .. } = self;
        let (mut bytes, mut supers) = (0, 0);
        let (room, mut filling) = (batch.room(), batch.filling());
        let count = rx.poll_bulk(room, |mut packet| {
            bytes += packet.len() as u64;
            supers += u64::from(arrive(&mut packet, now));
            // There is room.
            let _ = filling.push(packet);
        });
        drop(filling);
        stats.rx_packets += count as u64;
        stats.rx_bytes += bytes;
        stats.rx_super_segments += supers;
        count
    }
}

/// The first packets of a batch, as far as they go into the ring as they are.
struct Ready<'a> {
    left: DrainFront<'a>,
    capabilities: &'a Capabilities,
    offload: bool,
    /// The bytes of those taken.
    bytes: u64,
}

impl Iterator for Ready<'_> {
    type Item = Packet;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        let Self { capabilities, offload, .. } = *self;
        let packet = self
            .left
            .next_if(|packet| software_offload::is_ready(packet, capabilities, offload))?;
        self.bytes += packet.len() as u64;
        Some(packet)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

/// Sleeps for a moment, or until the bell rings.
#[cold]
fn nap(bell: RawFd) {
    let mut entries = [PollEntry::readable(bell)];
    // A descriptor of our own, and an early end does no harm.
    let _ = sys::poll(&mut entries, Some(limits::PAIR_NAP));
}

impl Link for PairEnd {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.sleeper.wake(&self.own);
        if self.cutting.is_some() {
            self.go_on(now, pool)?;
        }
        // Before it sleeps it announces that, with a fence, and looks again.
        let count = match self.rx.glance() {
            0 => 0,
            1 if !batch.is_full() => self.take_only(now, batch),
            _ => self.take_many(now, batch),
        };
        if self.peer.0.notify(ROOM) {
            self.stats.wakeups += 1;
        }
        Ok(count)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.blocked = false;
        if self.tx.is_closed() {
            return Ok(rings::drop_all(batch, &mut self.cutting, &mut self.stats));
        }
        let before = batch.len();
        if before == 1 && self.send_only(batch) {
            return Ok(1);
        }
        let mut sent = self.send_run(batch);
        let Self { tx, cutting, capabilities, offload, stats, .. } = self;
        let outgoing = Outgoing { batch, cutting, capabilities, as_it_is: *offload, pool, stats };
        let (more, is_blocked) = rings::put(tx, outgoing);
        sent += more;
        self.blocked = is_blocked;
        if sent != 0 {
            // As in `send`.
            self.barrier.light();
            self.stats.wakeups += u64::from(self.peer.0.notify(FRAMES));
        }
        Ok(before - batch.len())
    }

    fn wait_fd(&self) -> Option<RawFd> {
        self.own.event().descriptor().ok()
    }

    fn prepare_sleep(&mut self) -> bool {
        // It is there before the peer may ring.
        let Ok(own) = self.own.event().descriptor() else { return false };
        let reasons = if self.blocked { FRAMES | ROOM } else { FRAMES };
        self.sleeper.announce(&self.own, reasons);
        let is_told = self.barrier.heavy();
        // The announcement's fence comes after all room made: tell of it now if that was missed.
        self.stats.wakeups += u64::from(self.peer.0.notify(ROOM));
        let has_room = self.blocked && (self.tx.len() < self.tx.capacity() || self.tx.is_closed());
        let has_news = !self.rx.is_empty() || has_room;
        if !is_told && !has_news {
            // Nearly always the peer has heard of the announcement all the same.
            nap(own);
        }
        if has_news || !is_told {
            self.sleeper.wake(&self.own);
            return false;
        }
        true
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        self.name
    }
}
