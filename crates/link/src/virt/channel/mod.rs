//! A link whose other side is the program: packets go in and come out by two bounded ends.
//!
//! ```text
//!   ChannelSender    ──── ring of packets (SPSC) ────▶ receive    the link's bell, rung by both ends
//!   ChannelReceiver  ◀─── ring of packets (SPSC) ──── transmit    a waker for each end, woken by the link
//! ```
//!
//! Each end is used by one thread at a time, which may be any, or by a task. A packet goes through
//! as it is. Bytes are copied once, into a frame of the pool or out of it; nothing else is
//! allocated. Threads that wait in a call take one small piece of the heap for each such wait.
//!
//! Nothing is dropped for want of room: an end that finds none is told, and the engine keeps what
//! the [`ChannelReceiver`] has no room for, in its own bounded queue.

#[cfg(test)]
mod tests;
mod virtio;
mod waiting;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::task::{Context, Poll};

use millstream_packet::ring::{Consumer, Producer, spsc};
use millstream_packet::{Instant, Meta, Packet, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

use self::waiting::{Waiting, block};
use crate::limits;
use crate::offload::Segmenter;
use crate::offload::software_offload::Outgoing;
use crate::sys::EventFd;
use crate::virt::doorbell::{Doorbell, FRAMES, ROOM, Sleeper};
use crate::virt::rings::{self, arrive};
use crate::{Capabilities, Link, LinkError, LinkStats, Medium};

/// How to make a [`channel()`].
///
/// ```
/// use millstream_link::{ChannelConfig, Link, channel};
///
/// let mut config = ChannelConfig::default();
/// config.mtu = 1420;
/// let pool = millstream_packet::Pool::new(Default::default()).expect("memory");
/// let (link, sender, receiver) = channel(&pool, config)?;
/// assert_eq!(link.capabilities().mtu, 1420);
/// # drop((sender, receiver));
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChannelConfig {
    /// The header that packets start with.
    pub medium: Medium,
    /// Largest IP packet, in bytes; super-segments apart.
    pub mtu: usize,
    /// True: super-segments and partial checksums pass whole, and [`Packet::meta`] tells of them,
    /// both ways. False: every packet fits the MTU and carries its checksums.
    pub offload: bool,
    /// Packets each direction holds.
    pub capacity: usize,
    /// The engine's link address, where packets have an Ethernet header.
    pub mac: MacAddr,
}

impl Default for ChannelConfig {
    /// IP packets of up to 1,500 bytes without offloads.
    fn default() -> Self {
        Self {
            medium: Medium::Ip,
            mtu: 1500,
            offload: false,
            capacity: limits::PAIR_CAPACITY,
            mac: MacAddr([0x02, 0, 0, 0, 0, 0x0c]),
        }
    }
}

impl ChannelConfig {
    /// Returns the longest packet that goes in, super-segments apart.
    fn longest(&self) -> usize {
        self.mtu + self.medium.header_len()
    }
}

/// The part that the link and both ends share.
#[derive(Debug)]
struct Shared {
    link: Doorbell<EventFd>,
    sender: Waiting,
    receiver: Waiting,
    /// Times that a sender had to keep a packet, as the ring was full.
    sender_full: AtomicU64,
}

/// Wakes whoever waits for a side that goes.
#[derive(Debug)]
struct Hangup(Arc<Shared>);

impl Drop for Hangup {
    fn drop(&mut self) {
        fence(Ordering::SeqCst);
        self.0.link.notify(FRAMES | ROOM);
        self.0.sender.notify();
        self.0.receiver.notify();
    }
}

/// Makes a link for an engine, and the ends by which the program puts packets in and takes out what
/// the engine sends. Bytes that are sent are copied into frames of `pool`, the engine's as a rule.
///
/// ```
/// use millstream_link::{ChannelConfig, Link, channel};
/// use millstream_packet::{Instant, PacketBatch, Pool, PoolConfig};
///
/// let pool = Pool::new(PoolConfig::fixed(64))?;
/// let (mut link, mut sender, mut receiver) = channel(&pool, ChannelConfig::default())?;
/// sender.try_send(&[0x45; 40])?;
/// let mut batch = PacketBatch::new();
/// // An engine does this.
/// assert_eq!(link.receive(Instant::ZERO, &pool, &mut batch)?, 1);
/// link.transmit(Instant::ZERO, &pool, &mut batch)?;
/// assert_eq!(receiver.try_recv()?.head(), [0x45; 40]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the system has no more file descriptors, or the MTU is out of range.
pub fn channel(
    pool: &Pool,
    config: ChannelConfig,
) -> Result<(ChannelLink, ChannelSender, ChannelReceiver), LinkError> {
    let longest = config.longest();
    let ChannelConfig { medium, mtu, offload, capacity, mac } = config;
    let event = EventFd::new().map_err(|error| LinkError::from_io("make an eventfd", error))?;
    let shared = Arc::new(Shared {
        link: Doorbell::new(event),
        sender: Waiting::default(),
        receiver: Waiting::default(),
        sender_full: AtomicU64::new(0),
    });
    let (incoming, rx) = spsc(capacity.max(1));
    let (tx, outgoing) = spsc(capacity.max(1));
    let capabilities = rings::capabilities((medium, mtu, mac), offload, &rx, &tx)?;
    let hangup = || Hangup(Arc::clone(&shared));
    let sender = ChannelSender {
        ring: incoming,
        shared: hangup(),
        pool: pool.clone(),
        shortest: medium.header_len() + 1,
        longest,
        offload,
    };
    let receiver = ChannelReceiver { ring: outgoing, shared: hangup() };
    let link = ChannelLink {
        capabilities,
        rx,
        tx,
        shared: hangup(),
        offload,
        cutting: None,
        is_blocked: false,
        sleeper: Sleeper::default(),
        stats: LinkStats::default(),
    };
    Ok((link, sender, receiver))
}

/// The end of a [`channel()`] that puts packets in.
///
/// Its errors: [`WouldBlock`](io::ErrorKind::WouldBlock) when the ring is full,
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe) when the link is gone,
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for a packet longer than the link's MTU or without
/// an IP header, [`OutOfMemory`](io::ErrorKind::OutOfMemory) when the pool has no frame.
#[derive(Debug)]
pub struct ChannelSender {
    // Dropped in this order: the ring closes before the link is woken.
    ring: Producer<Packet>,
    shared: Hangup,
    pool: Pool,
    shortest: usize,
    longest: usize,
    offload: bool,
}

