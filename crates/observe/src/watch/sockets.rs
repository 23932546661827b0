//! Sockets of the namespace with what waits in their queues.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use millstream_netlink::{InetSocket, Protocol, State, each_inet_socket};
use serde::Serialize;

use super::limits;
use crate::probe::Absent;

/// All sockets of one look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sockets {
    /// Age of the reading, seconds: with very many sockets not each interval has one of its own.
    pub age_s: f64,
    /// Number of sockets by protocol and state, as `tcp ESTAB`.
    pub count: BTreeMap<String, u64>,
    /// Bytes that wait for applications, of all.
    pub receive_queue_bytes: u64,
    /// Bytes that are not acknowledged or not sent, of all.
    pub send_queue_bytes: u64,
    /// The sockets with the most in their queues and the most moved, `limits::SOCKETS_SHOWN` at
    /// most.
    pub first: Vec<SocketRates>,
    /// Sockets that are counted and not in `first`.
    pub left_out: u64,
}

/// One socket in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SocketRates {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// Its state, as `ss` writes it.
    pub state: &'static str,
    /// Its own end.
    pub local: String,
    /// The peer's end, if it has one.
    pub remote: Option<String>,
    /// Bytes that wait for the application; of a listener, connections.
    pub receive_queue: u32,
    /// Bytes not acknowledged or not sent; of a listener, the most connections that may wait.
    pub send_queue: u32,
    /// Memory held by what was received, bytes.
    pub receive_memory_bytes: Option<u32>,
    /// The limit of that memory.
    pub receive_limit_bytes: Option<u32>,
    /// Packets dropped in this interval for want of room.
    pub drops_per_s: Option<f64>,
    /// Bits received in order.
    pub received_bits_per_s: Option<f64>,
    /// Bits that the peer acknowledged.
    pub acked_bits_per_s: Option<f64>,
    /// Segments sent again.
    pub retransmits_per_s: Option<f64>,
    /// Smoothed round trip.
    pub srtt_us: Option<u32>,
}

/// A look takes no more than this part of the time.
const SHARE: u32 = 20;

/// Looks at the sockets, less often where there are very many.
pub(super) struct Looker {
    at: Instant,
    next: Instant,
    before: HashMap<u64, Counters>,
    found: Result<Sockets, Absent>,
}

/// Counters of one socket since it was opened.
#[derive(Clone, Copy, Default)]
struct Counters {
    acked_bytes: u64,
    received_bytes: u64,
    retransmits: u32,
    drops: u32,
}

impl Looker {
    pub(super) fn open() -> Self {
        let now = Instant::now();
        let none = Err(Absent("not looked at yet".to_owned()));
        let mut looker = Self { at: now, next: now, before: HashMap::new(), found: none };
        looker.look(now);
        looker
    }

    pub(super) fn sample(&mut self) -> Result<Sockets, Absent> {
        let now = Instant::now();
        if now >= self.next {
            self.look(now);
        }
        let found = self.found.clone()?;
        Ok(Sockets { age_s: now.duration_since(self.at).as_secs_f64(), ..found })
    }

    fn look(&mut self, now: Instant) {
        let seconds = now.duration_since(self.at).as_secs_f64();
        self.at = now;
        self.found = self.collect(seconds);
        self.next = now + now.elapsed().saturating_mul(SHARE).min(Duration::from_secs(60));
    }

    fn collect(&mut self, seconds: f64) -> Result<Sockets, Absent> {
        let (mut sockets, mut counters) = (Sockets::default(), HashMap::new());
        let mut all: Vec<(u64, InetSocket)> = Vec::new();
        let before = &self.before;
        let mut take = |one: InetSocket| {
            let kind = format!("{} {}", one.protocol.name(), one.state.name());
            *sockets.count.entry(kind).or_insert(0) += 1;
            if one.state != State::LISTEN {
                sockets.receive_queue_bytes += u64::from(one.receive_queue);
                sockets.send_queue_bytes += u64::from(one.send_queue);
            }
            if counters.len() < limits::SOCKETS_KEPT {
                counters.insert(one.cookie, Counters::of(&one));
            }
            all.push((weight(&one, before.get(&one.cookie)), one));
            if all.len() >= 2 * limits::SOCKETS_SHOWN {
                sockets.left_out += keep_first(&mut all);
            }
        };
        for protocol in Protocol::ALL {
            each_inet_socket(protocol, false, &mut take)
                .map_err(|error| Absent(format!("sock_diag: {error}")))?;
            // Without IPv6 there are none of it.
            let _ = each_inet_socket(protocol, true, &mut take);
        }
        sockets.left_out += keep_first(&mut all);
        let shown = all.iter().map(|(_, one)| rates(one, before.get(&one.cookie), seconds));
        sockets.first = shown.collect();
        self.before = counters;
        Ok(sockets)
    }
}

