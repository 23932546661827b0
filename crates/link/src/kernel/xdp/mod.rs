//! An AF_XDP socket on a queue of an interface: the packet pool is the socket's memory.
//!
//! Received frames become packets where the kernel (or, zero-copy, the device) has put them. Sent
//! packets of one frame are read where they are; chains, and frames that the kernel has already,
//! are copied into fresh frames first. Zero-copy is tried, and copying by the kernel is what
//! remains where the driver cannot ([`Link::notes`] says so).
//!
//! ```text
//!   pool ──alloc──▶ fill ring ──▶ kernel ──▶ rx ring ──▶ packet
//!   packet ──▶ tx ring ──▶ kernel ──▶ completion ring ──▶ pool
//! ```
//!
//! An XDP program gives the socket the flows it is asked for ([`Steer`]) and leaves all others to
//! the kernel. It hangs on a descriptor: when the process ends, however it does, the interface is
//! as before.
//!
//! Several queues of an interface, each a link for an engine of its own, share the pool's memory
//! ([`Xdp::open_shared`]). Frames of an MTU beyond one of the pool's come and go as chains, each of
//! its frames an entry of the ring (XDP_USE_SG). What the kernel is too old for it says in one
//! line.
//!
//! Limits. The pool must be one extent that does not grow, since a socket has one memory; frames of
//! other pools are copied into it when sent, and what is received comes out of it whatever pool the
//! caller has. There are no offloads: checksums and cutting are done in software, nothing is
//! merged. A virtual pair (veth) whose other end leaves checksums to it delivers bad ones: see
//! [`netdev::set_transmit_checksum`](crate::netdev::set_transmit_checksum).

pub(crate) mod bpf;
mod frames;
mod open;
mod program;
mod rest;
mod ring;
mod send;
mod show;
mod socket;
mod watch;

#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use millstream_packet::{FRAME_SIZE_BYTES, Instant, Packet, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

use crate::kernel::follow::Follow;
use crate::kernel::kernel_receive::{self, Next, Source};
use crate::kernel::raw::presence::Presence;
use crate::offload::Segmenter;
use crate::{Capabilities, DropCause, Link, LinkError, LinkStats, Shown, limits, sys};
use bpf::Attachment;
use frames::KernelFrames;
pub use open::BusyPoll;
pub use program::{FlowMatch, Steer};
use rest::Rest;
use socket::Socket;
use watch::Watch;

/// The rights that a program and a socket of it take, for people; CAP_PERFMON as the program
/// compares pointers.
const CAPABILITIES: &str = "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON, as root has";

/// How to open an [`Xdp`] link.
///
/// ```no_run
/// use millstream_link::{FlowMatch, Steer, Xdp, XdpConfig};
/// use millstream_packet::{CHUNK_FRAMES, Pool, PoolConfig};
///
/// // The kernel writes into the pool's frames: one extent, which does not grow.
/// let pool = Pool::new(PoolConfig::fixed(16 * CHUNK_FRAMES))?;
/// let ours = FlowMatch { address: Some("192.0.2.7".parse()?), port: None };
/// let link = Xdp::open(
///     &XdpConfig {
///         interface: "eth0".into(),
///         steer: Steer::Flows(vec![ours]),
///         ..XdpConfig::default()
///     },
///     &pool,
/// )?;
/// # drop(link);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct XdpConfig {
    /// The interface.
    pub interface: String,
    /// The namespace it lives in; `None`: the calling thread's.
    pub netns: Option<PathBuf>,
    /// The stack's link address, made reachable by promiscuous mode; `None`: the interface's own.
    pub mac: Option<MacAddr>,
    /// The (first) queue.
    pub queue: u32,
    /// Which packets the socket gets.
    pub steer: Steer,
    /// Entries in each ring, rounded up to a power of two; `None`: [`limits::XDP_RING`]. Where a
    /// packet takes several, room for two of the longest at least; [`limits::XDP_RING_LIMIT`] at
    /// most.
    pub ring: Option<u32>,
    /// Do not try zero-copy.
    pub copy: bool,
    /// The kernel polls the device inside our system calls instead of by interrupts.
    pub busy_poll: Option<BusyPoll>,
}

