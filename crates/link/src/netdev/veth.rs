//! Pairs of virtual Ethernet devices, and what they must not leave to each other.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::netlink::Request;
use super::{Namespace, interface_message, interface_request};
use crate::LinkError;
use crate::sys::check;

const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Bytes of struct ethtool_drvinfo, and where its driver's name lies.
const DRIVER_INFO_BYTES: usize = 196;
const DRIVER_NAME: std::ops::Range<usize> = 4..36;

/// Makes the interface `name` here and its other end `peer` in the namespace given (or here, too),
/// both with `queues` queues each way and down.
///
/// # Errors
/// When a name is taken, or for want of privilege.
pub fn add_veth(
    name: &str,
    peer: &str,
    peer_namespace: Option<&Namespace>,
    queues: u32,
) -> Result<(), LinkError> {
    let what = || format!("make the pair {name} and {peer}");
    for name in [name, peer] {
        interface_request(name).map_err(|error| LinkError::from_io(what(), error))?;
    }
    let mut other = interface_message(0, 0, 0).to_vec();
    put(&mut other, libc::IFLA_IFNAME, peer.as_bytes());
    if let Some(namespace) = peer_namespace {
        put(&mut other, IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
    }
    for count in [IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES] {
        put(&mut other, count, &queues.to_ne_bytes());
    }
    let mut data = Vec::new();
    put(&mut data, VETH_INFO_PEER, &other);
    let mut info = Vec::new();
    put(&mut info, INFO_KIND, b"veth");
    put(&mut info, INFO_DATA, &data);
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let request = Request::new(libc::RTM_NEWLINK, flags, &interface_message(0, 0, 0))
        .attribute(libc::IFLA_IFNAME, name.as_bytes())
        .attribute(IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes())
        .attribute(IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes())
        .attribute(libc::IFLA_LINKINFO, &info);
    request.send().map_err(|error| LinkError::from_io(what(), error))
}

/// Appends an attribute, padded to four.
fn put(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Says whether interface `name` takes packets whose transport checksum is yet to be completed.
///
/// A virtual pair never completes them: it trusts the other end. An XDP program at that other end
/// sees bad checksums unless this is off.
///
/// # Errors
/// When there is no such interface, or for want of privilege.
pub fn set_transmit_checksum(name: &str, on: bool) -> Result<(), LinkError> {
    /// struct ethtool_value.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let what = || format!("set the checksum offload of {name}");
    let mut value = Value { command: ETHTOOL_STXCSUM, data: on.into() };
    // SAFETY: a live value of the command's kind.
    unsafe { ethtool(name, (&raw mut value).cast()) }.map_err(|e| LinkError::from_io(what(), e))
}

/// Whether the interface `name` is an end of a virtual pair; false where that cannot be told.
pub(crate) fn is_veth(name: &str) -> bool {
    let mut info = [0_u32; DRIVER_INFO_BYTES / 4];
    info[0] = ETHTOOL_GDRVINFO;
    // SAFETY: a live block of this command's size, aligned as its words are.
    let asked = unsafe { ethtool(name, info.as_mut_ptr().cast()) };
    let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).collect();
    asked.is_ok() && bytes[DRIVER_NAME].starts_with(b"veth\0")
}

/// Queues that the interface `name` receives by; `None` where its driver does not tell.
pub(crate) fn receive_queues(name: &str) -> Option<u32> {
    // struct ethtool_channels: the command, four limits, then the counts of rx, tx, other, combined.
    let mut channels = [0_u32; 9];
    channels[0] = ETHTOOL_GCHANNELS;
    // SAFETY: a live block of this command's size, aligned as its words are.
    unsafe { ethtool(name, channels.as_mut_ptr().cast()) }.ok()?;
    Some(channels[5].saturating_add(channels[8]))
}

/// Has the driver of the interface `name` take a command.
///
/// # Safety
/// `command` points at the live structure of the command that it begins with.
unsafe fn ethtool(name: &str, command: *mut libc::c_char) -> io::Result<()> {
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = command;
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let fd = check(fd)?;
    // SAFETY: `fd` was just opened and is owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let question = libc::SIOCETHTOOL as libc::Ioctl;
    // SAFETY: `request` is a live ifreq, and its data what the caller answers for.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), question, &raw mut request) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_refused() {
        for name in ["x".repeat(300), "0123456789abcdef".into(), "a\0b".into()] {
            for [one, other] in [[&*name, "ms1"], ["ms0", &name]] {
                assert!(add_veth(one, other, None, 1).is_err(), "{one}, {other}");
            }
        }
    }
}
