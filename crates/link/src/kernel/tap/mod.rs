//! TAP and TUN devices: the kernel is the other end.
//!
//! With virtio-net headers the kernel takes super-segments and partial checksums from us and gives
//! them to us, IPv4 and IPv6; without, packets are completed and cut in software. One system call
//! moves one packet, straight from and into frames.
//!
//! The device ends with its descriptor (unless it was made persistent by somebody else): nothing is
//! left behind by a killed process.

mod config;
mod deferred_free;
mod device;
mod first_queue;
mod flow;
mod handed_in;
mod longest;
mod macvtap;
mod optional;
mod placed;
mod polling;
mod probe;
mod receive;
#[cfg(target_pointer_width = "64")]
mod registered;
#[cfg_attr(not(target_pointer_width = "64"), path = "no_ring.rs")]
mod ring;
mod rps;
mod send;

#[cfg(all(test, target_pointer_width = "64"))]
mod ring_tests;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use millstream_packet::{Instant, Packet, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

use crate::iov::Expectation;
use crate::kernel::big_tcp::Longest;
use crate::kernel::big_tcp::long::LongPackets;
use crate::kernel::follow::Follow;
use crate::kernel::posted_buffers::{FRAME_ROOM_BYTES, SpareFrames};
use crate::medium::check_mtu;
use crate::netdev::{Identity, ReceiveSteering};
use crate::{
    Capabilities, DropCause, Link, LinkError, LinkStats, Medium, Placed, Share, Shared,
    TransmitChecksum, limits, netdev,
};
pub use config::{Napi, NapiMode, TapConfig, TapKind};
use deferred_free::DeferredFree;
use device::{Device, Driver, Queue};
use flow::{FlowMark, carries_data};
use macvtap::Home;
pub use macvtap::MacvtapConfig;
use optional::OptionGuess;
use polling::Polling;
use ring::ReadRing;
use rps::{Look, Rps};
use send::{Sender, Takes};

/// Packets read at once that are a flow of bulk.
const BULK_PACKETS: usize = 16;

/// Bytes written at once that are a flow of bulk.
const BULK_BYTES: u64 = 16 << 10;

/// A TAP or TUN device, opened, set up and up.
pub struct Tap {
    /// Has other CPUs receive what we send. It goes before the device: the kernel forgets to count
    /// down the steered queues of a device that ends, and all others of the machine pay for it.
    rps: Option<Rps>,
    fd: Queue,
    name: String,
    /// The settings of the device that somebody else has made, and whom to ask.
    follow: Follow,
    socket: Arc<OwnedFd>,
    capabilities: Capabilities,
    vnet: bool,
    spares: SpareFrames,
    /// Packets longer than 64 KiB, which come of a device over another interface.
    long: LongPackets,
    option: OptionGuess,
    sender: Sender,
    /// Packets are read by this, many with one call, when many are expected.
    reads: Option<ReadRing>,
    /// Changes how the kernel polls the device as its traffic does, if this is its only queue.
    polling: Option<Polling>,
    /// Else how it is polled as long as one of its queues is left.
    polled: Option<Arc<Polling>>,
    /// Takes back what others have read of what we sent.
    deferred_free: Option<DeferredFree>,
    /// Where a device over another interface is, which ends with it; and why that is over.
    home: Option<Arc<Home>>,
    gone: Option<io::Error>,
    expected: Expectation,
    blocked: bool,
    notes: Vec<String>,
    stats: LinkStats,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap")
            .field("name", &self.name)
            .field("capabilities", &self.capabilities)
            .finish_non_exhaustive()
    }
}

