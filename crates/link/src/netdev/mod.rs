//! Setting interfaces up without other programs: state, MTU, addresses, routes, in this network
//! namespace or another.
//!
//! All of it is control path and blocks for the time of a system call. Everything here acts in the
//! calling thread's namespace; [`run_in`] and [`Namespace::run`] take it to another.

mod ethtool;
#[cfg(test)]
mod held;
pub(crate) mod live;
mod macvtap;
mod namespace;
mod napi;
mod own_mac;
mod rings;
mod statistics;
mod steering;
mod sysfs;
mod veth;

pub use ethtool::set_transmit_checksum;
#[cfg(test)]
pub(crate) use ethtool::takes_transmit_checksum;
pub(crate) use ethtool::{ScatterGather, allow_pieces, is_veth, receive_queues};
#[cfg(test)]
pub(crate) use held::{add_macvlan, hold};
pub use macvtap::MacvtapMode;
pub(crate) use macvtap::{add_macvtap, open_macvtap};
pub use millstream_netlink::MaxSizes;
pub use namespace::{Namespace, run_in};
pub use napi::NapiControl;
pub(crate) use own_mac::{Identity, stable_mac};
pub use rings::Rings;
pub use statistics::DriverStatistics;
pub use steering::ReceiveSteering;
#[cfg(test)]
pub(crate) use sysfs::setting;
pub use veth::add_veth;

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use millstream_netlink::core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use millstream_netlink::packet::address::{AddressAttribute, AddressFlags, AddressMessage};
use millstream_netlink::packet::link::{LinkAttribute, LinkFlags, LinkMessage};
use millstream_netlink::packet::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use millstream_netlink::packet::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use millstream_netlink::packet::{AddressFamily, RouteNetlinkMessage};
use millstream_netlink::{Interface, Netlink};
use millstream_wire::ethernet::MacAddr;

use crate::LinkError;
use crate::limits::{ADDRESS_ATTEMPTS, ADDRESS_WAIT_MS};
use crate::sys::{self, check, poll};

/// The index of interface `name`.
///
/// # Errors
/// When there is no such interface here.
pub fn index(name: &str) -> Result<u32, LinkError> {
    let text = CString::new(name)
        .map_err(|_| LinkError::Invalid(format!("{name:?} is no interface name")))?;
    // SAFETY: the pointer is to a string that ends in zero and lives through the call.
    let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
    if index == 0 { Err(LinkError::last(format!("find interface {name}"))) } else { Ok(index) }
}

/// Brings interface `name` up.
///
/// # Errors
/// When there is no such interface, or for want of privilege.
pub fn set_up(name: &str) -> Result<(), LinkError> {
    set_flags(name, LinkFlags::Up, LinkFlags::Up, || format!("bring {name} up"))
}

/// Brings interface `name` up, with what is sent to any group: who has it joins none there.
///
/// # Errors
/// Also when another device over the same interface has its link address ([`is_taken`]).
pub(crate) fn set_up_for_all_groups(name: &str) -> Result<(), LinkError> {
    let flags = LinkFlags::Up | LinkFlags::Allmulti;
    set_flags(name, flags, flags, || format!("bring {name} up"))
}

/// Returns whether a device was not brought up because another one has its link address.
pub(crate) fn is_taken(error: &LinkError) -> bool {
    let LinkError::System { error, .. } = error else { return false };
    matches!(error.raw_os_error(), Some(libc::EADDRINUSE | libc::EBUSY))
}

/// Takes interface `name` down.
#[cfg(test)]
pub(crate) fn set_down(name: &str) -> Result<(), LinkError> {
    set_flags(name, LinkFlags::empty(), LinkFlags::Up, || format!("take {name} down"))
}

/// Gives interface `name`, which should be down, another name.
#[cfg(test)]
pub(crate) fn rename(name: &str, to: &str) -> Result<(), LinkError> {
    set(name, vec![LinkAttribute::IfName(to.to_owned())], || format!("rename {name}"))
}

