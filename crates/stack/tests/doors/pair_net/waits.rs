//! Calls that wait beside one another on one socket: each no longer than it may, and no news is
//! lost.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use millstream::Error;
use millstream::link::PairConfig;
use millstream::net::{Poller, Stack, TcpListener, TcpStream, UdpSocket};
use millstream::packet::{Packet, Pool, PoolConfig};

use super::ends::until_it_sleeps;
use super::{ends, far_addr, stacks, stacks_of};
use crate::common;

/// No test waits so long for a call that does not wait.
pub const PATIENCE: Duration = Duration::from_secs(20);
const SHORT: Option<Duration> = Some(Duration::from_millis(20));

/// Returns a channel for the result of a call in another thread, which may never end.
pub fn told<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> mpsc::Receiver<R> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(call()));
    told
}

/// The kind of what a call says that waits for nobody.
fn soon(call: impl FnOnce() -> std::io::Result<usize> + Send + 'static) -> Option<ErrorKind> {
    let told = told(call).recv_timeout(PATIENCE).expect("it waits with another thread's call");
    told.err().map(|error| error.kind())
}

/// Keeps the engine from its work until the answer is dropped.
pub fn hold(stack: &Stack) -> mpsc::Sender<()> {
    let (go_on, waits) = mpsc::channel::<()>();
    let (held, holds) = mpsc::channel();
    let stack = stack.clone();
    std::thread::spawn(move || {
        stack.with_engine(move |_| {
            held.send(()).expect("the test");
            let _ = waits.recv();
        })
    });
    holds.recv().expect("the engine");
    go_on
}

/// Two ends that keep little: who writes more than the other reads comes to wait.
pub fn small_ends() -> (TcpStream, TcpStream, [Stack; 2]) {
    let (client, server, stacks) = ends();
    for stream in [&client, &server] {
        let mut options = stream.options().expect("options");
        (options.send_buffer_bytes, options.recv_buffer_bytes) = (200_000, 200_000);
        stream.set_options(&options).expect("options");
    }
    (client, server, stacks)
}

#[test]
fn a_read_that_sleeps_keeps_no_other_beyond_its_time() {
    let (client, mut server, _stacks) = ends();
    let before = client.wakeup_stats().sleeps;
    let clone = || client.try_clone().expect("a clone");
    let other = clone();
    let reader = told(move || (&other).read(&mut [0; 9]));
    until_it_sleeps(&client, before);
    client.set_read_timeout(SHORT).expect("a time-out");
    for is_nonblocking in [false, true] {
        client.set_nonblocking(is_nonblocking).expect("a mode");
        let [first, second, third] = [(); 3].map(|()| clone());
        assert_eq!(soon(move || (&first).read(&mut [0])), Some(ErrorKind::WouldBlock));
        assert_eq!(soon(move || second.peek(&mut [0])), Some(ErrorKind::WouldBlock));
        let read = move || third.read_packet(9).map(|packet| packet.map_or(0, |it| it.len()));
        assert_eq!(soon(read), Some(ErrorKind::WouldBlock));
    }
    server.write_all(b"awake").expect("write");
    assert_eq!(reader.recv_timeout(PATIENCE).expect("woken").expect("read"), 5);
}

/// Others may use the room that appears meanwhile, if it is too little to wake the sleeping writer
/// for.
#[test]
fn a_write_that_sleeps_keeps_no_other_beyond_its_time() {
    let (client, mut server, [near, _far]) = small_ends();
    let before = client.wakeup_stats().sleeps;
    let clone = || client.try_clone().expect("a clone");
    let (other, mut total) = (clone(), 64 << 20);
    let writer = told(move || (&other).write_all(&vec![7; 64 << 20]));
    until_it_sleeps(&client, before);
    client.set_write_timeout(SHORT).expect("a time-out");
    let more = Arc::new(AtomicUsize::new(0));
    let packet = move || Packet::from_slice(near.pool(), 0, &[7]).expect("memory");
    for is_nonblocking in [false, true] {
        client.set_nonblocking(is_nonblocking).expect("a mode");
        let [first, second] = [(); 2].map(|()| (clone(), more.clone(), packet.clone()));
        let write = move || loop {
            first.1.fetch_add((&first.0).write(&[7; 100_000])?, Ordering::SeqCst);
        };
        assert_eq!(soon(write), Some(ErrorKind::WouldBlock));
        let put = move || loop {
            second.0.write_packet(second.2())?;
            second.1.fetch_add(1, Ordering::SeqCst);
        };
        assert_eq!(soon(put), Some(ErrorKind::WouldBlock));
    }
    let mut refused = None;
    while refused.is_none() {
        refused = client.try_write_packet(packet()).map_err(|(_, error)| error).err();
        total += usize::from(refused.is_none());
    }
    assert_eq!(refused, Some(Error::WouldBlock));
    let mut got = vec![0; total + more.load(Ordering::SeqCst)];
    server.read_exact(&mut got).expect("read");
    writer.recv_timeout(PATIENCE).expect("woken").expect("write");
    assert!(got.iter().all(|&byte| byte == 7));
}

