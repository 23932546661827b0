//! `TCP_INFO` of the TCP connections that came while it was looked, by netlink (sock_diag): those
//! of the load's processes and their other ends, or, where none is known to be theirs, of whatever
//! program.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use millstream_netlink::{TcpSocket, tcp_sockets};
use millstream_record::{Measured, Probes, TcpInfoRecord};

use super::fullest::Fullest;
use super::host::inside;
use super::owners::{descriptors_of, socket as inode_of};
use super::{Absent, Host, Kind, Probe, Turn, limits};

/// A connection of a host: its local and its remote port.
type Key = (String, u16, u16);

pub(super) const KIND: Kind =
    Kind { name: "flows", open: |config| Ok(Box::new(Flows::open(&config.hosts)?)) };

/// The connections of the hosts. One that was there before is none of the run's.
pub(super) struct Flows {
    hosts: Vec<Host>,
    before: BTreeSet<Key>,
    seen: BTreeMap<Key, Flow>,
    fullest: Fullest,
    turns: usize,
    /// Processes of the load, and the sockets that they had when a connection came last.
    watched: BTreeSet<u32>,
    inodes: BTreeSet<u32>,
    /// Looks, and connections of the run that they found, both ends of one of this machine as one.
    at_once: (usize, usize),
}

/// A connection over the samples that had it.
struct Flow {
    first: (Instant, TcpSocket),
    last: (Instant, TcpSocket),
    samples: usize,
    sums: [f64; SAMPLED.len()],
    /// Samples with a congestion window well below that of the one before, while nothing was sent
    /// again: it was idle, and begins anew.
    restarts: u32,
    /// True where a process of the load has its socket.
    is_own: bool,
}

type OfSample = fn(&TcpSocket) -> f64;

/// Properties of a connection in one sample, from 0 to 1. The record has the mean over all samples.
const SAMPLED: [(&str, OfSample); 6] = [
    // The part of its window that lies in the queue, and nobody has read it.
    ("unread_share", |one| share(field(one, "recv_queue_bytes"), field(one, "rcv_wnd_bytes"))),
    ("send_buffer_full_share", send_buffer_full),
    // The program has no more room, and all that it wrote is on its way, although the congestion
    // window allows more.
    ("send_buffer_limits_share", |one| {
        let all_sent = field(one, "notsent_bytes") == 0.0 && field(one, "unacked_segments") > 0.0;
        let is_full = send_buffer_full(one) >= 0.8;
        f64::from(u8::from(is_full && all_sent && congestion_window_used(one) < 0.5))
    }),
    ("congestion_window_used_share", congestion_window_used),
    // Less than a segment that is not sent, while something is not acknowledged: so waits what
    // Nagle's algorithm holds.
    ("held_share", |one| {
        let waits = field(one, "notsent_bytes");
        let is_held =
            waits > 0.0 && waits < field(one, "mss_bytes") && field(one, "unacked_segments") > 0.0;
        f64::from(u8::from(is_held))
    }),
    // The part of a round trip that is not the path's own length: packets wait in a queue.
    ("queueing_share", |one| {
        let (least, now) = (field(one, "min_rtt_us"), field(one, "srtt_us"));
        share((now - least).max(0.0), least)
    }),
];

/// Part of a congestion window that is left where a connection begins anew.
const RESTARTED: f64 = 0.75;

/// Counters whose rise between the first and the last sample is kept: `watched_busy_s`.
const RISING: [&str; 8] = [
    "busy_s",
    "rwnd_limited_s",
    "sndbuf_limited_s",
    "total_rto_time_s",
    "bytes_acked",
    "bytes_received",
    "data_segments_sent",
    "total_rto",
];

fn field(one: &TcpSocket, name: &str) -> f64 {
    one.fields.get(name).copied().unwrap_or(0.0)
}

fn send_buffer_full(one: &TcpSocket) -> f64 {
    (field(one, "send_memory_bytes") / field(one, "send_limit_bytes").max(1.0)).min(1.0)
}

fn congestion_window_used(one: &TcpSocket) -> f64 {
    let in_flight = field(one, "unacked_segments") * field(one, "mss_bytes");
    (in_flight / field(one, "cwnd_bytes").max(1.0)).min(1.0)
}

/// `part` of it and `rest`; 0 of nothing.
fn share(part: f64, rest: f64) -> f64 {
    if part > 0.0 { part / (part + rest) } else { 0.0 }
}

