//! TAP and TUN devices: the kernel is the other end.
//!
//! With virtio-net headers the kernel takes super-segments and partial checksums from us and gives
//! them to us, IPv4 and IPv6; without, packets are completed and cut in software. One system call
//! moves one packet, straight from and into frames.
//!
//! The device ends with its descriptor (unless it was made persistent by somebody else): nothing is
//! left behind by a killed process.

mod device;
mod probe;

#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

use crate::iov::{Expectation, GatherList, SpareFrames, compact};
use crate::offload::{SegmentChecksum, Segmenter, complete_checksum};
use crate::{
    Capabilities, DropCause, Link, LinkError, LinkStats, Medium, TransmitChecksum, limits, netdev,
    vnet,
};
use device::Device;

/// Which of the two device types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TapKind {
    /// Ethernet frames.
    #[default]
    Tap,
    /// IP packets.
    Tun,
}

/// How to open a [`Tap`].
#[derive(Clone, Debug)]
pub struct TapConfig {
    /// Name of the interface; `%d` in it counts up. `None`: a fresh name.
    pub name: Option<String>,
    /// TAP or TUN.
    pub kind: TapKind,
    /// Exchange virtio-net headers with the kernel.
    pub vnet_hdr: bool,
    /// With them: leave checksums and segmentation to the other side, both ways.
    pub offload: bool,
    /// Check at opening that super-segments pass whole, by sending some through the device.
    pub self_check: bool,
    /// The namespace the device lives in; `None`: the calling thread's.
    pub netns: Option<PathBuf>,
    /// Largest IP packet, in bytes.
    pub mtu: usize,
    /// The stack's link address; `None`: made from the kernel's side.
    pub mac: Option<MacAddr>,
    /// Addresses of the kernel's side, with their prefix lengths.
    pub host_addresses: Vec<(IpAddr, u8)>,
    /// Packets the kernel queues towards us; `None`: the kernel's default.
    pub queue_packets: Option<usize>,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self {
            name: None,
            kind: TapKind::Tap,
            vnet_hdr: true,
            offload: true,
            self_check: true,
            netns: None,
            mtu: 1500,
            mac: None,
            host_addresses: Vec::new(),
            queue_packets: None,
        }
    }
}

/// A TAP or TUN device, opened, set up and up.
pub struct Tap {
    fd: OwnedFd,
    name: String,
    capabilities: Capabilities,
    vnet: bool,
    /// Longest packet, link header included, that is no super-segment.
    longest: usize,
    spares: SpareFrames,
    gather: GatherList,
    expected: Expectation,
    /// A super-segment being cut.
    cutting: Option<Segmenter>,
    /// A segment cut and refused for want of room.
    segment: Option<Packet>,
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

impl Tap {
    /// Makes (or opens) the device, sets its MTU and addresses, brings it up, and checks its
    /// offloads.
    ///
    /// # Errors
    /// When the system has no TUN driver, or for want of privilege
    /// ([`LinkError::is_not_permitted`]). Offloads that are not to be had are no error: see
    /// [`notes`](Self::notes).
    pub fn open(config: &TapConfig) -> Result<Self, LinkError> {
        check(config)?;
        netdev::run_in(config.netns.as_deref(), || Ok(Self::open_here(config, false)?.0))?
    }

    /// As [`open`](Self::open), with several queues, each a link for an engine of its own.
    ///
    /// The kernel sends the packets of a flow to the queue that the flow's packets last came from
    /// (and those of a flow it has not seen by hash), so a flow stays in order on one queue.
    ///
    /// # Errors
    /// As `open`; also when there are more queues than the driver has.
    pub fn open_queues(config: &TapConfig, queues: usize) -> Result<Vec<Self>, LinkError> {
        check(config)?;
        netdev::run_in(config.netns.as_deref(), || {
            let (first, device) = Self::open_here(config, true)?;
            let mut all = vec![first];
            while all.len() < queues {
                let fd = device.another_queue(config.kind)?;
                let capabilities = all[0].capabilities.clone();
                all.push(Self::assemble(fd, &device, capabilities));
            }
            Ok(all)
        })?
    }

