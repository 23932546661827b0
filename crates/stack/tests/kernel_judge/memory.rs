//! Millstream on both sides, joined by a pair in memory with the same faults: in one thread on a
//! virtual clock, where waiting costs nothing, and in two threads in real time.

use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use millstream::link::{Link, PairConfig, pair};
use millstream::packet::Instant;
use millstream::{Engine, Error, SocketId, local};

use crate::bulk::{CHUNK_BYTES, patterns, receive, send, transfer_bytes};
use crate::capture::{Capture, Whose};
use crate::host::{self, Ip};
use crate::namespace::{Outcome, judged, say, watch};
use crate::pattern::Pattern;

const PORT: u16 = 7001;

static MOVED: AtomicU64 = AtomicU64::new(0);

/// One side of a connection on a virtual clock: what it still has to send and to receive.
struct Side {
    engine: Engine,
    socket: Option<SocketId>,
    own: Pattern,
    theirs: Pattern,
    sent: u64,
    received: u64,
    shut: bool,
    ended: bool,
    chunk: Vec<u8>,
}

impl Side {
    fn new(engine: Engine, own: Pattern, theirs: Pattern) -> Self {
        let chunk = vec![0; CHUNK_BYTES];
        let (sent, received, shut, ended) = (0, 0, false, false);
        Self { engine, socket: None, own, theirs, sent, received, shut, ended, chunk }
    }

    /// Reads and writes what goes without waiting; whether anything went.
    fn work(&mut self, bytes: u64) -> Result<bool, Error> {
        let Some(socket) = self.socket else { return Ok(false) };
        let mut moved = false;
        while self.sent < bytes {
            let n = CHUNK_BYTES.min((bytes - self.sent) as usize);
            self.own.fill(self.sent, &mut self.chunk[..n]);
            match self.engine.tcp(socket).write(&self.chunk[..n]) {
                Ok(0) | Err(Error::WouldBlock | Error::NotConnected) => break,
                Ok(n) => self.sent += n as u64,
                Err(error) => return Err(error),
            }
            moved = true;
        }
        if self.sent == bytes && !self.shut {
            self.engine.tcp(socket).shutdown_write()?;
            self.shut = true;
        }
        while !self.ended {
            match self.engine.tcp(socket).read(&mut self.chunk) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    self.theirs.check(self.received, &self.chunk[..n]);
                    self.received += n as u64;
                }
                Err(Error::WouldBlock | Error::NotConnected) => break,
                Err(error) => return Err(error),
            }
            moved = true;
        }
        Ok(moved)
    }

    fn done(&self) -> bool {
        self.shut && self.ended
    }
}

/// Both engines in one thread. Time passes by two microseconds a round, and jumps to the next
/// deadline when there is nothing to do. Both directions at once.
fn on_a_virtual_clock(ip: Ip, offload: bool, seed: u64) -> Outcome {
    let bytes = transfer_bytes();
    let [capture, far_capture] = ["near", "far"].map(|end| Capture::new(&format!("bulk-{end}")));
    let started = std::time::Instant::now();
    {
        let (near, far) = pair(PairConfig { offload, ..PairConfig::default() })?;
        let near = host::damaged(Box::new(near), host::faults(seed), &capture)?;
        let far = far_capture.trace(far)?;
        let (pool, mut now) = (host::pool(), Instant::from_millis(1));
        let (own, theirs) = patterns();
        let mut near = Side::new(host::engine(&pool, near, Ip::ours)?, own, theirs);
        let mut far = Side::new(host::engine(&pool, far, Ip::kernel)?, theirs, own);
        let at = SocketAddr::new(ip.kernel(), PORT);
        let listener = far.engine.sockets().tcp_listen(at, 1)?;
        near.engine.turn(now);
        near.socket = Some(near.engine.sockets().tcp_connect(at)?);
        watch(|| MOVED.load(Ordering::Relaxed), || "on a virtual clock".into());
        while !(near.done() && far.done()) {
            let turns = [near.engine.turn(now), far.engine.turn(now)];
            if far.socket.is_none() {
                far.socket = far.engine.listener(listener).accept().ok().map(|(id, _)| id);
            }
            let moved = near.work(bytes)? | far.work(bytes)?;
            MOVED.store(near.received + far.received, Ordering::Relaxed);
            if moved || turns.iter().any(|turn| turn.progress) {
                now += Duration::from_micros(2);
            } else {
                let next = turns.iter().filter_map(|turn| turn.next_deadline).min();
                now = next.expect("something to wait for").max(now + Duration::from_micros(2));
            }
        }
        assert_eq!((near.received, far.received), (bytes, bytes));
        let info = near.engine.tcp(near.socket.expect("a socket")).info()?;
        say(&format!(
            "{} MiB each way at once in {:.1} s, {:.1} s of virtual time; {}",
            bytes >> 20,
            started.elapsed().as_secs_f64(),
            now.as_nanos() as f64 / 1e9,
            host::story(&info),
        ));
    }
    capture.judge(Whose::Sent)?;
    far_capture.judge(Whose::Sent)
}

