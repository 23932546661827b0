//! One turn of the engine.

use std::io;
use std::time::Duration;

use millstream_packet::Instant;

use super::{DirectRead, Engine, ReceivedDatagram};
use crate::socket::SocketId;
use crate::stages::Stage;

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Something was received, sent, or fired; the next turn may find more.
    pub progress: bool,
    /// When the engine must be called at the latest, if nothing arrives before: at once after progress.
    pub next_deadline: Option<Instant>,
}

impl Engine {
    /// One turn: a batch from every link carried up to the sockets, timers due, transmission for a
    /// bounded number of connections, and everything handed to the links. Never blocks; makes no system
    /// call besides the links' own.
    pub fn turn(&mut self, now: Instant) -> Turn {
        self.turn_for(now, None)
    }

    /// As [`Engine::turn`], for whoever would read from a connection next and has the `buffer` ready: what arrives in order,
    /// where nothing before it waits to be read, is copied there in one pass with its checksum, or put there by the link.
    /// How many bytes those are; what [`Engine::tcp_read`] has comes after them. Beyond them the buffer may be changed.
    ///
    /// Segments of the connection that the buffer has no room for wait for the next turn, and so do the packets of the batch
    /// behind them: who reads in small calls has each byte copied once all the same. Their ACK is held meanwhile
    /// ([`Limits::held_ack_bytes`](crate::Limits)), and the turn says that there was progress.
    pub fn turn_reading(&mut self, now: Instant, id: SocketId, buffer: &mut [u8]) -> (Turn, usize) {
        let mut read = DirectRead::new(id, buffer);
        let turn = self.turn_for(now, Some(&mut read));
        (turn, read.filled())
    }

    /// As [`Engine::turn`], for whoever would call [`Engine::udp_recv_many`] next and has its arguments ready: of links that
    /// can show packets where they lie ([`Link::show`](millstream_link::Link::show)), datagrams of flows that are known are
    /// copied from there, in one pass with their checksum, when none wait in the socket. `list` is cleared before. Those that
    /// `udp_recv_many` has come after these; they must be asked for, too, as all others come that way.
    pub fn turn_receiving(
        &mut self,
        now: Instant,
        id: SocketId,
        buffer: &mut [u8],
        list: &mut Vec<ReceivedDatagram>,
    ) -> Turn {
        list.clear();
        self.turn_for(now, Some(&mut DirectRead::of_datagrams(id, buffer, list)))
    }

    /// Whether packets wait for the next turn for which [`Engine::turn_reading`] had no room.
    pub fn has_left(&self) -> bool {
        !self.received.is_empty()
    }

    /// As [`Engine::turn`], for a read that waits.
    fn turn_for(&mut self, now: Instant, read: Option<&mut DirectRead<'_>>) -> Turn {
        self.time = self.time.max(now);
        let now = self.time;
        self.out.stats.stages.begin_turn();
        self.out.stats.turns += 1;
        self.out.routes.refresh();
        self.blocked = false;
        self.starved = false;
        self.push_left = self.limits.transmit_turn_bytes;
        let mut progress = self.out.flush(now);
        let received = self.receive(now, read);
        if received != 0 {
            self.sleeper.received(received);
            progress = true;
        }
        progress |= self.timers(now);
        self.out.stats.stages.mark(Stage::Timers, 0);
        self.release_acks(now, received);
        progress |= self.transmit(now);
        progress |= self.grant_writes();
        progress |= self.out.flush(now);
        self.out.stats.stages.mark(Stage::Egress, 0);
        self.trim_events();
        if self.out.pool.growth_wanted() {
            let _ = self.out.pool.grow();
        }
        if progress {
            return Turn { progress, next_deadline: Some(now) };
        }
        self.out.stats.idle_turns += 1;
        let progress = self.has_output();
        let next_deadline = if progress { Some(now) } else { self.next_deadline() };
        Turn { progress, next_deadline }
    }

    /// Sends what calls since the last turn have made ready, without looking for what arrived.
    pub fn flush(&mut self) {
        let now = self.time;
        self.out.stats.stages.mark(Stage::Application, 0);
        self.blocked = false;
        self.transmit(now);
        self.out.flush(now);
    }

    /// As [`Engine::flush`], when there is something to send; whether there was.
    pub(crate) fn flush_if_due(&mut self) -> bool {
        let due = !self.tcp.dirty.is_empty();
        if due {
            self.flush();
        }
        due && !self.blocked
    }

