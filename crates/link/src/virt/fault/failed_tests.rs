//! The link inside fails: nothing is lost that is not counted.

use millstream_packet::Packet;
use proptest::prelude::*;

use super::tests::{MS, everything, large_pool, way_in};
use super::*;
use crate::testing::pool;
use crate::{PairConfig, PairEnd, pair};

/// Breaks for good for who asks it for packets, or for who gives it some.
struct Breaking {
    end: PairEnd,
    receives: bool,
    transmits: bool,
    /// Times that it was used after that.
    vain: usize,
}

impl Breaking {
    fn new(end: PairEnd) -> Self {
        Self { end, receives: true, transmits: true, vain: 0 }
    }

    fn check(&mut self, works: bool) -> Result<(), LinkError> {
        self.vain += usize::from(!self.receives || !self.transmits);
        if works { Ok(()) } else { Err(LinkError::gone("ms0")) }
    }
}

impl Link for Breaking {
    forward_link!(self => self.end; capabilities, wait_fd, prepare_sleep, stats, name);

    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.check(self.receives)?;
        self.end.receive(now, pool, batch)
    }

    fn receive_into(
        &mut self,
        _: Instant,
        _: &Pool,
        _: usize,
        _: &mut [u8],
    ) -> Result<Option<Placed>, LinkError> {
        self.check(self.receives).map(|()| None)
    }

    fn transmit(
        &mut self,
        now: Instant,
        pool: &Pool,
        batch: &mut PacketBatch,
    ) -> Result<usize, LinkError> {
        self.check(self.transmits)?;
        self.end.transmit(now, pool, batch)
    }

    fn wants_write(&self) -> bool {
        true
    }
}

struct Bench {
    pool: Pool,
    far: PairEnd,
    near: Fault<Breaking>,
}

impl Bench {
    fn new(seed: u64, transmit: Faults, receive: Faults) -> Self {
        let (far, near) = pair(PairConfig { capacity: 4096, ..PairConfig::default() }).unwrap();
        let near = Fault::new(Breaking::new(near), FaultConfig { seed, transmit, receive });
        Self { pool: pool(), far, near }
    }

    /// Ways of 2 ms out and of 10 ms in, with two packets on their way out and three on their way
    /// in at 0.
    fn busy() -> Self {
        let delayed = |delay| Faults { delay, ..Faults::default() };
        let mut bench = Self::new(1, delayed(2 * MS), delayed(10 * MS));
        let mut batch = bench.packets(3);
        bench.far.transmit(Instant::ZERO, &bench.pool, &mut batch).unwrap();
        assert_eq!(bench.receive(0).unwrap(), 0);
        assert_eq!(bench.transmit(0, 2).unwrap(), 2);
        assert_eq!(bench.near.held_packets(), (2, 3));
        bench
    }

    fn packets(&self, count: usize) -> PacketBatch {
        let mut batch = PacketBatch::new();
        for _ in 0..count {
            batch.push(Packet::from_slice(&self.pool, 0, &[7; 100]).unwrap()).unwrap();
        }
        batch
    }

    fn transmit(&mut self, ms: u64, count: usize) -> Result<usize, LinkError> {
        let mut batch = self.packets(count);
        self.near.transmit(Instant::from_millis(ms), &self.pool, &mut batch)
    }

    fn receive(&mut self, ms: u64) -> Result<usize, LinkError> {
        self.near.receive(Instant::from_millis(ms), &self.pool, &mut PacketBatch::new())
    }

    fn closed(&self) -> u64 {
        self.near.stats().dropped(DropCause::Closed)
    }
}

