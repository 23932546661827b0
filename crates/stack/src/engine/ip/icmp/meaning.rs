//! The meaning of ICMP errors for sockets, in the terms of Linux.

use millstream_tcp::ConnError;
use millstream_wire::icmp::{Icmp, Unreachable};
use millstream_wire::ip::Version;

/// The meaning of an error about a packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Meaning {
    pub error: ConnError,
    /// Trying again is of no use (RFC 1122, 4.2.3.9).
    pub hard: bool,
}

/// Returns the meaning of `error`, about a packet of `version`. `None` if it is no error, has a
/// code that the version does not have, or is about the packet's size.
pub(in crate::engine) fn of(version: Version, error: &Icmp) -> Option<Meaning> {
    use ConnError::{BadHeader, HostUnreachable, NetworkUnreachable, Prohibited, Refused};
    let hard = |error| Some(Meaning { error, hard: true });
    let soft = |error| Some(Meaning { error, hard: false });
    match (version, error) {
        (_, Icmp::Unreachable(why)) => match (version, why) {
            (_, Unreachable::Port | Unreachable::Protocol) => hard(Refused),
            (_, Unreachable::Network) => soft(NetworkUnreachable),
            (_, Unreachable::Host | Unreachable::Scope) => soft(HostUnreachable),
            (Version::V4, Unreachable::Prohibited) => hard(HostUnreachable),
            (Version::V6, Unreachable::Prohibited) => hard(Prohibited),
            (_, Unreachable::SourcePolicy | Unreachable::RejectRoute) => hard(Prohibited),
            // RFC 1122, 3.2.2.1: network unknown, and for the type of service.
            (Version::V4, Unreachable::Other(6 | 11)) => soft(NetworkUnreachable),
            // Prohibited for the network.
            (Version::V4, Unreachable::Other(9)) => hard(NetworkUnreachable),
            // Host unknown, source host isolated, and for the type of service.
            (Version::V4, Unreachable::SourceRoute | Unreachable::Other(7 | 8 | 12)) => {
                soft(HostUnreachable)
            }
            // Prohibited for the host; RFC 1812, 5.2.7.1: for its precedence.
            (Version::V4, Unreachable::Other(10 | 14 | 15)) => hard(HostUnreachable),
            (Version::V4, Unreachable::Other(_)) => None,
            // RFC 6554, 3.1 and RFC 8883, 3: the headers are to blame.
            (Version::V6, Unreachable::SourceRoute | Unreachable::Other(_)) => soft(BadHeader),
        },
        // A lost fragment says nothing of the destination.
        (Version::V4, Icmp::TimeExceeded { reassembly: true }) => None,
        (_, Icmp::TimeExceeded { .. }) => soft(HostUnreachable),
        // RFC 4443, 3.4: what protocol unreachable is in IPv4.
        (Version::V6, Icmp::ParameterProblem { code: 1, .. }) => hard(Refused),
        (_, Icmp::ParameterProblem { .. }) => soft(BadHeader),
        _ => None,
    }
}
