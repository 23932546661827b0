//! The smallest datagrams, by number of threads.

use std::io;

use millstream_plan::SMALLEST_BYTES;

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
    let flow = Flow { sends, receives, datagram_bytes: SMALLEST_BYTES, bits_per_s: 0 };
    run(network, &part.sockets, flow, progress)
}
