//! Writes that lend: sent from the writer's memory over a link that has done with it at once,
//! acknowledged or copied, and over one that loses, refuses and delays.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use millstream::link::{Link, LinkError, Medium, PairConfig, PairEnd, forward_link, pair};
use millstream::local::{Stack, TcpListener, TcpStream};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::{Engine, EngineConfig, EngineStats, Error, SocketId};
use millstream_link::Placing;

use crate::common::{FAR, NEAR, config, engine, pool};

const PORT: u16 = 7000;

/// Where the near host hears datagrams.
const HEARS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), PORT);

/// The faults of a bad link, each in packets of a hundred.
#[derive(Clone, Copy, Default)]
struct Badness {
    /// Lent packets that get lost.
    lost: u32,
    /// Lent packets that it has no room for just then.
    refused: u32,
    /// Looks for packets that find nothing although there are some.
    blind: u32,
}

/// Hands on what comes from the caller's memory, and treats it badly.
struct Bad {
    inner: Placing,
    badness: Badness,
    state: u64,
}

impl Bad {
    /// True in `percent` of a hundred cases.
    fn happens(&mut self, percent: u32) -> bool {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) % 100 < u64::from(percent)
    }
}

impl Link for Bad {
    forward_link!(
        self => self.inner;
        capabilities, transmit, borrows, wait_fd, prepare_sleep, stats, name
    );

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        match self.happens(self.badness.blind) {
            true => Ok(0),
            false => self.inner.receive(now, pool, batch),
        }
    }

    fn transmit_from(
        &mut self,
        now: Instant,
        pool: &Pool,
        head: Packet,
        payload: &[u8],
    ) -> Result<Option<Packet>, LinkError> {
        if self.happens(self.badness.refused) {
            return Ok(Some(head));
        }
        match self.happens(self.badness.lost) {
            true => Ok(None),
            false => self.inner.transmit_from(now, pool, head, payload),
        }
    }
}

/// Every byte tells its place.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// 16 MiB of it.
static DATA: LazyLock<Vec<u8>> = LazyLock::new(|| (0..16 << 20).map(pattern).collect());

fn addr(end: usize) -> SocketAddr {
    SocketAddr::new(["10.9.0.2", "fd09::2"][end].parse().expect("an address"), PORT)
}

/// Writes `total` bytes in calls of `call`, out of one buffer that is overwritten between them, to
/// a host that reads `chunk` at most at once. What the writer's engine counted.
fn written(
    link: impl FnOnce(PairEnd) -> Box<dyn Link>,
    with: impl FnOnce(&mut EngineConfig),
    (total, call, chunk): (usize, usize, usize),
    end: usize,
) -> EngineStats {
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    std::thread::scope(|scope| {
        let far_pool = pool.clone();
        let (listening, is_listening) = std::sync::mpsc::channel();
        let reader = scope.spawn(move || {
            let stack = Stack::new(engine(config(&far_pool, 2), far, &FAR));
            let listener = TcpListener::bind(&stack, addr(end), 1).expect("listen");
            listening.send(()).expect("somebody waits");
            let mut stream = listener.accept().expect("a connection").0;
            let (mut buffer, mut at) = (vec![0; chunk], 0);
            loop {
                let len = stream.read(&mut buffer).expect("data");
                for (i, &byte) in buffer[..len].iter().enumerate() {
                    assert_eq!(byte, pattern(at + i), "at {}", at + i);
                }
                at += len;
                if len == 0 {
                    return at;
                }
            }
        });
        let mut config = config(&pool, 1);
        with(&mut config);
        let stack = Stack::new(engine(config, link(near), &NEAR));
        is_listening.recv().expect("a listener");
        let mut stream = TcpStream::connect(&stack, addr(end)).expect("connect");
        let mut buffer = vec![0; call];
        for at in (0..total).step_by(call) {
            let data = &mut buffer[..call.min(total - at)];
            data.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern(at + i));
            stream.write_all(data).expect("write");
            data.fill(0xee);
        }
        drop(stream);
        stack.shutdown();
        assert_eq!(reader.join().expect("the reader"), total);
        stack.engine().stats().clone()
    })
}

