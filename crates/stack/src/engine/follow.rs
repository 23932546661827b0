//! Links whose interfaces somebody sets while they are in use.

use std::net::IpAddr;

use millstream_link::Medium;
use millstream_packet::Instant;
use millstream_route::{ALL_NODES, LinkId};
use millstream_wire::arp::{ArpOperation, ArpPacket};
use millstream_wire::ethernet::MacAddr;
use millstream_wire::ndp::{NdpMessage, NeighborAdvert};

use super::Engine;
use super::links::capabilities_of;
use super::output::Output;
use crate::limits::LINK_LOOK_PAUSE;

impl Engine {
    /// Looks now and then whether MTU or address of an interface have been changed, and goes by them.
    #[inline]
    pub(super) fn follow_links(&mut self, now: Instant) {
        if now >= self.links_due {
            self.look_at_links(now);
        }
    }

    #[cold]
    fn look_at_links(&mut self, now: Instant) {
        self.links_due = now + LINK_LOOK_PAUSE;
        let mut place = 0;
        while let Some(link) = self.out.links.at(place) {
            self.look_at_link(now, link);
            place = self.out.links.behind(place, link);
        }
    }

    fn look_at_link(&mut self, now: Instant, link: LinkId) {
        let slot = &mut self.out.links[link.index()];
        if !slot.link.refresh() {
            return;
        }
        let before = std::mem::replace(&mut slot.capabilities, capabilities_of(&*slot.link));
        let has_moved = slot.capabilities.mac != before.mac;
        // Ways and headers are made anew, and what is known of flows' headers is learnt again.
        self.out.link_changes = self.out.link_changes.wrapping_add(1);
        self.forget_flows();
        if has_moved && before.medium == Medium::Ethernet {
            self.out.announce(now, link);
        }
    }
}

impl Output {
    /// Tells the neighbours our link address (RFC 5227 section 3, RFC 4861 section 7.2.6): who sends to the one before
    /// is not heard.
    fn announce(&mut self, now: Instant, link: LinkId) {
        let mac = self.links[link.index()].capabilities.mac;
        let own: Vec<IpAddr> = self.addresses.of_link(link).map(|own| own.addr).collect();
        for address in own {
            match address {
                IpAddr::V4(ip) => {
                    let announcement = ArpPacket {
                        operation: ArpOperation::Request,
                        sender_mac: mac,
                        sender_ip: ip,
                        target_mac: MacAddr::ZERO,
                        target_ip: ip,
                    };
                    self.send_arp(now, link, MacAddr::BROADCAST, &announcement);
                }
                IpAddr::V6(ip) => {
                    let advert = NdpMessage::NeighborAdvert(NeighborAdvert {
                        router: false,
                        solicited: false,
                        override_flag: true,
                        target: ip,
                        target_ll: Some(mac),
                    });
                    self.send_ndp(now, link, ip, ALL_NODES, None, &advert);
                }
            }
        }
    }
}
