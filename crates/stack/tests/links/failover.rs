//! Two links to one host, one of which fails: what went by it goes by the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream::link::{PairConfig, PairEnd, pair};
use millstream::packet::Instant;
use millstream::route::{LinkId, Prefix, Route};
use millstream::{DropReason, Engine, Error, SocketId, net};

use crate::common;
use crate::common::breaking::Breaking;

const FIRST: LinkId = LinkId(0);
const SECOND: LinkId = LinkId(1);

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

/// Behind both links of the far host.
fn server() -> SocketAddr {
    "10.7.0.1:7".parse().expect("an address")
}

/// Two hosts with two links between them.
struct Hosts {
    near: Engine,
    far: Engine,
    /// Breaks the first link for both.
    breaks: [Arc<AtomicBool>; 2],
    now: Instant,
}

impl Hosts {
    /// Links that carry packets of so many bytes.
    fn new(mtus: [usize; 2]) -> Self {
        let pool = common::pool();
        let [mut near, mut far] =
            [1, 2].map(|seed| Engine::new(common::config(&pool, seed)).expect("an engine"));
        let ends = mtus.map(|mtu| {
            pair(PairConfig { mtu, offload: false, ..PairConfig::default() }).expect("a pair")
        });
        let [(near_first, far_first), (near_second, far_second)] = ends;
        let (near_first, breaks_near) = Breaking::new(near_first);
        let (far_first, breaks_far) = Breaking::new(far_first);
        near.add_link(Box::new(near_first)).expect("a link");
        far.add_link(Box::new(far_first)).expect("a link");
        near.add_link(Box::new(near_second)).expect("a link");
        far.add_link(Box::new(far_second)).expect("a link");
        for (engine, host) in [(&mut near, 1), (&mut far, 2)] {
            for link in [FIRST, SECOND] {
                let address = format!("10.{}.0.{host}/24", link.0);
                engine.add_address(link, prefix(&address)).expect("an address");
            }
        }
        far.add_address(FIRST, prefix("10.7.0.1/32")).expect("an address");
        let default = |engine: &mut Engine, link: LinkId, host, metric| {
            let gateway = format!("10.{}.0.{host}", link.0).parse().expect("an address");
            let route = Route { metric, ..Route::via(link, gateway) };
            engine.routes().add(Prefix::DEFAULT_V4, route).expect("a route");
        };
        // The worse one first: what counts is the metric.
        default(&mut near, SECOND, 2, 10);
        default(&mut near, FIRST, 2, 5);
        default(&mut far, SECOND, 1, 10);
        let now = near.refresh_time().max(far.refresh_time());
        Self { near, far, breaks: [breaks_near, breaks_far], now }
    }

    fn break_first(&self) {
        self.breaks.iter().for_each(|breaks| breaks.store(true, Ordering::SeqCst));
    }

    /// Lets both work for `time`.
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            while self.near.turn(self.now).progress | self.far.turn(self.now).progress {}
            self.now += Duration::from_millis(5);
        }
    }

    /// A connection, both ends.
    fn connect(&mut self, listener: SocketId) -> (SocketId, SocketId) {
        let client = self.near.sockets().tcp_connect(server()).expect("connect");
        self.run(Duration::from_millis(50));
        (client, self.far.listener(listener).accept().expect("accept").0)
    }

    /// Writes so much into a connection of the near host; it must arrive at the far one.
    fn carries(&mut self, (client, at): (SocketId, SocketId), len: usize) -> bool {
        let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let (mut written, mut read, mut buffer) = (0, Vec::new(), vec![0; 100_000]);
        for _ in 0..2000 {
            written += self.near.tcp(client).write(&data[written..]).unwrap_or(0);
            self.run(Duration::from_millis(5));
            while let Ok(len @ 1..) = self.far.tcp(at).read(&mut buffer) {
                read.extend_from_slice(&buffer[..len]);
            }
            if read.len() == len {
                return read == data;
            }
        }
        false
    }
}

fn source(engine: &mut Engine, id: SocketId) -> String {
    engine.tcp(id).addresses().expect("a connection").local.ip().to_string()
}

