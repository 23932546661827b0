//! The messages between the runner and a worker, one JSON text per line.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use hdrhistogram::Histogram;
use millstream_plan::Task;
use millstream_record::{EngineRecord, TcpInfoRecord};
use serde::{Deserialize, Serialize};

use crate::transport::LinkBytes;
use crate::workload::{Counts, End, Ports, Whereabouts, Wrong};

/// Everything a worker needs to know before it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The end; `None`: both, over the in-memory link.
    pub end: Option<End>,
    /// The workload with the levels of its factors.
    pub task: Task,
    /// The stack that it runs on.
    pub stack: StackJob,
    /// CPU of this process (of its near end when it is both).
    pub cpu: Option<usize>,
    /// CPU of the far end when the process is both.
    pub far_cpu: Option<usize>,
    /// CPU of the engine's thread, where it has one; `None`: wherever the kernel puts it.
    pub engine_cpu: Option<usize>,
    /// CPU of the far end's engine thread when the process is both.
    pub far_engine_cpu: Option<usize>,
    /// Buffers of the sockets; `None`: as the stack likes.
    pub buffer_bytes: Option<usize>,
    /// Congestion control, as Linux spells it; `None`: the stack's default.
    pub congestion: Option<String>,
    /// Own address of the sockets that connect; `None`: what the stack chooses.
    pub source: Option<IpAddr>,
}

/// The stack under the workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum StackJob {
    /// The kernel's sockets in the worker's namespace.
    Kernel,
    /// Millstream.
    Millstream(MillstreamJob),
}

/// Placement of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Engine {
    /// The application's thread: run to completion.
    Local,
    /// A thread of its own, behind rings.
    Net,
}

/// The set-up of Millstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MillstreamJob {
    /// The placement of the engine.
    pub engine: Engine,
    /// The link.
    pub link: MillstreamLink,
    /// Largest IP packet of the link.
    pub mtu: u32,
    /// Checksum and segmentation offload of the link.
    pub offload: bool,
    /// Bytes of the longest super-segment over a TAP device; `None` leaves that to the device.
    pub super_segment_bytes: Option<u32>,
    /// Addresses with their prefix lengths (of the near end).
    pub addresses: Vec<(IpAddr, u8)>,
    /// Addresses of the far end, when the process is both.
    pub far_addresses: Vec<(IpAddr, u8)>,
    /// True when other processes see the engine (docs/live.md).
    #[serde(default)]
    pub live: bool,
}

/// The link under Millstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MillstreamLink {
    /// A TAP device of this name, made in the namespace that the path stands for.
    Tap {
        /// The namespace.
        namespace: PathBuf,
        /// The name there.
        name: String,
    },
    /// A macvtap device that has all of this interface of the worker's own namespace.
    Macvtap {
        /// Its name.
        interface: String,
    },
    /// A packet socket on this interface of the worker's own namespace.
    Raw {
        /// Its name.
        interface: String,
    },
    /// An AF_XDP socket on it.
    Xdp {
        /// Its name.
        interface: String,
    },
    /// A link in memory, between two threads of the worker.
    Pair,
}

/// Everything a router needs to know before it starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterJob {
    /// Its links, to the near and to the far host, and its addresses there; a bare router has no
    /// addresses.
    pub links: [(MillstreamLink, Vec<(IpAddr, u8)>); 2],
    /// True for a loop that only moves frames between the links.
    pub is_bare: bool,
    /// Largest IP packet of the links.
    pub mtu: u32,
    /// Checksum and segmentation offload of TAP devices.
    pub offload: bool,
    /// Packets that each ring takes; `None`: as links are made.
    pub ring_packets: Option<u32>,
    /// CPU of its thread.
    pub cpu: Option<usize>,
}

/// An order of the runner to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Open the stack. Answer: [`Reply::Prepared`].
    Start(Box<Job>),
    /// Listen at the far end. Answers: [`Reply::Listening`], and for a far end
    /// alone [`Reply::Connected`] once everybody has come.
    Listen {
        /// Own address.
        address: IpAddr,
    },
    /// Connect the near end. Answer: [`Reply::Connected`].
    Connect {
        /// The far end's address.
        address: IpAddr,
        /// Its ports.
        ports: Ports,
    },
    /// Read the counters over this stretch of CLOCK_MONOTONIC, then end the workload in order.
    /// Answers: [`Reply::Draining`] now and then while that takes long and goes on, [`Reply::Done`]
    /// at its end; the stack and its link stay.
    Measure {
        /// Beginning of the window.
        begin_ns: u64,
        /// Its end.
        end_ns: u64,
    },
    /// Hand on between two links. Answer: [`Reply::Prepared`].
    Route(Box<RouterJob>),
    /// Hand on no more. Answer: [`Reply::Routed`]; the links stay.
    EndRoute,
    /// Close the stack and exit. No answer.
    Leave,
}

/// An answer of a worker to the runner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The stack is open.
    Prepared {
        /// Remarks for the record: fall-backs of the link and the like.
        notes: Vec<String>,
        /// The network namespace that the worker is in.
        namespace_inode: u64,
    },
    /// The far end listens.
    Listening {
        /// Where.
        ports: Ports,
    },
    /// All connections are open and the workload goes.
    Connected,
    /// The window is over, and what was sent in it still arrives.
    Draining,
    /// The workload is over.
    Done(Box<Report>),
    /// The report of a router.
    Routed(Box<RouterReport>),
    /// The worker gives up.
    Failed {
        /// Why, in one line.
        why: String,
    },
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The counters at that moment.
    pub counts: Counts,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Transactions that were timed.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Largest.
    pub max_us: f64,
}

impl Latency {
    /// Summary of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let quantile = |q: f64| histogram.value_at_quantile(q) as f64 / 1e3;
        Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// The report of one end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndReport {
    /// The end.
    pub end: End,
    /// The counters at the beginning of the window, every interval, and its end.
    pub samples: Vec<Sample>,
    /// The counters when everything was over.
    pub totals: Counts,
    /// Latencies inside the window, at the asking end.
    pub latency: Option<Latency>,
    /// Payload inside the window by connection that receives at this end.
    pub received_by: Vec<u64>,
    /// State of the first connections at the end of the window, those on which this end sends
    /// before others.
    pub tcp_info: Vec<TcpInfoRecord>,
    /// Connections on which this end sends.
    pub sending: usize,
    /// The CPUs on which the thread of this end ran.
    pub whereabouts: Whereabouts,
    /// Counters of the workload beside payload and transactions.
    #[serde(default)]
    pub counters: BTreeMap<String, f64>,
    /// Places where bytes were wrong, the first of them.
    #[serde(default)]
    pub wrong: Vec<Wrong>,
    /// Bytes and packets that the stack's own link carried.
    pub link: Option<LinkBytes>,
    /// Counters and times of Millstream's engine.
    pub engine: Option<EngineRecord>,
    /// Remarks for the record.
    pub notes: Vec<String>,
}

/// The report of a router.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RouterReport {
    /// Counters of the engine and of its links; of a bare router those of its links alone.
    pub engine: EngineRecord,
    /// Remarks for the record.
    pub notes: Vec<String>,
}

/// The report of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// One or both ends.
    pub ends: Vec<EndReport>,
    /// CPU time of the process inside the window.
    pub cpu_s: f64,
}
