//! Sleeping when there is nothing to do, and being woken.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use millstream_link::event::LateEvent;
use millstream_link::sys::{IdleLatency, PollEntry, poll};
use millstream_packet::Instant;

use super::waker::{Bell, Waker};
use super::yielding::Yielding;
use super::{Engine, Turn};
use crate::engine::links::Links;
use crate::stages::Stage;

/// Short sleeps before one more attempt at polling, after polling has proved vain. Each attempt
/// that is in vain, too, doubles it: where both ends share a core polling only keeps the other from
/// its work.
const RETRY_SLEEPS: u32 = 64;

/// The most that it is doubled to.
const RETRY_SLEEPS_MAX: u32 = 8192;

/// Times in a row that polling may be in vain before the engine sleeps at once.
const ATTEMPTS: u32 = 4;

/// A sleep of up to so many busy-poll times counts as one that polling might have spared. It is
/// longer than what was waited for took: being woken takes some 5 µs where a CPU idles awake, and
/// 40 to 60 µs in a virtual machine whose CPUs halt, and the peer that wakes pays as much before it
/// goes on.
const SHORT_SLEEP: u32 = 4;

/// A sleep shorter than this found what it waited for when it began.
const NO_SLEEP: Duration = Duration::from_micros(2);

/// Packets in a row that ended a sleep each, before the engine sleeps without looking for the next.
const AWAITED: u32 = 4;

/// Time that an engine without a free frame waits before it looks again.
const DRY_PAUSE: Duration = Duration::from_millis(1);

/// A sleep that has begun.
pub(crate) struct Sleep {
    began: Instant,
    /// The engine had polled before.
    polled: bool,
    /// The longest that it may last; `None` for ever.
    pub limit: Option<Duration>,
    /// The descriptors before this are the engine's and its links'.
    of_links: usize,
}

/// When to poll on and when to sleep.
pub(super) struct Sleeper {
    bell: Arc<Bell<LateEvent>>,
    entries: Vec<PollEntry>,
    /// The knob: polling never lasts longer.
    busy_poll: Duration,
    /// The time since which there was no work; `None` while there is some.
    idle_since: Option<Instant>,
    /// It has yielded since there was no work: what comes now was not found by polling.
    has_yielded: bool,
    /// Times in a row that polling was in vain.
    vain: u32,
    /// Short sleeps since.
    short_sleeps: u32,
    /// Short sleeps before the next attempt.
    retry_sleeps: u32,
    /// A sleep has ended since the last packet.
    has_slept: bool,
    /// Single packets in a row before each of which the engine slept.
    awaited: u32,
    /// Decides if others get the core before a sleep.
    yielding: Yielding,
    /// Somebody rang since this was last asked.
    woken: bool,
    /// Another thread may wait for this core: polling begins behind it.
    makes_way: bool,
    /// The limit on how deep idle CPUs may sleep.
    pub idle_latency: Option<IdleLatency>,
}

impl Sleeper {
    pub fn new(busy_poll: Duration, idle_latency: Option<Duration>) -> Self {
        Self {
            bell: Arc::new(Bell::new(LateEvent::default())),
            entries: Vec::with_capacity(8),
            busy_poll,
            idle_since: None,
            has_yielded: false,
            vain: 0,
            short_sleeps: 0,
            retry_sleeps: RETRY_SLEEPS,
            has_slept: false,
            awaited: 0,
            yielding: Yielding::default(),
            woken: false,
            makes_way: false,
            idle_latency: idle_latency.map(IdleLatency::hold),
        }
    }

    /// There was work.
    pub fn worked(&mut self, _now: Instant) {
        let has_yielded = std::mem::take(&mut self.has_yielded);
        if self.idle_since.take().is_some() && !has_yielded {
            self.vain = 0;
            self.retry_sleeps = RETRY_SLEEPS;
        }
    }

    /// A turn received `packets`.
    pub fn received(&mut self, packets: usize) {
        if packets != 0 {
            let is_awaited = packets == 1 && self.has_slept;
            self.awaited = if is_awaited { self.awaited.saturating_add(1) } else { 0 };
            self.yielding.received(packets, self.has_slept);
            self.has_slept = false;
        }
    }

    /// Returns true to sleep without having looked for packets first: there is no polling now,
    /// packets come one by one, and none was there before the engine slept. A sleep also ends for
    /// one that is there already, so the look would be a system call for nothing.
    fn sleeps_first(&self) -> bool {
        self.awaited >= AWAITED && (self.vain >= ATTEMPTS || self.busy_poll.is_zero())
    }

