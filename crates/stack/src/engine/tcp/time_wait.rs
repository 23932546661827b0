//! TIME-WAIT without a connection: what meets it, and its end.

use millstream_packet::Instant;
use millstream_tcp::{FourTuple, TcpDrop, TimeWait, Wait};

use super::input::Segment;
use super::listener::Request;
use super::mini::MiniTable;
use crate::demux::PackedKey;
use crate::engine::Engine;
use crate::stats::DropReason;
use crate::timer::MOVES;

impl Engine {
    /// A segment between two ends that are in TIME-WAIT. `hash` is that of the ends.
    pub(in crate::engine) fn time_wait_input(
        &mut self,
        now: Instant,
        entry: u32,
        hash: u32,
        segment: Segment,
    ) {
        let Segment { tuple, header, link, .. } = &segment;
        let Some(waiting) = self.tcp.time_wait.get_mut(entry) else { return };
        let wait = &mut waiting.value;
        if let Some(listener) = self.tcp.listeners.find(tuple.local)
            && wait.may_reuse(header, self.tcp.listeners.grants_timestamps(listener))
        {
            // RFC 6191: a new incarnation takes the place of one that only waits.
            let isn = wait.next_isn(self.tcp.isn.isn(tuple, now));
            self.tcp.time_wait.remove(entry);
            self.cx.stats.tcp_time_wait_reused += 1;
            return self.tcp_admit(now, listener, hash, isn, segment);
        }
        self.cx.stats.tcp_rx_segments += 1;
        self.cx.stats.tcp.drops[TcpDrop::TimeWait.index()] += 1;
        let (answer, what) = wait.on_segment(now, *tuple, header, segment.len());
        let until = now + wait.duration();
        match what {
            Wait::GoesOn => {}
            Wait::BeginsAnew => self.tcp.arm_time_wait(entry, until),
            Wait::Over => drop(self.tcp.time_wait.remove(entry)),
        }
        let Some(answer) = answer else { return };
        let scope = self.ip.links[link.index()].serial;
        match self.ip.next_hop(tuple.remote.ip(), Some(scope)) {
            Some(hop) => self.ip.send_bare(&mut self.cx, hop, tuple, &answer),
            None => self.cx.stats.drop(DropReason::NoRoute),
        }
    }

    /// Forgets those whose time is over; whether there were any.
    #[inline(never)]
    pub(in crate::engine) fn time_wait_timers(&mut self, now: Instant) -> bool {
        let due =
            self.tcp.time_wait.wheel.take_due(now, self.cx.limits.tuning.timers, &mut { MOVES });
        self.cx.stats.timers_fired += due.ids().len() as u64;
        for &entry in due.ids() {
            self.tcp.time_wait.remove(entry);
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
