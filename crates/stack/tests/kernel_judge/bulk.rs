//! A gigabyte each way between Millstream and a kernel socket, every byte checked, over a link that
//! loses, reorders and damages.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use millstream::link::FaultConfig;
use millstream::{local, net};

use crate::capture::{Capture, Whose};
use crate::host::{self, Ip};
use crate::namespace::{Outcome, judged, say, watch};
use crate::pattern::Pattern;

/// Bytes that are read or written by one call.
pub const CHUNK_BYTES: usize = 128 << 10;

/// Bytes each way.
pub fn transfer_bytes() -> u64 {
    let told = std::env::var("MILLSTREAM_JUDGE_BYTES").ok().and_then(|text| text.parse().ok());
    told.unwrap_or(if cfg!(debug_assertions) { 32 << 20 } else { 1 << 30 })
}

/// Bytes moved so far, by everybody in this process.
static MOVED: AtomicU64 = AtomicU64::new(0);

/// Writes the pattern from its start.
pub fn send(mut to: impl Write, pattern: Pattern, bytes: u64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut sent = 0;
    while sent < bytes {
        let n = CHUNK_BYTES.min((bytes - sent) as usize);
        pattern.fill(sent, &mut chunk[..n]);
        to.write_all(&chunk[..n]).unwrap_or_else(|error| panic!("at {sent}: {error}"));
        sent += n as u64;
        MOVED.fetch_add(n as u64, Ordering::Relaxed);
    }
}

/// Reads to the end of the stream, which must be the pattern's first `bytes`.
pub fn receive(mut from: impl Read, pattern: Pattern, bytes: u64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut received = 0;
    loop {
        let n = match from.read(&mut chunk) {
            Ok(n) => n,
            Err(error) => panic!("at {received}: {error}"),
        };
        if n == 0 {
            break;
        }
        pattern.check(received, &chunk[..n]);
        received += n as u64;
        MOVED.fetch_add(n as u64, Ordering::Relaxed);
    }
    assert_eq!(received, bytes, "the stream ended early or late");
}

/// The pattern that the side which connects sends, and the other's.
pub fn patterns() -> (Pattern, Pattern) {
    (Pattern::new(1), Pattern::new(2))
}

/// The kernel accepts one connection and moves the bytes, one direction after the other or both at
/// once.
fn kernel_side(
    at: SocketAddr,
    bytes: u64,
    both_at_once: bool,
) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind(at).expect("an address of the TAP device");
    let address = listener.local_addr().expect("a bound listener");
    let (theirs, own) = patterns();
    let peer = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        if both_at_once {
            let second = stream.try_clone().expect("a second descriptor");
            let sender = thread::spawn(move || {
                send(&second, own, bytes);
                second.shutdown(Shutdown::Write).expect("an open stream");
            });
            receive(&stream, theirs, bytes);
            sender.join().expect("the kernel's sender");
        } else {
            receive(&stream, theirs, bytes);
            send(&stream, own, bytes);
            stream.shutdown(Shutdown::Write).expect("an open stream");
        }
    });
    (address, peer)
}

fn rate(bytes: u64, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64();
    format!("{} MiB each way in {seconds:.1} s", bytes >> 20)
}

/// Application in the engine's thread; one direction after the other, the first one half-closed.
fn in_the_engines_thread(ip: Ip, offload: bool, faults: FaultConfig) -> Outcome {
    let bytes = transfer_bytes();
    let capture = Capture::new("bulk-local");
    let link = host::damaged(host::tap(offload)?, faults, &capture)?;
    let (address, kernel) = kernel_side(SocketAddr::new(ip.kernel(), 0), bytes, false);
    let start = Instant::now();
    {
        let stack = local::Stack::new(host::engine(&host::pool(), link, Ip::ours)?);
        watch(|| MOVED.load(Ordering::Relaxed), || "Millstream in the engine's thread".into());
        let stream = local::TcpStream::connect(&stack, address)?;
        let (own, theirs) = patterns();
        send(&stream, own, bytes);
        stream.shutdown(Shutdown::Write)?;
        receive(&stream, theirs, bytes);
        say(&format!("{}; {}", rate(bytes, start), host::story(&stream.info()?)));
    }
    kernel.join().expect("the kernel's side");
    capture.judge(Whose::Sent)
}