/// The kernel's own counters of an AF_XDP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpStatistics {
    /// Received packets dropped for reasons that are not the rx ring, an empty fill ring included.
    pub rx_dropped: u64,
    /// Received packets dropped because the rx ring was full.
    pub rx_ring_full: u64,
    /// Times the kernel found no frame in the fill ring.
    pub fill_ring_empty: u64,
    /// Entries of the fill ring that the kernel refused.
    pub rx_invalid: u64,
    /// Entries of the tx ring that the kernel refused.
    pub tx_invalid: u64,
    /// Times the kernel found nothing in the tx ring.
    pub tx_ring_empty: u64,
}

/// Which packets the sockets of an interface get that were opened together. It keeps nothing
/// attached.
#[derive(Clone)]
pub struct Steering {
    attachment: Weak<Attachment>,
    name: String,
}

impl std::fmt::Debug for Steering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steering").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Steering {
    /// From now on they get what `steer` says, without a packet in between that neither the old nor
    /// the new would give.
    ///
    /// # Errors
    /// When `steer` is refused or the kernel refuses the program; the old one stays. When the
    /// sockets or the interface are gone.
    pub fn set(&self, steer: &Steer) -> Result<(), LinkError> {
        steer.check()?;
        match self.attachment.upgrade() {
            Some(attachment) => attachment.replace(steer),
            None => Err(LinkError::gone(&self.name)),
        }
    }
}

/// An AF_XDP socket as a link.
pub struct Xdp {
    socket: Socket,
    frames: KernelFrames,
    /// `None` once the interface is gone: in another namespace its packets are others'.
    attachment: Option<Arc<Attachment>>,
    watch: Watch,
    presence: Presence,
    follow: Follow,
    pool: Pool,
    name: String,
    capabilities: Capabilities,
    notes: Vec<String>,
    zero_copy: bool,
    /// Packets may come in several frames.
    has_fragments: bool,
    /// A receive that finds nothing has the kernel look.
    polls: bool,
    /// Frames in the fill ring, and how many there should be.
    filled: usize,
    fill_target: usize,
    /// The beginning of a packet whose other frames are still to come.
    partial: Option<Packet>,
    cutting: Option<Segmenter>,
    /// Packets wait for room in the ring, or in it for the device.
    blocked: bool,
    /// When the device is asked again that did not take all.
    rest: Rest,
    /// The kernel says when there is room; as of the last look before a sleep.
    wants_write: bool,
    /// When the pool was last asked for frames.
    asked: Instant,
    stats: LinkStats,
}