/// Removes interface `name`, and of a virtual pair its other end, too.
pub(crate) fn remove(name: &str) -> Result<(), LinkError> {
    let message = RouteNetlinkMessage::DelLink(link(index(name)?, vec![]));
    change(message, 0, || format!("remove {name}"))
}

/// Moves interface `name` to another namespace, where it is down.
#[cfg(test)]
pub(crate) fn move_to(name: &str, namespace: &Namespace) -> Result<(), LinkError> {
    let there = LinkAttribute::NetNsFd(namespace.as_raw_fd());
    set(name, vec![there], || format!("move {name}"))
}

/// Sets the MTU of interface `name`, in bytes of IP packet.
///
/// # Errors
/// When the device does not take that MTU, or for want of privilege.
pub fn set_mtu(name: &str, mtu: usize) -> Result<(), LinkError> {
    let value = LinkAttribute::Mtu(u32::try_from(mtu).unwrap_or(u32::MAX));
    set(name, vec![value], || format!("set the MTU of {name} to {mtu}"))
}

/// Sets the link address of interface `name`.
pub(crate) fn set_mac(name: &str, mac: MacAddr) -> Result<(), LinkError> {
    let value = LinkAttribute::Address(mac.0.to_vec());
    set(name, vec![value], || format!("set the address of {name} to {mac}"))
}

/// Sets the number of packets the kernel queues towards the user on interface `name`. A TAP takes
/// it for its ring.
///
/// # Errors
/// For want of privilege.
pub fn set_queue_len(name: &str, packets: usize) -> Result<(), LinkError> {
    let value = LinkAttribute::TxQueueLen(u32::try_from(packets).unwrap_or(u32::MAX));
    set(name, vec![value], || format!("set the queue of {name} to {packets}"))
}

/// Returns the longest packets that the kernel takes from interface `name` merged (`gro_max_size`
/// and `gro_ipv4_max_size` of ip-link(8)).
///
/// # Errors
/// When there is no such interface here.
pub fn gro_max_sizes(name: &str) -> Result<MaxSizes, LinkError> {
    interface(name, "gro_max_size").map(|interface| interface.gro_max)
}

/// Returns how many bytes of TCP the kernel sends by interface `name` in one super-segment
/// (`gso_max_size` and `gso_ipv4_max_size` of ip-link(8)), the header of Ethernet counted.
///
/// # Errors
/// When there is no such interface here.
pub fn gso_max_sizes(name: &str) -> Result<MaxSizes, LinkError> {
    interface(name, "gso_max_size").map(|interface| interface.gso_max)
}

fn interface(name: &str, setting: &str) -> Result<Interface, LinkError> {
    Netlink::route()
        .and_then(|mut netlink| netlink.interface(name))
        .map_err(|e| LinkError::from_io(format!("ask for the {setting} of {name}"), e))
}

/// Sets those of them that are given. A kernel that has no such numbers may ignore them.
///
/// # Errors
/// When the kernel does not take so many bytes, or for want of privilege.
pub fn set_gro_max_sizes(name: &str, sizes: MaxSizes) -> Result<(), LinkError> {
    // In this order, as the former bounds the latter.
    let values =
        [sizes.v6.map(LinkAttribute::GroMaxSize), sizes.v4.map(LinkAttribute::GroIpv4MaxSize)];
    let values = values.into_iter().flatten().collect();
    set(name, values, || format!("set the gro_max_size of {name}"))
}

/// Sets how many bytes of TCP the kernel sends by interface `name` in one super-segment
/// (`gso_max_size` and `gso_ipv4_max_size` of ip-link(8)). A kernel that has no such numbers may
/// ignore them.
///
/// # Errors
/// When the interface does not take so many bytes (its `tso_max_size`), or for want of privilege.
pub fn set_gso_max_sizes(name: &str, sizes: MaxSizes) -> Result<(), LinkError> {
    let values =
        [sizes.v6.map(LinkAttribute::GsoMaxSize), sizes.v4.map(LinkAttribute::GsoIpv4MaxSize)];
    let values = values.into_iter().flatten().collect();
    set(name, values, || format!("set the gso_max_size of {name}"))
}

