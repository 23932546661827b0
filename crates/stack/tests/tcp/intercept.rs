//! Any destination: connections to addresses that are not the engine's, and the application's
//! verdict on them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream::link::{Link, Medium, PairConfig, PairEnd, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::route::{LinkId, Prefix};
use millstream::tcp::{Config, FourTuple, State};
use millstream::{DropReason, Engine, Error, LocalPrefix, Refusal, SocketId};
use millstream_wire::icmp::{self, Icmp, Quote, QuotedTransport, Unreachable};
use millstream_wire::ip::{self, Version};
use millstream_wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

use crate::common::frames::{self, Ends};
use crate::common::{FAR, Mode, NEAR, both_modes, engine, pool, settle};

both_modes!(
    a_request_waits_for_its_verdict_and_has_the_address_that_was_asked_for,
    each_refusal_is_told_in_its_own_way,
    a_peer_that_left_before_the_verdict_closes_the_connection,
    connections_from_other_addresses_are_made_where_that_was_allowed,
    sockets_of_the_engine_come_first_and_then_the_nearest_rule,
    connections_end_with_their_prefix,
);

const ALL: [Prefix; 2] = [Prefix::DEFAULT_V4, Prefix::DEFAULT_V6];
const SOMEWHERE: [&str; 2] = ["192.0.2.1:443", "[2001:db8::1]:443"];
const WITHIN: Duration = Duration::from_secs(30);

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A host, and the engine behind which all the world is; with its link there.
fn world(mode: Mode, medium: Medium) -> (Engine, Engine, LinkId) {
    let pool = pool();
    let config = PairConfig { medium, ..PairConfig::default() };
    let (near, far) = pair(config).expect("a pair");
    let mut near = engine(mode.config(&pool, 1), near, &NEAR);
    let mut far = engine(mode.config(&pool, 2), far, &FAR);
    let link = far.inspect().links().next().expect("a link").id;
    for gateway in FAR {
        let gateway = gateway.parse::<Prefix>().expect("an address").addr;
        near.routes().add_gateway(LinkId(0), gateway).expect("a route");
    }
    for all in ALL {
        far.intercept().add_prefix(link, LocalPrefix::new(all)).expect("a prefix");
    }
    settle(&mut near, &mut far);
    (near, far, link)
}

fn intercept(engine: &mut Engine, family: usize) -> SocketId {
    engine.refresh_time();
    engine.intercept().tcp(ALL[family], 0, WITHIN).expect("a listener")
}

fn connect(engine: &mut Engine, to: &str) -> SocketId {
    engine.refresh_time();
    engine.sockets().tcp_connect(addr(to)).expect("connect")
}

fn a_request_waits_for_its_verdict_and_has_the_address_that_was_asked_for(mode: Mode) {
    for (medium, family) in
        [(Medium::Ip, 0), (Medium::Ip, 1), (Medium::Ethernet, 0), (Medium::Ethernet, 1)]
    {
        let (mut near, mut far, _) = world(mode, medium);
        let listener = intercept(&mut far, family);
        let client = connect(&mut near, SOMEWHERE[family]);
        settle(&mut near, &mut far);
        let (id, news) = far.next_event().expect("news");
        assert!(id == listener && news.readable);
        let request = far.intercept().next_request(listener).expect("a request");
        assert_eq!(request.local, addr(SOMEWHERE[family]));
        assert_eq!(request.remote, near.tcp(client).addresses().expect("open").local);
        assert_eq!(far.intercept().next_request(listener), Err(Error::WouldBlock));
        assert_eq!(far.intercept().requests_waiting().collect::<Vec<_>>(), [request]);
        // Nothing was answered.
        assert_eq!(near.tcp(client).state(), Ok(State::SynSent));
        assert_eq!(far.stats().tcp_tx_segments, 0);

        let server = far.intercept().accept(&request).expect("accepted");
        assert_eq!(far.tcp(server).state(), Ok(State::SynReceived));
        assert_eq!(far.intercept().accept(&request), Err(Error::NoSuchSocket));
        // Data that is written before the handshake is done waits.
        assert_eq!(far.tcp(server).write(b"welcome"), Ok(7));
        settle(&mut near, &mut far);
        assert_eq!(far.tcp(server).addresses(), Ok(request));
        let mut bytes = [0; 16];
        assert_eq!(near.tcp(client).read(&mut bytes), Ok(7));
        for _ in 0..8 {
            assert_eq!(near.tcp(client).write(b"question"), Ok(8));
            settle(&mut near, &mut far);
            assert_eq!(far.tcp(server).read(&mut bytes), Ok(8));
            assert_eq!(far.tcp(server).write(b"answer"), Ok(6));
            settle(&mut near, &mut far);
            assert_eq!(near.tcp(client).read(&mut bytes), Ok(6));
        }
        let info = far.tcp(server).info().expect("open");
        assert!(info.sack && info.timestamps && info.rcv_wscale > 0 && info.snd_wscale > 0);
        let stats = far.stats();
        assert_eq!((stats.tcp_requests, stats.tcp_requests_accepted), (1, 1));
        assert_eq!(stats.tcp_passive_opens, 1);
        assert_eq!(far.listener(listener).accept(), Err(Error::WouldBlock));
    }
}

