//! A path with faults that a thread of this process keeps up: for the runs of an experiment.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream::clock::Clock;
use millstream::link::{Faults, Link};
use millstream_record::error::Error;

use super::{Bridge, Way};

/// The thread that forwards between two links. Dropping it ends the thread, and with it the
/// devices.
pub struct Forwarder {
    stopping: Arc<AtomicBool>,
    /// Closing it wakes the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<Result<(Way, Way), Error>>>,
}

impl Forwarder {
    /// Starts to forward, with the same faults each way.
    ///
    /// # Errors
    /// When there is no memory for packets, or no thread.
    pub fn start<A, B>(a: A, b: B, seed: u64, faults: Faults) -> Result<Self, Error>
    where
        A: Link + Send + 'static,
        B: Link + Send + 'static,
    {
        let pool = super::pool()?;
        let (wake, woken) = UnixStream::pair().map_err(Error::host("make a pair of sockets"))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let seen = stopping.clone();
        let body = move || {
            let mut bridge = Bridge::new(a, b, pool, seed, faults, faults);
            forward(&mut bridge, &seen, &woken)?;
            Ok(bridge.ways())
        };
        let thread = thread::Builder::new()
            .name("ms-path".to_owned())
            .spawn(body)
            .map_err(Error::host("start a thread"))?;
        Ok(Self { stopping, wake: Some(wake), thread: Some(thread) })
    }

    /// Ends the path and returns the counters of the way forth and of the way back.
    ///
    /// # Errors
    /// The error that ended the path before.
    pub fn stop(mut self) -> Result<(Way, Way), Error> {
        self.end().unwrap_or_else(|| Err(Error::Worker("the path has ended twice".to_owned())))
    }

    fn end(&mut self) -> Option<Result<(Way, Way), Error>> {
        self.stopping.store(true, Ordering::Release);
        drop(self.wake.take());
        let panicked = || Err(Error::Worker("the thread of the path panicked".to_owned()));
        self.thread.take().map(|thread| thread.join().unwrap_or_else(|_| panicked()))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn forward<A: Link, B: Link>(
    bridge: &mut Bridge<A, B>,
    stopping: &AtomicBool,
    woken: &UnixStream,
) -> Result<(), Error> {
    let clock = Clock::new();
    while !stopping.load(Ordering::Acquire) {
        if !bridge.turn(clock.now())? {
            bridge.sleep(clock.now(), Duration::from_secs(1), woken.as_raw_fd())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream::link::{PairConfig, pair};
    use millstream::packet::{Packet, PacketBatch, Pool, PoolConfig};

    #[test]
    fn the_thread_forwards_until_it_is_stopped() {
        let pool = Pool::new(PoolConfig::fixed(64)).unwrap();
        let (mut near, a) = pair(PairConfig::default()).unwrap();
        let (b, mut far) = pair(PairConfig::default()).unwrap();
        let delay = Duration::from_millis(2);
        let forwarder = Forwarder::start(a, b, 7, Faults { delay, ..Faults::default() }).unwrap();
        let clock = Clock::new();
        let mut batch = PacketBatch::new();
        batch.push(Packet::from_slice(&pool, 64, &[1; 100]).unwrap()).ok().unwrap();
        near.transmit(clock.now(), &pool, &mut batch).unwrap();
        let sent = clock.now();
        while far.receive(clock.now(), &pool, &mut batch).unwrap() == 0 {
            assert!(clock.now() < sent + Duration::from_secs(20), "nothing came");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(clock.now() >= sent + delay);
        let (forth, back) = forwarder.stop().unwrap();
        assert_eq!((forth.faults.entered, forth.passed_packets), (1, 1));
        assert_eq!(back, Way::default());
    }
}
