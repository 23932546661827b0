//! A router between two hosts: an engine, or a bare loop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use millstream::clock::Clock;
use millstream::link::{Link, LinkError};
use millstream::packet::{Instant, PacketBatch, Pool};
use millstream::{Engine, EngineConfig};
use millstream_record::EngineRecord;
use millstream_testbed::impair;

use super::data::pin;
use super::protocol::{RouterJob, RouterReport};
use super::stack::{self, LinkOptions};
use crate::limits;
use crate::transport::{bare_link_record, engine_record};

/// Longest sleep before it looks whether it is to end.
const SLEEP: Duration = Duration::from_millis(limits::ROUTER_SLEEP_MS);

/// The thread of a router. It hands on until it is ended; its links stay until this is dropped.
pub(super) struct RouterThread {
    stopping: Arc<AtomicBool>,
    report: Receiver<Result<RouterReport, String>>,
    /// Closing it lets go of the links.
    _links: Sender<()>,
}

impl RouterThread {
    /// Starts it; what is to be kept in mind of its links.
    pub(super) fn start(job: RouterJob) -> Result<(Self, Vec<String>), String> {
        let stopping = Arc::new(AtomicBool::new(false));
        let seen = stopping.clone();
        let (opened, opening) = channel();
        let (teller, report) = channel();
        let (links, kept) = channel::<()>();
        let body = move || {
            let (mut router, notes) = match pin(job.cpu).and_then(|()| Router::open(&job)) {
                Ok(router) => router,
                Err(why) => return drop(opened.send(Err(why))),
            };
            let _ = opened.send(Ok(notes.clone()));
            let done = router.run(&seen).map(|()| router.report(&notes));
            let _ = teller.send(done.map_err(|error| format!("the router has failed: {error}")));
            let _ = kept.recv();
        };
        std::thread::Builder::new()
            .name("router".to_owned())
            .spawn(body)
            .map_err(|error| error.to_string())?;
        let notes = opening.recv().map_err(|_| "the router's thread panicked".to_owned())??;
        Ok((Self { stopping, report, _links: links }, notes))
    }

    /// Ends it, once.
    pub(super) fn end(&self) -> Result<RouterReport, String> {
        self.stopping.store(true, Ordering::Release);
        self.report.recv().map_err(|_| "the router has ended before".to_owned())?
    }
}

enum Router {
    Engine(Box<Engine>),
    Bare(Box<Bare>),
}

impl Router {
    fn open(job: &RouterJob) -> Result<(Self, Vec<String>), String> {
        let pool = stack::fixed_pool()?;
        let wanted = LinkOptions {
            mtu: job.mtu as usize,
            offload: job.offload,
            super_segment_bytes: None,
            ring_packets: job.ring_packets,
        };
        let config = EngineConfig::new(pool.clone()).stage_sample(limits::STAGE_SAMPLE_TURNS);
        let [near, far] = &job.links;
        let (one, mut notes) = stack::open(&near.0, &wanted, &pool)?;
        let (other, more) = stack::open(&far.0, &wanted, &pool)?;
        notes.extend(more);
        if job.is_bare {
            return Ok((Self::Bare(Box::new(Bare::new([one, other], pool, &config))), notes));
        }
        let engine = || -> io::Result<Engine> {
            let mut engine = Engine::new(config)?;
            engine.routes().set_forwarding(true);
            stack::add_link(&mut engine, one, &near.1)?;
            stack::add_link(&mut engine, other, &far.1)?;
            Ok(engine)
        };
        let engine = engine().map_err(|error| format!("cannot start Millstream: {error}"))?;
        Ok((Self::Engine(Box::new(engine)), notes))
    }

    fn run(&mut self, stopping: &AtomicBool) -> io::Result<()> {
        match self {
            Self::Engine(engine) => {
                while !stopping.load(Ordering::Relaxed) {
                    engine.run_once(Some(SLEEP))?;
                }
                Ok(())
            }
            Self::Bare(bare) => bare.run(stopping),
        }
    }

    /// `said` was told before.
    fn report(&mut self, said: &[String]) -> RouterReport {
        let engine = match self {
            Self::Engine(engine) => {
                let mut record = engine_record(engine.stats(), engine.inspect().links());
                record.counters.insert("forwarded".to_owned(), engine.stats().forwarded);
                record
            }
            Self::Bare(bare) => {
                let links = bare.links.iter().map(|link| bare_link_record(link.as_ref()));
                EngineRecord { links: links.collect(), ..EngineRecord::default() }
            }
        };
        let engine = EngineRecord { role: "router".to_owned(), ..engine };
        let notes = engine.remarks().into_iter().filter(|remark| !said.contains(remark)).collect();
        RouterReport { engine, notes }
    }
}

