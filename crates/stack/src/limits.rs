//! Limits of an engine: each bounds what it holds, and says what happens at the bound.

use crate::Error;
use crate::tuning::Tuning;

/// Limits of one engine. Each field says what gives way when it is reached. Changed by the methods
/// of the same names:
///
/// ```
/// let limits = millstream::Limits::default().connections(1_000).memory_bytes(64 << 20);
/// assert_eq!(limits.connections, 1_000);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// TCP connections. Unfinished handshakes, TIME-WAIT once the application has closed, and
    /// connections that are over and not closed yet (up to an eighth as many beside them) do not
    /// count. A new connection takes the place of one that does nothing: an orphan that has nothing
    /// to deliver or takes too long for it, one that has exchanged nothing, or one of a source with
    /// more than its share (a sixteenth of all), idle ones first. Of these, in a sample, those of
    /// the source with most beyond its share go first, then the one that stood still for longest. A
    /// new connection of a source with more than its share displaces only orphans, and connections
    /// that exchanged nothing, of sources with as many. The application of the displaced one gets
    /// [`crate::Error::ConnectionAborted`]. Where none gives way a connect is refused
    /// ([`crate::Error::Limit`]), and a SYN, or the last step of a handshake, is dropped and
    /// counted.
    pub connections: usize,
    /// Connections that peers of one source have opened: of one IPv4 address, or one IPv6 network
    /// of 64 bits. A further SYN, or last step of a handshake, is dropped and counted
    /// ([`crate::DropReason::SourceLimit`]).
    pub connections_per_source: usize,
    /// Connections that the application has closed and that are not over (Linux: tcp_max_orphans).
    /// Beyond the limit one of a sample gives way: one that has nothing to deliver, or has not got
    /// on for a second, or would take longer than 32 seconds for the data it holds; first one of
    /// the source with most. It is counted. The 32 seconds shrink as there are more, to nothing at
    /// twice the limit: so no more than that stay.
    pub orphans: usize,
    /// Listeners. A further `listen` is refused.
    pub listeners: usize,
    /// UDP sockets. A further `bind` is refused.
    pub udp_sockets: usize,
    /// UDP flows of sockets that intercept ([`Intercept::udp`](crate::Intercept::udp)), beside the
    /// sockets above; half of them of one source. A new one takes the place of one that was never
    /// answered, or of one of a source with more flows; where none gives way its datagram is
    /// dropped and counted ([`crate::DropReason::UdpFlowLimit`]).
    pub udp_flows: usize,
    /// ICMP echo sockets. A further one is refused.
    pub icmp_sockets: usize,
    /// Unfinished handshakes of one listener, at most. A further SYN is answered by a cookie or
    /// dropped ([`millstream_tcp::CookieMode`]), and counted. Above half, SYNs are treated so at
    /// random, more often as the queue fills, so that no sender of SYNs learns of the others. Of
    /// requests that wait for a verdict ([`Intercept::tcp`](crate::Intercept::tcp)) the oldest
    /// gives way, counted.
    pub syn_queue: usize,
    /// The largest backlog a listener may ask for; a larger wish is cut.
    pub backlog: usize,
    /// Bytes of memory that a UDP or ICMP socket's receive queue may hold. A further datagram is
    /// dropped and counted.
    pub datagram_queue_bytes: usize,
    /// Bytes of memory that the receive queues of all UDP and ICMP sockets hold together. One of
    /// them holds a quarter at most of what is left, or 16 KiB. A further datagram is dropped and
    /// counted.
    pub datagrams_bytes: usize,
    /// Bytes of memory that fragments of incomplete datagrams hold, their bookkeeping included; a
    /// quarter of it for those of one source: an IPv4 address, an IPv6 network of 64 bits. Beyond
    /// it a datagram gives way, of two drawn by chance the one with fewer fragments; it is counted.
    /// 0 keeps no fragment.
    pub fragments_bytes: usize,
    /// Bytes of memory that all queues of the engine hold at most
    /// ([`Packet::held_bytes`](millstream_packet::Packet)): data that TCP connections received, out
    /// of order or not, data that they have to send, datagrams and fragments, and packets that wait
    /// for neighbours, an eighth of it at most. When memory becomes short each has a share, and
    /// idle ones give way ([`MemoryPressure`](crate::MemoryPressure)). `usize::MAX`, the default:
    /// as much as the pool has. Memory that others take of the pool counts in any case.
    pub memory_bytes: usize,
    /// Connections in TIME-WAIT that the application has closed; some 150 bytes each, tables
    /// included. The oldest gives way, counted.
    pub time_wait: usize,
    /// Links of one engine, 64 at most, without those that have failed. A further one is refused.
    pub links: usize,
    /// Addresses of one engine, over all links. A further one takes the place of one of a link that
    /// has failed or was removed, or is refused.
    pub addresses: usize,
    /// Multicast groups that UDP sockets are in, all sockets, links and groups together
    /// ([`UdpHandle::join_group`](crate::UdpHandle::join_group)). A further join is refused.
    pub groups: usize,
    /// Numbers that only tests and measurements change.
    #[doc(hidden)]
    pub tuning: Tuning,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            connections_per_source: 32_768,
            orphans: 32_768,
            listeners: 1_024,
            udp_sockets: 4_096,
            udp_flows: 16_384,
            icmp_sockets: 256,
            syn_queue: 1_024,
            backlog: 4_096,
            datagram_queue_bytes: 1 << 20,
            datagrams_bytes: 64 << 20,
            fragments_bytes: 4 << 20,
            memory_bytes: usize::MAX,
            time_wait: 65_536,
            links: 64,
            addresses: 1_024,
            groups: 1_024,
            tuning: Tuning::default(),
        }
    }
}