impl Flow {
    fn new(now: Instant, socket: TcpSocket) -> Self {
        let sums = SAMPLED.map(|(_, of)| of(&socket));
        let (first, last) = ((now, socket.clone()), (now, socket));
        Self { first, last, samples: 1, sums, restarts: 0, is_own: false }
    }

    fn look(&mut self, now: Instant, socket: TcpSocket) {
        self.samples += 1;
        let last = &self.last.1;
        let has_fallen = field(&socket, "cwnd_bytes") < RESTARTED * field(last, "cwnd_bytes");
        let is_same = field(&socket, "retransmits") == field(last, "retransmits");
        self.restarts += u32::from(has_fallen && is_same);
        for (sum, (_, of)) in self.sums.iter_mut().zip(SAMPLED) {
            *sum += of(&socket);
        }
        self.last = (now, socket);
    }

    /// The last sample, with what all of them say.
    fn finish(self) -> TcpSocket {
        let Self { first: (begin, first), last: (end, mut last), samples, sums, restarts, .. } =
            self;
        let watched = end.duration_since(begin).as_secs_f64();
        let means = SAMPLED.iter().zip(sums).map(|((name, _), sum)| (*name, sum / samples as f64));
        let mut more: Vec<(String, f64)> =
            means.map(|(name, mean)| (name.to_owned(), mean)).collect();
        more.push(("watched_s".to_owned(), watched));
        more.push(("window_restarts".to_owned(), f64::from(restarts)));
        for name in RISING {
            if let Some((before, now)) = first.fields.get(name).zip(last.fields.get(name)) {
                more.push((format!("watched_{name}"), (now - before).max(0.0)));
            }
        }
        last.fields.extend(more);
        last
    }
}

impl Flows {
    pub(super) fn open(hosts: &[Host]) -> Result<Self, Absent> {
        Ok(Self {
            hosts: hosts.to_vec(),
            before: BTreeSet::new(),
            seen: BTreeMap::new(),
            fullest: Fullest::default(),
            turns: 0,
            watched: BTreeSet::new(),
            inodes: BTreeSet::new(),
            at_once: (0, 0),
        })
    }

    fn read(&self) -> Result<Vec<(Key, TcpSocket)>, Absent> {
        let mut all = Vec::new();
        for host in &self.hosts {
            let sockets = inside(&host.net, both_families)?;
            let key = |one: &TcpSocket| (host.name.clone(), one.local_port, one.remote_port);
            all.extend(sockets.into_iter().map(|one| (key(&one), one)));
        }
        Ok(all)
    }
}

fn both_families() -> Result<Vec<TcpSocket>, Absent> {
    let refused = |error: std::io::Error| Absent(format!("sock_diag: {error}"));
    let mut all = tcp_sockets(false).map_err(refused)?;
    // Without IPv6 there are none of it.
    all.extend(tcp_sockets(true).unwrap_or_default());
    Ok(all)
}

impl Probe for Flows {
    fn name(&self) -> &'static str {
        "flows"
    }

    fn sample(&mut self, turn: Turn) -> Result<(), Absent> {
        if turn == Turn::First {
            self.before = self.read()?.into_iter().map(|(key, _)| key).collect();
            return Ok(());
        }
        self.turns += 1;
        let looked = self.look(turn);
        self.fullest.end_step();
        looked
    }

    fn watch(&mut self, pid: u32) {
        self.watched.insert(pid);
    }

    fn join(&mut self, host: &Host) -> Result<(), Absent> {
        self.hosts.push(host.clone());
        Ok(())
    }

    fn finish(mut self: Box<Self>, into: &mut Probes) {
        self.keep_own();
        let moved = |one: &TcpSocket| field(one, "bytes_acked") + field(one, "bytes_received");
        // Both ends of one over a loopback are in one namespace.
        let keys: BTreeSet<Key> = self.seen.keys().cloned().collect();
        let finish = |(key, flow): (Key, Flow)| {
            let mut last = flow.finish();
            let other_end = (key.0.clone(), key.2, key.1);
            let is_looped = f64::from(u8::from(keys.contains(&other_end)));
            last.fields.insert("over_loopback_share".to_owned(), is_looped);
            (key, last)
        };
        let mut all: Vec<(Key, TcpSocket)> = self.seen.into_iter().map(finish).collect();
        all.sort_by(|(_, a), (_, b)| moved(b).total_cmp(&moved(a)));
        all.truncate(limits::FLOWS);
        let record = |(at, ((role, ..), one)): (usize, (Key, TcpSocket))| TcpInfoRecord {
            role,
            connection: at as u32,
            stack: "kernel".to_owned(),
            congestion: one.congestion,
            fields: one.fields,
        };
        into.tcp_info.extend(all.into_iter().enumerate().map(record));
        into.fullest_queues = self.fullest.finish();
        let (looks, found) = self.at_once;
        let at_once = Measured::Level(found as f64 / looks.max(1) as f64);
        let measured = into.measured.entry("flows".to_owned()).or_default();
        measured.insert("connections_at_once".to_owned(), at_once);
    }
}

