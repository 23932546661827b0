//! Pairs of virtual Ethernet devices.

use millstream_netlink::packet::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo};

use super::{Namespace, add, interface_request, link};
use crate::LinkError;

/// Makes the interface `name` here and its other end `peer` in the namespace given (or here, too),
/// both with `queues` queues each way (0: as many as the kernel gives them) and down.
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
    let end = |name: &str| {
        let mut attributes = vec![LinkAttribute::IfName(name.to_owned())];
        if queues > 0 {
            attributes.push(LinkAttribute::NumTxQueues(queues));
            attributes.push(LinkAttribute::NumRxQueues(queues));
        }
        attributes
    };
    let mut other = end(peer);
    other.extend(peer_namespace.map(|there| LinkAttribute::NetNsFd(there.as_raw_fd())));
    let mut attributes = end(name);
    attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(link(0, other)))),
    ]));
    add(attributes).map_err(|error| LinkError::from_io(what(), error))
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