#[test]
fn what_went_by_a_link_that_has_failed_goes_by_the_one_that_is_left() {
    let mut hosts = Hosts::new([1500; 2]);
    let listener = hosts.far.sockets().tcp_listen(server(), 4).expect("listen");
    let before = hosts.connect(listener);
    assert_eq!(source(&mut hosts.near, before.0), "10.0.0.1");
    assert!(hosts.carries(before, 100_000));
    let sent = |engine: &Engine| {
        [FIRST, SECOND].map(|link| engine.inspect().link_stats(link).expect("a link").tx_packets)
    };
    let [first, second] = sent(&hosts.near);
    assert!(first > 0 && second == 0, "the lowest metric: {first} and {second}");

    // With something under way, which is lost.
    hosts.near.tcp(before.0).write(&[7; 30_000]).expect("write");
    hosts.break_first();
    hosts.run(Duration::from_secs(3));
    let mut lost = vec![0; 30_000];
    assert_eq!(hosts.far.tcp(before.1).read(&mut lost), Ok(30_000));
    assert!(hosts.carries(before, 100_000), "the connection goes on with its address");
    assert_eq!(sent(&hosts.near)[0], first);

    let after = hosts.connect(listener);
    assert_eq!(source(&mut hosts.near, after.0), "10.1.0.1");
    assert!(hosts.carries(after, 100_000));
    let socket = hosts.near.sockets().udp_bind("0.0.0.0:0".parse().expect("any")).expect("bind");
    let other = hosts.far.sockets().udp_bind(server()).expect("bind");
    hosts.near.udp(socket).send(b"datagram", Some(server())).expect("sent");
    hosts.run(Duration::from_millis(20));
    let (len, from) = hosts.far.udp(other).recv(&mut lost).expect("received");
    assert_eq!((len, from.ip().to_string().as_str()), (8, "10.1.0.1"));
    let routes: Vec<_> =
        hosts.near.routes().table().expect("its own").iter().map(|(_, route)| route.link).collect();
    assert!(routes.iter().all(|&link| link == SECOND), "{routes:?}");
}

/// Without having failed, and while something is under way.
#[test]
fn what_went_by_a_link_that_is_removed_goes_by_the_one_that_is_left() {
    let mut hosts = Hosts::new([1500; 2]);
    let listener = hosts.far.sockets().tcp_listen(server(), 4).expect("listen");
    let ends = hosts.connect(listener);
    assert!(hosts.carries(ends, 100_000));
    hosts.near.tcp(ends.0).write(&[7; 30_000]).expect("write");
    for engine in [&mut hosts.near, &mut hosts.far] {
        let removed = engine.links().remove(FIRST).expect("removed");
        assert!(removed.error.is_none() && removed.link.stats().tx_packets > 0);
        assert!(
            engine.routes().table().expect("its own").iter().all(|(_, route)| route.link == SECOND)
        );
    }
    hosts.run(Duration::from_secs(3));
    assert_eq!(hosts.far.tcp(ends.1).read(&mut vec![0; 30_000]), Ok(30_000));
    assert!(hosts.carries(ends, 100_000), "the connection goes on with its address");
    let after = hosts.connect(listener);
    assert_eq!(source(&mut hosts.near, after.0), "10.1.0.1");

    // Another gets its number, its address and the connection.
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    for (engine, end, own, gateway) in [
        (&mut hosts.near, near, "10.0.0.1/24", "10.0.0.2"),
        (&mut hosts.far, far, "10.0.0.2/24", "10.0.0.1"),
    ] {
        assert_eq!(engine.add_link(Box::new(end)), Ok(FIRST));
        engine.links().remove(SECOND).expect("removed");
        engine.add_address(FIRST, prefix(own)).expect("an address");
        engine.routes().add_gateway(FIRST, gateway.parse().expect("an address")).expect("a route");
    }
    assert!(hosts.carries(ends, 100_000));
}

#[test]
fn a_scope_of_no_link_is_no_way() {
    let mut hosts = Hosts::new([1500; 2]);
    let peer = "fe80::1".parse().expect("an address");
    for scope in [3, 65_536, 65_537, u32::MAX] {
        let peer = SocketAddrV6::new(peer, 7, 0, scope).into();
        let refused = hosts.near.sockets().tcp_connect(peer);
        assert!(matches!(refused, Err(Error::NetworkUnreachable)), "{scope}: {refused:?}");
    }
}

/// Segments that were made for the first do not fit, nor what was sent by it.
#[test]
fn the_one_that_is_left_may_take_smaller_packets() {
    let mut hosts = Hosts::new([9000, 1500]);
    let listener = hosts.far.sockets().tcp_listen(server(), 4).expect("listen");
    let ends = hosts.connect(listener);
    assert!(hosts.carries(ends, 300_000));
    hosts.near.tcp(ends.0).write(&[7; 60_000]).expect("write");
    hosts.break_first();
    hosts.run(Duration::from_secs(3));
    let mut lost = vec![0; 60_000];
    assert_eq!(hosts.far.tcp(ends.1).read(&mut lost), Ok(60_000));
    assert!(hosts.carries(ends, 300_000));
    assert_eq!(hosts.near.stats().dropped(DropReason::TooLong), 0);
}

