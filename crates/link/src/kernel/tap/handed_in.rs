//! Devices that somebody else has opened: a privileged helper, a service manager or the owner of a
//! network namespace hands in the descriptor.

use std::os::fd::{AsRawFd, OwnedFd};

use millstream_wire::ethernet::MacAddr;

use super::device::Device;
use super::send::Takes;
use super::{Tap, TapConfig, check};
use crate::kernel::big_tcp::Longest;
use crate::netdev::live::Interface;
use crate::netdev::{Identity, stable_mac};
use crate::{LinkError, Medium};

impl Tap {
    /// Takes the descriptor of a TUN or TAP device, or of one of its queues, which its maker has
    /// set up: nothing of that is changed, and no privilege is needed.
    ///
    /// It goes by `mtu`, `mac`, `offload` and `io_uring` of `config`, and by `queue_packets` as the
    /// number of packets that the device is said to hold. Where this process may enter the device's
    /// namespace, its MTU is the device's, now and when that is set anew. With virtio-net headers
    /// (`IFF_VNET_HDR`) and `offload` the kernel is asked for super-segments and partial checksums,
    /// and is believed: the device is not probed.
    ///
    /// # Errors
    /// When it is no such device, or one with packet information before each packet (without
    /// `IFF_NO_PI`); for an MTU that cannot be.
    pub fn from_fd(fd: OwnedFd, config: &TapConfig) -> Result<Self, LinkError> {
        let (queue, mut device, kind) = Device::handed_in(fd, config.offload)?;
        let mut config = TapConfig { kind, ..config.clone() };
        let seen = Interface::find(device.socket.as_raw_fd(), device.index);
        if let Ok(mtu) = seen.and_then(|mut interface| interface.mtu()) {
            config.mtu = mtu;
        }
        check(&config)?;
        let mac = match (kind.medium(), config.mac) {
            (Medium::Ip, _) => MacAddr::ZERO,
            (Medium::Ethernet, Some(mac)) => mac,
            (Medium::Ethernet, None) => {
                stable_mac(Identity { kind: "tap", name: &device.name, below: None, number: 0 })
            }
        };
        let whole = device.offload;
        let takes = Takes {
            checksums: whole,
            tcp: whole,
            udp: device.udp_offload,
            longest: Longest::default(),
        };
        let mtu = config.mtu;
        Ok(Self::of(queue, &mut device, &config, takes, mtu, mac))
    }
}
