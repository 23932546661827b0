//! The trait every link and every wrapper around one implements.

use std::os::fd::RawFd;

use millstream_packet::{Checksum, Instant, Packet, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

use crate::{LinkError, LinkStats, Medium, Share, forward_link};

/// Which transport checksums (TCP and UDP) the link completes on transmit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitChecksum {
    /// Over IPv4.
    pub v4: bool,
    /// Over IPv6.
    pub v6: bool,
}

/// The kind of a link, and what it can take off the stack's hands. Fixed while the link is open,
/// but for the MTU and the address, which [`Link::refresh`] has follow the interface, and what
/// turned out to be too much for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The header that its packets start with.
    pub medium: Medium,
    /// Largest IP packet on the wire, in bytes.
    pub mtu: usize,
    /// This side's link address; zero on [`Medium::Ip`].
    pub mac: MacAddr,
    /// There may be other stations than one peer that knows this one: an engine announces its
    /// addresses on the link, and looks whether others have them. Any network of Ethernet; not a
    /// link in memory or a capture that is replayed.
    pub multi_access: bool,
    /// Received packets may be [`Checksum::Verified`](millstream_packet::Checksum) or `Partial`:
    /// not to be summed again.
    pub rx_checksum: bool,
    /// Which `Checksum::Partial` packets the link completes at no cost to speak of: its device does
    /// it, or the link itself while it copies.
    pub tx_checksum: TransmitChecksum,
    /// Largest TCP super-segment worth handing over, counted as an IP packet in bytes: the device
    /// takes it whole, or the link cuts it while it copies ([`LinkStats`] tells which). `None`: cut
    /// in software, with a frame for each segment. Beyond 65,535 a packet whose length its header
    /// cannot tell has 0 there (as Linux' “BIG TCP”), over IPv6 without a hop-by-hop option that
    /// tells it.
    pub tso_bytes: Option<u32>,
    /// The same over IPv6, where that is another length.
    pub tso_v6_bytes: Option<u32>,
    /// The same for UDP (segments of equal size, each a datagram).
    pub uso_bytes: Option<u32>,
    /// Received bursts may come merged into one packet, with `meta.segmentation` set.
    pub rx_merge: bool,
    /// Packets the receive side can hold before it drops; 0 when unknown.
    pub rx_ring: usize,
    /// Packets the transmit side can hold before it is full; 0 when unknown.
    pub tx_ring: usize,
}

impl Capabilities {
    /// The capabilities of a plain link that can do nothing but carry frames.
    pub fn plain(medium: Medium, mtu: usize, mac: MacAddr) -> Self {
        Self {
            medium,
            mtu,
            mac,
            multi_access: matches!(medium, Medium::Ethernet),
            rx_checksum: false,
            tx_checksum: TransmitChecksum::default(),
            tso_bytes: None,
            tso_v6_bytes: None,
            uso_bytes: None,
            rx_merge: false,
            rx_ring: 0,
            tx_ring: 0,
        }
    }
}

/// A packet that [`Link::show`] shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// All of it, from the link header on.
    pub bytes: &'a [u8],
    /// As in the meta data of one that is received.
    pub checksum: Checksum,
}

/// A packet that [`Link::receive_into`] read.
#[derive(Debug)]
pub struct Placed {
    /// Its first bytes, as many as were asked for, with the meta data of all of it. A packet that
    /// is no longer than that is here whole, and so is one that no frame was free to part.
    pub head: Packet,
    /// Bytes that follow, at the start of the caller's memory.
    pub bytes: usize,
    /// The part that did not fit there.
    pub rest: Option<Packet>,
}

impl Placed {
    /// A packet that was received otherwise, laid out for [`Link::receive_into`].
    pub fn lay_out(mut packet: Packet, pool: &Pool, head_len: usize, memory: &mut [u8]) -> Self {
        let end = head_len.saturating_add(memory.len());
        let mut rest = None;
        if packet.len() > end {
            match packet.split_off(end, pool) {
                Ok(behind) => rest = Some(behind),
                Err(_) => return Self { head: packet, bytes: 0, rest },
            }
        }
        let bytes = packet.copy_to(head_len, memory);
        packet.truncate(head_len);
        Self { head: packet, bytes, rest }
    }

    /// Bytes of all of it.
    pub fn total_len(&self) -> usize {
        self.head.len() + self.bytes + self.rest.as_ref().map_or(0, Packet::len)
    }

    /// The packet as [`Link::receive`] would have given it; nothing of it stays in `memory`.
    /// `None`: there are no frames for that.
    pub fn into_packet(self, pool: &Pool, memory: &mut [u8]) -> Option<Packet> {
        let Self { mut head, bytes, rest } = self;
        if bytes > 0 {
            let copy = Packet::from_slice(pool, 0, &memory[..bytes]);
            memory[..bytes].fill(0);
            head.concat(copy.ok()?);
        }
        if let Some(rest) = rest {
            head.concat(rest);
        }
        Some(head)
    }
}

/// A place where packets enter and leave. Never blocks.
///
/// One thread uses a link at a time. A link takes any packet, whatever it can offload: what it
/// cannot is completed or cut in software. Packets that cannot be delivered for good are dropped
/// and counted by cause.
pub trait Link: Send {
    /// Returns what this link is and can do.
    fn capabilities(&self) -> &Capabilities;

