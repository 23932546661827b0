//! Interfaces of a namespace with their counters.

use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};

use crate::Netlink;

/// Bytes of the longest packets that the kernel takes from an interface merged, or sends by it in
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaxSizes {
    /// Over IPv6 (before Linux 6.3 whatever it is over); `None` where the kernel has no such
    /// number.
    pub v6: Option<u32>,
    /// Over IPv4; `None` before Linux 6.3, where no packet is longer than its length field can
    /// tell.
    pub v4: Option<u32>,
}

impl MaxSizes {
    /// Returns as many bytes over either.
    pub fn both(bytes: u32) -> Self {
        Self { v6: Some(bytes), v4: Some(bytes) }
    }
}

/// Counters and state of one interface at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name in its namespace.
    pub name: String,
    /// Index in its namespace.
    pub index: u32,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Longest super-segments that the kernel sends by it (`gso_max_size` and `gso_ipv4_max_size`
    /// of ip-link(8)).
    pub gso_max: MaxSizes,
    /// Longest packets that the kernel takes from it merged (`gro_max_size` and
    /// `gro_ipv4_max_size`).
    pub gro_max: MaxSizes,
    /// Bytes received, link headers included.
    pub rx_bytes: u64,
    /// Bytes sent, link headers included.
    pub tx_bytes: u64,
    /// Packets received; a super-segment counts as one.
    pub rx_packets: u64,
    /// Packets sent; a super-segment counts as one.
    pub tx_packets: u64,
    /// Packets dropped on either side.
    pub dropped: u64,
}

impl Netlink {
    /// Returns every interface of the namespace.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        self.links(LinkMessage::default(), NLM_F_DUMP)
    }

    /// Returns the interface of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn interface(&mut self, name: &str) -> io::Result<Interface> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.links(link, 0)?.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn links(&mut self, link: LinkMessage, flags: u16) -> io::Result<Vec<Interface>> {
        let answers = self.request(RouteNetlinkMessage::GetLink(link), flags)?;
        let known = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(interface(link)),
            _ => None,
        });
        Ok(known.collect())
    }
}

fn interface(link: &LinkMessage) -> Interface {
    let mut interface = Interface {
        index: link.header.index,
        up: link.header.flags.contains(LinkFlags::Up),
        ..Interface::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::GsoMaxSize(bytes) => interface.gso_max.v6 = Some(*bytes),
            LinkAttribute::GsoIpv4MaxSize(bytes) => interface.gso_max.v4 = Some(*bytes),
            LinkAttribute::GroMaxSize(bytes) => interface.gro_max.v6 = Some(*bytes),
            LinkAttribute::GroIpv4MaxSize(bytes) => interface.gro_max.v4 = Some(*bytes),
            LinkAttribute::Stats64(stats) => {
                interface.rx_bytes = stats.rx_bytes;
                interface.tx_bytes = stats.tx_bytes;
                interface.rx_packets = stats.rx_packets;
                interface.tx_packets = stats.tx_packets;
                interface.dropped = stats.rx_dropped + stats.tx_dropped;
            }
            _ => {}
        }
    }
    interface
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_its_name_and_in_the_list() {
        let mut netlink = Netlink::route().unwrap();
        let all = netlink.interfaces().unwrap();
        let lo = all.iter().find(|one| one.name == "lo").unwrap();
        assert_eq!(netlink.interface("lo").unwrap().index, lo.index);
        let error = netlink.interface("ms-none").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