    /// Tells the sleeper that there was work.
    pub(crate) fn worked(&mut self) {
        self.sleeper.worked(self.time);
        self.memory.worked(self.time);
    }

    /// Whether a connection still has something to bring to an end; TIME-WAIT does not count.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.tcp.sockets.len() > self.tcp.held_in_time_wait || self.tcp.half_open.len() != 0
    }

    /// Fires timers that are due; whether there were any.
    #[inline]
    fn timers(&mut self, now: Instant) -> bool {
        if self.out.neighbors.next_deadline().is_some_and(|due| due <= now) {
            self.neighbor_timers(now);
        }
        if self.tcp.quiet_due.is_some_and(|due| due <= now) {
            self.tcp.sweep_quiet(now);
        }
        let mut fired = false;
        if self.tcp.half_open.wheel.is_due(now) {
            fired = self.half_open_timers(now);
        }
        if self.tcp.time_wait.wheel.is_due(now) {
            fired |= self.time_wait_timers(now);
        }
        if !self.tcp.wheel.is_due(now) {
            return fired;
        }
        fired | self.connection_timers(now)
    }

    /// Fires timers of connections that are due, as many as a turn may; whether there were any.
    #[inline(never)]
    fn connection_timers(&mut self, now: Instant) -> bool {
        let mut left = self.limits.timers;
        let mut more = true;
        while more && left != 0 {
            let mut due = [0; 64];
            let mut count = 0;
            more = self.tcp.wheel.expire(now, left.min(due.len()), |slot| {
                due[count] = slot;
                count += 1;
            });
            for &slot in &due[..count] {
                self.connection_timer(slot, now);
            }
            left -= count;
        }
        let fired = self.limits.timers - left;
        self.out.stats.timers_fired += fired as u64;
        fired != 0
    }

    /// The timer of a connection that was armed for now at the latest. The deadline may have moved later since.
    fn connection_timer(&mut self, slot: u32, now: Instant) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        if socket.conn.next_deadline().is_some_and(|due| due <= now) {
            socket.conn.on_timer(now);
            if socket.conn.take_delivery_problem() {
                self.out.doubt(now, socket);
            }
            self.tcp.collect_events(slot, &mut self.events);
            self.tcp.mark_dirty(slot);
        }
        self.tcp.arm(slot);
    }

    /// The earliest of all deadlines.
    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        // Straight on: this is asked in every turn. A deadline at the end of time is none.
        let ns = |due: Option<Instant>| due.map_or(u64::MAX, Instant::as_nanos);
        let tcp = &self.tcp;
        let mut first = tcp.wheel.next_ns().min(tcp.half_open.wheel.next_ns());
        first = first.min(tcp.time_wait.wheel.next_ns()).min(ns(tcp.quiet_due));
        first = first.min(ns(self.out.neighbors.next_wakeup()));
        for slot in &self.out.links {
            first = first.min(ns(slot.link.next_deadline()));
        }
        (first != u64::MAX).then_some(Instant::from_nanos(first))
    }

    /// One turn at the clock's time; when it finds nothing to do, sleeps until something arrives, a
    /// deadline comes, [`super::Waker::wake`] is called or `max_sleep` is over (`None`: no limit). Where
    /// packets come one by one and polling is of no use it sleeps first, and then takes the turn. News
    /// that nobody has taken do not keep it from sleeping: ask [`Engine::has_events`] before.
    pub fn run_once(&mut self, max_sleep: Option<Duration>) -> io::Result<Turn> {
        self.run_once_for(max_sleep, None)
    }

    /// As [`Engine::run_once`], for a read that waits.
    pub(crate) fn run_once_for(
        &mut self,
        max_sleep: Option<Duration>,
        read: Option<&mut DirectRead<'_>>,
    ) -> io::Result<Turn> {
        self.refresh_time();
        let quiet = self.sleeps_before_turn();
        if let Some(quiet) = quiet {
            self.idle(quiet, max_sleep)?;
        }
        // That of the end of a sleep.
        let turn = self.turn_for(self.time, read);
        if turn.progress {
            self.worked();
        } else if quiet.is_none() {
            self.idle(turn, max_sleep)?;
        }
        Ok(turn)
    }
}