/// Gives interface `name`, which should be up, an address with its prefix. An address that is
/// there already stays.
///
/// IPv6 addresses skip duplicate address detection (RFC 4862 section 5.4 allows that by setting
/// DupAddrDetectTransmits to zero); the kernel still begins to receive for them a moment later, and
/// this waits for that moment.
///
/// # Errors
/// For want of privilege, or when IPv6 is off.
pub fn set_address(name: &str, address: IpAddr, prefix_len: u8) -> Result<(), LinkError> {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_len;
    message.header.index = index(name)?;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    if address.is_ipv6() {
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE, || {
        format!("give {name} the address {address}/{prefix_len}")
    })?;
    if let IpAddr::V6(v6) = address
        && is_up(name)?
    {
        wait_until_local(v6);
    }
    Ok(())
}

/// Waits, for a bounded time, until the kernel has its host route for `address`: it is made by a
/// work queue after the request was acknowledged, and packets to the address are refused before.
fn wait_until_local(address: Ipv6Addr) {
    let line = format!("{:032x} 80 ", address.to_bits());
    for _ in 0..ADDRESS_ATTEMPTS {
        match std::fs::read_to_string("/proc/thread-self/net/ipv6_route") {
            Ok(routes) if !routes.lines().any(|route| route.starts_with(&line)) => {}
            _ => return,
        }
        if poll(&mut [], Some(Duration::from_millis(ADDRESS_WAIT_MS))).is_err() {
            return;
        }
    }
}

/// Tells the kernel for good that `address` on interface `name` is at `mac`: it will not ask.
///
/// # Errors
/// For want of privilege.
pub fn add_neighbor(name: &str, address: IpAddr, mac: MacAddr) -> Result<(), LinkError> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index(name)?;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(address.into()),
        NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
    ];
    change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE, || {
        format!("add the neighbour {address} on {name}")
    })
}

/// Adds a route to `destination/prefix_len` by `gateway`, or straight onto interface `name` without
/// one.
///
/// # Errors
/// When the gateway cannot be reached, or for want of privilege.
pub fn add_route(
    name: &str,
    destination: IpAddr,
    prefix_len: u8,
    gateway: Option<IpAddr>,
) -> Result<(), LinkError> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination);
    message.header.destination_prefix_length = prefix_len;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Oif(index(name)?));
    if prefix_len > 0 {
        message.attributes.push(RouteAttribute::Destination(destination.into()));
    }
    message.attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE, || {
        format!("add the route to {destination}/{prefix_len}")
    })
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Returns a message about the interface with `index`; 0 for one that is to be made.
fn link(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
}

/// Makes an interface.
fn add(attributes: Vec<LinkAttribute>) -> io::Result<()> {
    let message = RouteNetlinkMessage::NewLink(link(0, attributes));
    Netlink::route()?.change(message, NLM_F_CREATE | NLM_F_EXCL)
}

/// Sets attributes of interface `name`.
fn set(
    name: &str,
    attributes: Vec<LinkAttribute>,
    what: impl FnOnce() -> String,
) -> Result<(), LinkError> {
    change(RouteNetlinkMessage::SetLink(link(index(name)?, attributes)), 0, what)
}

/// Sets flags of interface `name` that are in `mask`.
fn set_flags(
    name: &str,
    flags: LinkFlags,
    mask: LinkFlags,
    what: impl FnOnce() -> String,
) -> Result<(), LinkError> {
    let mut message = link(index(name)?, vec![]);
    message.header.flags = flags;
    message.header.change_mask = mask;
    change(RouteNetlinkMessage::SetLink(message), 0, what)
}

/// Has the kernel change something in the calling thread's namespace.
fn change(
    message: RouteNetlinkMessage,
    flags: u16,
    what: impl FnOnce() -> String,
) -> Result<(), LinkError> {
    Netlink::route()
        .and_then(|mut netlink| netlink.change(message, flags))
        .map_err(|error| LinkError::from_io(what(), error))
}

