//! One turn of the engine.

use std::io;
use std::time::Duration;

use millstream_packet::Instant;

use super::{Engine, Reader, ReceivedDatagram};
use crate::engine::datagram::intercept::UdpFlows;
use crate::engine::ip::IpLayer;
use crate::engine::ip::arrival::Delivery;
use crate::engine::links::LinkSlot;
use crate::engine::tcp::ending::Lingering;
use crate::socket::SocketId;
use crate::stages::Stage;
use crate::stats::Undelivered;

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Something was received, sent, or fired; the next turn may find more.
    pub progress: bool,
    /// When the engine must be called at the latest, if nothing arrives before: at once after
    /// progress.
    pub next_deadline: Option<Instant>,
}

/// A sleep that a deadline would end within this time has timers that moved later put off first.
/// The kernel sets a CPU's timer anew for a time-out that comes before its next tick, and once more
/// when the sleep ends sooner: some 3 µs each in a virtual machine. Ticks are up to 10 ms apart.
const SOON: Duration = Duration::from_millis(10);

/// Timers looked at before such a sleep.
const PUT_OFF: usize = 8;

impl Engine {
    /// One turn: a batch from every link carried up to the sockets, timers due, transmission for a
    /// bounded number of connections, and everything handed to the links. Never blocks; makes no
    /// system call besides the links' own.
    pub fn turn(&mut self, now: Instant) -> Turn {
        self.turn_for(now, None)
    }

    /// As [`Engine::turn`], for whoever would read from a connection next and has the `buffer`
    /// ready: what arrives in order, where nothing before it waits to be read, is copied there in
    /// one pass with its checksum, or put there by the link. How many bytes those are; what
    /// [`TcpHandle::read`](crate::TcpHandle::read) has comes after them. Beyond them the buffer may
    /// be changed.
    pub fn turn_reading(&mut self, now: Instant, id: SocketId, buffer: &mut [u8]) -> (Turn, usize) {
        let mut read = Reader::of_one(id, buffer);
        let turn = self.turn_for(now, Some(&mut read));
        (turn, read.filled())
    }

    /// As [`Engine::turn`], for whoever would call
    /// [`UdpHandle::recv_many`](crate::UdpHandle::recv_many) next and has its arguments ready: of
    /// links that can show packets where they lie ([`Link::show`](millstream_link::Link::show)),
    /// datagrams of flows that are known are copied from there, in one pass with their checksum,
    /// when none wait in the socket. `list` is cleared before. Those that `recv_many` has come
    /// after these; they must be asked for, too, as all others come that way.
    pub fn turn_receiving(
        &mut self,
        now: Instant,
        id: SocketId,
        buffer: &mut [u8],
        list: &mut Vec<ReceivedDatagram>,
    ) -> Turn {
        list.clear();
        self.turn_for(now, Some(&mut Reader::of_datagrams(id, buffer, list)))
    }

