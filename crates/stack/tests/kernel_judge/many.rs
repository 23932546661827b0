//! A thousand connections at once, and a listener at its limit.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use millstream::packet::Pool;
use millstream::{DropReason, SocketId, SocketKind, local, tcp};

use crate::capture::{Capture, Whose};
use crate::host::{self, Ip};
use crate::namespace::{Outcome, Stop, judged, say, watch};
use crate::pattern::Pattern;

/// Connections open at once.
pub const CONNECTIONS: usize = 1000;
/// Bytes that each of them carries, each way.
const BYTES: usize = 20_000;
const THREADS: usize = 20;
const PORT: u16 = 7002;

/// Progress, for the watch.
static DONE: AtomicUsize = AtomicUsize::new(0);

fn watch_here() {
    watch(|| DONE.load(Ordering::Relaxed) as u64, || "connections done".into());
}

/// One connection of an echo server, or of its client, that never blocks.
struct Talk {
    stream: local::TcpStream,
    /// Data that this side still has to write.
    unsent: Vec<u8>,
    /// Bytes that came in: an echo server keeps none of them.
    received: usize,
    ended: bool,
}

impl Talk {
    fn new(stream: local::TcpStream, unsent: Vec<u8>) -> Self {
        stream.set_nonblocking(true).expect("a flag");
        Self { stream, unsent, received: 0, ended: false }
    }

