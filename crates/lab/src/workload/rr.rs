//! Request and response on an open connection, one outstanding.

use std::io;
use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;

use super::{End, Lane, Outcome, Progress, Tracker, describe, monotonic_ns};
use crate::transport::{ConnId, Network};

/// Longest latency that is told apart from longer ones.
const LATENCY_LIMIT_NS: u64 = 60_000_000_000;
/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// An empty histogram of latencies in nanoseconds.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_LIMIT_NS, DIGITS).expect("bounds in order")
}

/// The asking end. A transaction's latency is from before the call that sends
/// the request until after the call that completes the response.
pub(super) fn ask(
    network: &mut dyn Network,
    conn: ConnId,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let request = vec![0x5a; request_bytes];
    let mut response = vec![0; response_bytes];
    let mut latency = latencies();
    let mut transactions = 0;
    let mut tracker = Tracker::new();
    let mut begin = monotonic_ns();
    while !progress.stopping() {
        write_all(network, conn, &request)?;
        if !read_exact(network, conn, &mut response)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = monotonic_ns();
        if progress.in_window(begin, end) {
            latency.saturating_record(end - begin);
        }
        begin = end;
        tracker.look();
        transactions += 1;
        progress.transactions.store(transactions, Ordering::Relaxed);
        progress.sent_bytes.store(transactions * request_bytes as u64, Ordering::Relaxed);
        progress.received_bytes.store(transactions * response_bytes as u64, Ordering::Relaxed);
    }
    let whereabouts = tracker.finish();
    let tcp_info = describe(network, End::Near, &[Lane { conn, sends: true }]);
    network.shutdown_write(conn)?;
    while network.read(conn, &mut response)? > 0 {}
    network.close(conn);
    Ok(Outcome {
        latency_ns: Some(latency),
        tcp_info,
        sending: 1,
        whereabouts,
        ..Outcome::default()
    })
}

/// The answering end: until the asking end is done.
pub(super) fn answer(
    network: &mut dyn Network,
    conn: ConnId,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let response = vec![0xa5; response_bytes];
    let mut request = vec![0; request_bytes];
    let mut transactions = 0;
    let mut tracker = Tracker::new();
    while read_exact(network, conn, &mut request)? {
        tracker.look();
        write_all(network, conn, &response)?;
        transactions += 1;
        progress.transactions.store(transactions, Ordering::Relaxed);
        progress.received_bytes.store(transactions * request_bytes as u64, Ordering::Relaxed);
        progress.sent_bytes.store(transactions * response_bytes as u64, Ordering::Relaxed);
    }
    let whereabouts = tracker.finish();
    let tcp_info = describe(network, End::Far, &[Lane { conn, sends: true }]);
    network.close(conn);
    Ok(Outcome { tcp_info, sending: 1, whereabouts, ..Outcome::default() })
}

pub(super) fn write_all(
    network: &mut dyn Network,
    conn: ConnId,
    mut data: &[u8],
) -> io::Result<()> {
    while !data.is_empty() {
        let written = network.write(conn, data)?;
        data = &data[written..];
    }
    Ok(())
}

/// Fills the buffer; false when the stream ended before its first byte.
pub(super) fn read_exact(
    network: &mut dyn Network,
    conn: ConnId,
    buffer: &mut [u8],
) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match network.read(conn, &mut buffer[filled..])? {
            0 if filled == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            taken => filled += taken,
        }
    }
    Ok(true)
}