/// A method for each field, which sets it.
macro_rules! setters {
    ($($field:ident)*) => {
        impl Limits {
            $(
                #[doc = concat!("With another [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: usize) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

setters! {
    connections connections_per_source orphans listeners udp_sockets udp_flows icmp_sockets syn_queue backlog
    datagram_queue_bytes datagrams_bytes fragments_bytes memory_bytes time_wait links addresses groups
}

impl Limits {
    /// Sets numbers that only tests and measurements change.
    #[doc(hidden)]
    #[must_use]
    pub fn tune(mut self, change: impl FnOnce(&mut Tuning)) -> Self {
        change(&mut self.tuning);
        self
    }

    /// Slots for connections: some may be over, and not closed by the application yet.
    pub(crate) fn connection_slots(&self) -> usize {
        self.connections + self.connections / 8 + 8
    }

    /// Refuses limits with which a connection would stand still.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let least = [
            (self.tuning.transmit_turn_bytes, "Tuning::transmit_turn_bytes is 1 at least"),
            (self.tuning.unsent_bytes, "Tuning::unsent_bytes is 1 at least"),
            (self.tuning.write_turn_bytes, "Tuning::write_turn_bytes is 1 at least"),
            (self.tuning.transmit_connections, "Tuning::transmit_connections is 1 at least"),
            (self.tuning.timers, "Tuning::timers is 1 at least"),
        ];
        match least.iter().find(|(limit, _)| *limit == 0) {
            Some((_, what)) => Err(Error::Invalid(what)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, EngineConfig};

    #[test]
    fn limits_with_which_nothing_would_move_are_refused() {
        type Of = fn(&mut Limits) -> &mut usize;
        let zeros: [(&str, Of); 5] = [
            ("transmit_turn_bytes", |limits| &mut limits.tuning.transmit_turn_bytes),
            ("unsent_bytes", |limits| &mut limits.tuning.unsent_bytes),
            ("write_turn_bytes", |limits| &mut limits.tuning.write_turn_bytes),
            ("transmit_connections", |limits| &mut limits.tuning.transmit_connections),
            ("timers", |limits| &mut limits.tuning.timers),
        ];
        for (name, limit) in zeros {
            let mut config = EngineConfig::default();
            *limit(&mut config.limits) = 0;
            let error = Engine::new(config).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|text| text.contains(name)), "{name}: {error:?}");
        }
    }
}
