//! The kernel: its answers, and its tables.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use millstream::route::Prefix;
use millstream::wire::ethernet::MacAddr;
use millstream_netlink::Netlink;
use millstream_netlink::core::NLM_F_DUMP;
use millstream_netlink::packet::address::{AddressAttribute, AddressFlags, AddressMessage};
use millstream_netlink::packet::link::{LinkFlags, LinkMessage};
use millstream_netlink::packet::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use millstream_netlink::packet::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHopFlags,
    RouteType, RouteVia,
};
use millstream_netlink::packet::{AddressFamily, RouteNetlinkMessage};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    pub interface: u32,
    pub gateway: Option<IpAddr>,
    pub weight: u32,
    pub is_dead: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    kind: RouteType,
    prefix: Prefix,
    table: u32,
    metric: u32,
    object: Option<u32>,
    pub mtu: Option<u16>,
    pub hops: Vec<Hop>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Route(Found),
    /// To the host itself, or to several hosts.
    Unforwarded,
    Refused(i32),
}

impl Found {
    /// Returns whether the kernel tells the MTU of one hop alone, though each has its own.
    pub fn is_vague(&self) -> bool {
        self.prefix.addr.is_ipv6() && self.object.is_none() && self.hops.len() > 1
    }
}

pub struct Kernel {
    netlink: Netlink,
    routes: Vec<Found>,
    answers: HashMap<IpAddr, (Answer, Answer)>,
    addresses: Vec<(u32, Prefix)>,
    neighbors: Vec<(u32, IpAddr, MacAddr, bool)>,
    /// Routes that were used and that the kernel's list did not have.
    pub hidden: usize,
    /// Answers of each kind.
    pub kinds: BTreeMap<&'static str, usize>,
}

/// Returns all routes, next hops and interfaces, for who looks for a fault.
pub fn shown() -> String {
    let show = |args: &str| {
        let shown = Command::new("ip").args(args.split(' ')).output().expect("ip runs");
        format!("{args}\n{}", String::from_utf8_lossy(&shown.stdout))
    };
    ["-4 route", "-6 route", "nexthop", "-br link", "-br addr", "neigh"].map(show).concat()
}

fn ip(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(gateway) => ip(gateway),
        RouteAttribute::Via(RouteVia::Inet6(gateway)) => Some((*gateway).into()),
        RouteAttribute::Via(RouteVia::Inet(gateway)) => Some((*gateway).into()),
        _ => None,
    }
}

fn found(message: &RouteMessage) -> Found {
    let RouteMessage { header, attributes, .. } = message;
    let all = match header.address_family {
        AddressFamily::Inet => Prefix::DEFAULT_V4,
        _ => Prefix::DEFAULT_V6,
    };
    let (mut prefix, len) = (all, header.destination_prefix_length);
    let (mut metric, mut mtu, mut object, mut hops) = (0, None, None, Vec::new());
    let mut table = u32::from(header.table);
    let sole = attributes.iter().find_map(gateway);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Table(all) => table = *all,
            RouteAttribute::Destination(addr) => {
                prefix = Prefix::new(ip(addr).expect("an address"), len).expect("a prefix");
            }
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::NhId(id) => object = Some(*id),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) if *mtu != 0 => u16::try_from(*mtu).ok(),
                    _ => None,
                });
            }
            RouteAttribute::Oif(interface) => hops.push(Hop {
                interface: *interface,
                gateway: sole,
                weight: 1,
                is_dead: header.flags.contains(RouteFlags::Dead),
            }),
            RouteAttribute::MultiPath(several) => hops.extend(several.iter().map(|hop| Hop {
                interface: hop.interface_index,
                gateway: hop.attributes.iter().find_map(gateway),
                weight: u32::from(hop.hops) + 1,
                is_dead: hop.flags.contains(RouteNextHopFlags::Dead),
            })),
            _ => {}
        }
    }
    Found { kind: header.kind, prefix, table, metric, object, mtu, hops }
}

impl Kernel {
    pub fn open() -> Self {
        Self {
            netlink: Netlink::route().expect("a socket"),
            routes: Vec::new(),
            answers: HashMap::new(),
            addresses: Vec::new(),
            neighbors: Vec::new(),
            hidden: 0,
            kinds: BTreeMap::new(),
        }
    }

    fn list(&mut self, request: RouteNetlinkMessage) -> Vec<RouteNetlinkMessage> {
        self.netlink.request(request, NLM_F_DUMP).expect("a list")
    }