fn plain(end: PairEnd) -> Box<dyn Link> {
    Box::new(Placing::new(end))
}

fn as_it_is(_: &mut EngineConfig) {}

#[test]
fn a_large_write_is_sent_from_where_it_lies() {
    for end in [0, 1] {
        let stats = written(plain, as_it_is, (24 << 20, 2 << 20, 128 << 10), end);
        assert!(stats.tcp_tx_zero_copy_bytes > 1 << 20, "{}", stats.tcp_tx_zero_copy_bytes);
    }
}

/// A link whose far end reads whenever the near one looks: ACKs of all that was sent are there
/// then.
struct Prompt {
    inner: Placing,
    far: Engine,
    listener: SocketId,
    conn: Option<SocketId>,
    read: usize,
    /// Looks that find nothing before each that has the far end read.
    late: usize,
    looks: usize,
    /// It resets the connection when it has read so much.
    ends_at: usize,
    /// It sends a datagram when it has read so much.
    greets_at: usize,
    /// The far end of another link, which has taken nothing, and takes all when this end has read
    /// so much.
    full: Option<(usize, PairEnd)>,
}

impl Prompt {
    fn new(end: PairEnd, far: PairEnd, pool: &Pool) -> Self {
        let mut far = engine(config(pool, 2), far, &FAR);
        let listener = far.sockets().tcp_listen(addr(0), 1).expect("listen");
        let inner = Placing::new(end);
        let (read, late, looks, ends_at, greets_at) = (0, 0, 0, usize::MAX, usize::MAX);
        Self { inner, far, listener, conn: None, read, late, looks, ends_at, greets_at, full: None }
    }

    fn serve(&mut self, now: Instant, pool: &Pool) {
        let mut buffer = [0; 65_536];
        for _ in 0..4 {
            let far_now = self.far.refresh_time();
            self.far.turn(far_now);
            self.conn =
                self.conn.or_else(|| Some(self.far.listener(self.listener).accept().ok()?.0));
            let Some(conn) = self.conn else { continue };
            while let Ok(len @ 1..) = self.far.tcp(conn).read(&mut buffer) {
                // Not byte by byte: slow looks are round trips that let timers of the writer come
                // due.
                assert!(buffer[..len] == DATA[self.read..self.read + len], "at {}", self.read);
                self.read += len;
            }
            if self.read >= self.ends_at {
                self.far.tcp(conn).abort();
                self.far.flush();
            }
            if self.read >= self.greets_at {
                self.greets_at = usize::MAX;
                let from = self.far.sockets().udp_bind(addr(0)).expect("bind");
                self.far.udp(from).send(b"hello", Some(HEARS)).expect("room");
                self.far.flush();
            }
            if let Some((read, end)) = &mut self.full
                && self.read >= *read
            {
                let taken = end.receive(now, pool, &mut PacketBatch::new());
                assert_ne!(taken.expect("packets"), 0);
                self.full = None;
            }
        }
    }
}

impl Link for Prompt {
    forward_link!(
        self => self.inner;
        capabilities, transmit, borrows, transmit_from, wait_fd, prepare_sleep, stats, name
    );

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.looks += 1;
        if self.looks <= self.late {
            return Ok(0);
        }
        self.serve(now, pool);
        match self.inner.receive(now, pool, batch) {
            Ok(0) => {
                self.looks = 0;
                Ok(0)
            }
            received => received,
        }
    }
}

/// Returns how many bytes of 16 MiB, written in calls of 1 MiB, were lent, and how many of them
/// copied after all, if the reader reads `late` looks after it could.
fn lent_and_copied(late: usize, lend_wait: Duration) -> (u64, u64) {
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let link = Prompt { late, ..Prompt::new(near, far, &pool) };
    let mut config = config(&pool, 1);
    config.limits.tuning.zero_copy_wait = lend_wait;
    // A pause of the machine is no loss: nothing is sent again for time.
    (config.tcp.min_rto_ms, config.tcp.sack) = (u16::MAX, false);
    let mut near = engine(config, link, &NEAR);
    let conn = near.sockets().tcp_connect(addr(0)).expect("connect");
    while !near.tcp(conn).connected().expect("open") {
        turn(&mut near);
    }
    let data = &*DATA;
    for call in data.chunks(1 << 20) {
        let mut written = 0;
        while written != call.len() {
            written += near.tcp(conn).send(&call[written..]).unwrap_or(0);
            turn(&mut near);
        }
    }
    let stats = near.stats();
    assert!(stats.tcp_tx_zero_copy_bytes > 4 << 20, "{}", stats.tcp_tx_zero_copy_bytes);
    (stats.tcp_tx_zero_copy_bytes, stats.tcp_tx_zero_copy_copied_bytes)
}