fn each_refusal_is_told_in_its_own_way(mode: Mode) {
    use Unreachable::{Host, Network, Port, Prohibited};
    for (family, refusal, told) in [
        (0, Refusal::Reset, Some(Error::ConnectionRefused)),
        (1, Refusal::Reset, Some(Error::ConnectionRefused)),
        (0, Refusal::Icmp(Network), Some(Error::NetworkUnreachable)),
        (1, Refusal::Icmp(Network), Some(Error::NetworkUnreachable)),
        (0, Refusal::Icmp(Host), Some(Error::HostUnreachable)),
        (1, Refusal::Icmp(Host), Some(Error::HostUnreachable)),
        (0, Refusal::Icmp(Port), Some(Error::ConnectionRefused)),
        (1, Refusal::Icmp(Port), Some(Error::ConnectionRefused)),
        // As Linux tells of the code.
        (0, Refusal::Icmp(Prohibited), Some(Error::HostUnreachable)),
        (1, Refusal::Icmp(Prohibited), Some(Error::Prohibited)),
        (0, Refusal::Drop, None),
        (1, Refusal::Drop, None),
    ] {
        let (mut near, mut far, _) = world(mode, Medium::Ethernet);
        let listener = intercept(&mut far, family);
        let client = connect(&mut near, SOMEWHERE[family]);
        settle(&mut near, &mut far);
        let request = far.intercept().next_request(listener).expect("a request");
        far.intercept().refuse(&request, refusal).expect("refused");
        settle(&mut near, &mut far);
        assert_eq!(near.tcp(client).take_error(), Ok(told), "{refusal:?}");
        assert_eq!(far.intercept().requests_waiting().count(), 0);
        assert_eq!(far.intercept().refuse(&request, refusal), Err(Error::NoSuchSocket));
        let stats = far.stats();
        let counts =
            [stats.tcp_requests_reset, stats.tcp_requests_rejected, stats.tcp_requests_dropped];
        let expected = match refusal {
            Refusal::Reset => [1, 0, 0],
            Refusal::Icmp(_) => [0, 1, 0],
            Refusal::Drop => [0, 0, 1],
        };
        assert_eq!(counts, expected, "{refusal:?}");
        assert_eq!(stats.icmp_errors_sent, expected[1]);
    }
}

fn a_peer_that_left_before_the_verdict_closes_the_connection(mode: Mode) {
    let (mut near, mut far, _) = world(mode, Medium::Ip);
    let listener = intercept(&mut far, 0);
    let client = connect(&mut near, SOMEWHERE[0]);
    settle(&mut near, &mut far);
    let request = far.intercept().next_request(listener).expect("a request");
    near.tcp(client).abort();
    settle(&mut near, &mut far);
    // A host that gives a connect up says nothing: it answers the SYN-ACK by a reset.
    let server = far.intercept().accept(&request).expect("accepted");
    settle(&mut near, &mut far);
    assert_eq!(far.tcp(server).state(), Ok(State::Closed));
    let news = std::iter::from_fn(|| far.next_event()).find(|(id, _)| *id == server);
    assert!(news.is_some_and(|(_, news)| news.closed));
    far.tcp(server).close();
    settle(&mut near, &mut far);
    assert_eq!(far.inspect().connection_count(), 0);
}

