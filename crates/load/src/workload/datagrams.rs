//! Datagrams as fast as each sender can, or as it may: `udp_stream` and `udp_pps`.
//!
//! Each thread has a socket of its own. The first one of an end is the data thread; the others work
//! on a handle of the same stack ([`Network::another`]). A receiver goes on after the end until
//! nothing has come for [`QUIET`], so that what was on its way counts as received.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::admission::{GREETING_BYTES, Ticket};
use super::{Outcome, Progress, Tracker, monotonic_ns};
use crate::limits;
use crate::transport::{Another, DatagramId, Network};

/// Datagrams of one call.
pub(super) const BATCH: usize = 32;
/// Pause between two greetings, and longest wait of a receiver before it looks whether it is to
/// stop.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// Time without a datagram after which those that were sent and have not come are taken for lost.
pub(super) const QUIET: Duration = Duration::from_millis(200);
/// Longest datagram.
const MOST_BYTES: usize = 65_536;

/// The work of this end's sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) sends: bool,
    pub(super) receives: bool,
    pub(super) datagram_bytes: usize,
    /// Rate of all sockets together; 0: no limit.
    pub(super) bits_per_s: u64,
}

/// A new socket whose datagrams go to `peer`.
pub(super) fn bound_to(network: &mut dyn Network, peer: SocketAddr) -> io::Result<DatagramId> {
    let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let (socket, _) = network.bind_datagrams(any.parse().expect("an address"))?;
    network.connect_datagrams(socket, peer)?;
    Ok(socket)
}