/// The device's own descriptor, for an `ioctl` that this crate has no call for.
impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Tap {
    /// Makes (or opens) the device, sets its MTU and addresses, brings it up, and checks its
    /// offloads.
    ///
    /// # Errors
    /// When the system has no TUN driver, or for want of privilege
    /// ([`LinkError::is_not_permitted`]); when another program has the device, after half a second
    /// in which it is asked for again. Offloads that are not to be had are no error: see
    /// [`notes`](Link::notes).
    pub fn open(config: &TapConfig) -> Result<Self, LinkError> {
        Self::open_on(config, Driver::default())
    }

    fn open_on(config: &TapConfig, driver: Driver) -> Result<Self, LinkError> {
        check(config)?;
        let open = || Ok(Self::open_here(config, false, driver)?.0);
        netdev::run_in(config.netns.as_deref(), open)?
    }

    /// As [`open`](Self::open), with several queues, each a link for an engine of its own.
    ///
    /// The kernel sends the packets of a flow to the queue that the flow's packets last came from
    /// (and those of a flow it has not seen by hash), so a flow stays in order on one queue.
    ///
    /// # Errors
    /// As `open`; also for no queues, or more than the driver has.
    pub fn open_queues(config: &TapConfig, queues: usize) -> Result<Vec<Self>, LinkError> {
        check(config)?;
        if queues == 0 {
            return Err(LinkError::Invalid("a device is opened with a queue at least".into()));
        }
        netdev::run_in(config.netns.as_deref(), || {
            let (first, device) = Self::open_here(config, queues > 1, Driver::default())?;
            let mut all = vec![first];
            while all.len() < queues {
                let fd = device.another_queue(config.kind)?;
                let capabilities = all[0].capabilities.clone();
                let mut queue = Self::assemble(fd, &device, capabilities);
                queue.polled = all[0].polled.clone();
                queue.polled.as_ref().map_or(Ok(()), |polled| polled.set())?;
                queue.apply(config);
                all.push(queue);
            }
            Ok(all)
        })?
    }

    /// As [`open_queues`](Self::open_queues), each queue with its share of the flows: what the
    /// kernel puts into another engine's queue is handed over.
    ///
    /// # Errors
    /// As `open_queues`; also for no engine or more than [`limits::SHARES`].
    pub fn open_shared(config: &TapConfig, engines: usize) -> Result<Vec<Shared<Self>>, LinkError> {
        Share::new(0, engines)?;
        Shared::over(Self::open_queues(config, engines)?)
    }

    fn open_here(
        config: &TapConfig,
        multi_queue: bool,
        driver: Driver,
    ) -> Result<(Self, Device), LinkError> {
        let (fd, mut device) = Device::open(config, multi_queue, driver)?;
        let mtu = device.configure(config)?;
        let changes = !multi_queue && config.napi == NapiMode::Auto;
        let polling = device.poll(!changes);
        if let Err(error) = polling {
            // Without those settings it would cost more than plain receiving.
            drop(fd);
            let plain = TapConfig { napi: NapiMode::Off, ..config.clone() };
            let (mut tap, mut device) = Self::open_here(&plain, multi_queue, driver)?;
            for notes in [&mut tap.notes, &mut device.notes] {
                notes.push(format!("{error}: packets are received one by one"));
            }
            return Ok((tap, device));
        }
        let medium = config.kind.medium();
        let (mut whole, mut udp) = (device.offload, device.udp_offload);
        if whole && config.self_check {
            let checked = probe::run(fd.as_raw_fd(), &device.name, medium, udp);
            whole = checked.sends_whole;
            udp &= checked.sends_datagrams_whole;
            if !checked.receives_whole {
                device.withdraw_offload(fd.as_raw_fd());
            }
            device.notes.extend(checked.notes);
        }
        let mac = match medium {
            Medium::Ip => MacAddr::ZERO,
            Medium::Ethernet => config.mac.map_or_else(|| own_mac(&device.name), Ok)?,
        };
        let longest = match whole {
            true => longest::find(fd.as_raw_fd(), &device.name, medium, config, &mut device.notes),
            false => Longest::default(),
        };
        let takes = Takes { checksums: whole, tcp: whole, udp: whole && udp, longest };
        let mut tap = Self::of(fd, &mut device, config, takes, mtu, mac);
        match changes {
            true => tap.polling = polling?,
            false => tap.polled = polling?.map(Arc::new),
        }
        if config.rps && !multi_queue && tap.capabilities.rx_merge && device.napi.is_none() {
            tap.relieve();
        }
        Ok((tap, device))
    }

    /// Returns the only or first queue of a device that takes this, with this MTU and the stack's
    /// link address.
    fn of(
        fd: Queue,
        device: &mut Device,
        config: &TapConfig,
        takes: Takes,
        mtu: usize,
        mac: MacAddr,
    ) -> Self {
        let medium = config.kind.medium();
        device.takes = takes;
        // The sender cuts and sums what the device does not take, while it copies; where it need
        // not copy it does neither.
        let cuts = !takes.wants_segments(mtu + medium.header_len());
        let mut capabilities = Capabilities {
            rx_checksum: device.offload,
            tx_checksum: TransmitChecksum { v4: cuts, v6: cuts },
            tso_bytes: cuts.then_some(limits::SUPER_SEGMENT_BYTES),
            uso_bytes: cuts.then_some(limits::SUPER_SEGMENT_BYTES),
            rx_merge: device.offload,
            rx_ring: config.queue_packets.unwrap_or(0),
            ..Capabilities::plain(medium, mtu, mac)
        };
        takes.longest.tell(&mut capabilities);
        let mut tap = Self::assemble(fd, device, capabilities);
        tap.apply(config);
        tap
    }

    /// Sets up what each queue has for itself.
    fn apply(&mut self, config: &TapConfig) {
        if config.take_back && DeferredFree::are_worth_it() {
            match DeferredFree::open() {
                Ok(returns) => self.deferred_free = Some(returns),
                Err(error) => self.note("packets that were read come back by interrupts", &error),
            }
        }
        if !config.io_uring.unwrap_or(!self.sender.takes_super_segments()) {
            return;
        }
        let fd = self.fd.as_raw_fd();
        if let Err(error) = self.sender.write_by_ring(fd) {
            self.note("no io_uring, each frame is a call", &error);
            return;
        }
        // Its memory is registered.
        self.follow.limit(self.capabilities.mtu);
        // A read goes into one frame, without a header before it.
        if !self.vnet && self.spares.room() <= FRAME_ROOM_BYTES {
            match ReadRing::new(fd) {
                Ok(mut reads) => {
                    if let Err(error) = reads.register_frames() {
                        self.note("reads go into memory that is not registered", &error);
                    }
                    self.reads = Some(reads);
                }
                Err(error) => self.note("no io_uring for reads, each is a call", &error),
            }
        }
    }

    /// Prepares for having other CPUs receive what we send.
    fn relieve(&mut self) {
        match ReceiveSteering::open(&self.name) {
            // Whoever set it knows why.
            Ok(steering) if steering.was_set() || !steering.has_choice() => {}
            Ok(steering) => self.rps = Some(Rps::new(steering)),
            Err(error) => self.note("what is sent is received inside our calls", &error),
        }
    }

    /// A packet was read. Only of super-segments it is told what flow they are of.
    #[inline]
    fn came(&mut self, packet: &Packet) {
        if let Some(rps) = &mut self.rps
            && packet.meta().segmentation.is_some()
        {
            rps.came(FlowMark::of(packet.head(), self.capabilities.medium));
        }
    }

    /// These are to be sent. Who receives what we send depends on whether they answer.
    #[inline]
    fn goes(&mut self, batch: &PacketBatch) {
        let Some(rps) = &mut self.rps else { return };
        let medium = self.capabilities.medium;
        for packet in batch.iter() {
            let answers = packet.meta().segmentation.is_some()
                || carries_data(packet.head(), packet.len(), medium);
            rps.goes(answers);
        }
    }

    /// The device was looked at. Who receives what we send follows, if it is to.
    #[inline]
    fn looked(&mut self, look: Look, found: bool) {
        if let Some(returns) = &mut self.deferred_free {
            returns.looked(found);
        }
        let Some(rps) = &mut self.rps else { return };
        match rps.saw(&self.stats, look) {
            Ok(changed) => self.stats.tx_steerings += u64::from(changed && rps.is_on()),
            Err(error) => {
                self.rps = None;
                self.note("what is sent is received inside our calls from now on", &error);
            }
        }
    }

    /// So many bytes were sent at once.
    #[inline]
    fn went(&mut self, bytes: u64) {
        let is_bulk = bytes >= BULK_BYTES;
        if let Some(returns) = &mut self.deferred_free {
            let taken = returns.sent(if is_bulk { bytes } else { 0 });
            self.stats.tx_returns += u64::from(taken);
        }
        self.follow(is_bulk);
    }

    /// Packets beyond the first `before` were sent.
    #[inline]
    fn count_steered(&mut self, before: u64) {
        if self.rps.as_ref().is_some_and(Rps::is_on) {
            self.stats.tx_steered += self.stats.tx_packets - before;
        }
    }

    /// Goes on with what the device had no room for and that nobody has any more to send again.
    ///
    /// # Errors
    /// When the device is gone.
    #[cold]
    fn go_on(&mut self, now: Instant, pool: &Pool) -> Result<(), LinkError> {
        match self.sender.has_begun() {
            true => self.transmit(now, pool, &mut PacketBatch::new()).map(drop),
            false => Ok(()),
        }
    }

    /// Makes known that the kernel had no memory for longer super-segments than ordinary ones;
    /// whether it is news.
    fn give_up_big(&mut self) -> bool {
        let longest = self.sender.longest();
        if !longest.tell(&mut self.capabilities) {
            return false;
        }
        self.notes.push(format!("{}: {}", self.name, longest.given_up()));
        true
    }

    /// Says what is not had, and why.
    #[cold]
    fn note(&mut self, what: &str, error: &dyn std::fmt::Display) {
        self.notes.push(format!("{}: {what}: {error}", self.name));
    }

    fn assemble(fd: Queue, device: &Device, capabilities: Capabilities) -> Self {
        let medium = capabilities.medium;
        let longest = capabilities.mtu + link_header(medium);
        let room = if capabilities.rx_merge {
            limits::SUPER_SEGMENT_BYTES as usize + link_header(medium)
        } else {
            longest
        };
        // Without offloads reads and writes have room for so much and no more.
        let grows = capabilities.rx_merge && device.takes.tcp;
        let most = if grows { limits::MTU_MAX_BYTES } else { capabilities.mtu };
        Self {
            fd,
            name: device.name.clone(),
            follow: Follow::new(device.index, capabilities.mtu, most, None),
            socket: Arc::clone(&device.socket),
            capabilities,
            vnet: device.vnet,
            // One byte more than the longest tells a packet that was cut short.
            spares: SpareFrames::new(room + 1, device.vnet),
            long: LongPackets::default(),
            option: OptionGuess::default(),
            sender: Sender::new(device.takes, medium, longest, device.vnet),
            reads: None,
            polling: None,
            polled: None,
            deferred_free: None,
            home: None,
            gone: None,
            rps: None,
            expected: Expectation::new(),
            blocked: false,
            notes: device.notes.clone(),
            stats: LinkStats::default(),
        }
    }

    /// A batch went by: the kernel's polling follows, if it is to. Where that is refused it stays
    /// as it is.
    fn follow(&mut self, is_bulk: bool) {
        if let Some(polling) = &mut self.polling
            && polling.saw(is_bulk).is_err()
        {
            self.polling = None;
        }
    }
}

