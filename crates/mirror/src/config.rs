//! What is mirrored, and how much of it.

use std::io;

use millstream::route::LinkId;

use crate::limits;

/// What becomes of a prefix that the host reaches by interfaces of which none is mapped to a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmapped {
    /// It is unreachable for the engine. So its packets do not take a shorter prefix's way, as those that the host sends
    /// through a tunnel would.
    #[default]
    Unreachable,
    /// The engine hears nothing of it.
    LeftOut,
}

/// What a [`Mirror`](crate::Mirror) follows, for which links, and how much it holds at most.
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
    /// Routes of the main table, addresses and neighbours, for no link yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the host has on the interface of this index is the engine's on `link`.
    pub fn link(mut self, interface: u32, link: LinkId) -> Self {
        self.links.push((interface, link));
        self
    }

    /// The same for an interface of the calling thread's namespace, by its name.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn interface(self, name: &str, link: LinkId) -> io::Result<Self> {
        let index = nix::net::if_::if_nametoindex(name).map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("no interface {name}"))
        })?;
        Ok(self.link(index, link))
    }

    /// Which of the host's route tables is followed, and no other: main (254) at first. Rules (ip-rule(8)) are not.
    pub fn table(mut self, table: u32) -> Self {
        self.table = table;
        self
    }

    /// What becomes of routes by interfaces that are not mapped.
    pub fn unmapped(mut self, unmapped: Unmapped) -> Self {
        self.unmapped = unmapped;
        self
    }

    /// Whether routes are mirrored. Not to an engine that goes by a table of another's
    /// ([`EngineConfig::routes`](millstream::EngineConfig::routes)).
    pub fn routes(mut self, on: bool) -> Self {
        self.routes = on;
        self
    }

    /// Whether addresses are mirrored: for links by which the engine is the host's station, as AF_PACKET and AF_XDP. The
    /// engine's end of a TAP device is another station than the host's.
    pub fn addresses(mut self, on: bool) -> Self {
        self.addresses = on;
        self
    }

    /// Whether neighbours are mirrored.
    pub fn neighbors(mut self, on: bool) -> Self {
        self.neighbors = on;
        self
    }

    /// Routes held at most; each next hop of a multipath route counts as one.
    pub fn routes_limit(mut self, routes: usize) -> Self {
        self.routes_limit = routes;
        self
    }

    /// Addresses held at most.
    pub fn addresses_limit(mut self, addresses: usize) -> Self {
        self.addresses_limit = addresses;
        self
    }

    /// Neighbours held at most.
    pub fn neighbors_limit(mut self, neighbors: usize) -> Self {
        self.neighbors_limit = neighbors;
        self
    }

    /// Memory in which the kernel keeps what has not been read, in bytes. Where it does not suffice, all is read anew.
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> Self {
        self.receive_buffer_bytes = bytes;
        self
    }
}