    /// Returns true to look again instead of sleeping. Polling that was in vain [`ATTEMPTS`] times
    /// in a row is left alone until sleeps prove short.
    fn keeps_polling(&mut self, now: Instant) -> bool {
        if self.busy_poll.is_zero() || self.vain >= ATTEMPTS {
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_duration_since(since) < self.busy_poll
    }

    /// Others had the core for this long, after polling in vain or without it. Where they are who
    /// answers, they do so now: polling kept them from it.
    fn yielded(&mut self, polled: bool, length: Duration) {
        self.yielding.yielded(length);
        self.has_yielded = true;
        if polled {
            self.vain += 1;
            self.short_sleeps = 0;
        }
    }

    /// A sleep of this length is over.
    fn slept(&mut self, polled: bool, length: Duration) {
        self.idle_since = None;
        let polled = polled && !std::mem::take(&mut self.has_yielded);
        self.yielding.slept();
        self.has_slept |= length >= NO_SLEEP;
        if polled {
            self.vain += 1;
            self.short_sleeps = 0;
        }
        if self.vain >= ATTEMPTS && length < self.busy_poll.saturating_mul(SHORT_SLEEP) {
            self.short_sleeps += 1;
            if self.short_sleeps >= self.retry_sleeps {
                self.vain = ATTEMPTS - 1;
                self.retry_sleeps = (self.retry_sleeps * 2).min(RETRY_SLEEPS_MAX);
            }
        }
    }

    /// Announces the sleep to every link and gathers descriptors to sleep on, after `own`, which is
    /// the engine's. Returns false when something arrived. Packets that arrive while the pool is
    /// dry do not count: they cannot be taken.
    fn prepare(&mut self, own: RawFd, links: &mut Links, dry: bool) -> bool {
        let entries = &mut self.entries;
        entries.clear();
        entries.push(PollEntry::readable(own));
        if dry {
            return true;
        }
        let mut quiet = true;
        for place in 0..links.used_count() {
            let Some(link) = links.at(place) else { break };
            let slot = &mut links[link.index()];
            quiet &= slot.link.prepare_sleep();
            if let Some(fd) = slot.link.wait_fd() {
                let wants_write = slot.link.wants_write();
                entries.push(PollEntry { fd, wants_write, ready: false });
            }
        }
        quiet
    }
}

impl Engine {
    /// Returns a handle that wakes this engine from another thread.
    pub fn waker(&self) -> Waker {
        Waker::of(&self.sleeper.bell)
    }

    /// Sets the longest time the engine looks for work before it sleeps.
    pub fn set_busy_poll(&mut self, busy_poll: Duration) {
        self.sleeper.busy_poll = busy_poll;
        self.sleeper.vain = 0;
        self.sleeper.retry_sleeps = RETRY_SLEEPS;
    }

    /// Asks the kernel that no CPU of the machine enters an idle state that takes longer to leave
    /// than `limit`, from now until another limit is set or the engine is dropped; `None` takes the
    /// request back. Where a halted CPU takes tens of microseconds to wake up, as on a virtual
    /// machine, that is most of a round trip between two hosts that wait for each other: zero has
    /// the kernel poll instead of halting.
    ///
    /// It costs power, also of CPUs that have no part in this, and the time of their siblings and
    /// of other guests. It never fails: without permission (`/dev/cpu_dma_latency`, usually root's
    /// alone) everything is as before, and
    /// [`Inspect::idle_latency`](crate::Inspect::idle_latency) says why.
    pub fn set_idle_latency(&mut self, limit: Option<Duration>) {
        self.sleeper.idle_latency = limit.map(IdleLatency::hold);
    }