#[test]
fn an_accept_that_sleeps_keeps_no_other_beyond_its_time() {
    let (near, far) = stacks(PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let clone = || listener.try_clone().expect("a clone");
    let other = clone();
    let accepted = told(move || other.accept().map(|_| ()));
    std::thread::sleep(Duration::from_millis(100));
    listener.set_nonblocking(true).expect("a mode");
    let other = clone();
    assert_eq!(soon(move || other.accept().map(|_| 0)), Some(ErrorKind::WouldBlock));
    let _client = TcpStream::connect(&near, far_addr(7)).expect("connect");
    accepted.recv_timeout(PATIENCE).expect("woken").expect("accept");
}

#[test]
fn datagram_calls_that_sleep_keep_no_other_beyond_its_time() {
    let (near, far) = stacks(PairConfig::default());
    let server = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let clone = || server.try_clone().expect("a clone");
    let other = clone();
    let received = told(move || other.recv(&mut [0; 9]));
    std::thread::sleep(Duration::from_millis(100));
    server.set_read_timeout(SHORT).expect("a time-out");
    for is_nonblocking in [false, true] {
        server.set_nonblocking(is_nonblocking).expect("a mode");
        let other = clone();
        assert_eq!(soon(move || other.recv(&mut [0; 9])), Some(ErrorKind::WouldBlock));
    }
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    client.send_to(b"awake", far_addr(53)).expect("send");
    assert_eq!(received.recv_timeout(PATIENCE).expect("woken").expect("receive"), 5);
    let held = hold(&near);
    let clone = || client.try_clone().expect("a clone");
    let other = clone();
    let sent =
        told(move || (0..1000).try_for_each(|_| other.send_to(b"x", far_addr(53)).map(|_| ())));
    std::thread::sleep(Duration::from_millis(100));
    client.set_write_timeout(SHORT).expect("a time-out");
    for is_nonblocking in [false, true] {
        client.set_nonblocking(is_nonblocking).expect("a mode");
        let other = clone();
        let refused = soon(move || other.send_to(b"y", far_addr(53)));
        assert_eq!(refused, Some(ErrorKind::WouldBlock));
    }
    client.set_nonblocking(false).expect("a mode");
    client.set_write_timeout(None).expect("a time-out");
    drop(held);
    sent.recv_timeout(PATIENCE).expect("woken").expect("send");
}

/// The time-out is that of the whole call, not of each of its parts.
#[test]
fn a_write_waits_no_longer_in_all_than_it_was_told() {
    let (client, server, _stacks) = small_ends();
    client.set_write_timeout(Some(Duration::from_millis(150))).expect("a time-out");
    let total = 256 << 20;
    let writer = told(move || (&client).write(&vec![7; total]));
    // Always some room before its time is over, and room for all in five seconds at the earliest.
    let mut got = Vec::new();
    loop {
        match writer.recv_timeout(Duration::from_millis(20)) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                got.clear();
                // Less where the writer's time is over meanwhile, and the stream with it.
                (&server).take(1 << 20).read_to_end(&mut got).expect("read");
            }
            written => {
                let written = written.expect("a writer").expect("something was written");
                assert!(written < total, "it waited anew for each part");
                break;
            }
        }
    }
}

