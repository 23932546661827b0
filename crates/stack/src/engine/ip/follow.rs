//! Links whose interfaces somebody sets while they are in use.

use millstream_link::Medium;
use millstream_packet::Instant;
use millstream_route::LinkId;

use crate::engine::context::Context;
use crate::engine::ip::IpLayer;
use crate::engine::links::capabilities_of;
use crate::stats::DropReason;
use crate::tuning::LINK_LOOK_PAUSE;

/// When they are looked at.
pub(in crate::engine) struct Follow {
    due: Instant,
}

impl Follow {
    pub fn new(now: Instant) -> Self {
        Self { due: now + LINK_LOOK_PAUSE }
    }

    /// When links are asked next what their interfaces are now.
    pub fn due(&self) -> Instant {
        self.due
    }
}

impl IpLayer {
    /// Looks now and then whether MTU, address or carrier of an interface have changed, and goes by
    /// them.
    #[inline]
    pub(in crate::engine) fn follow_links(&mut self, cx: &mut Context) {
        if cx.now >= self.follow.due {
            self.look_at_links(cx);
        }
    }

    #[cold]
    fn look_at_links(&mut self, cx: &mut Context) {
        self.follow.due = cx.now + LINK_LOOK_PAUSE;
        let mut place = 0;
        while let Some(link) = self.reach.links.at(place) {
            self.look_at_link(cx, link);
            place = self.reach.links.behind(place, link);
        }
    }

    fn look_at_link(&mut self, cx: &mut Context, link: LinkId) {
        let slot = &mut self.reach.links[link.index()];
        let has_changed = slot.link.refresh();
        let was_down = std::mem::replace(&mut slot.was_down, slot.link.is_down());
        // Hosts that had learnt where we are may have forgotten it, and nobody has heard what we
        // said meanwhile.
        let (is_up_again, is_lost) = (was_down && !slot.was_down, !was_down && slot.was_down);
        let is_announced = is_up_again && slot.capabilities.multi_access;
        if is_lost {
            // The host there may be another, or elsewhere, when the link is up again.
            let dropped = self.reach.neighbors.forget_link(link);
            cx.stats.drop_many(DropReason::NeighborUnreachable, dropped as u64);
        }
        if is_announced {
            self.announce_again(cx, link);
        }
        if is_up_again {
            self.reach.addresses.groups.restart(cx.now, link);
        }
        if !has_changed {
            return;
        }
        let slot = &mut self.reach.links[link.index()];
        let before = std::mem::replace(&mut slot.capabilities, capabilities_of(&*slot.link));
        let has_moved = slot.capabilities.mac != before.mac;
        // Routes and headers are looked up anew, and what is known of flows' headers is learnt
        // again.
        self.reach.routing.note_link_change();
        self.reach.changes.flows = true;
        if has_moved && before.medium == Medium::Ethernet {
            // RFC 5227 section 3, RFC 4861 section 7.2.6: who sends to the one before is not heard.
            self.announce_again(cx, link);
        }
    }

    fn announce_again(&mut self, cx: &mut Context, link: LinkId) {
        self.reach.addresses.claims.restart(cx.now, link);
        self.address_timers(cx);
    }
}
