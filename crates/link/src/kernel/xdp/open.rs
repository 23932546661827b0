//! Opening: sockets on the queues of an interface, each bound the best way that can be had.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use millstream_packet::{BATCH_LIMIT, Extent, FRAME_SIZE_BYTES, Instant, Pool};

use super::bpf::Attachment;
use super::frames::{self, KernelFrames};
use super::rest::Rest;
use super::socket::{Memory, Socket};
use super::watch::Watch;
use super::{Xdp, XdpConfig};
use crate::kernel::follow::Follow;
use crate::kernel::raw::presence::Presence;
use crate::{Capabilities, LinkError, LinkStats, Medium, Share, Shared, limits, netdev};

/// How the kernel polls a device inside our calls (SO_PREFER_BUSY_POLL, SO_BUSY_POLL and
/// SO_BUSY_POLL_BUDGET of socket(7)): a call that finds nothing received polls once. Interrupts
/// stay off meanwhile only where the interface defers them (`napi_defer_hard_irqs`,
/// `gro_flush_timeout`).
///
/// For an engine that looks for work all the time on a core of its own: a call for each vain look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// The longest time for which a blocking call polls.
    pub time: Duration,
    /// Packets taken by one poll at most; beyond 64 for the privileged.
    pub budget: u32,
}

impl Default for BusyPoll {
    /// 20 µs, a batch of packets.
    fn default() -> Self {
        Self { time: Duration::from_micros(20), budget: BATCH_LIMIT as u32 }
    }
}

/// The extent that all frames are in.
#[derive(Clone, Copy)]
struct OneExtent(Extent);

// SAFETY: only where the memory is, and how much; nobody reads or writes through it here.
unsafe impl Send for OneExtent {}
// SAFETY: as above.
unsafe impl Sync for OneExtent {}

impl Xdp {
    /// Opens a socket on one queue of the interface, with the frames of `pool` as its memory.
    ///
    /// # Errors
    /// When there is no such interface or queue, the rings are too small for its MTU, the pool has
    /// more than one extent or may grow, another program is attached, or for want of privilege
    /// ([`LinkError::is_not_permitted`]).
    pub fn open(config: &XdpConfig, pool: &Pool) -> Result<Self, LinkError> {
        Self::open_queues(config, pool, 1)?
            .pop()
            .ok_or_else(|| LinkError::Invalid("an AF_XDP link needs a queue".into()))
    }

    /// Opens sockets on `queues` queues from the configured one on, for as many engines. They share
    /// memory and program; the interface spreads the flows.
    ///
    /// # Errors
    /// As [`open`](Self::open); also for no queues.
    pub fn open_queues(
        config: &XdpConfig,
        pool: &Pool,
        queues: u32,
    ) -> Result<Vec<Self>, LinkError> {
        config.steer.check()?;
        check_numbers(config, queues)?;
        let extent = OneExtent(frames::whole(pool)?);
        netdev::run_in(config.netns.as_deref(), || Self::open_here(config, pool, extent, queues))?
    }

    /// As [`open_queues`](Self::open_queues), each queue with its share of the flows: what the
    /// interface puts into another engine's queue is handed over.
    ///
    /// # Errors
    /// As `open_queues`; also for no engine or more than [`limits::SHARES`].
    pub fn open_shared(
        config: &XdpConfig,
        pool: &Pool,
        engines: usize,
    ) -> Result<Vec<Shared<Self>>, LinkError> {
        Share::new(0, engines)?;
        // No more engines than a u32 counts.
        Shared::over(Self::open_queues(config, pool, engines as u32)?)
    }

