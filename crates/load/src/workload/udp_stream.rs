//! Datagrams as fast as the sender can, or as it may.

use std::io;

use super::datagrams::{Flow, run};
use super::{Outcome, Part, Progress};
use crate::transport::Network;

/// Works at one end until `progress` says stop, then ends what it has in order.
pub(super) fn work(
    network: &mut dyn Network,
    part: &Part<'_>,
    progress: &Progress,
) -> io::Result<Outcome> {
    let (sends, receives) = part.directions();
    let datagram_bytes = part.task.number("datagram_bytes");
    let bits_per_s = part.task.number("send_mbit") as u64 * 1_000_000;
    run(network, &part.sockets, Flow { sends, receives, datagram_bytes, bits_per_s }, progress)
}