/// Moves frames from either of two links to the other, as they are. Every router over these links
/// does at least this.
struct Bare {
    links: [Box<dyn Link>; 2],
    /// Packets that came from each link and are not yet sent on.
    batches: [PacketBatch; 2],
    pool: Pool,
    clock: Clock,
    /// Time that it looks for packets before it sleeps: the longest time that an engine does.
    busy_poll: Duration,
}

impl Bare {
    fn new(links: [Box<dyn Link>; 2], pool: Pool, like: &EngineConfig) -> Self {
        let batches = [PacketBatch::new(), PacketBatch::new()];
        Self { links, batches, pool, clock: Clock::new(), busy_poll: like.busy_poll }
    }

    fn run(&mut self, stopping: &AtomicBool) -> io::Result<()> {
        let mut last_moved = self.clock.now();
        while !stopping.load(Ordering::Relaxed) {
            let now = self.clock.now();
            if self.turn(now).map_err(io::Error::other)? {
                last_moved = now;
            } else if now.saturating_duration_since(last_moved) >= self.busy_poll {
                self.sleep(now)?;
                last_moved = self.clock.now();
            }
        }
        Ok(())
    }

    /// A batch each way. Whether anything has come or gone.
    fn turn(&mut self, now: Instant) -> Result<bool, LinkError> {
        if self.pool.growth_wanted() {
            let _ = self.pool.grow();
        }
        let Self { links: [one, other], batches: [forth, back], pool, .. } = self;
        let there = carry(one.as_mut(), other.as_mut(), forth, now, pool)?;
        Ok(there | carry(other.as_mut(), one.as_mut(), back, now, pool)?)
    }

    fn sleep(&mut self, now: Instant) -> io::Result<()> {
        let Self { links: [one, other], batches: [forth, back], pool, .. } = self;
        impair::sleep(
            [(one, !forth.is_empty()), (other, !back.is_empty())],
            pool,
            (now, SLEEP),
            None,
        )
    }
}

/// Receives a batch when the one before is sent, and sends what it can of it. Packets that cannot
/// be sent now wait, and the ring behind them fills. Returns true when packets came or went.
fn carry(
    from: &mut dyn Link,
    to: &mut dyn Link,
    batch: &mut PacketBatch,
    now: Instant,
    pool: &Pool,
) -> Result<bool, LinkError> {
    let came = if batch.is_empty() { from.receive(now, pool, batch)? } else { 0 };
    let went = if batch.is_empty() { 0 } else { to.transmit(now, pool, batch)? };
    Ok(came + went > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream::link::{PairConfig, pair};
    use millstream::packet::Packet;

    #[test]
    fn a_bare_loop_moves_frames_as_they_are_either_way() {
        let pool = stack::pool().unwrap();
        let (mut near, one) = pair(PairConfig::default()).unwrap();
        let (other, mut far) = pair(PairConfig::default()).unwrap();
        let config = EngineConfig::new(pool.clone());
        let links: [Box<dyn Link>; 2] = [Box::new(one), Box::new(other)];
        let mut bare = Bare::new(links, pool.clone(), &config);
        let now = bare.clock.now();
        assert!(!bare.turn(now).unwrap());
        let mut batch = PacketBatch::new();
        for (frame, forth) in [([1; 60], true), ([2; 60], false)] {
            batch.push(Packet::from_slice(&pool, 64, &frame).unwrap()).ok().unwrap();
            let (from, to) = if forth { (&mut near, &mut far) } else { (&mut far, &mut near) };
            from.transmit(now, &pool, &mut batch).unwrap();
            assert!(bare.turn(now).unwrap());
            assert_eq!(to.receive(now, &pool, &mut batch).unwrap(), 1);
            let mut came = [0; 60];
            batch.pop().unwrap().copy_to(0, &mut came);
            assert_eq!(came, frame);
        }
        let records = bare.links.iter().map(|link| bare_link_record(link.as_ref()));
        assert!(records.into_iter().all(|link| link.counters["rx_packets"] == 1));
    }
}
