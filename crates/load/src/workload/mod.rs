//! Workloads: what the two workers do over a [`crate::transport::Network`].

mod admission;
mod crr;
mod datagrams;
mod forward;
mod rr;
mod soak;
mod stream;
mod transactions;
mod udp_pps;
mod udp_rr;
mod udp_stream;
mod whereabouts;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hdrhistogram::Histogram;
use millstream_plan::{Joined, Measure, Task, Workload};
use millstream_record::TcpInfoRecord;
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::transport::{ConnId, ConnInfo, DatagramId, ListenerId, Network};

pub use admission::Ticket;
use admission::{Admission, BACKLOG};
use whereabouts::Tracker;
pub use whereabouts::Whereabouts;

/// An end of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Connects; the system under test.
    Near,
    /// Listens; the peer.
    Far,
}

/// Ports the far end listens on, and what is to be shown there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Connections on which the near host sends; also request/response.
    pub near_sends: u16,
    /// Connections on which the far host sends.
    pub far_sends: u16,
    /// Sockets for datagrams, one for each of the near host. Of flows two: one for the greeting,
    /// and the one for all.
    #[serde(default)]
    pub datagrams: Vec<u16>,
    /// Connections and datagrams begin with it.
    pub ticket: Ticket,
}

/// The progress of a data thread while it works. The data thread alone writes the counters; the
/// control thread reads them and writes the rest.
#[derive(Debug)]
pub struct Progress {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    transactions: AtomicU64,
    /// Payload received by each connection that receives at this end.
    received_by: OnceLock<Box<[AtomicU64]>>,
    window_begin_ns: AtomicU64,
    window_end_ns: AtomicU64,
    stop: AtomicBool,
}

/// The counters at one moment, since the beginning of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Payload given to the stack.
    pub sent_bytes: u64,
    /// Payload taken from the stack.
    pub received_bytes: u64,
    /// Finished request/response pairs.
    pub transactions: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            received_by: OnceLock::new(),
            window_begin_ns: AtomicU64::new(u64::MAX),
            window_end_ns: AtomicU64::new(u64::MAX),
            stop: AtomicBool::new(false),
        }
    }
}

impl Progress {
    /// The counters now.
    pub fn counts(&self) -> Counts {
        Counts {
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            transactions: self.transactions.load(Ordering::Relaxed),
        }
    }

    /// Payload taken from each receiving connection until now; empty before the first.
    pub fn received_by(&self) -> Vec<u64> {
        let all = self.received_by.get().map_or(&[][..], |all| all);
        all.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }

    /// Says how many connections receive; once.
    fn open_receivers(&self, count: usize) {
        let _ = self.received_by.set((0..count).map(|_| AtomicU64::new(0)).collect());
    }

    /// The data thread alone writes: no read-modify-write of the bus is needed.
    fn note_received(&self, receiver: usize, bytes: u64) {
        if let Some(count) = self.received_by.get().and_then(|all| all.get(receiver)) {
            count.store(count.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        }
    }

    /// The measured stretch in nanoseconds of CLOCK_MONOTONIC: latencies
    /// outside it are not kept.
    pub fn set_window(&self, begin_ns: u64, end_ns: u64) {
        self.window_end_ns.store(end_ns, Ordering::Relaxed);
        self.window_begin_ns.store(begin_ns, Ordering::Release);
    }

    /// Tells the data thread to bring the workload to its orderly end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Adds to the counters of an end with several threads.
    fn add(&self, sent_bytes: u64, received_bytes: u64) {
        self.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        self.received_bytes.fetch_add(received_bytes, Ordering::Relaxed);
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn in_window(&self, from_ns: u64, to_ns: u64) -> bool {
        from_ns >= self.window_begin_ns.load(Ordering::Acquire)
            && to_ns <= self.window_end_ns.load(Ordering::Relaxed)
    }
}

/// The results of a data thread when it is done.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Latencies of transactions inside the window, nanoseconds.
    pub latency_ns: Option<Histogram<u64>>,
    /// State of the first connections when the end of the window was seen, those on which this end
    /// sends before others.
    pub tcp_info: Vec<TcpInfoRecord>,
    /// Connections on which this end sends.
    pub sending: usize,
    /// The CPUs on which the data thread ran.
    pub whereabouts: Whereabouts,
    /// Counters of the workload beside payload and transactions, over its whole life.
    pub counters: BTreeMap<String, f64>,
    /// The first bytes that were not those sent, as `soak` checks them.
    pub wrong: Vec<Wrong>,
}

/// A place where bytes that this end has read were wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// The connection, from 1.
    pub connection: u64,
    /// Bytes of it before the first wrong one.
    pub offset: u64,
    /// The moment at which it was read, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The bytes from there on that were to come, a few.
    pub expected: Vec<u8>,
    /// As many bytes that came instead.
    pub seen: Vec<u8>,
}

