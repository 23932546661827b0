//! Pairs of virtual Ethernet devices.

use super::netlink::{IFLA_NET_NS_FD, INFO_DATA, INFO_KIND, Request, put};
use super::{Namespace, interface_message, interface_request};
use crate::LinkError;

const VETH_INFO_PEER: u16 = 1;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;

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