/// While the reader takes as much as comes: the ring is never full for long.
#[test]
fn a_large_write_lets_others_in_between() {
    const LARGE: usize = 256 << 20;
    let (client, server, _stacks) = small_ends();
    let other = client.try_clone().expect("a clone");
    let writer = told(move || (&other).write_all(&vec![7; LARGE]));
    let mut got = vec![0; 1 << 20];
    (&server).read_exact(&mut got).expect("read");
    let small = told(move || (&client).write_all(&[8]));
    let (mut read, mut at) = (got.len(), None);
    // It has begun to wait before the rest is read.
    std::thread::sleep(Duration::from_millis(100));
    while read < LARGE + 1 {
        let len = (&server).read(&mut got).expect("read");
        at = at.or(got[..len].iter().position(|&byte| byte == 8).map(|place| read + place));
        read += len;
    }
    writer.recv_timeout(PATIENCE).expect("woken").expect("write");
    small.recv_timeout(PATIENCE).expect("woken").expect("write");
    assert!(at.is_some_and(|at| at < LARGE), "behind all of it: {at:?}");
}

/// Every byte goes to one of them, and the end to all.
#[test]
fn several_wait_to_read_and_to_write_and_none_is_forgotten() {
    const EACH: usize = 20_000;
    let (client, server, _stacks) = ends();
    let handles = |stream: &TcpStream| [(); 3].map(|()| stream.try_clone().expect("a clone"));
    let readers = handles(&server).map(|stream| {
        told(move || {
            let (mut sum, mut bytes) = (0, [0; 700]);
            loop {
                match (&stream).read(&mut bytes).expect("read") {
                    0 => return sum,
                    len => sum += len,
                }
            }
        })
    });
    let writers = handles(&client).map(|stream| {
        told(move || {
            for round in 0..EACH {
                // Now and then all wait.
                if round % 500 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                (&stream).write_all(&[7; 999][..round % 1000]).expect("write");
            }
        })
    });
    for writer in writers {
        writer.recv_timeout(2 * PATIENCE).expect("a wake-up was lost");
    }
    drop(client);
    let sum = readers.map(|reader| reader.recv_timeout(PATIENCE).expect("a wake-up was lost"));
    let each: usize = (0..EACH).map(|round| round % 1000).sum();
    assert_eq!(sum.iter().sum::<usize>(), 3 * each);
}