impl Flows {
    /// Drops the connections that have an end of the load's neither here nor there, if any has one.
    fn keep_own(&mut self) {
        let own = self.seen.iter().filter(|(_, flow)| flow.is_own);
        let own: BTreeSet<(u16, u16)> =
            own.map(|((_, local, remote), _)| (*local, *remote)).collect();
        if !own.is_empty() {
            self.seen.retain(|(_, local, remote), _| {
                own.contains(&(*local, *remote)) || own.contains(&(*remote, *local))
            });
        }
    }

    /// Looks at the connections of a step after the baseline.
    fn look(&mut self, turn: Turn) -> Result<(), Absent> {
        // Many connections make the answer long: it is asked for less often.
        if turn == Turn::Middle && !self.turns.is_multiple_of(1 + self.seen.len() / limits::FLOWS) {
            return Ok(());
        }
        let now = match (self.read(), turn) {
            (Ok(now), _) => now,
            // Whoever was in a namespace of its own has ended with it.
            (Err(_), Turn::Last) => return Ok(()),
            (Err(why), _) => return Err(why),
        };
        let at = Instant::now();
        let fresh = now.iter().map(|(key, _)| key).filter(|key| !self.before.contains(key));
        let pairs: BTreeSet<_> = fresh.map(|key| (key.1.min(key.2), key.1.max(key.2))).collect();
        self.at_once = (self.at_once.0 + 1, self.at_once.1 + pairs.len());
        if now.iter().any(|(key, _)| !self.before.contains(key) && !self.seen.contains_key(key)) {
            let of = |pid: &u32| descriptors_of(*pid, limits::LOAD_DESCRIPTORS);
            let links = self.watched.iter().flat_map(of);
            self.inodes = links.filter_map(|(_, link)| inode_of(&link)).collect();
        }
        for (key, socket) in now {
            if !self.before.contains(&key) {
                let of = |name: &str| field(&socket, name) as u64;
                let bytes = of("recv_queue_bytes");
                let read = of("bytes_received").saturating_sub(bytes);
                let memory = [of("recv_memory_bytes"), of("recv_limit_bytes")];
                let queue = [bytes, memory[0], memory[1], read];
                self.fullest.take(&key.0, (key.1, key.2), queue);
            }
            let is_own = self.inodes.contains(&socket.inode);
            if let Some(flow) = self.seen.get_mut(&key) {
                flow.look(at, socket);
                flow.is_own |= is_own;
            } else if self.seen.len() < limits::FLOWS_SEEN && !self.before.contains(&key) {
                self.seen.insert(key, Flow { is_own, ..Flow::new(at, socket) });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::super::NetSource;
    use super::*;

    #[test]
    fn connections_of_the_run_are_kept_with_what_they_moved() {
        let here = [Host { name: "here".into(), net: NetSource::Own }];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let _before = pair();
        let mut flows = Box::new(Flows::open(&here).unwrap());
        flows.sample(Turn::First).unwrap();
        let (mut client, mut server) = pair();
        client.write_all(&[1; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        client.write_all(&[1; 700]).unwrap();
        while server.peek(&mut [0; 700]).unwrap() < 700 {}
        flows.sample(Turn::Middle).unwrap();
        let port = client.local_addr().unwrap().port();
        assert!(flows.seen.keys().any(|(_, local, _)| *local == port));
        assert!(!flows.before.iter().any(|key| flows.seen.contains_key(key)));
        let mut probes = Probes::default();
        flows.finish(&mut probes);
        let fullest = &probes.fullest_queues["here"];
        assert!(fullest.held_bytes[0] > Some(700), "{fullest:?}");
        let ports = [server.local_addr().unwrap(), client.local_addr().unwrap()];
        let [local, remote] = ports.map(|address| u64::from(address.port()));
        // Unless another test's connection holds more.
        if fullest.socket[0] == Some(local << 16 | remote) {
            let seen = (fullest.bytes[0], fullest.read_bytes[0]);
            assert_eq!(seen, (Some(700), Some(5000)), "{fullest:?}");
            assert!(fullest.limit_bytes[0] > fullest.held_bytes[0], "{fullest:?}");
        }
        let received = |info: &TcpInfoRecord| info.fields["bytes_received"] == 5700.0;
        assert!(probes.tcp_info.iter().any(received), "{:?}", probes.tcp_info);
        let looped = |info: &TcpInfoRecord| info.fields["over_loopback_share"] == 1.0;
        assert!(probes.tcp_info.iter().any(|info| received(info) && looped(info)));
        let at_once = probes.measured["flows"]["connections_at_once"];
        assert!(matches!(at_once, Measured::Level(count) if count >= 1.0), "{at_once:?}");
    }

    #[test]
    fn samples_of_a_connection_are_its_means_and_what_rose_between_them() {
        let socket = |fields: &[(&str, f64)]| TcpSocket {
            fields: fields.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..TcpSocket::default()
        };
        let begin = Instant::now();
        let held = [
            ("notsent_bytes", 1.0),
            ("mss_bytes", 1448.0),
            ("unacked_segments", 1.0),
            ("min_rtt_us", 1000.0),
            ("srtt_us", 4000.0),
            ("cwnd_bytes", 14_480.0),
        ];
        let mut flow = Flow::new(begin, socket(&[&held[..], &[("busy_s", 1.0)]].concat()));
        let full = [
            ("recv_queue_bytes", 300.0),
            ("rcv_wnd_bytes", 100.0),
            ("busy_s", 1.5),
            ("mss_bytes", 1448.0),
            ("unacked_segments", 3.0),
            ("cwnd_bytes", 14_480.0),
            ("send_memory_bytes", 4608.0),
            ("send_limit_bytes", 4608.0),
        ];
        flow.look(begin + std::time::Duration::from_secs(2), socket(&full));
        let found = flow.finish().fields;
        let of = [
            "held_share",
            "unread_share",
            "send_buffer_full_share",
            "send_buffer_limits_share",
            "congestion_window_used_share",
            "queueing_share",
            "watched_s",
            "watched_busy_s",
        ];
        let expected = [0.5, 0.375, 0.5, 0.5, 0.2, 0.375, 2.0, 0.5];
        let round = |value: f64| (value * 1e6).round() / 1e6;
        assert_eq!(of.map(|name| round(found[name])), expected);
        // A full buffer is no limit where the window is, or where something waits to be sent.
        let limits = |name: &str, value: f64| {
            let other = socket(&[&full[..], &[(name, value)]].concat());
            Flow::new(begin, other).finish().fields["send_buffer_limits_share"]
        };
        assert_eq!(limits("unacked_segments", 9.0), 0.0);
        assert_eq!(limits("notsent_bytes", 1.0), 0.0);
        assert_eq!(limits("send_memory_bytes", 1000.0), 0.0);
        assert!(!found.contains_key("watched_rwnd_limited_s"), "was not measured");
    }

    /// Both ends of one connection, of which the load has one; beside it another program's.
    #[test]
    fn connections_of_others_are_left_out_where_the_loads_own_are_known() {
        let key = |local, remote| ("here".to_owned(), local, remote);
        let flows = |own: bool| {
            let flow = |is_own| Flow { is_own, ..Flow::new(Instant::now(), TcpSocket::default()) };
            let mut flows = Flows::open(&[]).unwrap();
            flows.seen.insert(key(5, 80), flow(own));
            flows.seen.insert(key(80, 5), flow(false));
            flows.seen.insert(key(6, 80), flow(false));
            flows.keep_own();
            flows.seen.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(flows(true), [key(5, 80), key(80, 5)]);
        assert_eq!(flows(false).len(), 3, "a process of another user may not be looked at");
    }

    #[test]
    fn a_connection_is_the_loads_whose_process_has_its_socket() {
        let here = [Host { name: "here".into(), net: NetSource::Own }];
        let mut flows = Flows::open(&here).unwrap();
        flows.watch(std::process::id());
        flows.sample(Turn::First).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        flows.sample(Turn::Middle).unwrap();
        let port = client.local_addr().unwrap().port();
        let of_port = |key: &Key| key.1 == port;
        assert!(flows.seen.iter().any(|(key, flow)| of_port(key) && flow.is_own));
    }
}
