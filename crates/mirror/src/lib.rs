//! The host's routes, addresses and neighbours in an engine, as the kernel's netlink tells of them.
//!
//! A [`Mirror`] reads the tables of the network namespace in which it is opened, follows every
//! change, and gives an engine the entries of the links that interfaces are mapped to
//! ([`MirrorConfig::link`]). So an engine routes as `ip`, a DHCP client or a routing daemon has set
//! it.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use millstream::link::{RawConfig, RawLink};
//! use millstream::{Engine, EngineConfig};
//! use millstream_mirror::{Mirror, MirrorConfig};
//!
//! let mut engine = Engine::new(EngineConfig::default())?;
//! let raw = RawConfig { interface: "eth0".into(), ..RawConfig::default() };
//! let link = engine.add_link(Box::new(RawLink::open(&raw)?))?;
//! let mut mirror = Mirror::open(&MirrorConfig::new().interface("eth0", link)?)?;
//! mirror.synchronize(&mut engine, Duration::from_secs(10))?;
//! loop {
//!     let more = mirror.poll(&mut engine)?.more;
//!     engine.run_once(Some(Duration::from_millis(if more { 0 } else { 50 })))?;
//! }
//! # }
//! ```
//!
//! An engine that has a thread of its own takes the mirror along in a call of
//! [`with_engine`](millstream::net::Stack::with_engine).
//!
//! **Several engines, one table.** A mirror without addresses and neighbours gives the routes to a
//! [`RouteTable`](millstream::route::RouteTable), by which any number of engines go
//! ([`EngineConfig::routes`](millstream::EngineConfig::routes)). Its owner follows the host in a
//! thread of his own, so no engine spends time on that. Addresses and neighbours are an engine's:
//! each has a mirror of its own for them, without routes. An interface is the same link in each
//! engine.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let pool = millstream::packet::Pool::new(Default::default())?;
//! use std::time::Duration;
//! use millstream::EngineConfig;
//! use millstream::route::{LinkId, RouteTable};
//! use millstream_mirror::{Mirror, MirrorConfig};
//!
//! let of_host = MirrorConfig::new().interface("eth0", LinkId(0))?;
//! let mut table = RouteTable::new();
//! let mut routes = Mirror::open(&of_host.clone().addresses(false).neighbors(false))?;
//! routes.synchronize(&mut table, Duration::from_secs(10))?;
//! // Of each engine, in its own thread: it has eth0 as its first link.
//! let config = EngineConfig::new(pool).routes(table.reader());
//! let stations = Mirror::open(&of_host.routes(false))?;
//! loop {
//!     routes.wait(Duration::from_secs(1))?;
//!     routes.poll(&mut table)?;
//! }
//! # }
//! ```
//!
//! **What is followed.** Unicast, blackhole, unreachable, prohibit and throw routes of one table,
//! with their metrics, MTUs and gateways, of either family. The hops of a multipath route share
//! flows ([`RouteTable::set_multipath`](millstream::route::RouteTable::set_multipath)) by their
//! weights. A route that the engine cannot follow because its interface is not mapped, or because
//! it puts further headers before packets, makes its prefix unreachable: so that nothing that
//! belongs into a tunnel goes out beside it ([`Unmapped`]). Left out, and counted
//! ([`MirrorStats`]), are other tables, routes for a type of service or from a prefix, and all
//! beyond the limits.
//!
//! **What is lost is read again.** Where the kernel had no room for a change, all is read anew, and
//! entries not found then are taken back. The same happens after changes that the kernel makes
//! silently: IPv4 routes that go with an interface or with its last address, and next-hop objects
//! that change.
//!
//! **What a mirror gives is the host's.** The routes of a prefix by the same link and gateway are
//! as the host has them; others that the application has added stay. Routes, addresses and
//! neighbours that it gave stay when a mirror is dropped; [`Mirror::withdraw`] takes them back.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod config;
mod dump;
mod give;
mod host;
mod known;
pub mod limits;
mod mirror;
mod reading;
mod routes;
mod stats;
mod target;

pub use config::{MirrorConfig, Unmapped};
pub use mirror::{Mirror, Polled};
pub use stats::MirrorStats;
pub use target::Target;