/// Also where most of them give up at the moment when something comes.
#[test]
fn who_waits_for_ever_is_woken_among_those_who_do_not() {
    const ROUNDS: usize = 300;
    let (client, server, _stacks) = ends();
    server.set_nodelay(true).expect("nodelay");
    let done = Arc::new(AtomicUsize::new(0));
    let readers = [(); 4].map(|()| {
        let (stream, done) = (client.try_clone().expect("a clone"), done.clone());
        told(move || {
            loop {
                match (&stream).read(&mut [0]) {
                    Ok(0) => return,
                    Ok(_) => drop(done.fetch_add(1, Ordering::SeqCst)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        })
    });
    for round in 0..ROUNDS {
        let timeout = [None, Some(Duration::from_micros(300))][round % 2];
        client.set_read_timeout(timeout).expect("a time-out");
        (&server).write_all(&[0; 3]).expect("write");
        let begin = std::time::Instant::now();
        while done.load(Ordering::SeqCst) < 3 * (round + 1) {
            assert!(begin.elapsed() < PATIENCE, "round {round}: a wake-up was lost");
            std::thread::yield_now();
        }
    }
    drop(server);
    for reader in readers {
        reader.recv_timeout(PATIENCE).expect("the end is told to all");
    }
}

/// Each of them has news, and hears of them.
#[test]
fn several_threads_wait_for_one_poller() {
    let (near, far) = stacks(PairConfig::default());
    let poller = Arc::new(Poller::new(&far));
    let sockets = [53, 54].map(|port| UdpSocket::bind(&far, far_addr(port)).expect("bind"));
    for (token, socket) in sockets.iter().enumerate() {
        poller.add(socket, token).expect("add");
    }
    let mut events = Vec::new();
    while events.len() < 2 {
        poller.wait(Some(Duration::from_millis(10)), &mut events).expect("wait");
    }
    let waits = [(); 2].map(|()| {
        let poller = poller.clone();
        told(move || {
            let mut events = Vec::new();
            poller.wait(None, &mut events).map(|()| events.len())
        })
    });
    std::thread::sleep(Duration::from_millis(100));
    let client = UdpSocket::bind(&near, "0.0.0.0:0").expect("bind");
    client.send_to(b"one", far_addr(53)).expect("send");
    std::thread::sleep(Duration::from_millis(100));
    client.send_to(b"two", far_addr(54)).expect("send");
    for wait in waits {
        assert_eq!(wait.recv_timeout(PATIENCE).expect("woken").expect("wait"), 1);
    }
}

/// Each would wait for ever.
#[test]
fn a_call_that_the_engine_runs_is_refused_where_it_would_wait_for_an_engine() {
    let (client, server, [near, far]) = ends();
    let address = |port| SocketAddr::new("10.9.0.1".parse().expect("an address"), port);
    let listener = TcpListener::bind(&near, address(7), 16).expect("bind");
    let socket = UdpSocket::bind(&near, address(7)).expect("bind");
    let poller = Poller::new(&near);
    let (stack, other) = (near.clone(), far.clone());
    let accepted = server.try_clone().expect("a handle");
    let inside = move || {
        let kind = |tried: io::Result<()>| tried.map_err(|error| error.kind());
        let refused = [
            kind(stack.stats().map(drop)),
            kind(stack.with_engine(|_| ())),
            kind(TcpListener::bind(&stack, address(8), 16).map(drop)),
            kind(TcpStream::connect(&stack, far_addr(7)).map(drop)),
            kind(UdpSocket::bind(&stack, address(8)).map(drop)),
            kind(client.set_nodelay(true)),
            kind((&client).read(&mut [0]).map(drop)),
            kind(listener.accept().map(drop)),
            kind(socket.recv_from(&mut [0]).map(drop)),
            kind(poller.wait(None, &mut Vec::new())),
        ];
        assert_eq!(refused, [Err(ErrorKind::Deadlock); 10]);
        // Whether that one waits for this one, too, does not matter.
        let refused = [
            kind(other.stats().map(drop)),
            kind(accepted.set_nodelay(true)),
            kind((&accepted).read(&mut [0]).map(drop)),
            kind(Poller::new(&other).wait(None, &mut Vec::new())),
            kind(Stack::spawn(|| unreachable!()).map(drop)),
        ];
        assert_eq!(refused, [Err(ErrorKind::Deadlock); 5]);
        // What takes no waiting is done.
        assert_eq!(kind((&client).write_all(b"x")), Ok(()));
        assert_eq!(kind(poller.wait(Some(Duration::ZERO), &mut Vec::new())), Ok(()));
        client.set_nonblocking(true).expect("a mode");
        assert_eq!(kind((&client).read(&mut [0]).map(drop)), Err(ErrorKind::WouldBlock));
        client.abort();
    };
    let call = near.clone();
    let answer = told(move || call.with_engine(move |_| inside()));
    answer.recv_timeout(PATIENCE).expect("it waits for itself").expect("an engine");
    server.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let end = (&server).read_to_end(&mut Vec::new()).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}

/// Each runs a call that has something to ask the other.
#[test]
fn two_engines_that_ask_each_other_do_not_wait_for_ever() {
    let (near, far) = stacks(PairConfig::default());
    let meet = Arc::new(Barrier::new(2));
    let asked = [(&near, &far), (&far, &near)].map(|(own, other)| {
        let (own, other, meet) = (own.clone(), other.clone(), Arc::clone(&meet));
        told(move || {
            own.with_engine(move |_| {
                meet.wait();
                other.stats().map(drop).map_err(|error| (error.kind(), error.to_string()))
            })
        })
    });
    for answer in asked {
        let (kind, text) =
            answer.recv_timeout(PATIENCE).expect("they wait").expect("an engine").unwrap_err();
        assert_eq!(kind, ErrorKind::Deadlock);
        assert!(text.contains("another thread"), "{text}");
    }
}

/// The last handle of another engine: that ends by itself, also where it runs a call that does the
/// same.
#[test]
fn an_engine_that_lets_go_of_another_does_not_wait_for_its_end() {
    let (near, far) = stacks(PairConfig::default());
    let meet = Arc::new(Barrier::new(2));
    let (own, other) = (near.clone(), far.clone());
    let calls = [(near, other), (far, own)].map(|(own, other)| {
        let meet = Arc::clone(&meet);
        told(move || {
            own.with_engine(move |_| {
                meet.wait();
                other.shutdown();
                drop(other);
            })
        })
    });
    for call in calls {
        call.recv_timeout(PATIENCE).expect("they wait").expect("the call was run");
    }
}

/// The engine then takes much at once of the data that did not fit while the ring was full.
#[test]
fn an_engine_is_told_of_room_when_the_ring_is_half_empty() {
    let (client, server, stacks) = ends();
    let writer = told(move || (&server).write_all(&vec![1; 16 << 20]));
    let stalled = |stack: &Stack| {
        // It has come as far as it can: nothing has happened for a while.
        let mut last = u64::MAX;
        loop {
            let now = stack.stats().expect("an engine").rx_packets;
            if now == last {
                return;
            }
            last = now;
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    stalled(&stacks[0]);
    let before = stacks[0].wakeup_stats().edges;
    let mut buffer = [0; 1024];
    for _ in 0..300 {
        (&client).read_exact(&mut buffer).expect("data");
        // As long as an engine takes that was told.
        std::thread::sleep(Duration::from_micros(200));
    }
    let edges = stacks[0].wakeup_stats().edges - before;
    assert!(edges < 20, "{edges} for 300 reads");
    let mut rest = vec![0; (16 << 20) - 300 * 1024];
    (&client).read_exact(&mut rest).expect("the rest");
    writer.recv_timeout(PATIENCE).expect("done").expect("written");
}

/// Two ends of a connection between stacks of a pool that does not grow, and all frames of it that
/// are free.
fn without_frames() -> (TcpStream, TcpStream, [Stack; 2], Vec<Packet>) {
    let pool = Pool::new(PoolConfig::fixed(2048)).expect("a pool");
    let (near, far) = stacks_of(&pool, PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), 16).expect("bind");
    let client = TcpStream::connect(&near, far_addr(7)).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    let hoard = std::iter::from_fn(|| pool.alloc(0)).collect();
    (client, server, [near, far], hoard)
}

/// As a write that finds the ring full.
#[test]
fn a_write_that_finds_no_frame_waits_for_one() {
    let (client, mut server, _stacks, hoard) = without_frames();
    client.set_nonblocking(true).expect("a mode");
    let refused = (&client).write(b"not now").map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::WouldBlock));
    client.set_nonblocking(false).expect("a mode");
    let before = client.wakeup_stats().sleeps;
    let writer = client.try_clone().expect("a clone");
    let written = told(move || (&writer).write_all(b"at last"));
    until_it_sleeps(&client, before);
    drop(hoard);
    written.recv_timeout(PATIENCE).expect("it is told").expect("room");
    let mut got = [0; 7];
    server.read_exact(&mut got).expect("data");
    assert_eq!(&got, b"at last");
}

#[test]
fn a_write_goes_on_with_the_frames_there_are() {
    let (client, _server, _stacks, mut hoard) = without_frames();
    client.set_nonblocking(true).expect("a mode");
    hoard.truncate(hoard.len() - 5);
    let written = (&client).write(&[7; 65_536]).expect("five frames");
    assert!((1..65_536).contains(&written), "{written} bytes");
}

#[test]
fn a_poller_hears_of_frames() {
    let (client, _server, stacks, hoard) = without_frames();
    client.set_nonblocking(true).expect("a mode");
    let poller = Poller::new(&stacks[0]);
    poller.add(&client, 5).expect("add");
    let freed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(hoard);
    });
    let (mut events, mut refused) = (Vec::new(), 0);
    while let Err(error) = (&client).write(b"at last") {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        refused += 1;
        events.clear();
        poller.wait(Some(PATIENCE), &mut events).expect("a poller");
        assert!(!events.is_empty(), "no news after {refused} refusals");
    }
    assert!((1..1000).contains(&refused), "{refused} refusals");
    freed.join().expect("the hoard");
}

