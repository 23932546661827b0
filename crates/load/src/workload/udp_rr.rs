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
    let bytes = |name| part.task.number(name);
    let (request, response) = (bytes("request_bytes"), bytes("response_bytes"));
    let socket = *part.sockets.first().ok_or(io::ErrorKind::NotConnected)?;
    match part.end {
        End::Near => ask(network, socket, request, response, progress),
        End::Far => answer(network, socket, request, response, progress),
    }
}

/// Time that the asking end waits for an answer before it sends its request once more.
const REPEAT_AFTER: Duration = Duration::from_millis(200);
/// Time that the answering end waits before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The asking end. The first byte of each datagram tells transactions apart, so that a late answer
/// is not taken for that of the next.
pub(super) fn ask(
    network: &mut dyn Network,
    socket: DatagramId,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let mut request = vec![0x5a; request_bytes];
    let mut response = vec![0; response_bytes + 1];
    let mut transactions = Transactions::asked(progress, request_bytes, response_bytes);
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
pub(super) fn answer(
    network: &mut dyn Network,
    socket: DatagramId,
    request_bytes: usize,
    response_bytes: usize,
    progress: &Progress,
) -> io::Result<Outcome> {
    let mut response = vec![0xa5; response_bytes];
    let mut request = vec![0; request_bytes.max(GREETING_BYTES) + 1];
    let mut transactions = Transactions::answered(progress, request_bytes, response_bytes);
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