/// A socket of the near end that is known to `peer`: both have heard of each other.
pub(super) fn greet(
    network: &mut dyn Network,
    peer: SocketAddr,
    ticket: &Ticket,
) -> io::Result<DatagramId> {
    let greeting = ticket.greeting();
    let socket = bound_to(network, peer)?;
    let mut buffer = [0; 64];
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(limits::STEP_TIMEOUT_MS) {
        network.send_datagrams(socket, &[&greeting])?;
        match network.receive_datagram(socket, &mut buffer, LOOK)? {
            Some(bytes) if buffer[..bytes] == greeting => return Ok(socket),
            _ => {}
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to a datagram"))
}

/// Waits for the greeting with the ticket on a socket of the far end, and answers. From then on the
/// socket takes datagrams of that peer alone.
pub(super) fn await_greeting(
    network: &mut dyn Network,
    socket: DatagramId,
    ticket: &Ticket,
) -> io::Result<()> {
    let greeting = ticket.greeting();
    let mut buffer = [0; 64];
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(limits::STEP_TIMEOUT_MS) {
        let Some((bytes, from)) = network.receive_datagram_from(socket, &mut buffer, LOOK)? else {
            continue;
        };
        if buffer[..bytes.min(buffer.len())] == greeting {
            network.connect_datagrams(socket, from)?;
            // The path may lose some; greetings that come twice are no harm.
            return network.send_datagrams(socket, &[&greeting, &greeting, &greeting]).map(drop);
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no datagram came"))
}

pub(super) fn run(
    network: &mut dyn Network,
    sockets: &[DatagramId],
    flow: Flow,
    progress: &Progress,
) -> io::Result<Outcome> {
    let each = Flow { bits_per_s: flow.bits_per_s / sockets.len().max(1) as u64, ..flow };
    let (&first, others) = sockets.split_first().ok_or(io::ErrorKind::NotConnected)?;
    let mut elsewhere = Vec::new();
    for &socket in others {
        elsewhere.push((network.another(socket)?, socket));
    }
    std::thread::scope(|scope| {
        let spawn = |(open, socket): (Another, DatagramId)| {
            scope.spawn(move || work(open()?.as_mut(), socket, each, progress).map(drop))
        };
        let threads: Vec<_> = elsewhere.into_iter().map(spawn).collect();
        let whereabouts = work(network, first, each, progress)?;
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
        }
        let sending = if flow.sends { sockets.len() } else { 0 };
        Ok(Outcome { sending, whereabouts, ..Outcome::default() })
    })
}

/// Sends and receives on the socket of one thread until `progress` says stop and nothing more
/// arrives.
fn work(
    network: &mut dyn Network,
    socket: DatagramId,
    flow: Flow,
    progress: &Progress,
) -> io::Result<super::Whereabouts> {
    let datagram: Vec<u8> = (0..flow.datagram_bytes).map(|at| (at % 251) as u8).collect();
    let batch = vec![datagram.as_slice(); BATCH];
    let mut memory = vec![0; if flow.receives { MOST_BYTES } else { 0 }];
    let mut tracker = Tracker::new();
    let mut pace = Pace::new(flow);
    let mut quiet_since: Option<Instant> = None;
    loop {
        let stopping = progress.stopping();
        let sends = flow.sends && !stopping;
        if !sends && !flow.receives {
            break;
        }
        if sends {
            match pace.may_send(monotonic_ns()) {
                0 if !flow.receives => std::thread::sleep(pace.rest()),
                0 => {}
                count => {
                    let sent = network.send_datagrams(socket, &batch[..count.min(BATCH)])?;
                    pace.sent(sent);
                    progress.add((sent * flow.datagram_bytes) as u64, 0);
                }
            }
        }
        tracker.look();
        if flow.receives {
            let wait = if sends { Duration::ZERO } else { LOOK };
            let (count, bytes) = network.receive_datagrams(socket, &mut memory, wait)?;
            progress.add(0, payload(count, bytes, flow.datagram_bytes));
            quiet_since = (count == 0).then(|| quiet_since.unwrap_or_else(Instant::now));
            if stopping && quiet_since.is_some_and(|since| since.elapsed() >= QUIET) {
                break;
            }
        }
    }
    Ok(tracker.finish())
}

/// The bytes of those of `count` datagrams, with `bytes` in all, that are not late greetings.
fn payload(count: usize, bytes: usize, datagram_bytes: usize) -> u64 {
    let [count, bytes, each, greeting] =
        [count, bytes, datagram_bytes, GREETING_BYTES].map(|n| n as i64);
    let own = (bytes - count * greeting).checked_div(each - greeting).unwrap_or(count);
    (own.clamp(0, count) * each) as u64
}

/// A count of sent datagrams that keeps a rate.
pub(super) struct Pace {
    begin_ns: u64,
    sent: u64,
    /// Nanoseconds of one; 0: no limit.
    each_ns: f64,
}

impl Pace {
    pub(super) fn new(flow: Flow) -> Self {
        let each_ns = match flow.bits_per_s {
            0 => 0.0,
            rate => flow.datagram_bytes as f64 * 8e9 / rate as f64,
        };
        Self { begin_ns: monotonic_ns(), sent: 0, each_ns }
    }

    pub(super) fn may_send(&self, now_ns: u64) -> usize {
        if self.each_ns == 0.0 {
            return BATCH;
        }
        let due = (now_ns.saturating_sub(self.begin_ns) as f64 / self.each_ns) as u64;
        due.saturating_sub(self.sent) as usize
    }

    pub(super) fn sent(&mut self, count: usize) {
        self.sent += count as u64;
    }

    /// Returns the time until the next datagram, a millisecond at most.
    pub(super) fn rest(&self) -> Duration {
        Duration::from_nanos((self.each_ns as u64).clamp(1, 1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_greeting_is_no_payload() {
        let greeting = GREETING_BYTES;
        for each in [1, 20, 1000, 65_507] {
            assert_eq!(payload(5, 3 * each + 2 * greeting, each), 3 * each as u64);
            assert_eq!(payload(0, 0, each) + payload(1, greeting, each), 0);
        }
        assert_eq!(payload(2, 2 * greeting, greeting), 2 * greeting as u64);
    }

    #[test]
    fn a_pace_is_kept_on_the_average() {
        let flow =
            Flow { sends: true, receives: false, datagram_bytes: 125, bits_per_s: 1_000_000 };
        let mut pace = Pace { begin_ns: 0, ..Pace::new(flow) };
        assert_eq!((pace.may_send(999_000), pace.may_send(10_500_000)), (0, 10));
        pace.sent(10);
        assert_eq!((pace.may_send(10_500_000), pace.may_send(13_000_001)), (0, 3));
        assert_eq!(Pace::new(Flow { bits_per_s: 0, ..flow }).may_send(0), BATCH);
    }
}
