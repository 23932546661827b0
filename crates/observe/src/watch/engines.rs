//! Millstream's own engines, as far as they are published: what each does, and what waits in its
//! sockets.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use millstream_link::sys::effective_uid;
use millstream_live::{AskError, Directory, Record, Segment, Snapshot};
use serde::Serialize;

use super::limits;

/// An engine may take so long for the first part of what it answers, and for all of it.
const PATIENCE: Duration = Duration::from_millis(100);

/// The engines of this user at one look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Engines {
    /// Each of them.
    pub all: Vec<EngineRates>,
    /// Sockets of all of them, `limits::SOCKETS_SHOWN` at most.
    pub sockets: Vec<EngineSocket>,
    /// Engines of which not all sockets are there, and why.
    pub cut_short: Vec<(String, String)>,
}

/// One engine in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineRates {
    /// Its name, its process, and its number there.
    pub id: String,
    /// TCP connections.
    pub connections: u64,
    /// UDP sockets.
    pub udp_sockets: u64,
    /// Packets and bits received, of all links.
    pub rx_packets_per_s: Option<f64>,
    /// Bits, link headers included.
    pub rx_bits_per_s: Option<f64>,
    /// Packets and bits sent.
    pub tx_packets_per_s: Option<f64>,
    /// Bits, link headers included.
    pub tx_bits_per_s: Option<f64>,
    /// Packets dropped, by the engine and by its links.
    pub drops_per_s: Option<f64>,
    /// Memory that its queues hold, bytes.
    pub held_bytes: u64,
    /// Turns that found something to do.
    pub busy_turns_per_s: Option<f64>,
}

/// One socket of an engine in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineSocket {
    /// The engine.
    pub engine: String,
    /// The id that the engine gives it, for `millstream queue`.
    pub id: String,
    /// Its state.
    pub state: String,
    /// Its own end.
    pub local: String,
    /// The peer's end, if it has one.
    pub remote: Option<String>,
    /// Bytes that wait for the application; datagrams; of a listener, connections.
    pub receive_queue: u64,
    /// Bytes not acknowledged or not sent; of a listener, the most connections that may wait.
    pub send_queue: Option<u64>,
    /// Memory that both queues hold, bytes.
    pub held_bytes: Option<u64>,
    /// Bits received.
    pub received_bits_per_s: Option<f64>,
    /// Bits that the peer acknowledged.
    pub acked_bits_per_s: Option<f64>,
    /// Bytes sent again.
    pub retransmitted_bytes_per_s: Option<f64>,
    /// Smoothed round trip.
    pub srtt_us: Option<u64>,
}

/// Looks at engines, with what they had counted before.
#[derive(Default)]
pub(super) struct Looker {
    engines: HashMap<String, (Instant, [u64; COUNTERS])>,
    sockets: HashMap<(String, String), (Instant, [u64; SOCKET_COUNTERS.len()])>,
}

const COUNTERS: usize = 6;

/// Counters of a connection.
const SOCKET_COUNTERS: [&str; 3] = ["bytes_received", "bytes_acked", "bytes_retransmitted"];

/// Returns the counters of an engine, in the order in which rates are shown.
fn counted(now: &Snapshot) -> [u64; COUNTERS] {
    let total = |name| now.total(name).unwrap_or(0);
    [
        total("link_rx_packets"),
        total("link_rx_bytes"),
        total("link_tx_packets"),
        total("link_tx_bytes"),
        total("drops").saturating_add(total("link_drops")),
        total("turns").saturating_sub(total("idle_turns")),
    ]
}

/// Returns the growth of counters each second; `None` for counters that were not there before.
fn rates<const N: usize>(
    before: Option<&(Instant, [u64; N])>,
    at: Instant,
    now: [u64; N],
) -> [Option<f64>; N] {
    let seconds = before.map(|(then, _)| at.saturating_duration_since(*then).as_secs_f64());
    std::array::from_fn(|place| {
        let grown = now[place].saturating_sub(before?.1[place]);
        seconds.filter(|seconds| *seconds > 0.0).map(|seconds| grown as f64 / seconds)
    })
}

impl Looker {
    /// Looks once, so that the first interval has rates.
    pub(super) fn open() -> Self {
        let mut looker = Self::default();
        looker.sample();
        looker
    }

    pub(super) fn sample(&mut self) -> Engines {
        let mut found = Engines::default();
        let (mut engines, mut sockets) = (HashMap::new(), HashMap::new());
        for mut segment in published() {
            // One that ends meanwhile is left out.
            let Ok(now) = segment.read() else { continue };
            let header = segment.header();
            let id = format!("{}-{}-{}", header.name, header.pid, header.number);
            let (at, counts) = (Instant::now(), counted(&now));
            let rates = rates(self.engines.get(&id), at, counts);
            found.all.push(engine(&id, &now, rates));
            engines.insert(id.clone(), (at, counts));
            if let Some(why) = self.look_at_sockets(&segment, &id, &mut found, &mut sockets) {
                found.cut_short.push((id, why));
            }
        }
        (self.engines, self.sockets) = (engines, sockets);
        found
    }

