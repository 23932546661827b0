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
mod netlink;
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

use millstream_wire::ethernet::MacAddr;

use crate::LinkError;
use crate::limits::{ADDRESS_ATTEMPTS, ADDRESS_WAIT_MS};
use crate::sys::{self, check, poll};
use netlink::Request;

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
    let up = libc::IFF_UP.cast_unsigned();
    let request = Request::new(libc::RTM_NEWLINK, 0, &interface_message(index(name)?, up, up));
    request.send().map_err(|e| LinkError::from_io(format!("bring {name} up"), e))
}

/// Brings interface `name` up, with what is sent to any group: who has it joins none there.
///
/// # Errors
/// Also when another device over the same interface has its link address ([`is_taken`]).
pub(crate) fn set_up_for_all_groups(name: &str) -> Result<(), LinkError> {
    let flags = (libc::IFF_UP | libc::IFF_ALLMULTI).cast_unsigned();
    let request =
        Request::new(libc::RTM_NEWLINK, 0, &interface_message(index(name)?, flags, flags));
    request.send().map_err(|e| LinkError::from_io(format!("bring {name} up"), e))
}

/// Whether a device was not brought up because another one has its link address.
pub(crate) fn is_taken(error: &LinkError) -> bool {
    let LinkError::System { error, .. } = error else { return false };
    matches!(error.raw_os_error(), Some(libc::EADDRINUSE | libc::EBUSY))
}

/// Takes interface `name` down.
#[cfg(test)]
pub(crate) fn set_down(name: &str) -> Result<(), LinkError> {
    let up = libc::IFF_UP.cast_unsigned();
    let request = Request::new(libc::RTM_NEWLINK, 0, &interface_message(index(name)?, 0, up));
    request.send().map_err(|e| LinkError::from_io(format!("take {name} down"), e))
}

/// Gives interface `name`, which should be down, another name.
#[cfg(test)]
pub(crate) fn rename(name: &str, to: &str) -> Result<(), LinkError> {
    let request = Request::new(libc::RTM_NEWLINK, 0, &interface_message(index(name)?, 0, 0));
    let sent = request.attribute(libc::IFLA_IFNAME, to.as_bytes()).send();
    sent.map_err(|e| LinkError::from_io(format!("rename {name}"), e))
}

/// Removes interface `name`, and of a virtual pair its other end, too.
pub(crate) fn remove(name: &str) -> Result<(), LinkError> {
    let request = Request::new(libc::RTM_DELLINK, 0, &interface_message(index(name)?, 0, 0));
    request.send().map_err(|e| LinkError::from_io(format!("remove {name}"), e))
}

/// Moves interface `name` to another namespace, where it is down.
#[cfg(test)]
pub(crate) fn move_to(name: &str, namespace: &Namespace) -> Result<(), LinkError> {
    const IFLA_NET_NS_FD: u16 = 28;
    let request = Request::new(libc::RTM_NEWLINK, 0, &interface_message(index(name)?, 0, 0));
    let sent = request.attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes()).send();
    sent.map_err(|e| LinkError::from_io(format!("move {name}"), e))
}

/// Sets the MTU of interface `name`, in bytes of IP packet.
///
/// # Errors
/// When the device does not take that MTU, or for want of privilege.
pub fn set_mtu(name: &str, mtu: usize) -> Result<(), LinkError> {
    let value = u32::try_from(mtu).unwrap_or(u32::MAX).to_ne_bytes();
    let request = Request::new(libc::RTM_NEWLINK, 0, &interface_message(index(name)?, 0, 0));
    let sent = request.attribute(libc::IFLA_MTU, &value).send();
    sent.map_err(|e| LinkError::from_io(format!("set the MTU of {name} to {mtu}"), e))
}

/// Sets the link address of interface `name`.
pub(crate) fn set_mac(name: &str, mac: MacAddr) -> Result<(), LinkError> {
    let request = Request::new(libc::RTM_NEWLINK, 0, &interface_message(index(name)?, 0, 0));
    let sent = request.attribute(libc::IFLA_ADDRESS, &mac.0).send();
    sent.map_err(|e| LinkError::from_io(format!("set the address of {name} to {mac}"), e))
}

