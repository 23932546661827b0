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
mod long;
pub(crate) mod presence;
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
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool, Segmentation};

use crate::follow::Follow;
use crate::incoming::{self, Next, Source};
use crate::iov::Expectation;
use crate::offload::OffloadError;
use crate::share::Spread;
use crate::spares::SpareFrames;
use crate::{
    Capabilities, DropCause, Link, LinkError, LinkStats, Medium, Share, Shared, Shown,
    TransmitChecksum, limits, netdev, sys, vnet,
};
use auxiliary::{Auxiliary, Trust, auxiliary, put_tag_back};
pub use config::{RawConfig, RingConfig};
use fanout::Group;
use long::LongPackets;
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
    expected: Expectation,
    presence: Presence,
    trust: Trust,
    follow: Follow,
    blocked: bool,
    /// The last batch was full, and there was more.
    more: bool,
    overruns: Cell<u64>,
    stats: LinkStats,
}

impl std::fmt::Debug for RawLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawLink").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The Linux whose virtio-net headers know UDP super-segments; one before refuses a packet that has such a header.
const UDP_SEGMENTS_SINCE: (u32, u32) = (6, 2);

/// A VLAN tag's type and the tag.
const VLAN_TAG_BYTES: u16 = 4;

/// Room for one control message with a `tpacket_auxdata`, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

impl RawLink {
    /// Opens a socket on the interface, which must speak Ethernet.
    ///
    /// # Errors
    /// When there is no such interface, or for want of privilege ([`LinkError::is_not_permitted`]); when it is not
    /// one of Ethernet.
    pub fn open(config: &RawConfig) -> Result<Self, LinkError> {
        netdev::run_in(config.netns.as_deref(), || {
            let prepare = |fd| if config.send_only { fanout::close(fd) } else { Ok(()) };
            Self::with_socket(config, socket::open_with(&config.interface, prepare)?)
        })?
    }