fn connections_from_other_addresses_are_made_where_that_was_allowed(mode: Mode) {
    for (family, from) in [(0, "198.51.100.7:0"), (1, "[2001:db8:7::7]:0")] {
        let (mut near, mut far, link) = world(mode, Medium::Ip);
        let near_port = addr(["10.9.0.1:80", "[fd09::1]:80"][family]);
        let listener = near.sockets().tcp_listen(near_port, 4).expect("listen");
        let config = Config::default();
        let connect = |far: &mut Engine| {
            far.refresh_time();
            far.sockets().tcp_connect_with(near_port, Some(addr(from)), &config)
        };
        assert_eq!(connect(&mut far), Err(Error::AddrNotAvailable));
        let bound = far.sockets().udp_bind(addr(from));
        assert_eq!(bound, Err(Error::AddrNotAvailable));
        let prefix = Prefix { addr: addr(from).ip(), len: 24 };
        let local = LocalPrefix::new(prefix).may_send_from(true);
        far.intercept().add_prefix(link, local).expect("a prefix");
        let client = connect(&mut far).expect("allowed now");
        settle(&mut near, &mut far);
        assert_eq!(far.tcp(client).state(), Ok(State::Established));
        let (_, peer) = near.listener(listener).accept().expect("accepted");
        assert_eq!(peer.ip(), addr(from).ip());
        assert_eq!(far.tcp(client).addresses().expect("open").local, peer);
        // An address beside the prefix is not.
        let beside = addr(["203.0.113.1:0", "[2001:dead::1]:0"][family]);
        let refused = far.sockets().tcp_connect_with(near_port, Some(beside), &config);
        assert_eq!(refused, Err(Error::AddrNotAvailable));
    }
}

fn sockets_of_the_engine_come_first_and_then_the_nearest_rule(mode: Mode) {
    let (mut near, mut far, _) = world(mode, Medium::Ip);
    let prefix = |text: &str| text.parse::<Prefix>().expect("a prefix");
    let rules = [("192.0.2.0/24", 25), ("0.0.0.0/0", 25), ("192.0.2.0/24", 0), ("0.0.0.0/0", 0)];
    let listeners =
        rules.map(|(net, port)| far.intercept().tcp(prefix(net), port, WITHIN).expect("a rule"));
    assert_eq!(far.intercept().tcp(prefix("192.0.2.9/24"), 25, WITHIN), Err(Error::AddrInUse));
    for (to, rule) in [
        ("203.0.113.1:443", 3),
        ("192.0.2.1:443", 2),
        ("203.0.113.1:25", 1),
        ("192.0.2.1:25", 0),
        // An own address is an address of the prefix, too.
        ("10.9.0.2:443", 3),
    ] {
        connect(&mut near, to);
        settle(&mut near, &mut far);
        let request = far.intercept().next_request(listeners[rule]).expect(to);
        assert_eq!(request.local, addr(to));
    }
    let listener = far.sockets().tcp_listen(addr("0.0.0.0:80"), 4).expect("listen");
    let near_only =
        far.sockets().tcp_listen(addr("192.0.2.77:80"), 4).expect("an address of a prefix");
    for (to, listener) in [("203.0.113.1:80", listener), ("192.0.2.77:80", near_only)] {
        connect(&mut near, to);
        settle(&mut near, &mut far);
        let (id, _) = far.listener(listener).accept().expect("accepted");
        assert_eq!(far.tcp(id).addresses().expect("open").local, addr(to));
    }
    assert_eq!(far.sockets().tcp_listen(addr("[fe80::77]:80"), 4), Err(Error::AddrNotAvailable));
    far.close(listeners[2]);
    connect(&mut near, "192.0.2.1:443");
    settle(&mut near, &mut far);
    assert!(far.intercept().next_request(listeners[3]).is_ok());
    assert_eq!(far.intercept().next_request(listeners[2]), Err(Error::NoSuchSocket));
}

