//! Messages of the kernel about routes, addresses and neighbours, in the types of this crate.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use millstream::AddressUse;
use millstream::route::{Prefix, Reject};
use millstream::wire::ethernet::MacAddr;
use millstream_netlink::core::Nla;
use millstream_netlink::packet::AddressFamily;
use millstream_netlink::packet::address::{AddressAttribute, AddressFlags, AddressMessage};
use millstream_netlink::packet::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use millstream_netlink::packet::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RoutePreference, RouteProtocol, RouteType, RouteVia,
};

/// One way on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub interface: u32,
    pub gateway: Option<IpAddr>,
    /// Its part of the flows where there are several: 1 to 256.
    pub weight: u16,
    /// It cannot be used now, as its interface is down.
    pub is_dead: bool,
}

impl Hop {
    /// Returns true if both lead the same way; their weights may differ.
    pub fn is_same_way(&self, other: &Self) -> bool {
        (self.interface, self.gateway) == (other.interface, other.gateway)
    }
}

/// A route as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostRoute {
    pub prefix: Prefix,
    pub metric: u32,
    pub mtu: Option<u16>,
    /// It leads nowhere, whatever its hops are.
    pub reject: Option<Reject>,
    /// Next hops in the kernel's order, dead ones too.
    pub hops: Vec<Hop>,
    /// The next-hop object (ip-nexthop(8)) that it goes by.
    pub object: Option<u32>,
    /// It shares flows with others of its prefix and metric that do (rt6_qualify_for_ecmp of the
    /// kernel). No IPv4 route does: there a multipath route is one route.
    pub shares: bool,
    /// RFC 4191's preference (IPv6): among equals the highest is used.
    pub preference: i8,
    /// A hash of the rest by which the kernel tells routes apart.
    pub apart: u32,
}

impl HostRoute {
    /// Returns whether packets can take it now, if only to be rejected.
    pub fn is_alive(&self) -> bool {
        self.reject.is_some() || self.hops.iter().any(|hop| !hop.is_dead)
    }
}

/// The content of a message about a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteNews {
    Route(HostRoute),
    /// A table that is not followed.
    OtherTable,
    /// A route that is for some packets to its prefix alone: of a type of service, or from a
    /// prefix.
    Selective,
    /// No route that packets are forwarded by: of the local table's kinds, or a copy of one.
    None,
}

/// Returns the content of a message about a route; only those of `table` are read.
pub(crate) fn route(message: &RouteMessage, table: u32) -> RouteNews {
    let RouteMessage { header, attributes, .. } = message;
    let mut parts = Parts { table: header.table.into(), ..Parts::default() };
    attributes.iter().for_each(|attribute| parts.take(attribute));
    if parts.table != table {
        return RouteNews::OtherTable;
    }
    let reject = match header.kind {
        RouteType::Unicast => None,
        RouteType::BlackHole => Some(Reject::Blackhole),
        RouteType::Prohibit => Some(Reject::Prohibit),
        // In the last table that is looked at there is nothing behind a throw.
        RouteType::Unreachable | RouteType::Throw => Some(Reject::Unreachable),
        _ => return RouteNews::None,
    };
    let all = match header.address_family {
        AddressFamily::Inet => Prefix::DEFAULT_V4,
        AddressFamily::Inet6 => Prefix::DEFAULT_V6,
        _ => return RouteNews::None,
    };
    if header.flags.contains(RouteFlags::Cloned) {
        return RouteNews::None;
    }
    if header.tos != 0 || header.source_prefix_length != 0 {
        return RouteNews::Selective;
    }
    let addr = parts.destination.unwrap_or(all.addr);
    let Some(prefix) = Prefix::new(addr, header.destination_prefix_length) else {
        return RouteNews::None;
    };
    let Parts { metric, mtu, encapsulated, sole, mut hops, object, preference, apart, .. } = parts;
    if hops.is_empty() {
        let (gateway, is_dead) = (sole.gateway, header.flags.contains(RouteFlags::Dead));
        hops.extend(sole.interface.map(|interface| Hop { interface, gateway, weight: 1, is_dead }));
    }
    // The engine has none of the headers that it would put before them.
    let reject = if encapsulated { Some(Reject::Unreachable) } else { reject };
    let shares = prefix.addr.is_ipv6()
        && object.is_none()
        && header.protocol != RouteProtocol::Ra
        && hops.first().is_some_and(|hop| hop.gateway.is_some());
    let mut hasher = DefaultHasher::new();
    let onlink = header.flags.contains(RouteFlags::Onlink);
    let kind = [header.kind.into(), header.protocol.into(), u8::from(header.scope)];
    (apart, onlink, kind).hash(&mut hasher);
    RouteNews::Route(HostRoute {
        prefix: prefix.network(),
        metric,
        mtu,
        reject,
        hops,
        object,
        shares,
        preference,
        apart: hasher.finish() as u32,
    })
}

/// The attributes of a route that matter here.
#[derive(Default)]
struct Parts {
    table: u32,
    destination: Option<IpAddr>,
    metric: u32,
    mtu: Option<u16>,
    encapsulated: bool,
    sole: SoleHop,
    hops: Vec<Hop>,
    object: Option<u32>,
    preference: i8,
    /// Covers all metrics, the preferred source address, and which hops are said to be on the link.
    apart: u64,
}

