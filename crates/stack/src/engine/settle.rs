//! What follows when a connection was asked for segments: its timer, its place in the list, what there is to tell.

use millstream_packet::Instant;
use millstream_tcp::State;

use super::Engine;
use super::transmit::Served;

impl Engine {
    /// What follows from having served a connection: its timer, what there is to tell, and its place in the list, the
    /// first where it `is_next`.
    #[inline(always)]
    pub(super) fn settle_served(
        &mut self,
        slot: u32,
        now: Instant,
        served: &Served,
        is_next: bool,
    ) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        socket.settle_memory(&mut self.account);
        let wants_room = socket.wants_room;
        // Gone, or in TIME-WAIT.
        let over = matches!(socket.conn.state(), State::Closed | State::TimeWait);
        let done = matches!(served, Served::Done);
        if done {
            socket.dirty = false;
            let told = socket.conn.has_events();
            if !over
                && let Some(deadline) = socket.conn.next_deadline()
                && !self.tcp.wheel.covers(slot, deadline)
            {
                self.tcp.wheel.arm(slot, deadline);
            }
            self.tcp.note_moved(slot, now);
            if told {
                self.tcp.collect_events(slot, &mut self.events);
            }
            if over {
                let displaced = self.tcp.settle(slot);
                self.out.stats.tcp_time_wait_displaced += u64::from(displaced);
            }
        } else if let Served::Full(link) = served
            && !self.stops_all(served)
        {
            self.park(slot, *link, is_next);
        } else if is_next {
            self.tcp.dirty.push_front(slot);
        } else {
            self.tcp.dirty.push_back(slot);
        }
        if over || !done {
            self.tcp.arm(slot);
        }
        if wants_room {
            self.note_room(slot);
        }
    }

    /// A connection has sent all it had in the plain way: its timer is armed for `deadline`, and what there is to tell
    /// is told.
    #[inline(always)]
    pub(super) fn settle_plain(
        &mut self,
        slot: u32,
        now: Instant,
        deadline: Option<Instant>,
        tells: bool,
    ) {
        if let Some(deadline) = deadline
            && !self.tcp.wheel.covers(slot, deadline)
        {
            self.tcp.wheel.arm(slot, deadline);
        }
        debug_assert!(self.tcp.is_armed(slot));
        self.tcp.note_moved(slot, now);
        if tells {
            self.tcp.collect_events(slot, &mut self.events);
            self.note_room(slot);
        }
    }
}