static LISTENING: AtomicBool = AtomicBool::new(false);

/// Accepts one connection, takes in all that comes, then sends as much.
fn far_side(link: Box<dyn Link>, ip: Ip, bytes: u64) -> std::io::Result<()> {
    let stack = local::Stack::new(host::engine(&host::pool(), link, Ip::kernel)?);
    let at = SocketAddr::new(ip.kernel(), PORT);
    let listener = local::TcpListener::bind(&stack, at, 8)?;
    LISTENING.store(true, Ordering::Release);
    let (stream, _) = listener.accept()?;
    let (theirs, own) = patterns();
    receive(&stream, theirs, bytes);
    send(&stream, own, bytes);
    stream.shutdown(Shutdown::Write)?;
    // The last acknowledgements may be lost too: stay a while.
    drop(stream);
    stack.sleep(Duration::from_secs(2))
}

/// Two threads in real time, one direction after the other. A sixteenth of the bytes: each round
/// trip waits for the scheduler twice.
fn in_two_threads(ip: Ip, offload: bool, seed: u64) -> Outcome {
    let bytes = transfer_bytes() / 16;
    let capture = Capture::new("bulk-pair");
    let (near, far) = pair(PairConfig { offload, ..PairConfig::default() })?;
    let near = host::damaged(Box::new(near), host::faults(seed), &capture)?;
    let peer = thread::spawn(move || far_side(Box::new(far), ip, bytes).expect("the far side"));
    while !LISTENING.load(Ordering::Acquire) {
        thread::yield_now();
    }
    let started = std::time::Instant::now();
    {
        let stack = local::Stack::new(host::engine(&host::pool(), near, Ip::ours)?);
        let stream = local::TcpStream::connect(&stack, SocketAddr::new(ip.kernel(), PORT))?;
        let (own, theirs) = patterns();
        send(&stream, own, bytes);
        stream.shutdown(Shutdown::Write)?;
        receive(&stream, theirs, bytes);
        let seconds = started.elapsed().as_secs_f64();
        let story = host::story(&stream.info()?);
        say(&format!("{} MiB each way in {seconds:.1} s; {story}", bytes >> 20));
        drop(stream);
        stack.sleep(Duration::from_secs(1))?;
    }
    peer.join().expect("the far side");
    capture.judge(Whose::Sent)
}

judged! {
    fn v4_with_offloads_on_a_virtual_clock() -> Outcome {
        on_a_virtual_clock(Ip::V4, true, 21)
    }

    fn v6_without_offloads_on_a_virtual_clock() -> Outcome {
        on_a_virtual_clock(Ip::V6, false, 22)
    }

    fn v6_with_offloads_in_two_threads() -> Outcome {
        in_two_threads(Ip::V6, true, 23)
    }

    fn v4_without_offloads_in_two_threads() -> Outcome {
        in_two_threads(Ip::V4, false, 24)
    }
}