impl Counters {
    fn of(one: &InetSocket) -> Self {
        let tcp = one.tcp.as_ref();
        Self {
            acked_bytes: tcp.map_or(0, |tcp| tcp.acked_bytes),
            received_bytes: tcp.map_or(0, |tcp| tcp.received_bytes),
            retransmits: tcp.map_or(0, |tcp| tcp.retransmits),
            drops: one.drops.unwrap_or(0),
        }
    }
}

/// Keeps the heaviest and says how many went.
fn keep_first(all: &mut Vec<(u64, InetSocket)>) -> u64 {
    all.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let left_out = all.len().saturating_sub(limits::SOCKETS_SHOWN);
    all.truncate(limits::SOCKETS_SHOWN);
    left_out as u64
}

/// Returns the weight by which sockets are chosen to be shown: bytes that wait in it, and bytes
/// that it moved since `before`.
fn weight(one: &InetSocket, before: Option<&Counters>) -> u64 {
    if one.state == State::LISTEN {
        // A connection that waits is worth more than a byte.
        return u64::from(one.receive_queue) << 16;
    }
    let now = Counters::of(one);
    let moved = before.map_or(0, |before| {
        (now.acked_bytes.saturating_sub(before.acked_bytes))
            .saturating_add(now.received_bytes.saturating_sub(before.received_bytes))
    });
    moved.saturating_add(u64::from(one.receive_queue) + u64::from(one.send_queue))
}

/// A socket with what it did since `before`. One that was not there then has no rates.
fn rates(one: &InetSocket, before: Option<&Counters>, seconds: f64) -> SocketRates {
    let now = Counters::of(one);
    let since = before.filter(|_| seconds > 0.0);
    let rate = |now: u64, before: fn(&Counters) -> u64| {
        since.map(|counters| now.saturating_sub(before(counters)) as f64 / seconds)
    };
    let of_tcp = |rate: Option<f64>| one.tcp.and(rate);
    let received = rate(now.received_bytes, |one| one.received_bytes);
    let acked = rate(now.acked_bytes, |one| one.acked_bytes);
    let retransmits = rate(now.retransmits.into(), |one| one.retransmits.into());
    let drops = rate(now.drops.into(), |one| one.drops.into());
    let has_peer = one.remote.port() != 0;
    SocketRates {
        protocol: one.protocol.name(),
        state: one.state.name(),
        local: one.local.to_string(),
        remote: has_peer.then(|| one.remote.to_string()),
        receive_queue: one.receive_queue,
        send_queue: one.send_queue,
        receive_memory_bytes: one.receive_memory.map(|(held, _)| held),
        receive_limit_bytes: one.receive_memory.map(|(_, limit)| limit),
        drops_per_s: one.drops.and(drops),
        received_bits_per_s: of_tcp(received).map(|bytes| bytes * 8.0),
        acked_bits_per_s: of_tcp(acked).map(|bytes| bytes * 8.0),
        retransmits_per_s: of_tcp(retransmits),
        srtt_us: one.tcp.map(|tcp| tcp.srtt_us).filter(|us| *us > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn a_connection_shows_what_waits_and_what_it_moved_since_the_last_look() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut looker = Looker::open();
        client.write_all(&[1; 50_000]).unwrap();
        looker.next = Instant::now();
        let sockets = looker.sample().unwrap();
        let name = server.local_addr().unwrap().to_string();
        let peer = Some(client.local_addr().unwrap().to_string());
        let of_server = |one: &&SocketRates| one.local == name && one.remote == peer;
        let found = sockets.first.iter().find(of_server).expect("much waits in it");
        assert!(found.receive_queue > 0 && found.received_bits_per_s > Some(0.0), "{found:?}");
        assert!(sockets.count["tcp ESTAB"] >= 2 && sockets.receive_queue_bytes > 0);
    }

    #[test]
    fn a_socket_seen_for_the_first_time_has_no_rate() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = socket.local_addr().unwrap().to_string();
        socket.send_to(&[0; 700], socket.local_addr().unwrap()).unwrap();
        let mut looker = Looker::open();
        let sockets = looker.sample().unwrap();
        let found = sockets.first.iter().find(|one| one.local == name).unwrap();
        assert_eq!(
            (found.drops_per_s, found.received_bits_per_s, found.srtt_us),
            (None, None, None)
        );
    }

    /// A reading that is too expensive for each interval is used again, and says its age.
    #[test]
    fn an_expensive_look_is_used_again() {
        let mut looker = Looker::open();
        looker.next = Instant::now() + Duration::from_secs(60);
        let at = looker.at;
        assert!(looker.sample().is_ok_and(|sockets| sockets.age_s > 0.0) && looker.at == at);
    }
}
