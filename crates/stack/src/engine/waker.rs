//! Waking an engine once, and only when it sleeps.
//!
//! ```text
//!             engine                              others
//!   writes    asleep: true before it sleeps,      rung: true; then asleep: false, by the one
//!             false after; rung: false            that wakes it (compare and exchange)
//!   reads     announcements of others, and        asleep, after announcing
//!             rung, after writing asleep
//! ```
//! All of it in the order of sequentially consistent operations: either the engine sees the
//! announcement before it sleeps, or the announcer sees that it sleeps. The loom tests at the end
//! try every order of events with one waking thread, and those of up to five preemptions with two
//! (`make loom`).

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_link::event::{Event, LateEvent};

use crate::stats::WakeStats;

/// A full barrier: of two threads that each write, pass it, and then read what the other writes, at
/// least one sees the other's write. Each call follows an atomic exchange or addition, which the
/// x86 does in one order with everything before and after: there the compiler alone is told.
#[inline]
fn in_one_order() {
    #[cfg(all(loom, test))]
    loom::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(all(not(all(loom, test)), target_arch = "x86_64"))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(all(not(all(loom, test)), not(target_arch = "x86_64")))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// State that the engine and those who wake it share; see the module text.
pub(super) struct Bell<E> {
    event: E,
    asleep: AtomicBool,
    /// Another thread rang while the engine did not sleep: the next sleep is not begun.
    rung: AtomicBool,
    /// Counted by waking threads, and by the engine.
    edges: AtomicU64,
    wakes: AtomicU64,
    sleeps: AtomicU64,
}

impl<E: Event> Bell<E> {
    /// Begins as of an engine that is awake.
    pub fn new(event: E) -> Self {
        Self {
            event,
            asleep: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            edges: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
        }
    }

    /// Returns the event to sleep on.
    pub fn event(&self) -> &E {
        &self.event
    }

    /// The others' part, after they have announced their work.
    fn ring(&self) {
        // In one order with all before and after (see there), not for the count's sake.
        self.edges.fetch_add(1, Ordering::SeqCst);
        in_one_order();
        if !self.rung.load(Ordering::SeqCst) {
            self.rung.store(true, Ordering::SeqCst);
        }
        in_one_order();
        if self.asleep.load(Ordering::SeqCst) && self.ends_sleep() {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.event.signal();
        }
    }

    /// Returns true if it sleeps and nobody else wakes it. A caller that comes too late writes
    /// nothing.
    fn ends_sleep(&self) -> bool {
        self.asleep.compare_exchange(true, false, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The engine is about to sleep. Returns false when another thread has rung: it must not sleep
    /// then. It looks for announcements after this, and whether it sleeps or not,
    /// [`end`](Self::end) follows.
    pub fn announce(&self) -> bool {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.asleep.store(true, Ordering::SeqCst);
        in_one_order();
        !self.rung.load(Ordering::SeqCst)
    }

    /// The engine is awake; `rung` if the event woke it, or [`announce`](Self::announce) returned
    /// false. Returns true if another thread has rung. The engine looks for announcements after
    /// this.
    pub fn end(&self, rung: bool) -> bool {
        // A ring may still be on its way when it is not seen here; it then ends the next sleep at
        // once.
        let woken = !self.asleep.swap(false, Ordering::SeqCst) || rung;
        if woken {
            self.rung.store(false, Ordering::SeqCst);
            self.event.clear();
        }
        in_one_order();
        woken
    }

    /// Takes the mark that another thread has rung while the engine is awake. It looks for
    /// announcements after this.
    pub fn is_rung(&self) -> bool {
        let rung = self.rung.load(Ordering::SeqCst);
        if rung {
            self.rung.store(false, Ordering::SeqCst);
            in_one_order();
        }
        rung
    }

    fn stats(&self) -> WakeStats {
        WakeStats {
            edges: self.edges.load(Ordering::Relaxed),
            wakes: self.wakes.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
        }
    }
}

/// Wakes one engine from any thread.
///
/// ```
/// use millstream::{Engine, EngineConfig};
///
/// # fn main() -> std::io::Result<()> {
/// let mut engine = Engine::new(EngineConfig::default())?;
/// let waker = engine.waker();
/// let thread = std::thread::spawn(move || waker.wake());
/// while !engine.take_woken() {
///     engine.run_once(None)?;
/// }
/// # thread.join().expect("a thread");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Waker(Arc<Bell<LateEvent>>);

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

impl Waker {
    pub(super) fn of(bell: &Arc<Bell<LateEvent>>) -> Self {
        Self(Arc::clone(bell))
    }

    /// Wakes the engine if it sleeps, else keeps it from its next sleep: at most one system call
    /// per sleep, however many call.
    pub fn wake(&self) {
        self.0.ring();
    }

    /// Returns how often it was used, and how often that woke the engine.
    pub fn stats(&self) -> WakeStats {
        self.0.stats()
    }
}

#[cfg(all(loom, test))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use millstream_link::event::EventModel;

    /// The moments at which the engine of a test looks for work, besides after its sleeps.
    #[derive(Clone, Copy, PartialEq)]
    enum Looks {
        Not,
        /// For announcements, between announcing and sleeping, as the `net` placement does.
        BeforeSleep,
        /// For a ring, and only then for announcements, as a caller does that waits in the engine's
        /// thread.
        WhenRung,
    }

    const ALL: [Looks; 3] = [Looks::Not, Looks::BeforeSleep, Looks::WhenRung];

    /// `ringers` threads with one piece of work each, and an engine that takes it all.
    fn all_work_is_taken(ringers: usize, looks: Looks) {
        let bell = loom::sync::Arc::new(Bell::new(EventModel::default()));
        let work = loom::sync::Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..ringers)
            .map(|_| {
                let (bell, work) = (bell.clone(), work.clone());
                loom::thread::spawn(move || {
                    work.fetch_add(1, Ordering::SeqCst);
                    bell.ring();
                })
            })
            .collect();
        let (mut taken, mut woken) = (0, true);
        while taken < ringers {
            if woken || looks != Looks::WhenRung {
                taken += work.swap(0, Ordering::SeqCst);
            }
            if taken == ringers {
                break;
            }
            let mut rung = !bell.announce();
            let sees = looks == Looks::BeforeSleep && work.load(Ordering::SeqCst) > 0;
            if !rung && !sees {
                bell.event().sleep();
                rung = true;
            }
            woken = bell.end(rung) | (looks == Looks::WhenRung && bell.is_rung());
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let stats = bell.stats();
        assert!(stats.wakes <= stats.sleeps && stats.wakes <= stats.edges, "{stats:?}");
        assert_eq!(stats.edges, ringers as u64);
    }

    #[test]
    fn no_wake_up_of_one_is_lost() {
        for looks in ALL {
            loom::model(move || all_work_is_taken(1, looks));
        }
    }

    #[test]
    fn no_wake_up_of_two_is_lost() {
        for looks in ALL {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(5);
            model.check(move || all_work_is_taken(2, looks));
        }
    }
}
