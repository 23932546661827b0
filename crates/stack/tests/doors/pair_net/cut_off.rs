//! Links that fail: who waits for what can come by no other is told, once, and sockets go on when
//! one can.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream::Engine;
use millstream::link::{PairConfig, pair};
use millstream::net::{Poller, Stack, TcpListener, TcpStream, UdpSocket};
use millstream::route::LinkId;

use super::far_addr;
use super::waits::{PATIENCE, hold, told};
use crate::common;
use crate::common::breaking::Breaking;

/// Two stacks over a link that breaks for both.
struct Ends {
    near: Stack,
    far: Stack,
    breaks: [Arc<AtomicBool>; 2],
}

impl Ends {
    fn new() -> Self {
        let pool = common::pool();
        let (near, far) = pair(PairConfig::default()).expect("a pair");
        let ((near, breaks_near), (far, breaks_far)) = (Breaking::new(near), Breaking::new(far));
        let spawn = |end, seed, addresses: [&'static str; 2]| {
            let config = common::config(&pool, seed);
            Stack::spawn(move || Ok(common::engine(config, end, &addresses))).expect("a stack")
        };
        let (near, far) = (spawn(near, 1, common::NEAR), spawn(far, 2, common::FAR));
        Self { near, far, breaks: [breaks_near, breaks_far] }
    }

    fn connect(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(&self.near, far_addr(7)).expect("connect");
        (client, listener.accept().expect("accept").0)
    }

    /// Both links fail; their engines have noticed when this returns.
    fn break_links(&self) {
        for (stack, breaks) in [&self.near, &self.far].into_iter().zip(&self.breaks) {
            breaks.store(true, Ordering::SeqCst);
            while stack.links().expect("asked")[0].error.is_none() {}
        }
    }

    /// Another link between them takes the place of the one that has failed.
    fn join_again(&self) {
        let (near, far) = pair(PairConfig::default()).expect("a pair");
        for (stack, end, addresses) in
            [(&self.near, near, common::NEAR), (&self.far, far, common::FAR)]
        {
            let add = move |engine: &mut Engine| {
                let link = engine.add_link(Box::new(end)).expect("a link");
                for address in addresses {
                    let address = address.parse().expect("a prefix");
                    engine.add_address(link, address).expect("an address");
                }
            };
            stack.with_engine(add).expect("an engine");
        }
    }
}

fn kind<T>(result: io::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|error| error.kind())
}

#[test]
fn who_waits_is_told_that_no_link_is_left_and_goes_on_when_there_is_one() {
    let ends = Ends::new();
    let listener = TcpListener::bind(&ends.far, far_addr(7), 16).expect("bind");
    let (client, server) = ends.connect(&listener);
    let (writer, other) = ends.connect(&listener);
    let socket = UdpSocket::bind(&ends.near, "0.0.0.0:0").expect("bind");
    let accepting = listener.try_clone().expect("a handle");
    let reading = client.try_clone().expect("a handle");
    let receiving = socket.try_clone().expect("a handle");
    let writing = writer.try_clone().expect("a handle");
    let waits = [
        told(move || kind((&reading).read(&mut [0; 9]))),
        // More than all that lies between them takes.
        told(move || {
            let data = vec![7; 1 << 20];
            let write = || (&writing).write_all(&data).map(|()| 0);
            kind((0..1000).map(|_| write()).find(Result::is_err).unwrap_or(Ok(0)))
        }),
        told(move || kind(accepting.accept().map(|_| 0))),
        told(move || kind(receiving.recv(&mut [0; 9]))),
    ];
    std::thread::sleep(std::time::Duration::from_millis(100));
    ends.break_links();
    for (index, wait) in waits.into_iter().enumerate() {
        let answer = wait.recv_timeout(PATIENCE);
        assert_eq!(answer.unwrap_or_else(|_| panic!("{index} waits")), Err(ErrorKind::NetworkDown));
    }
    // Told once, and nothing has ended.
    client.set_nonblocking(true).expect("a mode");
    assert_eq!(kind((&client).read(&mut [0; 9])), Err(ErrorKind::WouldBlock));
    client.set_nonblocking(false).expect("a mode");
    assert!(client.take_error().expect("asked").is_none());
    let refused = TcpStream::connect(&ends.near, far_addr(7)).map(drop);
    assert_eq!(kind(refused), Err(ErrorKind::NetworkUnreachable));

    ends.join_again();
    (&server).write_all(b"by another").expect("write");
    let mut bytes = [0; 10];
    (&client).read_exact(&mut bytes).expect("read");
    assert_eq!(&bytes, b"by another");
    // Nor is told of it who comes to wait now.
    let listening = told(move || kind(listener.accept().map(|_| 0)));
    let third = TcpStream::connect(&ends.near, far_addr(7)).expect("connect");
    assert_eq!(listening.recv_timeout(PATIENCE).expect("accepted"), Ok(0));
    drop((other, writer, third, socket));
}