    /// Waits until each link is as ready as its carrier lets it be: a work queue of the kernel sees
    /// to that, later on a busy machine, and hops die and come alive with it.
    pub fn await_links(&mut self) {
        let is_late = |answer: &RouteNetlinkMessage| {
            let RouteNetlinkMessage::NewLink(link) = answer else { return false };
            let has = |flag| link.header.flags.contains(flag);
            has(LinkFlags::Up) && has(LinkFlags::Running) != has(LinkFlags::LowerUp)
        };
        let all = || RouteNetlinkMessage::GetLink(LinkMessage::default());
        while self.list(all()).iter().any(is_late) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads all that is compared.
    pub fn read(&mut self) {
        self.answers.clear();
        self.routes.clear();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            for answer in self.list(RouteNetlinkMessage::GetRoute(request)) {
                if let RouteNetlinkMessage::NewRoute(route) = answer
                    && !route.header.flags.contains(RouteFlags::Cloned)
                {
                    self.routes.push(found(&route));
                }
            }
        }
        self.addresses.clear();
        for answer in self.list(RouteNetlinkMessage::GetAddress(AddressMessage::default())) {
            if let RouteNetlinkMessage::NewAddress(address) = answer {
                self.take_address(&address);
            }
        }
        self.neighbors.clear();
        for answer in self.list(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default())) {
            if let RouteNetlinkMessage::NewNeighbour(known) = answer {
                self.take_neighbor(&known);
            }
        }
    }

    fn take_address(&mut self, message: &AddressMessage) {
        let (mut own, mut far, mut flags) = (None, None, AddressFlags::empty());
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => own = Some(*ip),
                AddressAttribute::Address(ip) => far = Some(*ip),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        let own_ip = own.or(far).expect("an address");
        let is_pair = far.is_some_and(|far| far != own_ip);
        let len = message.header.prefix_len;
        let prefix = if is_pair {
            Prefix::host(own_ip)
        } else {
            Prefix::new(own_ip, len).expect("a prefix")
        };
        if !flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed) {
            self.addresses.push((message.header.index, prefix));
        }
    }

    fn take_neighbor(&mut self, message: &NeighbourMessage) {
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
        let by_hand = match message.header.state {
            NeighbourState::Permanent => true,
            NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe => false,
            _ => return,
        };
        let Some(mac) = mac else { return };
        self.neighbors.push((message.header.ifindex, ip.expect("an address"), mac, by_hand));
    }

    pub fn addresses(&self) -> Vec<(u32, Prefix)> {
        self.addresses.clone()
    }

    pub fn neighbors(&self) -> Vec<(u32, IpAddr, MacAddr, bool)> {
        self.neighbors.clone()
    }

    /// The whole route to an address, and the hop that one packet takes.
    pub fn get(&mut self, addr: IpAddr) -> (Answer, Answer) {
        if let Some(known) = self.answers.get(&addr) {
            return known.clone();
        }
        let both =
            (self.get_one(addr, RouteFlags::FibMatch), self.get_one(addr, RouteFlags::empty()));
        let kind = match &both.0 {
            Answer::Route(found) if found.object.is_some() => "by an object",
            Answer::Route(found) if found.hops.len() > 1 => "by several hops",
            Answer::Route(_) => "by one hop",
            Answer::Unforwarded => "own",
            Answer::Refused(_) => "refused",
        };
        *self.kinds.entry(kind).or_default() += 1;
        self.answers.insert(addr, both.clone());
        both
    }

    fn get_one(&mut self, addr: IpAddr, flags: RouteFlags) -> Answer {
        let mut request = RouteMessage::default();
        request.header.flags = flags;
        let (family, len, addr) = match addr {
            IpAddr::V4(addr) => (AddressFamily::Inet, 32, RouteAddress::Inet(addr)),
            IpAddr::V6(addr) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(addr)),
        };
        request.header.address_family = family;
        request.header.destination_prefix_length = len;
        request.attributes.push(RouteAttribute::Destination(addr));
        match self.netlink.request(RouteNetlinkMessage::GetRoute(request), 0).as_deref() {
            Ok([RouteNetlinkMessage::NewRoute(route)]) => match route.header.kind {
                RouteType::Unicast => Answer::Route(found(route)),
                _ => Answer::Unforwarded,
            },
            Err(error) => Answer::Refused(-error.raw_os_error().expect("the kernel's number")),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the routes of IPv6 by next-hop objects that may be the one by which a packet went.
    /// The kernel answers for them as for another route by the same object, which it has cached;
    /// where that one is gone meanwhile, it answers that there is none.
    pub fn listed_by_objects(&self, to: IpAddr, taken: &Answer) -> impl Iterator<Item = &Found> {
        let is_gone = *taken == Answer::Refused(-libc::ENETUNREACH);
        let way = match taken {
            Answer::Route(taken) => taken.hops.first().map(|hop| (hop.interface, hop.gateway)),
            _ => None,
        };
        let is_it = move |route: &&Found| {
            let mut ways = route.hops.iter().map(|hop| Some((hop.interface, hop.gateway)));
            let is_way = is_gone || ways.any(|has| has == way);
            is_way && route.object.is_some() && route.prefix.contains(to)
        };
        self.routes.iter().filter(move |_| to.is_ipv6()).filter(is_it)
    }

    /// Returns whether a throw covers an address.
    pub fn is_thrown(&self, addr: IpAddr) -> bool {
        let throws = |route: &&Found| route.kind == RouteType::Throw && route.prefix.contains(addr);
        self.routes.iter().any(|route| throws(&route))
    }

    /// Returns whether the kernel uses a route that its own list does not have: one of IPv6 without
    /// a gateway that lies between those of the same metric that share flows, of which the first
    /// cannot be used.
    pub fn is_hidden(&mut self, addr: IpAddr, used: &Answer) -> bool {
        let covering = self.routes.iter().filter(|route| route.prefix.contains(addr));
        let Some(longest) = covering.map(|route| route.prefix).max_by_key(|prefix| prefix.len)
        else {
            return false;
        };
        let mut of_it = self.routes.iter().filter(|route| route.prefix == longest);
        let hides =
            |route: &Found| route.hops.len() > 1 && route.object.is_none() && route.hops[0].is_dead;
        let is_gateway = matches!(used, Answer::Route(used) if used.hops.iter().any(|hop| hop.gateway.is_some()));
        let hidden = addr.is_ipv6() && !is_gateway && of_it.any(hides);
        self.hidden += usize::from(hidden);
        hidden
    }
}
