//! ICMP of both versions: echoes answered, errors sent and heard.

use millstream_packet::Packet;
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::icmp::{self, Icmp, Quote, QuotedTransport, Unreachable};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};

use super::addresses::Destination;
use super::sent_lately::least_path_mtu;
use crate::engine::context::Context;
use crate::engine::ip::IpLayer;
use crate::engine::ip::arrival::{
    Arrival, Delivery, IcmpError, PULL_UP_BYTES, checksum_holds, gather,
};
use crate::stats::DropReason;
use crate::tuning::HEADROOM_BYTES;

impl IpLayer {
    /// An ICMP message for this engine.
    pub(in crate::engine) fn icmp_input(
        &mut self,
        cx: &mut Context,
        mut arrival: Arrival,
    ) -> Delivery {
        let ip = arrival.ip;
        let pseudo = icmp::pseudo_sum(ip.src, ip.dst, ip.payload_len);
        if !checksum_holds(&arrival, pseudo) {
            return Delivery::Malformed(Malformed::IcmpChecksum);
        }
        if !gather(&mut arrival.packet, usize::MAX) {
            return Delivery::Dropped(DropReason::PoolExhausted);
        }
        let body = arrival.packet.head().get(ip.header_len..).unwrap_or_default();
        let version = ip.version();
        let (message, len) = match Icmp::parse(version, body) {
            Ok(parsed) => parsed,
            Err(reason) => return Delivery::Malformed(reason),
        };
        match message {
            Icmp::EchoRequest { id, seq }
                if arrival.destination == Destination::Own && !self.addresses.is_here(ip.dst) =>
            {
                Delivery::EchoRequest(arrival, id, seq)
            }
            Icmp::EchoRequest { id, seq } => self.answer_echo(cx, arrival, id, seq),
            Icmp::EchoReply { id, seq } => Delivery::EchoReply(arrival, id, seq),
            // RFC 6980, 5, whatever the fragment header says.
            Icmp::NeighborDiscovery { .. }
                if ip::has_fragment_header(arrival.packet.head(), ip.header_len) =>
            {
                Delivery::Dropped(DropReason::FragmentInvalid)
            }
            Icmp::NeighborDiscovery { .. } => {
                self.ndp_input(cx, arrival.link, &arrival.packet, &ip);
                Delivery::Taken
            }
            Icmp::Unreachable(_)
            | Icmp::PacketTooBig { .. }
            | Icmp::TimeExceeded { .. }
            | Icmp::ParameterProblem { .. } => match Quote::parse(version, &body[len..]) {
                Ok(quote) => {
                    self.error_input(cx, IcmpError { link: arrival.link, error: message, quote })
                }
                Err(reason) => Delivery::Malformed(reason),
            },
            // MLD: RFC 2710, RFC 3810.
            Icmp::Other { kind: 130..=132 | 143, .. } if version == Version::V6 => {
                self.mld_input(cx, arrival.link, &arrival.packet, &ip);
                Delivery::Taken
            }
            Icmp::Redirect { .. } | Icmp::Other { .. } => {
                Delivery::Dropped(DropReason::IcmpIgnored)
            }
        }
    }

    /// RFC 1122, 3.2.2.6; RFC 4443, 4.2. An echo to a broadcast address is not answered; one to a
    /// multicast group is in IPv6. The request's frames become the reply's.
    pub(in crate::engine) fn answer_echo(
        &mut self,
        cx: &mut Context,
        arrival: Arrival,
        id: u16,
        seq: u16,
    ) -> Delivery {
        let Arrival { mut packet, ip, link, destination, .. } = arrival;
        if destination == Destination::Group && ip.src.is_ipv4()
            || ip.src.is_unspecified()
            || ip.src.is_multicast()
        {
            return Delivery::Dropped(DropReason::IcmpIgnored);
        }
        let scope = self.links[link.index()].serial;
        let Some(hop) = self.next_hop(ip.src, Some(scope)) else {
            return Delivery::Dropped(DropReason::NoRoute);
        };
        let hop = hop.within(self.reply_mtus.get(cx.now, ip.src));
        let source = match destination {
            Destination::Own => Some(ip.dst),
            _ => self.addresses.source(hop.link, hop.address, ip.src),
        };
        let Some(source) = source else { return Delivery::Dropped(DropReason::NoRoute) };
        packet.trim_front(ip.header_len);
        if packet.make_head_mut(&cx.pool).is_err() {
            return Delivery::Dropped(DropReason::PoolExhausted);
        }
        if let Some(head) = packet.head_mut() {
            Icmp::EchoReply { id, seq }.emit(ip.version(), head);
        }
        *packet.meta_mut() = Default::default();
        let mut header = IpHeader::new(source, ip.src, ip.protocol, packet.len());
        // RFC 1349, 5.1; IPv6 as Linux has it.
        header.traffic_class = ip.traffic_class;
        // RFC 1122, 3.2.2.6: all of the data come back; those that some path does not carry whole
        // may be cut on theirs.
        let is_for_any_path = header.packet_len() <= least_path_mtu(ip.src);
        header.dont_fragment =
            is_for_any_path || ip.src.is_ipv6() && header.packet_len() <= hop.mtu;
        if !is_for_any_path && ip.src.is_ipv4() {
            let id = self.identifications.next(source, ip.src, header.protocol);
            header.identification = id as u16;
        }
        self.seal(&mut packet, hop.link, &header, icmp::CHECKSUM_OFFSET as u16);
        self.sent.note(cx.now, &header, packet.head());
        cx.stats.icmp_echo_answered += 1;
        self.send_ip(cx, hop, &header, packet);
        Delivery::Taken
    }

