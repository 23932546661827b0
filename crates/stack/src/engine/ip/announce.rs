//! Own addresses are checked and announced, and others' claims to them answered. When what is due:
//! [`claims`](crate::engine::claims).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millstream_route::{ALL_NODES, LinkId, Prefix, solicited_node};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::MacAddr;
use millstream_wire::icmp;
use millstream_wire::ip::{self, IpHeader};
use millstream_wire::ndp::{Envelope, NdpMessage, NeighborAdvert, NeighborSolicitation};

use super::claims::{Dispute, Due};
use crate::engine::context::Context;
use crate::engine::ip::IpLayer;
use crate::engine::ip::arrival::{Arrival, checksum_holds};
use crate::stats::DropReason;

impl IpLayer {
    /// The link, which is in use, has an address from now on, or once it has been checked.
    pub(in crate::engine) fn claim(&mut self, cx: &mut Context, link: LinkId, prefix: Prefix) {
        let others = self.links[link.index()].capabilities.multi_access;
        if self.addresses.claims.begin(cx.now, link, prefix, others) {
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
        let slot = &self.links[link.index()];
        if !slot.capabilities.multi_access || !self.links.speaks_for(link) {
            return;
        }
        let addresses = &mut self.addresses;
        let own = addresses.of_link(link).map(|own| own.addr);
        let own = own.chain(addresses.claims.tentative_of(link));
        let groups: Vec<IpAddr> = own
            .filter_map(|own| match own {
                IpAddr::V6(own) => Some(millstream_route::solicited_node(own).into()),
                IpAddr::V4(_) => None,
            })
            .collect();
        addresses.groups.set_own(cx.now, link, &groups);
    }

    fn take_address(&mut self, link: LinkId, prefix: Prefix) {
        self.addresses.add(link, prefix);
        // What is known of flows goes by the addresses.
        self.changes.flows = true;
    }

    /// Does what time makes due for own addresses, as much as a turn may.
    pub(in crate::engine) fn address_timers(&mut self, cx: &mut Context) {
        let mut taken = Vec::new();
        let IpLayer { addresses, .. } = self;
        // They are told while the list of them is walked.
        let mut claims = std::mem::take(&mut addresses.claims);
        claims.poll(cx.now, cx.limits.tuning.timers, &mut |due| match due {
            Due::Probe { link, ip, nonce } => self.probe(cx, link, ip, nonce),
            Due::Announce { link, ip } => self.announce(cx, link, ip),
            Due::Take { link, prefix } => taken.push((link, prefix)),
        });
        self.addresses.claims = claims;
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
            && self.addresses.claims.is_ours(arrival.link, told.target.into())
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
        let slot = &self.links[link.index()];
        if by == Some(slot.capabilities.mac) {
            return cx.stats.drop(DropReason::NeighborIgnored);
        }
        cx.stats.drop(DropReason::AddressConflict);
        cx.stats.address_conflicts += 1;
        match self.addresses.claims.dispute(cx.now, link, ip, by) {
            Dispute::Nothing | Dispute::Held => {}
            Dispute::Defend => {
                self.links[link.index()].wake();
                cx.stats.address_defences += 1;
                self.announce(cx, link, ip);
            }
            Dispute::Lost => {
                cx.stats.addresses_duplicated += 1;
                self.links[link.index()].wake();
                self.lose_address(cx, link, ip);
            }
        }
    }

    /// The address is not used any more: its connections are reset (RFC 5227, 2.4).
    #[cold]
    pub(in crate::engine) fn lose_address(&mut self, cx: &mut Context, link: LinkId, ip: IpAddr) {
        self.changes.lost.push(ip);
        self.addresses.lose(link, ip);
        self.join_own_groups(cx, link);
        // Routes are looked up anew.
        self.routing.note_link_change();
        self.changes.flows = true;
    }
}

impl IpLayer {
    /// Asks whether somebody has the address, without claiming it (RFC 5227, 2.1.1; RFC 4862,
    /// 5.4.2).
    fn probe(&mut self, cx: &mut Context, link: LinkId, ip: IpAddr, nonce: [u8; 6]) {
        if !self.links.speaks_for(link) {
            return;
        }
        match ip {
            IpAddr::V4(ip) => self.tell_arp(cx, link, Ipv4Addr::UNSPECIFIED, ip),
            IpAddr::V6(target) => {
                let question = NeighborSolicitation { target, source_ll: None, nonce: Some(nonce) };
                let message = NdpMessage::NeighborSolicitation(question);
                let group = solicited_node(target);
                self.send_ndp(cx, link, Ipv6Addr::UNSPECIFIED, group, None, &message);
            }
        }
    }

    /// Tells everybody which station has the address (RFC 5227, 2.3; RFC 4861, 7.2.6; RFC 9131).
    fn announce(&mut self, cx: &mut Context, link: LinkId, ip: IpAddr) {
        if !self.links.speaks_for(link) {
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
                    target_ll: Some(self.links[link.index()].capabilities.mac),
                });
                self.send_ndp(cx, link, target, ALL_NODES, None, &advert);
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
            sender_mac: self.links[link.index()].capabilities.mac,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip,
        };
        self.send_arp(cx, link, MacAddr::BROADCAST, &message);
    }
}