#[test]
fn a_link_that_is_added_takes_over_addresses_and_connections_of_one_that_has_failed() {
    let mut hosts = Hosts::new([1500; 2]);
    let listener = hosts.far.sockets().tcp_listen(server(), 4).expect("listen");
    let ends = hosts.connect(listener);
    let again = |hosts: &mut Hosts, link| hosts.near.add_address(link, prefix("10.0.0.1/24"));
    assert_eq!(again(&mut hosts, SECOND), Err(Error::AddrInUse));
    // Nothing is left.
    for engine in [&mut hosts.near, &mut hosts.far] {
        engine.routes().table().expect("its own").remove_link(SECOND);
    }
    hosts.break_first();
    hosts.run(Duration::from_millis(50));
    assert_eq!(hosts.near.sockets().tcp_connect(server()), Err(Error::NetworkUnreachable));
    for refused in [
        again(&mut hosts, FIRST),
        hosts.near.routes().add(prefix("10.8.0.0/16"), Route::on_link(FIRST)),
    ] {
        assert!(matches!(refused, Err(Error::Invalid(why)) if why.contains("failed")));
    }
    hosts.near.tcp(ends.0).write(b"waits for a way").expect("write");
    hosts.run(Duration::from_millis(500));

    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let add = |engine: &mut Engine, end: PairEnd, addresses: &[&str]| {
        let link = engine.add_link(Box::new(end)).expect("a link");
        for address in addresses {
            engine.add_address(link, prefix(address)).expect("an address");
        }
        link
    };
    let link = add(&mut hosts.near, near, &["10.0.0.1/24"]);
    add(&mut hosts.far, far, &["10.0.0.2/24", "10.7.0.1/32"]);
    hosts
        .near
        .routes()
        .add_gateway(link, "10.0.0.2".parse().expect("an address"))
        .expect("a route");
    hosts.run(Duration::from_secs(3));
    let mut buffer = [0; 99];
    assert_eq!(hosts.far.tcp(ends.1).read(&mut buffer), Ok(15));
    assert!(hosts.carries(ends, 100_000));
    let own: Vec<_> =
        hosts.near.inspect().addresses().filter(|(of, _)| *of == Some(link)).collect();
    assert!(own.iter().any(|(_, own)| own.addr.to_string() == "10.0.0.1"), "{own:?}");
    let after = hosts.connect(listener);
    assert_eq!(source(&mut hosts.near, after.0), "10.0.0.1");
}

/// Interfaces may come and go for as long as an engine lives.
#[test]
fn links_that_have_failed_do_not_count_as_links() {
    let pool = common::pool();
    let limits = millstream::Limits::default().links(2).addresses(9);
    let config = common::config(&pool, 1).limits(limits);
    let mut engine = Engine::new(config).expect("an engine");
    for round in 0..200_u32 {
        let (end, _far) = pair(PairConfig::default()).expect("a pair");
        let (link, breaks) = Breaking::new(end);
        let id = engine.add_link(Box::new(link)).expect("a link");
        assert_eq!(id.index(), round as usize);
        engine.add_address(id, prefix("10.0.0.1/24")).expect("an address");
        engine.add_address(id, prefix(&format!("fd00::{round:x}/64"))).expect("an address");
        breaks.store(true, Ordering::SeqCst);
        let now = engine.refresh_time();
        engine.turn(now);
        assert!(
            engine.inspect().link_error(id).is_some()
                && engine.routes().table().expect("its own").is_empty()
        );
    }
    let own: Vec<_> = engine.inspect().addresses().map(|(_, own)| own.addr.to_string()).collect();
    assert!(own.len() <= 9 && own.iter().all(|own| !own.starts_with("fe80")), "{own:?}");
}

/// Through rings, in threads of their own.
#[test]
fn streams_and_datagrams_go_on_by_the_link_that_is_left() {
    let Hosts { near, far, breaks, .. } = Hosts::new([1500; 2]);
    let spawn = |engine| net::Stack::spawn(move || Ok(engine));
    let (near, far) = (spawn(near).expect("a stack"), spawn(far).expect("a stack"));
    let listener = net::TcpListener::bind(&far, server(), 4).expect("bind");
    let echo = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accept");
        std::io::copy(&mut &stream, &mut &stream).expect("an orderly end")
    });
    let mut stream = net::TcpStream::connect(&near, server()).expect("connect");
    let data: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
    for round in 0..6 {
        if round == 2 {
            breaks.iter().for_each(|breaks| breaks.store(true, Ordering::SeqCst));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| (&stream).write_all(&data).expect("write"));
            let mut back = vec![0; data.len()];
            (&stream).read_exact(&mut back).expect("the echo");
            assert!(back == data);
        });
    }
    let failed = |stack: &net::Stack| stack.links().expect("asked")[0].error.is_some();
    assert!(failed(&near) && failed(&far));
    stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
    assert_eq!(stream.read(&mut [0; 9]).expect("the end"), 0);
    assert_eq!(echo.join().expect("the echo"), 6 * 300_000);
    let refused = net::TcpStream::connect(&near, server()).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "the other link was asked");
}
