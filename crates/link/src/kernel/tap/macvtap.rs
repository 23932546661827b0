//! Devices over another interface: a macvtap device has the packets of that interface, and of its
//! neighbours' super-segments all that is in them, where a TAP device's other end, the kernel,
//! keeps to 64 KiB.
//!
//! Other than a TAP device it does not end with the descriptor that somebody has of it. So it is in
//! a network namespace that nobody else knows, and ends with that, whatever happens to the process.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_wire::ethernet::MacAddr;

use super::device::Device;
use super::send::Takes;
use super::{Tap, limits};
use crate::kernel::big_tcp::Longest;
use crate::netdev::{self, Identity, MacvtapMode, MaxSizes, Namespace, stable_mac};
use crate::{Capabilities, LinkError, Medium, Share, Shared, TransmitChecksum};

/// Its name, in a namespace where nothing else is.
const NAME: &str = "macvtap0";

/// How to open a device over another interface ([`Tap::open_over`]).
///
/// ```no_run
/// use millstream_link::{MacvtapConfig, Tap};
///
/// let over = MacvtapConfig { interface: "eth0".into(), ..MacvtapConfig::default() };
/// let link = Tap::open_over(&over)?;
/// # Ok::<(), millstream_link::LinkError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MacvtapConfig {
    /// The interface, which must be up and speak Ethernet.
    pub interface: String,
    /// The namespace it lives in; `None`: the calling thread's.
    pub netns: Option<PathBuf>,
    /// Its sharing with the kernel and other devices over that interface.
    pub mode: MacvtapMode,
    /// The stack's link address; `None`: one made up from the machine, the network namespace and
    /// the interface, which stays when the program starts again (docs/link-changes.md), or in
    /// [`MacvtapMode::Passthru`] the interface's, which one given here replaces as long as the
    /// device is there.
    pub mac: Option<MacAddr>,
    /// Leave checksums and segmentation to the other side, both ways.
    pub offload: bool,
    /// Packets the kernel queues towards us; `None`: [`limits::TAP_QUEUE_PACKETS`].
    pub queue_packets: Option<usize>,
}

impl Default for MacvtapConfig {
    fn default() -> Self {
        Self {
            interface: String::new(),
            netns: None,
            mode: MacvtapMode::default(),
            mac: None,
            offload: true,
            queue_packets: None,
        }
    }
}

/// Brings the device up, which has the first of the link addresses, if there are any. Other
/// programs may have devices over the same interface: the first address that nobody has is its own.
fn set_up(macs: &[MacAddr]) -> Result<(), LinkError> {
    let mut result = netdev::set_up_for_all_groups(NAME);
    for mac in macs.iter().skip(1) {
        match &result {
            Err(error) if netdev::is_taken(error) => netdev::set_mac(NAME, *mac)?,
            _ => break,
        }
        result = netdev::set_up_for_all_groups(NAME);
    }
    result
}

/// Where such a device is.
pub(super) struct Home(Namespace);

impl Drop for Home {
    /// The namespace's end takes it along, but some time after; the interface is to be free for
    /// another at once.
    fn drop(&mut self) {
        let _ = self.0.run(|| netdev::remove(NAME));
    }
}

impl Tap {
    /// Makes a macvtap device over an interface that exists, with the interface's MTU and offloads.
    ///
    /// Its packets come and go as those of a TAP device do, Ethernet with virtio-net headers. What
    /// the interface's neighbours send in super-segments beyond 64 KiB (“BIG TCP”) comes
    /// whole. Those that leave are as long as the interface's `gso_ipv4_max_size` allows, over IPv6
    /// its `gso_max_size` from Linux 7.0 on.
    ///
    /// # Errors
    /// When there is no such interface, or it is down, or cannot have such a device (part of a
    /// bridge, another one that has all of it); where the kernel has none, or for want of privilege
    /// ([`LinkError::is_not_permitted`]); before Linux 5.2.
    pub fn open_over(config: &MacvtapConfig) -> Result<Self, LinkError> {
        let mut queues = Self::open_over_queues(config, 1)?;
        Ok(queues.remove(0))
    }

