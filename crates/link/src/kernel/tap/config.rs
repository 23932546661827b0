//! How to open a device.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use millstream_wire::ethernet::MacAddr;

use crate::{Medium, limits, sys};

/// Which of the two device types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TapKind {
    /// Ethernet frames.
    #[default]
    Tap,
    /// IP packets.
    Tun,
}

impl TapKind {
    pub(super) fn medium(self) -> Medium {
        match self {
            Self::Tap => Medium::Ethernet,
            Self::Tun => Medium::Ip,
        }
    }
}

/// How the kernel receives what is written to a [`Tap`](super::Tap).
///
/// Without it each packet is carried through the kernel's whole stack inside the call that writes
/// it, one by one. With it the kernel first merges segments (GRO), as behind a network card. See
/// docs/notes/tap-plain.md for what either costs: a stream without segmentation offload gains, a
/// request that waits for its answer loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Napi {
    /// A thread of the kernel's merges and delivers, on another core if there is one; otherwise it
    /// happens inside our call.
    pub threaded: bool,
    /// The time for which segments may wait for others to merge with, beyond those that are there.
    /// One with PSH does not wait. Inside our call, zero merges nothing.
    pub gro_flush: Duration,
}

impl Default for Napi {
    /// A thread that holds nothing back for longer than 500 µs.
    fn default() -> Self {
        Self { threaded: true, gro_flush: Duration::from_micros(500) }
    }
}

/// Says whether the kernel is asked to poll a [`Tap`](super::Tap), by [`Napi`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NapiMode {
    /// When the device takes no super-segments from us and the machine has two cores: as
    /// [`Napi::default`] while data flow in bulk, either way, and inside our calls, merging
    /// nothing, while packets come and go one by one. A device with several queues stays at the
    /// former. Otherwise not at all. Polled as in bulk, a device without offloads has each of the
    /// kernel's packets in one piece of memory (docs/tap.md).
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always, like this.
    On(Napi),
}

impl NapiMode {
    /// Returns what it means for a device from which we expect offloads, or not.
    pub(super) fn choose(self, offload: bool) -> Option<Napi> {
        match self {
            Self::On(napi) => Some(napi),
            // Whatever core we are bound to, the kernel's thread is not.
            Self::Auto if !offload && sys::online_cpus() > 1 => Some(Napi::default()),
            Self::Auto | Self::Off => None,
        }
    }
}

/// How to open a [`Tap`](super::Tap).
///
/// ```no_run
/// use millstream_link::{Tap, TapConfig, TapKind};
///
/// // What `ip tuntap add mode tun` makes, with an address, for as long as it is open.
/// let config = TapConfig {
///     name: Some("tun%d".into()),
///     kind: TapKind::Tun,
///     host_addresses: vec![([10, 70, 0, 1].into(), 24)],
///     ..TapConfig::default()
/// };
/// let tap = Tap::open(&config)?;
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
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
    /// Bytes of the longest TCP super-segment that is handed to the kernel whole, counted as an IP
    /// packet: [`limits::SUPER_SEGMENT_BYTES`] to [`limits::BIG_SUPER_SEGMENT_BYTES`] (“BIG TCP”,
    /// Linux 6.6). `None`: as the device's `gro_ipv4_max_size` says, 64 KiB unless somebody, or an
    /// earlier user, has set it; that is set to more than 64 KiB here, with the `gro_max_size` of
    /// IPv6. Bulk for the kernel's own sockets gains from 256 KiB (docs/tap.md); what the kernel
    /// sends on through a device of a smaller `gso_max_size` it cuts in software. Where it is not
    /// to be had [`Link::notes`](crate::Link::notes) says so.
    pub super_segment_bytes: Option<u32>,
    /// Check at opening that super-segments pass whole, by sending some through the device.
    pub self_check: bool,
    /// The namespace the device lives in; `None`: the calling thread's.
    pub netns: Option<PathBuf>,
    /// Largest IP packet, in bytes: 68 to 65,521 (65,535 of a TUN device); for IPv6 1,280 at least.
    pub mtu: usize,
    /// The stack's link address; `None`: one made up from the machine, the host's name, the network
    /// namespace and the device's name, which stays when the program starts again
    /// (docs/link-changes.md).
    pub mac: Option<MacAddr>,
    /// Addresses of the kernel's side, with their prefix lengths.
    pub host_addresses: Vec<(IpAddr, u8)>,
    /// Packets the kernel queues towards us; `None`: the kernel's default, 500 or 1,000, which many
    /// connections overrun at once.
    pub queue_packets: Option<usize>,
    /// How the kernel receives. Where polling is not to be had [`Link::notes`](crate::Link::notes)
    /// says so, and packets are received inside our calls.
    pub napi: NapiMode,
    /// While bulk is received and the core that receives it is behind, have the kernel receive what
    /// we send on other CPUs (receive packet steering, docs/tap.md): for a device with one queue
    /// and offloads on a machine of several CPUs, of which nobody has set that before. Where it is
    /// not to be had [`Link::notes`](crate::Link::notes) says so.
    /// [`LinkStats::tx_steered`](crate::LinkStats::tx_steered) and `tx_steerings` tell what came of
    /// it.
    pub rps: bool,
    /// Take packets back that processes on other CPUs have read of what we sent, before the kernel
    /// interrupts the engine's CPU for it (docs/tap.md): on a machine of several CPUs with Linux
    /// 5.19 or newer. It takes a network namespace for each queue, of which nobody sees anything.
    /// Where that is not to be had [`Link::notes`](crate::Link::notes) says so;
    /// [`LinkStats::tx_returns`](crate::LinkStats::tx_returns) counts.
    pub take_back: bool,
    /// Write frames, and read those of a device without virtio-net headers, in batches through
    /// io_uring instead of by a call each, the latter into 2 MiB of registered memory first;
    /// `None`: where the device takes no super-segments from us. Where the kernel refuses
    /// [`Link::notes`](crate::Link::notes) says why, and each is a call. docs/notes/tap-plain.md
    /// has what either costs. When such a link is dropped, a blocking call of the thread that used
    /// it may end early, as by a signal (`EINTR`).
    pub io_uring: Option<bool>,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self {
            name: None,
            kind: TapKind::Tap,
            vnet_hdr: true,
            offload: true,
            super_segment_bytes: None,
            self_check: true,
            netns: None,
            mtu: 1500,
            mac: None,
            host_addresses: Vec::new(),
            queue_packets: Some(limits::TAP_QUEUE_PACKETS),
            napi: NapiMode::Auto,
            rps: true,
            take_back: true,
            io_uring: None,
        }
    }
}