/// Sets the number of packets the kernel queues towards the user on interface `name`. A TAP takes
/// it for its ring.
///
/// # Errors
/// For want of privilege.
pub fn set_queue_len(name: &str, packets: usize) -> Result<(), LinkError> {
    let value = u32::try_from(packets).unwrap_or(u32::MAX).to_ne_bytes();
    let request = Request::new(libc::RTM_NEWLINK, 0, &interface_message(index(name)?, 0, 0));
    let sent = request.attribute(libc::IFLA_TXQLEN, &value).send();
    sent.map_err(|e| LinkError::from_io(format!("set the queue of {name} to {packets}"), e))
}

/// `IFLA_GSO_MAX_SIZE` and `IFLA_GRO_MAX_SIZE`, of packets over IPv6 from Linux 6.3 on, and the two of IPv4.
/// `IFLA_GSO_MAX_SIZE` and `IFLA_GSO_IPV4_MAX_SIZE`: over IPv6 and over IPv4.
const GSO_KINDS: [u16; 2] = [41, 63];
/// `IFLA_GRO_MAX_SIZE` and `IFLA_GRO_IPV4_MAX_SIZE`.
const GRO_KINDS: [u16; 2] = [58, 64];

/// Bytes of the longest packets that the kernel takes from an interface merged, or sends by it in one. `None`: it has no
/// such number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxSizes {
    /// Over IPv6 (before Linux 6.3 whatever it is over).
    pub v6: Option<u32>,
    /// Over IPv4. `None`: none whose length field cannot tell its length (before Linux 6.3).
    pub v4: Option<u32>,
}

impl MaxSizes {
    /// As many over either.
    pub fn both(bytes: u32) -> Self {
        Self { v6: Some(bytes), v4: Some(bytes) }
    }
}

/// What the kernel takes from interface `name` merged (`gro_max_size` and `gro_ipv4_max_size` of ip-link(8)).
///
/// # Errors
/// When there is no such interface here.
pub fn gro_max_sizes(name: &str) -> Result<MaxSizes, LinkError> {
    sizes(name, GRO_KINDS)
        .map_err(|e| LinkError::from_io(format!("ask for the gro_max_size of {name}"), e))
}

/// How many bytes of TCP the kernel sends by interface `name` in one super-segment (`gso_max_size` and
/// `gso_ipv4_max_size` of ip-link(8)), the header of Ethernet counted.
///
/// # Errors
/// When there is no such interface here.
pub fn gso_max_sizes(name: &str) -> Result<MaxSizes, LinkError> {
    sizes(name, GSO_KINDS)
        .map_err(|e| LinkError::from_io(format!("ask for the gso_max_size of {name}"), e))
}

/// Sets those of them that are given. A kernel that has no such numbers may ignore them.
///
/// # Errors
/// When the kernel does not take so many bytes, or for want of privilege.
pub fn set_gro_max_sizes(name: &str, sizes: MaxSizes) -> Result<(), LinkError> {
    set_sizes(name, GRO_KINDS, sizes)
        .map_err(|e| LinkError::from_io(format!("set the gro_max_size of {name}"), e))
}

/// Sets how many bytes of TCP the kernel sends by interface `name` in one super-segment (`gso_max_size` and
/// `gso_ipv4_max_size` of ip-link(8)). A kernel that has no such numbers may ignore them.
///
/// # Errors
/// When the interface does not take so many bytes (its `tso_max_size`), or for want of privilege.
pub fn set_gso_max_sizes(name: &str, sizes: MaxSizes) -> Result<(), LinkError> {
    set_sizes(name, GSO_KINDS, sizes)
        .map_err(|e| LinkError::from_io(format!("set the gso_max_size of {name}"), e))
}