/// It would wait for frames for ever: what cannot be sent keeps them.
#[test]
fn a_write_that_waits_for_frames_is_told_that_no_link_is_left() {
    let (client, _server, stacks, _hoard) = without_frames();
    let before = client.wakeup_stats().sleeps;
    let writer = client.try_clone().expect("a clone");
    let written = told(move || (&writer).write_all(b"never").map_err(|error| error.kind()));
    until_it_sleeps(&client, before);
    let removed = stacks[0].with_engine(|engine| {
        let link = engine.inspect().links().next().expect("a link").id;
        engine.links().remove(link).is_ok()
    });
    assert!(removed.expect("an engine"));
    let end = written.recv_timeout(PATIENCE).expect("it is told");
    assert_eq!(end, Err(ErrorKind::NetworkDown));
}

/// Their rings hold more than the pool begins with, which grows between the engine's turns.
#[test]
fn many_streams_that_write_at_once_wait_for_the_pool() {
    const STREAMS: usize = 100;
    let (near, far) = stacks_of(&common::pool(), PairConfig::default());
    let listener = TcpListener::bind(&far, far_addr(7), STREAMS).expect("bind");
    let pairs: Vec<_> = (0..STREAMS)
        .map(|_| {
            let client = TcpStream::connect(&near, far_addr(7)).expect("connect");
            client.set_nonblocking(true).expect("a mode");
            (client, listener.accept().expect("accept").0)
        })
        .collect();
    let data = vec![7; 131_072];
    let (mut written, mut refused) = (vec![0; STREAMS], 0);
    // Until nobody gets on, as nobody reads.
    while refused < 20 {
        let before: usize = written.iter().sum();
        for ((client, _), written) in pairs.iter().zip(&mut written) {
            match (&mut { client }).write(&data) {
                Ok(len) => *written += len,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        std::thread::sleep(Duration::from_millis(2));
        refused = if written.iter().sum::<usize>() == before { refused + 1 } else { 0 };
    }
    for ((_, server), written) in pairs.iter().zip(&written) {
        assert!(*written >= 256 << 10, "{written} bytes");
        (&mut { server }).read_exact(&mut vec![0; *written]).expect("all of it");
    }
}

/// A poller is told of room by who was refused, as the kernel's is: not after each write.
#[test]
fn a_poller_is_not_woken_for_room_that_nobody_asked_for() {
    const ROUNDS: usize = 300;
    let (mut client, server, [near, far]) = ends();
    let listens = UdpSocket::bind(&far, far_addr(53)).expect("bind");
    let asks = UdpSocket::bind(&near, "10.9.0.1:0").expect("bind");
    let poller = Poller::new(&far);
    poller.add(&server, 0).expect("add");
    poller.add(&listens, 1).expect("add");
    server.set_nonblocking(true).expect("a mode");
    listens.set_nonblocking(true).expect("a mode");
    let serves = std::thread::spawn(move || {
        let (mut events, mut bytes, mut vain, mut served) = (Vec::new(), [0; 64], 0, 0);
        while served < 2 * ROUNDS {
            events.clear();
            poller.wait(Some(PATIENCE), &mut events).expect("a poller");
            vain += usize::from(events.iter().all(|(_, news)| !news.readable));
            while let Ok(len) = (&server).read(&mut bytes) {
                (&server).write_all(&bytes[..len]).expect("room");
                served += 1;
            }
            while let Ok((len, from)) = listens.recv_from(&mut bytes) {
                listens.send_to(&bytes[..len], from).expect("room");
                served += 1;
            }
        }
        vain
    });
    for _ in 0..ROUNDS {
        client.write_all(b"?").expect("write");
        client.read_exact(&mut [0]).expect("read");
        asks.send_to(b"?", far_addr(53)).expect("send");
        asks.recv(&mut [0]).expect("receive");
    }
    let vain = serves.join().expect("the server");
    assert!(vain < ROUNDS / 10, "{vain} vain wake-ups");
}

/// Also where it was taken in part, and where the room comes between.
#[test]
fn who_polls_and_was_refused_hears_of_room_each_time() {
    let (client, mut server, stacks) = small_ends();
    client.set_nonblocking(true).expect("a mode");
    let poller = Poller::new(&stacks[0]);
    poller.add(&client, 5).expect("add");
    const TOTAL: usize = 24 << 20;
    let reader = std::thread::spawn(move || {
        let (mut bytes, mut got) = (vec![0; 50_000], 0);
        while got < TOTAL {
            got += server.read(&mut bytes).expect("data");
        }
    });
    let (mut events, mut sent, data) = (Vec::new(), 0, vec![7; 100_000]);
    let mut refused = 0;
    while sent < TOTAL {
        match (&client).write(&data[..data.len().min(TOTAL - sent)]) {
            Ok(len) => sent += len,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refused += 1;
                events.clear();
                poller.wait(Some(PATIENCE), &mut events).expect("a poller");
                assert!(!events.is_empty(), "no news after {sent} bytes");
            }
        }
    }
    assert!(refused > 5, "{refused} refusals");
    reader.join().expect("all of it");
}
