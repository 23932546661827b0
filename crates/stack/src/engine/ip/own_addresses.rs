//! The engine's own addresses: given, checked, announced, taken; and what other stations say of
//! those and of their own, by ARP and neighbour discovery. When what is due: `reach::claims`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_packet::Packet;
use millstream_route::{ALL_NODES, Evidence, LinkId, Prefix, Route, solicited_node};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::MacAddr;
use millstream_wire::icmp;
use millstream_wire::ip::{self, IpHeader};
use millstream_wire::ndp::{
    Envelope, NdpMessage, NeighborAdvert, NeighborSolicitation, RouterSolicitation,
};

use crate::engine::NO_PREFIX;
use crate::engine::context::Context;
use crate::engine::ip::IpLayer;
use crate::engine::ip::arrival::{Arrival, checksum_holds};
use crate::engine::ip::reach::claims::{AddressState, Dispute, Due};
use crate::engine::ip::reach::reserved::{is_no_host, is_no_source};
use crate::engine::ip::reach::source::AddressUse;
use crate::error::Error;
use crate::stats::DropReason;

impl IpLayer {
    /// See [`LinksHandle::set_address_use`](crate::LinksHandle::set_address_use).
    pub(in crate::engine) fn set_address_use(
        &mut self,
        link: LinkId,
        ip: IpAddr,
        usage: AddressUse,
    ) -> Result<(), Error> {
        let addresses = &self.reach.addresses;
        let is_there = addresses.of_link(link).any(|own| own.addr == ip);
        if !is_there && !addresses.claims.is_tentative(ip) {
            return Err(Error::AddrNotAvailable);
        }
        self.reach.addresses.set_use(ip, usage);
        // Whoever keeps a way and its source looks it up anew.
        self.reach.routing.note_link_change();
        Ok(())
    }

    /// See [`Engine::add_address`](crate::Engine::add_address).
    pub(in crate::engine) fn add_address(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        prefix: Prefix,
    ) -> Result<(), Error> {
        if !prefix.is_valid() {
            return Err(Error::Invalid(NO_PREFIX));
        }
        if is_no_host(prefix.addr) {
            return Err(Error::Invalid("not an address that a host has on a link"));
        }
        self.reach.links.check(link)?;
        let addresses = &self.reach.addresses;
        if addresses.is_held(prefix.addr) || addresses.claims.is_tentative(prefix.addr) {
            return Err(Error::AddrInUse);
        }
        let count = addresses.len() + addresses.claims.unused();
        let to_go = match addresses.owns(prefix.addr) {
            true => 0,
            false => (count + 1).saturating_sub(cx.limits.addresses),
        };
        if addresses.over_count() < to_go {
            return Err(Error::Limit("addresses"));
        }
        // The last that can fail.
        if self.reach.routing.is_own() {
            self.reach.add_route(prefix.network(), Route::on_link(link))?;
        }
        for _ in 0..to_go {
            self.reach.addresses.forget_one();
        }
        self.claim(cx, link, prefix);
        Ok(())
    }

    /// See [`LinksHandle::remove_address`](crate::LinksHandle::remove_address).
    pub(in crate::engine) fn remove_address(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        ip: IpAddr,
    ) -> Result<(), Error> {
        self.reach.links.check(link)?;
        let claims = &self.reach.addresses.claims;
        let own = self.reach.addresses.of_link(link).find(|own| own.addr == ip);
        let claimed = || claims.iter().find(|info| info.link == link && info.prefix.addr == ip);
        let own = own.or_else(|| claimed().map(|info| info.prefix));
        let own = own.ok_or(Error::AddrNotAvailable)?;
        self.reach.addresses.claims.forget(ip);
        self.lose_address(cx, link, ip);
        let is_same = |other: Prefix| other.network() == own.network();
        let claims = &self.reach.addresses.claims;
        let is_used = self.reach.addresses.of_link(link).any(is_same)
            || claims.iter().any(|info| info.link == link && is_same(info.prefix));
        if !is_used {
            self.reach.routing.remove_network(own.network(), link);
        }
        Ok(())
    }

