//! Tests of the records of sampled packets.

use millstream_link::{PairConfig, PairEnd, pair};
use millstream_packet::{Pool, PoolConfig};

use super::*;
use crate::{Engine, EngineConfig};

/// Two engines that talk to each other; the second one samples each packet.
struct Two {
    near: Engine,
    far: Engine,
    now: Instant,
}

impl Two {
    fn new() -> Self {
        let pool = Pool::new(PoolConfig::default()).expect("memory");
        let (near, far) = pair(PairConfig::default()).expect("a pair");
        let mut near = engine(&pool, near, "10.9.0.1/24", 0);
        let far = engine(&pool, far, "10.9.0.2/24", 1);
        let now = near.refresh_time();
        Self { near, far, now }
    }

    /// Takes turns of both until neither has anything to do.
    fn settle(&mut self) {
        while self.near.turn(self.now).progress | self.far.turn(self.now).progress {}
    }

    /// A connection: its end here, and its end there.
    fn connect(&mut self) -> (SocketId, SocketId) {
        let address = "10.9.0.2:7".parse().expect("an address");
        let listener = self.far.sockets().tcp_listen(address, 1).expect("a listener");
        let client = self.near.sockets().tcp_connect(address).expect("a connection");
        self.settle();
        (client, self.far.listener(listener).accept().expect("one that waits").0)
    }

    /// The traces there that have ended with payload, from this number on.
    fn traces(&self, from: u64) -> Vec<PacketTrace> {
        self.far.inspect().packet_traces(from).filter(|trace| trace.bytes != 0).copied().collect()
    }

    fn ended(&self) -> u64 {
        self.far.cx.sink.packets.ended()
    }
}

fn engine(pool: &Pool, end: PairEnd, address: &str, sample: u32) -> Engine {
    let config = EngineConfig::new(pool.clone()).packet_sample(sample);
    let mut engine = Engine::new(config).expect("an engine");
    let link = engine.add_link(Box::new(end)).expect("a link");
    engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
    engine
}

fn points(trace: &PacketTrace) -> Vec<TracePoint> {
    let reached: Vec<_> = trace.reached().collect();
    assert!(reached.is_sorted_by_key(|&(_, time)| time), "{trace:?}");
    reached.into_iter().map(|(point, _)| point).collect()
}

/// All points of the way in.
const WAY_IN: [TracePoint; 6] = [
    TracePoint::Received,
    TracePoint::HeadersRead,
    TracePoint::Demultiplexed,
    TracePoint::Accepted,
    TracePoint::Readable,
    TracePoint::Read,
];

#[test]
fn a_segment_is_followed_from_the_link_until_all_of_it_is_read() {
    let mut two = Two::new();
    let (client, server) = two.connect();
    for text in [&b"first"[..], b"second"] {
        let before = two.ended();
        two.near.tcp(client).write(text).expect("room");
        two.settle();
        let mut buffer = [0; 3];
        assert_eq!(two.far.tcp(server).read(&mut buffer), Ok(3));
        assert!(two.traces(before + 1).is_empty(), "a part of it is read");
        assert_eq!(two.far.tcp(server).read(&mut buffer), Ok(text.len() - 3));
        let trace = two.traces(before + 1).pop().expect("all is read");
        assert_eq!((trace.bytes as usize, trace.end), (text.len(), TraceEnd::Complete));
        assert_eq!((trace.socket, points(&trace)), (Some(server), WAY_IN.into()));
        assert_eq!((trace.transport(), trace.direction()), ("tcp", Direction::In));
    }
}

#[test]
fn a_datagram_is_followed_by_its_number() {
    let mut two = Two::new();
    let to = "10.9.0.2:53".parse().expect("an address");
    let socket = two.far.sockets().udp_bind(to).expect("a socket");
    let sender =
        two.near.sockets().udp_bind("10.9.0.1:0".parse().expect("an address")).expect("a socket");
    for text in [&b"one"[..], b"three", b"seventh"] {
        two.near.udp(sender).send(text, Some(to)).expect("sent");
        two.settle();
    }
    let mut buffer = [0; 16];
    for number in 1..=3 {
        assert_eq!(two.traces(1).len(), number - 1);
        let (len, _) = two.far.udp(socket).recv(&mut buffer).expect("a datagram");
        let trace = two.traces(1).pop().expect("it was read");
        assert_eq!((trace.bytes as usize, trace.position), (len, number as u64));
        assert_eq!(points(&trace), [WAY_IN[0], WAY_IN[1], WAY_IN[5]]);
        assert_eq!((trace.end, trace.transport()), (TraceEnd::Complete, "udp"));
    }
}