    fn open_here(
        config: &XdpConfig,
        pool: &Pool,
        extent: OneExtent,
        queues: u32,
    ) -> Result<Vec<Self>, LinkError> {
        let name = &config.interface;
        let index = netdev::index(name)?;
        netdev::require_ethernet(name)?;
        let mtu = netdev::mtu(name)?;
        check_ring(config, mtu)?;
        let its_mac = netdev::mac(name)?;
        let followed = config.mac.is_none().then_some(its_mac);
        let has_fragments = has_fragments(mtu);
        let most = largest_mtu(config, has_fragments);
        let places = config.queue + queues;
        let attachment =
            Attachment::new(index, places, &config.steer, has_fragments).map(Arc::new)?;
        let ring = ring_entries(config) as usize;
        let capabilities = Capabilities {
            rx_ring: ring,
            tx_ring: ring,
            ..Capabilities::plain(Medium::Ethernet, mtu.min(most), config.mac.unwrap_or(its_mac))
        };
        let share = pool.stats().frames / 4 / queues.max(1) as usize;
        let mut links: Vec<Self> = Vec::new();
        for queue in config.queue..places {
            let first = links.first().map(|link| link.socket.fd.as_raw_fd());
            let bound = bind(config, index, queue, extent, first, has_fragments)?;
            let notes = notes(name, &attachment, config.queue..places, queue);
            let watch = Watch::open(name, config.mac.is_some(), bound.socket.fd.as_raw_fd())?;
            let mut link = Self {
                zero_copy: bound.socket.is_zero_copy(),
                socket: bound.socket,
                frames: KernelFrames::new(extent.0),
                attachment: Some(Arc::clone(&attachment)),
                watch,
                presence: Presence::default(),
                follow: Follow::new(index, mtu, most, followed),
                pool: pool.clone(),
                name: name.clone(),
                capabilities: capabilities.clone(),
                notes: notes
                    .into_iter()
                    .chain(bound.notes)
                    .chain(too_long(name, mtu, most))
                    .collect(),
                has_fragments,
                polls: bound.polls,
                filled: 0,
                fill_target: share.clamp(1, ring),
                partial: None,
                cutting: None,
                blocked: false,
                rest: Rest::default(),
                wants_write: false,
                asked: Instant::ZERO,
                stats: LinkStats::default(),
            };
            link.refill();
            // Only now: what comes before there are frames would be dropped.
            attachment.insert(queue, link.socket.fd.as_raw_fd())?;
            links.push(link);
        }
        Ok(links)
    }
}

/// Returns what is said of an interface whose MTU is more than is sent.
fn too_long(name: &str, mtu: usize, most: usize) -> Option<String> {
    (mtu > most).then(|| {
        let pieces = limits::XDP_PIECES;
        format!(
            "{name}: sent by an MTU of {most}: the kernel takes {pieces} pieces of a packet at most"
        )
    })
}

/// Returns what is to be said about an interface of which the `opened` queues are used, some of it
/// with the first alone.
fn notes(name: &str, attachment: &Attachment, opened: Range<u32>, queue: u32) -> Vec<String> {
    let mut notes = Vec::new();
    if !attachment.is_native {
        notes.push(format!("{name}: the driver runs no XDP program, the kernel does"));
    }
    if queue != opened.start {
        return notes;
    }
    notes.extend(netdev::down_note(name));
    let Range { start, end } = opened;
    if let Some(count) = netdev::receive_queues(name)
        && (start > 0 || end < count)
    {
        notes.push(format!(
            "{name}: of its {count} receive queues {start} to {} are used: what comes by others is the kernel's \
             (ethtool -L {name}, or as many engines)",
            end - 1
        ));
    }
    if netdev::is_veth(name) {
        notes.push(format!(
            "{name}: an end of a virtual pair: what the other end leaves unsummed is dropped as damaged \
             (there: ethtool -K NAME tx off)"
        ));
    }
    notes
}

/// A socket that is bound.
struct Bound {
    socket: Socket,
    /// The kernel polls the device inside our calls.
    polls: bool,
    /// Sentences that are to be said about it.
    notes: Vec<String>,
}

