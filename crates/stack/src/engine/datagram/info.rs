//! Information about a received datagram beside its data, and options of a sent one.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use millstream_route::LinkId;
use millstream_wire::ip::IpHeader;

use crate::engine::ip::reach::addresses::is_link_local;

/// Information about a received datagram, from its IP header and its link (`IP_PKTINFO`,
/// `IP_RECVTTL` and `IP_RECVTOS` of Linux; RFC 1122, 4.1.3.5 and 4.1.4; RFC 3542, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramInfo {
    /// The destination: an own address, a group or a broadcast.
    pub to: IpAddr,
    /// The link that it came by; its number may be another link's when it is read.
    pub link: LinkId,
    /// The TTL or hop limit that was left.
    pub hop_limit: u8,
    /// Traffic class: differentiated services, and ECN in the lower two bits. Of a reassembled
    /// datagram those of its first fragment.
    pub traffic_class: u8,
}

impl DatagramInfo {
    pub(in crate::engine) fn new(ip: &IpHeader, link: LinkId) -> Self {
        let &IpHeader { dst, hop_limit, traffic_class, .. } = ip;
        Self { to: dst, link, hop_limit, traffic_class }
    }
}

/// How one datagram is sent, where that differs from what its socket says (`IP_PKTINFO`, `IP_TTL`
/// and `IP_TOS` of `sendmsg`; RFC 1122, 4.1.4; RFC 3542, 6).
///
/// ```
/// use millstream::SendOptions;
///
/// let options = SendOptions { from: Some([10, 0, 0, 2].into()), hop_limit: Some(1), ..SendOptions::default() };
/// assert!(options.link.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// The own address that it is sent from.
    pub from: Option<IpAddr>,
    /// The link that it leaves by. It chooses the way to groups, broadcasts and link-local
    /// addresses; where the routes lead to another link the datagram is refused.
    pub link: Option<LinkId>,
    /// TTL or hop limit, not 0.
    pub hop_limit: Option<u8>,
    /// Traffic class, ECN in the lower two bits.
    pub traffic_class: Option<u8>,
}

impl SendOptions {
    /// Returns the header fields that the application chose, for this datagram or for the socket.
    pub(in crate::engine) fn marks(&self, socket: Marks) -> Marks {
        Marks {
            hop_limit: self.hop_limit.unwrap_or(socket.hop_limit),
            traffic_class: self.traffic_class.unwrap_or(socket.traffic_class),
        }
    }
}

/// The fields that the application chose for the IP header of a datagram.
#[derive(Clone, Copy)]
pub(crate) struct Marks {
    pub hop_limit: u8,
    pub traffic_class: u8,
}

impl Marks {
    /// Returns true if the ECN field is 0.
    pub fn is_plain(self) -> bool {
        self.traffic_class & 3 == 0
    }

    pub fn write(self, ip: &mut IpHeader) {
        (ip.hop_limit, ip.traffic_class) = (self.hop_limit, self.traffic_class);
    }
}

/// A peer's address as the application has it: a link-local one names the link that the peer is on.
pub(in crate::engine) fn on_link(peer: SocketAddr, link: LinkId) -> SocketAddr {
    match peer {
        SocketAddr::V6(peer) if is_link_local((*peer.ip()).into()) => {
            SocketAddrV6::new(*peer.ip(), peer.port(), 0, u32::from(link.0) + 1).into()
        }
        _ => peer,
    }
}
