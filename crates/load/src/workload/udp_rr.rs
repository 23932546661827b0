//! Request and response in datagrams, one outstanding. When no response has come after
//! [`REPEAT_AFTER`], the asking end sends its request once more: that transaction takes so much
//! longer, and is counted.

use std::io;
use std::time::Duration;

use super::admission::{GREETING_BYTES, is_greeting};
use super::transactions::Transactions;
use super::{End, Outcome, Part, Progress, monotonic_ns};
use crate::transport::{DatagramId, Network};

/// Works at one end until `progress` says stop, then ends what it has in order.
pub(super) fn work(
    network: &mut dyn Network,
    part: &Part<'_>,
    progress: &Progress,
) -> io::Result<Outcome> {
    let socket = *part.sockets.first().ok_or(io::ErrorKind::NotConnected)?;
    let exchange = Transactions::of(part, progress);
    match part.end {
        End::Near => ask(network, socket, exchange, progress),
        End::Far => answer(network, socket, exchange, progress),
    }
}

/// Time that the asking end waits for an answer before it sends its request once more.
const REPEAT_AFTER: Duration = Duration::from_millis(200);
/// Time that the answering end waits before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The asking end. The first byte of each datagram tells transactions apart, so that a late answer
/// is not taken for that of the next.
fn ask(
    network: &mut dyn Network,
    socket: DatagramId,
    (mut transactions, mut request, mut response): (Transactions<'_>, Vec<u8>, Vec<u8>),
    progress: &Progress,
) -> io::Result<Outcome> {
    // One byte more tells a longer datagram.
    let response_bytes = response.len();
    response.push(0);
    'next: while !progress.stopping() {
        // Never that of the greeting, which may come late, too.
        request[0] = (transactions.count() % 250) as u8;
        let begin = monotonic_ns();
        network.send_datagrams(socket, &[&request])?;
        loop {
            match network.receive_datagram(socket, &mut response, REPEAT_AFTER)? {
                Some(bytes) if bytes == response_bytes && response[0] == request[0] => break,
                Some(_) => {}
                None if progress.stopping() => break 'next,
                None => {
                    transactions.repeat();
                    network.send_datagrams(socket, &[&request])?;
                }
            }
        }
        transactions.end(begin);
    }
    let repeated = transactions.repeated() as f64;
    let counters = [("transactions_repeated".to_owned(), repeated)].into();
    Ok(Outcome { counters, ..transactions.finish() })
}

/// The answering end: until it is told to stop and nobody has asked for a while.
fn answer(
    network: &mut dyn Network,
    socket: DatagramId,
    (mut transactions, mut response, mut request): (Transactions<'_>, Vec<u8>, Vec<u8>),
    progress: &Progress,
) -> io::Result<Outcome> {
    request.resize(request.len().max(GREETING_BYTES) + 1, 0);
    loop {
        match network.receive_datagram(socket, &mut request, LOOK)? {
            None if progress.stopping() => break,
            None => continue,
            Some(bytes) if is_greeting(&request[..bytes]) => continue,
            Some(_) => {}
        }
        transactions.look();
        response[0] = request[0];
        network.send_datagrams(socket, &[&response])?;
        transactions.add();
    }
    Ok(transactions.finish())
}
