//! The cached way of a connection: headers built ahead, and what the link does for it.

use millstream_packet::BATCH_LIMIT;
use millstream_route::{HeaderTemplate, LinkId, TransportChecksum};
use millstream_tcp::{Connection, FourTuple, PayloadSource, Segment, TransmitLimits};

use millstream_wire::ip::{IpHeader, Protocol, V4_HEADER_LEN, V6_HEADER_LEN};
use millstream_wire::tcp::MAX_HEADER_LEN;

use crate::engine::Serial;
use crate::engine::context::Context;
use crate::engine::ip::reach::{Generations, IpReach, NextHop};
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
    /// The side that computes transport checksums.
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

/// Fields of the IP header that the application chose, and whether routers may fragment the packet.
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
    /// The next hop, when it is still the right one and the neighbour is known. (Becoming known
    /// does not change a generation.)
    #[inline]
    pub fn next_hop(&self, generations: Generations) -> Option<NextHop> {
        let known = self.known.as_ref()?;
        (known.generations == generations && known.is_resolved).then_some(known.hop)
    }

    /// The link that segments of `conn` go to, and what it takes of them, where it is still the
    /// right one and the headers built ahead say what they should of fragmentation: that changes
    /// with what routers say.
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

    /// The IPv4 identification of the first of these segments; each has its own (RFC 6864 4.1: they
    /// may be any while no router fragments).
    #[inline]
    pub fn count_segments(&mut self, segment: &Segment) -> u16 {
        let size = u32::from(segment.segment_size).max(1);
        let is_one = segment.payload_len <= size;
        let count = if is_one { 1 } else { segment.payload_len.div_ceil(size) };
        let first = self.identification;
        self.identification = first.wrapping_add(count as u16);
        first
    }

    /// Returns what is put before segments that go now, as it was looked up last: the headers,
    /// whether the link header is among them, and who computes the transport checksum.
    #[inline]
    pub fn template(&self) -> Option<(&HeaderTemplate, bool, TransportChecksum)> {
        let known = self.known.as_ref()?;
        Some((&known.template, known.is_resolved, known.checksum))
    }

    /// Looks the next hop of a connection up and builds its headers: what its segments may be, and
    /// the MTU. `None` when there is no route.
    pub fn look_up(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        tuple: &FourTuple,
        scope: Serial,
        marks: Marks,
    ) -> Option<(Ready, usize)> {
        let (src, dst) = (tuple.local.ip(), tuple.remote.ip());
        self.known = None;
        let hop = reach.next_hop(dst, Some(scope))?;
        let mut header = IpHeader::new(src, dst, Protocol::TCP, 0);
        marks.put(&mut header);
        let ethernet = reach.ethernet(cx.now, hop, dst);
        // Being used can change the table's generation.
        let generations = reach.generations();
        let is_resolved = ethernet.is_some();
        let template = HeaderTemplate::new(ethernet.flatten().as_ref(), &header);
        cx.stats.templates_built += u64::from(is_resolved);
        let limits = transmit_limits(reach, hop, dst.is_ipv4());
        let checksum = match limits.payload {
            PayloadSource::Frames { .. } => TransportChecksum::Compute,
            _ => TransportChecksum::Offload,
        };
        let ready = Ready { link: hop.link, limits };
        let dont_fragment = marks.dont_fragment;
        let known =
            Known { hop, ready, generations, checksum, dont_fragment, template, is_resolved };
        self.known = Some(Box::new(known));
        Some((ready, hop.mtu))
    }
}

/// Returns the limits that the link of `hop` sets to what a connection sends.
fn transmit_limits(reach: &IpReach, hop: NextHop, is_v4: bool) -> TransmitLimits {
    let capabilities = &reach.links[hop.link.index()].capabilities;
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
