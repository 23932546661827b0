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
    let exchange = Transactions::of(part, progress);
    match part.calls {
        Calls::To(peer) => ask(network, peer, exchange, progress),
        Calls::At(listener, from) => answer(network, (listener, from), exchange),
        Calls::None => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// The asking end. A transaction's latency is from before the call that connects until the end of
/// the stream is read.
fn ask(
    network: &mut dyn Network,
    peer: SocketAddr,
    (mut transactions, request, mut response): (Transactions<'_>, Vec<u8>, Vec<u8>),
    progress: &Progress,
) -> io::Result<Outcome> {
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
fn answer(
    network: &mut dyn Network,
    (listener, from): (ListenerId, IpAddr),
    (mut transactions, response, mut request): (Transactions<'_>, Vec<u8>, Vec<u8>),
) -> io::Result<Outcome> {
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