/// The MTU of interface `name`.
///
/// # Errors
/// When there is no such interface here.
pub fn mtu(name: &str) -> Result<usize, LinkError> {
    let request = query(name, libc::SIOCGIFMTU as libc::Ioctl)
        .map_err(|e| LinkError::from_io(format!("read the MTU of {name}"), e))?;
    // SAFETY: SIOCGIFMTU filled in this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// The link address of interface `name`.
///
/// # Errors
/// When there is no such interface here.
pub fn mac(name: &str) -> Result<MacAddr, LinkError> {
    let request = query(name, libc::SIOCGIFHWADDR as libc::Ioctl)
        .map_err(|e| LinkError::from_io(format!("read the address of {name}"), e))?;
    Ok(mac_in(&request))
}

/// The address that SIOCGIFHWADDR has answered.
fn mac_in(request: &libc::ifreq) -> MacAddr {
    // SAFETY: SIOCGIFHWADDR filled in this member of the union.
    let data = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(sys::bytes_of(&data)) {
        *to = from;
    }
    MacAddr(mac)
}

/// Refuses interface `name` unless its packets begin with an Ethernet header.
pub(crate) fn require_ethernet(name: &str) -> Result<(), LinkError> {
    let request = query(name, libc::SIOCGIFHWADDR as libc::Ioctl)
        .map_err(|e| LinkError::from_io(format!("read the address of {name}"), e))?;
    // SAFETY: SIOCGIFHWADDR filled in this member of the union.
    match unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(()),
        kind => Err(LinkError::Invalid(format!(
            "{name} is no interface of Ethernet (its hardware type is {kind})"
        ))),
    }
}

/// True when interface `name` is up.
///
/// # Errors
/// When there is no such interface here.
pub fn is_up(name: &str) -> Result<bool, LinkError> {
    let request = query(name, libc::SIOCGIFFLAGS as libc::Ioctl)
        .map_err(|e| LinkError::from_io(format!("read the state of {name}"), e))?;
    // SAFETY: SIOCGIFFLAGS filled in this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(i32::from(flags) & libc::IFF_UP != 0)
}

/// Returns what is to be said of interface `name` while it is down.
pub(crate) fn down_note(name: &str) -> Option<String> {
    let is_down = matches!(is_up(name), Ok(false));
    is_down.then(|| format!("{name}: it is down, nothing comes or goes (ip link set {name} up)"))
}

/// An interface request with `name` filled in.
pub(crate) fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq is plain data, for which all zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let is_odd = |b: u8| matches!(b, 0 | b'/' | b':') || b.is_ascii_whitespace();
    let is_none = name.is_empty() || name == "." || name == "..";
    if is_none || name.len() >= libc::IFNAMSIZ || name.bytes().any(is_odd) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is no interface name"),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// One `SIOCGIF*` question about interface `name`.
fn query(name: &str, question: libc::Ioctl) -> io::Result<libc::ifreq> {
    let mut request = interface_request(name)?;
    let fd = socket()?;
    // SAFETY: `request` is a live ifreq, which is what these questions read and write.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), question, &raw mut request) })?;
    Ok(request)
}

/// A socket that answers questions about the interfaces of this namespace.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    // SAFETY: `fd` was just opened and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::permitted;
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    #[test]
    fn addresses_of_both_families_are_usable_at_once() {
        let Some(namespace) = permitted(Namespace::create()) else { return };
        let v6: Ipv6Addr = "fd70::9".parse().unwrap();
        namespace
            .run(|| {
                assert!(is_up("lo").unwrap());
                set_mtu("lo", 9000).unwrap();
                assert_eq!(mtu("lo").unwrap(), 9000);
                set_address("lo", IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 24).unwrap();
                set_address("lo", IpAddr::V6(v6), 64).unwrap();
                TcpListener::bind(("10.9.9.9", 0)).unwrap();
                UdpSocket::bind((v6, 0)).unwrap();
                add_route("lo", IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 24, None).unwrap();
                assert!(matches!(set_up("nosuchdev0"), Err(LinkError::System { .. })));
            })
            .unwrap();
    }
}
