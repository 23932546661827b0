//! The engine: one per core, owner of everything a packet meets between link and socket.

mod api;
mod context;
mod datagram;
mod events;
mod inspect;
mod ip;
mod links;
mod live;
mod memory;
mod random;
pub(crate) mod reader;
mod rx;
mod sleep;
mod sources;
pub(crate) mod tcp;
mod turn;
mod waker;
mod yielding;

use std::io;
use std::time::Duration;

use millstream_link::sys::POLL_LIMIT;
use millstream_link::{Link, Medium, Share};
use millstream_packet::{Instant, Pool, PoolConfig};
use millstream_route::{LinkId, Prefix, Routes};
use millstream_tcp::Config;

use crate::clock::{Clock, CountedClock};
use crate::engine::datagram::echo_table::EchoLayer;
use crate::engine::datagram::udp_table::UdpLayer;
use crate::engine::tcp::TcpLayer;
use crate::error::Error;
use crate::limits::Limits;
use crate::socket::{Readiness, SocketId, SocketKind};
use crate::stats::EngineStats;
use crate::tuning::{self};
pub use api::{
    EchoHandle, Intercept, LinksHandle, ListenerHandle, RoutesHandle, SocketsHandle, TcpHandle,
    UdpHandle,
};
use context::Context;
pub(crate) use datagram::super_datagrams::datagrams_of;
pub use datagram::udp_table::Fragmentation;
pub use datagram::{DatagramInfo, DatagramToSend, EchoRequest, SendOptions, UdpSocketOptions};
pub use events::packet_trace::{Direction, PacketTrace, TraceEnd, TracePoint};
pub use inspect::Inspect;
use ip::IpLayer;
pub(crate) use ip::reach::NextHop;
pub use ip::reach::claims::{AddressCheck, AddressConfig, AddressInfo, AddressState};
pub use ip::reach::group_filter::GroupFilter;
pub use ip::reach::local_prefixes::LocalPrefix;
pub use ip::reach::source::AddressUse;
pub(crate) use links::Serial;
pub use links::{RemovedLink, ReversePath};
pub use live::{LiveConfig, published};
pub(crate) use memory::account::{Account, Held};
pub(crate) use memory::pace::Passed;
pub(crate) use random::Random;
pub(crate) use reader::{Reader, copy_many};
pub use reader::{Received, ReceivedDatagram};
pub(crate) use sleep::Sleep;

pub use tcp::options::TcpSocketOptions;
pub use tcp::requests::Refusal;
pub use turn::Turn;
pub use waker::Waker;

/// The configuration of an engine. Its fields are set by the methods of the same names, or one by
/// one.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::packet::{Pool, PoolConfig};
/// use millstream::{EngineConfig, Limits};
///
/// let pool = Pool::new(PoolConfig::default()).expect("memory");
/// let config = EngineConfig::new(pool)
///     .limits(Limits::default().memory_bytes(64 << 20))
///     .busy_poll(Duration::ZERO);
/// assert_eq!(config.limits.memory_bytes, 64 << 20);
/// ```
#[non_exhaustive]
pub struct EngineConfig {
    /// The pool of its packets. Engines of one process share a pool.
    pub pool: Pool,
    /// Limits of what it holds.
    pub limits: Limits,
    /// Secret for hashes, sequence numbers and ports; `None` takes one from the system. A fixed
    /// seed is for tests.
    pub seed: Option<[u8; 32]>,
    /// Settings of connections that are not configured otherwise. An `mss` at its default stands
    /// for what the link's MTU allows.
    pub tcp: Config,
    /// The longest time that the engine looks for work before it sleeps; it learns by itself when
    /// that is in vain. Zero sleeps at once.
    pub busy_poll: Duration,
    /// Asks the kernel, while the engine lives, for CPUs that wake up within this time
    /// ([`Engine::set_idle_latency`]); `None` asks for nothing.
    pub idle_latency: Option<Duration>,
    /// How addresses are checked and announced.
    pub addresses: AddressConfig,
    /// The routes of a table that somebody else owns ([`EngineConfig::routes`]); `None` gives the
    /// engine a table of its own.
    pub routes: Option<Routes>,
    /// One turn in how many has its stages timed ([`EngineStats::stages`]); 0 times none and costs
    /// nothing.
    pub stage_sample: u32,
    /// One packet in how many has its times taken at each point of its way (docs/trace.md); 0
    /// samples none and costs nothing ([`Engine::set_packet_sample`]).
    pub packet_sample: u32,
    /// Publishes counters for other processes; `None` publishes nothing and costs nothing.
    pub live: Option<LiveConfig>,
    /// The clock.
    pub clock: Clock,
}