    /// The link, which is in use, has an address from now on, or once it has been checked.
    pub(in crate::engine) fn claim(&mut self, cx: &mut Context, link: LinkId, prefix: Prefix) {
        let others = self.reach.links[link.index()].capabilities.multi_access;
        if self.reach.addresses.claims.begin(cx.now, link, prefix, others) {
            self.take_address(link, prefix);
        }
        self.join_own_groups(cx, link);
        // Before anything else is sent from it.
        self.address_timers(cx);
    }

    /// Has routers and bridges of a link told of the solicited-node groups of our addresses there,
    /// those that are being checked among them (RFC 4861, 7.2.1; RFC 4862, 5.4.2), where there may
    /// be any.
    fn join_own_groups(&mut self, cx: &mut Context, link: LinkId) {
        let slot = &self.reach.links[link.index()];
        if !slot.capabilities.multi_access || !self.reach.links.speaks_for(link) {
            return;
        }
        let addresses = &mut self.reach.addresses;
        let own = addresses.of_link(link).map(|own| own.addr);
        let own = own.chain(addresses.claims.tentative_of(link));
        let groups: Vec<IpAddr> = own
            .filter_map(|own| match own {
                IpAddr::V6(own) => Some(solicited_node(own).into()),
                IpAddr::V4(_) => None,
            })
            .collect();
        addresses.groups.set_own(cx.now, link, &groups);
    }

    fn take_address(&mut self, link: LinkId, prefix: Prefix) {
        self.reach.addresses.add(link, prefix);
        // The headers of known flows depend on the addresses.
        self.reach.changes.flows = true;
    }

    /// Does what time makes due for own addresses, as much as a turn may.
    pub(in crate::engine) fn address_timers(&mut self, cx: &mut Context) {
        let mut taken = Vec::new();
        // They are told while the list of them is walked.
        let mut claims = std::mem::take(&mut self.reach.addresses.claims);
        claims.poll(cx.now, cx.limits.tuning.timers, &mut |due| match due {
            Due::Probe { link, ip, nonce } => self.probe(cx, link, ip, nonce),
            Due::Announce { link, ip } => self.announce(cx, link, ip),
            Due::Take { link, prefix } => taken.push((link, prefix)),
        });
        self.reach.addresses.claims = claims;
        for (link, prefix) in taken {
            self.take_address(link, prefix);
        }
    }

    /// A packet from one of our own addresses has come: by neighbour discovery somebody else says
    /// so that it is his.
    #[cold]
    pub(in crate::engine) fn claimed_by_source(&mut self, cx: &mut Context, arrival: &Arrival) {
        let &IpHeader { src, dst, hop_limit, header_len, payload_len, .. } = &arrival.ip;
        let pseudo = icmp::pseudo_sum(src, dst, payload_len);
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (src, dst) else { return };
        // RFC 6980, 5: what is behind a fragment header claims nothing.
        if !checksum_holds(arrival, pseudo)
            || ip::has_fragment_header(arrival.packet.head(), header_len)
        {
            return;
        }
        let body = arrival.packet.head().get(header_len..).unwrap_or_default();
        if let Ok(NdpMessage::NeighborAdvert(told)) =
            NdpMessage::parse(body, &Envelope { src, dst, hop_limit })
            && self.reach.addresses.claims.is_ours(arrival.link, told.target.into())
        {
            self.address_claimed(cx, arrival.link, told.target.into(), told.target_ll);
        }
    }

