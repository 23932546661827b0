//! Request and response on an open connection, one outstanding.

use std::io;

use super::transactions::Transactions;
use super::{End, Lane, Outcome, Part, Progress, describe, monotonic_ns};
use crate::transport::{ConnId, Network, read_exact, write_all};

/// Works at one end until `progress` says stop, then ends what it has in order.
pub(super) fn work(
    network: &mut dyn Network,
    part: &Part<'_>,
    progress: &Progress,
) -> io::Result<Outcome> {
    let bytes = |name| part.task.number(name);
    let (request, response) = (bytes("request_bytes"), bytes("response_bytes"));
    let conn = part.lanes.first().ok_or(io::ErrorKind::NotConnected)?.conn;
    match part.end {
        End::Near => ask(network, conn, request, response, progress),
        End::Far => answer(network, conn, request, response, progress),
    }
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
    let mut transactions = Transactions::asked(progress, request_bytes, response_bytes);
    let mut begin = monotonic_ns();
    while !progress.stopping() {
        write_all(network, conn, &request)?;
        if !read_exact(network, conn, &mut response)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        begin = transactions.end(begin);
    }
    let outcome = transactions.finish();
    let tcp_info = describe(network, End::Near, &[Lane { conn, sends: true }]);
    network.shutdown_write(conn)?;
    while network.read(conn, &mut response)? > 0 {}
    network.close(conn);
    Ok(Outcome { tcp_info, sending: 1, ..outcome })
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
    let mut transactions = Transactions::answered(progress, request_bytes, response_bytes);
    while read_exact(network, conn, &mut request)? {
        transactions.look();
        write_all(network, conn, &response)?;
        transactions.add();
    }
    let outcome = transactions.finish();
    let tcp_info = describe(network, End::Far, &[Lane { conn, sends: true }]);
    network.close(conn);
    Ok(Outcome { tcp_info, sending: 1, ..outcome })
}
