//! Datagrams through a router: the near host sends, a router on a third one hands on, the far host takes them and says
//! how long each was on its way.
//!
//! Each flow is a socket of the near host; all send to one of the far host. The first eight bytes of a datagram are when
//! it was given to the near host's socket (CLOCK_MONOTONIC, nanoseconds, little endian). The far host looks at its clock
//! once for all datagrams of a call: a latency ends where its application has the datagram.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::datagrams::{BATCH, Flow, LOOK, Pace, QUIET};
use super::kind::{Kind, Plan};
use super::transactions::latencies;
use super::{End, Joined, Measure, Outcome, Part, Progress, Tracker, monotonic_ns};
use crate::experiment::{Factor, Levels};
use crate::transport::{DatagramId, Network};
use millstream_record::keys;

/// Bytes of the moment that a datagram begins with.
const STAMP_BYTES: usize = 8;
/// Of each datagram that the far host looks at.
const SEEN_BYTES: usize = 64;
/// A sender that may send again within this time looks at its clock until then: a sleep lasts longer.
const SPIN: Duration = Duration::from_micros(60);

/// A factor that says how the router works, where that is not the kernel.
const fn of_router(
    name: &'static str,
    levels: Levels,
    default: &'static str,
    help: &'static str,
) -> Factor {
    Factor { millstream_only: true, ..Factor::own(name, levels, default, help) }
}

/// See the module's promise.
pub(super) const KIND: Kind = Kind {
    name: "forward",
    result: keys::PACKETS,
    own_factors: &[
        Factor::own(
            "payload_bytes",
            Levels::Number(STAMP_BYTES as u64, 65_507),
            "18",
            "payload bytes of a datagram; 18 over IPv4 make the shortest frame of Ethernet, 60 bytes",
        ),
        Factor::own(
            "send_packets_per_s",
            Levels::WordsOrNumber(&["max"], 1, 100_000_000),
            "max",
            "datagrams that are sent each second; max = as fast as the sender can",
        ),
        Factor::own(
            "flows",
            Levels::Number(1, 1024),
            "1",
            "sockets that send in turn, 32 datagrams each at the most",
        ),
        of_router(
            "router_link",
            Levels::Words(&["tap", "xdp", "packet"]),
            "tap",
            "the router's links, to either host: TAP devices, or AF_XDP or packet sockets on the ends of veth pairs",
        ),
        of_router(
            "ring_packets",
            Levels::WordsOrNumber(&["auto"], 64, 4096),
            "auto",
            "packets that a ring of the router's links takes: the queue of a TAP device, each ring of an AF_XDP socket, \
             the receive buffer of a packet socket; auto = as the links are made",
        ),
        Factor::own(
            "router_cpu",
            Levels::Words(&["own", "near", "far", "free"]),
            "own",
            "the router on the first CPU that neither host has (else on the far host's), on that of a host, or wherever \
             the kernel puts it; a kernel's router with own and far on any but the near host's, else where that sends",
        ),
    ],
    factors: &[],
    watched: false,
    plan: |task| {
        let flows = task.number("flows");
        let datagram_bytes = Some(task.number("payload_bytes"));
        Plan {
            joined: Joined::Flows(flows),
            measure: Measure::Bulk { near_sends: flows, far_sends: 0, datagram_bytes },
        }
    },
    work: |network, part, progress| match part.end {
        End::Near => send(network, &part, progress),
        End::Far => receive(network, &part, progress),
    },
};

/// Sends by each socket in turn until it is to stop.
fn send(network: &mut dyn Network, part: &Part<'_>, progress: &Progress) -> io::Result<Outcome> {
    let datagram_bytes = part.task.number("payload_bytes");
    let bits_per_s = (part.task.number("send_packets_per_s") * datagram_bytes * 8) as u64;
    let mut pace = Pace::new(Flow { sends: true, receives: false, datagram_bytes, bits_per_s });
    let mut memory: Vec<u8> = (0..BATCH * datagram_bytes).map(|at| (at % 251) as u8).collect();
    let mut tracker = Tracker::new();
    let mut sockets = part.sockets.iter().cycle();
    while !progress.stopping() {
        let now_ns = monotonic_ns();
        let count = pace.may_send(now_ns).min(BATCH);
        if count == 0 {
            match pace.rest() {
                rest if rest > SPIN => std::thread::sleep(rest),
                _ => std::hint::spin_loop(),
            }
            continue;
        }
        for datagram in memory.chunks_exact_mut(datagram_bytes).take(count) {
            datagram[..STAMP_BYTES].copy_from_slice(&now_ns.to_le_bytes());
        }
        let list: [&[u8]; BATCH] =
            std::array::from_fn(|at| &memory[at * datagram_bytes..][..datagram_bytes]);
        let &socket = sockets.next().ok_or(io::ErrorKind::NotConnected)?;
        let sent = network.send_datagrams(socket, &list[..count])?;
        pace.sent(sent);
        progress.add((sent * datagram_bytes) as u64, 0);
        tracker.look();
    }
    let (sending, whereabouts) = (part.sockets.len(), tracker.finish());
    Ok(Outcome { sending, whereabouts, ..Outcome::default() })
}

/// Takes what comes until it is to stop and nothing has come for a while.
fn receive(network: &mut dyn Network, part: &Part<'_>, progress: &Progress) -> io::Result<Outcome> {
    let datagram_bytes = part.task.number("payload_bytes");
    let &socket = part.sockets.first().ok_or(io::ErrorKind::NotConnected)?;
    let mut sink = Sink { latency_ns: latencies(), memory: vec![0; BATCH * SEEN_BYTES] };
    let mut tracker = Tracker::new();
    let mut last_ns = monotonic_ns();
    loop {
        let count = sink.take(network, socket, progress)?;
        progress.add(0, (count * datagram_bytes) as u64);
        tracker.look();
        let now_ns = monotonic_ns();
        if count > 0 {
            last_ns = now_ns;
        } else if progress.stopping() && now_ns - last_ns >= QUIET.as_nanos() as u64 {
            break;
        }
    }
    let whereabouts = tracker.finish();
    Ok(Outcome { latency_ns: Some(sink.latency_ns), whereabouts, ..Outcome::default() })
}

/// What the far host keeps.
struct Sink {
    latency_ns: Histogram<u64>,
    memory: Vec<u8>,
}

impl Sink {
    /// The datagrams of one call: how many. The latencies of those that were sent and received in the window are kept.
    fn take(
        &mut self,
        network: &mut dyn Network,
        socket: DatagramId,
        progress: &Progress,
    ) -> io::Result<usize> {
        let Self { latency_ns, memory } = self;
        let mut now_ns = 0;
        network.receive_each(socket, memory, LOOK, &mut |datagram| {
            if now_ns == 0 {
                now_ns = monotonic_ns();
            }
            let Some(&stamp) = datagram.first_chunk::<STAMP_BYTES>() else { return };
            let sent_ns = u64::from_le_bytes(stamp);
            if progress.in_window(sent_ns, now_ns) {
                latency_ns.saturating_record(now_ns.saturating_sub(sent_ns));
            }
        })
    }
}
