//! Targets of a mirror: an engine, or a route table.

use millstream::Engine;
use millstream::packet::Instant;
use millstream::route::RouteTable;

/// The receiver of all that a [`Mirror`](crate::Mirror) follows, the same at each call.
///
/// - An [`Engine`] gets all that the mirror follows. It needs a route table of its own, unless no
///   routes are followed.
/// - A [`RouteTable`] gets routes alone, and so do all engines that go by it
///   ([`EngineConfig::routes`](millstream::EngineConfig::routes)).
pub trait Target: Gets {}

impl Target for Engine {}
impl Target for RouteTable {}

/// The parts of a target that a mirror changes. It is not exported, so other crates make no
/// targets.
pub trait Gets {
    /// Returns the engine, for addresses and neighbours.
    fn engine(&mut self) -> Option<&mut Engine>;

    /// Returns the route table, for routes.
    fn table(&mut self) -> Option<&mut RouteTable>;

    /// Returns the time, where the target has one.
    fn now(&mut self) -> Option<Instant>;
}

impl Gets for Engine {
    fn engine(&mut self) -> Option<&mut Engine> {
        Some(self)
    }

    fn table(&mut self) -> Option<&mut RouteTable> {
        self.routes().table().ok()
    }

    fn now(&mut self) -> Option<Instant> {
        Some(self.refresh_time())
    }
}

impl Gets for RouteTable {
    fn engine(&mut self) -> Option<&mut Engine> {
        None
    }

    fn table(&mut self) -> Option<&mut RouteTable> {
        Some(self)
    }

    fn now(&mut self) -> Option<Instant> {
        None
    }
}