#[test]
fn what_is_acknowledged_while_it_is_lent_is_not_copied() {
    let (lent, copied) = lent_and_copied(0, Duration::ZERO);
    assert!(4 * copied < lent, "{copied} of {lent}");
}

/// A peer that reads a megabyte by one call acknowledges it behind that.
#[test]
fn a_write_waits_for_acks_that_come_late() {
    const LATE: usize = 12;
    let (lent, copied) = lent_and_copied(LATE, Duration::from_secs(60));
    assert!(4 * copied < lent, "{copied} of {lent}");
    // A wait that is shorter than the round trips is in vain.
    for wait in [Duration::ZERO, Duration::from_nanos(1)] {
        let (lent, copied) = lent_and_copied(LATE, wait);
        assert!(2 * copied > lent, "{copied} of {lent}");
    }
}

/// The write answers with the bytes that it had sent before; the next one gets the reset.
#[test]
fn a_reset_that_comes_while_a_write_lends_is_told() {
    let mut met_while_it_lends = 0;
    for part in 0..16 {
        let pool = pool();
        let (near, far) = pair(PairConfig::default()).expect("a pair");
        let ends_at = (4 << 20) + part * 65_536;
        let link = Prompt { ends_at, ..Prompt::new(near, far, &pool) };
        let mut near = engine(config(&pool, 1), link, &NEAR);
        let conn = near.sockets().tcp_connect(addr(0)).expect("connect");
        while !near.tcp(conn).connected().expect("open") {
            turn(&mut near);
        }
        let data = &*DATA;
        let (mut at, mut lent) = (0, 0);
        let error = loop {
            let before = near.stats().tcp_tx_zero_copy_bytes;
            match near.tcp(conn).send(&data[at..at + (1 << 20)]) {
                Ok(written) => {
                    (at, lent) = (at + written, near.stats().tcp_tx_zero_copy_bytes - before)
                }
                Err(Error::WouldBlock) => turn(&mut near),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::ConnectionReset, "after {at}");
        met_while_it_lends += usize::from(lent != 0);
    }
    assert_ne!(met_while_it_lends, 0);
}

/// A link that always has a packet for nobody, and whose far end is silent, from when it is told.
struct Flooded {
    inner: Prompt,
    flood: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
}

impl Link for Flooded {
    forward_link!(
        self => self.inner;
        capabilities, transmit, borrows, transmit_from, wait_fd, prepare_sleep, stats, name
    );

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        // It ends some time, so that a write that waits for that fails the test and does not hang
        // it.
        if !self.flood.load(Ordering::Relaxed) || looks > 1_000_000 {
            return self.inner.receive(now, pool, batch);
        }
        batch.push(Packet::from_slice(pool, 0, &[0; 60]).expect("a frame")).expect("room");
        Ok(1)
    }
}

/// Packets of others are no reason to wait longer for a silent peer.
#[test]
fn a_write_that_lends_ends_whatever_arrives() {
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let (flood, looks) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let inner = Prompt::new(near, far, &pool);
    let link = Flooded { inner, flood: Arc::clone(&flood), looks: Arc::clone(&looks) };
    let mut near = engine(config(&pool, 1), link, &NEAR);
    let conn = near.sockets().tcp_connect(addr(0)).expect("connect");
    while !near.tcp(conn).connected().expect("open") {
        turn(&mut near);
    }
    let data = &*DATA;
    let mut at = 0;
    while near.stats().tcp_tx_zero_copy_bytes == 0 {
        at += near.tcp(conn).send(&data[at..at + (1 << 20)]).unwrap_or(0);
        (0..16).for_each(|_| turn(&mut near));
    }
    flood.store(true, Ordering::Relaxed);
    let (lent, before) = (near.stats().tcp_tx_zero_copy_bytes, looks.load(Ordering::Relaxed));
    assert_ne!(near.tcp(conn).send(&data[at..]), Ok(0));
    assert_ne!(near.stats().tcp_tx_zero_copy_bytes, lent, "it lent");
    let looked = looks.load(Ordering::Relaxed) - before;
    assert!(looked < 100_000, "{looked} looks");
}