/// A connection and what this end does on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lane {
    conn: ConnId,
    sends: bool,
}

/// The part of a workload at one end: the connections or sockets that its
/// [`Plan`](millstream_plan::Plan) asks for.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The workload with the levels of its factors.
    pub task: &'a Task,
    end: End,
    lanes: Vec<Lane>,
    /// Sockets for datagrams, each connected to one of the other end.
    sockets: Vec<DatagramId>,
    /// The address that each transaction connects to, or the listener that accepts it.
    calls: Calls,
}

impl Part<'_> {
    /// Returns two flags: true when this end sends bulk data, and true when it receives some.
    fn directions(&self) -> (bool, bool) {
        let Measure::Bulk { near_sends, far_sends, .. } = self.task.plan().measure else {
            return (true, true);
        };
        match self.end {
            End::Near => (near_sends > 0, far_sends > 0),
            End::Far => (far_sends > 0, near_sends > 0),
        }
    }
}

/// The connections of one end, ready to run.
#[derive(Debug)]
pub struct Session {
    task: Task,
    end: End,
    lanes: Vec<Lane>,
    sockets: Vec<DatagramId>,
    calls: Calls,
}

/// The source of connections that are made while the workload goes.
#[derive(Clone, Copy, Debug)]
enum Calls {
    None,
    To(SocketAddr),
    /// A listener that accepts from this address alone.
    At(ListenerId, IpAddr),
}

/// Nanoseconds of CLOCK_MONOTONIC, the same for all processes of the machine.
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

/// The listeners of the far end, before anybody has connected.
#[derive(Debug)]
pub struct Listening {
    task: Task,
    /// Listeners of connections on which the near host sends, and of the others; none for
    /// datagrams.
    listeners: Option<(ListenerId, ListenerId)>,
    sockets: Vec<DatagramId>,
    /// The ports that they listen on.
    pub ports: Ports,
}

/// Starts to listen on fresh ports.
pub fn listen(task: Task, network: &mut dyn Network, address: IpAddr) -> io::Result<Listening> {
    let plan = task.plan();
    let ports = Ports { ticket: Ticket::fresh()?, ..Ports::default() };
    let mut listening = Listening { task, listeners: None, sockets: vec![], ports };
    if let Some(count) = plan.far_sockets() {
        for _ in 0..count {
            let (socket, taken) = network.bind_datagrams((address, 0).into())?;
            listening.sockets.push(socket);
            listening.ports.datagrams.push(taken.port());
        }
        return Ok(listening);
    }
    let (near, far) = plan.lanes();
    let (near_sends, first) = network.listen((address, 0).into(), near.max(BACKLOG))?;
    let (far_sends, second) = network.listen((address, 0).into(), far.max(BACKLOG))?;
    listening.listeners = Some((near_sends, far_sends));
    listening.ports.near_sends = first.port();
    listening.ports.far_sends = second.port();
    Ok(listening)
}

/// Opens all connections, one after the other.
pub fn connect(
    task: Task,
    network: &mut dyn Network,
    address: IpAddr,
    ports: &Ports,
) -> io::Result<Session> {
    let plan = task.plan();
    let (near, far) = plan.lanes();
    let mut session = Session::new(task, End::Near);
    for _ in 0..near {
        let conn = ports.ticket.connect(network, (address, ports.near_sends).into())?;
        session.lanes.push(Lane { conn, sends: true });
    }
    for _ in 0..far {
        let conn = ports.ticket.connect(network, (address, ports.far_sends).into())?;
        session.lanes.push(Lane { conn, sends: false });
    }
    match (plan.joined, ports.datagrams.as_slice()) {
        (Joined::Flows(count), &[greeting, port]) => {
            datagrams::greet(network, (address, greeting).into(), &ports.ticket)?;
            for _ in 0..count {
                let socket = datagrams::bound_to(network, (address, port).into())?;
                session.sockets.push(socket);
            }
        }
        (_, all) => {
            for &port in all {
                let to = (address, port).into();
                session.sockets.push(datagrams::greet(network, to, &ports.ticket)?);
            }
        }
    }
    if plan.joined == Joined::Calls {
        let to = (address, ports.near_sends).into();
        ports.ticket.announce(network, to)?;
        session.calls = Calls::To(to);
    }
    session.ready(network)
}