fn connections_end_with_their_prefix(mode: Mode) {
    let (mut near, mut far, link) = world(mode, Medium::Ip);
    let listener = intercept(&mut far, 0);
    let mut ids = Vec::new();
    for to in ["192.0.2.1:443", "10.9.0.2:443"] {
        let client = connect(&mut near, to);
        settle(&mut near, &mut far);
        let request = far.intercept().next_request(listener).expect("a request");
        ids.push((client, far.intercept().accept(&request).expect("accepted")));
        settle(&mut near, &mut far);
    }
    connect(&mut near, "192.0.2.1:25");
    settle(&mut near, &mut far);
    let request = far.intercept().next_request(listener).expect("a request");
    far.intercept().remove_prefix(link, ALL[0]).expect("it is there");
    assert_eq!(far.intercept().accept(&request), Err(Error::NoSuchSocket));
    assert_eq!(far.stats().tcp_requests_withdrawn, 1);
    settle(&mut near, &mut far);
    assert_eq!(near.tcp(ids[0].0).state(), Ok(State::Closed));
    // The connection from the engine's own address goes on.
    assert_eq!(near.tcp(ids[1].0).state(), Ok(State::Established));
    connect(&mut near, "192.0.2.1:443");
    settle(&mut near, &mut far);
    assert_eq!(far.stats().dropped(DropReason::OtherAddress), 1);
}

/// An engine on a link without link headers, whose other end is the test's.
struct Wire {
    pool: Pool,
    engine: Engine,
    end: PairEnd,
    now: Instant,
    listener: SocketId,
    link: LinkId,
}

impl Wire {
    fn new(change: impl FnOnce(&mut millstream::Limits)) -> Self {
        let pool = pool();
        let config = PairConfig { offload: false, medium: Medium::Ip, ..PairConfig::default() };
        let (own, end) = pair(config).expect("a pair");
        let mut with = Mode::Fast.config(&pool, 2);
        change(&mut with.limits);
        let mut engine = engine(with, own, &FAR);
        let link = engine.inspect().links().next().expect("a link").id;
        for all in ALL {
            engine.intercept().add_prefix(link, LocalPrefix::new(all)).expect("a prefix");
            engine.routes().add(all, millstream::route::Route::on_link(link)).expect("a route");
        }
        let now = engine.refresh_time();
        let listener = engine.intercept().tcp(ALL[0], 0, WITHIN).expect("a listener");
        engine.intercept().tcp(ALL[1], 0, WITHIN).expect("a listener");
        Self { pool, engine, end, now, listener, link }
    }

    /// Has a packet arrive, and returns what is sent.
    fn deliver(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut batch = PacketBatch::new();
        let packet = Packet::from_slice(&self.pool, 0, packet).expect("frames");
        assert!(batch.push(packet).is_ok());
        self.end.transmit(self.now, &self.pool, &mut batch).expect("sent");
        self.sent()
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        while self.engine.turn(self.now).progress {}
        let (mut batch, mut sent) = (PacketBatch::new(), Vec::new());
        while self.end.receive(self.now, &self.pool, &mut batch).expect("received") != 0 {
            while let Some(packet) = batch.pop() {
                sent.push(packet.slices().flatten().copied().collect());
            }
        }
        sent
    }

    fn request(&mut self) -> Result<FourTuple, Error> {
        self.engine.intercept().next_request(self.listener)
    }

    fn waiting(&mut self) -> usize {
        self.engine.intercept().requests_waiting().count()
    }
}

const CLIENT: &str = "10.9.0.1:4000";

fn to(text: &str) -> Ends {
    Ends { from: addr(CLIENT), to: addr(text) }
}

