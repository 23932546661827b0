//! The forwarding loop between two links with faults.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use millstream::clock::Clock;
use millstream::link::{DropCause, Fault, FaultConfig, FaultStats, Faults, Link, LinkStats};
use millstream::packet::{Instant, PacketBatch, Pool};
use millstream_link::sys::{PollEntry, poll};
use millstream_record::error::Error;

use crate::interrupt::Interrupt;
use crate::limits;

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Counters of the faults.
    pub faults: FaultStats,
    /// Packets handed to the other device.
    pub passed_packets: u64,
    /// Bytes of the packets that were handed to the other device, link headers included.
    pub passed_bytes: u64,
    /// Packets that are on their way now.
    pub held: usize,
}

/// One direction's packets between two links.
struct Lane {
    batch: PacketBatch,
    passed_packets: u64,
    passed_bytes: u64,
}

impl Lane {
    fn new() -> Self {
        Self { batch: PacketBatch::new(), passed_packets: 0, passed_bytes: 0 }
    }

    /// Moves a batch; true when there may be more to move at once.
    fn carry<F: Link, T: Link>(
        &mut self,
        from: &mut Fault<F>,
        to: &mut Fault<T>,
        now: Instant,
        pool: &Pool,
    ) -> Result<bool, Error> {
        if self.batch.is_empty() {
            from.receive(now, pool, &mut self.batch).map_err(broken)?;
        }
        if self.batch.is_empty() {
            return Ok(false);
        }
        let (packets, bytes) = self.waiting();
        to.transmit(now, pool, &mut self.batch).map_err(broken)?;
        let (left, left_bytes) = self.waiting();
        self.passed_packets += (packets - left) as u64;
        self.passed_bytes += bytes - left_bytes;
        Ok(left < packets)
    }

    fn waiting(&self) -> (usize, u64) {
        (self.batch.len(), self.batch.iter().map(|packet| packet.len() as u64).sum())
    }

    fn way(&self, mut faults: FaultStats, held: usize) -> Way {
        // A direction without faults is not counted by them.
        if faults.entered == 0 {
            let through = self.passed_packets + self.batch.len() as u64;
            faults = FaultStats { entered: through, left: through, ..faults };
        }
        let Self { passed_packets, passed_bytes, .. } = *self;
        Way { faults, passed_packets, passed_bytes, held: held + self.batch.len() }
    }
}

fn broken(error: millstream::link::LinkError) -> Error {
    Error::Worker(error.to_string())
}

/// Two links with faults between them in both directions. It moves packets when it is told to and
/// has no thread of its own.
pub struct Bridge<A: Link, B: Link> {
    a: Fault<A>,
    b: Fault<B>,
    to_b: Lane,
    to_a: Lane,
    pool: Pool,
}

impl<A: Link, B: Link> Bridge<A, B> {
    /// Joins `a` and `b`. The same seed and packets give the same faults; the directions do not
    /// depend on each other.
    pub fn new(a: A, b: B, pool: Pool, seed: u64, a_to_b: Faults, b_to_a: Faults) -> Self {
        let receive =
            |seed, faults| FaultConfig { seed, receive: faults, ..FaultConfig::default() };
        Self {
            a: Fault::new(a, receive(seed, a_to_b)),
            b: Fault::new(b, receive(!seed, b_to_a)),
            to_b: Lane::new(),
            to_a: Lane::new(),
            pool,
        }
    }

    /// Moves what is there and due, at most a batch each way. True when there may be more.
    pub fn turn(&mut self, now: Instant) -> Result<bool, Error> {
        if self.pool.growth_wanted() {
            let _ = self.pool.grow();
        }
        let Self { a, b, to_b, to_a, pool } = self;
        let forth = to_b.carry(a, b, now, pool)?;
        let back = to_a.carry(b, a, now, pool)?;
        Ok(forth | back)
    }

    /// Sleeps until a packet arrives or is due, `wake` is readable, or `most` has passed.
    pub fn sleep(&mut self, now: Instant, most: Duration, wake: RawFd) -> Result<(), Error> {
        let Self { a, b, to_b, to_a, pool } = self;
        let ends: [(&mut dyn Sleeper, bool); 2] =
            [(a, !to_b.batch.is_empty()), (b, !to_a.batch.is_empty())];
        sleep(ends, pool, (now, most), Some(wake)).map_err(Error::host("wait for packets"))
    }