#[test]
fn who_waits_is_told_that_the_last_link_was_removed() {
    let ends = Ends::new();
    let listener = TcpListener::bind(&ends.far, far_addr(7), 16).expect("bind");
    let (client, server) = ends.connect(&listener);
    let reading = client.try_clone().expect("a handle");
    let waits = [
        told(move || kind((&reading).read(&mut [0; 9]))),
        told(move || kind(listener.accept().map(|_| 0))),
    ];
    std::thread::sleep(std::time::Duration::from_millis(100));
    for stack in [&ends.near, &ends.far] {
        let removed = stack.with_engine(|engine| engine.links().remove(LinkId(0)));
        let removed = removed.expect("an engine").expect("a link");
        assert!(removed.link.stats().tx_packets > 0 && removed.error.is_none());
        assert!(stack.links().expect("asked").is_empty());
    }
    for wait in waits {
        let answer = wait.recv_timeout(PATIENCE).expect("it waits");
        assert_eq!(answer, Err(ErrorKind::NetworkDown));
    }
    ends.join_again();
    (&server).write_all(b"by another").expect("write");
    let mut bytes = [0; 10];
    (&client).read_exact(&mut bytes).expect("read");
    assert_eq!(&bytes, b"by another");
    assert_eq!(ends.near.links().expect("asked")[0].id, LinkId(0));
}

#[test]
fn a_connect_that_is_under_way_fails_with_the_link() {
    let ends = Ends::new();
    let nobody = "10.9.0.77:7";
    let near = ends.near.clone();
    let connecting = told(move || kind(TcpStream::connect(&near, nobody).map(drop)));
    while ends.near.sockets().expect("asked").is_empty() {
        std::thread::yield_now();
    }
    ends.break_links();
    let answer = connecting.recv_timeout(PATIENCE).expect("it waits");
    assert_eq!(answer, Err(ErrorKind::NetworkDown));
    while !ends.near.sockets().expect("asked").is_empty() {
        std::thread::yield_now();
    }
}

/// More than are looked at between two turns.
#[test]
fn each_of_many_is_told_and_a_poller_hears_of_it() {
    const STREAMS: usize = 500;
    let ends = Ends::new();
    let listener = TcpListener::bind(&ends.far, far_addr(7), STREAMS).expect("bind");
    let poller = Poller::new(&ends.near);
    let streams: Vec<_> = (0..STREAMS).map(|_| ends.connect(&listener)).collect();
    for (token, (client, _)) in streams.iter().enumerate() {
        client.set_nonblocking(true).expect("a mode");
        poller.add(client, token).expect("add");
    }
    let mut events = Vec::new();
    poller.wait(Some(PATIENCE), &mut events).expect("the beginning");
    ends.break_links();
    let mut told = [0; STREAMS];
    while told.iter().sum::<usize>() < STREAMS {
        events.clear();
        poller.wait(Some(PATIENCE), &mut events).expect("news");
        assert!(!events.is_empty(), "{} of {STREAMS} were told", told.iter().sum::<usize>());
        for (token, _) in &events {
            match kind((&streams[*token].0).read(&mut [0])) {
                Err(ErrorKind::NetworkDown) => told[*token] += 1,
                other => assert_eq!(other, Err(ErrorKind::WouldBlock)),
            }
        }
    }
    assert!(told.iter().all(|&times| times == 1));
}

