//! Reads that wait: links that put payload straight into the application's buffer, and the same
//! stream with and without.

use std::io::{Read, Write};
use std::net::SocketAddr;

use millstream::link::{Link, PairConfig, PairEnd, Shared, pair};
use millstream::local::{Stack, TcpListener, TcpStream};
use millstream::{EngineConfig, EngineStats};
use millstream_link::Placing;

use crate::common::{FAR, NEAR, config, engine, pool};

/// The port of the first engine, where several share a device.
const PORT: u16 = 50_000;

/// Every byte tells its stream and its place in it.
fn pattern(stream: usize, at: usize) -> u8 {
    ((at + 7 * stream).wrapping_mul(2_654_435_761) >> 13) as u8
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::new("10.9.0.2".parse().expect("an address"), port)
}

/// Sends `total` bytes on each of `streams` connections, writes taking turns, to a host that reads
/// them one after the other, `chunk` bytes at most at once, and finds nothing of another stream
/// behind them. What its engine counted.
fn moved(
    link: PairConfig,
    streams: usize,
    total: usize,
    chunk: usize,
    direct: usize,
) -> EngineStats {
    moved_over(|end| Box::new(Placing::new(end)), link, streams, total, chunk, direct)
}

/// The same with a far link of one's own making.
fn moved_over(
    wrap: fn(PairEnd) -> Box<dyn Link>,
    link: PairConfig,
    streams: usize,
    total: usize,
    chunk: usize,
    direct: usize,
) -> EngineStats {
    let pool = pool();
    let (near, far) = pair(link).expect("a pair");
    std::thread::scope(|scope| {
        let far_pool = pool.clone();
        let (listening, is_listening) = std::sync::mpsc::channel();
        let reader = scope.spawn(move || {
            let mut with: EngineConfig = config(&far_pool, 2);
            with.limits.tuning.direct_read_bytes = direct;
            let stack = Stack::new(engine(with, wrap(far), &FAR));
            let listener = TcpListener::bind(&stack, addr(PORT), 8).expect("listen");
            listening.send(()).expect("somebody waits");
            let mut all: Vec<TcpStream> =
                (0..streams).map(|_| listener.accept().expect("a connection").0).collect();
            let (mut buffer, nothing) = (vec![0; chunk], vec![0; chunk]);
            let mut read = vec![0; streams];
            for step in 0.. {
                let of = step % streams;
                buffer.fill(0);
                let len = all[of].read(&mut buffer).expect("data");
                assert!(buffer[len..] == nothing[len..], "another's data, behind {len} bytes");
                for (i, &byte) in buffer[..len].iter().enumerate() {
                    assert_eq!(byte, pattern(of, read[of] + i), "stream {of} at {}", read[of] + i);
                }
                read[of] += len;
                if len == 0 || read.iter().all(|&read| read == total) {
                    break;
                }
                // The end of one is not waited for while others have data.
                if read[of] == total && streams > 1 {
                    break;
                }
            }
            all.iter_mut().zip(&mut read).enumerate().for_each(|(of, (stream, read))| {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).expect("the rest");
                let is_right = |(i, &byte): (usize, &u8)| byte == pattern(of, *read + i);
                assert!(rest.iter().enumerate().all(is_right), "stream {of}");
                *read += rest.len();
            });
            assert!(read.iter().all(|&read| read == total), "{read:?}");
            stack.engine().stats().clone()
        });
        let stack = Stack::new(engine(config(&pool, 1), near, &NEAR));
        is_listening.recv().expect("a listener");
        let mut all: Vec<TcpStream> = (0..streams)
            .map(|_| TcpStream::connect(&stack, addr(PORT)).expect("connect"))
            .collect();
        for at in (0..total).step_by(50_000) {
            for (of, stream) in all.iter_mut().enumerate() {
                let end = total.min(at + 50_000);
                let data: Vec<u8> = (at..end).map(|at| pattern(of, at)).collect();
                stream.write_all(&data).expect("write");
            }
        }
        drop(all);
        stack.shutdown();
        reader.join().expect("the reader")
    })
}