    /// Returns true if [`Waker::wake`] was used since the last call, also where the engine has not
    /// slept since.
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.sleeper.woken) | self.sleeper.bell.is_rung()
    }

    /// Whoever waits for the engine's core has it before the engine polls on.
    pub(crate) fn make_way(&mut self) {
        self.sleeper.makes_way = true;
    }

    /// Returns the answer of a turn that finds nothing to do, when it is better to sleep than to
    /// take one: the caller sleeps with it, then takes a turn. Sends what is ready before.
    pub(crate) fn sleeps_before_turn(&mut self) -> Option<Turn> {
        if !self.sleeper.sleeps_first() {
            return None;
        }
        // A thread that waits in a call takes no events: earlier ones may still stand in the list.
        let told = self.cx.events.told();
        self.flush_if_due();
        // A caller that waited for room may have it now.
        let due = self.cx.events.told() != told
            || !self.tcp.table.dirty.is_empty()
            || !self.tcp.writes.is_idle()
            || self.tcp.writes.may_tell_starved(&mut self.cx)
            || self.udp.refused.links != 0
            || self.tcp.parked_have_room(&mut self.cx, &mut self.ip.reach)
            || self.ip.reach.waiting;
        let next_deadline = self.next_deadline();
        if due || next_deadline.is_some_and(|due| due <= self.cx.now) {
            return None;
        }
        self.cx.stats.stages.mark(Stage::Application, 0);
        Some(Turn { progress: false, next_deadline })
    }

    /// Nothing to do at the engine's time: polls on for a while, then sleeps. `busy` is asked after
    /// the engine has announced that it sleeps, and keeps it from it.
    pub(crate) fn idle_unless(
        &mut self,
        turn: Turn,
        max_sleep: Option<Duration>,
        busy: impl Fn() -> bool,
    ) -> io::Result<()> {
        if let Some(sleep) = self.begin_sleep(turn, max_sleep, busy)? {
            poll(sleep.entries(self), sleep.limit)?;
            sleep.end(self);
        }
        Ok(())
    }

    /// Begins the sleep of [`idle_unless`](Self::idle_unless), which lasts until one of its
    /// descriptors is ready or its limit is over, and is ended then. `None` for a turn that comes
    /// before a sleep. Fails where the first sleep finds no free descriptor.
    pub(crate) fn begin_sleep(
        &mut self,
        turn: Turn,
        max_sleep: Option<Duration>,
        busy: impl Fn() -> bool,
    ) -> io::Result<Option<Sleep>> {
        let began = self.cx.now;
        if max_sleep == Some(Duration::ZERO) || turn.next_deadline.is_some_and(|due| due <= began) {
            return Ok(None);
        }
        let polled = self.sleeper.idle_since.is_some();
        let makes_way = std::mem::take(&mut self.sleeper.makes_way);
        if self.sleeper.keeps_polling(began) {
            match makes_way {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
            self.cx.stats.stages.mark(Stage::Poll, 0);
            return Ok(None);
        }
        if self.sleeper.yielding.is_due() {
            std::thread::yield_now();
            let length = self.refresh_time().saturating_duration_since(began);
            self.sleeper.yielded(polled, length);
            self.cx.stats.stages.mark(Stage::Sleep, 0);
            return Ok(None);
        }
        let next = self.put_off_timers(turn.next_deadline, began);
        // Without a free frame nothing can be received or sent, and nobody tells when one is
        // released.
        let is_dry = self.cx.pool.is_dry();
        if self.tcp.writes.may_tell_starved(&mut self.cx) {
            return Ok(None);
        }
        let dry = self.tcp.tx.is_starved() || is_dry;
        let limits = [
            next.map(|due| due.saturating_duration_since(began)),
            max_sleep,
            self.memory.rest(began, &self.cx.pool),
            (dry || self.tcp.writes.has_starved()).then_some(DRY_PAUSE),
        ];
        let limit = limits.into_iter().flatten().min();
        // It is there before others may signal.
        let own = self.sleeper.bell.event().descriptor()?;
        let is_rung = !self.sleeper.bell.announce();
        if is_rung || busy() || !self.sleeper.prepare(own, &mut self.ip.reach.links, dry) {
            self.sleeper.woken |= self.sleeper.bell.end(is_rung);
            return Ok(None);
        }
        self.cx.stats.sleeps += 1;
        let of_links = self.sleeper.entries.len();
        self.live.watch(&mut self.sleeper.entries);
        Ok(Some(Sleep { began, polled, limit, of_links }))
    }
}