/// The news comes to a socket that had none before.
#[test]
fn a_write_that_lends_ends_when_there_is_news_for_others() {
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let greets_at = 4 << 20;
    let link = Prompt { greets_at, ..Prompt::new(near, far, &pool) };
    let mut near = engine(config(&pool, 1), link, &NEAR);
    let hears = near.sockets().udp_bind(HEARS).expect("bind");
    let conn = near.sockets().tcp_connect(addr(0)).expect("connect");
    while !near.tcp(conn).connected().expect("open") {
        turn(&mut near);
    }
    let (data, mut at) = (&*DATA, 0);
    while near.udp(hears).recv(&mut [0; 16]).is_err() {
        at += near.tcp(conn).send(&data[at..]).unwrap_or(0);
        turn(&mut near);
    }
    assert!((greets_at..2 * greets_at).contains(&at), "{at} bytes");
}

#[test]
fn a_write_that_lends_ends_when_there_is_room_that_others_wait_for() {
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let small = PairConfig { medium: Medium::Ip, capacity: 8, ..PairConfig::default() };
    let (full, far_full) = pair(small).expect("a pair");
    let room_at = 4 << 20;
    let link = Prompt { full: Some((room_at, far_full)), ..Prompt::new(near, far, &pool) };
    let mut near = engine(config(&pool, 1), link, &NEAR);
    let link = near.add_link(Box::new(full)).expect("a link");
    near.add_address(link, "10.8.0.1/24".parse().expect("a prefix")).expect("an address");
    let talks = near.sockets().udp_bind("10.8.0.1:7".parse().expect("an address")).expect("bind");
    let to = Some("10.8.0.2:7".parse().expect("an address"));
    let conn = near.sockets().tcp_connect(addr(0)).expect("connect");
    while !near.tcp(conn).connected().expect("open") {
        turn(&mut near);
    }
    while near.udp(talks).send(b"much", to) != Err(Error::WouldBlock) {}
    let (data, mut at) = (&*DATA, 0);
    while near.udp(talks).send(b"more", to).is_err() {
        at += near.tcp(conn).send(&data[at..]).unwrap_or(0);
        turn(&mut near);
    }
    assert!((room_at..2 * room_at).contains(&at), "{at} bytes");
}

fn turn(engine: &mut Engine) {
    let now = engine.refresh_time();
    engine.turn(now);
}

#[test]
fn small_writes_and_other_links_are_copied() {
    let stats = written(plain, as_it_is, (4 << 20, 100_000, 128 << 10), 0);
    assert_eq!((stats.tcp_tx_zero_copy_bytes, stats.tcp_tx_zero_copy_copied_bytes), (0, 0));
    let stats = written(|end| Box::new(end), as_it_is, (8 << 20, 1 << 20, 128 << 10), 0);
    assert_eq!((stats.tcp_tx_zero_copy_bytes, stats.tcp_tx_zero_copy_copied_bytes), (0, 0));
    let never = |config: &mut EngineConfig| config.limits.tuning.zero_copy_bytes = usize::MAX;
    let stats = written(plain, never, (8 << 20, 1 << 20, 128 << 10), 0);
    assert_eq!((stats.tcp_tx_zero_copy_bytes, stats.tcp_tx_zero_copy_copied_bytes), (0, 0));
}

