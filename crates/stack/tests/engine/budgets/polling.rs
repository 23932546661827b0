//! A router polls its links while there is load, and asks nobody to wake it; without load it
//! sleeps, and takes a turn for nothing but what wakes it. By counts: how long anything takes is no
//! matter.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream::Engine;
use millstream::link::{Link, Medium, PairConfig, PairEnd, forward_link, pair};
use millstream::packet::{Instant, Packet, PacketBatch, Pool};
use millstream::route::LinkId;
use millstream_wire::ip::{IpHeader, Protocol};

use crate::common::{config, pool};

/// Packets that come at once.
const BURST: usize = 16;
/// Bursts, one behind the other.
const BURSTS: u64 = 500;

/// Counts how often it is told that its engine is about to sleep: then it has whoever sends wake
/// that, as a driver that switches its interrupts on again.
struct Watched {
    end: PairEnd,
    armed: Arc<AtomicU64>,
}

impl Link for Watched {
    forward_link!(self => self.end; capabilities, receive, transmit, wait_fd, stats, name);

    fn prepare_sleep(&mut self) -> bool {
        self.armed.fetch_add(1, Ordering::Relaxed);
        self.end.prepare_sleep()
    }
}

/// A router between two links, and their far ends.
struct Router {
    engine: Engine,
    ends: Vec<PairEnd>,
    armed: Arc<AtomicU64>,
    pool: Pool,
    packet: Vec<u8>,
}

/// Counts of a router's turns, sleeps and wake-ups since the last look.
#[derive(Debug, PartialEq, Eq)]
struct Waits {
    turns: u64,
    /// Turns that found nothing to do.
    idle: u64,
    sleeps: u64,
    /// Links that were told of a sleep.
    armed: u64,
    /// Times that who sends to the router had to wake it.
    woken: u64,
}

impl Router {
    fn new(busy_poll: Duration) -> Self {
        let pool = pool();
        let config = config(&pool, 1).busy_poll(busy_poll);
        let mut engine = Engine::new(config).expect("an engine");
        engine.routes().set_forwarding(true);
        let armed = Arc::new(AtomicU64::new(0));
        let mut ends = Vec::new();
        for number in 0..2 {
            // Without neighbours, of whom an engine would hear now and then.
            let wire = PairConfig { medium: Medium::Ip, ..PairConfig::default() };
            let (end, far) = pair(wire).expect("a pair");
            let watched = Watched { end, armed: Arc::clone(&armed) };
            assert_eq!(engine.add_link(Box::new(watched)), Ok(LinkId(number)));
            let own = format!("10.{number}.0.1/24").parse().expect("a prefix");
            engine.add_address(LinkId(number), own).expect("an address");
            ends.push(far);
        }
        let [src, dst] =
            ["10.0.0.9", "10.1.0.9"].map(|ip| ip.parse::<IpAddr>().expect("an address"));
        let header = IpHeader::new(src, dst, Protocol::UDP, 20);
        let mut packet = vec![0; header.packet_len()];
        header.emit(&mut packet);
        Self { engine, ends, armed, pool, packet }
    }

    /// A burst comes.
    fn come(&mut self) {
        let mut batch = PacketBatch::new();
        for _ in 0..BURST {
            batch
                .push(Packet::from_slice(&self.pool, 64, &self.packet).expect("frames"))
                .expect("room");
        }
        self.ends[0].transmit(Instant::ZERO, &self.pool, &mut batch).expect("a link");
        assert!(batch.is_empty());
    }

    /// Returns how many packets have left.
    fn left(&mut self) -> usize {
        let mut batch = PacketBatch::new();
        self.ends[1].receive(Instant::ZERO, &self.pool, &mut batch).expect("a link")
    }

    fn run(&mut self, most: Option<Duration>) {
        self.engine.run_once(most).expect("a turn");
    }

    /// Returns the counts that `during` adds.
    fn waits(&mut self, during: impl FnOnce(&mut Self)) -> Waits {
        let count = |router: &Self| {
            let stats = router.engine.stats();
            let armed = router.armed.load(Ordering::Relaxed);
            let woken = router.ends[0].stats().wakeups;
            [stats.turns, stats.idle_turns, stats.sleeps, armed, woken]
        };
        let before = count(self);
        during(self);
        let after = count(self);
        let [turns, idle, sleeps, armed, woken] = [0, 1, 2, 3, 4].map(|at| after[at] - before[at]);
        Waits { turns, idle, sleeps, armed, woken }
    }

    /// Bursts that come one behind the other.
    fn load(&mut self) {
        for _ in 0..BURSTS {
            self.come();
            self.run(None);
            assert_eq!(self.left(), BURST);
        }
    }
}

#[test]
fn under_load_a_router_neither_sleeps_nor_asks_to_be_woken() {
    for busy_poll in [Duration::ZERO, Duration::from_secs(3600)] {
        let mut router = Router::new(busy_poll);
        let waits = router.waits(Router::load);
        assert_eq!(waits, Waits { turns: BURSTS, idle: 0, sleeps: 0, armed: 0, woken: 0 });
        let sent = router.engine.inspect().link_stats(LinkId(1)).expect("a link");
        assert_eq!((sent.tx_packets, sent.wakeups), (BURSTS * BURST as u64, 0));
    }
}

#[test]
fn in_the_gaps_of_a_load_a_router_polls_on_for_as_long_as_it_may() {
    let mut router = Router::new(Duration::from_secs(3600));
    let waits = router.waits(|router| {
        for _ in 0..BURSTS {
            router.come();
            router.run(None);
            assert_eq!(router.left(), BURST);
            router.run(None);
            assert_eq!(router.left(), 0);
        }
    });
    assert_eq!(waits, Waits { turns: 2 * BURSTS, idle: BURSTS, sleeps: 0, armed: 0, woken: 0 });
}

#[test]
fn without_load_a_router_sleeps_and_takes_one_turn_for_each_sleep() {
    let mut router = Router::new(Duration::ZERO);
    for length_ms in [1, 20, 50] {
        let sleeps = 3;
        let idle = router.waits(|router| {
            (0..sleeps).for_each(|_| router.run(Some(Duration::from_millis(length_ms))));
        });
        let both_links = 2 * sleeps;
        let expected = Waits { turns: sleeps, idle: sleeps, sleeps, armed: both_links, woken: 0 };
        assert_eq!(idle, expected, "however long a sleep is");
        // The first of what comes wakes the router, and nothing that comes while it has work.
        let busy = router.waits(Router::load);
        assert_eq!(busy, Waits { turns: BURSTS, idle: 0, sleeps: 0, armed: 0, woken: 1 });
    }
}
