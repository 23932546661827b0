//! The distance between two CPUs, by what matters to two threads that hand packets to each other:
//! the time that a cache line takes there and back.

mod watch;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millstream_link::sys::pin_current_thread;

pub use watch::DistanceWatch;

/// Round trips whose mean is one reading.
const TRIPS: u64 = 256;

/// Readings; the first only warms up. The median of the others counts, so a tick or two do not
/// show.
const READINGS: u64 = 10;

/// Some milliseconds are enough; whose CPU is held by another program for longer gets an error.
const PATIENCE: Duration = Duration::from_millis(200);

/// Looks at the line between two at the clock.
const LOOKS: u32 = 4096;

/// A cache line of its own; processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// Looks until it holds `value` or more, and what it holds then; `None` when that takes too
    /// long.
    fn reaches(&self, value: u64, deadline: Instant) -> Option<u64> {
        loop {
            let mut looks = (0..LOOKS).map(|_| self.0.load(Ordering::Acquire));
            if let Some(seen) = looks.find(|&seen| seen >= value) {
                return Some(seen);
            }
            if Instant::now() > deadline {
                return None;
            }
        }
    }

    fn comes_to(&self, value: u64, deadline: Instant) -> bool {
        self.reaches(value, deadline).is_some()
    }
}

/// Time that a cache line takes from CPU `one` to CPU `other` and back, a median; both are busy for
/// some milliseconds meanwhile. Siblings of a core have some 20 to 60 ns, cores that share a cache
/// some 100, cores of different sockets 300 to 600. On a virtual machine it changes whenever the
/// host moves one of its CPUs.
///
/// # Errors
/// `InvalidInput` for a CPU and itself, the kernel's error for one that this thread may not use,
/// `TimedOut` when other programs did not let both run together within a fifth of a second.
pub fn cpu_distance(one: usize, other: usize) -> io::Result<Duration> {
    if one == other {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a distance needs two CPUs"));
    }
    let deadline = Instant::now() + PATIENCE;
    let (there, back) = (Line::default(), Line::default());
    // Threads of their own: the caller stays where it is.
    thread::scope(|scope| {
        let answers = scope.spawn(|| {
            pin_current_thread(other)?;
            let all = (1..=READINGS * TRIPS).all(|trip| {
                let came = there.comes_to(trip, deadline);
                back.0.store(trip, Ordering::Release);
                came
            });
            Ok(all)
        });
        let asks = scope.spawn(|| {
            pin_current_thread(one)?;
            Ok(readings(&there, &back, deadline))
        });
        let readings: io::Result<_> = asks.join().expect("it does not panic");
        let answered: io::Result<bool> = answers.join().expect("it does not panic");
        answered?;
        readings?.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the two CPUs are busy"))
    })
}

/// The median of all readings but the first; `None` when the other end is not there in time.
fn readings(there: &Line, back: &Line, deadline: Instant) -> Option<Duration> {
    let mut readings = Vec::with_capacity(READINGS as usize);
    for reading in 0..READINGS {
        let begin = Instant::now();
        for trip in reading * TRIPS + 1..=(reading + 1) * TRIPS {
            there.0.store(trip, Ordering::Release);
            if !back.comes_to(trip, deadline) {
                return None;
            }
        }
        readings.push(begin.elapsed() / TRIPS as u32);
    }
    let others = &mut readings[1..];
    others.sort_unstable();
    Some(others[others.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_has_no_distance_to_itself_nor_to_one_that_is_not_there() {
        assert_eq!(cpu_distance(0, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(cpu_distance(0, 100_000).is_err());
        assert!(cpu_distance(100_000, 0).is_err());
    }

    #[test]
    fn a_line_whose_other_end_never_answers_is_given_up() {
        let (there, back) = (Line::default(), Line::default());
        assert_eq!(readings(&there, &back, Instant::now()), None);
        assert_eq!(there.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn two_cpus_of_this_machine_have_a_distance_and_the_caller_stays_where_it_was() {
        if thread::available_parallelism().unwrap().get() < 2 {
            return;
        }
        let before = thread::available_parallelism().unwrap();
        match cpu_distance(0, 1) {
            Ok(distance) => assert!(distance > Duration::ZERO),
            // Other tests have the CPUs, or they are not ours to use.
            Err(error) => {
                assert!(error.raw_os_error().is_some() || error.kind() == io::ErrorKind::TimedOut);
            }
        }
        assert_eq!(thread::available_parallelism().unwrap(), before);
    }
}
