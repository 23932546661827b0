//! The lock around each look-up over minutes: one thread sends, and a second one beside it from a
//! share of the time on, each with an engine of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream::clogs::SharedLock;

use super::{CLOG, burst, sender};
use crate::clog::live::{LastPart, Living};
use crate::clog::threads::{Stop, joined, pin};
use crate::clog::two_hosts::failed;

/// The threads, and the share of the time from which the second one sends.
const THREADS: usize = 2;
const SECOND_FROM: f64 = 0.4;
/// The time between two looks at how much was done.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn live(living: &Living<'_>) -> io::Result<f64> {
    let (lock, sent, stop) = (Arc::new(SharedLock::default()), AtomicU64::new(0), Stop::default());
    let second_from = living.time.mul_f64(SECOND_FROM);
    std::thread::scope(|scope| {
        let end = stop.at_end();
        let (mut threads, mut last_part) = (Vec::new(), LastPart::of(living));
        let done = || sent.load(Ordering::Relaxed);
        while !last_part.is_over(living, done()) {
            let is_due = threads.is_empty() || last_part.now(done()) >= second_from;
            if is_due && threads.len() < THREADS {
                let (place, name) = (threads.len(), living.name(&CLOG));
                let lock = living.clogged.then_some(&lock);
                let (sent, stop) = (&sent, &stop);
                threads.push(scope.spawn(move || send(place, name, lock, sent, stop)));
                (living.say)(&format!("{} of {THREADS} threads send", threads.len()));
            }
            std::thread::sleep(LOOK);
        }
        let rate = last_part.rate(done());
        drop(end);
        threads.into_iter().try_for_each(joined)?;
        Ok(rate)
    })
}

/// Sends until it is told to stop.
fn send(
    place: usize,
    name: String,
    lock: Option<&Arc<SharedLock>>,
    sent: &AtomicU64,
    stop: &Stop,
) -> io::Result<()> {
    pin(place)?;
    let (mut engine, socket) = sender(place, Some(name))?;
    if let Some(lock) = lock {
        engine.routes().clog(lock).map_err(failed)?;
    }
    let mut number = 0;
    while !stop.is_set() {
        let before = number;
        burst(&mut engine, socket, &mut number)?;
        sent.fetch_add(u64::from(number.wrapping_sub(before)), Ordering::Relaxed);
    }
    Ok(())
}