    /// Writes what it can and reads what is there, handing the bytes read to `take`, whose answer
    /// is written as well.
    fn go_on(&mut self, mut take: impl FnMut(usize, &[u8]) -> Vec<u8>) -> std::io::Result<()> {
        let mut buffer = [0; 16 << 10];
        loop {
            let mut moved = false;
            if !self.unsent.is_empty() {
                match (&self.stream).write(&self.unsent) {
                    Ok(n) => {
                        self.unsent.drain(..n);
                        moved = n > 0;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
            // An echo server that cannot write need not read.
            if self.unsent.len() < 64 << 10 && !self.ended {
                match (&self.stream).read(&mut buffer) {
                    Ok(0) => self.ended = true,
                    Ok(n) => {
                        let answer = take(self.received, &buffer[..n]);
                        self.received += n;
                        self.unsent.extend(answer);
                        moved = true;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
            if !moved {
                return Ok(());
            }
        }
    }
}

/// Nothing but the listener and what TIME-WAIT needs is left, and no frame of the pool is held.
fn nothing_is_left(stack: &local::Stack, pool: &Pool) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        stack.run_once(Some(Duration::from_millis(50))).expect("a turn");
        let open: Vec<String> = stack
            .engine()
            .inspect()
            .sockets()
            .filter(|s| s.kind == SocketKind::Tcp && s.state != "TIME-WAIT")
            .map(|s| format!("{s:?}"))
            .collect();
        // Frames in receive rings and thread caches are not held by a connection.
        let used = pool.stats().used_frames;
        if open.is_empty() && used < 512 {
            return;
        }
        let first = open.first();
        assert!(Instant::now() < until, "{} open, first {first:?}, {used} frames used", open.len());
    }
}

/// Kernel clients: all connect, then all talk, then all close.
fn kernel_clients(to: SocketAddr) -> Vec<thread::JoinHandle<()>> {
    let all = Arc::new(Barrier::new(THREADS));
    (0..THREADS)
        .map(|t| {
            let all = Arc::clone(&all);
            thread::spawn(move || {
                let streams: Vec<(usize, TcpStream)> = (t..CONNECTIONS)
                    .step_by(THREADS)
                    .map(|n| (n, TcpStream::connect(to).expect("a connection")))
                    .collect();
                all.wait();
                for (n, stream) in &streams {
                    let mut bytes = vec![0; BYTES];
                    Pattern::new(*n as u64).fill(0, &mut bytes);
                    (&*stream).write_all(&bytes).expect("an open stream");
                }
                for (n, stream) in &streams {
                    let mut bytes = vec![0; BYTES];
                    (&*stream).read_exact(&mut bytes).expect("the echo");
                    Pattern::new(*n as u64).check(0, &bytes);
                    DONE.fetch_add(1, Ordering::Relaxed);
                }
                all.wait();
                for (_, stream) in &streams {
                    stream.shutdown(Shutdown::Write).expect("an open stream");
                }
                for (_, mut stream) in streams {
                    let mut rest = Vec::new();
                    stream.read_to_end(&mut rest).expect("an orderly end");
                    assert!(rest.is_empty());
                }
            })
        })
        .collect()
}

/// Kernel clients open a thousand connections to Millstream, use them all, close them all.
fn millstream_serves(offload: bool, ip: Ip) -> Outcome {
    let capture = Capture::new("many-server");
    let link = capture.trace(host::tap(offload)?)?;
    let pool = host::pool();
    {
        let stack = local::Stack::new(host::engine(&pool, link, Ip::ours)?);
        let at = SocketAddr::new(ip.ours(), PORT);
        let listener = local::TcpListener::bind(&stack, at, CONNECTIONS)?;
        listener.set_nonblocking(true)?;
        watch_here();
        let clients = kernel_clients(at);
        let mut talks: HashMap<SocketId, Talk> = HashMap::new();
        let (mut accepted, mut closed, mut most) = (0, 0, 0);
        let mut events = Vec::new();
        while closed < CONNECTIONS {
            stack.wait(Some(Duration::from_secs(1)), &mut events)?;
            let mut ready: Vec<SocketId> = events.drain(..).map(|event| event.id).collect();
            while let Some((stream, _)) = would_block(listener.accept())? {
                accepted += 1;
                ready.push(stream.id());
                talks.insert(stream.id(), Talk::new(stream, Vec::new()));
            }
            most = most.max(talks.len());
            for id in ready {
                let Some(talk) = talks.get_mut(&id) else { continue };
                talk.go_on(|_, bytes| bytes.to_vec())?;
                if talk.ended && talk.unsent.is_empty() {
                    assert_eq!(talk.received, BYTES);
                    talks.remove(&id);
                    closed += 1;
                }
            }
        }
        assert_eq!((accepted, most), (CONNECTIONS, CONNECTIONS), "accepted and open at once");
        // The clients read the end of each stream.
        while !clients.iter().all(thread::JoinHandle::is_finished) {
            stack.run_once(Some(Duration::from_millis(10)))?;
        }
        for client in clients {
            client.join().expect("a client");
        }
        nothing_is_left(&stack, &pool);
    }
    capture.judge(Whose::All)
}

/// `None` instead of the error that says to come again.
fn would_block<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Kernel servers that echo each connection in a thread of its own. A listener of the standard
/// library has a backlog of 128, beyond which the kernel resets what it cannot keep; so these are
/// enough to take all connections at once.
fn kernel_echoes(ip: Ip) -> Result<Vec<SocketAddr>, Stop> {
    let mut addresses = Vec::new();
    for _ in 0..CONNECTIONS.div_ceil(100) {
        let listener = TcpListener::bind((ip.kernel(), 0))?;
        addresses.push(listener.local_addr()?);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                let echo = move || {
                    std::io::copy(&mut &stream, &mut &stream).expect("an orderly end");
                    let _ = stream.shutdown(Shutdown::Write);
                };
                thread::Builder::new().stack_size(128 << 10).spawn(echo).expect("a thread");
            }
        });
    }
    Ok(addresses)
}

/// Millstream opens a thousand connections to a kernel server, uses them all, closes them all.
fn millstream_connects(offload: bool, ip: Ip) -> Outcome {
    let capture = Capture::new("many-client");
    let link = capture.trace(host::tap(offload)?)?;
    let servers = kernel_echoes(ip)?;
    let pool = host::pool();
    {
        let stack = local::Stack::new(host::engine(&pool, link, Ip::ours)?);
        watch_here();
        let mut talks: HashMap<SocketId, (Pattern, Talk)> = HashMap::new();
        for n in 0..CONNECTIONS {
            let to = servers[n % servers.len()];
            let stream =
                local::TcpStream::connect_nonblocking(&stack, to, &tcp::Config::default())?;
            talks.insert(stream.id(), (Pattern::new(n as u64), Talk::new(stream, Vec::new())));
        }
        let mut events = Vec::new();
        let mut opened = 0;
        while opened < CONNECTIONS {
            stack.wait(Some(Duration::from_secs(1)), &mut events)?;
            for event in events.drain(..) {
                assert!(!event.readiness.closed, "a connection was refused");
                let (pattern, talk) = talks.get_mut(&event.id).expect("one of ours");
                if event.readiness.writable && talk.unsent.is_empty() {
                    talk.unsent = vec![0; BYTES];
                    pattern.fill(0, &mut talk.unsent);
                    opened += 1;
                }
            }
        }
        // All are open; now all talk.
        let mut ready: Vec<SocketId> = talks.keys().copied().collect();
        while DONE.load(Ordering::Relaxed) < CONNECTIONS {
            for id in ready.drain(..) {
                let (pattern, talk) = talks.get_mut(&id).expect("one of ours");
                let before = talk.received;
                talk.go_on(|at, bytes| {
                    pattern.check(at as u64, bytes);
                    Vec::new()
                })?;
                if before < BYTES && talk.received == BYTES {
                    DONE.fetch_add(1, Ordering::Relaxed);
                }
            }
            stack.wait(Some(Duration::from_secs(1)), &mut events)?;
            ready.extend(events.drain(..).map(|event| event.id));
        }
        drop(talks);
        nothing_is_left(&stack, &pool);
    }
    capture.judge(Whose::All)
}

/// More clients than the backlog holds: the queue never grows beyond it, and all are served in the
/// end.
fn backlog(ip: Ip) -> Outcome {
    const BACKLOG: usize = 8;
    const CLIENTS: usize = 40;
    let capture = Capture::new("backlog");
    let link = capture.trace(host::tap(true)?)?;
    {
        let stack = local::Stack::new(host::engine(&host::pool(), link, Ip::ours)?);
        let at = SocketAddr::new(ip.ours(), PORT);
        let listener = local::TcpListener::bind(&stack, at, BACKLOG)?;
        watch_here();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                thread::spawn(move || {
                    let mut stream = TcpStream::connect(at).expect("a connection, in the end");
                    stream.write_all(&[n as u8; 100]).expect("an open stream");
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).expect("an answer");
                    assert_eq!(answer, [n as u8; 100]);
                    DONE.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        let waiting = || {
            let engine = stack.engine();
            let of = engine.inspect().sockets().find(|s| s.kind == SocketKind::Listener);
            of.map_or(0, |listener| listener.receive_queue)
        };
        // Nobody accepts until the queue is full and the other clients have tried again twice,
        // however long that takes: who stops this process does not stop the clock.
        let mut full_turns = 0;
        let refused = || stack.engine().stats().dropped(DropReason::AcceptQueueFull);
        while full_turns == 0 || refused() < 3 * (CLIENTS - BACKLOG) as u64 {
            stack.run_once(Some(Duration::from_millis(20)))?;
            assert!(waiting() <= BACKLOG, "{} wait for a backlog of {BACKLOG}", waiting());
            full_turns += usize::from(waiting() == BACKLOG);
        }
        let drops: Vec<_> =
            stack.engine().stats().drops_by_name().filter(|(_, n)| *n > 0).collect();
        say(&format!("at the limit of {BACKLOG} for {full_turns} turns; drops {drops:?}"));
        for _ in 0..CLIENTS {
            let (mut stream, _) = listener.accept()?;
            let mut greeting = [0; 100];
            stream.read_exact(&mut greeting)?;
            stream.write_all(&greeting)?;
        }
        while !clients.iter().all(thread::JoinHandle::is_finished) {
            stack.run_once(Some(Duration::from_millis(10)))?;
        }
        for client in clients {
            client.join().expect("a client");
        }
    }
    capture.judge(Whose::All)
}

judged! {
    fn a_thousand_from_the_kernel_v4() -> Outcome {
        millstream_serves(true, Ip::V4)
    }

    fn a_thousand_from_the_kernel_v6_without_offloads() -> Outcome {
        millstream_serves(false, Ip::V6)
    }

    fn a_thousand_to_the_kernel_v6() -> Outcome {
        millstream_connects(true, Ip::V6)
    }

    fn a_thousand_to_the_kernel_v4_without_offloads() -> Outcome {
        millstream_connects(false, Ip::V4)
    }

    fn a_listener_at_its_backlog_limit() -> Outcome {
        backlog(Ip::V4)
    }
}