    /// Moves received packets into `batch`, at most its free room, and returns how many.
    /// There may be more; 0 means that there is nothing now (or no frame for it).
    ///
    /// A packet starts at the link header ([`Medium`]); its checksum and segmentation state are in
    /// its meta data, `arrival` is `now`. On receive `Checksum::Partial` means: good data whose
    /// transport checksum field is not summed yet. Frames come from `pool`; without any, packets
    /// are dropped (counted) or left where they are.
    ///
    /// # Errors
    /// When the link is broken for good, and nothing was moved: after packets the error is left to
    /// the next call.
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError>;

    /// Returns whether [`receive_into`](Self::receive_into) can be used.
    fn places(&self) -> bool {
        false
    }

    /// As [`receive`](Self::receive), for one packet, which must be the next one: its first
    /// `head_len` bytes (128 at most) go into a frame, what follows into `memory` (2 KiB at least)
    /// as far as that reaches, the rest into frames. For who expects that packet to have headers of
    /// that length, and wants its payload there. Of a packet that is refused nothing stays in
    /// `memory`.
    ///
    /// # Errors
    /// When the link is broken for good.
    fn receive_into(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        _head_len: usize,
        _memory: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        Ok(None)
    }

    /// Shows packets that wait to `take`, in order and where they lie in the device's memory, until
    /// it refuses one or `limit` were taken; how many that was. A packet is gone when `take` has
    /// returned true: its memory is the device's again, and no frame was needed. The one refused,
    /// and one that cannot be shown (in several pieces, a super-segment, one to be dropped), is the
    /// next that [`receive`](Self::receive) gives, and so is what links that have no such memory
    /// hold.
    ///
    /// For who copies what he needs out of a packet at once. Counted as received.
    fn show(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        _limit: usize,
        _take: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> usize {
        0
    }

    /// Sends from the front of `batch` in order and returns how many packets left it. What the link
    /// cannot take now stays in `batch`; dropped packets count as taken. Of a packet that left it
    /// some may wait in the link for room (of one that is cut): the next [`receive`](Self::receive)
    /// goes on with that, too.
    ///
    /// # Errors
    /// When the link is broken for good.
    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError>;

    /// Returns whether [`transmit_from`](Self::transmit_from) can be used: the link has done with a
    /// packet's memory when a call that takes the packet returns.
    fn borrows(&self) -> bool {
        false
    }

    /// As [`transmit`](Self::transmit) of one packet: `head`, with the meta data of the whole, and
    /// `payload` behind it, which is the caller's. Gives `head` back when the link can take nothing
    /// now.
    ///
    /// # Errors
    /// When the link is broken for good.
    fn transmit_from(
        &mut self,
        _now: Instant,
        _pool: &Pool,
        head: Packet,
        _payload: &[u8],
    ) -> Result<Option<Packet>, LinkError> {
        Ok(Some(head))
    }

    /// A descriptor to sleep on, after [`prepare_sleep`](Self::prepare_sleep): readable when
    /// [`receive`](Self::receive) has something, or when there is room again for what
    /// [`transmit`](Self::transmit) had left behind (see [`wants_write`](Self::wants_write)).
    /// `None`: only [`next_deadline`](Self::next_deadline) tells. It may be another one before the
    /// next sleep.
    fn wait_fd(&self) -> Option<RawFd>;

    /// True after a transmit that left packets behind for want of room, on links whose
    /// [`wait_fd`](Self::wait_fd) must then be polled for writing, too. Links that tell of room by
    /// readability keep it false.
    fn wants_write(&self) -> bool {
        false
    }

    /// When the link itself has something to do next: call `receive` and `transmit` (an empty batch
    /// will do) then.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Announces that the caller is about to sleep on [`wait_fd`](Self::wait_fd). True: nothing is
    /// waiting, and whatever arrives from now on makes the descriptor readable. False: something
    /// arrived meanwhile; do not sleep. The next `receive` ends the announcement.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// Which part of the device's flows comes here, when other engines have the rest.
    fn share(&self) -> Share {
        Share::ALL
    }

    /// Returns true where its interface is down or has no carrier, as far as the link knows: of the
    /// latter it hears by [`refresh`](Self::refresh). It may come up again, and the link then goes
    /// on.
    fn is_down(&self) -> bool {
        false
    }

    /// Looks whether the interface's MTU, link address or carrier has changed, and goes by it from
    /// now on; true when [`capabilities`](Self::capabilities) are others then. Some system calls:
    /// for now and then.
    fn refresh(&mut self) -> bool {
        false
    }

    /// Returns the wishes that were not granted, and what the interface has become since, one
    /// sentence each.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Returns what only links of its kind are and count, each with its name; what is so or not is
    /// 1 or 0. For showing: it may ask the kernel.
    fn details(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Counters so far.
    fn stats(&self) -> LinkStats;

    /// The link's name for people: the interface name, or what it was called when made.
    fn name(&self) -> &str;
}

impl<L: Link + ?Sized> Link for Box<L> {
    forward_link!(
        self => (**self);
        capabilities, receive, places, receive_into, show, transmit,
        borrows, transmit_from, wait_fd, wants_write, next_deadline,
        prepare_sleep, share, is_down, refresh, notes, details, stats, name
    );
}
