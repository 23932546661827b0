//! The mirror: reads, keeps, gives.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use millstream::AddressUse;
use millstream::clock::Clock;
use millstream::packet::Instant;
use millstream::route::{LinkId, Prefix};
use millstream::wire::ethernet::MacAddr;
use millstream_netlink::core::{NLM_F_APPEND, NLM_F_DUMP_INTR, NLM_F_REPLACE};
use millstream_netlink::packet::link::{LinkFlags, LinkMessage};
use millstream_netlink::packet::route::RouteMessage;
use millstream_netlink::packet::{AddressFamily, RouteNetlinkMessage};
use millstream_netlink::{Control, Message, Read, Watch};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

use crate::config::MirrorConfig;
use crate::dump::Dump;
use crate::give::{self, Given, Own, Station};
use crate::host::{self, RouteNews};
use crate::known::Known;
use crate::limits::{MESSAGES_A_POLL, STALL_TIME};
use crate::reading::Reading;
use crate::routes::{HostRoutes, How, Outcome};
use crate::stats::MirrorStats;
use crate::target::Target;

/// Groups of changes (enum rtnetlink_groups).
const GROUP_LINK: u32 = 1;
const GROUP_NEIGHBORS: u32 = 3;
const GROUP_ADDRESSES_V4: u32 = 5;
const GROUP_ROUTES_V4: u32 = 7;
const GROUP_ADDRESSES_V6: u32 = 9;
const GROUP_ROUTES_V6: u32 = 11;
const GROUP_NEXT_HOPS: u32 = 32;

/// Kinds of messages about next-hop objects.
const NEW_NEXT_HOP: u16 = 104;
const DEL_NEXT_HOP: u16 = 105;

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// There may be more to read already: the next poll need not wait.
    pub more: bool,
    /// The target has all that the kernel had told when the poll began.
    pub synchronized: bool,
}

