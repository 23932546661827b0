//! Fragments that come, and datagrams that are not whole in time.

use millstream_packet::Packet;
use millstream_wire::icmp::Icmp;
use millstream_wire::ip::{self, Protocol};

use super::{Expired, Outcome, Part, Reassembly};
use crate::engine::context::Context;
use crate::engine::ip::arrival::{Arrival, Delivery, PULL_UP_BYTES, gather};
use crate::engine::ip::icmp::IcmpErrors;
use crate::engine::ip::reach::IpReach;
use crate::engine::ip::reach::reserved::is_link_local;
use crate::stats::DropReason;

impl Reassembly {
    /// Takes a fragment that is for us. Returns the packet that it makes whole, which takes the way
    /// of one that just came.
    #[cold]
    pub fn fragment_input(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        errors: &mut IcmpErrors,
        arrival: Arrival,
    ) -> Result<Packet, Delivery> {
        let Arrival { mut packet, ip, link, destination, to_all } = arrival;
        if !gather(&mut packet, PULL_UP_BYTES) {
            return Err(Delivery::Dropped(DropReason::PoolExhausted));
        }
        cx.stats.fragments_received += 1;
        let is_first = ip.fragment.is_none_or(|fragment| fragment.offset == 0);
        let payload = packet.head().get(ip.header_len..).unwrap_or_default();
        if is_first
            && ip.src.is_ipv6()
            && !ip::holds_header_chain(ip.protocol, payload, ip.payload_len)
        {
            // RFC 7112, 5; RFC 4443 has no better code.
            let problem = Icmp::ParameterProblem { code: 3, pointer: 0 };
            let arrival = Arrival { packet, ip, link, destination, to_all };
            errors.send(cx, reach, &arrival, problem);
            return Err(Delivery::Dropped(DropReason::FragmentHeaders));
        }
        let serial = reach.links[link.index()].serial;
        let is_scoped = is_link_local(ip.src) || is_link_local(ip.dst);
        let part = Part { packet, ip: &ip, link: serial, is_scoped, to_all };
        let outcome = self.take(cx.now, &cx.pool, &mut cx.account, part);
        let displaced = self.take_displaced();
        cx.stats.drop_many(DropReason::FragmentMemory, displaced);
        match outcome {
            Outcome::Kept => Err(Delivery::Taken),
            Outcome::Refused(why, fragments) => {
                cx.stats.drop_many(why, fragments.into());
                Err(Delivery::Taken)
            }
            Outcome::Whole(mut packet) => {
                cx.stats.datagrams_reassembled += 1;
                let is_ndp = ip.src.is_ipv6() && gather(&mut packet, PULL_UP_BYTES) && {
                    let whole = ip::parse(packet.head(), packet.len());
                    whole.is_ok_and(|whole| {
                        let kind = packet.head().get(whole.header_len);
                        whole.protocol == Protocol::ICMPV6 && matches!(kind, Some(133..=137))
                    })
                };
                // RFC 6980, 5: neighbour discovery is never fragmented.
                match is_ndp {
                    true => Err(Delivery::Dropped(DropReason::FragmentInvalid)),
                    false => Ok(packet),
                }
            }
        }
    }

    /// Drops what was not whole in time.
    #[cold]
    pub fn reassembly_timers(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        errors: &mut IcmpErrors,
    ) {
        for _ in 0..cx.limits.tuning.timers {
            let Some(expired) = self.expire(cx.now, &mut cx.account) else {
                return;
            };
            let Expired { first, link, to_all, fragments } = expired;
            cx.stats.drop_many(DropReason::FragmentTimeout, fragments.into());
            // RFC 1122, 3.3.2, and RFC 8200, 4.5: its sender is told if the first one has come.
            let Some(link) = reach.links.by_serial(link) else { continue };
            let Some(mut packet) = first.filter(|_| fragments != 0) else { continue };
            let Ok(ip) = ip::parse_quoted(packet.head()) else { continue };
            let told = ip::parse(packet.head(), packet.len());
            packet.truncate(told.map_or(packet.len(), |ip| ip.packet_len()));
            let destination = reach.addresses.classify(link, ip.dst);
            let arrival = Arrival { packet, ip, link, destination, to_all };
            errors.send(cx, reach, &arrival, Icmp::TimeExceeded { reassembly: true });
        }
    }
}
