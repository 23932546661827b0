//! Datagrams through a router: the near host sends, a router on a third one hands on, the far host
//! takes them and says how long each was on its way.
//!
//! Each flow is a socket of the near host; all send to one of the far host. The first eight bytes
//! of a datagram are when it was given to the near host's socket (CLOCK_MONOTONIC, nanoseconds,
//! little endian). The far host looks at its clock once for all datagrams of a call: a latency ends
//! where its application has the datagram.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_plan::STAMP_BYTES;

use super::datagrams::{BATCH, Flow, LOOK, Pace, QUIET};
use super::transactions::latencies;
use super::{End, Outcome, Part, Progress, Tracker, monotonic_ns};
use crate::transport::{DatagramId, Network};

/// Bytes of each datagram that the far host reads.
const SEEN_BYTES: usize = 64;
/// A sender that may send again within this time looks at its clock until then: a sleep lasts
/// longer.
const SPIN: Duration = Duration::from_micros(60);

/// Works at one end until `progress` says stop, then ends what it has in order.
pub(super) fn work(
    network: &mut dyn Network,
    part: &Part<'_>,
    progress: &Progress,
) -> io::Result<Outcome> {
    match part.end {
        End::Near => send(network, part, progress),
        End::Far => receive(network, part, progress),
    }
}

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

/// Latencies and memory of the receiving end.
struct Sink {
    latency_ns: Histogram<u64>,
    memory: Vec<u8>,
}

impl Sink {
    /// The datagrams of one call: how many. The latencies of those that were sent and received in
    /// the window are kept.
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
