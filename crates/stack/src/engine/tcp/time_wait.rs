//! TIME-WAIT without a connection: what meets it, and its end.

use millstream_packet::Instant;
use millstream_tcp::{FourTuple, TcpDrop, TimeWait, Wait};

use super::listener::Request;
use super::mini::MiniTable;
use super::segment::Segment;
use crate::demux::PackedKey;
use crate::engine::context::Context;
use crate::engine::ip::reach::IpReach;
use crate::engine::tcp::TcpLayer;
use crate::engine::tcp::segment::send_bare;
use crate::stats::DropReason;
use crate::timer::MOVES;

impl TcpLayer {
    /// A segment between two ends that are in TIME-WAIT. `hash` is that of the ends.
    pub(in crate::engine) fn time_wait_input(
        &mut self,
        cx: &mut Context,
        reach: &mut IpReach,
        entry: u32,
        hash: u32,
        segment: Segment,
    ) {
        let Segment { tuple, header, link, .. } = &segment;
        let Some(waiting) = self.table.time_wait.get_mut(entry) else { return };
        let wait = &mut waiting.value;
        if let Some(listener) = self.table.listeners.find(tuple.local)
            && wait.may_reuse(header, self.table.listeners.grants_timestamps(listener))
        {
            // RFC 6191: a new incarnation takes the place of one that only waits.
            let isn = wait.next_isn(self.table.isn.isn(tuple, cx.now));
            self.table.time_wait.remove(entry);
            cx.stats.tcp_time_wait_reused += 1;
            return self.admit(cx, reach, listener, hash, isn, segment);
        }
        cx.stats.tcp_rx_segments += 1;
        cx.stats.tcp.drops[TcpDrop::TimeWait.index()] += 1;
        let (answer, what) = wait.on_segment(cx.now, *tuple, header, segment.len());
        let until = cx.now + wait.duration();
        match what {
            Wait::GoesOn => {}
            Wait::BeginsAnew => self.table.arm_time_wait(entry, until),
            Wait::Over => drop(self.table.time_wait.remove(entry)),
        }
        let Some(answer) = answer else { return };
        let scope = reach.links[link.index()].serial;
        match reach.next_hop(tuple.remote.ip(), Some(scope)) {
            Some(hop) => send_bare(cx, reach, hop, tuple, &answer),
            None => cx.stats.drop(DropReason::NoRoute),
        }
    }

    /// Forgets those whose time is over; whether there were any.
    #[inline(never)]
    pub(in crate::engine) fn time_wait_timers(&mut self, cx: &mut Context) -> bool {
        let due =
            self.table.time_wait.wheel.take_due(cx.now, cx.limits.tuning.timers, &mut { MOVES });
        cx.stats.timers_fired += due.ids().len() as u64;
        for &entry in due.ids() {
            self.table.time_wait.remove(entry);
        }
        !due.ids().is_empty() || due.more
    }
}

/// Returns true if no handshake of the peer's is under way between these ends, and no TIME-WAIT
/// that forbids a connection.
pub(super) fn may_connect(
    half_open: &MiniTable<Request>,
    time_wait: &MiniTable<TimeWait>,
    (hash, tuple): (u32, &FourTuple),
    now: Instant,
) -> bool {
    let key = PackedKey::new(tuple);
    let waiting = time_wait.find(hash, &key).and_then(|entry| time_wait.get(entry));
    waiting.is_none_or(|waiting| waiting.value.may_connect(now))
        && half_open.find(hash, &key).is_none()
}
