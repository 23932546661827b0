//! The same while both CPUs are at work: a few round trips now and then, before whatever else wants
//! to run there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millstream_link::sys::{pin_current_thread, run_before_others};

use super::Line;

/// Round trips whose mean is one value: so many that looking at the clock does not show.
const TRIPS: u64 = 8;

/// Values whose median is a reading, so that an interrupt in one of them does not show; fewer where
/// the time is over.
const VALUES: u64 = 8;

/// So many at least: the median of three leaves one out.
const LEAST_VALUES: usize = 3;

/// Otherwise no value is begun later than this after the first.
const TIME: Duration = Duration::from_micros(12);

/// Longest that either thread keeps its CPU for a reading, most of it waiting for the other to get
/// its own.
const HOLD_LIMIT: Duration = Duration::from_micros(500);

/// Until a reading must have come; threads of a higher priority may hold the CPUs.
const PATIENCE: Duration = Duration::from_millis(20);

/// A round's numbers begin at so many times its own number; this is the last of them: its end has
/// given up, or is done.
const ROUND: u64 = 1024;

const BUSY: &str = "the two CPUs are busy with others";

/// Two threads, each on a CPU of its own and before all of ordinary priority there, that sleep but
/// for [`DistanceWatch::read`]. Both end, and are waited for, when it is dropped.
#[derive(Debug)]
pub struct DistanceWatch {
    shared: Arc<Shared>,
    /// The way by which rounds are asked for; `None` ends both.
    rounds: Option<Sender<u64>>,
    readings: Receiver<Option<Duration>>,
    round: u64,
    /// The last reading has not come yet.
    due: bool,
    threads: Vec<JoinHandle<()>>,
}

/// `there` is written by who asks, `back` by who answers; both only rise.
#[derive(Debug, Default)]
struct Shared {
    there: Line,
    back: Line,
    held_ns: AtomicU64,
}

impl DistanceWatch {
    /// Starts both threads, which go to sleep.
    ///
    /// # Errors
    /// `InvalidInput` for a CPU and itself, the kernel's error for a CPU that this thread may not
    /// use, and where it may not run before others (`PermissionDenied`).
    pub fn start(one: usize, other: usize) -> io::Result<Self> {
        if one == other {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a distance needs two CPUs"));
        }
        let shared = Arc::new(Shared::default());
        let (rounds, asked) = channel::<u64>();
        let (wakes, woken) = channel::<u64>();
        let (tell, readings) = channel();
        let mut watch = Self {
            shared,
            rounds: Some(rounds),
            readings,
            round: 0,
            due: false,
            threads: Vec::new(),
        };
        let shared = watch.shared.clone();
        // It ends when who asks has: the other half of `wakes` is gone then.
        watch.begin("distance-back", other, move || {
            woken.into_iter().for_each(|round| shared.timed(|| shared.answer(round)));
        })?;
        let shared = watch.shared.clone();
        watch.begin("distance-there", one, move || {
            for round in asked {
                // Woken from this CPU: had the caller woken both, it could lose its own CPU between
                // the two.
                let reading =
                    shared.timed(|| wakes.send(round).ok().and_then(|()| shared.ask(round)));
                if tell.send(reading).is_err() {
                    return;
                }
            }
        })?;
        Ok(watch)
    }

