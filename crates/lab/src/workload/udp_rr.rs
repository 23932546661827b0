//! Request and response in datagrams, one outstanding. What is lost is asked again after [`PATIENCE`]: its transaction
//! takes that long, and is counted.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::datagrams::GREETING;
use super::rr::latencies;
use super::{Outcome, Progress, Tracker, monotonic_ns};
use crate::transport::{DatagramId, Network};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long the answering end waits before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The asking end. The first byte of each datagram tells transactions apart, so that a late answer is not taken for
/// that of the next.
pub(super) fn ask(
    network: &mut dyn Network,
    socket: DatagramId,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let mut request = vec![0x5a; request_bytes];
    let mut response = vec![0; response_bytes + 1];
    let mut latency = latencies();
    let (mut transactions, mut asked, mut repeated) = (0, 0, 0u64);
    let mut tracker = Tracker::new();
    'next: while !progress.stopping() {
        // Never that of the greeting, which may come late, too.
        request[0] = (transactions % 250) as u8;
        let begin = monotonic_ns();
        network.send_datagrams(socket, &[&request])?;
        asked += 1;
        loop {
            match network.receive_datagram(socket, &mut response, PATIENCE)? {
                Some(bytes) if bytes == response_bytes && response[0] == request[0] => break,
                Some(_) => {}
                None if progress.stopping() => break 'next,
                None => {
                    repeated += 1;
                    asked += 1;
                    network.send_datagrams(socket, &[&request])?;
                }
            }
        }
        let end = monotonic_ns();
        if progress.in_window(begin, end) {
            latency.saturating_record(end - begin);
        }
        tracker.look();
        transactions += 1;
        progress.transactions.store(transactions, Ordering::Relaxed);
        progress.sent_bytes.store(asked * request_bytes as u64, Ordering::Relaxed);
        progress.received_bytes.store(transactions * response_bytes as u64, Ordering::Relaxed);
    }
    let counters = [("transactions_repeated".to_owned(), repeated as f64)].into();
    let whereabouts = tracker.finish();
    Ok(Outcome { latency_ns: Some(latency), whereabouts, counters, ..Outcome::default() })
}

/// The answering end: until it is told to stop and nobody has asked for a while.
pub(super) fn answer(
    network: &mut dyn Network,
    socket: DatagramId,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let mut response = vec![0xa5; response_bytes];
    let mut request = vec![0; request_bytes.max(GREETING.len()) + 1];
    let mut transactions = 0;
    let mut tracker = Tracker::new();
    loop {
        match network.receive_datagram(socket, &mut request, LOOK)? {
            None if progress.stopping() => break,
            None => continue,
            Some(bytes) if request[..bytes] == *GREETING => continue,
            Some(_) => {}
        }
        tracker.look();
        response[0] = request[0];
        network.send_datagrams(socket, &[&response])?;
        transactions += 1;
        progress.transactions.store(transactions, Ordering::Relaxed);
        progress.received_bytes.store(transactions * request_bytes as u64, Ordering::Relaxed);
        progress.sent_bytes.store(transactions * response_bytes as u64, Ordering::Relaxed);
    }
    Ok(Outcome { whereabouts: tracker.finish(), ..Outcome::default() })
}
