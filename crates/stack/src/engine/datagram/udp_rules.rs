//! Which datagrams open a flow, and the flows that were opened.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use millstream_packet::Instant;

use crate::engine::ip::reach::local_prefixes::Target;
use crate::engine::sources::Sources;
use crate::socket::SocketId;
use crate::tuning::READY_UNTRIMMED;

/// A socket that intercepts, and its flows.
pub(crate) struct UdpRule {
    pub id: SocketId,
    pub target: Target,
    /// A flow in which nothing moves for so long ends.
    pub idle: Duration,
    /// Flows that the application was not told of, oldest first. One that is over may still be
    /// named.
    pub untold: VecDeque<SocketId>,
    /// Looks at flows to come, the next one first. One at a flow that is over may still be there.
    pub checks: VecDeque<Check>,
}

/// A look at a flow: whether something has moved since the one before.
pub(crate) struct Check {
    pub id: SocketId,
    pub due: Instant,
    /// Datagrams that had moved at the look before.
    pub moved: u64,
}

/// The part of a socket that makes it a flow.
#[derive(Clone, Copy)]
pub(crate) struct UdpFlow {
    /// Its place in the list of flows.
    pub at: usize,
    pub is_told: bool,
}

/// Sockets that intercept, and flows.
#[derive(Default)]
pub(crate) struct UdpRules {
    /// A few, which are looked at one by one.
    pub list: Vec<UdpRule>,
    /// Slots of flows, in no order.
    pub flows: Vec<u32>,
    /// Flows of each source, where there were some ever.
    pub sources: Option<Box<Sources>>,
}

impl UdpRules {
    /// Returns the place of the nearest rule that takes what goes to `to`.
    pub fn find(&self, to: SocketAddr) -> Option<usize> {
        let takes = self.list.iter().enumerate().filter(|(_, rule)| rule.target.takes(to));
        takes.max_by_key(|(_, rule)| rule.target.rank()).map(|(place, _)| place)
    }

    /// Returns the rule of a socket.
    pub fn of(&mut self, id: SocketId) -> Option<&mut UdpRule> {
        self.list.iter_mut().find(|rule| rule.id == id)
    }

    /// Takes the rule of a socket out.
    pub fn take(&mut self, id: SocketId) -> Option<UdpRule> {
        let place = self.list.iter().position(|rule| rule.id == id)?;
        Some(self.list.remove(place))
    }

    /// Returns when a flow is looked at next.
    #[inline]
    pub fn next_check(&self) -> Option<Instant> {
        self.list.iter().filter_map(|rule| Some(rule.checks.front()?.due)).min()
    }
}

impl UdpRule {
    /// Takes in a new flow at `now`; of `count` flows in all some live. Forgets those that are over
    /// when they are many.
    pub fn add(
        &mut self,
        id: SocketId,
        now: Instant,
        count: usize,
        lives: impl Fn(SocketId) -> bool,
    ) {
        if self.checks.len() > 2 * count + READY_UNTRIMMED {
            self.checks.retain(|check| lives(check.id));
            self.untold.retain(|&id| lives(id));
        }
        self.untold.push_back(id);
        self.checks.push_back(Check { id, due: now + self.idle, moved: 0 });
    }
}
