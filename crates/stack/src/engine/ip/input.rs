//! Packets that the flow cache does not know: link header and IP header parsed, and to whom they
//! go.

use millstream_link::Medium;
use millstream_packet::{Packet, PacketBatch};
use millstream_route::LinkId;
use millstream_wire::Malformed;
use millstream_wire::ethernet::{self, EtherType, EthernetHeader};
use millstream_wire::icmp::{self, Icmp, Quote, QuotedTransport};
use millstream_wire::ip::{self, IpHeader, Protocol, Version};

use crate::engine::context::Context;
use crate::engine::ip::IpLayer;
use crate::engine::ip::arrival::{
    Arrival, Delivery, IcmpError, PULL_UP_BYTES, checksum_holds, gather,
};
use crate::engine::ip::path_mtus::sent_lately::least_path_mtu;
use crate::engine::ip::reach::addresses::Destination;
use crate::stats::DropReason;

impl IpLayer {
    /// Takes in a frame as the link gave it.
    #[inline]
    pub(in crate::engine) fn input(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        packet: Packet,
    ) -> Delivery {
        let delivery = self.frame_input(cx, link, packet);
        match delivery {
            Delivery::Dropped(reason) => cx.stats.drop(reason),
            Delivery::Malformed(reason) => cx.stats.malformed(reason),
            _ => {}
        }
        delivery
    }

    #[inline]
    fn frame_input(&mut self, cx: &mut Context, link: LinkId, mut packet: Packet) -> Delivery {
        let slot = &self.reach.links[link.index()];
        if slot.capabilities.medium == Medium::Ip {
            return self.packet_input(cx, link, packet, false);
        }
        if !gather(&mut packet, ethernet::HEADER_LEN + ethernet::VLAN_TAG_LEN) {
            return Delivery::Dropped(DropReason::PoolExhausted);
        }
        let (header, len) = match EthernetHeader::parse(packet.head()) {
            Ok(parsed) => parsed,
            Err(reason) => return Delivery::Malformed(reason),
        };
        if !header.dst.is_multicast() && header.dst != slot.capabilities.mac {
            return Delivery::Dropped(DropReason::OtherLinkAddress);
        }
        // IEEE 802.1Q: VLAN 0 is a priority only.
        if header.vlan.is_some_and(|tag| tag.id() != 0) {
            return Delivery::Dropped(DropReason::Vlan);
        }
        packet.trim_front(len);
        match header.ethertype {
            EtherType::IPV4 | EtherType::IPV6 => {
                self.packet_input(cx, link, packet, header.dst.is_multicast())
            }
            EtherType::ARP => match gather(&mut packet, PULL_UP_BYTES) {
                true => {
                    self.arp_input(cx, link, &packet);
                    Delivery::Taken
                }
                false => Delivery::Dropped(DropReason::PoolExhausted),
            },
            _ => Delivery::Dropped(DropReason::UnknownEthertype),
        }
    }

