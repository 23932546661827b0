//! Waiting for many streams with memory for their data: what links put straight there, the same
//! streams with and without.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use millstream::link::{Medium, PairConfig, pair};
use millstream::local::{Received, Stack, TcpListener, TcpStream};
use millstream::{EngineStats, SocketId};
use millstream_link::Placing;

use crate::common::{FAR, NEAR, config, engine, pool};

const PORT: u16 = 50_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Every byte tells its stream and its place in it.
fn pattern(stream: usize, at: usize) -> u8 {
    ((at + 7 * stream).wrapping_mul(2_654_435_761) >> 13) as u8
}

fn addr() -> SocketAddr {
    SocketAddr::new("10.9.0.2".parse().expect("an address"), PORT)
}

/// Streams, and which of them may be read while they are waited for.
#[derive(Clone, Copy)]
struct Streams {
    count: usize,
    agree: fn(usize) -> bool,
    bytes: usize,
    /// Bytes of the memory that is read into.
    memory: usize,
}

/// The streams as they come in.
struct Taken {
    /// By socket: its number, from the first byte, and what has come. The number is of no stream
    /// before that.
    streams: HashMap<SocketId, (TcpStream, usize, usize)>,
    placed: usize,
    left: usize,
}

impl Taken {
    /// Data of a stream, the next ones. The first byte says which stream it is.
    fn take(&mut self, id: SocketId, data: &[u8]) {
        let (_, number, at) = self.streams.get_mut(&id).expect("a stream");
        let mut data = data;
        if *at == 0 && *number == usize::MAX {
            *number = data[0].into();
            data = &data[1..];
        }
        for (i, &byte) in data.iter().enumerate() {
            assert_eq!(byte, pattern(*number, *at + i), "stream {number} at {}", *at + i);
        }
        *at += data.len();
    }

    /// Pieces lie apart from each other.
    fn take_pieces(&mut self, received: &mut Vec<Received>, memory: &[u8], streams: Streams) {
        let mut end = 0;
        for Received { id, range } in received.drain(..) {
            assert!(range.start >= end && !range.is_empty(), "{range:?} after {end}");
            end = range.end;
            self.placed += range.len();
            self.take(id, &memory[range]);
            assert!((streams.agree)(self.streams[&id].1), "it did not agree");
        }
    }

