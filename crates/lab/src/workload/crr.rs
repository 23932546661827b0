//! A connection for each request and response, one after the other (netperf's TCP_CRR).
//!
//! The far end closes first, so that what waits in TIME-WAIT (RFC 9293 section 3.4.1) is there, and the near end's ports
//! are free again. A connection that ends before its first byte ends the workload.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use super::rr::{latencies, read_exact, write_all};
use super::{Outcome, Progress, Tracker, monotonic_ns};
use crate::transport::{ListenerId, Network};

/// Connections that may wait to be accepted; one does at most, beside those that ended meanwhile.
pub(super) const BACKLOG: usize = 128;

/// The asking end. A transaction's latency is from before the call that connects until the end of the stream is read.
pub(super) fn ask(
    network: &mut dyn Network,
    peer: SocketAddr,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let request = vec![0x5a; request_bytes];
    let mut response = vec![0; response_bytes];
    let mut latency = latencies();
    let mut transactions = 0;
    let mut tracker = Tracker::new();
    while !progress.stopping() {
        let begin = monotonic_ns();
        let conn = network.connect(peer)?;
        write_all(network, conn, &request)?;
        if !read_exact(network, conn, &mut response)? || network.read(conn, &mut [0])? != 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        network.close(conn);
        let end = monotonic_ns();
        if progress.in_window(begin, end) {
            latency.saturating_record(end - begin);
        }
        tracker.look();
        transactions += 1;
        progress.transactions.store(transactions, Ordering::Relaxed);
        progress.sent_bytes.store(transactions * request_bytes as u64, Ordering::Relaxed);
        progress.received_bytes.store(transactions * response_bytes as u64, Ordering::Relaxed);
    }
    let last = network.connect(peer)?;
    network.shutdown_write(last)?;
    while network.read(last, &mut response)? > 0 {}
    network.close(last);
    let whereabouts = tracker.finish();
    Ok(Outcome { latency_ns: Some(latency), whereabouts, ..Outcome::default() })
}

/// The answering end: until the asking end is done.
pub(super) fn answer(
    network: &mut dyn Network,
    listener: ListenerId,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let response = vec![0xa5; response_bytes];
    let mut request = vec![0; request_bytes];
    let mut transactions = 0;
    let mut tracker = Tracker::new();
    loop {
        let conn = network.accept(listener)?;
        let asked = read_exact(network, conn, &mut request)?;
        tracker.look();
        if !asked {
            network.close(conn);
            break;
        }
        write_all(network, conn, &response)?;
        network.close(conn);
        transactions += 1;
        progress.transactions.store(transactions, Ordering::Relaxed);
        progress.received_bytes.store(transactions * request_bytes as u64, Ordering::Relaxed);
        progress.sent_bytes.store(transactions * response_bytes as u64, Ordering::Relaxed);
    }
    Ok(Outcome { whereabouts: tracker.finish(), ..Outcome::default() })
}