    /// An IP packet, maybe with padding behind it, in a frame that was sent `to_all`, or to a
    /// group.
    #[inline]
    pub(in crate::engine) fn packet_input(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        mut packet: Packet,
        to_all: bool,
    ) -> Delivery {
        let Self { reach, forwarding, icmp_errors, .. } = self;
        let available = packet.len();
        let mut parsed = ip::parse(packet.head(), available);
        if parsed == Err(Malformed::Truncated) && packet.head().len() < available {
            if !gather(&mut packet, PULL_UP_BYTES) {
                return Delivery::Dropped(DropReason::PoolExhausted);
            }
            parsed = ip::parse(packet.head(), available);
        }
        let ip = match parsed {
            Ok(ip) => ip,
            Err(reason) => match forwarding.passes(&reach.addresses, link, &packet, reason) {
                Some(ip) => ip,
                None => {
                    icmp_errors.ip_refused(cx, reach, link, packet, reason, to_all);
                    return Delivery::Malformed(reason);
                }
            },
        };
        packet.truncate(ip.packet_len());
        let destination = reach.addresses.classify(link, ip.dst);
        if destination == Destination::Other {
            return match forwarding.is_on && !reach.addresses.is_loopback(link) {
                true => {
                    let arrival = Arrival::forwarded(link, packet, ip, to_all);
                    forwarding.forward(cx, reach, icmp_errors, arrival);
                    Delivery::Taken
                }
                false => Delivery::Dropped(DropReason::OtherAddress),
            };
        }
        // Neither does anybody talk to itself by way of us.
        let is_own_reflection = ip.src == ip.dst && !reach.addresses.is_loopback(link);
        if is_own_reflection || reach.addresses.is_martian(link, ip.src, destination) {
            if ip.protocol == Protocol::ICMPV6 {
                self.claimed_by_source(cx, &Arrival { packet, ip, link, destination, to_all });
            }
            return Delivery::Dropped(DropReason::MartianSource);
        }
        if destination == Destination::Own && !reach.has_way_back(link, ip.src) {
            return Delivery::Dropped(DropReason::ReversePath);
        }
        // RFC 1122, 3.3.6: what one station is to have does not come in a frame for all; over IPv6
        // that is said of what is answered by an error (RFC 4443, 2.4 (e.4)), as most of TCP would
        // be.
        let is_for_one =
            destination == Destination::Own && (ip.dst.is_ipv4() || ip.protocol == Protocol::TCP);
        if to_all && is_for_one {
            return Delivery::Dropped(DropReason::OtherLinkAddress);
        }
        let arrival = Arrival { packet, ip, link, destination, to_all };
        if ip.fragment.is_some() {
            let whole = self.reassembly.fragment_input(cx, reach, icmp_errors, arrival);
            return match whole {
                Ok(packet) => self.packet_input(cx, link, packet, to_all),
                Err(delivery) => delivery,
            };
        }
        match ip.protocol {
            Protocol::TCP => Delivery::Tcp(arrival),
            Protocol::UDP => Delivery::Udp(arrival),
            Protocol::ICMP if ip.src.is_ipv4() => self.icmp_input(cx, arrival),
            Protocol::ICMPV6 if ip.src.is_ipv6() => self.icmp_input(cx, arrival),
            Protocol::IGMP if ip.src.is_ipv4() => {
                reach.addresses.groups.igmp_input(cx, arrival);
                Delivery::Taken
            }
            Protocol::NO_NEXT_HEADER => Delivery::Dropped(DropReason::UnknownProtocol),
            _ => {
                icmp_errors.tell_problem(cx, reach, &arrival);
                Delivery::Dropped(DropReason::UnknownProtocol)
            }
        }
    }

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
                if arrival.destination == Destination::Own
                    && !self.reach.addresses.is_here(ip.dst) =>
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
                self.reach.addresses.groups.mld_input(cx, arrival.link, &arrival.packet, &ip);
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
        let scope = self.reach.links[link.index()].serial;
        let Some(hop) = self.reach.next_hop(ip.src, Some(scope)) else {
            return Delivery::Dropped(DropReason::NoRoute);
        };
        let hop = hop.within(self.reply_mtus.get(cx.now, ip.src));
        let source = match destination {
            Destination::Own => Some(ip.dst),
            _ => self.reach.addresses.source(hop.link, hop.address, ip.src),
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
            let id = self.reach.identifications.next(source, ip.src, header.protocol);
            header.identification = id as u16;
        }
        self.reach.seal(&mut packet, hop.link, &header, icmp::CHECKSUM_OFFSET as u16);
        self.sent.note(cx.now, &header, packet.head());
        cx.stats.icmp_echo_answered += 1;
        self.reach.send_ip(cx, hop, &header, packet);
        Delivery::Taken
    }

    /// An ICMP error about a packet that we are said to have sent: whom it is for. Where others
    /// tell what became of a packet that has not left us, nobody.
    pub(in crate::engine) fn error_input(
        &mut self,
        cx: &mut Context,
        error: IcmpError,
    ) -> Delivery {
        let IcmpError { link, quote, .. } = &error;
        let stayed = self
            .reach
            .addresses
            .loopback_to(quote.ip.dst)
            .is_some_and(|loopback| loopback != *link);
        let is_ours = self.reach.addresses.is_local(quote.ip.src) && !stayed;
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
        if self.reach.next_hop(to, None).is_some_and(|hop| len <= hop.mtu) {
            let mtus = match quote.transport {
                QuotedTransport::EchoReply => &mut self.reply_mtus,
                _ => &mut self.path_mtus,
            };
            mtus.learn(cx.now, to, mtu as usize, len);
        }
        true
    }

    /// Hands on the run at the front of the batch that came by `link`, if there is one, where the
    /// engine does so; how many bytes that were.
    #[inline(never)]
    pub(in crate::engine) fn forward_run(
        &mut self,
        cx: &mut Context,
        batch: &mut PacketBatch,
        link: LinkId,
        medium: Medium,
    ) -> usize {
        // Packets that an engine sends to itself are for nobody else.
        if self.reach.addresses.is_loopback(link) {
            return 0;
        }
        let Some(mut runs) = self.forwarding.runs.take() else { return 0 };
        let filter = self.reach.reverse_path(link);
        let mut bytes = 0;
        for at in 0..runs.begin(&self.reach, batch, (link, medium, filter)) {
            let Some(packet) = batch.pop() else { break };
            bytes += packet.len();
            let from = (link, medium, filter);
            if let Err(packet) = runs.hand_on(cx, &mut self.reach, at, packet, from) {
                runs.leaving.send(cx, &mut self.reach);
                // It is for others, so that nobody above hears of it.
                self.input(cx, link, packet);
            }
        }
        runs.leaving.send(cx, &mut self.reach);
        self.forwarding.runs = Some(runs);
        bytes
    }
}
