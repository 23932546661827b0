//! Datagrams as fast as the sender can, or as it may.

use super::datagrams::{Flow, run};
use super::kind::{Kind, Plan};
use super::{Joined, Measure};
use crate::experiment::{Factor, Levels};
use millstream_record::keys;

/// See the module's promise.
pub(super) const KIND: Kind = Kind {
    name: "udp_stream",
    result: keys::THROUGHPUT,
    own_factors: &[
        Factor::own(
            "datagram_bytes",
            Levels::Number(1, 65_507),
            "1472",
            "payload bytes of a datagram",
        ),
        Factor::own(
            "send_mbit",
            Levels::WordsOrNumber(&["none"], 1, 1_000_000),
            "none",
            "payload Mbit/s that are sent (per direction); none = as fast as the sender can",
        ),
    ],
    factors: &["direction"],
    watched: false,
    plan: |task| {
        let (near_sends, far_sends) = task.each_way(1);
        let datagram_bytes = Some(task.number("datagram_bytes"));
        Plan {
            joined: Joined::Sockets(1),
            measure: Measure::Bulk { near_sends, far_sends, datagram_bytes },
        }
    },
    work: |network, part, progress| {
        let (sends, receives) = part.directions();
        let datagram_bytes = part.task.number("datagram_bytes");
        let bits_per_s = part.task.number("send_mbit") as u64 * 1_000_000;
        run(network, &part.sockets, Flow { sends, receives, datagram_bytes, bits_per_s }, progress)
    },
};