    /// As [`Engine::turn`], for a read that waits.
    pub(crate) fn turn_for(&mut self, now: Instant, read: Option<&mut Reader<'_>>) -> Turn {
        self.cx.now = self.cx.now.max(now);
        let now = self.cx.now;
        if self.live.is_due(now) {
            let mut live = std::mem::take(&mut self.live);
            live.look(self, now);
            self.live = live;
        }
        self.cx.stats.stages.begin_turn();
        self.cx.stats.turns += 1;
        self.ip.reach.routing.refresh();
        self.tcp.tx.begin_turn(&self.cx.limits);
        self.memory.lend_reserve(&self.cx.pool);
        self.tcp.reclaim.look_in_turn(&mut self.cx, &mut self.tcp.table);
        let mut progress = self.ip.reach.flush(&mut self.cx);
        let received = self.receive(now, read);
        if received != 0 {
            self.sleeper.received(received);
            self.tcp.acks.note_arrival(now);
            progress = true;
        }
        progress |= self.timers(now);
        self.cx.stats.stages.mark(Stage::Timers, 0);
        // Segments that a time-out sends again go by the MTU as it is.
        self.ip.follow_links(&mut self.cx);
        self.follow_addresses();
        progress |= self.tcp.transmit(&mut self.cx, &mut self.ip.reach);
        self.memory.fill_reserve(&self.cx.pool);
        let tcp = &mut self.tcp;
        progress |= tcp.writes.grant(&mut self.cx, &mut tcp.table, &mut tcp.tx);
        progress |= self.ip.reach.flush(&mut self.cx);
        progress |= self.udp.tell_of_room(&mut self.cx, &mut self.ip.reach);
        self.cx.stats.stages.mark(Stage::Egress, 0);
        self.trim_events();
        self.ip.reach.settle_neighbors(&mut self.cx);
        if self.cx.pool.growth_wanted() {
            let _ = self.cx.pool.grow();
        }
        // The links are done with these frames.
        self.memory.fill_reserve(&self.cx.pool);
        if progress {
            return Turn { progress, next_deadline: Some(now) };
        }
        self.cx.stats.idle_turns += 1;
        let progress = self.tcp.has_output();
        let next_deadline = if progress { Some(now) } else { self.next_deadline() };
        Turn { progress, next_deadline }
    }

    /// Sends what calls since the last turn have made ready, without looking for what arrived.
    pub fn flush(&mut self) {
        let _now = self.cx.now;
        self.cx.stats.stages.mark(Stage::Application, 0);
        self.tcp.tx.resume();
        self.tcp.transmit(&mut self.cx, &mut self.ip.reach);
        self.ip.reach.flush(&mut self.cx);
    }

    /// As [`Engine::flush`], when there is something to send; whether there was.
    pub(crate) fn flush_if_due(&mut self) -> bool {
        let due = !self.tcp.table.dirty.is_empty();
        if due {
            self.flush();
        }
        due && !self.tcp.tx.is_paused()
    }

    /// Tells the sleeper that there was work.
    pub(crate) fn worked(&mut self) {
        self.sleeper.worked(self.cx.now);
        self.memory.worked(self.cx.now);
    }

    /// Fires timers that are due; whether there were any.
    #[inline]
    fn timers(&mut self, now: Instant) -> bool {
        if self.ip.reach.addresses.claims.next_due().is_some_and(|due| due <= now) {
            self.ip.address_timers(&mut self.cx);
            self.follow_addresses();
        }
        if self.ip.reach.neighbors.next_deadline().is_some_and(|due| due <= now) {
            for unheard in self.ip.neighbor_timers(&mut self.cx) {
                // One that is nobody's is counted as what did not get out.
                if let Delivery::Error(told) = self.ip.error_input(&mut self.cx, unheard) {
                    self.icmp_error_input(&told);
                }
            }
        }
        if self.tcp.table.busy.due().is_some_and(|due| due <= now) {
            self.tcp.table.sweep_quiet(now);
        }
        if self.ip.reassembly.next_deadline().is_some_and(|due| due <= now) {
            let IpLayer { reassembly, reach, icmp_errors, .. } = &mut self.ip;
            reassembly.reassembly_timers(&mut self.cx, reach, icmp_errors);
        }
        if self.ip.reach.addresses.groups.next_due().is_some_and(|due| due <= now) {
            self.ip.group_timers(&mut self.cx);
        }
        if self.udp.rules.next_check().is_some_and(|due| due <= now) {
            UdpFlows { udp: &mut self.udp, cx: &mut self.cx }.timers();
        }
        let mut fired = false;
        if self.tcp.table.half_open.wheel.is_due(now) {
            fired = self.tcp.half_open_timers(&mut self.cx, &mut self.ip.reach);
        }
        if self.tcp.table.time_wait.wheel.is_due(now) {
            fired |= self.tcp.time_wait_timers(&mut self.cx);
        }
        if !self.tcp.table.wheel.is_due(now) {
            return fired;
        }
        fired | self.tcp.connection_timers(&mut self.cx, &mut self.ip.reach)
    }