    /// As [`open_over`](Self::open_over), with a queue for each engine and its share of the flows:
    /// the kernel spreads them by hash, and what is for another engine is handed over.
    ///
    /// # Errors
    /// As `open_over`; also for no engine or more than [`limits::SHARES`].
    pub fn open_over_shared(
        config: &MacvtapConfig,
        engines: usize,
    ) -> Result<Vec<Shared<Self>>, LinkError> {
        Share::new(0, engines)?;
        Shared::over(Self::open_over_queues(config, engines)?)
    }

    fn open_over_queues(config: &MacvtapConfig, count: usize) -> Result<Vec<Self>, LinkError> {
        let lower = &config.interface;
        // With its end, whatever fails from now on, the device ends.
        let home = Arc::new(Home(Namespace::create()?));
        let (sizes, macs) = netdev::run_in(config.netns.as_deref(), || {
            netdev::require_ethernet(lower)?;
            if !netdev::is_up(lower)? {
                let what = format!("{lower} is down: `ip link set {lower} up`");
                return Err(LinkError::Invalid(what));
            }
            let below = Some(netdev::mac(lower)?);
            let device = |number| Identity { kind: "macvtap", name: lower, below, number };
            let macs: Vec<_> = (0..limits::MACVTAP_MACS).map(|n| stable_mac(device(n))).collect();
            let is_own = config.mac.is_none() && config.mode != MacvtapMode::Passthru;
            let first = if is_own { macs.first().copied() } else { config.mac };
            netdev::add_macvtap(lower, NAME, &home.0, config.mode, first)?;
            let others = if is_own { macs } else { Vec::new() };
            Ok::<_, LinkError>((netdev::gso_max_sizes(lower)?, others))
        })??;
        let mut queues = home.0.run(|| {
            let packets = config.queue_packets.unwrap_or(limits::TAP_QUEUE_PACKETS);
            netdev::set_queue_len(NAME, packets)?;
            set_up(&macs)?;
            // It cuts what it is given before the interface sees it. A kernel that has no such
            // numbers needs none.
            let _ = netdev::set_gso_max_sizes(NAME, sizes);
            let queue = |_| Self::queue_over(config, sizes, packets);
            (0..count).map(queue).collect::<Result<Vec<_>, LinkError>>()
        })??;
        for queue in &mut queues {
            queue.home = Some(Arc::clone(&home));
        }
        Ok(queues)
    }

    /// A queue of the device, which is in this thread's namespace.
    fn queue_over(
        config: &MacvtapConfig,
        sizes: MaxSizes,
        packets: usize,
    ) -> Result<Self, LinkError> {
        let lower = &config.interface;
        let opened = netdev::open_macvtap(NAME)?;
        let (fd, mut device) = Device::adopt(opened, NAME, config.offload)?;
        let whole = device.offload;
        let longest = match whole {
            true => Longest::by_interface(lower, sizes, &mut device.notes),
            false => Longest::default(),
        };
        device.takes =
            Takes { checksums: whole, tcp: whole, udp: whole && device.udp_offload, longest };
        let mut capabilities = Capabilities {
            rx_checksum: whole,
            tx_checksum: TransmitChecksum { v4: whole, v6: whole },
            tso_bytes: whole.then_some(limits::SUPER_SEGMENT_BYTES),
            uso_bytes: whole.then_some(limits::SUPER_SEGMENT_BYTES),
            rx_merge: whole,
            rx_ring: packets,
            ..Capabilities::plain(Medium::Ethernet, netdev::mtu(NAME)?, netdev::mac(NAME)?)
        };
        longest.tell(&mut capabilities);
        let mut tap = Self::assemble(fd, &device, capabilities);
        tap.name = format!("{lower}/macvtap");
        if whole {
            tap.long.may_come();
        }
        Ok(tap)
    }

    /// Looks whether the interface below is there: a device over one that went takes everything and
    /// gives nothing, without a word.
    pub(super) fn look_below(&mut self) {
        let is_over = self.home.is_some();
        if is_over && let Err(error) = super::device::look(&self.fd) {
            self.gone.get_or_insert(error);
        }
    }
}
