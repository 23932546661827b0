//! What a connection knows about its way: headers built ahead, and what the link does for it.

use std::net::IpAddr;

use millstream_link::Medium;
use millstream_packet::Instant;
use millstream_route::{Generations, HeaderTemplate, LinkId};
use millstream_tcp::{Connection, FourTuple};
use millstream_wire::ethernet::{EtherType, EthernetHeader};
use millstream_wire::ip::{IpHeader, Protocol};

use super::Serial;
use super::common::CommonHeaders;
use super::output::{Output, Way};
use crate::socket::tcp::TcpSocket;

/// A connection's way out, as it was when last looked up.
#[derive(Default)]
pub(crate) struct Path {
    /// In a box of its own: quiet connections do without.
    known: Option<Box<Known>>,
    /// IPv4 identification of the next packet.
    pub identification: u16,
}

struct Known {
    way: Way,
    generations: Generations,
    /// The link leaves transport checksums to us.
    is_summed: bool,
    ports: (u16, u16),
    /// The headers say that no router is to fragment.
    dont_fragment: bool,
    /// Absent while the neighbour is not known: packets go the long way, where they wait for it.
    template: Option<HeaderTemplate>,
    /// The same with the TCP header, where they are of the most common kind.
    common: Option<CommonHeaders>,
}

/// What the application chose for the IP header, and whether routers may fragment the packet.
#[derive(Clone, Copy)]
pub(crate) struct Marks {
    dscp: u8,
    hop_limit: u8,
    dont_fragment: bool,
}

impl Marks {
    #[inline]
    pub fn of(conn: &Connection) -> Self {
        let config = conn.config();
        let dont_fragment = !conn.may_be_fragmented();
        Self { dscp: config.dscp, hop_limit: config.hop_limit, dont_fragment }
    }

    /// The ECN field stays zero.
    pub fn put(self, ip: &mut IpHeader) {
        (ip.traffic_class, ip.hop_limit) = (self.dscp << 2, self.hop_limit);
        ip.dont_fragment = self.dont_fragment;
    }
}

impl Path {
    /// The way, when it is still the right one and the neighbour is known. (Becoming known does not
    /// change a generation.)
    #[inline]
    pub fn way(&self, generations: Generations) -> Option<Way> {
        let known = self.known.as_ref()?;
        (known.generations == generations && known.template.is_some()).then_some(known.way)
    }

    /// Whether headers built ahead say what they should of fragmentation: that changes with what routers say.
    #[inline]
    pub fn agrees_with(&self, conn: &Connection) -> bool {
        self.known.as_ref().is_none_or(|known| known.dont_fragment != conn.may_be_fragmented())
    }

    /// The link of [`way`](Self::way), if it leaves transport checksums to us.
    #[inline]
    pub fn summed_link(&self, generations: Generations) -> Option<LinkId> {
        let known = self.known.as_ref()?;
        let is_known = known.generations == generations && known.template.is_some();
        (is_known && known.is_summed).then_some(known.way.link)
    }

    /// The headers for the way, and the ports, ours first.
    #[inline]
    pub fn plain(&self) -> Option<(&HeaderTemplate, (u16, u16))> {
        let known = self.known.as_ref()?;
        Some((known.template.as_ref()?, known.ports))
    }

    /// All headers of a segment, where they are of the most common kind.
    #[inline]
    pub(super) fn common(&self) -> Option<&CommonHeaders> {
        self.known.as_ref()?.common.as_ref()
    }

    /// Gives the memory back; the way is looked up anew when something is sent.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// The headers for the way.
    #[inline]
    pub fn template(&self) -> Option<&HeaderTemplate> {
        self.known.as_ref()?.template.as_ref()
    }
}

impl Output {
    /// The generations that paths are compared with. What changes a link counts as a change of the routes over it.
    #[inline]
    pub fn generations(&self) -> Generations {
        let routes = self.routes.generation().wrapping_add(self.link_changes);
        Generations::new(routes, self.neighbors.generation())
    }

    /// The same for datagrams, whose way also changes with what routers said of their size.
    #[inline]
    pub fn datagram_generations(&self) -> Generations {
        let routes = self.routes.generation().wrapping_add(self.link_changes);
        let routes = routes.wrapping_add(self.path_mtus.generation);
        Generations::new(routes, self.neighbors.generation())
    }

    /// The connection does not get on (RFC 9293 3.8.3: R1): its next packet has the neighbour asked whether it is
    /// there.
    pub fn doubt(&mut self, now: Instant, socket: &mut TcpSocket) {
        if let Some(way) = self.way(socket.conn.ends().remote.ip(), Some(socket.scope)) {
            self.neighbors.doubt(now, way.link, way.next_hop);
        }
        socket.path.forget();
    }

    /// Looks the way of a connection up and builds its headers. `None` when there is no route.
    pub fn find_path(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        scope: Serial,
        marks: Marks,
        path: &mut Path,
    ) -> Option<Way> {
        let (src, dst) = (tuple.local.ip(), tuple.remote.ip());
        path.known = None;
        let way = self.way(dst, Some(scope))?;
        let mut ip = IpHeader::new(src, dst, Protocol::TCP, 0);
        marks.put(&mut ip);
        let ethernet = self.ethernet(now, way, dst);
        // Being used can change the table's generation.
        let generations = self.generations();
        let template =
            ethernet.map(|ethernet| HeaderTemplate::new(ethernet.as_ref(), &ip, generations));
        self.stats.templates_built += u64::from(template.is_some());
        let sums = self.links[way.link.index()].capabilities.tx_checksum;
        let ports = (tuple.local.port(), tuple.remote.port());
        path.known = Some(Box::new(Known {
            way,
            generations,
            is_summed: !if dst.is_ipv4() { sums.v4 } else { sums.v6 },
            ports,
            dont_fragment: marks.dont_fragment,
            common: template.as_ref().and_then(|template| CommonHeaders::new(template, ports)),
            template,
        }));
        Some(way)
    }

    /// The link header to `dst` by `way`, if its link has one (inner `None` otherwise). `None` while the
    /// neighbour is not known.
    pub fn ethernet(
        &mut self,
        now: Instant,
        way: Way,
        dst: IpAddr,
    ) -> Option<Option<EthernetHeader>> {
        let capabilities = &self.links[way.link.index()].capabilities;
        let mac = capabilities.mac;
        if capabilities.medium == Medium::Ip {
            return Some(None);
        }
        let to = self.neighbors.usable(now, way.link, way.next_hop)?;
        Some(Some(EthernetHeader::new(to, mac, EtherType::of(&dst))))
    }
}