/// Windows that close, segments that get lost or find no room, ACKs seen late: the reader has the
/// bytes that were written, though the writer's memory holds others by then.
#[test]
fn what_was_lent_arrives_whatever_happens_to_it() {
    for seed in 0..12_u64 {
        let badness = match seed % 4 {
            0 => Badness { lost: 3, ..Badness::default() },
            1 => Badness { refused: 20, blind: 30, ..Badness::default() },
            2 => Badness { lost: 2, refused: 10, blind: 50 },
            _ => Badness { blind: 90, ..Badness::default() },
        };
        let bad = |end| -> Box<dyn Link> {
            Box::new(Bad { inner: Placing::new(end), badness, state: seed * 77 + 5 })
        };
        let with = |config: &mut EngineConfig| {
            config.limits.tuning.zero_copy_bytes = 70_000;
            if seed % 3 == 0 {
                config.tcp.send_buffer_bytes = 400_000;
            }
        };
        let chunk = [1_000, 64 << 10, 300_000][seed as usize % 3];
        let call = [150_000, 1 << 20, 333_333][seed as usize / 4];
        let stats = written(bad, with, (6 << 20, call, chunk), seed as usize % 2);
        assert!(stats.tcp_tx_zero_copy_bytes > 0, "seed {seed}: nothing was lent");
    }
}

/// Payload with its sequence number.
type Numbered = Vec<(u32, Vec<u8>)>;

/// Keeps the payload of each segment sent over IPv4, with its sequence number; the first is that of
/// the SYN.
struct Recorded {
    inner: Placing,
    sent: Arc<std::sync::Mutex<Numbered>>,
}

impl Recorded {
    fn record(&self, head: &Packet, payload: &[u8]) {
        let mut frame = vec![0; head.len()];
        head.copy_to(0, &mut frame);
        frame.extend_from_slice(payload);
        // Ethernet, its type; IPv4, the header's length and the protocol; TCP, the number and the
        // header's length.
        if frame[12..14] != [8, 0] || frame[23] != 6 {
            return;
        }
        let tcp = 14 + usize::from(frame[14] & 15) * 4;
        let number = frame[tcp + 4..tcp + 8].try_into().map(u32::from_be_bytes).expect("4 bytes");
        let data = tcp + usize::from(frame[tcp + 12] >> 4) * 4;
        self.sent.lock().expect("no panic").push((number, frame[data..].to_vec()));
    }
}

impl Link for Recorded {
    forward_link!(
        self => self.inner;
        capabilities, receive, borrows, wait_fd, prepare_sleep, stats, name
    );

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        batch.iter().for_each(|packet| self.record(packet, &[]));
        self.inner.transmit(now, pool, batch)
    }

    fn transmit_from(
        &mut self,
        now: Instant,
        pool: &Pool,
        head: Packet,
        payload: &[u8],
    ) -> Result<Option<Packet>, LinkError> {
        self.record(&head, payload);
        self.inner.transmit_from(now, pool, head, payload)
    }
}

/// The stream as the segments of a writer carry it, with zero-copy send or without. The reader
/// (`written`) has compared what its application saw.
fn stream_sent(is_zero_copy: bool) -> Vec<u8> {
    let total = 3 << 20;
    let sent = Arc::default();
    let link = |end| -> Box<dyn Link> {
        Box::new(Recorded { inner: Placing::new(end), sent: Arc::clone(&sent) })
    };
    let with = |config: &mut EngineConfig| {
        if !is_zero_copy {
            config.limits.tuning.zero_copy_bytes = usize::MAX;
        }
    };
    let stats = written(link, with, (total, 1 << 20, 64 << 10), 0);
    assert_eq!(stats.tcp_tx_zero_copy_bytes > 0, is_zero_copy);
    let sent = sent.lock().expect("no panic");
    let mut stream = vec![None; total];
    for (number, data) in &sent[1..] {
        let at = number.wrapping_sub(sent[0].0).wrapping_sub(1) as usize;
        for (place, &byte) in stream.iter_mut().skip(at).zip(data) {
            assert_eq!(*place.get_or_insert(byte), byte, "what is sent again is the same");
        }
    }
    stream.into_iter().map(|byte| byte.expect("all was sent")).collect()
}

#[test]
fn segments_carry_the_same_with_zero_copy_send_and_without() {
    assert!(stream_sent(true) == stream_sent(false));
}