#[test]
fn a_stream_goes_into_the_buffer_of_the_read_that_waits() {
    for medium in [millstream::link::Medium::Ethernet, millstream::link::Medium::Ip] {
        let link = PairConfig { medium, ..PairConfig::default() };
        for chunk in [128 << 10, 20_000] {
            let stats = moved(link.clone(), 1, 8 << 20, chunk, 8192);
            assert!(stats.tcp_rx_direct_bytes > 0, "chunks of {chunk}: none");
        }
        let stats = moved(link, 1, 4 << 20, 128 << 10, usize::MAX);
        assert_eq!((stats.tcp_rx_direct_bytes, stats.tcp_rx_direct_missed), (0, 0));
    }
}

#[test]
fn the_queue_of_a_device_that_engines_share_does_so_too() {
    let two_queues = |end| -> Box<dyn Link> {
        let (other, _) = pair(PairConfig::default()).expect("a pair");
        let queues = [end, other].map(Placing::new);
        Box::new(Shared::over(queues.into()).expect("descriptors").swap_remove(0))
    };
    let stats = moved_over(two_queues, PairConfig::default(), 1, 8 << 20, 128 << 10, 8192);
    assert!(stats.tcp_rx_direct_bytes > 0);
    moved_over(two_queues, PairConfig::default(), 3, 4 << 20, 10_000, 8192);
}

/// Another stream's data lie in the link before those of the read that begins: they are copied out,
/// and both are whole.
#[test]
fn what_is_not_for_the_reader_takes_the_long_way() {
    // a window of which the last segments are bulk
    const FIRST: usize = 512 << 10;
    const THEN: usize = 64 << 10;
    let pool = pool();
    let (near, far) = pair(PairConfig::default()).expect("a pair");
    let data = |of, len| -> Vec<u8> { (0..len).map(|at| pattern(of, at)).collect() };
    let stats = std::thread::scope(|scope| {
        let far_pool = pool.clone();
        let (has_read, reads) = std::sync::mpsc::channel();
        let (has_sent, sent) = std::sync::mpsc::channel();
        let reader = scope.spawn(move || {
            let mut with: EngineConfig = config(&far_pool, 2);
            with.limits.tuning.direct_read_bytes = 8192;
            let stack = Stack::new(engine(with, Box::new(Placing::new(far)), &FAR));
            let listener = TcpListener::bind(&stack, addr(PORT), 8).expect("listen");
            has_read.send(()).expect("somebody waits");
            let mut all = [(); 2].map(|()| listener.accept().expect("a connection").0);
            let mut buffer = vec![0; FIRST];
            all[0].read_exact(&mut buffer).expect("the first");
            has_read.send(()).expect("somebody waits");
            sent.recv().expect("somebody writes");
            for of in [0, 1] {
                all[of].read_exact(&mut buffer[..THEN]).expect("all");
                assert!(buffer[..THEN] == data(of, THEN), "stream {of}");
            }
            stack.engine().stats().clone()
        });
        let stack = Stack::new(engine(config(&pool, 1), near, &NEAR));
        reads.recv().expect("a listener");
        let mut all = [(); 2].map(|()| TcpStream::connect(&stack, addr(PORT)).expect("connect"));
        all[0].write_all(&data(0, FIRST)).expect("write");
        while reads.try_recv().is_err() {
            stack.run_once(Some(std::time::Duration::from_millis(1))).expect("a turn");
        }
        for of in [1, 0] {
            all[of].write_all(&data(of, THEN)).expect("write");
        }
        has_sent.send(()).expect("somebody waits");
        drop(all);
        stack.shutdown();
        reader.join().expect("the reader")
    });
    assert!(stats.tcp_rx_direct_missed > 0, "no wrong guess");
}

#[test]
fn small_segments_are_received_without_a_guess() {
    let link = PairConfig { offload: false, ..PairConfig::default() };
    assert_eq!(moved(link, 1, 1 << 20, 128 << 10, 8192).tcp_rx_direct_bytes, 0);
}