    /// Reads the data that an event told of.
    fn read(&mut self, id: SocketId, buffer: &mut [u8], bytes: usize) {
        loop {
            let (mut stream, _, at) =
                self.streams.get(&id).map(|(a, b, c)| (a, b, *c)).expect("one");
            match stream.read(buffer) {
                Ok(0) => {
                    assert_eq!(at, bytes, "the end");
                    self.left -= 1;
                    return;
                }
                Ok(len) => self.take(id, &buffer[..len]),
                Err(error) => return assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    }
}

/// Serves the streams until all have ended; what the engine counted, and how many bytes came with
/// the waiting.
fn served(stack: &Stack, listener: &TcpListener, with: Streams) -> (EngineStats, usize) {
    let mut taken = Taken { streams: HashMap::new(), placed: 0, left: with.count };
    let mut buffer = vec![0; 30_000];
    for _ in 0..with.count {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut number = [0];
        stream.read_exact(&mut number).expect("its number");
        stream.set_nonblocking(true).expect("a stream");
        stream.set_wait_read((with.agree)(number[0].into())).expect("a stream");
        taken.streams.insert(stream.id(), (stream, number[0].into(), 0));
    }
    let ids: Vec<SocketId> = taken.streams.keys().copied().collect();
    for id in ids {
        taken.read(id, &mut buffer, with.bytes);
    }
    let (mut memory, mut events, mut received) = (vec![0; with.memory], Vec::new(), Vec::new());
    while taken.left > 0 {
        stack.wait_read(Some(PATIENCE), &mut memory, &mut events, &mut received).expect("turns");
        assert!(!events.is_empty() || !received.is_empty(), "nothing came");
        taken.take_pieces(&mut received, &memory, with);
        for event in events.drain(..) {
            // The listener has news, too.
            if event.readiness.readable && event.id != listener.id() {
                taken.read(event.id, &mut buffer, with.bytes);
            }
        }
    }
    (stack.engine().stats().clone(), taken.placed)
}

/// Sends the streams, writes taking turns, over a link to a host that takes them by waiting.
fn moved(link: PairConfig, with: Streams) -> (EngineStats, usize) {
    let pool = pool();
    let (near, far) = pair(link).expect("a pair");
    std::thread::scope(|scope| {
        let far_pool = pool.clone();
        let (listening, is_listening) = std::sync::mpsc::channel();
        let reader = scope.spawn(move || {
            let far = Placing::new(far);
            let stack = Stack::new(engine(config(&far_pool, 2), far, &FAR));
            let listener = TcpListener::bind(&stack, addr(), 8).expect("listen");
            listening.send(()).expect("somebody waits");
            served(&stack, &listener, with)
        });
        let stack = Stack::new(engine(config(&pool, 1), near, &NEAR));
        is_listening.recv().expect("a listener");
        let connect = |_| {
            let stream = TcpStream::connect(&stack, addr()).expect("connect");
            // A reader that failed takes nothing any more.
            stream.set_write_timeout(Some(PATIENCE)).expect("a stream");
            stream
        };
        let mut all: Vec<TcpStream> = (0..with.count).map(connect).collect();
        for (number, stream) in all.iter_mut().enumerate() {
            stream.write_all(&[number as u8]).expect("write");
        }
        for at in (0..with.bytes).step_by(150_000) {
            for (number, stream) in all.iter_mut().enumerate() {
                let end = with.bytes.min(at + 150_000);
                let data: Vec<u8> = (at..end).map(|at| pattern(number, at)).collect();
                stream.write_all(&data).expect("write");
            }
        }
        drop(all);
        stack.shutdown();
        reader.join().expect("the reader")
    })
}

#[test]
fn the_data_of_many_streams_go_into_the_memory_of_who_waits() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let link = PairConfig { medium, ..PairConfig::default() };
        let with = Streams { count: 4, agree: |_| true, bytes: 4 << 20, memory: 256 << 10 };
        let is_most = (0..20).any(|_| {
            let (stats, placed) = moved(link.clone(), with);
            assert_eq!(stats.tcp_rx_direct_bytes, placed as u64);
            placed > with.count * with.bytes / 2
        });
        assert!(is_most, "less than half was placed");
    }
}

#[test]
fn memory_that_is_full_ends_a_batch_and_nothing_is_lost() {
    for memory in [100 << 10, 40_000, 10_000] {
        let with = Streams { count: 3, agree: |_| true, bytes: 2 << 20, memory };
        let placed = (0..20).any(|_| moved(PairConfig::default(), with).1 > 0);
        assert!(placed, "none into {memory} bytes");
    }
}

#[test]
fn without_room_or_bulk_or_agreement_all_is_told_by_events() {
    let with = Streams { count: 2, agree: |_| true, bytes: 1 << 20, memory: 256 << 10 };
    let link = PairConfig::default();
    assert_eq!(moved(link.clone(), Streams { memory: 0, ..with }).1, 0);
    assert_eq!(moved(link.clone(), Streams { agree: |_| false, ..with }).1, 0);
    assert_eq!(moved(PairConfig { offload: false, ..link }, with).1, 0);
}

#[test]
fn streams_that_did_not_agree_are_left_alone_among_others() {
    let with = Streams { count: 4, agree: |n| n % 2 == 0, bytes: 4 << 20, memory: 256 << 10 };
    // Nothing is placed while nobody waits, as on a busy machine at times.
    assert!((0..20).any(|_| moved(PairConfig::default(), with).1 > 0));
}