#[derive(Default)]
struct SoleHop {
    interface: Option<u32>,
    gateway: Option<IpAddr>,
}

impl SoleHop {
    fn take(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Oif(index) => self.interface = Some(*index),
            RouteAttribute::Gateway(gateway) => self.gateway = ip(gateway),
            // RFC 8950: a gateway of the other family.
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => self.gateway = Some((*gateway).into()),
            RouteAttribute::Via(RouteVia::Inet(gateway)) => self.gateway = Some((*gateway).into()),
            _ => {}
        }
    }
}

impl Parts {
    fn take(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Table(table) => self.table = *table,
            RouteAttribute::Destination(addr) => self.destination = ip(addr),
            RouteAttribute::Priority(metric) => self.metric = *metric,
            RouteAttribute::Metrics(metrics) => {
                let mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => u16::try_from(*mtu).ok(),
                    _ => None,
                });
                self.mtu = mtu.filter(|&mtu| mtu != 0);
                self.tell_apart(attribute);
            }
            RouteAttribute::PrefSource(_) => self.tell_apart(attribute),
            RouteAttribute::NhId(object) => self.object = Some(*object),
            RouteAttribute::Preference(RoutePreference::High) => self.preference = 1,
            RouteAttribute::Preference(RoutePreference::Low) => self.preference = -1,
            RouteAttribute::Encap(_) | RouteAttribute::EncapType(_) => self.encapsulated = true,
            RouteAttribute::MultiPath(hops) => hops.iter().for_each(|hop| self.take_hop(hop)),
            other => self.sole.take(other),
        }
    }

    fn tell_apart(&mut self, attribute: &RouteAttribute) {
        let mut bytes = vec![0; attribute.value_len()];
        attribute.emit_value(&mut bytes);
        let mut hasher = DefaultHasher::new();
        (self.apart, attribute.kind(), bytes).hash(&mut hasher);
        self.apart = hasher.finish();
    }

    fn take_hop(&mut self, hop: &RouteNextHop) {
        let mut sole = SoleHop { interface: Some(hop.interface_index), gateway: None };
        for attribute in &hop.attributes {
            match attribute {
                RouteAttribute::Encap(_) | RouteAttribute::EncapType(_) => self.encapsulated = true,
                other => sole.take(other),
            }
        }
        let (interface, weight) = (hop.interface_index, u16::from(hop.hops) + 1);
        let is_dead = hop.flags.contains(RouteNextHopFlags::Dead);
        let is_onlink = hop.flags.contains(RouteNextHopFlags::Onlink);
        self.apart = self.apart << 1 ^ u64::from(is_onlink);
        self.hops.push(Hop { interface, gateway: sole.gateway, weight, is_dead });
    }
}

fn ip(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

/// An address as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostAddress {
    pub interface: u32,
    pub prefix: Prefix,
    /// Nobody else has it, as far as the kernel has found out.
    pub usable: bool,
    /// Set for IPv4 addresses behind the first of a network: there the kernel looks at no
    /// lifetimes.
    pub usage: AddressUse,
}

pub(crate) fn address(message: &AddressMessage) -> Option<HostAddress> {
    let (mut local, mut far) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => far = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let own = local.or(far)?;
    let prefix = match far {
        // On a point-to-point interface the prefix is about the other end.
        Some(far) if far != own => Prefix::host(own),
        _ => Prefix::new(own, message.header.prefix_len)?,
    };
    let usable = !flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed);
    let is_v6 = own.is_ipv6();
    let usage = AddressUse {
        deprecated: flags.contains(match is_v6 {
            true => AddressFlags::Deprecated,
            false => AddressFlags::Secondary,
        }),
        // The same bit (`IFA_F_TEMPORARY`).
        temporary: is_v6 && flags.contains(AddressFlags::Secondary),
    };
    Some(HostAddress { interface: message.header.index, prefix, usable, usage })
}

/// A neighbour as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostNeighbor {
    pub interface: u32,
    pub ip: IpAddr,
    /// Its address, and whether it was set by hand; `None` where the kernel does not know it, or
    /// not any more.
    pub known: Option<(MacAddr, bool)>,
    /// It did not answer the kernel.
    pub has_failed: bool,
}

pub(crate) fn neighbor(message: &NeighbourMessage) -> Option<HostNeighbor> {
    let (mut ip, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(addr)) => {
                ip = Some(IpAddr::from(*addr));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(addr)) => {
                ip = Some(IpAddr::from(*addr));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = <[u8; 6]>::try_from(&bytes[..]).ok().map(MacAddr);
            }
            _ => {}
        }
    }
    if message.header.flags.contains(NeighbourFlags::Proxy) {
        return None;
    }
    let by_hand = match message.header.state {
        NeighbourState::Permanent => Some(true),
        NeighbourState::Reachable
        | NeighbourState::Stale
        | NeighbourState::Delay
        | NeighbourState::Probe => Some(false),
        _ => None,
    };
    let known = by_hand.and_then(|by_hand| mac.map(|mac| (mac, by_hand)));
    let has_failed = message.header.state == NeighbourState::Failed;
    Some(HostNeighbor { interface: message.header.ifindex, ip: ip?, known, has_failed })
}