    /// A thread that has its place before this returns.
    fn begin(
        &mut self,
        name: &str,
        cpu: usize,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let (tell, placed) = channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let result = pin_current_thread(cpu).and_then(|()| run_before_others());
            let ready = result.is_ok();
            let _ = tell.send(result);
            if ready {
                body();
            }
        })?;
        self.threads.push(thread);
        placed.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has gone")))
    }

    /// The distance now; some 30 µs of both CPUs, and half a millisecond at the most.
    ///
    /// # Errors
    /// `TimedOut` when the two threads did not get their CPUs together, as the host of a virtual
    /// machine or threads of a higher priority had them. The next reading may come.
    pub fn read(&mut self) -> io::Result<Duration> {
        let missed = |what| io::Error::new(io::ErrorKind::TimedOut, what);
        // One that came late is of another time.
        self.due &= self.readings.try_recv().is_err();
        if self.due {
            return Err(missed(BUSY));
        }
        self.round += 1;
        let gone = || io::Error::other("the thread has gone");
        self.rounds.as_ref().and_then(|rounds| rounds.send(self.round).ok()).ok_or_else(gone)?;
        let reading = self.readings.recv_timeout(PATIENCE);
        self.due = reading == Err(RecvTimeoutError::Timeout);
        match reading {
            Ok(reading) => {
                reading.ok_or_else(|| missed("the two CPUs were not to be had together"))
            }
            Err(RecvTimeoutError::Timeout) => Err(missed(BUSY)),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    /// Returns what both threads have had of their CPUs, until now.
    pub fn held(&self) -> Duration {
        Duration::from_nanos(self.shared.held_ns.load(Ordering::Relaxed))
    }
}

impl Drop for DistanceWatch {
    fn drop(&mut self) {
        self.rounds = None;
        // The first waits for what the second has.
        for thread in self.threads.drain(..).rev() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn timed<T>(&self, body: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = body();
        let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.held_ns.fetch_add(ns, Ordering::Relaxed);
        result
    }

    /// Asks until it has enough; `None` when the other end is not there in time, or leaves.
    fn ask(&self, round: u64) -> Option<Duration> {
        let first = round * ROUND;
        let reading = self.values(first, Instant::now() + HOLD_LIMIT);
        self.there.0.store(first + ROUND - 1, Ordering::Release);
        let mut values = reading?;
        values.sort_unstable();
        Some(values[values.len() / 2])
    }

    /// Enough values, or `None`.
    fn values(&self, first: u64, deadline: Instant) -> Option<Vec<Duration>> {
        let mut trip = first;
        let mut there_and_back = || {
            trip += 1;
            self.there.0.store(trip, Ordering::Release);
            self.back.reaches(trip, deadline).filter(|&seen| seen == trip)
        };
        there_and_back()?;
        let mut values = Vec::with_capacity(VALUES as usize);
        let end = Instant::now() + TIME;
        while values.len() < VALUES as usize {
            let begin = Instant::now();
            if begin > end && values.len() >= LEAST_VALUES {
                break;
            }
            for _ in 0..TRIPS {
                there_and_back()?;
            }
            values.push(begin.elapsed() / TRIPS as u32);
        }
        Some(values)
    }

    /// Answers until who asks has enough, or is not there in time.
    fn answer(&self, round: u64) {
        let (mut next, last) = (round * ROUND + 1, round * ROUND + ROUND - 1);
        let deadline = Instant::now() + HOLD_LIMIT;
        while let Some(seen) = self.there.reaches(next, deadline) {
            if seen >= last {
                return;
            }
            self.back.0.store(seen, Ordering::Release);
            next = seen + 1;
        }
        self.back.0.store(last, Ordering::Release);
    }
}

const _: () = assert!(TRIPS * VALUES + 1 < ROUND - 1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Where this process may run before others on both CPUs.
    fn watch() -> Option<DistanceWatch> {
        DistanceWatch::start(0, 1).ok()
    }

    #[test]
    fn what_cannot_be_watched_is_refused_and_leaves_no_thread() {
        assert_eq!(DistanceWatch::start(0, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(DistanceWatch::start(0, 100_000).is_err());
        assert!(DistanceWatch::start(100_000, 0).is_err());
    }

    #[test]
    fn an_end_without_the_other_gives_up_and_a_late_other_leaves_at_once() {
        let shared = Shared::default();
        assert_eq!(shared.ask(1), None);
        // Had it waited, it would say that it gave up.
        shared.answer(1);
        assert_eq!(shared.back.0.load(Ordering::Relaxed), 0);
        shared.answer(2);
        assert_eq!(shared.back.0.load(Ordering::Relaxed), 3 * ROUND - 1);
        assert_eq!(shared.ask(2), None);
        assert_eq!(shared.there.0.load(Ordering::Relaxed), 3 * ROUND - 1);
    }

    /// The scheduler decides here whether they are there together: these two are ordinary threads.
    #[test]
    fn every_round_ends_whatever_became_of_the_last() {
        let shared = Shared::default();
        for round in 1..20 {
            let distance = thread::scope(|scope| {
                scope.spawn(|| shared.answer(round));
                shared.ask(round)
            });
            assert!(distance.is_none_or(|distance| distance > Duration::ZERO));
            assert_eq!(shared.there.0.load(Ordering::Relaxed), (round + 1) * ROUND - 1);
        }
    }

    #[test]
    fn two_cpus_are_read_again_and_again() {
        let Some(mut watch) = watch() else { return };
        for _ in 0..20 {
            match watch.read() {
                Ok(distance) => assert!(distance > Duration::ZERO),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
            }
        }
        assert!(watch.held() > Duration::ZERO);
        let shared = watch.shared.clone();
        drop(watch);
        assert_eq!(Arc::strong_count(&shared), 1, "both threads have gone");
    }
}
