//! The smallest datagrams, by number of threads.

use super::datagrams::{Flow, run};
use super::kind::{Kind, Plan};
use super::{Joined, Measure};
use crate::experiment::{Factor, Levels};
use millstream_record::keys;

const DATAGRAM_BYTES: usize = 1;

/// See the module's promise.
pub(super) const KIND: Kind = Kind {
    name: "udp_pps",
    result: keys::PACKETS,
    own_factors: &[Factor::own(
        "threads",
        Levels::Number(1, 256),
        "1",
        "threads of each end, each with a socket; several on Millstream with engine=net",
    )],
    factors: &["direction"],
    watched: false,
    plan: |task| {
        let threads = task.number("threads");
        let (near_sends, far_sends) = task.each_way(threads);
        let datagram_bytes = Some(DATAGRAM_BYTES);
        Plan {
            joined: Joined::Sockets(threads),
            measure: Measure::Bulk { near_sends, far_sends, datagram_bytes },
        }
    },
    work: |network, part, progress| {
        let (sends, receives) = part.directions();
        let flow = Flow { sends, receives, datagram_bytes: DATAGRAM_BYTES, bits_per_s: 0 };
        run(network, &part.sockets, flow, progress)
    },
};