    /// Returns the counters of the way from `a` to `b`, and of the way back.
    pub fn ways(&self) -> (Way, Way) {
        let (_, forth) = self.a.fault_stats();
        let (_, back) = self.b.fault_stats();
        (
            self.to_b.way(forth, self.a.held_packets().1),
            self.to_a.way(back, self.b.held_packets().1),
        )
    }

    /// The counters of the links themselves, without the faults.
    pub fn links(&self) -> (LinkStats, LinkStats) {
        (without_faults(&self.a), without_faults(&self.b))
    }
}

/// Returns the counters of the link itself. Packets that came after the link had failed are those
/// that its fault wrapper counted.
fn without_faults<L: Link>(end: &Fault<L>) -> LinkStats {
    let closed = DropCause::Closed.index();
    let mut stats = end.inner().stats();
    stats.drops[closed] = end.stats().drops[closed];
    stats
}

/// Sleeps until a packet arrives at one of two links, or is due there, `wake` is readable, or
/// `most` has passed from `now` on. The flag of a link says that packets from it wait, because the
/// other link has no room.
pub fn sleep(
    ends: [(&mut dyn Sleeper, bool); 2],
    pool: &Pool,
    (now, mut most): (Instant, Duration),
    wake: Option<RawFd>,
) -> io::Result<()> {
    let mut entries: Vec<PollEntry> = wake.into_iter().map(PollEntry::readable).collect();
    if pool.is_dry() {
        // Packets that arrive cannot be taken now, and would keep us awake.
        most = most.min(Duration::from_millis(limits::IMPAIR_DRY_MS));
    } else {
        for (end, stuck) in ends {
            // Packets that wait for room at the other link need neither time nor further packets.
            if !end.prepare() && !stuck {
                return Ok(());
            }
            if let Some(at) = end.deadline().filter(|_| !stuck) {
                most = most.min(at.saturating_duration_since(now));
            }
            if let Some(fd) = end.fd().filter(|_| !stuck || end.waits_to_write()) {
                let wants_write = end.waits_to_write();
                entries.push(PollEntry { wants_write, ..PollEntry::readable(fd) });
            }
        }
    }
    poll(&mut entries, Some(most)).map(drop)
}

/// The part of a link that [`sleep`] needs.
pub trait Sleeper {
    fn prepare(&mut self) -> bool;
    fn deadline(&self) -> Option<Instant>;
    fn fd(&self) -> Option<RawFd>;
    fn waits_to_write(&self) -> bool;
}

impl<L: Link> Sleeper for L {
    fn prepare(&mut self) -> bool {
        self.prepare_sleep()
    }

    fn deadline(&self) -> Option<Instant> {
        self.next_deadline()
    }

    fn fd(&self) -> Option<RawFd> {
        self.wait_fd()
    }

    fn waits_to_write(&self) -> bool {
        self.wants_write()
    }
}