    /// A packet with IP headers that it is dropped for: the sender of some is told.
    #[cold]
    pub(in crate::engine) fn ip_refused(
        &mut self,
        cx: &mut Context,
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
        // What follows the header that it is dropped for says whether it is an error itself.
        if !is_told || !gather(&mut packet, PULL_UP_BYTES) {
            return;
        }
        // What is quoted may have such headers.
        let Ok(ip) = ip::parse_quoted(packet.head()) else { return };
        let destination = self.addresses.classify(link, ip.dst);
        if self.addresses.is_martian(link, ip.src, destination) {
            return;
        }
        self.tell_headers(cx, &Arrival { packet, ip, link, destination, to_all });
    }

    /// Tells the sender of a packet what of its IP headers was not understood: the protocol, or in
    /// IPv6 whatever stands before it (RFC 8200, 4, 4.2 and 4.4).
    #[cold]
    pub(in crate::engine) fn tell_problem(&mut self, cx: &mut Context, arrival: &Arrival) {
        if arrival.ip.version() == Version::V4 {
            let error = Icmp::Unreachable(Unreachable::Protocol);
            return self.send_icmp_error(cx, arrival, error);
        }
        self.tell_headers(cx, arrival);
    }

    /// Tells the sender of a packet where its IP headers are wrong, if that is to be told.
    fn tell_headers(&mut self, cx: &mut Context, arrival: &Arrival) {
        let Some(ip::Problem { code, pointer, of_groups }) = ip::problem(arrival.packet.head())
        else {
            return;
        };
        if of_groups || arrival.destination == Destination::Own && !arrival.to_all {
            self.send_icmp_error(cx, arrival, Icmp::ParameterProblem { code, pointer });
        }
    }

    /// Sends an error about a packet, unless the rules of RFC 1122 3.2.2 and RFC 4443 2.4 (e) or
    /// the rate limit forbid it.
    pub(in crate::engine) fn send_icmp_error(
        &mut self,
        cx: &mut Context,
        arrival: &Arrival,
        error: Icmp,
    ) {
        let Arrival { packet, ip, link, destination, to_all } = arrival;
        let version = ip.version();
        // What stands behind a header that is not taken.
        let seen = match ip.protocol {
            Protocol::AUTHENTICATION => ip::parse_quoted(packet.head()).unwrap_or(*ip),
            _ => *ip,
        };
        let is_later = ip.fragment.is_some_and(|part| part.offset != 0);
        // RFC 1122, 3.2.2: of IPv4, only the first fragment is told of.
        if is_later && version == Version::V4 {
            return;
        }
        // What is in a later fragment is no header, whatever it looks like.
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
        if !self.icmp_errors.admits(cx, ip.src, DropReason::IcmpRateLimit) {
            return;
        }
        let scope = self.links[link.index()].serial;
        let Some(hop) = self.next_hop(ip.src, Some(scope)) else {
            return cx.stats.drop(DropReason::NoRoute);
        };
        let source = match destination {
            Destination::Own => Some(ip.dst),
            _ => self.addresses.source(hop.link, hop.address, ip.src),
        };
        let Some(source) = source else { return cx.stats.drop(DropReason::NoRoute) };
        let Some(mut answer) = cx.pool.alloc(HEADROOM_BYTES) else {
            return cx.stats.drop(DropReason::PoolExhausted);
        };
        let quoted = packet.len().min(icmp::quote_limit(version));
        if let Some(room) = answer.append(icmp::HEADER_LEN + quoted) {
            let at = error.emit(version, room);
            packet.copy_to(0, &mut room[at..]);
        }
        let header = IpHeader::new(source, ip.src, icmp::protocol(version), answer.len());
        self.seal(&mut answer, hop.link, &header, icmp::CHECKSUM_OFFSET as u16);
        cx.stats.icmp_errors_sent += 1;
        self.send_ip(cx, hop, &header, answer);
    }

    /// An ICMP error about a packet that we are said to have sent: whom it is for. Where others
    /// tell what became of a packet that has not left us, nobody.
    pub(in crate::engine) fn error_input(
        &mut self,
        cx: &mut Context,
        error: IcmpError,
    ) -> Delivery {
        let IcmpError { link, quote, .. } = &error;
        let stayed =
            self.addresses.loopback_to(quote.ip.dst).is_some_and(|loopback| loopback != *link);
        let is_ours = self.addresses.is_local(quote.ip.src) && !stayed;
        match quote.transport {
            QuotedTransport::EchoReply if is_ours && self.learn_path_mtu(cx, &error) => {
                Delivery::Taken
            }
            QuotedTransport::EchoReply | QuotedTransport::Other => {
                Delivery::Dropped(DropReason::IcmpNoSocket)
            }
            _ if !is_ours => Delivery::Dropped(DropReason::IcmpNoSocket),
            _ => Delivery::Error(error),
        }
    }

    /// Takes in what a router says of the size of a datagram, if it is one that was sent lately:
    /// the next one that is too long is cut or refused. Returns whether it was; where it is about
    /// something else than sizes, true.
    pub(in crate::engine) fn learn_path_mtu(&mut self, cx: &mut Context, told: &IcmpError) -> bool {
        let IcmpError { error, quote, .. } = told;
        let Icmp::PacketTooBig { mtu } = *error else { return true };
        if !self.sent.holds(cx.now, quote) {
            return false;
        }
        let (to, len) = (quote.ip.dst, quote.ip.packet_len());
        if self.next_hop(to, None).is_some_and(|hop| len <= hop.mtu) {
            let mtus = match quote.transport {
                QuotedTransport::EchoReply => &mut self.reply_mtus,
                _ => &mut self.path_mtus,
            };
            mtus.learn(cx.now, to, mtu as usize, len);
        }
        true
    }
}
