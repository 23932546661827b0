//! Devices with a character device of their own over another interface (macvtap).

use std::io;
use std::os::fd::OwnedFd;

use millstream_netlink::packet::link::{
    InfoData, InfoKind, InfoMacVtap, LinkAttribute, LinkInfo, MacVtapMode,
};
use millstream_wire::ethernet::MacAddr;

use super::sysfs::Sysfs;
use super::{Namespace, add, index};
use crate::LinkError;
use crate::sys::detached;

/// The sharing of a macvtap device with the others of its interface, and with the kernel
/// (ip-link(8)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MacvtapMode {
    /// An address of its own; packets for others of the interface go there directly. The kernel
    /// keeps what is for the interface's own address.
    #[default]
    Bridge,
    /// An address of its own; nothing passes between those of the interface.
    Private,
    /// An address of its own; what is for others of the interface goes out, and a switch sends it
    /// back.
    Vepa,
    /// All of the interface, and its address: the kernel has nothing of it any more.
    Passthru,
}

impl From<MacvtapMode> for MacVtapMode {
    fn from(mode: MacvtapMode) -> Self {
        match mode {
            MacvtapMode::Private => Self::Private,
            MacvtapMode::Vepa => Self::Vepa,
            MacvtapMode::Bridge => Self::Bridge,
            MacvtapMode::Passthru => Self::Passthrough,
        }
    }
}

/// Makes the macvtap device `name` over the interface `lower` of this namespace, in `namespace`,
/// down.
///
/// # Errors
/// When there is no such interface or it cannot have one (it has one already that takes all, it is
/// part of a bridge); where the kernel has none, or for want of privilege.
pub(crate) fn add_macvtap(
    lower: &str,
    name: &str,
    namespace: &Namespace,
    mode: MacvtapMode,
    mac: Option<MacAddr>,
) -> Result<(), LinkError> {
    let mut attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Link(index(lower)?),
        LinkAttribute::NetNsFd(namespace.as_raw_fd()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::MacVtap),
            LinkInfo::Data(InfoData::MacVtap(vec![InfoMacVtap::Mode(mode.into())])),
        ]),
    ];
    attributes.extend(mac.map(|MacAddr(bytes)| LinkAttribute::Address(bytes.to_vec())));
    add(attributes).map_err(|error| {
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
/// Its character device is found by what the kernel tells of it (sysfs), and opened by a node of
/// our own, since the one in `/dev` has the index of the device in its name, which another
/// namespace may have, too. Both are in file systems that nobody else sees.
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