impl std::fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineConfig")
            .field("limits", &self.limits)
            .field("tcp", &self.tcp)
            .field("busy_poll", &self.busy_poll)
            .field("idle_latency", &self.idle_latency)
            .field("addresses", &self.addresses)
            .field("routes", &self.routes)
            .field("stage_sample", &self.stage_sample)
            .field("packet_sample", &self.packet_sample)
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}

impl EngineConfig {
    /// The default configuration over a pool.
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            limits: Limits::default(),
            seed: None,
            tcp: Config::default(),
            busy_poll: tuning::BUSY_POLL_DEFAULT,
            idle_latency: None,
            addresses: AddressConfig::default(),
            routes: None,
            stage_sample: 0,
            packet_sample: 0,
            live: None,
            clock: Clock::new(),
        }
    }
}

/// A method for each field, which sets it.
macro_rules! setters {
    ($($field:ident: $type:ty)*) => {
        impl EngineConfig {
            $(
                #[doc = concat!("With another [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

setters! {
    limits: Limits
    tcp: Config
    busy_poll: Duration
    idle_latency: Option<Duration>
    addresses: AddressConfig
    stage_sample: u32
    packet_sample: u32
    clock: Clock
}

impl EngineConfig {
    /// Goes by the routes of a table that somebody else owns, who gives a reader of it
    /// ([`RouteTable::reader`](crate::route::RouteTable::reader)) to any number of engines in any
    /// threads, and changes it in his own. An engine never waits for that, and looks by what was
    /// changed from its next turn on; one that sleeps takes that turn when something comes, or is
    /// woken ([`Engine::waker`]).
    ///
    /// The engine itself changes nothing there:
    /// [`RoutesHandle::table`](crate::RoutesHandle::table),
    /// [`RoutesHandle::add`](crate::RoutesHandle::add) and
    /// [`RoutesHandle::add_gateway`](crate::RoutesHandle::add_gateway) are refused, and an address
    /// comes and goes without the route to its prefix, as with `noprefixroute` of ip-address(8).
    /// The owner inserts that route, too.
    ///
    /// Routes name links by number, so one number is to be the same link in each engine: links that
    /// are added in the same order get the same. What is handed on by a link that this engine does
    /// not have is dropped, counted ([`DropReason::NoLink`](crate::DropReason)), and its sender is
    /// told that the network is unreachable. When a link fails or is removed, its routes stay: the
    /// owner takes them out ([`RouteTable::remove_link`](crate::route::RouteTable::remove_link)),
    /// before another link gets the number.
    #[must_use]
    pub fn routes(mut self, routes: Routes) -> Self {
        self.routes = Some(routes);
        self
    }

    /// Under this name other processes see the engine: see [`LiveConfig`]. Where that cannot be
    /// had, the engine runs without, and [`Inspect::live_error`](crate::Inspect::live_error) says
    /// why.
    #[must_use]
    pub fn live(mut self, config: impl Into<LiveConfig>) -> Self {
        self.live = Some(config.into());
        self
    }

    /// With a fixed [`seed`](field@Self::seed): for tests.
    #[must_use]
    pub fn seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }
}

impl Default for EngineConfig {
    /// A configuration with a pool of its own.
    ///
    /// # Panics
    /// When the system has no memory for the default pool.
    fn default() -> Self {
        Self::new(Pool::new(PoolConfig::default()).expect("memory for the default pool"))
    }
}

/// The stack itself: links below, sockets above. One thread uses it; see [`crate::local`] and
/// [`crate::net`] for the two ways to give it one.
///
/// Nothing happens between calls: an application that drives an engine itself calls
/// [`Engine::run_once`], or [`Engine::turn`] with its own notion of time.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::link::{PairConfig, pair};
/// use millstream::{Engine, EngineConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (near, far) = pair(PairConfig::default())?;
/// let mut engine = Engine::new(EngineConfig::default())?;
/// let link = engine.add_link(Box::new(near))?;
/// engine.add_address(link, "10.9.0.1/24".parse()?)?;
/// let listener = engine.sockets().tcp_listen("10.9.0.1:80".parse()?, 16)?;
/// engine.run_once(Some(Duration::from_millis(1)))?;
/// assert!(engine.listener(listener).accept().is_err(), "nobody has come");
/// # drop(far);
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    cx: Context,
    ip: IpLayer,
    tcp: TcpLayer,
    udp: UdpLayer,
    echo: EchoLayer,
    clock: CountedClock,
    /// The way up.
    rx: rx::Ingress,
    sleeper: sleep::Sleeper,
    memory: memory::Memory,
    /// The state that other processes see of it.
    live: live::Live,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("links", &self.ip.reach.links.used_count())
            .field("connections", &self.tcp.table.sockets.len())
            .field("now", &self.cx.now)
            .finish_non_exhaustive()
    }
}

/// The error for an invalid prefix.
const NO_PREFIX: &str = "a prefix longer than an address";

impl Engine {
    /// An engine without links.
    ///
    /// # Errors
    /// For [`Limits`] of zero that would have connections stand still; when the system gives no
    /// random numbers.
    pub fn new(config: EngineConfig) -> io::Result<Self> {
        let EngineConfig {
            pool,
            mut limits,
            seed,
            tcp,
            busy_poll,
            idle_latency,
            addresses,
            routes,
            stage_sample,
            packet_sample,
            live,
            clock,
        } = config;
        limits.check()?;
        if !tcp.fast_path {
            limits.tuning.fast_path = tuning::FastPath::NONE;
        }
        let seed = match seed {
            Some(seed) => seed,
            None => system_seed()?,
        };
        let now = clock.now();
        let memory = memory::Memory::new(&pool, now);
        let mut engine = Self {
            ip: IpLayer::new(now, addresses, routes, &limits, &seed),
            tcp: TcpLayer::new(tcp, &limits, &seed, now),
            udp: UdpLayer::new(limits.udp_sockets, limits.udp_flows, limits.datagram_queue_bytes),
            echo: EchoLayer::new(limits.icmp_sockets, limits.datagram_queue_bytes),
            clock: CountedClock::new(clock),
            rx: rx::Ingress::new(),
            sleeper: sleep::Sleeper::new(busy_poll, idle_latency),
            memory,
            live: live::Live::new(live.as_ref(), now),
            cx: Context::new(now, pool, limits, EngineStats::new(clock, stage_sample), &seed),
        };
        engine.ip.reach.settle_neighbors(&mut engine.cx);
        engine.cx.sample_packets(packet_sample);
        Ok(engine)
    }

    /// Takes a link in, at any time. On an Ethernet link with an MTU that IPv6 can use it gets its
    /// link-local address (RFC 4291, 2.5.6).
    ///
    /// A link may be a queue of a device that several engines share ([`millstream_link::Shared`]).
    /// Then the engine opens connections from its own part of the ephemeral ports, and a socket on
    /// another engine's is refused. All shared links of an engine must give it the same part, which
    /// stays its own when they are removed, until one with another is added.
    ///
    /// One that has failed ([`Inspect::link_error`](crate::Inspect::link_error)) does not come
    /// back: the interface that takes its place is another link, which may get its addresses. It
    /// gets the lowest number that is free, which may have been that of a link that was removed
    /// ([`LinksHandle::remove`](crate::LinksHandle::remove)). Links that have failed keep theirs
    /// until then; they cost a turn nothing.
    ///
    /// # Errors
    /// [`Error::Limit`] when as many links are in use as may be ([`Limits::links`](crate::Limits)), or when all 65,535
    /// numbers are taken, those of links that have failed among them; [`Error::Invalid`] for
    /// another part of the flows.
    pub fn add_link(&mut self, link: Box<dyn Link>) -> Result<LinkId, Error> {
        // It sleeps on all of them, and on what wakes it.
        if self.ip.reach.links.used_count() >= self.cx.limits.links.min(POLL_LIMIT - 1) {
            return Err(Error::Limit("links"));
        }
        let share = link.share();
        if share != Share::ALL && share != self.cx.share && self.ip.reach.links.has_shared() {
            return Err(Error::Invalid("links of different shares"));
        }
        let waker = self.waker();
        let id = self.ip.reach.links.add(link, waker).ok_or(Error::Limit("links"))?;
        if share != Share::ALL {
            self.cx.share = share;
        }
        self.ip.reach.routing.note_link_change();
        let capabilities = &self.ip.reach.links[id.index()].capabilities;
        let (medium, mac, mtu) = (capabilities.medium, capabilities.mac, capabilities.mtu);
        // RFC 8200, 5: IPv6 needs an MTU of 1280.
        if medium == Medium::Ethernet && mtu >= 1280 {
            let local = millstream_route::link_local(mac);
            self.ip.claim(&mut self.cx, id, Prefix { addr: local.into(), len: 64 });
            self.follow_addresses();
        }
        Ok(id)
    }

    /// Gives the link an address, with the route to its prefix where the route table is the
    /// engine's own ([`EngineConfig::routes`](crate::EngineConfig::routes)). The prefix keeps its
    /// host bits. An address of a link that has failed or was removed goes over to this one, with
    /// the connections that have it.
    ///
    /// Where there may be other stations on the link it is announced, and checked, as
    /// [`EngineConfig::addresses`](crate::EngineConfig) says: mostly it can be used at once.
    ///
    /// # Errors
    /// [`Error::AddrInUse`] when another link has it, or this one; [`Error::Limit`] when there is no room for one more
    /// ([`Limits::addresses`](crate::Limits)) or for its route; [`Error::Invalid`] for what is no
    /// prefix, for an address that no host has on a link (loopback, a group, 0/8, 240/4, IPv4 in
    /// the form of IPv6), and for a link that is not in use. Nothing has changed then. That
    /// somebody else has it shows later
    /// ([`Inspect::address_infos`](crate::Inspect::address_infos)).
    pub fn add_address(&mut self, link: LinkId, prefix: Prefix) -> Result<(), Error> {
        let changed = self.ip.add_address(&mut self.cx, link, prefix);
        self.follow_addresses();
        changed
    }

    /// Its links, with their addresses and neighbours, for a call.
    pub fn links(&mut self) -> LinksHandle<'_> {
        LinksHandle { engine: self }
    }

    /// Its routes, for a call.
    pub fn routes(&mut self) -> RoutesHandle<'_> {
        RoutesHandle { engine: self }
    }

    /// Its sockets, for opening one more.
    #[inline]
    pub fn sockets(&mut self) -> SocketsHandle<'_> {
        SocketsHandle { engine: self }
    }

    /// The connection, for a call.
    #[inline]
    pub fn tcp(&mut self, id: SocketId) -> TcpHandle<'_> {
        TcpHandle { engine: self, id }
    }

    /// The listener, for a call.
    #[inline]
    pub fn listener(&mut self, id: SocketId) -> ListenerHandle<'_> {
        ListenerHandle { engine: self, id }
    }

    /// The UDP socket, for a call.
    #[inline]
    pub fn udp(&mut self, id: SocketId) -> UdpHandle<'_> {
        UdpHandle { engine: self, id }
    }

    /// The echo socket, for a call.
    #[inline]
    pub fn echo(&mut self, id: SocketId) -> EchoHandle<'_> {
        EchoHandle { engine: self, id }
    }

    /// Any destination, for a call: the engine serves addresses that are not its own.
    pub fn intercept(&mut self) -> Intercept<'_> {
        Intercept::of(self)
    }

    /// The pool its packets come from.
    pub fn pool(&self) -> &Pool {
        &self.cx.pool
    }

    /// The time that calls between turns go by: that of the last turn or [`Engine::refresh_time`].
    #[inline]
    pub fn now(&self) -> Instant {
        self.cx.now
    }

    /// Reads the clock for the calls that follow, and returns its time.
    #[inline]
    pub fn refresh_time(&mut self) -> Instant {
        self.cx.now = self.cx.now.max(self.clock.now());
        self.cx.now
    }

    /// Returns a look at what the engine is and does.
    pub fn inspect(&self) -> Inspect<'_> {
        Inspect::new(self)
    }

    /// Counters so far.
    pub fn stats(&self) -> &EngineStats {
        &self.cx.stats
    }

    /// Samples one packet in `every` from now on, or with 0 none any more. What was sampled before
    /// is forgotten.
    pub fn set_packet_sample(&mut self, every: u32) {
        self.cx.sample_packets(every);
    }

    /// Publishes counters for other processes from now on, or, with `None`, no more
    /// ([`LiveConfig`]). It never fails: where it cannot be had the engine runs without, and
    /// [`Inspect::live_error`](crate::Inspect::live_error) says why.
    pub fn set_live(&mut self, config: Option<&LiveConfig>) {
        self.live.set(config, &mut self.cx);
    }

    /// The next socket with news, and what they are. Each socket is named once, with everything
    /// that happened since it was named last.
    #[inline]
    pub fn next_event(&mut self) -> Option<(SocketId, Readiness)> {
        while let Some(id) = self.cx.events.pop() {
            if let Some(pending) = self.pending(id) {
                return Some((id, std::mem::take(pending)));
            }
        }
        None
    }

    /// The news of a socket that nobody has taken yet; `None` when it is gone.
    #[inline]
    fn pending(&mut self, id: SocketId) -> Option<&mut Readiness> {
        let slot = id.slot();
        let (of, pending) = match id.kind() {
            SocketKind::Tcp => self.tcp.table.sockets.get_mut(slot).map(|s| (s.id, &mut s.pending)),
            SocketKind::Listener => {
                self.tcp.table.listeners.slots.get_mut(slot).map(|s| (s.id, &mut s.pending))
            }
            SocketKind::Udp => self.udp.sockets.get_mut(slot).map(|s| (s.id, &mut s.pending)),
            SocketKind::Icmp => self.echo.sockets.get_mut(slot).map(|s| (s.id, &mut s.pending)),
        }?;
        (of == id).then_some(pending)
    }

    /// Returns true if [`Engine::next_event`] may have something.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.cx.events.is_empty()
    }

    /// Forgets news of sockets that are gone, when they are many: an application that never asks
    /// for news has at most twice as many waiting as it has sockets.
    fn trim_events(&mut self) {
        if self.cx.events.len() <= tuning::EVENTS_UNTRIMMED {
            return;
        }
        let Self { cx: Context { events, .. }, tcp, udp, .. } = self;
        let living = tcp.table.sockets.len() + tcp.table.listeners.slots.len() + udp.sockets.len();
        if events.len() <= 2 * living + tuning::EVENTS_UNTRIMMED {
            return;
        }
        let mut events = std::mem::take(events);
        events.retain(|id| self.pending(*id).is_some());
        self.cx.events = events;
    }

    /// Closes a socket of any kind.
    pub fn close(&mut self, id: SocketId) {
        match id.kind() {
            SocketKind::Tcp => self.tcp.close(&mut self.cx, &mut self.ip.reach, id),
            SocketKind::Listener => self.tcp.table.close_listener(&mut self.cx.account, id),
            SocketKind::Udp => {
                self.udp.remove(id, &mut self.cx.account);
                self.ip.reach.addresses.groups.forget(self.cx.now, id);
            }
            SocketKind::Icmp => self.echo.remove(id, &mut self.cx.account),
        }
    }
}

/// Six numbers from the seed, others for each `purpose`.
fn words(seed: &[u8; 32], purpose: u8) -> [u64; 6] {
    use std::hash::Hasher;
    let mut key = [0; 16];
    key.copy_from_slice(&seed[..16]);
    std::array::from_fn(|word| {
        let mut hasher = siphasher::sip::SipHasher24::new_with_key(&key);
        hasher.write(&seed[16..]);
        hasher.write(&[purpose, word as u8]);
        hasher.finish()
    })
}

/// A secret from the system.
fn system_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut seed)?;
    Ok(seed)
}