impl std::fmt::Debug for Xdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Xdp").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Xdp {
    /// True when frames go to and from the device without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Returns a handle that changes which packets this socket gets, and those of all queues opened
    /// with it, after the link was handed to an engine, too.
    pub fn steering(&self) -> Steering {
        let attachment = self.attachment.as_ref().map(Arc::downgrade).unwrap_or_default();
        Steering { attachment, name: self.name.clone() }
    }

    /// The kernel's counters.
    pub fn kernel_statistics(&self) -> XdpStatistics {
        let Ok(value) = self.socket.statistics() else { return XdpStatistics::default() };
        XdpStatistics {
            rx_dropped: value.rx_dropped,
            rx_ring_full: value.rx_ring_full,
            fill_ring_empty: value.rx_fill_ring_empty_descs,
            rx_invalid: value.rx_invalid_descs,
            tx_invalid: value.tx_invalid_descs,
            tx_ring_empty: value.tx_ring_empty_descs,
        }
    }

    /// Frames that the kernel has at the moment, to receive into and to send.
    pub fn kernel_frames(&self) -> usize {
        self.frames.lent()
    }

    /// Brings the fill ring up to its target, with frames of the memory that the socket has.
    fn refill(&mut self) {
        let before = self.filled;
        while self.filled < self.fill_target && self.socket.fill.room(1) > 0 {
            let frame = self.pool.alloc(limits::XDP_HEADROOM_BYTES);
            let lent = frame.map(|frame| self.frames.lend_empty(frame));
            let Some(Ok(address)) = lent else {
                self.stats.rx_starved += 1;
                break;
            };
            self.socket.fill.push(address);
            self.filled += 1;
        }
        if self.filled != before {
            self.socket.fill.publish();
        }
        if self.zero_copy && self.socket.fill.needs_wakeup() {
            self.stats.rx_syscalls += 1;
            self.socket.wake_rx();
        }
    }

    /// Takes back what was sent.
    fn harvest(&mut self) {
        let mut any = false;
        while let Some(address) = self.socket.completion.pop() {
            any = true;
            drop(self.frames.take(address));
        }
        if any {
            self.socket.completion.publish();
        }
    }

    /// The packet that a descriptor completes, if it does.
    fn accept(&mut self, entry: libc::xdp_desc) -> Result<Option<Packet>, DropCause> {
        let Some(mut packet) = self.frames.take(entry.addr) else { return Ok(None) };
        self.filled = self.filled.saturating_sub(1);
        let offset = entry.addr as usize % FRAME_SIZE_BYTES;
        if packet.headroom() != offset {
            packet.clear(offset);
        }
        if packet.append(entry.len as usize).is_none() {
            self.partial = None;
            return Err(DropCause::Truncated);
        }
        if let Some(mut first) = self.partial.take() {
            first.concat(packet);
            packet = first;
        }
        if entry.options & libc::XDP_PKT_CONTD != 0 {
            self.partial = Some(packet);
            return Ok(None);
        }
        if packet.len() < limits::ETHERNET_HEADER_BYTES {
            return Err(DropCause::TooShort);
        }
        Ok(Some(packet))
    }

    /// Has a device that is driven by who receives look for packets, where none are waiting.
    #[inline(always)]
    fn poll_device(&mut self) {
        if self.polls && !self.socket.rx.is_pending() {
            self.stats.rx_syscalls += 1;
            self.socket.wake_rx();
        }
    }

    /// Goes on when packets were taken: frames come back and go to the kernel, and what waits for
    /// room goes on.
    #[inline(always)]
    fn settle_received(&mut self, now: Instant, pool: &Pool) {
        self.harvest();
        self.refill();
        self.asked = now;
        if self.blocked {
            self.go_on(now, pool);
        }
    }

    /// Looks what became of the interface, after a vain look for packets.
    fn look(&mut self, now: Instant, pool: &Pool) -> Result<(), LinkError> {
        if self.watch.is_troubled(now) {
            self.presence.went_down();
        }
        self.check_presence(now, pool)
    }

    /// Looks what became of an interface that went down, if it is time to; what waits goes on when
    /// it is up.
    ///
    /// # Errors
    /// When it is there no more.
    fn check_presence(&mut self, now: Instant, pool: &Pool) -> Result<(), LinkError> {
        if !self.presence.is_down() {
            return Ok(());
        }
        let found = self.presence.look(now, self.watch.socket(), &self.name);
        match &found {
            Ok(()) if !self.presence.is_down() => self.go_on(now, pool),
            Ok(()) => {}
            Err(_) => self.attachment = None,
        }
        found
    }

    /// Returns whether nothing is known to have happened to the interface since the last look,
    /// before a sleep.
    fn is_undisturbed(&mut self) -> bool {
        let is_troubled = self.watch.prepare_sleep(self.wants_write);
        if matches!(is_troubled, Ok(true)) {
            self.presence.went_down();
        }
        matches!(is_troubled, Ok(false))
    }
}

impl Source for Xdp {
    fn next(&mut self, _pool: &Pool) -> Result<Next, LinkError> {
        while let Some(entry) = self.socket.rx.pop() {
            match self.accept(entry) {
                Ok(Some(packet)) => return Ok(Next::Packet(packet)),
                Ok(None) => {}
                Err(cause) => {
                    self.stats.count_drop(cause);
                    return Ok(Next::Refused);
                }
            }
        }
        Ok(Next::Nothing)
    }

    fn counters(&mut self) -> &mut LinkStats {
        &mut self.stats
    }
}

/// The socket's own descriptor, for an option that this crate has no call for.
impl AsFd for Xdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