    /// Somebody else on the link claims an address of ours, as far as he said from that station. It
    /// is counted and told; while it was being checked it is his (RFC 4862, 5.4.5; RFC 5227,
    /// 2.1.1), else it stays ours (2.4 (c)).
    pub(in crate::engine) fn address_claimed(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        ip: IpAddr,
        by: Option<MacAddr>,
    ) {
        let slot = &self.reach.links[link.index()];
        if by == Some(slot.capabilities.mac) {
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        cx.stats.drop(DropReason::AddressConflict);
        cx.stats.address_conflicts += 1;
        match self.reach.addresses.claims.dispute(cx.now, link, ip, by) {
            Dispute::Nothing | Dispute::Held => {}
            Dispute::Defend => {
                self.reach.links[link.index()].wake();
                cx.stats.address_defences += 1;
                self.announce(cx, link, ip);
            }
            Dispute::Lost => {
                cx.stats.addresses_duplicated += 1;
                self.reach.links[link.index()].wake();
                self.lose_address(cx, link, ip);
            }
        }
    }

    /// The address is not used any more: its connections are reset (RFC 5227, 2.4).
    #[cold]
    pub(in crate::engine) fn lose_address(&mut self, cx: &mut Context, link: LinkId, ip: IpAddr) {
        self.reach.changes.lost.push(ip);
        self.reach.addresses.lose(link, ip);
        self.join_own_groups(cx, link);
        // Routes are looked up anew.
        self.reach.routing.note_link_change();
        self.reach.changes.flows = true;
    }

    /// Asks whether somebody has the address, without claiming it (RFC 5227, 2.1.1; RFC 4862,
    /// 5.4.2).
    fn probe(&mut self, cx: &mut Context, link: LinkId, ip: IpAddr, nonce: [u8; 6]) {
        if !self.reach.links.speaks_for(link) {
            return;
        }
        match ip {
            IpAddr::V4(ip) => self.tell_arp(cx, link, Ipv4Addr::UNSPECIFIED, ip),
            IpAddr::V6(target) => {
                let question = NeighborSolicitation { target, source_ll: None, nonce: Some(nonce) };
                let message = NdpMessage::NeighborSolicitation(question);
                let group = solicited_node(target);
                self.reach.send_ndp(cx, link, Ipv6Addr::UNSPECIFIED, group, None, &message);
            }
        }
    }

    /// Tells everybody which station has the address (RFC 5227, 2.3; RFC 4861, 7.2.6; RFC 9131).
    fn announce(&mut self, cx: &mut Context, link: LinkId, ip: IpAddr) {
        if !self.reach.links.speaks_for(link) {
            return;
        }
        cx.stats.address_announcements += 1;
        match ip {
            IpAddr::V4(ip) => self.tell_arp(cx, link, ip, ip),
            IpAddr::V6(target) => {
                let advert = NdpMessage::NeighborAdvert(NeighborAdvert {
                    router: false,
                    solicited: false,
                    override_flag: true,
                    target,
                    target_ll: Some(self.reach.links[link.index()].capabilities.mac),
                });
                self.reach.send_ndp(cx, link, target, ALL_NODES, None, &advert);
            }
        }
    }

    /// An ARP request to all.
    fn tell_arp(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        sender_ip: Ipv4Addr,
        target_ip: Ipv4Addr,
    ) {
        let message = ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: self.reach.links[link.index()].capabilities.mac,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip,
        };
        self.reach.send_arp(cx, link, MacAddr::BROADCAST, &message);
    }