    /// Opens as many sockets as there are engines, each with its share of the flows. The kernel
    /// spreads what is received by fan-out; the group ends with the last socket.
    ///
    /// # Errors
    /// As [`open`](Self::open); also for no engine or more than [`limits::SHARES`], for links that only send, and on
    /// kernels without fan-out by program (before 4.12).
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
                let fd = socket::open_with(name, fanout::close)?;
                // A ring takes the socket out of its group for a moment: it must come first.
                let link = Self::with_socket(config, fd)?;
                match &group {
                    None => group = Some(Group::found(&link.fd, &spread).map_err(error)?),
                    Some(group) => group.join(&link.fd).map_err(error)?,
                }
                all.push(link);
            }
            for link in &all {
                fanout::open(link.fd.as_raw_fd()).map_err(error)?;
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
        let capabilities = Capabilities {
            rx_ring: ring.as_ref().map_or(0, ReceiveRing::capacity),
            rx_checksum: true,
            tx_checksum: TransmitChecksum { v4: true, v6: true },
            tso_bytes: Some(limits::SUPER_SEGMENT_BYTES),
            uso_bytes: takes_udp.then_some(limits::SUPER_SEGMENT_BYTES),
            rx_merge: true,
            ..Capabilities::plain(Medium::Ethernet, mtu, config.mac.unwrap_or(its_mac))
        };
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
            expected: Expectation::new(),
            presence: Presence::default(),
            trust: Trust::in_this_kernel(),
            follow: Follow::new(netdev::index(name)?, mtu, usize::MAX, followed),
            blocked: false,
            more: false,
            overruns: Cell::new(0),
            stats: LinkStats::default(),
        })
    }

    /// Reads one packet.
    fn read(&mut self, pool: &Pool) -> Result<Next, LinkError> {
        loop {
            if !self.spares.fill(pool) {
                self.stats.rx_starved += 1;
                return Ok(Next::Nothing);
            }
            let mut control = Control([0; 64]);
            // SAFETY: a msghdr is plain data, for which all zero is valid.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            let (slices, in_spares) = match self.long.are_expected() {
                true => self.long.list(&mut self.spares, pool),
                false => (self.spares.slices(), usize::MAX),
            };
            message.msg_iov = slices.as_ptr().cast_mut();
            message.msg_iovlen = slices.len();
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = size_of::<Control>();
            // SAFETY: every entry is writable memory owned by `spares` or `long`; those, `control` and the list itself
            // outlive the call.
            let n = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) };
            self.stats.rx_syscalls += 1;
            if n < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(Next::Nothing),
                    Some(libc::EINTR) => continue,
                    // Told once; what came before is still there.
                    Some(libc::ENETDOWN) => {
                        self.presence.went_down();
                        continue;
                    }
                    // Merged in a way that a virtio-net header cannot tell (SCTP, ESP, UDP before
                    // Linux 6.2); it is gone.
                    Some(libc::EINVAL) => {
                        return Ok(self.refuse(DropCause::VirtioUnknownSegmentation));
                    }
                    _ => return Err(LinkError::from_io(format!("read from {}", self.name), error)),
                }
            }
            let auxiliary = auxiliary(&message);
            let n = n.cast_unsigned();
            let read = match message.msg_flags & libc::MSG_TRUNC != 0 {
                true => Err(DropCause::Truncated),
                false => self.take(n, n.saturating_sub(in_spares)),
            };
            if matches!(read, Err(DropCause::Truncated)) && self.long.expect() {
                self.notes.push(format!(
                    "{}: packets beyond 64 KiB come (gro_max_size, or a neighbour's gso_max_size): cut in software",
                    self.name
                ));
            }
            return Ok(self.accept(read, auxiliary, pool));
        }
    }

    fn refuse(&mut self, cause: DropCause) -> Next {
        self.stats.count_drop(cause);
        Next::Refused
    }

    /// The `n` bytes just read, of which so many lie `beyond` the spare frames, as a packet, with its virtio-net header.
    fn take(&mut self, n: usize, beyond: usize) -> Result<(Packet, vnet::Header), DropCause> {
        let header = self.spares.header();
        let packet = match n.saturating_sub(header.len()) >= self.spares.room() {
            true if self.long.are_expected() => {
                let in_spares = n - beyond - header.len();
                self.long.take(&mut self.spares, in_spares, beyond)?
            }
            _ => {
                let shortest = limits::ETHERNET_HEADER_BYTES;
                incoming::take(&mut self.spares, n, header.len(), shortest)?
            }
        };
        Ok((packet, header))
    }

    /// What becomes of a packet that was read: a long one is cut.
    fn accept(
        &mut self,
        read: Result<(Packet, vnet::Header), DropCause>,
        auxiliary: Option<Auxiliary>,
        pool: &Pool,
    ) -> Next {
        let dressed = read.and_then(|(packet, header)| self.dress(packet, &header, auxiliary));
        match dressed {
            Ok(packet) if LongPackets::is_ordinary(&packet) => Next::Packet(packet),
            Ok(packet) => match self.long.cut(packet) {
                Ok(()) => {
                    self.stats.rx_software_segmented += 1;
                    self.next_piece(pool)
                }
                Err(cause) => self.refuse(cause),
            },
            Err(cause) => self.refuse(cause),
        }
    }

    /// The next piece of the packet that is being cut.
    fn next_piece(&mut self, pool: &Pool) -> Next {
        match self.long.next(pool) {
            Ok(Some(piece)) => Next::Packet(piece),
            Ok(None) => Next::Refused,
            Err(OffloadError::Exhausted) => {
                self.stats.rx_starved += 1;
                Next::Nothing
            }
            Err(error) => self.refuse(error.cause()),
        }
    }

    /// The next packet of the ring.
    fn read_ring(&mut self, pool: &Pool) -> Next {
        let Some(captured) = self.ring.as_mut().and_then(ReceiveRing::peek) else {
            return Next::Nothing;
        };
        let ring::Captured { header, bytes, is_cut, auxiliary } = captured;
        let read = match bytes.len() {
            _ if is_cut => Err(DropCause::Truncated),
            ..limits::ETHERNET_HEADER_BYTES => Err(DropCause::TooShort),
            _ => match Packet::from_slice(pool, limits::RECEIVE_HEADROOM_BYTES, bytes) {
                Ok(packet) => Ok((packet, header)),
                Err(_) => {
                    self.stats.rx_starved += 1;
                    return Next::Nothing;
                }
            },
        };
        if let Some(ring) = &mut self.ring {
            ring.advance();
        }
        self.accept(read, Some(auxiliary), pool)
    }

    /// Gives a received packet the meta data that the kernel had for it, and its VLAN tag back.
    fn dress(
        &mut self,
        mut packet: Packet,
        header: &vnet::Header,
        auxiliary: Option<Auxiliary>,
    ) -> Result<Packet, DropCause> {
        let (mut checksum, mut segmentation) = vnet::decode(header, packet.head(), packet.len())?;
        if let Some(auxiliary) = auxiliary {
            checksum = auxiliary.vouch(self.trust, checksum);
            if auxiliary.has_tag() && put_tag_back(&mut packet, &auxiliary) {
                let beyond = DropCause::VirtioChecksumRange;
                if let Checksum::Partial { start, .. } = &mut checksum {
                    *start = start.checked_add(VLAN_TAG_BYTES).ok_or(beyond)?;
                }
                if let Some(Segmentation { header_len, .. }) = &mut segmentation {
                    *header_len = header_len.checked_add(VLAN_TAG_BYTES).ok_or(beyond)?;
                }
            }
        }
        let meta = packet.meta_mut();
        meta.checksum = checksum;
        meta.segmentation = segmentation;
        Ok(packet)
    }

    /// Puts as much of `batch` as there are slices for into one call; counts and drops what cannot
    /// be sent at all.
    fn stage(&mut self, pool: &Pool, batch: &mut PacketBatch) {
        while let Some(packet) = batch.pop() {
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
                    self.sends.drop_first();
                    self.stats.count_drop(DropCause::Refused);
                }
            }
        }
        true
    }
}

impl Source for RawLink {
    fn next(&mut self, pool: &Pool) -> Result<Next, LinkError> {
        if self.long.is_cutting() {
            return Ok(self.next_piece(pool));
        }
        if self.ring.is_some() { Ok(self.read_ring(pool)) } else { self.read(pool) }
    }

    fn counters(&mut self) -> &mut LinkStats {
        &mut self.stats
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
        let (count, more) = incoming::receive(self, now, pool, batch, limit)?;
        self.more = more && (count < limit || batch.is_full());
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
        self.more = count == limit;
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
            if self.sends.is_empty() && batch.pop().is_some() {
                // Of too many pieces for a call, and no frames to put it together.
                self.stats.count_drop(DropCause::PoolExhausted);
            }
            if !self.send(batch) {
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

    fn has_more(&self) -> bool {
        self.more || self.long.is_cutting()
    }

    fn wants_write(&self) -> bool {
        self.blocked
    }

    fn prepare_sleep(&mut self) -> bool {
        self.expected.sleep();
        let Some(ring) = &mut self.ring else { return true };
        if ring.peek().is_some() {
            return false;
        }
        // Nobody reads an error of a socket with a ring, and whoever slept on one would be woken at once.
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
        self.presence.is_down()
    }

    fn refresh(&mut self) -> bool {
        let Self { fd, name, capabilities, notes, .. } = self;
        self.follow.look(fd.as_raw_fd(), name, capabilities, notes)
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
