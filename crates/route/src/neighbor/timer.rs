//! Timers of neighbours.

use core::time::Duration;
use std::net::IpAddr;

use millstream_packet::{Instant, PacketQueue};
use millstream_wire::ethernet::MacAddr;

use super::{NeighborTable, State};
use crate::prefix::LinkId;

/// Actions for the caller, because time has passed.
#[derive(Debug)]
pub enum Action {
    /// Ask for the address of a neighbour: an ARP request or a neighbour solicitation.
    Solicit {
        /// On this link.
        link: LinkId,
        /// For this address.
        ip: IpAddr,
        /// Ask this station; `None` asks all: broadcast, or the solicited-node group.
        unicast: Option<MacAddr>,
        /// Ask this one as well, who had the address before.
        former: Option<MacAddr>,
    },
    /// The neighbour does not answer and has been forgotten. Templates made with it are void.
    Unreachable {
        /// On this link.
        link: LinkId,
        /// This address.
        ip: IpAddr,
        /// Packets that waited for it, to be answered with "host unreachable" (RFC 1122 section
        /// 3.2.2.1) or "address unreachable" (RFC 4861 section 7.2.2).
        packets: PacketQueue,
    },
}

impl NeighborTable {
    /// Returns the earliest time at which [`poll`](Self::poll) has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first()
    }

    /// Returns the earliest time at which a neighbour has to be asked, or given up: for this an
    /// owner that sleeps must wake. The other events of [`next_deadline`](Self::next_deadline), at
    /// which known addresses become doubtful or are forgotten, can wait until the owner has other
    /// work.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.questions.first()
    }

    /// Returns one thing to do by now; call it until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        while let Some(slot) = self.deadlines.pop_due(now) {
            let until = self.entry(slot).until;
            if until > now {
                // Confirmed since it was armed.
                self.deadlines.set(slot, until);
                continue;
            }
            if let Some(action) = self.expire(slot, now) {
                return Some(action);
            }
        }
        None
    }

    /// Does by now what is due; `act` is told each thing that the caller must do.
    pub fn on_timer(&mut self, now: Instant, act: &mut dyn FnMut(Action)) {
        while let Some(action) = self.poll(now) {
            act(action);
        }
    }

    /// Ends the state of an entry whose time is over. Its deadline has been taken out.
    fn expire(&mut self, slot: u32, now: Instant) -> Option<Action> {
        let (multicast, unicast) = (self.config.multicast_solicits, self.config.unicast_solicits);
        let entry = self.entry(slot);
        match entry.state {
            State::Static => None,
            State::Reachable => {
                self.age(slot, now);
                None
            }
            State::Stale => {
                self.take_out(slot);
                None
            }
            State::Delay => {
                entry.state = State::Probe;
                entry.solicits = 0;
                Some(self.solicit(slot, now))
            }
            State::Incomplete if entry.solicits < multicast => Some(self.solicit(slot, now)),
            State::Probe if entry.solicits < unicast => Some(self.solicit(slot, now)),
            State::Incomplete | State::Probe => {
                let (link, ip) = (entry.link, entry.ip);
                self.stats.unreachable += 1;
                Some(Action::Unreachable { link, ip, packets: self.take_out(slot) })
            }
        }
    }

    fn solicit(&mut self, slot: u32, now: Instant) -> Action {
        let wait = Duration::from_millis(self.config.retrans_timer_ms);
        let window = self.check_time();
        let entry = self.entry(slot);
        entry.solicits = entry.solicits.saturating_add(1);
        let unicast = (entry.state == State::Probe).then_some(entry.mac);
        let former = entry.former.as_mut().map(|former| {
            former.until = now + window;
            former.mac
        });
        let action = Action::Solicit { link: entry.link, ip: entry.ip, unicast, former };
        self.arm(slot, now + wait);
        action
    }
}
