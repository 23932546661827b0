//! Links, addresses and counters of the namespace the calling thread is in,
//! over netlink: synchronous, one request at a time.
//!
//! A [`Netlink`] belongs to the namespace in which it was opened, also when it
//! is used from a thread that has moved on.

mod ethtool;
mod inet_sockets;
mod qdisc;
mod sock_diag;

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

pub use ethtool::{OFFLOAD_FEATURES, features_off, set_features};
pub use inet_sockets::{InetSocket, Protocol, State, each_inet_socket};
pub use qdisc::Qdisc;
pub use sock_diag::{TcpSocket, tcp_sockets};

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
    /// Longest super-segment of IPv4 that it takes, bytes (`gso_ipv4_max_size`); none before Linux 6.3.
    pub gso_ipv4_max_bytes: Option<u32>,
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

/// A netlink connection to the kernel; see the module's promise.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a connection for links and addresses in the current namespace.
    pub fn route() -> io::Result<Self> {
        Self::open(NETLINK_ROUTE)
    }

    /// Opens a generic netlink connection in the current namespace.
    pub(crate) fn generic() -> io::Result<Self> {
        Self::open(NETLINK_GENERIC)
    }

    fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and returns the answers until its end.
    pub(crate) fn request<T>(&mut self, payload: T, flags: u16) -> io::Result<Vec<T>>
    where
        T: NetlinkSerializable + NetlinkDeserializable,
    {
        let mut answers = Vec::new();
        self.request_each(payload, flags, |answer| answers.push(answer))?;
        Ok(answers)
    }

    /// The same with each answer as it comes, so that many take no memory.
    pub(crate) fn request_each<T>(
        &mut self,
        payload: T,
        flags: u16,
        mut each: impl FnMut(T),
    ) -> io::Result<()>
    where
        T: NetlinkSerializable + NetlinkDeserializable,
    {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(payload));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if self.take_answers(&datagram, flags, &mut each)? {
                return Ok(());
            }
        }
    }

    /// Reads one datagram of answers; true when the request has ended.
    fn take_answers<T>(
        &self,
        mut rest: &[u8],
        flags: u16,
        each: &mut impl FnMut(T),
    ) -> io::Result<bool>
    where
        T: NetlinkDeserializable,
    {
        while rest.len() >= 16 {
            let message = NetlinkMessage::<T>::deserialize(rest).map_err(io::Error::other)?;
            let length = message.header.length as usize;
            let ours = message.header.sequence_number == self.sequence;
            match message.payload {
                _ if !ours => {}
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => match error.code {
                    None => return Ok(true),
                    Some(_) => return Err(error.to_io()),
                },
                NetlinkPayload::InnerMessage(inner) => {
                    each(inner);
                    if flags & (NLM_F_DUMP | NLM_F_ACK) == 0 {
                        return Ok(true);
                    }
                }
                _ => {}
            }
            rest = rest.get(length.max(16).next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(false)
    }

    /// Every interface of the namespace with its counters.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.request(request, NLM_F_DUMP)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(interface(&link)),
                _ => None,
            })
            .collect())
    }

    /// The interface of this name; `NotFound` when there is none.
    pub fn interface(&mut self, name: &str) -> io::Result<Interface> {
        self.interfaces()?
            .into_iter()
            .find(|i| i.name == name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}")))
    }

    /// Creates a veth pair: `here` in this namespace, `there` in the namespace
    /// that `peer_namespace` (an open descriptor) stands for.
    pub fn add_veth(
        &mut self,
        here: &str,
        there: &str,
        peer_namespace: std::os::fd::RawFd,
    ) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes =
            vec![LinkAttribute::IfName(there.to_owned()), LinkAttribute::NetNsFd(peer_namespace)];
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(here.to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        let request = RouteNetlinkMessage::NewLink(link);
        self.request(request, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Sets the MTU (bytes, IP packet) of an interface and takes it up.
    pub fn set_up(&mut self, name: &str, mtu: Option<u32>) -> io::Result<()> {
        let index = self.interface(name)?.index;
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = mtu.map(LinkAttribute::Mtu).into_iter().collect();
        self.request(RouteNetlinkMessage::SetLink(link), NLM_F_ACK).map(drop)
    }

    /// Has an interface send and merge super-segments of so many bytes (“BIG TCP”), over IPv4 and IPv6.
    ///
    /// # Errors
    /// When the kernel refuses them, or does not know them (before Linux 6.3 it ignores those of IPv4).
    pub fn set_longest_super_segment(&mut self, name: &str, bytes: u32) -> io::Result<()> {
        let before = self.interface(name)?;
        if before.gso_ipv4_max_bytes.is_none() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it takes Linux 6.3"));
        }
        let index = before.index;
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![
            LinkAttribute::GsoMaxSize(bytes),
            LinkAttribute::GroMaxSize(bytes),
            LinkAttribute::GsoIpv4MaxSize(bytes),
            LinkAttribute::GroIpv4MaxSize(bytes),
        ];
        self.request(RouteNetlinkMessage::SetLink(link), NLM_F_ACK).map(drop)
    }

    /// Gives an interface an address, usable at once (no duplicate detection).
    pub fn add_address(&mut self, name: &str, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        let index = self.interface(name)?.index;
        let mut message = AddressMessage::default();
        message.header.family =
            if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.prefix_len = prefix_len;
        message.header.index = index;
        message.attributes =
            vec![AddressAttribute::Address(address), AddressAttribute::Local(address)];
        if address.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let request = RouteNetlinkMessage::NewAddress(message);
        self.request(request, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE).map(drop)
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
            LinkAttribute::GsoIpv4MaxSize(bytes) => interface.gso_ipv4_max_bytes = Some(*bytes),
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
    fn loopback_is_listed() {
        let interfaces = Netlink::route().unwrap().interfaces().unwrap();
        assert!(interfaces.iter().any(|i| i.name == "lo"), "{interfaces:?}");
    }

    #[test]
    fn a_missing_interface_is_named() {
        let error = Netlink::route().unwrap().interface("ms-none").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("ms-none"));
    }
}