    fn open_here(config: &TapConfig, multi_queue: bool) -> Result<(Self, Device), LinkError> {
        let (fd, mut device) = Device::open(config, multi_queue)?;
        let mtu = device.configure(config)?;
        let medium = match config.kind {
            TapKind::Tap => Medium::Ethernet,
            TapKind::Tun => Medium::Ip,
        };
        let mut whole = device.offload;
        if whole && config.self_check {
            let checked = probe::run(fd.as_raw_fd(), &device.name, medium);
            whole = checked.sends_whole;
            if !checked.receives_whole {
                device.withdraw_offload(fd.as_raw_fd());
            }
            device.notes.extend(checked.notes);
        }
        let mac = match medium {
            Medium::Ip => MacAddr::ZERO,
            Medium::Ethernet => config.mac.map_or_else(|| beside(&device.name), Ok)?,
        };
        let super_segment = Some(limits::SUPER_SEGMENT_BYTES);
        let capabilities = Capabilities {
            rx_checksum: device.offload,
            tx_checksum: TransmitChecksum { v4: whole, v6: whole },
            tso_bytes: super_segment.filter(|_| whole),
            uso_bytes: super_segment.filter(|_| whole && device.udp_offload),
            rx_merge: device.offload,
            rx_ring: config.queue_packets.unwrap_or(0),
            ..Capabilities::plain(medium, mtu, mac)
        };
        Ok((Self::assemble(fd, &device, capabilities), device))
    }

    fn assemble(fd: OwnedFd, device: &Device, capabilities: Capabilities) -> Self {
        let link_header = match capabilities.medium {
            Medium::Ethernet => limits::LINK_HEADER_BYTES,
            Medium::Ip => 0,
        };
        let longest = capabilities.mtu + link_header;
        let room = if capabilities.rx_merge {
            limits::SUPER_SEGMENT_BYTES as usize + link_header
        } else {
            longest
        };
        Self {
            fd,
            name: device.name.clone(),
            capabilities,
            vnet: device.vnet,
            longest,
            // One byte more than the longest tells a packet that was cut short.
            spares: SpareFrames::new(room + 1),
            gather: GatherList::new(),
            expected: Expectation::new(),
            cutting: None,
            segment: None,
            blocked: false,
            notes: device.notes.clone(),
            stats: LinkStats::default(),
        }
    }