impl Link for Xdp {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.poll_device();
        let limit = batch.room();
        let (count, _) = kernel_receive::receive(self, now, pool, batch, limit)?;
        self.socket.rx.publish();
        self.settle_received(now, pool);
        match count {
            0 => self.look(now, pool)?,
            _ => self.watch.came(now),
        }
        Ok(count)
    }

    fn show(
        &mut self,
        now: Instant,
        pool: &Pool,
        limit: usize,
        take: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> usize {
        self.show_waiting(now, pool, limit, take)
    }

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        self.send(now, pool, batch);
        self.check_presence(now, pool)?;
        Ok(before - batch.len())
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.watch.wait_fd().unwrap_or(self.socket.fd.as_raw_fd()))
    }

    fn wants_write(&self) -> bool {
        self.wants_write
    }

    fn prepare_sleep(&mut self) -> bool {
        self.harvest();
        self.refill();
        self.wants_write = self.blocked && (self.zero_copy || self.socket.tx.is_over_half());
        !self.socket.rx.is_pending() && self.is_undisturbed()
    }

    /// Without a frame to receive into nothing arrives that would wake a sleeper, and nobody tells
    /// when one is free: the pool is asked again after a while. So is a device without room, and an
    /// interface that is down.
    fn next_deadline(&self) -> Option<Instant> {
        if self.filled != 0 && !self.blocked && !self.presence.is_down() {
            return self.watch.next_look();
        }
        let dry = (self.filled == 0).then(|| self.asked + limits::XDP_DRY_PAUSE);
        let down = self.presence.next_look();
        let rest = self.rest.end().filter(|_| down.is_none());
        [dry, down, rest, self.watch.next_look()].into_iter().flatten().min()
    }

    fn is_down(&self) -> bool {
        self.presence.is_down() || self.follow.is_down()
    }

    fn refresh(&mut self) -> bool {
        let Self { watch, name, capabilities, notes, .. } = self;
        self.follow.look(watch.socket().as_raw_fd(), name, capabilities, notes)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let kernel = self.kernel_statistics();
        vec![
            ("zero_copy", u64::from(self.zero_copy)),
            ("kernel_frames", self.kernel_frames() as u64),
            ("rx_dropped", kernel.rx_dropped),
            ("rx_ring_full", kernel.rx_ring_full),
            ("fill_ring_empty", kernel.fill_ring_empty),
            ("rx_invalid", kernel.rx_invalid),
            ("tx_invalid", kernel.tx_invalid),
            ("tx_ring_empty", kernel.tx_ring_empty),
        ]
    }

    fn stats(&self) -> LinkStats {
        let XdpStatistics { rx_dropped, rx_ring_full, fill_ring_empty, tx_invalid, .. } =
            self.kernel_statistics();
        let mut stats = self.stats;
        let unfilled = match self.has_fragments {
            // None is too long; what found some frames, and not all that it takes, does not count
            // as finding none.
            true => rx_dropped,
            false => rx_dropped.min(fill_ring_empty),
        };
        stats.drops[DropCause::Overrun.index()] += rx_ring_full;
        stats.drops[DropCause::FillEmpty.index()] += unfilled;
        stats.drops[DropCause::TooLong.index()] += rx_dropped - unfilled;
        // Taken for sent when they went into the ring.
        stats.drops[DropCause::Refused.index()] += tx_invalid;
        stats
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Xdp {
    /// No frame goes back to the pool that the kernel may still look at. Where it copies, it has
    /// done with those to receive into when the socket is closed. Of those to send it makes packets
    /// of its own that, for some drivers (`IFF_TX_SKB_NO_LINEAR`, as of virtio-net), refer to the
    /// frames until the device has sent them. Only the completion ring tells, which goes with the
    /// socket.
    fn drop(&mut self) {
        if self.zero_copy {
            // The kernel ends the device's queue some time after the socket is closed.
            return self.frames.leak();
        }
        for entry in self.socket.tx.untaken() {
            drop(self.frames.take(entry.addr));
        }
        for _ in 0..limits::XDP_LAST_LOOKS {
            self.harvest();
            if !self.frames.has_sent() {
                return;
            }
            let _ = sys::poll(&mut [], Some(limits::XDP_LAST_PAUSE));
        }
        self.frames.leak_sent();
    }
}