/// Large writes are sent from where they lie; the writer's memory is overwritten after each.
fn from_the_writers_memory(ip: Ip) -> Outcome {
    const CALL_BYTES: u64 = 1 << 20;
    let bytes = transfer_bytes();
    let link = host::tap(true)?;
    let (address, kernel) = kernel_side(SocketAddr::new(ip.kernel(), 0), bytes, false);
    let start = Instant::now();
    {
        let stack = local::Stack::new(host::engine(&host::pool(), link, Ip::ours)?);
        watch(|| MOVED.load(Ordering::Relaxed), || "Millstream in the engine's thread".into());
        let mut stream = local::TcpStream::connect(&stack, address)?;
        let (own, theirs) = patterns();
        let mut memory = vec![0; CALL_BYTES as usize];
        for at in (0..bytes).step_by(memory.len()) {
            let data = &mut memory[..CALL_BYTES.min(bytes - at) as usize];
            own.fill(at, data);
            stream.write_all(data)?;
            data.fill(0xee);
            MOVED.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        stream.shutdown(Shutdown::Write)?;
        receive(&stream, theirs, bytes);
        let stats = stack.engine().stats().clone();
        assert!(stats.tcp_tx_zero_copy_bytes > bytes / 4, "{} lent", stats.tcp_tx_zero_copy_bytes);
        say(&format!(
            "{}; {} MiB lent, {} of them copied",
            rate(bytes, start),
            stats.tcp_tx_zero_copy_bytes >> 20,
            stats.tcp_tx_zero_copy_copied_bytes >> 20
        ));
    }
    kernel.join().expect("the kernel's side");
    Ok(())
}

/// Application in threads of its own; both directions at once.
fn through_rings(ip: Ip, offload: bool, faults: FaultConfig) -> Outcome {
    let bytes = transfer_bytes();
    let capture = Capture::new("bulk-net");
    let link = host::damaged(host::tap(offload)?, faults, &capture)?;
    let (address, kernel) = kernel_side(SocketAddr::new(ip.kernel(), 0), bytes, true);
    let start = Instant::now();
    let pool = host::pool();
    let stack = net::Stack::spawn(move || host::engine(&pool, link, Ip::ours))?;
    let stream = Arc::new(net::TcpStream::connect(&stack, address)?);
    watch(|| MOVED.load(Ordering::Relaxed), || "Millstream in its own thread".into());
    let (own, theirs) = patterns();
    let second = Arc::clone(&stream);
    let sender = thread::spawn(move || {
        send(&*second, own, bytes);
        second.shutdown(Shutdown::Write).expect("an open stream");
    });
    receive(&*stream, theirs, bytes);
    sender.join().expect("Millstream's sender");
    say(&format!("{}, both at once; {}", rate(bytes, start), host::story(&stream.info()?)));
    drop(stream);
    kernel.join().expect("the kernel's side");
    stack.shutdown();
    capture.judge(Whose::Sent)
}

judged! {
    fn v4_with_offloads_in_the_engines_thread() -> Outcome {
        in_the_engines_thread(Ip::V4, true, host::faults(11))
    }

    fn v4_with_long_super_segments_lost_and_late_in_the_engines_thread() -> Outcome {
        in_the_engines_thread(Ip::V4, true, host::faults_of_wholes(15))
    }

    fn v6_with_long_super_segments_lost_and_late_in_the_engines_thread() -> Outcome {
        in_the_engines_thread(Ip::V6, true, host::faults_of_wholes(16))
    }

    fn v6_without_offloads_in_the_engines_thread() -> Outcome {
        in_the_engines_thread(Ip::V6, false, host::faults(12))
    }

    fn v4_from_the_writers_memory() -> Outcome {
        from_the_writers_memory(Ip::V4)
    }

    fn v6_from_the_writers_memory() -> Outcome {
        from_the_writers_memory(Ip::V6)
    }

    fn v6_with_offloads_through_rings_both_at_once() -> Outcome {
        through_rings(Ip::V6, true, host::faults(13))
    }

    fn v4_without_offloads_through_rings_both_at_once() -> Outcome {
        through_rings(Ip::V4, false, host::faults(14))
    }
}