    /// What was asked for and not had, one sentence each. Empty when everything was had.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Reads one packet; `None` when there is none (or no frame for it).
    fn read(&mut self, pool: &Pool) -> Result<Option<Packet>, LinkError> {
        loop {
            if !self.spares.fill(pool) {
                self.stats.rx_starved += 1;
                return Ok(None);
            }
            let mut header = [0; vnet::HEADER_BYTES];
            let header_len = if self.vnet { vnet::HEADER_BYTES } else { 0 };
            let slices = self.spares.slices(&mut header[..header_len]);
            // SAFETY: every entry is writable memory owned by `spares`, or `header`; both outlive
            // the call.
            let n = unsafe {
                libc::readv(self.fd.as_raw_fd(), slices.as_ptr(), slices.len() as libc::c_int)
            };
            self.stats.rx_syscalls += 1;
            if n < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR) => continue,
                    _ => return Err(LinkError::from_io(format!("read from {}", self.name), error)),
                }
            }
            match self.accept(&header, n.cast_unsigned(), header_len) {
                Ok(packet) => return Ok(Some(packet)),
                Err(cause) => self.stats.count_drop(cause),
            }
        }
    }

    /// Makes a packet of the `n` bytes just read. A refused one leaves its frames where they are,
    /// for the next read.
    fn accept(
        &mut self,
        header: &vnet::Header,
        n: usize,
        header_len: usize,
    ) -> Result<Packet, DropCause> {
        let Some(len) = n.checked_sub(header_len) else { return Err(DropCause::VirtioTruncated) };
        if len >= self.spares.room() {
            return Err(DropCause::Truncated);
        }
        if len < self.capabilities.medium.header_len().max(1) {
            return Err(DropCause::TooShort);
        }
        let Some(mut packet) = self.spares.take(len) else { return Err(DropCause::PoolExhausted) };
        if header_len > 0 {
            let (checksum, segmentation) = vnet::decode(header, packet.head(), len)?;
            let meta = packet.meta_mut();
            meta.checksum = checksum;
            meta.segmentation = segmentation;
            self.stats.rx_super_segments += u64::from(segmentation.is_some());
        }
        Ok(packet)
    }

    /// What the link must do with `packet` before it is written. `None`: it is being cut, or was
    /// dropped.
    fn prepare(&mut self, mut packet: Packet, pool: &Pool) -> Option<Packet> {
        if let Some(segmentation) = packet.meta().segmentation {
            let limit = match segmentation.kind {
                millstream_packet::SegmentationKind::Udp => self.capabilities.uso_bytes,
                _ => self.capabilities.tso_bytes,
            };
            if limit.is_some_and(|limit| packet.len() <= limit as usize + limits::LINK_HEADER_BYTES)
            {
                return Some(packet);
            }
            let checksum = if self.capabilities.tx_checksum.v4 {
                SegmentChecksum::Partial
            } else {
                SegmentChecksum::Complete
            };
            match Segmenter::new(packet, self.capabilities.medium, checksum) {
                Ok(cutting) => {
                    self.cutting = Some(cutting);
                    self.stats.tx_software_segmented += 1;
                }
                Err(_) => self.stats.count_drop(DropCause::BadOffload),
            }
            return None;
        }
        if packet.len() > self.longest {
            self.stats.count_drop(DropCause::TooLong);
            return None;
        }
        if matches!(packet.meta().checksum, Checksum::Partial { .. })
            && !self.capabilities.tx_checksum.v4
        {
            match complete_checksum(&mut packet, pool) {
                Ok(_) => self.stats.tx_software_checksums += 1,
                Err(error) => {
                    self.stats.count_drop(error.cause());
                    return None;
                }
            }
        }
        Some(packet)
    }

    /// Writes one packet; `Err` gives it back when the device takes nothing now.
    fn write(&mut self, packet: Packet, pool: &Pool) -> Result<(), Packet> {
        let header = if self.vnet { vnet::encode(packet.meta()) } else { [0; vnet::HEADER_BYTES] };
        let header = if self.vnet { &header[..] } else { &[] };
        let mut packet = packet;
        loop {
            let Some(slices) = self.gather.of(header, &packet) else {
                let Some(copy) = compact(&packet, pool) else {
                    self.stats.count_drop(DropCause::PoolExhausted);
                    return Ok(());
                };
                packet = copy;
                continue;
            };
            // SAFETY: every entry is readable memory of `packet` or `header`; both outlive the
            // call.
            let n = unsafe {
                libc::writev(self.fd.as_raw_fd(), slices.as_ptr(), slices.len() as libc::c_int)
            };
            self.stats.tx_syscalls += 1;
            if n >= 0 {
                self.stats.tx_packets += 1;
                self.stats.tx_bytes += packet.len() as u64;
                self.stats.tx_super_segments += u64::from(packet.meta().segmentation.is_some());
                return Ok(());
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Err(packet),
                // The device is down, or found the packet wrong: others may pass.
                _ => {
                    self.stats.count_drop(DropCause::Refused);
                    return Ok(());
                }
            }
        }
    }

    /// Writes what a super-segment in cutting has left; false when the device takes nothing now.
    fn write_segments(&mut self, pool: &Pool) -> bool {
        loop {
            let segment = match self.segment.take() {
                Some(segment) => segment,
                None => match self.cutting.as_mut().map(|cutting| cutting.next(pool)) {
                    None => return true,
                    Some(Ok(Some(segment))) => segment,
                    Some(Ok(None)) => {
                        self.cutting = None;
                        return true;
                    }
                    Some(Err(error)) => {
                        self.stats.count_drop(error.cause());
                        self.cutting = None;
                        return true;
                    }
                },
            };
            if let Err(segment) = self.write(segment, pool) {
                self.segment = Some(segment);
                return false;
            }
        }
    }
}

/// Refuses what no device can be.
fn check(config: &TapConfig) -> Result<(), LinkError> {
    if !(limits::MTU_MIN_BYTES..=limits::MTU_MAX_BYTES).contains(&config.mtu) {
        return Err(LinkError::Invalid(format!("MTU {} is out of range", config.mtu)));
    }
    Ok(())
}

/// A link address beside that of the kernel's side of `name`: the same but for its last bit.
fn beside(name: &str) -> Result<MacAddr, LinkError> {
    let MacAddr(mut bytes) = netdev::mac(name)?;
    bytes[5] ^= 1;
    Ok(MacAddr(bytes))
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
        let limit = batch.room().min(self.expected.limit());
        let mut count = 0;
        while count < limit {
            let Some(mut packet) = self.read(pool)? else { break };
            packet.meta_mut().arrival = now;
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += packet.len() as u64;
            count += 1;
            // There is room.
            let _ = batch.push(packet);
        }
        self.expected.learn(count, count < limit);
        Ok(count)
    }

    fn transmit(
        &mut self,
        _now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let mut count = 0;
        self.blocked = false;
        loop {
            if !self.write_segments(pool) {
                self.blocked = true;
                break;
            }
            let Some(packet) = batch.pop() else { break };
            count += 1;
            let Some(packet) = self.prepare(packet, pool) else { continue };
            if let Err(packet) = self.write(packet, pool) {
                count -= 1;
                // The place it came from is free.
                let _ = batch.push_front(packet);
                self.blocked = true;
                break;
            }
        }
        self.stats.tx_full += u64::from(self.blocked);
        Ok(count)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }

    fn wants_write(&self) -> bool {
        self.blocked
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.name
    }
}
