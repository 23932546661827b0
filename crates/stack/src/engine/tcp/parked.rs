//! Connections whose link takes nothing.
//!
//! They wait beside the list of connections that may have something to send, in a line for each
//! such link, so that traffic over other links goes on. As their link takes something again, some
//! of them go back to the head of the list, the first to have found no room first. When routes or
//! links have changed all of them go, as theirs may lead elsewhere now.

use std::collections::VecDeque;

use millstream_route::LinkId;

use crate::engine::context::Context;
use crate::engine::ip::reach::{Generations, IpReach};
use crate::engine::tcp::TcpLayer;

/// See the module text.
#[derive(Default)]
pub(in crate::engine) struct Parked {
    lines: Vec<Line>,
    /// The generations of routes and neighbours by which they found their next hop.
    generations: Option<Generations>,
}

struct Line {
    link: LinkId,
    /// Their slots. A slot whose connection is gone may still stand here.
    slots: VecDeque<u32>,
    /// Number of slots that went back to the list last, and of those of them that have found no
    /// room again: these come first still, in the order that they had.
    taken: usize,
    returned: usize,
}

impl Line {
    fn put(&mut self, slot: u32, is_next: bool) {
        if is_next && self.returned < self.taken {
            self.slots.insert(self.returned, slot);
            self.returned += 1;
        } else {
            self.slots.push_back(slot);
        }
    }
}

impl Parked {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn line(&mut self, link: LinkId) -> &mut Line {
        let at = self.lines.iter().position(|line| line.link == link).unwrap_or_else(|| {
            self.lines.push(Line { link, slots: VecDeque::new(), taken: 0, returned: 0 });
            self.lines.len() - 1
        });
        &mut self.lines[at]
    }
}

impl TcpLayer {
    /// Parks the connection in `slot`, which stands in no list, until its link has room; it
    /// `is_next` if it found no room at all.
    pub(in crate::engine) fn park(
        &mut self,
        reach: &mut IpReach,
        slot: u32,
        link: LinkId,
        is_next: bool,
    ) {
        if self.parked.is_empty() {
            self.parked.generations = Some(reach.generations());
        }
        self.parked.line(link).put(slot, is_next);
    }

    /// Returns true if routes or links have changed, so that parked connections may have another
    /// next hop.
    pub(in crate::engine) fn parked_may_go(&self, reach: &mut IpReach) -> bool {
        !self.parked.is_empty() && self.parked.generations != Some(reach.generations())
    }

    /// Returns true if a link that connections wait for takes something again, or routes have
    /// changed.
    pub(in crate::engine) fn parked_have_room(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
    ) -> bool {
        let may_go = self.parked_may_go(reach);
        may_go || self.parked.lines.iter().any(|line| reach.room(cx, line.link) != 0)
    }

    /// Puts connections back whose links take something again: of all together half as many as a
    /// turn serves, so that connections that were not parked get their turn, too, and of each link
    /// one at least.
    #[inline(never)]
    pub(in crate::engine) fn unpark(&mut self, cx: &mut Context, reach: &mut IpReach) {
        let may_go = self.parked_may_go(reach);
        let (parked, dirty) = (&mut self.parked, &mut self.table.dirty);
        if may_go {
            let lines = parked.lines.drain(..);
            return lines.for_each(|mut line| dirty.append(&mut line.slots));
        }
        let share = (cx.limits.tuning.transmit_connections / 2 / parked.lines.len().max(1)).max(1);
        parked.lines.retain_mut(|line| {
            let most = share.min(reach.room(cx, line.link));
            (line.taken, line.returned) = (line.slots.len().min(most), 0);
            line.slots.drain(..line.taken).rev().for_each(|slot| dirty.push_front(slot));
            // One that is empty stays until the next time, as some may come back.
            line.taken != 0 || !line.slots.is_empty()
        });
    }
}