/// The error, of which there is one.
fn error<T>(result: Result<T, LinkError>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn what_came_before_the_link_failed_comes_out_in_its_time_and_then_the_error() {
    let mut bench = Bench::busy();
    assert!(bench.near.wait_fd().is_some() && bench.near.wants_write());
    bench.near.inner.receives = false;
    assert_eq!(bench.receive(1).unwrap(), 0);
    assert_eq!((bench.near.held_packets(), bench.closed()), ((0, 3), 2));
    // It is awake for what is on its way alone.
    assert!(bench.near.wait_fd().is_none() && !bench.near.wants_write());
    assert!(bench.near.prepare_sleep());
    assert_eq!(bench.near.next_deadline(), Some(Instant::from_millis(10)));
    assert_eq!((bench.transmit(6, 4).unwrap(), bench.closed()), (4, 6));
    assert_eq!(bench.receive(9).unwrap(), 0);
    assert_eq!(bench.receive(10).unwrap(), 3);
    assert!(!bench.near.prepare_sleep());
    assert!(bench.near.next_deadline() <= Some(Instant::from_millis(10)), "the error is due");
    assert_eq!(bench.near.inner.vain, 1);
    assert!(error(bench.receive(10)).starts_with("ms0 was removed"));
    assert_eq!((bench.near.inner.vain, bench.closed()), (1, 6));
    assert!(error(bench.receive(10)).starts_with("ms0 was removed"), "as the link itself says");
}

#[test]
fn a_link_that_takes_nothing_more_is_told_after_what_it_has_brought() {
    let mut bench = Bench::busy();
    bench.near.inner.transmits = false;
    assert_eq!(bench.transmit(1, 1).unwrap(), 1, "nothing is due");
    assert_eq!(bench.closed(), 0);
    assert_eq!(bench.transmit(2, 5).unwrap(), 5);
    assert_eq!((bench.near.held_packets(), bench.closed()), ((0, 3), 8));
    let (out, _) = bench.near.fault_stats();
    assert_eq!((out.entered, out.left), (3, 0));
    assert_eq!(bench.receive(10).unwrap(), 3);
    let mut batch = bench.packets(1);
    let refused = bench.near.transmit(Instant::from_millis(10), &bench.pool, &mut batch);
    assert!(error(refused).starts_with("ms0 was removed"));
    assert_eq!((batch.len(), bench.closed()), (1, 8), "what is left is the caller's");
}

#[test]
fn with_nothing_on_its_way_in_the_error_is_told_at_once() {
    let delayed = Faults { delay: 2 * MS, ..Faults::default() };
    for receive in [Faults::default(), delayed] {
        for breaks_out in [false, true] {
            let mut bench = Bench::new(1, delayed, receive);
            assert_eq!(bench.transmit(0, 2).unwrap(), 2);
            bench.near.inner.receives = breaks_out;
            bench.near.inner.transmits = !breaks_out;
            let told = if breaks_out { bench.transmit(2, 3) } else { bench.receive(1) };
            assert!(error(told).starts_with("ms0 was removed"));
            assert_eq!((bench.near.held_packets(), bench.closed()), ((0, 0), 2));
        }
    }
    let mut bench = Bench::new(1, delayed, Faults::default());
    assert_eq!(bench.transmit(0, 2).unwrap(), 2);
    bench.near.inner.receives = false;
    let placed = bench.near.receive_into(Instant::ZERO, &bench.pool, 60, &mut [0; 2048]);
    assert!(error(placed).starts_with("ms0 was removed"));
    assert_eq!(bench.closed(), 2);
}

#[test]
fn what_waits_for_a_place_on_a_full_way_comes_out_too() {
    let pool = large_pool();
    let (_far, mut near) = way_in(&pool, Breaking::new);
    for _ in 0..400 {
        assert_eq!(near.receive(Instant::ZERO, &pool, &mut PacketBatch::new()).unwrap(), 0);
    }
    near.inner.transmits = false;
    let mut batch = PacketBatch::new();
    batch.push(Packet::from_slice(&pool, 0, &[7; 100]).unwrap()).unwrap();
    assert_eq!(near.transmit(Instant::ZERO, &pool, &mut batch).unwrap(), 1);
    let (_, held) = near.held_packets();
    assert!(near.takes_nothing() && !near.waiting.is_empty());
    // Some of it are super-segments yet.
    let (mut left, mut now) = (0, Instant::ZERO);
    let told = loop {
        now = near.next_deadline().expect("it is due").max(now);
        match near.receive(now, &pool, &mut PacketBatch::new()) {
            Ok(count) => left += count,
            Err(error) => break error,
        }
    };
    assert!(told.to_string().starts_with("ms0 was removed"));
    let (_, stats) = near.fault_stats();
    assert!(left >= held && left as u64 == stats.entered && left % 50 == 0);
    assert_eq!((near.held_packets(), now), ((0, 0), Instant::from_millis(2000)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the faults, and whenever the link fails, every packet is accounted for.
    #[test]
    fn packets_are_conserved_by_a_link_that_fails(
        seed: u64,
        until in 0_u64..200,
        breaks_out: bool,
    ) {
        let mut bench = Bench::new(seed, everything(), everything());
        let (mut sent, mut got, mut ms) = (0, 0, 0);
        let told = loop {
            if ms == until {
                bench.near.inner.transmits = !breaks_out;
                bench.near.inner.receives = breaks_out;
            }
            let mut batch = bench.packets(2);
            bench.far.transmit(Instant::from_millis(ms), &bench.pool, &mut batch).unwrap();
            match bench.transmit(ms, 2) {
                Ok(count) => sent += count as u64,
                Err(error) => break error,
            }
            match bench.receive(ms) {
                Ok(count) => got += count as u64,
                Err(error) => break error,
            }
            ms += 1;
        };
        prop_assert!(told.to_string().starts_with("ms0 was removed"));
        let (out, way_in) = bench.near.fault_stats();
        prop_assert_eq!(bench.near.held_packets(), (0, 0));
        prop_assert_eq!(way_in.left, got);
        let gone = way_in.lost + way_in.burst_lost + way_in.queue_dropped;
        prop_assert_eq!(way_in.entered + way_in.duplicated, got + gone);
        let gone = out.lost + out.burst_lost + out.queue_dropped + bench.closed();
        prop_assert_eq!(sent + out.duplicated, out.left + gone);
        prop_assert_eq!(bench.near.stats().tx_packets, out.left);
    }
}
