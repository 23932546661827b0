//! Settings of a mirror: the parts of the host's tables that it follows, and its limits.

use std::io;

use millstream::route::LinkId;

use crate::limits;

/// Treatment of a prefix that the host reaches only by interfaces that are mapped to no link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmapped {
    /// The engine rejects packets to it as unreachable, so that they do not take the way of a
    /// shorter prefix: those that the host sends through a tunnel, for example.
    #[default]
    Unreachable,
    /// The engine hears nothing of it.
    LeftOut,
}

/// Settings of a [`Mirror`](crate::Mirror): the tables that it follows, the links that it follows
/// them for, and its limits.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    pub(crate) links: Vec<(u32, LinkId)>,
    pub(crate) table: u32,
    pub(crate) unmapped: Unmapped,
    pub(crate) routes: bool,
    pub(crate) addresses: bool,
    pub(crate) neighbors: bool,
    pub(crate) routes_limit: usize,
    pub(crate) addresses_limit: usize,
    pub(crate) neighbors_limit: usize,
    pub(crate) receive_buffer_bytes: usize,
}

impl Default for MirrorConfig {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            table: limits::MAIN_TABLE,
            unmapped: Unmapped::default(),
            routes: true,
            addresses: true,
            neighbors: true,
            routes_limit: limits::ROUTES_LIMIT,
            addresses_limit: limits::ADDRESSES_LIMIT,
            neighbors_limit: limits::NEIGHBORS_LIMIT,
            receive_buffer_bytes: limits::RECEIVE_BUFFER_BYTES,
        }
    }
}

impl MirrorConfig {
    /// Returns a configuration that follows routes of the main table, addresses and neighbours, for
    /// no link yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps the host's interface of this index to a link of the engine: routes, addresses and
    /// neighbours of the interface become those of `link`.
    pub fn link(mut self, interface: u32, link: LinkId) -> Self {
        self.links.push((interface, link));
        self
    }

    /// Maps an interface of the calling thread's namespace, by its name, as [`link`](Self::link)
    /// does.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn interface(self, name: &str, link: LinkId) -> io::Result<Self> {
        let index = nix::net::if_::if_nametoindex(name).map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("no interface {name}"))
        })?;
        Ok(self.link(index, link))
    }

    /// Sets the number of the one route table of the host that is followed: main (254) by default.
    /// Rules (ip-rule(8)) are not followed.
    pub fn table(mut self, table: u32) -> Self {
        self.table = table;
        self
    }

    /// Sets the treatment of routes by interfaces that are not mapped.
    pub fn unmapped(mut self, unmapped: Unmapped) -> Self {
        self.unmapped = unmapped;
        self
    }

    /// Turns the mirroring of routes on or off. It has to be off for an engine that uses a route
    /// table of another owner ([`EngineConfig::routes`](millstream::EngineConfig::routes)).
    pub fn routes(mut self, on: bool) -> Self {
        self.routes = on;
        self
    }

    /// Turns the mirroring of addresses on or off. It is for links by which the engine is the
    /// host's station, as AF_PACKET and AF_XDP. The engine's end of a TAP device is another station
    /// than the host's.
    pub fn addresses(mut self, on: bool) -> Self {
        self.addresses = on;
        self
    }

    /// Turns the mirroring of neighbours on or off.
    pub fn neighbors(mut self, on: bool) -> Self {
        self.neighbors = on;
        self
    }

    /// Limits the routes held; each next hop of a multipath route counts as one.
    pub fn routes_limit(mut self, routes: usize) -> Self {
        self.routes_limit = routes;
        self
    }

    /// Limits the addresses held.
    pub fn addresses_limit(mut self, addresses: usize) -> Self {
        self.addresses_limit = addresses;
        self
    }

    /// Limits the neighbours held.
    pub fn neighbors_limit(mut self, neighbors: usize) -> Self {
        self.neighbors_limit = neighbors;
        self
    }

    /// Sets the memory in which the kernel keeps messages that have not been read, in bytes. Where
    /// it does not suffice, all is read anew.
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> Self {
        self.receive_buffer_bytes = bytes;
        self
    }
}