#[test]
fn who_has_another_way_is_not_told() {
    let ends = Ends::new();
    // Before, so that there is always one.
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    for (stack, end, address, gateway) in
        [(&ends.near, near, "10.8.0.1/24", "10.8.0.2"), (&ends.far, far, "10.8.0.2/24", "10.8.0.1")]
    {
        let add = move |engine: &mut Engine| {
            let link = engine.add_link(Box::new(end)).expect("a link");
            engine.add_address(link, address.parse().expect("a prefix")).expect("an address");
            engine
                .routes()
                .add_gateway(link, gateway.parse().expect("an address"))
                .expect("a route");
            assert_eq!(link, LinkId(1));
        };
        stack.with_engine(add).expect("an engine");
    }
    let listener = TcpListener::bind(&ends.far, far_addr(7), 16).expect("bind");
    let (client, server) = ends.connect(&listener);
    let reading = client.try_clone().expect("a handle");
    let read = told(move || {
        let mut bytes = [0; 5];
        kind((&reading).read_exact(&mut bytes)).map(|()| bytes)
    });
    ends.break_links();
    (&server).write_all(b"hello").expect("write");
    assert_eq!(read.recv_timeout(PATIENCE).expect("it waits"), Ok(*b"hello"));
    drop(client);
}

/// More than a ring holds, which the engine cannot fill again meanwhile.
#[test]
fn what_has_come_is_read_before_anybody_is_told() {
    let ends = Ends::new();
    let listener = TcpListener::bind(&ends.far, far_addr(7), 16).expect("bind");
    let (client, server) = ends.connect(&listener);
    // All, or as much as the receive buffer takes; there is no end behind it.
    let writing = told(move || {
        let _ = (&server).write_all(&vec![7; 16 << 20]);
        server
    });
    let came = || client.info().expect("a connection").bytes_received;
    loop {
        let before = came();
        std::thread::sleep(std::time::Duration::from_millis(100));
        if before != 0 && came() == before {
            break;
        }
    }
    ends.break_links();
    // Behind the look at all sockets.
    ends.near.links().expect("asked");
    let came = came();
    let (mut buffer, mut read) = (vec![0; 65_536], 0);
    let mut until_told = |is_nonblocking| {
        client.set_nonblocking(is_nonblocking).expect("a mode");
        loop {
            match kind((&client).read(&mut buffer)) {
                Ok(0) => panic!("the end"),
                Ok(len) => read += len as u64,
                Err(kind) => return (kind, read),
            }
        }
    };
    let held = hold(&ends.near);
    let (mut kind, _) = until_told(true);
    drop(held);
    if kind == ErrorKind::WouldBlock {
        (kind, _) = until_told(false);
    }
    assert_eq!((kind, read), (ErrorKind::NetworkDown, came));
    drop(writing.recv_timeout(PATIENCE).expect("it waits"));
}

/// All others were looked at before; and of the connections some were accepted by the engine alone.
#[test]
fn who_comes_when_no_link_is_left_is_told_too() {
    const STREAMS: usize = 100;
    let ends = Ends::new();
    let listener = TcpListener::bind(&ends.far, far_addr(7), STREAMS).expect("bind");
    let clients: Vec<_> = (0..STREAMS)
        .map(|_| TcpStream::connect(&ends.near, far_addr(7)).expect("connect"))
        .collect();
    // The last step of the last handshake has come with this.
    (&clients[STREAMS - 1]).write_all(b"there").expect("write");
    let info = |client: &TcpStream| client.info().expect("a connection");
    while info(&clients[STREAMS - 1]).bytes_acked < 5 {
        std::thread::yield_now();
    }
    ends.break_links();
    for stack in [&ends.near, &ends.far] {
        // Behind the look at all sockets.
        stack.links().expect("asked");
    }
    for number in 0..STREAMS {
        let (stream, _) = listener.accept().unwrap_or_else(|error| panic!("{number}: {error}"));
        stream.set_nonblocking(true).expect("a mode");
        let mut answers = [(); 3].map(|()| kind((&stream).read(&mut [0; 9]))).to_vec();
        answers.retain(|answer| *answer != Ok(5));
        assert_eq!(answers[0], Err(ErrorKind::NetworkDown), "{number}");
        assert_eq!(answers[1], Err(ErrorKind::WouldBlock), "{number}");
    }
    let late = TcpListener::bind(&ends.near, "0.0.0.0:9", 4).expect("bind");
    let socket = UdpSocket::bind(&ends.near, "0.0.0.0:9").expect("bind");
    late.set_nonblocking(true).expect("a mode");
    socket.set_nonblocking(true).expect("a mode");
    for told in [ErrorKind::NetworkDown, ErrorKind::WouldBlock] {
        assert_eq!(kind(late.accept().map(drop)), Err(told));
        assert_eq!(kind(socket.recv(&mut [0; 9])), Err(told));
    }
}
