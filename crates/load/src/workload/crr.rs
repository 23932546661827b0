//! A connection for each request and response, one after the other (netperf's TCP_CRR).
//!
//! The far end closes first, so that what waits in TIME-WAIT (RFC 9293 section 3.4.1) is there, and
//! the near end's ports are free again. A connection that ends before its first byte ends the
//! workload.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::transactions::Transactions;
use super::{Calls, Outcome, Part, Progress, monotonic_ns};
use crate::transport::{ListenerId, Network, read_exact, write_all};

/// Works at one end until `progress` says stop, then ends what it has in order.
pub(super) fn work(
    network: &mut dyn Network,
    part: &Part<'_>,
    progress: &Progress,
) -> io::Result<Outcome> {
    let bytes = |name| part.task.number(name);
    let (request, response) = (bytes("request_bytes"), bytes("response_bytes"));
    match part.calls {
        Calls::To(peer) => ask(network, peer, request, response, progress),
        Calls::At(listener, from) => answer(network, (listener, from), request, response, progress),
        Calls::None => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// The asking end. A transaction's latency is from before the call that connects until the end of
/// the stream is read.
pub(super) fn ask(
    network: &mut dyn Network,
    peer: SocketAddr,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let request = vec![0x5a; request_bytes];
    let mut response = vec![0; response_bytes];
    let mut transactions = Transactions::asked(progress, request_bytes, response_bytes);
    while !progress.stopping() {
        let begin = monotonic_ns();
        let conn = network.connect(peer)?;
        write_all(network, conn, &request)?;
        if !read_exact(network, conn, &mut response)? || network.read(conn, &mut [0])? != 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        network.close(conn);
        transactions.end(begin);
    }
    let last = network.connect(peer)?;
    network.shutdown_write(last)?;
    while network.read(last, &mut response)? > 0 {}
    network.close(last);
    Ok(transactions.finish())
}

/// The answering end: until the asking end is done. Connections from another address are closed.
pub(super) fn answer(
    network: &mut dyn Network,
    (listener, from): (ListenerId, IpAddr),
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let response = vec![0xa5; response_bytes];
    let mut request = vec![0; request_bytes];
    let mut transactions = Transactions::answered(progress, request_bytes, response_bytes);
    loop {
        let (conn, peer) = network.accept(listener)?;
        if peer.ip() != from {
            network.close(conn);
            continue;
        }
        let asked = read_exact(network, conn, &mut request)?;
        transactions.look();
        if !asked {
            network.close(conn);
            break;
        }
        write_all(network, conn, &response)?;
        network.close(conn);
        transactions.add();
    }
    Ok(transactions.finish())
}
