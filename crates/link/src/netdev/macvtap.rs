//! Devices with a character device of their own over another interface (macvtap).

use std::io;
use std::os::fd::OwnedFd;

use millstream_wire::ethernet::MacAddr;

use super::netlink::{IFLA_NET_NS_FD, INFO_DATA, INFO_KIND, Request, put};
use super::sysfs::Sysfs;
use super::{Namespace, index, interface_message};
use crate::LinkError;
use crate::sys::detached;

const MACVLAN_MODE: u16 = 1;

/// What a macvtap device shares with the others of its interface, and with the kernel (ip-link(8)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MacvtapMode {
    /// An address of its own; packets for others of the interface go there directly. The kernel keeps what is for the
    /// interface's own address.
    #[default]
    Bridge,
    /// An address of its own; nothing passes between those of the interface.
    Private,
    /// An address of its own; what is for others of the interface goes out, and a switch sends it back.
    Vepa,
    /// All of the interface, and its address: the kernel has nothing of it any more.
    Passthru,
}

impl MacvtapMode {
    /// As the kernel has it (`MACVLAN_MODE_*`).
    fn number(self) -> u32 {
        match self {
            Self::Private => 1,
            Self::Vepa => 2,
            Self::Bridge => 4,
            Self::Passthru => 8,
        }
    }
}

/// Makes the macvtap device `name` over the interface `lower` of this namespace, in `namespace`, down.
///
/// # Errors
/// When there is no such interface or it cannot have one (it has one already that takes all, it is part of a bridge);
/// where the kernel has none, or for want of privilege.
pub(crate) fn add_macvtap(
    lower: &str,
    name: &str,
    namespace: &Namespace,
    mode: MacvtapMode,
    mac: Option<MacAddr>,
) -> Result<(), LinkError> {
    let (mut data, mut info) = (Vec::new(), Vec::new());
    put(&mut data, MACVLAN_MODE, &mode.number().to_ne_bytes());
    put(&mut info, INFO_KIND, b"macvtap");
    put(&mut info, INFO_DATA, &data);
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut request = Request::new(libc::RTM_NEWLINK, flags, &interface_message(0, 0, 0))
        .attribute(libc::IFLA_IFNAME, name.as_bytes())
        .attribute(libc::IFLA_LINK, &index(lower)?.to_ne_bytes())
        .attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes())
        .attribute(libc::IFLA_LINKINFO, &info);
    if let Some(MacAddr(bytes)) = mac {
        request = request.attribute(libc::IFLA_ADDRESS, &bytes);
    }
    request.send().map_err(|error| {
        let why = match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => " (the kernel has none: `modprobe macvtap` loads it)",
            Some(libc::EBUSY) => " (something else has all of it: a bridge, a bond or another one)",
            Some(libc::EINVAL) => " (another one has all of it, or it cannot have one)",
            _ => "",
        };
        let what = format!("make a macvtap device over {lower}{why}");
        LinkError::needing("CAP_NET_ADMIN, as root has", what, error)
    })
}

/// Opens a queue of the macvtap device `name`, which must be of this thread's namespace.
///
/// Its character device is found by what the kernel tells of it (sysfs), and opened by a node of our own, since the one
/// in `/dev` has the index of the device in its name, which another namespace may have, too. Both are in file systems
/// that nobody else sees.
///
/// # Errors
/// For want of privilege; before Linux 5.2.
pub(crate) fn open_macvtap(name: &str) -> Result<OwnedFd, LinkError> {
    let index = index(name)?;
    let open = || {
        let numbers = Sysfs::mount()?.read(&format!("class/net/{name}/macvtap/tap{index}/dev"))?;
        let device = device(&numbers).ok_or(io::ErrorKind::InvalidData)?;
        let nodes = detached::mount(c"tmpfs")?;
        detached::make_device(&nodes, "tap", device)?;
        detached::open(&nodes, "tap", libc::O_RDWR | libc::O_NONBLOCK)
    };
    open().map_err(|error| {
        let what = format!("open the character device of {name}");
        LinkError::needing("CAP_SYS_ADMIN and CAP_MKNOD, as root has", what, error)
    })
}

/// The device of `MAJOR:MINOR`.
fn device(numbers: &str) -> Option<libc::dev_t> {
    let (major, minor) = numbers.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}
