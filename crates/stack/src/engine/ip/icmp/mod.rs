//! ICMP errors that are sent, in both versions: about which packets, and how many.

pub(in crate::engine) mod meaning;
pub(in crate::engine) mod rate;

use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::icmp::{self, Icmp, Unreachable};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};

use self::rate::AnswerLimit;
use crate::engine::context::Context;
use crate::engine::ip::arrival::{Arrival, PULL_UP_BYTES, gather};
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::addresses::Destination;
use crate::stats::DropReason;

/// Tells senders of packets why those went no further.
pub(in crate::engine) struct IcmpErrors {
    pub limit: AnswerLimit,
}

impl IcmpErrors {
    /// A packet with IP headers that it is dropped for: the sender of some is told.
    #[cold]
    pub fn ip_refused(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        link: LinkId,
        mut packet: Packet,
        reason: Malformed,
        to_all: bool,
    ) {
        let is_told = matches!(
            reason,
            Malformed::Ipv6OptionUnknown
                | Malformed::Ipv6Routing
                | Malformed::Ipv6ExtensionOrder
                | Malformed::Ipv6Jumbogram
                | Malformed::IpFragment
                | Malformed::Ipv4Option
        );
        // The bytes behind the header that it is dropped for say whether it is an error itself.
        if !is_told || !gather(&mut packet, PULL_UP_BYTES) {
            return;
        }
        // A quoted packet may have such headers.
        let Ok(ip) = ip::parse_quoted(packet.head()) else { return };
        let destination = reach.addresses.classify(link, ip.dst);
        if reach.addresses.is_martian(link, ip.src, destination) {
            return;
        }
        self.tell_headers(cx, reach, &Arrival { packet, ip, link, destination, to_all });
    }

    /// Tells the sender of a packet what of its IP headers was not understood: the protocol, or in
    /// IPv6 whatever stands before it (RFC 8200, 4, 4.2 and 4.4).
    #[cold]
    pub fn tell_problem(&mut self, cx: &mut Context, reach: &mut IpReach, arrival: &Arrival) {
        if arrival.ip.version() == Version::V4 {
            let error = Icmp::Unreachable(Unreachable::Protocol);
            return self.send(cx, reach, arrival, error);
        }
        self.tell_headers(cx, reach, arrival);
    }

    /// Tells the sender of a packet where its IP headers are wrong, if that is to be told.
    fn tell_headers(&mut self, cx: &mut Context, reach: &mut IpReach, arrival: &Arrival) {
        let Some(ip::Problem { code, pointer, of_groups }) = ip::problem(arrival.packet.head())
        else {
            return;
        };
        if of_groups || arrival.destination == Destination::Own && !arrival.to_all {
            self.send(cx, reach, arrival, Icmp::ParameterProblem { code, pointer });
        }
    }

    /// Sends an error about a packet, unless the rules of RFC 1122 3.2.2 and RFC 4443 2.4 (e) or
    /// the rate limit forbid it.
    pub fn send(&mut self, cx: &mut Context, reach: &mut IpReach, arrival: &Arrival, error: Icmp) {
        let Arrival { packet, ip, link, destination, to_all } = arrival;
        let version = ip.version();
        // The protocol stands behind a header that is not taken.
        let seen = match ip.protocol {
            Protocol::AUTHENTICATION => ip::parse_quoted(packet.head()).unwrap_or(*ip),
            _ => *ip,
        };
        let is_later = ip.fragment.is_some_and(|part| part.offset != 0);
        // RFC 1122, 3.2.2: of IPv4, only the first fragment is told of.
        if is_later && version == Version::V4 {
            return;
        }
        // A later fragment has no transport header, whatever its bytes look like.
        let about_error = seen.protocol == icmp::protocol(version)
            && !is_later
            && packet
                .head()
                .get(seen.header_len..)
                .and_then(|body| Icmp::parse(version, body).ok())
                .is_none_or(|(message, _)| message.is_error(version));
        // RFC 4443, 2.4 (e.3) and (e.4): of what went to a group, of addresses or of stations, the
        // unknown options of IPv6 are told.
        let is_of_groups =
            version == Version::V6 && matches!(error, Icmp::ParameterProblem { code: 2, .. });
        let is_for_us = match destination {
            Destination::Own => !to_all || is_of_groups,
            Destination::Group => is_of_groups,
            Destination::Forwarded => true,
            Destination::Other => false,
        };
        if !is_for_us || ip.src.is_unspecified() || ip.src.is_multicast() || about_error {
            return;
        }
        if !self.limit.admits(cx, ip.src, DropReason::IcmpRateLimit) {
            return;
        }
        let scope = reach.links[link.index()].serial;
        let Some(hop) = reach.next_hop(ip.src, Some(scope)) else {
            return cx.stats.drop(DropReason::NoRoute);
        };
        let source = match destination {
            Destination::Own => Some(ip.dst),
            _ => reach.addresses.source(hop.link, hop.address, ip.src),
        };
        let Some(source) = source else { return cx.stats.drop(DropReason::NoRoute) };
        let Some(mut answer) = cx.alloc() else { return };
        let quoted = packet.len().min(icmp::quote_limit(version));
        if let Some(room) = answer.append(icmp::HEADER_LEN + quoted) {
            let at = error.emit(version, room);
            packet.copy_to(0, &mut room[at..]);
        }
        let header = IpHeader::new(source, ip.src, icmp::protocol(version), answer.len());
        reach.seal(&mut answer, hop.link, &header, icmp::CHECKSUM_OFFSET as u16);
        cx.stats.icmp_errors_sent += 1;
        reach.send_ip(cx, hop, &header, answer);
    }
}
