//! The IP layer: addresses, routes, neighbours, groups, fragments, ICMP, packets for others.
//!
//! [`reach`] is its lower half, which knows how a destination is reached. Above it stand what comes
//! of a packet that arrives: it is put together, handed on, answered or delivered.

pub(in crate::engine) mod arrival;
mod follow;
mod forward;
pub(in crate::engine) mod icmp;
mod igmp;
mod input;
mod own_addresses;
pub(in crate::engine) mod path_mtus;
pub(in crate::engine) mod reach;
mod reassembly;

use std::net::IpAddr;

use millstream_packet::{Instant, Packet};
use millstream_route::{Action, LinkId, Routes};
use millstream_wire::icmp::{Icmp, Quote, Unreachable};
use millstream_wire::ip::Version;

use crate::engine::context::Context;
use crate::engine::ip::arrival::IcmpError;
use crate::engine::ip::follow::Follow;
use crate::engine::ip::forward::Forwarding;
use crate::engine::ip::icmp::IcmpErrors;
use crate::engine::ip::icmp::rate::AnswerLimit;
use crate::engine::ip::path_mtus::PathMtus;
use crate::engine::ip::path_mtus::sent_lately::SentLately;
use crate::engine::ip::reach::claims::AddressConfig;
use crate::engine::ip::reach::{Generations, IpReach, NextHop};
use crate::engine::ip::reassembly::Reassembly;
use crate::engine::links::{ReversePath, Serial};
use crate::engine::words;
use crate::limits::Limits;
use crate::stats::DropReason;
use crate::tuning::Tuning;

/// Everything between links and transport protocols. See the module text.
pub(in crate::engine) struct IpLayer {
    pub reach: IpReach,
    /// Path MTUs of datagrams and echo requests.
    pub path_mtus: PathMtus,
    /// Path MTUs of echo replies, apart: whoever asks knows their contents and could forge a quote.
    reply_mtus: PathMtus,
    /// The echo replies that were lately sent.
    pub sent: SentLately,
    /// Datagrams of which fragments have come.
    pub reassembly: Reassembly,
    /// Packets for others.
    pub forwarding: Forwarding,
    /// Links whose interfaces somebody sets.
    pub follow: Follow,
    pub icmp_errors: IcmpErrors,
}

impl IpLayer {
    /// Without links, and by another's `routes` or none yet; by secrets that come from the engine's
    /// seed.
    pub fn new(
        now: Instant,
        addresses: AddressConfig,
        routes: Option<Routes>,
        limits: &Limits,
        seed: &[u8; 32],
    ) -> Self {
        let [key0, key1, ..] = words(seed, 0);
        let (random, answers) = (words(seed, 2), words(seed, 6));
        let path_mtus = (answers[3] ^ key1, answers[1] ^ key0);
        let Tuning { icmp_errors_per_s, icmp_errors_per_address_s, .. } = limits.tuning;
        Self {
            reach: IpReach::new(addresses, routes, limits, seed),
            path_mtus: PathMtus::new(path_mtus),
            reply_mtus: PathMtus::new((path_mtus.1, path_mtus.0)),
            sent: SentLately::new((answers[0] ^ key1, answers[3] ^ key0)),
            reassembly: Reassembly::new(
                limits.fragments_bytes,
                (random[0] ^ key0, random[1] ^ key1),
            ),
            forwarding: Forwarding::default(),
            follow: Follow::new(now),
            icmp_errors: IcmpErrors {
                limit: AnswerLimit::new(
                    icmp_errors_per_s,
                    icmp_errors_per_address_s,
                    (answers[0], answers[1]),
                ),
            },
        }
    }

    /// As [`IpReach::next_hop`], for datagrams: their size is that of the path, as far as it is
    /// known.
    pub fn datagram_next_hop(
        &self,
        now: Instant,
        destination: IpAddr,
        scope: Option<Serial>,
    ) -> Option<NextHop> {
        let hop = self.reach.next_hop(destination, scope)?;
        Some(hop.within(self.path_mtus.get(now, destination)))
    }

    /// As [`IpReach::generations`], for datagrams, whose next hop also changes with what routers said
    /// of their size.
    #[inline]
    pub fn datagram_generations(&self) -> Generations {
        let Generations { routes, neighbors } = self.reach.generations();
        Generations { routes: routes.wrapping_add(self.path_mtus.generation), neighbors }
    }

    /// See [`RoutesHandle::set_forwarding`](crate::RoutesHandle::set_forwarding).
    pub fn set_forwarding(&mut self, cx: &Context, is_on: bool) {
        self.reach.reverse_path = if is_on { ReversePath::Loose } else { ReversePath::Off };
        let runs = is_on && cx.limits.tuning.fast_path.forward_runs;
        self.forwarding = Forwarding { is_on, runs: runs.then(Box::default) };
    }

    /// Tells the routers of groups what is due.
    #[cold]
    pub fn group_timers(&mut self, cx: &mut Context) {
        let Self { reach, .. } = self;
        // They are told while the list of them is walked.
        let mut groups = std::mem::take(&mut reach.addresses.groups);
        groups.poll(cx.now, cx.limits.tuning.timers, &mut |link, say| say.send(cx, reach, link));
        reach.addresses.groups = groups;
    }

    /// Does what time makes due in the neighbour table, as much as a turn may. Returns what sockets
    /// are to hear of packets that did not get out.
    pub fn neighbor_timers(&mut self, cx: &mut Context) -> Vec<IcmpError> {
        let Self { reach, forwarding, icmp_errors, .. } = self;
        let mut unheard = Vec::new();
        for _ in 0..cx.limits.tuning.timers {
            let Some(action) = reach.neighbors.poll(cx.now) else { break };
            match action {
                Action::Solicit { link, ip, unicast, former } => {
                    reach.solicit(cx, link, ip, unicast);
                    if former.is_some() {
                        reach.solicit(cx, link, ip, former);
                    }
                }
                Action::Unreachable { link, mut packets, .. } => {
                    while let Some(packet) = packets.pop() {
                        cx.stats.drop(DropReason::NeighborUnreachable);
                        if !forwarding.forwarded_in_vain(cx, reach, icmp_errors, &packet) {
                            unheard.extend(unreachable(link, &packet));
                        }
                    }
                }
            }
        }
        unheard
    }
}

/// Returns what the socket of a packet that did not get out hears of it: as of an ICMP error.
fn unreachable(link: LinkId, packet: &Packet) -> Option<IcmpError> {
    let head = packet.head();
    let version = if head.first().is_some_and(|b| b >> 4 == 6) { Version::V6 } else { Version::V4 };
    let quote = Quote::parse(version, head).ok()?;
    Some(IcmpError { link, error: Icmp::Unreachable(Unreachable::Host), quote })
}

#[cfg(test)]
pub(in crate::engine) mod tests;