#[test]
fn what_waits_for_longest_gives_its_place_to_what_comes() {
    let mut two = Two::new();
    let (client, server) = two.connect();
    two.near.tcp(client).set_nodelay(true).expect("a connection");
    for _ in 0..FOLLOWED + 5 {
        two.near.tcp(client).write(b"?").expect("room");
        two.settle();
    }
    let gone = two.traces(1);
    assert_eq!(gone.len(), 5);
    assert!(gone.iter().all(|trace| trace.end == TraceEnd::Displaced && !trace.has(WAY_IN[5])));
    assert_eq!(two.far.cx.sink.packets.tracer().map(Tracer::displaced), Some(5));
    // One read takes all the others.
    two.far.tcp(server).read(&mut [0; 4096]).expect("data");
    let read = two.traces(1).split_off(5);
    assert!(read.iter().all(|trace| trace.end == TraceEnd::Complete));
    assert_eq!(read.len(), FOLLOWED);
    assert_eq!(two.far.cx.sink.packets.slots, 0, "nothing is followed");
}

#[test]
fn what_was_not_read_when_its_socket_was_closed_ends_so() {
    let mut two = Two::new();
    let (client, server) = two.connect();
    two.near.tcp(client).write(b"unread").expect("room");
    two.settle();
    two.far.tcp(server).close();
    crate::engine::live::traces::end_closed(&mut two.far);
    let trace = two.traces(1).pop().expect("it has ended");
    assert_eq!((trace.end, points(&trace)), (TraceEnd::Closed, WAY_IN[..5].into()));
}

#[test]
fn one_packet_in_n_is_sampled_on_average() {
    let mut traces = PacketTraces::default();
    traces.set(10, Clock::new(), (1, 2));
    let tracer = traces.tracer.as_mut().expect("on");
    let skips: Vec<u32> = (0..10_000).map(|_| tracer.skip()).collect();
    let mean = f64::from(skips.iter().sum::<u32>()) / 10_000.0;
    assert!((9.7..10.3).contains(&mean), "{mean}");
    assert!(skips.contains(&1) && skips.contains(&19), "not always the same");
}

/// All points of the way out.
const WAY_OUT: [TracePoint; 5] = [
    TracePoint::Written,
    TracePoint::Sent,
    TracePoint::HeadersWritten,
    TracePoint::Transmitted,
    TracePoint::Acknowledged,
];

#[test]
fn a_write_is_followed_until_its_peer_acknowledges_it() {
    let mut two = Two::new();
    let (client, server) = two.connect();
    // As much as the window that the peer offers has room for, and more: the rest waits in the send
    // queue.
    let written = two.far.tcp(server).write(&[7; 200_000]).expect("room");
    assert!(written > 1460);
    two.settle();
    let out = |two: &Two| -> Vec<PacketTrace> {
        two.traces(1).into_iter().filter(|trace| trace.direction() == Direction::Out).collect()
    };
    let mut buffer = vec![0; 300_000];
    for _ in 0..50 {
        let _ = two.near.tcp(client).read(&mut buffer);
        two.now += std::time::Duration::from_millis(50);
        two.settle();
    }
    let trace = out(&two).pop().expect("it is acknowledged");
    assert_eq!((points(&trace), trace.end), (WAY_OUT.into(), TraceEnd::Complete));
    assert_eq!((trace.position, trace.bytes), (1448, 1448), "the first segment of one write");
    let transmitted = two.far.cx.sink.packets.tracer().expect("on").residence.stages();
    let counted = transmitted.filter(|(point, _)| point.direction() == Direction::Out);
    assert!(counted.into_iter().all(|(_, times)| times.total() == 1));
}

#[test]
fn a_write_that_was_reset_is_not_taken_for_acknowledged() {
    let mut two = Two::new();
    let (client, server) = two.connect();
    two.far.tcp(server).write(b"lost").expect("room");
    two.near.tcp(client).abort();
    two.settle();
    let trace = two.traces(1).pop().expect("the reset has ended it");
    assert_eq!(trace.end, TraceEnd::Closed);
    assert!(!trace.has(TracePoint::Acknowledged), "{trace:?}");
}

#[test]
fn a_datagram_is_followed_until_the_link_takes_it() {
    let mut two = Two::new();
    let to = Some("10.9.0.1:53".parse().expect("an address"));
    let socket =
        two.far.sockets().udp_bind("10.9.0.2:0".parse().expect("an address")).expect("a socket");
    // The first ones ask for the way; headers are kept ready from then on.
    for _ in 0..4 {
        two.far.udp(socket).send(b"hello", to).expect("sent");
        two.settle();
    }
    let trace = two.traces(1).pop().expect("it is taken");
    assert_eq!(points(&trace), [WAY_OUT[0], WAY_OUT[2], WAY_OUT[3]]);
    assert_eq!((trace.end, trace.bytes, trace.transport()), (TraceEnd::Complete, 5, "udp"));
}
