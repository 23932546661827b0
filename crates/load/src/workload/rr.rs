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
    let conn = part.lanes.first().ok_or(io::ErrorKind::NotConnected)?.conn;
    let exchange = Transactions::of(part, progress);
    match part.end {
        End::Near => ask(network, conn, exchange, progress),
        End::Far => answer(network, conn, exchange),
    }
}

/// The asking end. A transaction's latency is from before the call that sends
/// the request until after the call that completes the response.
fn ask(
    network: &mut dyn Network,
    conn: ConnId,
    (mut transactions, request, mut response): (Transactions<'_>, Vec<u8>, Vec<u8>),
    progress: &Progress,
) -> io::Result<Outcome> {
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
fn answer(
    network: &mut dyn Network,
    conn: ConnId,
    (mut transactions, response, mut request): (Transactions<'_>, Vec<u8>, Vec<u8>),
) -> io::Result<Outcome> {
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