impl ChannelSender {
    /// Sends a copy of a packet.
    pub fn try_send(&mut self, packet: &[u8]) -> io::Result<()> {
        self.check(packet.len(), false)?;
        self.put(packet, |_| ())
    }

    /// Puts a copy of a packet, with what is known of it, into the ring.
    fn put(&mut self, packet: &[u8], know: impl FnOnce(&mut Meta)) -> io::Result<()> {
        self.check_room()?;
        let mut packet = Packet::from_slice(&self.pool, 0, packet)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        know(packet.meta_mut());
        self.ring.put(packet).map_err(|_| io::ErrorKind::WouldBlock)?;
        self.tell();
        Ok(())
    }

    /// Sends packets from the front of `batch`, as many as there is room for, with one wake-up of
    /// the engine at most. Returns how many. Fails where it takes none; a packet that is not fit to
    /// be sent stays in front.
    pub fn try_send_batch(&mut self, batch: &mut PacketBatch) -> io::Result<usize> {
        let Some(first) = batch.front() else { return Ok(0) };
        self.check(first.len(), first.meta().segmentation.is_some())?;
        self.check_room()?;
        let (shortest, longest, offload) = (self.shortest, self.longest, self.offload);
        let mut front = batch.drain_front(batch.len());
        let mut fit = std::iter::from_fn(|| {
            let mut packet = front.next_if(|packet| {
                let is_super = offload && packet.meta().segmentation.is_some();
                (shortest..=longest).contains(&packet.len()) || is_super
            })?;
            if !offload {
                *packet.meta_mut() = Meta::default();
            }
            Some(packet)
        });
        let count = self.ring.put_bulk(&mut fit);
        drop(front);
        self.tell();
        Ok(count)
    }