fn syn(ends: Ends, seq: u32) -> Vec<u8> {
    let header = TcpHeader {
        seq: SeqNumber(seq),
        // As one that offers ECN (RFC 3168, 6.1.1).
        flags: TcpFlags::SYN | TcpFlags::ECE | TcpFlags::CWR,
        window: 65_535,
        options: TcpOptions { mss: Some(1460), window_scale: Some(7), ..TcpOptions::NONE },
        ..TcpHeader::default()
    };
    frames::segment(ends, header, &[])
}

fn other(ends: Ends, flags: TcpFlags, seq: u32) -> Vec<u8> {
    let header = TcpHeader { seq: SeqNumber(seq), flags, ..TcpHeader::default() };
    frames::segment(ends, header, &[])
}

#[test]
fn a_syn_again_finds_its_request_and_others_do_not_touch_it() {
    let mut wire = Wire::new(|_| {});
    let ends = to("192.0.2.1:443");
    for _ in 0..3 {
        assert_eq!(wire.deliver(&syn(ends, 1000)), [[0; 0]; 0]);
    }
    // Another incarnation, which may be anybody's; resets and ACKs that do not fit.
    for packet in [
        syn(ends, 5000),
        other(ends, TcpFlags::RST, 1000),
        other(ends, TcpFlags::RST, 1002),
        other(ends, TcpFlags::ACK, 1001),
        other(ends, TcpFlags::NONE, 1001),
    ] {
        assert_eq!(wire.deliver(&packet), [[0; 0]; 0]);
        assert_eq!(wire.waiting(), 1);
    }
    assert_eq!(wire.engine.stats().dropped(DropReason::TcpListenOther), 5);
    let request = wire.request().expect("one");
    assert_eq!(wire.request(), Err(Error::WouldBlock));
    let stats = wire.engine.listener(wire.listener).stats().expect("a listener");
    assert_eq!((wire.engine.stats().tcp_requests, stats.syns, stats.half_open), (1, 1, 1));
    wire.engine.intercept().accept(&request).expect("accepted");
    let sent = wire.sent();
    let (back, header, _) = frames::read(&sent[0]).expect("a segment");
    assert_eq!((sent.len(), back), (1, ends.back()));
    assert_eq!(header.flags, TcpFlags::SYN | TcpFlags::ACK | TcpFlags::ECE);
    assert_eq!(header.ack, SeqNumber(1001));
}

#[test]
fn a_reset_takes_a_request_back() {
    let mut wire = Wire::new(|_| {});
    let ends = to("192.0.2.1:443");
    wire.deliver(&syn(ends, 1000));
    let request = wire.request().expect("one");
    assert_eq!(wire.deliver(&other(ends, TcpFlags::RST, 1001)), [[0; 0]; 0]);
    assert_eq!(wire.waiting(), 0);
    assert_eq!(wire.engine.stats().tcp_requests_withdrawn, 1);
    assert_eq!(wire.engine.intercept().accept(&request), Err(Error::NoSuchSocket));
    // One that was not told yet is not told any more.
    wire.deliver(&syn(ends, 2000));
    wire.deliver(&other(ends, TcpFlags::RST, 2001));
    assert_eq!(wire.request(), Err(Error::WouldBlock));
}

#[test]
fn what_has_no_verdict_in_time_is_forgotten() {
    let mut wire = Wire::new(|_| {});
    let ends = to("192.0.2.1:443");
    wire.deliver(&syn(ends, 1000));
    let request = wire.request().expect("one");
    wire.now += WITHIN - Duration::from_millis(1);
    assert_eq!(wire.sent(), [[0; 0]; 0]);
    assert_eq!(wire.waiting(), 1);
    wire.now += Duration::from_millis(2);
    assert_eq!(wire.sent(), [[0; 0]; 0]);
    assert_eq!(wire.waiting(), 0);
    let stats = wire.engine.stats();
    assert_eq!((stats.tcp_requests_late, stats.tcp_syn_acks_repeated), (1, 0));
    assert_eq!(wire.engine.intercept().accept(&request), Err(Error::NoSuchSocket));
    // Its peer asks again.
    wire.deliver(&syn(ends, 1000));
    assert_eq!(wire.request(), Ok(request));
}

