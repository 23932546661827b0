//! Millstream on both sides: two engines in two threads, joined by a pair in memory with the same
//! faults.

use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millstream::link::{Link, PairConfig, pair};
use millstream::local;

use crate::bulk::{patterns, receive, send, transfer_bytes};
use crate::capture::{Capture, Whose};
use crate::host::{self, Ip};
use crate::namespace::{Outcome, judged, say};

const PORT: u16 = 7001;

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
    // The last acknowledgements may be lost too: stay until the other side has closed.
    let mut rest = [0; 16];
    let _ = std::io::Read::read(&mut &stream, &mut rest);
    stack.sleep(Duration::from_secs(1))?;
    Ok(())
}

fn both_ways(ip: Ip, offload: bool, seed: u64) -> Outcome {
    let bytes = transfer_bytes();
    let capture = Capture::new("bulk-pair");
    let (near, far) = pair(PairConfig { offload, ..PairConfig::default() })?;
    let near = host::damaged(Box::new(near), seed, &capture)?;
    let peer = thread::spawn(move || far_side(Box::new(far), ip, bytes).expect("the far side"));
    while !LISTENING.load(Ordering::Acquire) {
        thread::yield_now();
    }
    let start = Instant::now();
    {
        let stack = local::Stack::new(host::engine(&host::pool(), near, Ip::ours)?);
        let to = SocketAddr::new(ip.kernel(), PORT);
        let stream = local::TcpStream::connect(&stack, to)?;
        let (own, theirs) = patterns();
        send(&stream, own, bytes);
        stream.shutdown(Shutdown::Write)?;
        receive(&stream, theirs, bytes);
        let seconds = start.elapsed().as_secs_f64();
        let info = stream.info()?;
        say(&format!("{} MiB each way in {seconds:.1} s; {info:?}", bytes >> 20));
        drop(stream);
        stack.sleep(Duration::from_millis(500))?;
    }
    peer.join().expect("the far side");
    capture.judge(Whose::Sent)
}

judged! {
    fn v4_with_offloads() -> Outcome {
        both_ways(Ip::V4, true, 21)
    }

    fn v6_without_offloads() -> Outcome {
        both_ways(Ip::V6, false, 22)
    }
}
