//! Waking the other thread once, and only when it sleeps.
//!
//! Every end of a [`pair`](crate::pair()) owns one doorbell, which only its peer rings, and every
//! queue of a [`Shared`](crate::Shared) device one, which the other queues ring.
//!
//! ```text
//!            sleeper (owner of the bell)            ringer (one of its peers)
//!  writes    armed: reasons (arm), 0 (disarm)       armed: 0 (swap, before it rings)
//!  reads     the queue, after arming                armed, after changing the queue
//! ```
//!
//! No wake-up is lost. The sleeper does: set `armed`, fence, look at the queue, sleep if it shows
//! nothing. The ringer does: change the queue, fence, load `armed`. Both fences are sequentially
//! consistent, so one of them comes first in their single order. If the sleeper's is first, the
//! ringer's load sees `armed` and rings. If the ringer's is first, the sleeper's look sees the
//! changed queue and does not sleep.
//!
//! The ringer's fence need not follow every change: it must come between its last change and its
//! own sleep. Until then the ringer looks at `armed` again and again, with plain loads, and sees it
//! at last.
//!
//! The loom tests at the end try every order of events (`RUSTFLAGS="--cfg loom" cargo test
//! --release -p millstream-link --lib doorbell`).
//!
//! No wake-up is doubled: whoever swaps a set `armed` to 0 owns the announcement. The ringer that
//! took it rings exactly once; the sleeper that finds it taken knows that one ring is owed, and
//! drains it when it lands, however late.

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU8, Ordering, fence};
#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicU8, Ordering, fence};

use crate::event::Event;

/// Reason to wake: packets arrived.
pub(crate) const FRAMES: u8 = 1;
/// Reason to wake: a full ring has room again.
pub(crate) const ROOM: u8 = 2;

/// The part both sides share.
#[derive(Debug)]
pub(crate) struct Doorbell<E> {
    armed: AtomicU8,
    event: E,
}

impl<E: Event> Doorbell<E> {
    /// A bell nobody listens to yet.
    pub fn new(event: E) -> Self {
        Self { armed: AtomicU8::new(0), event }
    }

    /// Returns the event that the sleeper sleeps on.
    pub fn event(&self) -> &E {
        &self.event
    }

    /// The ringer's half: call after changing the queue and (at once, or at last before the
    /// ringer's own sleep) a sequentially consistent fence. Rings, and returns true, when the
    /// sleeper has announced that it sleeps for `reason`.
    #[inline]
    pub fn notify(&self, reason: u8) -> bool {
        if self.armed.load(Ordering::Relaxed) & reason == 0 {
            return false;
        }
        self.ring_for_announced()
    }

    #[cold]
    fn ring_for_announced(&self) -> bool {
        // Between load and swap the sleeper may have announced itself anew for another reason: any
        // announcement taken must be rung.
        if self.armed.swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        self.event.signal();
        true
    }
}

/// The sleeper's own account of its bell. Lives beside the shared part, on the sleeper's side.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    announced: bool,
    /// Rings taken on but not yet drained.
    owed: u64,
}

impl Sleeper {
    /// Announces sleep for `reasons`. The caller looks at its queue after this and, should it show
    /// something, calls [`wake`](Self::wake) instead of sleeping.
    pub fn announce<E: Event>(&mut self, bell: &Doorbell<E>, reasons: u8) {
        self.wake(bell);
        // A swap, as everywhere: each sees the one before it, and the path to sleep is not a hot
        // one.
        bell.armed.swap(reasons, Ordering::AcqRel);
        self.announced = true;
        fence(Ordering::SeqCst);
    }

    /// Ends the announcement, and drains the ring that answered it if it has landed. Free when
    /// there is neither.
    #[inline]
    pub fn wake<E: Event>(&mut self, bell: &Doorbell<E>) {
        if self.announced || self.owed > 0 {
            self.wake_up(bell);
        }
    }