    /// Asks for the sockets of an engine; why not all of them are there.
    fn look_at_sockets(
        &self,
        segment: &Segment,
        engine: &str,
        found: &mut Engines,
        counted: &mut HashMap<(String, String), (Instant, [u64; SOCKET_COUNTERS.len()])>,
    ) -> Option<String> {
        let (begin, mut why) = (Instant::now(), None);
        let asked = segment.ask("ss", PATIENCE, |line| {
            if found.sockets.len() == limits::SOCKETS_SHOWN {
                why = Some("there are more than are shown".to_owned());
            } else if begin.elapsed() > PATIENCE {
                why = Some("it did not tell them all in time".to_owned());
            }
            if why.is_some() {
                return ControlFlow::Break(());
            }
            let (at, counts) =
                (Instant::now(), SOCKET_COUNTERS.map(|key| line.number(key).unwrap_or(0)));
            let key = (engine.to_owned(), line.get("id").unwrap_or_default().to_owned());
            let rates = rates(self.sockets.get(&key), at, counts);
            // A socket that counts nothing has no rate.
            let rates = if line.get(SOCKET_COUNTERS[0]).is_some() { rates } else { [None; 3] };
            found.sockets.push(socket(engine, &line, rates));
            counted.insert(key, (at, counts));
            ControlFlow::Continue(())
        });
        why.or(asked.err().map(|error: AskError| error.to_string()))
    }
}

/// The engines of this user that run.
fn published() -> Vec<Segment> {
    let directories = Directory::all_of_user(effective_uid());
    let found = directories.iter().filter_map(|directory| directory.engines().ok());
    found.flatten().filter_map(|found| found.segment.ok()).collect()
}

fn engine(id: &str, now: &Snapshot, rates: [Option<f64>; COUNTERS]) -> EngineRates {
    let total = |name| now.total(name).unwrap_or(0);
    let [rx_packets_per_s, rx_bytes, tx_packets_per_s, tx_bytes, drops_per_s, busy_turns_per_s] =
        rates;
    EngineRates {
        id: id.to_owned(),
        connections: total("connections"),
        udp_sockets: total("udp_sockets"),
        rx_packets_per_s,
        rx_bits_per_s: rx_bytes.map(|bytes| bytes * 8.0),
        tx_packets_per_s,
        tx_bits_per_s: tx_bytes.map(|bytes| bytes * 8.0),
        drops_per_s,
        held_bytes: total("memory_held_bytes"),
        busy_turns_per_s,
    }
}

fn socket(engine: &str, line: &Record, rates: [Option<f64>; 3]) -> EngineSocket {
    let word = |key| line.get(key).unwrap_or_default().to_owned();
    let [received, acked, retransmitted_bytes_per_s] = rates;
    EngineSocket {
        engine: engine.to_owned(),
        id: word("id"),
        state: word("state"),
        local: line.get("local").or(line.get("identifier")).unwrap_or_default().to_owned(),
        remote: line.get("remote").map(str::to_owned),
        receive_queue: line.number("recv_q").unwrap_or(0),
        send_queue: line.number("send_q"),
        held_bytes: line.number("held_bytes"),
        received_bits_per_s: received.map(|bytes| bytes * 8.0),
        acked_bits_per_s: acked.map(|bytes| bytes * 8.0),
        retransmitted_bytes_per_s,
        srtt_us: line.number("srtt_us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_was_there_before() {
        let then = Instant::now();
        let at = then + Duration::from_secs(2);
        assert_eq!(rates(None, at, [7]), [None]);
        assert_eq!(rates(Some(&(then, [10, 9])), at, [30, 5]), [Some(10.0), Some(0.0)]);
        assert_eq!(rates(Some(&(at, [10])), at, [30]), [None], "no time has passed");
    }

    #[test]
    fn a_line_of_an_engine_is_a_socket() {
        let line = Record::parse("socket id=udp0.0 state=UNCONN local=0.0.0.0:7 recv_q=3");
        let one = socket("echo-1-0", &line, [None; 3]);
        assert_eq!((one.receive_queue, one.send_queue, one.remote), (3, None, None));
        let line = Record::parse("socket id=icmp0.0 state=UNCONN identifier=77 recv_q=0");
        assert_eq!(socket("echo-1-0", &line, [None; 3]).local, "77");
    }
}