#[test]
fn an_icmp_error_quotes_the_syn_and_its_sums_are_right() {
    for (from, dst, code) in
        [(CLIENT, "192.0.2.1:443", 13), ("[fd09::1]:4000", "[2001:db8::1]:443", 1)]
    {
        let mut wire = Wire::new(|_| {});
        let ends = Ends { from: addr(from), to: addr(dst) };
        let arrived = syn(ends, 1000);
        wire.deliver(&arrived);
        let request = FourTuple { local: ends.to, remote: ends.from };
        let refusal = Refusal::Icmp(Unreachable::Prohibited);
        wire.engine.intercept().refuse(&request, refusal).expect("refused");
        let sent = wire.sent();
        assert_eq!(sent.len(), 1);
        let header = ip::parse(&sent[0], sent[0].len()).expect("a packet");
        assert_eq!((header.src, header.dst), (ends.to.ip(), ends.from.ip()));
        let body = &sent[0][header.header_len..];
        let mut sum = millstream_wire::checksum::Accumulator::new(icmp::pseudo_sum(
            header.src,
            header.dst,
            body.len(),
        ));
        sum.add(body);
        assert!(sum.is_valid());
        let version = Version::of(&header.src);
        assert_eq!(body[1], code);
        let (message, len) = Icmp::parse(version, body).expect("a message");
        assert_eq!(message, Icmp::Unreachable(Unreachable::Prohibited));
        let quoted = &body[len..];
        let quote = Quote::parse(version, quoted).expect("a quote");
        let seq = SeqNumber(1000);
        let expected = QuotedTransport::Tcp { src_port: 4000, dst_port: 443, seq };
        assert_eq!(quote.transport, expected);
        // The quote is a packet whose own sums are right, and no longer than the SYN.
        let (back, again, _) = frames::read(quoted).expect("a segment");
        assert_eq!((back, again.seq, again.options.mss), (ends, seq, Some(1460)));
        assert_eq!(quoted.len(), arrived.len());
        let inner = ip::parse(quoted, quoted.len()).expect("a packet");
        let segment = &quoted[inner.header_len..];
        let pseudo = ip::pseudo_header_sum(inner.src, inner.dst, inner.protocol, segment.len());
        let mut sum = millstream_wire::checksum::Accumulator::new(pseudo);
        sum.add(segment);
        assert!(sum.is_valid());
    }
}

#[test]
fn icmp_errors_for_refused_ones_have_the_limits_of_others() {
    let mut wire = Wire::new(|limits| limits.tuning.icmp_errors_per_address_s = 5);
    let mut errors = 0;
    for port in 1..=100 {
        let ends = Ends { from: addr(CLIENT), to: SocketAddr::new([192, 0, 2, 1].into(), port) };
        wire.deliver(&syn(ends, 1000));
        let request = wire.request().expect("one");
        let refusal = Refusal::Icmp(Unreachable::Host);
        wire.engine.intercept().refuse(&request, refusal).expect("refused");
        errors += wire.sent().len();
    }
    assert!((1..=10).contains(&errors), "{errors} errors for 100 requests");
    let limited = wire.engine.stats().dropped(DropReason::IcmpRateLimit);
    assert_eq!(limited as usize + errors, 100);
    assert_eq!(wire.waiting(), 0);
}