    /// An ARP packet from the link. RFC 826: who the sender is goes into the table when he is in it
    /// already, before anybody looks whom the packet is for; he is added to it when it is for us.
    pub(in crate::engine) fn arp_input(&mut self, cx: &mut Context, link: LinkId, packet: &Packet) {
        let message = match ArpPacket::parse(packet.head()) {
            Ok(message) => message,
            Err(reason) => return cx.stats.malformed(reason),
        };
        let ArpPacket { operation, sender_mac, sender_ip, target_ip, .. } = message;
        let sender = IpAddr::V4(sender_ip);
        if sender_mac == self.reach.links[link.index()].capabilities.mac {
            // It came back.
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        if self.reach.addresses.claims.is_arp_claim(link, &message) {
            // Somebody else claims our address (RFC 5227, 2.4): nothing is learnt from it.
            let claimed = if sender_ip.is_unspecified() { target_ip } else { sender_ip };
            return self.address_claimed(cx, link, claimed.into(), Some(sender_mac));
        }
        if self.reach.addresses.owns(sender) {
            // It is of another link, or of one that is over.
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        // RFC 1122, 3.2.1.3: no station has these.
        if is_no_source(sender) || self.reach.addresses.is_broadcast_of(link, sender) {
            return cx.stats.drop(DropReason::MartianSource);
        }
        // Probes and announcements are for who has the address (RFC 5227, 2.1.1 and 2.3), not for a
        // proxy.
        let is_question = !sender_ip.is_unspecified() && sender_ip != target_ip;
        let for_us =
            self.reach.addresses.of_link(link).any(|own| own.addr == IpAddr::V4(target_ip))
                || is_question
                    && self.reach.addresses.prefixes.answers_neighbor(link, target_ip.into());
        let evidence = match operation {
            _ if sender_ip == target_ip => Evidence::GRATUITOUS_ARP,
            _ if !for_us => Evidence::Overheard,
            ArpOperation::Reply => Evidence::ARP_REPLY,
            ArpOperation::Request => Evidence::Asked,
        };
        // A probe (RFC 5227, 2.1.1) has no sender address to learn.
        if !sender_ip.is_unspecified() {
            self.reach.hear(cx, link, sender, Some(sender_mac), evidence);
        }
        if !for_us {
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        if operation == ArpOperation::Request {
            let reply = ArpPacket {
                operation: ArpOperation::Reply,
                sender_mac: self.reach.links[link.index()].capabilities.mac,
                sender_ip: target_ip,
                target_mac: sender_mac,
                target_ip: sender_ip,
            };
            self.reach.send_arp(cx, link, sender_mac, &reply);
        }
    }

    /// A neighbour discovery message whose checksum holds; `packet` starts at its IP header.
    pub(in crate::engine) fn ndp_input(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        packet: &Packet,
        ip: &IpHeader,
    ) {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip.src, ip.dst) else { return };
        let envelope = Envelope { src, dst, hop_limit: ip.hop_limit };
        let body = packet.head().get(ip.header_len..).unwrap_or_default();
        match NdpMessage::parse(body, &envelope) {
            Err(reason) => cx.stats.malformed(reason),
            Ok(NdpMessage::NeighborSolicitation(asked)) => {
                self.answer_solicitation(cx, link, src, &asked);
            }
            Ok(NdpMessage::NeighborAdvert(told)) => {
                let NeighborAdvert { router, solicited, override_flag, target, target_ll } = told;
                if self.reach.addresses.claims.is_ours(link, target.into()) {
                    return self.address_claimed(cx, link, target.into(), target_ll);
                }
                let why = Evidence::Advertised { solicited, replace: override_flag, router };
                self.reach.hear(cx, link, target.into(), target_ll, why);
            }
            Ok(NdpMessage::RouterAdvert(told)) => {
                // Autoconfiguration is not done here; the router's address is worth knowing.
                if told.source_ll.is_some() {
                    self.reach.hear(cx, link, src.into(), told.source_ll, Evidence::Asked);
                }
            }
            Ok(NdpMessage::RouterSolicitation(RouterSolicitation { .. }))
            | Ok(NdpMessage::Redirect(_)) => cx.stats.drop(DropReason::NeighborIgnored),
        }
    }

    /// RFC 4861, 7.2.3 and 7.2.4.
    fn answer_solicitation(
        &mut self,
        cx: &mut Context,
        link: LinkId,
        src: Ipv6Addr,
        asked: &NeighborSolicitation,
    ) {
        let target = asked.target;
        let probe = src.is_unspecified();
        let state = self.reach.addresses.claims.state(link, target.into());
        let is_own = self.reach.addresses.claims.is_own_question(link, target.into(), asked.nonce);
        match state {
            // RFC 7527: it came back.
            _ if probe && is_own => return cx.stats.drop(DropReason::NeighborIgnored),
            // RFC 4862, 5.4.3: two begin at once, and neither has it.
            Some(AddressState::Tentative | AddressState::Optimistic) if probe => {
                return self.address_claimed(cx, link, target.into(), None);
            }
            _ => {}
        }
        let ours = self.reach.addresses.of_link(link).any(|own| own.addr == IpAddr::V6(target));
        let is_proxied =
            !probe && self.reach.addresses.prefixes.answers_neighbor(link, target.into());
        if !ours && !is_proxied {
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        if let (false, Some(mac)) = (probe, asked.source_ll) {
            self.reach.hear(cx, link, src.into(), Some(mac), Evidence::Asked);
        }
        let advert = NdpMessage::NeighborAdvert(NeighborAdvert {
            router: false,
            solicited: !probe,
            // RFC 4429, 3.3; RFC 4861, 7.2.8.
            override_flag: ours && state != Some(AddressState::Optimistic),
            target,
            target_ll: Some(self.reach.links[link.index()].capabilities.mac),
        });
        let dst = if probe { ALL_NODES } else { src };
        self.reach.send_ndp(cx, link, target, dst, asked.source_ll.filter(|_| !probe), &advert);
    }
}
