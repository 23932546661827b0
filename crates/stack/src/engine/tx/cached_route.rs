//! What a connection knows about its way: headers built ahead, and what the link does for it.

use std::net::IpAddr;

use millstream_link::Medium;
use millstream_packet::{BATCH_LIMIT, Instant};
use millstream_route::{Generations, HeaderTemplate, LinkId, TransportChecksum};
use millstream_tcp::{Connection, FourTuple, PayloadSource, Segment, TransmitLimits};
use millstream_wire::ethernet::{EtherType, EthernetHeader};
use millstream_wire::ip::{IpHeader, Protocol, V4_HEADER_LEN, V6_HEADER_LEN};
use millstream_wire::tcp::MAX_HEADER_LEN;

use super::output::{NextHop, Output};
use crate::engine::Serial;
use crate::engine::tcp::table::TcpSocket;
use crate::tuning::HEADROOM_BYTES;

/// A connection's next hop, as it was when last looked up.
#[derive(Default)]
pub(crate) struct CachedRoute {
    /// In a box of its own: quiet connections do without.
    known: Option<Box<Known>>,
    /// IPv4 identification of the next packet.
    identification: u16,
}

struct Known {
    hop: NextHop,
    ready: Ready,
    generations: Generations,
    /// Who computes transport checksums.
    checksum: TransportChecksum,
    /// The headers say that no router is to fragment.
    dont_fragment: bool,
    /// With the link header, unless the neighbour is not known: then packets wait for it.
    template: HeaderTemplate,
    is_resolved: bool,
}

/// The link that segments go to, and what it takes of them.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub link: LinkId,
    pub limits: TransmitLimits,
}

impl Ready {
    /// The same without the fast path: one segment of each decision.
    pub fn one_by_one(self) -> Self {
        let limits = TransmitLimits { super_segment_bytes: 0, segments: 1, ..self.limits };
        Self { limits, ..self }
    }
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

impl CachedRoute {
    /// The next hop, when it is still the right one and the neighbour is known. (Becoming known does not
    /// change a generation.)
    #[inline]
    pub fn next_hop(&self, generations: Generations) -> Option<NextHop> {
        let known = self.known.as_ref()?;
        (known.generations == generations && known.is_resolved).then_some(known.hop)
    }

    /// The link that segments of `conn` go to, and what it takes of them, where it is still the right one and the
    /// headers built ahead say what they should of fragmentation: that changes with what routers say.
    #[inline(always)]
    pub fn ready(&self, generations: Generations, conn: &Connection) -> Option<Ready> {
        let known = self.known.as_ref()?;
        let is_ready = known.generations == generations
            && known.is_resolved
            && known.dont_fragment != conn.may_be_fragmented()
            && conn.config().fast_path;
        is_ready.then_some(known.ready)
    }

    /// Where packets without a link header go.
    pub fn unresolved_hop(&self) -> Option<NextHop> {
        self.known.as_ref().map(|known| known.hop)
    }

    /// Gives the memory back; the route is looked up anew when something is sent.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// The IPv4 identification of the first of these segments; each has its own (RFC 6864 4.1: they may be any while no
    /// router fragments).
    #[inline]
    pub fn count_segments(&mut self, segment: &Segment) -> u16 {
        let size = u32::from(segment.segment_size).max(1);
        let is_one = segment.payload_len <= size;
        let count = if is_one { 1 } else { segment.payload_len.div_ceil(size) };
        let first = self.identification;
        self.identification = first.wrapping_add(count as u16);
        first
    }

    /// What is put before segments that go now, as they were looked up last: the headers, whether the link header is
    /// among them, and who computes the transport checksum.
    #[inline]
    pub fn template(&self) -> Option<(&HeaderTemplate, bool, TransportChecksum)> {
        let known = self.known.as_ref()?;
        Some((&known.template, known.is_resolved, known.checksum))
    }
}

impl Output {
    /// The generations that cached routes are compared with. What changes a link counts as a change of the routes over it.
    #[inline]
    pub fn generations(&self) -> Generations {
        let routes = self.routing.generation();
        Generations::new(routes, self.neighbors.generation())
    }