/// A socket bound to `queue`, zero-copy if that can be had.
fn bind(
    config: &XdpConfig,
    index: u32,
    queue: u32,
    extent: OneExtent,
    first: Option<RawFd>,
    has_fragments: bool,
) -> Result<Bound, LinkError> {
    let XdpConfig { interface, copy, busy_poll, .. } = config;
    let size = ring_entries(config);
    let memory = first.map_or(Memory::Own(extent.0), |_| Memory::Shared);
    let common = libc::XDP_USE_NEED_WAKEUP | if has_fragments { libc::XDP_USE_SG } else { 0 };
    let attempts: &[u16] = match (first, copy) {
        (Some(_), _) => &[libc::XDP_SHARED_UMEM],
        (None, true) => &[libc::XDP_COPY],
        (None, false) => &[libc::XDP_ZEROCOPY, libc::XDP_COPY],
    };
    let mut notes = Vec::new();
    let mut last = None;
    // One for all attempts: each that has the memory counts as locked, for a while after it is
    // closed, too.
    let socket = Socket::open(memory, size)?;
    let polling = busy_poll.map(|BusyPoll { time, budget }| socket.set_busy_poll(time, budget));
    for mode in attempts {
        // The mode of shared memory is that of the first socket.
        let flags = if first.is_some() { *mode } else { mode | common };
        match socket.bind(index, queue, flags, first.unwrap_or(0)) {
            Ok(()) => {
                let polls = matches!(polling, Some(Ok(())));
                if let Some(Err(error)) = polling {
                    notes.push(format!("{interface}: no busy polling: {error}"));
                }
                return Ok(Bound { socket, polls, notes });
            }
            Err(error) => {
                if *mode == libc::XDP_ZEROCOPY {
                    notes.push(format!("{interface}: no zero-copy, frames are copied: {error}"));
                }
                last = Some(error);
            }
        }
    }
    let hint = last.as_ref().map_or("", |error| why(error, first.is_some(), has_fragments));
    let what = format!("bind an AF_XDP socket to queue {queue} of {interface}{hint}");
    Err(last.map_or_else(|| LinkError::last(&*what), |error| LinkError::from_io(&*what, error)))
}

/// Entries of each ring.
fn ring_entries(config: &XdpConfig) -> u32 {
    config.ring.unwrap_or(limits::XDP_RING).next_power_of_two()
}

/// Returns whether the longest packet at this MTU is received in several frames.
fn has_fragments(mtu: usize) -> bool {
    mtu + limits::LINK_HEADER_BYTES > FRAME_SIZE_BYTES - limits::XDP_HEADROOM_BYTES
}

/// The largest MTU that a socket made with fragments, or without, can go by, and its rings hold.
fn largest_mtu(config: &XdpConfig, has_fragments: bool) -> usize {
    let pieces = (ring_entries(config) / 2).min(limits::XDP_PIECES);
    let bytes = match has_fragments {
        true => pieces as usize * FRAME_SIZE_BYTES,
        false => FRAME_SIZE_BYTES - limits::XDP_HEADROOM_BYTES,
    };
    bytes - limits::LINK_HEADER_BYTES
}

/// Ring entries that the longest packet at this MTU takes.
pub(super) fn pieces(mtu: usize) -> u32 {
    (mtu + limits::LINK_HEADER_BYTES).div_ceil(FRAME_SIZE_BYTES) as u32
}

/// Refuses what no interface has and no kernel maps, before anything is opened.
fn check_numbers(config: &XdpConfig, queues: u32) -> Result<(), LinkError> {
    let XdpConfig { queue, ring, .. } = config;
    if queues == 0 {
        return Err(LinkError::Invalid("an AF_XDP link needs a queue".into()));
    }
    if queue.checked_add(queues).is_none() {
        return Err(LinkError::Invalid(format!(
            "no interface has {queues} queues from {queue} on"
        )));
    }
    match ring {
        Some(ring) if *ring > limits::XDP_RING_LIMIT => {
            let most = limits::XDP_RING_LIMIT;
            Err(LinkError::Invalid(format!("{ring} ring entries are too many: {most} at most")))
        }
        _ => Ok(()),
    }
}

/// Refuses rings that do not hold two of the longest packets: one would never find room, or the
/// kernel (which says that there is room from half a ring on) would wake us in vain.
fn check_ring(config: &XdpConfig, mtu: usize) -> Result<(), LinkError> {
    let (entries, pieces) = (ring_entries(config), pieces(mtu));
    if pieces > 1 && entries < 2 * pieces {
        let what = format!("{entries} ring entries are too few at MTU {mtu}: {}", 2 * pieces);
        return Err(LinkError::Invalid(format!("{what} at least")));
    }
    Ok(())
}

/// Returns what most likely stands behind a refusal: the kernel itself says no more than a number.
pub(super) fn why(error: &io::Error, is_shared: bool, has_fragments: bool) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => " (another socket has it)",
        Some(libc::EINVAL) if is_shared => {
            " (is there such a queue? several of them need the shared memory of Linux 5.10)"
        }
        Some(libc::EINVAL | libc::EOPNOTSUPP) if has_fragments => {
            " (is there such a queue? an MTU beyond one frame needs the multi-buffer of Linux 6.6)"
        }
        Some(libc::EINVAL) => " (is there such a queue?)",
        _ => "",
    }
}
