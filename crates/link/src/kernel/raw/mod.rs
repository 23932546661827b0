//! A packet socket (AF_PACKET) on an interface that exists: the stack shares the interface with the
//! kernel.
//!
//! Super-segments and partial checksums pass whole both ways, by virtio-net headers; what the
//! interface cannot do the kernel does. A batch is sent with one system call. Each packet received
//! takes one, straight into frames; or none, through a ring shared with the kernel
//! ([`RingConfig`]), and is copied out of it.
//!
//! The kernel's own stack sees every received packet, too: give the interface no address of the
//! kernel's, or filter, or it will answer with resets. Several sockets, one for each engine, share
//! the packets by flow ([`RawLink::open_shared`]).

mod auxiliary;
mod config;
mod fanout;
pub(crate) mod presence;
mod receive;
mod ring;
mod send;
pub(crate) mod socket;

#[cfg(test)]
mod cut_tests;
#[cfg(test)]
mod flag_tests;
#[cfg(test)]
mod long_tests;
#[cfg(test)]
mod presence_tests;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use millstream_packet::{Instant, PacketBatch, Pool};

use crate::flow::Spread;
use crate::iov::Expectation;
use crate::kernel::big_tcp::Longest;
use crate::kernel::big_tcp::long::{LongPackets, ORDINARY_BYTES};
use crate::kernel::follow::Follow;
use crate::kernel::kernel_receive;
use crate::kernel::posted_buffers::SpareFrames;
use crate::offload::{datagrams, split_datagrams};
use crate::{
    Capabilities, DropCause, Link, LinkError, LinkStats, Medium, Share, Shared, Shown,
    TransmitChecksum, limits, netdev, sys,
};
use auxiliary::{Auxiliary, Trust};
pub use config::{RawConfig, RingConfig};
use fanout::Group;
use presence::Presence;
use ring::ReceiveRing;
use send::SendBatch;

/// A packet socket as a link.
pub struct RawLink {
    fd: OwnedFd,
    name: String,
    capabilities: Capabilities,
    notes: Vec<String>,
    ring: Option<ReceiveRing>,
    spares: SpareFrames,
    long: LongPackets,
    sends: SendBatch,
    /// The super-segments of TCP that are sent whole from now on.
    longest: Longest,
    /// Datagrams of one of UDP that the kernel takes.
    most_datagrams: usize,
    expected: Expectation,
    presence: Presence,
    trust: Trust,
    follow: Follow,
    blocked: bool,
    overruns: Cell<u64>,
    stats: LinkStats,
}

impl std::fmt::Debug for RawLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawLink").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The Linux whose virtio-net headers know UDP super-segments; one before refuses a packet that has
/// such a header.
const UDP_SEGMENTS_SINCE: (u32, u32) = (6, 2);

impl RawLink {
    /// Opens a socket on the interface, which must speak Ethernet.
    ///
    /// # Errors
    /// When there is no such interface, or for want of privilege ([`LinkError::is_not_permitted`]);
    /// when it is not one of Ethernet.
    pub fn open(config: &RawConfig) -> Result<Self, LinkError> {
        netdev::run_in(config.netns.as_deref(), || {
            let prepare = |fd| if config.send_only { socket::close(fd) } else { Ok(()) };
            Self::with_socket(config, socket::open_with(&config.interface, prepare)?)
        })?
    }

    /// Opens as many sockets as there are engines, each with its share of the flows. The kernel
    /// spreads what is received by fan-out; the group ends with the last socket.
    ///
    /// # Errors
    /// As [`open`](Self::open); also for no engine or more than [`limits::SHARES`], for links that
    /// only send, and on kernels without fan-out by program (before 4.12).
    pub fn open_shared(config: &RawConfig, engines: usize) -> Result<Vec<Shared<Self>>, LinkError> {
        Share::new(0, engines)?;
        if config.send_only {
            return Err(LinkError::Invalid("nothing to share among links that only send".into()));
        }
        let spread = Spread::new(engines);
        let name = &config.interface;
        let error = |e| LinkError::from_io(format!("spread the packets of {name}"), e);
        let sockets = netdev::run_in(config.netns.as_deref(), || {
            let mut all = Vec::new();
            let mut group = None;
            for _ in 0..engines {
                let fd = socket::open_with(name, socket::close)?;
                // A ring takes the socket out of its group for a moment: it must come first.
                let link = Self::with_socket(config, fd)?;
                match &group {
                    None => group = Some(Group::found(&link.fd, &spread).map_err(error)?),
                    Some(group) => group.join(&link.fd).map_err(error)?,
                }
                all.push(link);
            }
            for link in &all {
                socket::open_filter(link.fd.as_raw_fd()).map_err(error)?;
            }
            Ok::<_, LinkError>(all)
        })??;
        Shared::spread(sockets, spread)
    }