    /// Sends a copy of a packet; the thread waits for room.
    pub fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        loop {
            match self.try_send(packet) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    block(|context| self.poll_ready(context))?;
                }
                sent => return sent,
            }
        }
    }

    /// Waits for room, or for the end of the link, of which the next send tells. The task that
    /// asked last is woken.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for is_armed in [false, true] {
            if is_armed {
                self.shared.0.sender.arm(context.waker());
            }
            if self.ring.is_closed() || self.ring.len() < self.ring.capacity() {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Refuses a packet of a length that none has.
    fn check(&self, len: usize, is_super: bool) -> io::Result<()> {
        let is_fit = (self.shortest..=self.longest).contains(&len) || is_super && self.offload;
        if is_fit { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn check_room(&self) -> io::Result<()> {
        if self.ring.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.ring.len() == self.ring.capacity() {
            self.shared.0.sender_full.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    }

    /// Wakes an engine that sleeps.
    fn tell(&self) {
        fence(Ordering::SeqCst);
        self.shared.0.link.notify(FRAMES);
    }
}

/// The end of a [`channel()`] that takes out what the engine sends.
///
/// Its errors: [`WouldBlock`](io::ErrorKind::WouldBlock) when there is nothing,
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe) when the link is gone and all was taken.
#[derive(Debug)]
pub struct ChannelReceiver {
    // Dropped in this order: the ring closes before the link is woken.
    ring: Consumer<Packet>,
    shared: Hangup,
}

impl ChannelReceiver {
    /// Takes the next packet, which goes back to the engine's pool when it is dropped.
    pub fn try_recv(&mut self) -> io::Result<Packet> {
        let packet = self.ring.poll();
        let packet = match packet {
            // Something may have been put in before the link went.
            None if self.ring.is_closed() => self.ring.poll().ok_or(io::ErrorKind::BrokenPipe),
            packet => packet.ok_or(io::ErrorKind::WouldBlock),
        }?;
        self.tell();
        Ok(packet)
    }

    /// Takes as many packets as there are and `batch` has room for. Returns how many; fails where
    /// that is none.
    pub fn try_recv_batch(&mut self, batch: &mut PacketBatch) -> io::Result<usize> {
        if batch.is_full() {
            return Ok(0);
        }
        let first = self.try_recv()?;
        // There is room, here and below.
        let _ = batch.push(first);
        let (room, mut filling) = (batch.room(), batch.filling());
        let count = self.ring.poll_bulk(room, |packet| {
            let _ = filling.push(packet);
        });
        self.tell();
        Ok(1 + count)
    }

    /// Takes the next packet; the thread waits for one.
    pub fn recv(&mut self) -> io::Result<Packet> {
        match self.try_recv() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                block(|context| self.poll_recv(context))
            }
            received => received,
        }
    }

    /// Takes the next packet; the task that asked last is woken when there is one.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Packet>> {
        for is_armed in [false, true] {
            if is_armed {
                self.shared.0.receiver.arm(context.waker());
            }
            match self.try_recv() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
        Poll::Pending
    }

    /// Wakes an engine that waits for room.
    fn tell(&self) {
        fence(Ordering::SeqCst);
        self.shared.0.link.notify(ROOM);
    }
}

/// The engine's side of a [`channel()`]. When an end is gone, nothing more comes in, or what would
/// go out is dropped.
#[derive(Debug)]
pub struct ChannelLink {
    // Dropped in this order: the rings close before the ends are woken.
    rx: Consumer<Packet>,
    tx: Producer<Packet>,
    shared: Hangup,
    capabilities: Capabilities,
    offload: bool,
    /// A super-segment being cut, its next segments not yet in the ring.
    cutting: Option<Segmenter>,
    /// The last transmit left packets behind.
    is_blocked: bool,
    sleeper: Sleeper,
    stats: LinkStats,
}

impl Link for ChannelLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.sleeper.wake(&self.shared.0.link);
        if self.cutting.is_some() {
            // Nobody has it any more to send again.
            self.transmit(now, pool, &mut PacketBatch::new())?;
        }
        let Self { rx, stats, .. } = self;
        if batch.is_full() || rx.glance() == 0 {
            return Ok(0);
        }
        let (room, mut filling) = (batch.room(), batch.filling());
        let count = rx.poll_bulk(room, |mut packet| {
            stats.count_received(packet.len(), arrive(&mut packet, now));
            // There is room.
            let _ = filling.push(packet);
        });
        fence(Ordering::SeqCst);
        self.stats.wakeups += u64::from(self.shared.0.sender.notify());
        Ok(count)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.is_blocked = false;
        if self.tx.is_closed() {
            return Ok(rings::drop_all(batch, &mut self.cutting, &mut self.stats));
        }
        let before = batch.len();
        let Self { tx, cutting, capabilities, offload, stats, .. } = self;
        let outgoing = Outgoing { batch, cutting, capabilities, as_it_is: *offload, pool, stats };
        let (sent, is_blocked) = rings::put(tx, outgoing);
        self.is_blocked = is_blocked;
        if sent != 0 {
            fence(Ordering::SeqCst);
            self.stats.wakeups += u64::from(self.shared.0.receiver.notify());
        }
        Ok(before - batch.len())
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.shared.0.link.event().as_raw_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        let reasons = if self.is_blocked { FRAMES | ROOM } else { FRAMES };
        self.sleeper.announce(&self.shared.0.link, reasons);
        let has_room =
            self.is_blocked && (self.tx.len() < self.tx.capacity() || self.tx.is_closed());
        if has_room || !self.rx.is_empty() {
            self.sleeper.wake(&self.shared.0.link);
            return false;
        }
        true
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        vec![("sender_full", self.shared.0.sender_full.load(Ordering::Relaxed))]
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        "channel"
    }
}