/// Follows the host's tables; see the crate's text. It belongs to the namespace in which it was
/// opened, and to one [`Target`].
pub struct Mirror {
    socket: Watch,
    reading: Reading,
    table: u32,
    routes: HostRoutes,
    addresses: Known<Own, AddressUse>,
    neighbors: Known<Station, (MacAddr, bool)>,
    given: Given,
    follows_routes: bool,
    /// Addresses, or neighbours.
    follows_stations: bool,
    /// For a target without one.
    clock: Clock,
    stats: MirrorStats,
    /// Routes that found no room since all was read last.
    routes_missing: bool,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Mirror {
    /// Opens a mirror of the calling thread's namespace. It takes no privilege. No target gets
    /// anything before the first poll.
    ///
    /// # Errors
    /// Fails with the system's error.
    pub fn open(config: &MirrorConfig) -> io::Result<Self> {
        let MirrorConfig { routes, addresses, neighbors, .. } = *config;
        let groups = [
            (routes || addresses, &[GROUP_ADDRESSES_V4, GROUP_ADDRESSES_V6][..]),
            (routes, &[GROUP_LINK, GROUP_ROUTES_V4, GROUP_ROUTES_V6, GROUP_NEXT_HOPS]),
            (neighbors, &[GROUP_NEIGHBORS]),
        ];
        let socket = Watch::open()?;
        // Beyond net.core.rmem_max with the right to, else as much as there may be.
        if setsockopt(&socket, sockopt::RcvBufForce, &config.receive_buffer_bytes).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &config.receive_buffer_bytes)?;
        }
        for &group in groups.iter().filter(|(on, _)| *on).flat_map(|(_, groups)| *groups) {
            socket.hear(group)?;
        }
        let is_on = |dump: &Dump| match dump {
            Dump::Addresses => addresses,
            Dump::RoutesV4 | Dump::RoutesV6 => routes,
            Dump::Neighbors => neighbors,
        };
        let links = config.links.iter().copied().collect();
        Ok(Self {
            socket,
            reading: Reading::new(Dump::ALL.into_iter().filter(is_on).collect()),
            table: config.table,
            routes: HostRoutes::new(config.routes_limit, links, config.unmapped),
            addresses: Known::new(if addresses { config.addresses_limit } else { 0 }),
            neighbors: Known::new(config.neighbors_limit),
            given: Given::new(),
            follows_routes: routes,
            follows_stations: addresses || neighbors,
            clock: Clock::new(),
            stats: MirrorStats::default(),
            routes_missing: false,
        })
    }

    /// Takes what the kernel has told, a bounded part of it, and gives the target what follows.
    /// While all is read, it gets nothing: then it gets all at once. Never waits.
    ///
    /// # Errors
    /// When the socket fails: what was read is not lost by that. [`io::ErrorKind::InvalidInput`]
    /// for a target that cannot be given what this mirror follows.
    pub fn poll(&mut self, to: &mut impl Target) -> io::Result<Polled> {
        self.check(to)?;
        let now = to.now().unwrap_or_else(|| self.clock.now());
        self.begin(now)?;
        let mut more = self.read(now)?;
        if !more && self.reading.is_stalled(now) {
            self.stats.stalls += 1;
            self.socket.prod()?;
            more = true;
        }
        // Also where the next round begins at once.
        let ended = self.reading.take_ended();
        if ended {
            self.give(to);
        }
        more |= self.begin(now)?;
        if !ended && !self.reading.is_under_way() {
            self.give(to);
        }
        // They do not wait for routes.
        self.give_neighbors(to);
        let synchronized = self.reading.is_whole() && !more;
        Ok(Polled { more, synchronized })
    }

    /// Polls until the target has all that the host has, for `patience` at most.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when it took longer; else as [`poll`](Self::poll).
    pub fn synchronize(&mut self, to: &mut impl Target, patience: Duration) -> io::Result<()> {
        let begun = std::time::Instant::now();
        loop {
            let polled = self.poll(to)?;
            if polled.synchronized {
                return Ok(());
            }
            let left = patience.checked_sub(begun.elapsed());
            let left = left.ok_or(io::ErrorKind::TimedOut)?;
            if !polled.more {
                self.wait(left)?;
            }
        }
    }

    /// Waits until the kernel has told something, for `timeout` at most.
    ///
    /// # Errors
    /// Fails with the system's error.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        // Missing entries are read later, or the read stands still, without an event on the
        // socket.
        let timeout = if self.reading.is_whole() { timeout } else { timeout.min(STALL_TIME) };
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the time of the engine at which [`poll`](Self::poll) has something to do though the
    /// kernel tells nothing. An owner that gives to a route table polls once a second instead.
    pub fn deadline(&self) -> Option<Instant> {
        self.reading.deadline()
    }

    /// Maps the host's interface to this link of the target, or to none, and takes back all that
    /// the former link had from here. Call it with none before the link is removed from its engine,
    /// as its number may become another's.
    pub fn map(&mut self, to: &mut impl Target, interface: u32, link: Option<LinkId>) {
        // Changes told so far belong to the former link.
        self.give(to);
        self.give_neighbors(to);
        let mut freed = HashSet::new();
        if let Some(&former) = self.routes.links().get(&interface)
            && let Some(engine) = to.engine()
        {
            for ((_, own), _) in self.addresses.iter().filter(|((of, _), _)| *of == interface) {
                if give::take_back(engine, &mut self.given, former, own) {
                    freed.insert(own.addr);
                }
            }
            for ((_, ip), _) in self.neighbors.iter().filter(|((of, _), _)| *of == interface) {
                let _ = engine.links().remove_neighbor(former, ip);
            }
        }
        self.routes.set_link(interface, link);
        self.addresses.tell_again(|(of, own)| *of == interface || freed.contains(&own.addr));
        self.neighbors.tell_again(|(of, ip)| *of == interface || freed.contains(ip));
        self.give(to);
        self.give_neighbors(to);
    }

    /// Takes all back that the target got from here, and ends.
    pub fn withdraw(mut self, to: &mut impl Target) {
        self.addresses.clear();
        self.neighbors.clear();
        self.routes.clear();
        self.give(to);
        self.give_neighbors(to);
    }

    /// Returns the numbers of entries that it holds, and its counters.
    pub fn stats(&self) -> MirrorStats {
        MirrorStats {
            routes: self.routes.len(),
            addresses: self.addresses.len(),
            neighbors: self.neighbors.len(),
            ..self.stats
        }
    }

    /// Asks for all, if that is due. Returns whether it was.
    fn begin(&mut self, now: Instant) -> io::Result<bool> {
        let Some(dump) = self.reading.begin(now) else { return Ok(false) };
        self.stats.reads += 1;
        self.routes_missing = false;
        self.socket.ask(dump.request()).map(|()| true)
    }

    /// Reads as much as a poll may; whether there may be more.
    fn read(&mut self, now: Instant) -> io::Result<bool> {
        let before = self.stats.messages;
        while self.stats.messages - before < MESSAGES_A_POLL as u64 {
            match self.socket.read()? {
                Read::Nothing => {
                    self.reading.note_empty();
                    return Ok(false);
                }
                Read::Overrun => {
                    self.stats.overruns += 1;
                    self.reading.lose();
                }
                Read::Datagram => self.take_datagram(now)?,
            }
        }
        Ok(true)
    }

    fn take_datagram(&mut self, now: Instant) -> io::Result<()> {
        let Self {
            socket,
            reading,
            routes,
            addresses,
            neighbors,
            stats,
            table,
            routes_missing,
            ..
        } = self;
        let mut ended = false;
        for message in socket.messages() {
            stats.messages += 1;
            if message.is_answer && message.flags() & NLM_F_DUMP_INTR != 0 {
                reading.spoil();
                reading.want();
            }
            let mut taker = Taker {
                now,
                reading,
                routes,
                addresses,
                neighbors,
                stats,
                table: *table,
                routes_missing,
            };
            ended |= taker.take(&message);
        }
        match ended {
            true => self.end_dump(now),
            false => Ok(()),
        }
    }

    /// Ends a dump: removes the entries that were not in it, and requests the next dump.
    fn end_dump(&mut self, now: Instant) -> io::Result<()> {
        let generation = self.reading.generation();
        let (ended, next) = self.reading.end(now);
        match ended {
            Some(Dump::Addresses) => self.addresses.sweep(generation),
            Some(Dump::RoutesV4) => self.routes.sweep(true, generation),
            Some(Dump::RoutesV6) => self.routes.sweep(false, generation),
            Some(Dump::Neighbors) => self.neighbors.sweep(generation),
            None => {}
        }
        next.map_or(Ok(()), |dump| self.socket.ask(dump.request()))
    }

    /// Refuses a target that cannot be given what is followed.
    fn check(&self, to: &mut impl Target) -> io::Result<()> {
        let why = if self.follows_stations && to.engine().is_none() {
            "a route table gets no addresses and no neighbours: MirrorConfig::addresses(false).neighbors(false)"
        } else if self.follows_routes && to.table().is_none() {
            "the engine goes by a route table that another owns, which gets the routes: MirrorConfig::routes(false)"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    fn give(&mut self, to: &mut impl Target) {
        let Self { routes, addresses, neighbors, given, stats, .. } = self;
        let with_addresses = match to.engine() {
            Some(engine) => {
                give::addresses(engine, addresses, neighbors, routes.links(), given, stats)
            }
            None => Vec::new(),
        };
        if self.follows_routes
            && let Some(table) = to.table()
        {
            for (prefix, has) in with_addresses {
                routes.found(prefix, &has);
            }
            give::routes(table, routes, stats);
        }
    }

    fn give_neighbors(&mut self, to: &mut impl Target) {
        if let Some(engine) = to.engine() {
            give::neighbors(engine, &mut self.neighbors, self.routes.links(), &mut self.stats);
        }
    }
}

impl AsFd for Mirror {
    /// Returns the socket, which is readable when the kernel has told something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The parts of a mirror that a message of the kernel changes.
struct Taker<'a> {
    now: Instant,
    reading: &'a mut Reading,
    routes: &'a mut HostRoutes,
    addresses: &'a mut Known<Own, AddressUse>,
    neighbors: &'a mut Known<Station, (MacAddr, bool)>,
    stats: &'a mut MirrorStats,
    table: u32,
    routes_missing: &'a mut bool,
}

impl Taker<'_> {
    /// Takes a message. Returns true if it ends the dump that is being read.
    fn take(&mut self, message: &Message<'_>) -> bool {
        if let Some(control) = message.control() {
            return self.take_control(control, message.is_answer);
        }
        if message.is_answer {
            self.reading.note_progress(self.now);
        }
        if matches!(message.kind(), NEW_NEXT_HOP | DEL_NEXT_HOP) {
            self.reading.want_settled(self.now);
            return false;
        }
        match message.parse() {
            Some(RouteNetlinkMessage::NewRoute(route)) => self.take_route(&route, Some(message)),
            Some(RouteNetlinkMessage::DelRoute(route)) => self.take_route(&route, None),
            Some(RouteNetlinkMessage::NewAddress(address)) => {
                self.take_address(&address, Some(message.is_answer));
            }
            Some(RouteNetlinkMessage::DelAddress(address)) => self.take_address(&address, None),
            Some(RouteNetlinkMessage::NewNeighbour(neighbor)) => {
                self.take_neighbor(&neighbor, true, message.is_answer);
            }
            Some(RouteNetlinkMessage::DelNeighbour(neighbor)) => {
                self.take_neighbor(&neighbor, false, message.is_answer);
            }
            // A bridge tells of its ports besides.
            Some(RouteNetlinkMessage::NewLink(LinkMessage { header, .. }))
                if header.interface_family != AddressFamily::Bridge =>
            {
                let flags = LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp;
                let ready = Some(header.flags & flags);
                self.reading.note_interface(header.index, ready, self.now);
            }
            Some(RouteNetlinkMessage::DelLink(link)) => {
                self.reading.note_interface(link.header.index, None, self.now);
            }
            Some(_) => {}
            None => {
                self.stats.messages_unread += 1;
            }
        }
        false
    }

    fn take_control(&mut self, control: Control, is_answer: bool) -> bool {
        match control {
            Control::Overrun => self.reading.lose(),
            _ if !is_answer => {}
            Control::Done(0) => return true,
            Control::Done(_) => {
                self.reading.spoil();
                self.reading.want_later(self.now);
                return true;
            }
            Control::Refused(0) => {}
            // An earlier request is still under way.
            Control::Refused(code) if matches!(-code, libc::EBUSY | libc::ENOBUFS) => {
                self.reading.give_up(self.now);
            }
            Control::Refused(code) => {
                // A kernel without this family has nothing of it.
                if !matches!(-code, libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::ENOENT) {
                    self.reading.spoil();
                    self.reading.want_later(self.now);
                }
                return true;
            }
        }
        false
    }

    /// Takes in a route that exists, as the message `new` says, or one that is gone.
    fn take_route(&mut self, route: &RouteMessage, new: Option<&Message<'_>>) {
        let route = match host::route(route, self.table) {
            RouteNews::Route(route) => route,
            RouteNews::OtherTable => return self.stats.routes_of_other_tables += 1,
            RouteNews::Selective => return self.stats.routes_selective += 1,
            RouteNews::None => return,
        };
        let prefix = route.prefix;
        let outcome = match new {
            Some(message) => {
                let how = match message.flags() {
                    _ if message.is_answer => How::Read,
                    flags if flags & NLM_F_REPLACE != 0 => How::Replace,
                    flags if flags & NLM_F_APPEND != 0 => How::Last,
                    _ => How::First,
                };
                match message.is_answer {
                    true if !self.routes.has_alone(&route) => self.reading.note_found(prefix),
                    true => {}
                    false => self.reading.note_moved(prefix),
                }
                self.routes.add(route, how, self.reading.generation())
            }
            None => {
                self.reading.note_moved(prefix);
                // Routes that found no room may find some now.
                if std::mem::take(self.routes_missing) {
                    self.reading.want_later(self.now);
                }
                self.routes.remove(&route)
            }
        };
        match outcome {
            Outcome::Done => {}
            Outcome::Full => {
                self.stats.routes_refused += 1;
                *self.routes_missing = true;
            }
            Outcome::Unclear => self.reading.want(),
            Outcome::Uncovered => self.reading.want_sometime(self.now),
        }
    }

    /// Takes in an address that exists (`new` says if it was told in answer), or one that is gone
    /// (`None`).
    fn take_address(
        &mut self,
        address: &millstream_netlink::packet::address::AddressMessage,
        new: Option<bool>,
    ) {
        let Some(address) = host::address(address) else { return };
        let key = (address.interface, address.prefix);
        let host = Prefix::host(address.prefix.addr);
        match new {
            Some(is_answer) if address.usable => {
                if is_answer {
                    self.reading.note_found(host);
                } else if host.addr.is_ipv4() && self.addresses.get(key).is_none() {
                    // With the first of an interface its dead hops come alive, and nobody is told.
                    self.reading.want_settled(self.now);
                }
                let fits = self.addresses.put(key, address.usage, self.reading.generation());
                self.stats.addresses_refused += u64::from(!fits);
            }
            Some(_) => self.addresses.remove(key),
            None => {
                self.reading.note_moved(host);
                self.addresses.remove(key);
                // With the last of an interface all its routes go, and nobody is told (of IPv6 they
                // are).
                if host.addr.is_ipv4() {
                    self.reading.want_settled(self.now);
                }
            }
        }
    }

    fn take_neighbor(
        &mut self,
        neighbor: &millstream_netlink::packet::neighbour::NeighbourMessage,
        is_there: bool,
        is_answer: bool,
    ) {
        let Some(neighbor) = host::neighbor(neighbor) else { return };
        let key = (neighbor.interface, neighbor.ip);
        let generation = self.reading.generation();
        let host = Prefix::host(neighbor.ip);
        let known = neighbor.known.filter(|_| is_there);
        match is_answer {
            true if self.neighbors.get(key) != known => self.reading.note_found(host),
            true => {}
            false => self.reading.note_moved(host),
        }
        match known {
            _ if !self.routes.links().contains_key(&neighbor.interface) => {
                self.neighbors.remove(key);
            }
            Some(known) => {
                let fits = self.neighbors.put(key, known, generation);
                self.stats.neighbors_refused += u64::from(!fits);
            }
            // The engine, too, is to ask anew: another may have come in its place.
            None if !is_answer && (!is_there || neighbor.has_failed) => self.neighbors.revoke(key),
            None => self.neighbors.remove(key),
        }
    }
}