#[test]
fn what_is_no_host_is_no_destination() {
    let mut wire = Wire::new(|_| {});
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    for (from, dst) in [
        ("10.9.0.1", "0.0.0.0"),
        ("10.9.0.1", "127.0.0.1"),
        ("10.9.0.1", "224.0.0.9"),
        ("10.9.0.1", "240.0.0.1"),
        ("10.9.0.1", "255.255.255.255"),
        // All of the engine's network, and the network itself.
        ("10.9.0.1", "10.9.0.255"),
        ("10.9.0.1", "10.9.0.0"),
        ("fd09::1", "::1"),
        ("fd09::1", "::"),
        ("fd09::1", "ff02::1"),
        ("fd09::1", "fe80::1234"),
        ("fd09::1", "::ffff:192.0.2.1"),
        // Nobody sends from there.
        ("127.0.0.1", "192.0.2.1"),
        ("0.0.0.0", "192.0.2.1"),
        ("224.0.0.1", "192.0.2.1"),
        ("10.9.0.2", "192.0.2.1"),
        ("::1", "2001:db8::1"),
        ("ff02::1", "2001:db8::1"),
        // An answer would go to who is asked.
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
    ] {
        let ends = Ends { from: SocketAddr::new(ip(from), 443), to: SocketAddr::new(ip(dst), 443) };
        assert_eq!(wire.deliver(&syn(ends, 1)), [[0; 0]; 0], "{from} to {dst}");
        assert_eq!(wire.waiting(), 0, "{from} to {dst}");
    }
    assert_eq!(wire.engine.stats().tcp_requests, 0);
    let ends = Ends { from: addr("192.0.2.1:443"), to: addr("192.0.2.2:443") };
    wire.deliver(&syn(ends, 1));
    assert_eq!(wire.waiting(), 1);
}

#[test]
fn requests_are_bounded_in_all_and_of_one_source() {
    let mut wire = Wire::new(|limits| {
        limits.syn_queue = 8;
        limits.tuning.half_open_per_source = 4;
    });
    let from = |host: u8, port: u16| Ends {
        from: SocketAddr::new([10, 9, 0, 100 + host].into(), port),
        to: addr("192.0.2.1:443"),
    };
    for port in 1..=6 {
        wire.deliver(&syn(from(0, port), 1));
    }
    assert_eq!(wire.waiting(), 4);
    assert_eq!(wire.engine.stats().dropped(DropReason::SourceLimit), 2);
    let first = wire.request().expect("one");
    assert_eq!(first.remote, from(0, 1).from);
    for host in 1..=100 {
        wire.deliver(&syn(from(host, 1), 1));
        // The newcomer is there, and nothing but the limit.
        assert!(wire.waiting() <= 8);
    }
    let stats = wire.engine.stats();
    assert_eq!((stats.tcp_requests, stats.tcp_requests_displaced), (104, 96));
    // One that the application was told of gives way as well: it is told when it decides.
    assert_eq!(wire.engine.intercept().accept(&first), Err(Error::NoSuchSocket));
    let told: Vec<_> = std::iter::from_fn(|| wire.request().ok()).map(|one| one.remote).collect();
    assert_eq!(told, (93..=100).map(|host| from(host, 1).from).collect::<Vec<_>>());
    // Names of requests that are over do not pile up.
    for round in 0..2000 {
        wire.deliver(&syn(from(1, 1), round * 2));
        wire.deliver(&other(from(1, 1), TcpFlags::RST, round * 2 + 1));
    }
    assert_eq!(wire.request(), Err(Error::WouldBlock));
    wire.deliver(&syn(from(1, 1), 1));
    assert_eq!(wire.request().map(|one| one.remote), Ok(from(1, 1).from));
}

#[test]
fn requests_go_with_the_link_and_the_listener() {
    let mut wire = Wire::new(|_| {});
    wire.deliver(&syn(to("192.0.2.1:443"), 1));
    assert_eq!(wire.waiting(), 1);
    wire.engine.close(wire.listener);
    assert_eq!(wire.waiting(), 0);
    // Nobody takes it now: a port that is closed.
    let sent = wire.deliver(&syn(to("192.0.2.1:443"), 1));
    let (back, header, _) = frames::read(&sent[0]).expect("a segment");
    assert_eq!((back, header.flags), (to("192.0.2.1:443").back(), TcpFlags::RST | TcpFlags::ACK));
    let six = Ends { from: addr("[fd09::1]:4000"), to: addr("[2001:db8::1]:443") };
    wire.deliver(&syn(six, 1));
    assert_eq!(wire.waiting(), 1);
    wire.engine.links().remove(wire.link).expect("removed");
    assert_eq!((wire.waiting(), wire.engine.intercept().prefixes().count()), (0, 0));
}