/// The attributes of an interface that say so for IPv6 and for IPv4.
fn sizes(name: &str, kinds: [u16; 2]) -> io::Result<MaxSizes> {
    let body = interface_message(index(name).map_err(io::Error::other)?, 0, 0);
    let ask = |kind| {
        let value = Request::new(libc::RTM_GETLINK, 0, &body).ask(body.len(), kind)?;
        Ok::<_, io::Error>(value.and_then(|value| value.try_into().ok()).map(u32::from_ne_bytes))
    };
    let [v6, v4] = kinds;
    Ok(MaxSizes { v6: ask(v6)?, v4: ask(v4)? })
}

/// Sets them: in this order, as the former bounds the latter.
fn set_sizes(name: &str, kinds: [u16; 2], sizes: MaxSizes) -> io::Result<()> {
    let index = index(name).map_err(io::Error::other)?;
    let mut request = Request::new(libc::RTM_NEWLINK, 0, &interface_message(index, 0, 0));
    for (kind, size) in kinds.into_iter().zip([sizes.v6, sizes.v4]) {
        if let Some(bytes) = size {
            request = request.attribute(kind, &bytes.to_ne_bytes());
        }
    }
    request.send()
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
    let (family, flags) = match address {
        IpAddr::V4(_) => (libc::AF_INET, 0),
        IpAddr::V6(_) => (libc::AF_INET6, libc::IFA_F_NODAD as u8),
    };
    // struct ifaddrmsg: family, prefix length, flags, scope, index.
    let mut body = [family as u8, prefix_len, flags, 0, 0, 0, 0, 0];
    body[4..].copy_from_slice(&index(name)?.to_ne_bytes());
    let bytes = Octets::of(address);
    let request = Request::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &body)
        .attribute(libc::IFA_LOCAL, bytes.get())
        .attribute(libc::IFA_ADDRESS, bytes.get());
    request.send().map_err(|e| {
        LinkError::from_io(format!("give {name} the address {address}/{prefix_len}"), e)
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
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;
    const NUD_PERMANENT: u16 = 0x80;
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // struct ndmsg: family, padding, index, state, flags, type.
    let mut body = [0; 12];
    body[0] = family as u8;
    body[4..8].copy_from_slice(&index(name)?.to_ne_bytes());
    body[8..10].copy_from_slice(&NUD_PERMANENT.to_ne_bytes());
    let request = Request::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &body)
        .attribute(NDA_DST, Octets::of(address).get())
        .attribute(NDA_LLADDR, &mac.0);
    request
        .send()
        .map_err(|e| LinkError::from_io(format!("add the neighbour {address} on {name}"), e))
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
    let family = if destination.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let scope = if gateway.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
    // struct rtmsg: family, destination and source length, TOS, table, protocol, scope, type,
    // flags.
    let head = [
        family as u8,
        prefix_len,
        0,
        0,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        scope,
        libc::RTN_UNICAST,
    ];
    let mut body = [0; 12];
    body[..8].copy_from_slice(&head);
    let mut request =
        Request::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &body)
            .attribute(libc::RTA_OIF, &index(name)?.to_ne_bytes());
    if prefix_len > 0 {
        request = request.attribute(libc::RTA_DST, Octets::of(destination).get());
    }
    if let Some(gateway) = gateway {
        request = request.attribute(libc::RTA_GATEWAY, Octets::of(gateway).get());
    }
    request
        .send()
        .map_err(|e| LinkError::from_io(format!("add the route to {destination}/{prefix_len}"), e))
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

/// What is to be said of interface `name` while it is down.
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

/// struct ifinfomsg: family, pad, type, index, flags, change.
fn interface_message(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..].copy_from_slice(&change.to_ne_bytes());
    body
}

/// An address's bytes in network order, without heap.
struct Octets {
    bytes: [u8; 16],
    len: usize,
}

impl Octets {
    fn of(address: IpAddr) -> Self {
        let mut bytes = [0; 16];
        let len = match address {
            IpAddr::V4(v4) => {
                bytes[..4].copy_from_slice(&v4.octets());
                4
            }
            IpAddr::V6(v6) => {
                bytes = v6.octets();
                16
            }
        };
        Self { bytes, len }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
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