    /// The same for datagrams, whose next hop also changes with what routers said of their size.
    #[inline]
    pub fn datagram_generations(&self) -> Generations {
        let routes = self.routing.generation();
        let routes = routes.wrapping_add(self.path_mtus.generation);
        Generations::new(routes, self.neighbors.generation())
    }

    /// The connection does not get on (RFC 9293 3.8.3: R1): its next packet has the neighbour asked whether it is
    /// there.
    pub fn doubt(&mut self, now: Instant, socket: &mut TcpSocket) {
        if let Some(hop) = self.next_hop(socket.conn.ends().remote.ip(), Some(socket.scope)) {
            self.neighbors.doubt(now, hop.link, hop.address);
        }
        socket.route.forget();
    }

    /// What the link of `hop` lets a connection do.
    fn transmit_limits(&self, hop: NextHop, is_v4: bool) -> TransmitLimits {
        let capabilities = &self.links[hop.link.index()].capabilities;
        let sums = match is_v4 {
            true => capabilities.tx_checksum.v4,
            false => capabilities.tx_checksum.v6,
        };
        let ip_header = if is_v4 { V4_HEADER_LEN } else { V6_HEADER_LEN };
        let super_segment_bytes = match capabilities.tso_bytes {
            Some(bytes) if sums => {
                let bytes = capabilities.tso_v6_bytes.filter(|_| !is_v4).unwrap_or(bytes);
                (bytes as usize).saturating_sub(ip_header + MAX_HEADER_LEN)
            }
            _ => 0,
        };
        let payload = match sums {
            true => PayloadSource::View,
            false => PayloadSource::Frames { headroom: HEADROOM_BYTES },
        };
        TransmitLimits {
            super_segment_bytes: super_segment_bytes as u32,
            segments: BATCH_LIMIT,
            payload,
        }
    }

    /// Looks the next hop of a connection up and builds its headers: what its segments may be, and the MTU. `None` when there is
    /// no route.
    pub fn find_route(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        scope: Serial,
        marks: Marks,
        route: &mut CachedRoute,
    ) -> Option<(Ready, usize)> {
        let (src, dst) = (tuple.local.ip(), tuple.remote.ip());
        route.known = None;
        let hop = self.next_hop(dst, Some(scope))?;
        let mut ip = IpHeader::new(src, dst, Protocol::TCP, 0);
        marks.put(&mut ip);
        let ethernet = self.ethernet(now, hop, dst);
        // Being used can change the table's generation.
        let generations = self.generations();
        let is_resolved = ethernet.is_some();
        let template = HeaderTemplate::new(ethernet.flatten().as_ref(), &ip, generations);
        self.stats.templates_built += u64::from(is_resolved);
        let limits = self.transmit_limits(hop, dst.is_ipv4());
        let checksum = match limits.payload {
            PayloadSource::Frames { .. } => TransportChecksum::Compute,
            _ => TransportChecksum::Offload,
        };
        let ready = Ready { link: hop.link, limits };
        let dont_fragment = marks.dont_fragment;
        let known =
            Known { hop, ready, generations, checksum, dont_fragment, template, is_resolved };
        route.known = Some(Box::new(known));
        Some((ready, hop.mtu))
    }

    /// The link header to `dst` by `hop`, if its link has one (inner `None` otherwise). `None` while the
    /// neighbour is not known.
    pub fn ethernet(
        &mut self,
        now: Instant,
        hop: NextHop,
        dst: IpAddr,
    ) -> Option<Option<EthernetHeader>> {
        let capabilities = &self.links[hop.link.index()].capabilities;
        let mac = capabilities.mac;
        if capabilities.medium == Medium::Ip {
            return Some(None);
        }
        let to = self.neighbors.usable(now, hop.link, hop.address)?;
        Some(Some(EthernetHeader::new(to, mac, EtherType::of(&dst))))
    }
}