    fn with_socket(config: &RawConfig, fd: OwnedFd) -> Result<Self, LinkError> {
        let name = &config.interface;
        let raw = fd.as_raw_fd();
        let option = |what: &str, result: io::Result<()>| {
            result.map_err(|e| LinkError::from_io(format!("{what} on {name}"), e))
        };
        netdev::require_ethernet(name)?;
        option("have auxiliary data", socket::set(raw, libc::PACKET_AUXDATA, &1_i32))?;
        let mut notes = Vec::new();
        if config.receive_buffer_bytes.is_some()
            || config.receive_ring.is_none() && !config.send_only
        {
            let made = socket::make_room(raw, config.receive_buffer_bytes);
            let less = made
                .map_err(|e| LinkError::from_io(format!("set the receive buffer on {name}"), e))?;
            notes.extend(less.map(|less| format!("{name}: {less}")));
        }
        socket::join(raw, name, config.mac.is_some())?;
        let (mtu, its_mac) = (netdev::mtu(name)?, netdev::mac(name)?);
        let followed = config.mac.is_none().then_some(its_mac);
        let ring = match config.receive_ring {
            Some(ring) if ring.block_bytes < 1 << 17 || !ring.block_bytes.is_power_of_two() => {
                return Err(LinkError::Invalid("a receive ring's blocks are too small".into()));
            }
            Some(ring) => Some(ReceiveRing::new(&fd, ring)?),
            None => None,
        };
        notes.extend(netdev::down_note(name));
        let takes_udp = sys::kernel_is_at_least(UDP_SEGMENTS_SINCE);
        if !takes_udp {
            let (major, minor) = UDP_SEGMENTS_SINCE;
            notes.push(format!("{name}: no UDP super-segments before Linux {major}.{minor}"));
        }
        let mut capabilities = Capabilities {
            rx_ring: ring.as_ref().map_or(0, ReceiveRing::capacity),
            rx_checksum: true,
            tx_checksum: TransmitChecksum { v4: true, v6: true },
            tso_bytes: Some(limits::SUPER_SEGMENT_BYTES),
            uso_bytes: takes_udp.then_some(limits::SUPER_SEGMENT_BYTES),
            rx_merge: true,
            ..Capabilities::plain(Medium::Ethernet, mtu, config.mac.unwrap_or(its_mac))
        };
        let longest = Longest::by_interface(name, netdev::gso_max_sizes(name)?, &mut notes);
        longest.tell(&mut capabilities);
        Ok(Self {
            fd,
            name: name.clone(),
            capabilities,
            notes,
            ring,
            spares: SpareFrames::new(
                limits::SUPER_SEGMENT_BYTES as usize + limits::LINK_HEADER_BYTES + 1,
                true,
            ),
            long: LongPackets::default(),
            sends: SendBatch::new(),
            longest,
            most_datagrams: if takes_udp { limits::SUPER_DATAGRAMS } else { 1 },
            expected: Expectation::new(),
            presence: Presence::default(),
            trust: Trust::in_this_kernel(),
            follow: Follow::new(netdev::index(name)?, mtu, usize::MAX, followed),
            blocked: false,
            overruns: Cell::new(0),
            stats: LinkStats::default(),
        })
    }

    /// Puts as much of `batch` as there are slices for into one call; counts and drops what cannot
    /// be sent at all. Ends before a super-segment of more datagrams than the kernel takes.
    fn stage(&mut self, pool: &Pool, batch: &mut PacketBatch) {
        while batch.front().is_some_and(|packet| datagrams(packet) <= self.most_datagrams) {
            let Some(packet) = batch.pop() else { return };
            let is_super = packet.meta().segmentation.is_some();
            if !is_super && packet.len() > self.capabilities.mtu + limits::LINK_HEADER_BYTES {
                self.stats.count_drop(DropCause::TooLong);
                continue;
            }
            if let Err(packet) = self.sends.stage(packet, pool) {
                // The place it came from is free.
                let _ = batch.push_front(packet);
                return;
            }
        }
    }

    /// Sends the first datagrams of a super-segment of more than the kernel takes, and puts the
    /// others, or all of it where the kernel takes nothing now, in its place; false then.
    #[cold]
    fn send_first(&mut self, pool: &Pool, batch: &mut PacketBatch) -> bool {
        let Some(packet) = batch.pop() else { return true };
        let (first, others) =
            match split_datagrams(&packet, self.most_datagrams, Medium::Ethernet, pool) {
                Ok(parts) => parts,
                Err(error) => {
                    self.stats.count_drop(error.cause());
                    return true;
                }
            };
        if self.sends.stage(first, pool).is_err() {
            self.stats.count_drop(DropCause::PoolExhausted);
        }
        let is_taken = self.send(&mut PacketBatch::new());
        // The place it came from is free.
        let _ = batch.push_front(if is_taken { others } else { packet });
        is_taken
    }