/// Bytes of the longest link header.
fn link_header(medium: Medium) -> usize {
    match medium {
        Medium::Ethernet => limits::LINK_HEADER_BYTES,
        Medium::Ip => 0,
    }
}

/// Refuses what no device can be.
fn check(config: &TapConfig) -> Result<(), LinkError> {
    let header = match config.kind {
        TapKind::Tap => limits::ETHERNET_HEADER_BYTES,
        TapKind::Tun => 0,
    };
    let mtu = config.mtu;
    check_mtu(mtu, limits::MTU_MAX_BYTES - header)?;
    let v6 = config.host_addresses.iter().find(|(address, _)| address.is_ipv6());
    if let Some((address, _)) = v6.filter(|_| mtu < limits::IPV6_MTU_MIN_BYTES) {
        let least = limits::IPV6_MTU_MIN_BYTES;
        return Err(LinkError::Invalid(format!(
            "IPv6 takes an MTU of {least} at least, {mtu} has no room for {address}"
        )));
    }
    let sizes = limits::SUPER_SEGMENT_BYTES..=limits::BIG_SUPER_SEGMENT_BYTES;
    if let Some(bytes) = config.super_segment_bytes.filter(|bytes| !sizes.contains(bytes)) {
        let (least, most) = sizes.into_inner();
        return Err(LinkError::Invalid(format!(
            "super-segments of {bytes} bytes: {least} to {most} can be"
        )));
    }
    Ok(())
}