    /// The earliest of all deadlines for a sleep that `next` would end soon: timers that only stand
    /// there because their connections' deadlines have moved later since are put off first.
    pub(super) fn put_off_timers(
        &mut self,
        next: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        let soon = now + SOON;
        if next.is_none_or(|due| due >= soon) {
            return next;
        }
        let mut found = [0; PUT_OFF];
        let count = self.tcp.table.wheel.first_before(soon, &mut found);
        for &slot in &found[..count] {
            self.tcp.table.put_off(slot, soon);
        }
        self.next_deadline()
    }

    /// The earliest of all deadlines. What makes a known neighbour doubtful waits for other work,
    /// and so does publishing for an engine that does nothing.
    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        // Straight on: this is asked in every turn. A deadline at the end of time is none.
        let ns = |due: Option<Instant>| due.map_or(u64::MAX, Instant::as_nanos);
        let table = &self.tcp.table;
        let mut first = table.wheel.next_ns().min(table.half_open.wheel.next_ns());
        first = first.min(table.time_wait.wheel.next_ns());
        first = first.min(ns(self.ip.reach.neighbors.next_wakeup()));
        first = first.min(ns(self.live.next_deadline(self.cx.stats.turns_of_work(), self.cx.now)));
        for (_, due) in self.deadlines() {
            first = first.min(ns(due));
        }
        (first != u64::MAX).then_some(Instant::from_nanos(first))
    }

    /// Returns the first deadline of each kind that is not of one connection, handshake or
    /// neighbour. Whoever has such deadlines has them in an order of its own, and knows no wheel:
    /// that would have to be handed into each call that moves one.
    #[inline]
    pub(super) fn deadlines(&self) -> [(&'static str, Option<Instant>); 8] {
        let Self { ip, tcp, udp, .. } = self;
        let of_link = |slot: &LinkSlot| {
            // Its neighbours are told as soon as it is up.
            let looked_at = slot.was_down.then_some(ip.follow.due());
            slot.link.next_deadline().into_iter().chain(looked_at).min()
        };
        [
            // Which connections have fallen quiet.
            ("quiet_sweep", tcp.table.busy.due()),
            // Packets that a link holds back for a while.
            ("links", ip.reach.links.used_slots().filter_map(of_link).min()),
            ("fragments", ip.reassembly.next_deadline()),
            ("address_claims", ip.reach.addresses.claims.next_due()),
            ("group_reports", ip.reach.addresses.groups.next_due()),
            ("memory", tcp.reclaim.next_deadline()),
            ("acks", tcp.acks.due()),
            ("udp_flows", udp.rules.next_check()),
        ]
    }

    /// One turn at the clock's time; when it finds nothing to do, sleeps until something arrives, a
    /// deadline comes, [`super::Waker::wake`] is called or `max_sleep` is over (`None`: no limit).
    /// Where packets come one by one and polling is of no use it sleeps first, and then takes the
    /// turn. News that nobody has taken do not keep it from sleeping: ask [`Engine::has_events`]
    /// before.
    pub fn run_once(&mut self, max_sleep: Option<Duration>) -> io::Result<Turn> {
        self.run_once_for(max_sleep, None)
    }

    /// As [`Engine::run_once`], for a read that waits.
    pub(crate) fn run_once_for(
        &mut self,
        max_sleep: Option<Duration>,
        read: Option<&mut Reader<'_>>,
    ) -> io::Result<Turn> {
        self.refresh_time();
        let quiet = self.sleeps_before_turn();
        if let Some(quiet) = quiet {
            self.idle_unless(quiet, max_sleep, || false)?;
        }
        // The time is that of the end of a sleep.
        let turn = self.turn_for(self.cx.now, read);
        if turn.progress {
            self.worked();
        } else if quiet.is_none() {
            self.idle_unless(turn, max_sleep, || false)?;
        }
        Ok(turn)
    }

    /// Takes turns until all that was written on TCP connections, and their ends as far as they
    /// were shut down or closed, has been acknowledged: for `linger` at most; without that for as
    /// long as something is acknowledged every five seconds. Answers what was not, with what
    /// connections that ended meanwhile had left. Nothing is closed by it.
    ///
    /// An engine that is dropped sends nothing more: what it has not delivered then is lost.
    pub fn deliver(&mut self, linger: Option<Duration>) -> io::Result<Undelivered> {
        let before = self.tcp.table.cut_off();
        let mut lingering = Lingering::begin(self.refresh_time());
        loop {
            self.flush();
            let (left, cut_off) = self.tcp.to_deliver();
            let wait = match left.is_none() || self.ip.reach.links.used_count() == 0 {
                true => None,
                false => lingering.wait(self.now(), left, linger),
            };
            let Some(wait) = wait else {
                return Ok(left.and(cut_off).and(self.tcp.table.cut_off().since(before)));
            };
            let look = self.now() + wait;
            // Each look costs more the more connections there are.
            while self.now() < look && self.tcp.table.unfinished() != 0 {
                let wait = look.saturating_duration_since(self.now());
                self.run_once(Some(wait))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineConfig;
    use millstream_link::{PairConfig, PairEnd, pair};
    use millstream_packet::{Pool, PoolConfig};

    fn engine(pool: &Pool, end: PairEnd, address: &str) -> Engine {
        let mut engine = Engine::new(EngineConfig::new(pool.clone())).unwrap();
        let link = engine.add_link(Box::new(end)).unwrap();
        engine.add_address(link, address.parse().unwrap()).unwrap();
        engine
    }

    /// Takes turns of both until neither has anything to do.
    fn settle(ends: [&mut Engine; 2], now: Instant) {
        let [one, other] = ends;
        while one.turn(now).progress | other.turn(now).progress {}
    }

    #[test]
    fn a_timer_that_only_stands_where_it_was_armed_does_not_cut_a_sleep_short() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let (near, far) = pair(PairConfig::default()).unwrap();
        let mut near = engine(&pool, near, "10.9.0.1/24");
        let mut far = engine(&pool, far, "10.9.0.2/24");
        let (start, address) = (near.refresh_time(), "10.9.0.2:7".parse().unwrap());
        let listener = far.sockets().tcp_listen(address, 1).unwrap();
        let client = near.sockets().tcp_connect(address).unwrap();
        settle([&mut near, &mut far], start);
        let server = far.listener(listener).accept().unwrap().0;
        let mut byte = [0];
        // The first segments are acknowledged at once.
        for _ in 0..32 {
            near.tcp(client).write(b"?").unwrap();
            settle([&mut near, &mut far], start);
            far.tcp(server).read(&mut byte).unwrap();
            far.tcp(server).write(b"!").unwrap();
            settle([&mut near, &mut far], start);
            near.tcp(client).read(&mut byte).unwrap();
        }
        // Now an ACK waits, and the answer takes it along.
        near.tcp(client).write(b"?").unwrap();
        near.turn(start);
        while far.turn(start).progress {}
        let delayed = far.next_deadline().unwrap();
        assert!(delayed < start + Duration::from_millis(100));
        far.tcp(server).write(b"!").unwrap();
        while far.turn(start).progress {}
        assert_eq!(far.next_deadline(), Some(delayed));

        let sleep = |engine: &mut Engine, now| engine.put_off_timers(engine.next_deadline(), now);
        assert_eq!(sleep(&mut far, start), Some(delayed));
        let before = |due: Instant| Instant::from_nanos(due.as_nanos() - 1_000_000);
        let soon = before(delayed);
        let answered = sleep(&mut far, soon).unwrap();
        assert!(answered > soon + SOON);
        // The answer's retransmission: that stays.
        assert_eq!(sleep(&mut far, before(answered)), Some(answered));
    }
}