/// Forwards until the interrupt is raised or `most` has passed, telling `tell` every second and at
/// the end what has gone either way and how long it took so far.
pub fn until_interrupted<A: Link, B: Link>(
    bridge: &mut Bridge<A, B>,
    most: Option<Duration>,
    interrupt: &Interrupt,
    mut tell: impl FnMut(Duration, (Way, Way)) -> Result<(), Error>,
) -> Result<Duration, Error> {
    use std::os::fd::AsRawFd;
    let wake = interrupt.waker()?;
    let clock = Clock::new();
    let begin = clock.now();
    let second = Duration::from_secs(1);
    let mut next = second;
    loop {
        let now = clock.now();
        let passed = now.saturating_duration_since(begin);
        if interrupt.is_raised() || most.is_some_and(|most| passed >= most) {
            return Ok(passed);
        }
        if passed >= next {
            tell(passed, bridge.ways())?;
            next = Duration::from_secs(passed.as_secs()) + second;
        }
        if !bridge.turn(now)? {
            let until = most.map_or(next, |most| most.min(next));
            bridge.sleep(clock.now(), until.saturating_sub(passed), wake.as_raw_fd())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream::link::{LinkError, PairConfig, PairEnd, forward_link, pair};
    use millstream::packet::{Packet, PoolConfig};
    use millstream_link::sys::EventFd;
    use std::os::fd::AsRawFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// An end that breaks for good once it is told to, as a device that is removed.
    struct Breaking(PairEnd, Arc<AtomicBool>);

    impl Link for Breaking {
        forward_link!(
            self => self.0;
            capabilities, transmit, wait_fd, wants_write, next_deadline, prepare_sleep, stats, name
        );

        fn receive(
            &mut self,
            now: Instant,
            pool: &Pool,
            batch: &mut PacketBatch,
        ) -> Result<usize, LinkError> {
            match self.1.load(Ordering::Relaxed) {
                true => Err(LinkError::Invalid("a was removed".into())),
                false => self.0.receive(now, pool, batch),
            }
        }
    }

    struct Rig {
        bridge: Bridge<Breaking, PairEnd>,
        near: PairEnd,
        far: PairEnd,
        pool: Pool,
        is_broken: Arc<AtomicBool>,
    }

    fn rig(a_to_b: Faults, b_to_a: Faults) -> Rig {
        let pool = Pool::new(PoolConfig::fixed(4096)).unwrap();
        let (near, a) = pair(PairConfig::default()).unwrap();
        let (b, far) = pair(PairConfig::default()).unwrap();
        let is_broken = Arc::new(AtomicBool::new(false));
        let a = Breaking(a, Arc::clone(&is_broken));
        let bridge = Bridge::new(a, b, pool.clone(), 7, a_to_b, b_to_a);
        Rig { bridge, near, far, pool, is_broken }
    }

    impl Rig {
        fn send(&mut self, at: Instant, count: usize) {
            let mut batch = PacketBatch::new();
            for n in 0..count {
                let packet = Packet::from_slice(&self.pool, 64, &[n as u8; 100]).unwrap();
                batch.push(packet).ok().unwrap();
            }
            self.near.transmit(at, &self.pool, &mut batch).unwrap();
            assert!(batch.is_empty());
        }

        fn arrived(&mut self, at: Instant) -> usize {
            while self.bridge.turn(at).unwrap() {}
            let mut batch = PacketBatch::new();
            let mut count = 0;
            while self.far.receive(at, &self.pool, &mut batch).unwrap() > 0 {
                count += batch.len();
                while batch.pop().is_some() {}
            }
            count
        }
    }

    const START: Instant = Instant::from_nanos(1);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn packets_take_the_time_asked_and_the_sleep_ends_when_they_are_due() {
        let delay = Duration::from_millis(20);
        let mut rig = rig(Faults { delay, ..Faults::default() }, Faults::default());
        rig.send(START, 10);
        assert_eq!(rig.arrived(START), 0);
        assert_eq!(rig.arrived(START + Duration::from_nanos(19_999_999)), 0);
        assert_eq!(rig.bridge.ways().0.held, 10);
        let wake = EventFd::new().unwrap();
        let slept = std::time::Instant::now();
        let almost = START + Duration::from_nanos(19_000_000);
        rig.bridge.sleep(almost, Duration::from_secs(600), wake.as_raw_fd()).unwrap();
        assert!(slept.elapsed() >= Duration::from_millis(1));
        assert_eq!(rig.arrived(START + delay), 10);
        let (forth, back) = rig.bridge.ways();
        assert_eq!((forth.faults.entered, forth.passed_packets, forth.held), (10, 10, 0));
        assert_eq!((forth.passed_bytes, back), (1000, Way::default()));
    }

    #[test]
    fn what_entered_is_lost_or_dropped_or_passed() {
        let faults = Faults {
            loss: 0.1,
            duplicate: 0.1,
            rate_bits_per_s: Some(1_000_000),
            queue_bytes: 40_000,
            ..Faults::default()
        };
        let mut rig = rig(faults, Faults::default());
        let mut arrived = 0;
        for n in 0..200 {
            let at = START + Duration::from_millis(10) * n;
            rig.send(at, 20);
            arrived += rig.arrived(at);
        }
        arrived += rig.arrived(START + Duration::from_secs(600));
        let way = rig.bridge.ways().0;
        let FaultStats { entered, lost, queue_dropped, duplicated, left, .. } = way.faults;
        assert_eq!(entered, 4000);
        assert!(lost > 0 && queue_dropped > 0 && duplicated > 0, "{way:?}");
        assert_eq!(entered + duplicated, lost + queue_dropped + left);
        assert_eq!((left, arrived as u64, way.held), (way.passed_packets, way.passed_packets, 0));
    }

    #[test]
    fn without_faults_packets_are_counted_too() {
        let mut rig = rig(Faults::default(), Faults::default());
        rig.send(START, 3);
        assert_eq!(rig.arrived(START), 3);
        assert_eq!(rig.bridge.ways().0.faults.entered, 3);
    }

    #[test]
    fn directions_do_not_share_their_fate() {
        let faults = Faults { loss: 0.5, ..Faults::default() };
        let fates = |forth: bool| {
            let mut rig = rig(faults, faults);
            if !forth {
                std::mem::swap(&mut rig.near, &mut rig.far);
            }
            let one = |n: u64| {
                let at = START + Duration::from_millis(n);
                rig.send(at, 1);
                rig.arrived(at)
            };
            (0..64).map(one).collect::<Vec<_>>()
        };
        assert_eq!(fates(true), fates(true), "seeded");
        assert_ne!(fates(true), fates(false));
    }

    #[test]
    fn what_a_device_has_brought_before_it_was_removed_comes_through() {
        let delay = Duration::from_millis(20);
        let mut rig = rig(Faults { delay, ..Faults::default() }, Faults::default());
        rig.send(START, 10);
        assert_eq!(rig.arrived(START), 0);
        rig.is_broken.store(true, Ordering::Relaxed);
        std::mem::swap(&mut rig.near, &mut rig.far);
        rig.send(START, 3);
        std::mem::swap(&mut rig.near, &mut rig.far);
        assert_eq!(rig.arrived(START), 0);
        let (forth, back) = rig.bridge.ways();
        assert_eq!((forth.held, back.held, back.passed_packets), (10, 0, 3));
        assert_eq!(rig.bridge.links().0.dropped(DropCause::Closed), 3);
        assert!(rig.bridge.turn(START + delay).unwrap(), "there is more: the error");
        assert_eq!(rig.bridge.ways().0.passed_packets, 10);
        let ended = rig.bridge.turn(START + delay).unwrap_err();
        assert!(ended.to_string().contains("a was removed"), "{ended}");
    }

    #[test]
    fn what_a_removed_device_has_brought_is_slept_for_while_the_other_has_no_room() {
        let mut rig = rig(Faults { delay: MS, ..Faults::default() }, Faults::default());
        // More than the other end holds, of whom nobody takes any.
        let (mut at, mut sent) = (START, 0);
        while sent <= PairConfig::default().capacity {
            rig.send(at, 30);
            sent += 30;
            while rig.bridge.turn(at).unwrap() {}
            at += MS;
        }
        rig.is_broken.store(true, Ordering::Relaxed);
        at += MS;
        while rig.bridge.turn(at).unwrap() {}
        let (held, waiting) = (rig.bridge.a.held_packets().1, rig.bridge.to_b.batch.len());
        assert_eq!((held, waiting), (0, sent - PairConfig::default().capacity));
        let wake = EventFd::new().unwrap();
        let slept = std::time::Instant::now();
        rig.bridge.sleep(at, 5 * MS, wake.as_raw_fd()).unwrap();
        assert!(slept.elapsed() >= 5 * MS);
    }

    #[test]
    fn an_interrupt_ends_the_loop() {
        let mut rig = rig(Faults::default(), Faults::default());
        let interrupt = Interrupt::default();
        interrupt.raise();
        until_interrupted(&mut rig.bridge, None, &interrupt, |_, _| Ok(())).unwrap();
        let most = Some(Duration::from_millis(5));
        let calm = Interrupt::default();
        let took = until_interrupted(&mut rig.bridge, most, &calm, |_, _| Ok(())).unwrap();
        assert!(took >= Duration::from_millis(5));
    }
}