impl Sleep {
    /// Returns the descriptors that end it, as poll(2) has them.
    pub fn entries<'a>(&self, engine: &'a mut Engine) -> &'a mut [PollEntry] {
        &mut engine.sleeper.entries
    }

    /// Ends it, with what its descriptors were last found to be.
    pub fn end(self, engine: &mut Engine) {
        let Self { began, polled, of_links, .. } = self;
        let is_rung = engine.sleeper.entries[0].ready;
        let woke = engine.refresh_time();
        let others = engine.sleeper.entries.get(of_links..).unwrap_or_default();
        engine.live.woken(others, woke);
        let length = woke.saturating_duration_since(began);
        engine.sleeper.slept(polled, length);
        let stats = &mut engine.cx.stats;
        stats.batches.sleep_us.add(length.as_micros() as usize);
        stats.stages.mark(Stage::Sleep, 1);
        engine.sleeper.woken |= engine.sleeper.bell.end(is_rung);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineConfig, Limits};
    use millstream_link::{PairConfig, pair};
    use millstream_packet::{Pool, PoolConfig};

    #[test]
    fn an_engine_sleeps_on_as_many_links_as_it_takes() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let limits = Limits { links: usize::MAX, ..Limits::default() };
        let config = EngineConfig { busy_poll: Duration::ZERO, limits, ..EngineConfig::new(pool) };
        let mut engine = Engine::new(config).unwrap();
        let ends: Vec<_> = (0..65).map(|_| pair(PairConfig::default()).unwrap()).collect();
        let (mut others, mut taken) = (Vec::new(), 0);
        for (other, end) in ends {
            others.push(other);
            taken += usize::from(engine.add_link(Box::new(end)).is_ok());
        }
        assert_eq!(taken, 64);
        engine.run_once(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(engine.stats().sleeps, 1);
    }

    /// An engine, and one that listens behind a link of its own, to which it has a connection.
    fn reach(near: &mut Engine, at: u8, capacity: usize) -> (Engine, crate::SocketId) {
        let (ours, theirs) = pair(PairConfig { capacity, ..PairConfig::default() }).unwrap();
        let mut far = Engine::new(EngineConfig::new(near.pool().clone())).unwrap();
        for (engine, end, own) in [(&mut *near, ours, 1), (&mut far, theirs, 2)] {
            let link = engine.add_link(Box::new(end)).unwrap();
            engine.add_address(link, format!("10.{at}.0.{own}/24").parse().unwrap()).unwrap();
        }
        far.sockets().tcp_listen("0.0.0.0:80".parse().unwrap(), 8).unwrap();
        near.refresh_time();
        let id = near.sockets().tcp_connect(format!("10.{at}.0.2:80").parse().unwrap()).unwrap();
        for _ in 0..20 {
            for engine in [&mut *near, &mut far] {
                let now = engine.refresh_time();
                engine.turn(now);
            }
        }
        assert_eq!(near.tcp(id).connected(), Ok(true));
        (far, id)
    }

    #[test]
    fn nobody_sleeps_before_those_whose_link_has_room_again() {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let config = EngineConfig { busy_poll: Duration::ZERO, ..EngineConfig::new(pool) };
        let mut near = Engine::new(config).unwrap();
        let (mut slow, waits) = reach(&mut near, 0, 64);
        let (_other, _) = reach(&mut near, 1, 1024);
        let socket = near.sockets().udp_bind("0.0.0.0:9".parse().unwrap()).unwrap();
        // Both the link and its queue are full, and nobody was refused.
        for _ in 0..128 {
            near.udp(socket).send(&[7; 32], Some("10.0.0.2:9".parse().unwrap())).unwrap();
        }
        near.tcp(waits).write(&[1; 1000]).unwrap();
        near.flush();
        assert!(!near.tcp.parked.is_empty());
        for _ in 0..4 {
            let now = slow.refresh_time();
            slow.turn(now);
        }
        // As while a large write waits for ACKs.

        near.ip.reach.flush(&mut near.cx);
        assert!(!near.ip.reach.waiting && !near.tcp.parked.is_empty());
        (near.sleeper.awaited, near.sleeper.vain) = (AWAITED, ATTEMPTS);
        while near.next_event().is_some() {}
        assert_eq!(near.sleeps_before_turn(), None);
    }

    const WINDOW: Duration = Duration::from_micros(50);

    /// Sleeps that ended soon, until polling is tried once more; at most `limit`.
    fn sleeps_until_retry(sleeper: &mut Sleeper, limit: u32) -> u32 {
        for count in 0..limit {
            if sleeper.keeps_polling(Instant::ZERO) {
                // In vain.
                sleeper.slept(true, WINDOW * 2);
                return count;
            }
            sleeper.slept(false, WINDOW * 2);
        }
        limit
    }

    #[test]
    fn polling_that_stays_vain_is_tried_ever_more_rarely_and_success_brings_it_back() {
        let mut sleeper = Sleeper::new(WINDOW, None);
        for _ in 0..4 {
            assert_eq!(sleeps_until_retry(&mut sleeper, 1), 0);
        }
        let mut last = sleeps_until_retry(&mut sleeper, 100);
        for _ in 0..4 {
            let next = sleeps_until_retry(&mut sleeper, 10_000);
            assert!((last * 2 - 4..=last * 2 + 4).contains(&next), "{last}, then {next}");
            last = next;
        }
        sleeper.vain = 3;
        assert!(sleeper.keeps_polling(Instant::ZERO));
        sleeper.worked(Instant::ZERO);
        assert_eq!(sleeper.retry_sleeps, RETRY_SLEEPS);
        assert!(sleeper.keeps_polling(Instant::ZERO));
    }

    #[test]
    fn sleeps_that_polling_could_not_have_spared_bring_no_polling_back() {
        let mut sleeper = Sleeper::new(WINDOW, None);
        for _ in 0..ATTEMPTS {
            sleeper.slept(true, WINDOW * SHORT_SLEEP);
        }
        for _ in 0..2 * RETRY_SLEEPS {
            sleeper.slept(false, WINDOW * SHORT_SLEEP);
            assert!(!sleeper.keeps_polling(Instant::ZERO));
        }
        assert_eq!(sleeps_until_retry(&mut sleeper, 2 * RETRY_SLEEPS), RETRY_SLEEPS);
    }

    #[test]
    fn each_attempt_at_polling_lasts_as_long_as_the_knob_says() {
        let mut sleeper = Sleeper::new(WINDOW, None);
        let almost = Instant::ZERO + (WINDOW - Duration::from_nanos(1));
        for _ in 0..ATTEMPTS {
            assert!(sleeper.keeps_polling(Instant::ZERO));
            assert!(sleeper.keeps_polling(almost));
            assert!(!sleeper.keeps_polling(Instant::ZERO + WINDOW));
            sleeper.slept(true, WINDOW);
        }
        assert!(!sleeper.keeps_polling(Instant::ZERO));
    }

    #[test]
    fn polling_that_only_kept_the_peer_from_its_core_is_given_up() {
        let mut sleeper = Sleeper::new(WINDOW, None);
        for attempt in 0..ATTEMPTS {
            assert!(sleeper.keeps_polling(Instant::ZERO), "{attempt}");
            assert!(!sleeper.keeps_polling(Instant::ZERO + WINDOW));
            sleeper.yielded(true, WINDOW);
            sleeper.worked(Instant::ZERO);
        }
        assert!(!sleeper.keeps_polling(Instant::ZERO));
        // A yield and the sleep behind it are one attempt, and what polling finds brings it back.
        sleeper.vain = 0;
        assert!(sleeper.keeps_polling(Instant::ZERO));
        sleeper.yielded(true, Duration::ZERO);
        sleeper.slept(true, WINDOW);
        assert_eq!(sleeper.vain, 1);
        assert!(sleeper.keeps_polling(Instant::ZERO));
        sleeper.worked(Instant::ZERO);
        assert_eq!(sleeper.vain, 0);
    }

    #[test]
    fn sleeping_comes_first_for_single_packets_that_were_waited_for_without_polling() {
        let ask = |busy_poll, slept, packets| {
            let mut sleeper = Sleeper::new(busy_poll, None);
            for _ in 0..AWAITED {
                assert!(!sleeper.sleeps_first());
                sleeper.slept(false, slept);
                sleeper.received(0);
                sleeper.received(packets);
            }
            sleeper
        };
        let (none, long) = (Duration::ZERO, Duration::from_micros(20));
        assert!(!ask(WINDOW, long, 1).sleeps_first());
        assert!(!ask(none, long, 2).sleeps_first());
        assert!(!ask(none, Duration::from_micros(1), 1).sleeps_first());
        let mut sleeper = ask(none, long, 1);
        assert!(sleeper.sleeps_first());
        // It was there at once.
        sleeper.slept(false, Duration::from_micros(1));
        sleeper.received(1);
        assert!(!sleeper.sleeps_first());
    }

    #[test]
    fn only_packets_that_came_without_a_sleep_bring_yields() {
        let ask = |slept: Option<Duration>| {
            let mut sleeper = Sleeper::new(Duration::ZERO, None);
            for _ in 0..2 * AWAITED {
                sleeper.received(0);
                slept.into_iter().for_each(|length| sleeper.slept(false, length));
                sleeper.received(1);
            }
            sleeper.yielding.is_due()
        };
        assert!(ask(None));
        assert!(ask(Some(NO_SLEEP / 2)));
        assert!(!ask(Some(Duration::from_micros(20))));
    }
}