fn work(network: &mut dyn Network, part: &Part<'_>, progress: &Progress) -> io::Result<Outcome> {
    let work = match part.task.workload {
        Workload::TcpStream => stream::work,
        Workload::TcpRr => rr::work,
        Workload::TcpCrr => crr::work,
        Workload::UdpStream => udp_stream::work,
        Workload::UdpRr => udp_rr::work,
        Workload::UdpPps => udp_pps::work,
        Workload::Forward => forward::work,
        Workload::Soak => soak::work,
    };
    work(network, part, progress)
}

impl Listening {
    /// Takes all connections, of those that show the ticket.
    pub fn accept(self, network: &mut dyn Network) -> io::Result<Session> {
        let plan = self.task.plan();
        let (near, far) = plan.lanes();
        let mut session = Session::new(self.task, End::Far);
        if let Some((near_sends, far_sends)) = self.listeners {
            for (count, listener, sends) in [(near, near_sends, false), (far, far_sends, true)] {
                let mut admission = Admission::new(&self.ports.ticket, listener);
                for _ in 0..count {
                    session.lanes.push(Lane { conn: admission.accept(network)?, sends });
                }
                admission.end(network);
            }
            if plan.joined == Joined::Calls {
                let mut admission = Admission::new(&self.ports.ticket, near_sends);
                session.calls = Calls::At(near_sends, admission.announced(network)?);
                admission.end(network);
            }
        }
        session.sockets = self.sockets;
        let greeted = match plan.joined {
            Joined::Flows(_) => session.sockets.drain(..1).collect(),
            _ => session.sockets.clone(),
        };
        for socket in greeted {
            datagrams::await_greeting(network, socket, &self.ports.ticket)?;
        }
        session.ready(network)
    }
}

impl Session {
    fn new(task: Task, end: End) -> Self {
        Self { task, end, lanes: vec![], sockets: vec![], calls: Calls::None }
    }

    fn ready(self, network: &mut dyn Network) -> io::Result<Self> {
        if let Joined::Connections { nodelay: true, .. } = self.task.plan().joined {
            for lane in &self.lanes {
                network.set_nodelay(lane.conn, true)?;
            }
        }
        Ok(self)
    }

    /// Works until `progress` says stop, then ends every connection in order:
    /// all that was sent is received before this returns.
    pub fn run(self, network: &mut dyn Network, progress: &Progress) -> io::Result<Outcome> {
        let Session { task, end, lanes, sockets, calls } = self;
        work(network, &Part { task: &task, end, lanes, sockets, calls }, progress)
    }
}

/// The state of the connections, for the record. Where not all are kept, those that send come
/// first: they alone know what was sent again.
fn describe(network: &mut dyn Network, end: End, lanes: &[Lane]) -> Vec<TcpInfoRecord> {
    let role = if end == End::Near { "near" } else { "far" };
    let mut kept: Vec<(u32, &Lane)> = (0..).zip(lanes).collect();
    kept.sort_by_key(|(_, lane)| !lane.sends);
    kept.truncate(limits::TCP_INFO_CONNECTIONS);
    let infos = network.tcp_info(&kept.iter().map(|(_, lane)| lane.conn).collect::<Vec<_>>());
    let known = kept.iter().zip(infos).filter_map(|(&(number, _), info)| Some((number, info?)));
    let record = |(connection, info): (u32, ConnInfo)| TcpInfoRecord {
        role: role.to_owned(),
        connection,
        stack: String::new(),
        congestion: info.congestion,
        fields: info.fields,
    };
    known.map(record).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