    /// Sends what is staged; false when the kernel takes nothing now, and what is left is back in
    /// `batch`.
    fn send(&mut self, batch: &mut PacketBatch) -> bool {
        while !self.sends.is_empty() {
            self.stats.tx_syscalls += 1;
            let error = match self.sends.send(self.fd.as_raw_fd(), &mut self.stats) {
                Ok(()) => continue,
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => {
                    self.sends.unstage(batch);
                    return false;
                }
                // This packet, or the interface as it is now (its queue may be full): the next may
                // pass.
                code => {
                    if matches!(code, Some(libc::ENETDOWN | libc::ENXIO)) {
                        self.presence.went_down();
                    }
                    let refused = self.sends.drop_first();
                    self.stats.count_drop(DropCause::Refused);
                    let is_long = refused.is_some_and(|packet| packet.len() > ORDINARY_BYTES);
                    if is_long && code == Some(libc::EMSGSIZE) {
                        self.longest = Longest::default();
                    }
                }
            }
        }
        true
    }
}

/// The socket's own descriptor, for an option that this crate has no call for.
impl AsFd for RawLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Link for RawLink {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let has_ring = self.ring.is_some();
        let expected = if has_ring { usize::MAX } else { self.expected.limit() };
        let limit = batch.room().min(expected);
        let (count, more) = kernel_receive::receive(self, now, pool, batch, limit)?;
        self.expected.learn(count, !more);
        if count == 0 {
            if has_ring {
                self.presence.ask(now, &self.fd);
            }
            self.presence.look(now, &self.fd, &self.name)?;
        }
        Ok(count)
    }

    fn show(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        limit: usize,
        take: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> usize {
        let (Some(ring), trust) = (&mut self.ring, self.trust) else { return 0 };
        if self.long.is_cutting() {
            return 0;
        }
        let mut count = 0;
        while count < limit {
            let next = ring.peek();
            let Some(shown) = next.and_then(|captured| captured.as_it_lies(trust)) else { break };
            let len = shown.bytes.len();
            if !take(shown) {
                break;
            }
            ring.advance();
            self.stats.count_received(len, false);
            count += 1;
        }
        count
    }

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        self.blocked = false;
        while !batch.is_empty() {
            self.stage(pool, batch);
            let is_taken = if !self.sends.is_empty() {
                self.send(batch)
            } else if batch.front().is_some_and(|it| datagrams(it) > self.most_datagrams) {
                self.send_first(pool, batch)
            } else {
                // It has too many pieces for a call, and there are no frames to put it together.
                let is_dropped = batch.pop().is_some();
                self.stats.count_drops(DropCause::PoolExhausted, usize::from(is_dropped));
                true
            };
            if !is_taken {
                self.blocked = true;
                self.stats.tx_full += 1;
                break;
            }
        }
        if self.presence.is_down() {
            self.presence.look(now, &self.fd, &self.name)?;
        }
        Ok(before - batch.len())
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }

    fn wants_write(&self) -> bool {
        self.blocked
    }

    fn prepare_sleep(&mut self) -> bool {
        self.expected.sleep();
        if self.long.is_cutting() {
            return false;
        }
        let Some(ring) = &mut self.ring else { return true };
        if ring.peek().is_some() {
            return false;
        }
        // Nobody reads an error of a socket with a ring, and whoever slept on one would be woken at
        // once.
        let is_quiet = socket::take_error(self.fd.as_raw_fd()) == 0;
        if !is_quiet {
            self.presence.went_down();
        }
        is_quiet
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.presence.next_look()
    }

    fn is_down(&self) -> bool {
        self.presence.is_down() || self.follow.is_down()
    }

    fn refresh(&mut self) -> bool {
        let Self { fd, name, capabilities, notes, longest, .. } = self;
        let has_changed = self.follow.look(fd.as_raw_fd(), name, capabilities, notes);
        let gave_up = longest.tell(capabilities);
        if gave_up {
            notes.push(format!("{name}: {}", longest.given_up()));
        }
        has_changed | gave_up
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        vec![("ring", u64::from(self.ring.is_some()))]
    }

    fn stats(&self) -> LinkStats {
        self.overruns.set(self.overruns.get() + socket::take_overruns(self.fd.as_raw_fd()));
        let mut stats = self.stats;
        stats.drops[DropCause::Overrun.index()] += self.overruns.get();
        stats.drops[DropCause::Truncated.index()] +=
            self.ring.as_ref().map_or(0, ReceiveRing::lost);
        stats
    }

    fn name(&self) -> &str {
        &self.name
    }
}
