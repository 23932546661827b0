//! Timers of connections.

use crate::engine::context::Context;
use crate::engine::ip::reach::IpReach;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::table::TcpSocket;
use crate::timer::MOVES;

impl TcpLayer {
    /// Fires timers of connections that are due, as many as a turn may; whether there are any.
    #[inline(never)]
    pub(in crate::engine) fn connection_timers(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
    ) -> bool {
        let (mut left, mut moves) = (cx.limits.tuning.timers, MOVES);
        let mut more = true;
        while more && left != 0 && moves != 0 {
            let due = self.table.wheel.take_due(cx.now, left, &mut moves);
            more = due.more;
            for &slot in due.ids() {
                self.connection_timer(cx, reach, slot);
            }
            left -= due.ids().len();
        }
        let fired = cx.limits.tuning.timers - left;
        cx.stats.timers_fired += fired as u64;
        fired != 0 || more
    }

    /// The timer of a connection that was armed for now at the latest. The deadline may have moved
    /// later since.
    fn connection_timer(&mut self, cx: &mut Context, reach: &mut IpReach, slot: u32) {
        let Some(socket) = self.table.sockets.get_mut(slot) else { return };
        if socket.conn.next_deadline().is_some_and(|due| due <= cx.now) {
            socket.conn.on_timer(cx.now);
            socket.conn.add_counted(&mut cx.stats.tcp);
            socket.tell(&mut cx.sink, cx.now);
            if socket.conn.take_delivery_problem() {
                socket.doubt_next_hop(cx, reach);
            }
            socket.settle_memory(&mut cx.account);
            self.table.collect_events(slot, &mut cx.events);
            self.table.mark_dirty(slot);
        }
        self.table.arm(slot);
    }
}

impl TcpSocket {
    /// The connection does not get on (RFC 9293 3.8.3: R1): its next packet has the neighbour asked
    /// whether it is there.
    pub fn doubt_next_hop(&mut self, cx: &Context, reach: &mut IpReach) {
        if let Some(hop) = reach.next_hop(self.conn.ends().remote.ip(), Some(self.scope)) {
            reach.neighbors.doubt(cx.now, hop.link, hop.address);
        }
        self.route.forget();
    }
}