    #[cold]
    fn wake_up<E: Event>(&mut self, bell: &Doorbell<E>) {
        if self.announced {
            self.announced = false;
            if bell.armed.swap(0, Ordering::AcqRel) == 0 {
                self.owed += 1;
            }
        }
        if self.owed > 0 {
            self.owed -= bell.event.clear().min(self.owed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::EventFd;

    #[test]
    fn rings_only_when_announced_and_only_once() {
        let bell = Doorbell::new(EventFd::new().unwrap());
        let mut sleeper = Sleeper::default();
        assert!(!bell.notify(FRAMES));
        sleeper.announce(&bell, FRAMES);
        assert!(!bell.notify(ROOM));
        assert!(bell.notify(FRAMES));
        assert!(!bell.notify(FRAMES));
        sleeper.wake(&bell);
        assert_eq!(bell.event().clear(), 0);
        assert_eq!(sleeper.owed, 0);
    }

    #[test]
    fn an_announcement_taken_back_leaves_no_ring() {
        let bell = Doorbell::new(EventFd::new().unwrap());
        let mut sleeper = Sleeper::default();
        sleeper.announce(&bell, FRAMES | ROOM);
        sleeper.wake(&bell);
        assert!(!bell.notify(FRAMES));
        assert_eq!(bell.event().clear(), 0);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::event::EventModel;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    #[test]
    fn no_wake_up_is_lost_and_none_is_left_over() {
        loom::model(|| {
            let bell = Arc::new(Doorbell::new(EventModel::default()));
            let queue = Arc::new(AtomicUsize::new(0));
            let ringer = {
                let (bell, queue) = (Arc::clone(&bell), Arc::clone(&queue));
                loom::thread::spawn(move || {
                    for item in 1..=2 {
                        queue.store(item, Ordering::Release);
                        fence(Ordering::SeqCst);
                        bell.notify(FRAMES);
                    }
                })
            };
            let mut sleeper = Sleeper::default();
            let mut seen = 0;
            while seen < 2 {
                sleeper.announce(&bell, FRAMES);
                if queue.load(Ordering::Acquire) == seen {
                    bell.event().sleep();
                }
                sleeper.wake(&bell);
                seen = queue.load(Ordering::Acquire);
            }
            ringer.join().unwrap();
            sleeper.wake(&bell);
            assert_eq!(sleeper.owed, 0);
            assert_eq!(bell.event().clear(), 0);
        });
    }

    /// Several may ring one bell: each its own queue.
    #[test]
    fn two_ringers_wake_one_sleeper() {
        // Every order of events with up to three preemptions.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let bell = Arc::new(Doorbell::new(EventModel::default()));
            let queues = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let ringers = [0, 1].map(|at| {
                let (bell, queues) = (Arc::clone(&bell), Arc::clone(&queues));
                loom::thread::spawn(move || {
                    queues[at].store(1, Ordering::Release);
                    fence(Ordering::SeqCst);
                    bell.notify(FRAMES);
                })
            });
            let mut sleeper = Sleeper::default();
            let all = || queues.iter().map(|queue| queue.load(Ordering::Acquire)).sum::<usize>();
            let mut seen = 0;
            while seen < 2 {
                sleeper.announce(&bell, FRAMES);
                if all() == seen {
                    bell.event().sleep();
                }
                sleeper.wake(&bell);
                seen = all();
            }
            for ringer in ringers {
                ringer.join().unwrap();
            }
            sleeper.wake(&bell);
            assert_eq!((sleeper.owed, bell.event().clear()), (0, 0));
        });
    }

    /// A producer waits for room; the consumer makes it without a fence, and looks again after the
    /// fence with which it announces its own sleep.
    #[test]
    fn room_made_without_a_fence_is_told_before_sleeping() {
        loom::model(|| {
            let (producers, consumers) = (
                Arc::new(Doorbell::new(EventModel::default())),
                Doorbell::new(EventModel::default()),
            );
            let head = Arc::new(AtomicUsize::new(0));
            let producer = {
                let (bell, head) = (Arc::clone(&producers), Arc::clone(&head));
                loom::thread::spawn(move || {
                    let mut sleeper = Sleeper::default();
                    sleeper.announce(&bell, ROOM);
                    if head.load(Ordering::Acquire) == 0 {
                        bell.event().sleep();
                    }
                    sleeper.wake(&bell);
                    sleeper
                })
            };
            head.store(1, Ordering::Release);
            producers.notify(ROOM);
            Sleeper::default().announce(&consumers, FRAMES);
            producers.notify(ROOM);
            let mut sleeper = producer.join().unwrap();
            sleeper.wake(&producers);
            assert_eq!((sleeper.owed, producers.event().clear()), (0, 0));
        });
    }
}