/// A link address for our side of the device `name`, which it has whenever it is made anew: the
/// kernel's side has another one each time.
fn own_mac(name: &str) -> Result<MacAddr, LinkError> {
    let device = |number| Identity { kind: "tap", name, below: None, number };
    let (theirs, mac) = (netdev::mac(name)?, netdev::stable_mac(device(0)));
    Ok(if mac == theirs { netdev::stable_mac(device(1)) } else { mac })
}

impl Link for Tap {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        if self.blocked {
            self.go_on(now, pool)?;
        }
        let limit = batch.room().min(self.expected.limit());
        let (count, more) = self.read(now, pool, batch, limit)?;
        self.expected.learn(count, !more);
        self.looked(if more { Look::More } else { Look::Vain }, count != 0);
        if count != 0 {
            self.follow(count >= BULK_PACKETS);
        } else if let Some(error) = self.gone.take() {
            return Err(self.broken(error));
        }
        Ok(count)
    }

    fn places(&self) -> bool {
        self.vnet && self.capabilities.rx_merge
    }

    fn receive_into(
        &mut self,
        now: Instant,
        pool: &Pool,
        head_len: usize,
        memory: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        if self.blocked {
            self.go_on(now, pool)?;
        }
        let placed = self.read_placed(now, pool, head_len, memory)?;
        self.looked(if placed.is_some() { Look::Placed } else { Look::Vain }, placed.is_some());
        if placed.is_none()
            && let Some(error) = self.gone.take()
        {
            return Err(self.broken(error));
        }
        Ok(placed)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let before = batch.len();
        let LinkStats { tx_packets, tx_bytes, .. } = self.stats;
        let refused = self.stats.dropped(DropCause::Refused);
        self.goes(batch);
        self.blocked = self.sender.send(self.fd.as_raw_fd(), pool, batch, &mut self.stats);
        if self.stats.dropped(DropCause::Refused) != refused {
            device::look(&self.fd).map_err(|error| self.broken(error))?;
        }
        self.stats.tx_full += u64::from(self.blocked);
        self.went(self.stats.tx_bytes - tx_bytes);
        if let Some(error) = self.sender.take_ring_error() {
            self.note("io_uring failed, each frame is a call from now on", &error);
        }
        self.count_steered(tx_packets);
        Ok(before - batch.len())
    }

    fn borrows(&self) -> bool {
        self.vnet && self.sender.takes_super_segments()
    }

    fn transmit_from(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        head: Packet,
        payload: &[u8],
    ) -> Result<Option<Packet>, LinkError> {
        if let Some(rps) = &mut self.rps {
            rps.goes(true);
        }
        let sent = self.stats.tx_packets;
        let given_back =
            self.sender.write_from(self.fd.as_raw_fd(), head, payload, &mut self.stats).err();
        if given_back.is_none() {
            self.went(payload.len() as u64);
            self.count_steered(sent);
        }
        Ok(given_back)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }

    fn wants_write(&self) -> bool {
        self.blocked
    }

    fn prepare_sleep(&mut self) -> bool {
        self.expected.sleep();
        if let Some(returns) = &mut self.deferred_free {
            returns.sleeps();
        }
        !self.long.is_cutting() && self.gone.is_none()
    }

    fn is_down(&self) -> bool {
        self.follow.is_down()
    }

    fn refresh(&mut self) -> bool {
        self.look_below();
        let Self { socket, name, capabilities, notes, .. } = self;
        let has_changed = self.follow.look(socket.as_raw_fd(), name, capabilities, notes);
        if has_changed {
            self.sender.carry(capabilities.mtu + link_header(capabilities.medium));
        }
        has_changed | self.give_up_big()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let is_steering = self.rps.as_ref().is_some_and(Rps::is_on);
        vec![
            ("reads_by_io_uring", u64::from(self.reads.is_some())),
            ("napi", u64::from(self.polling.is_some() || self.polled.is_some())),
            ("steering", u64::from(is_steering)),
        ]
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.name
    }
}
