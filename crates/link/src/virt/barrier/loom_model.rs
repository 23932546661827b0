//! A model of `membarrier(2)` for loom, and a sender without fences beside a receiver that sleeps.
//!
//! The kernel interrupts each thread that runs, has it pass a full fence, and returns to the caller
//! when all have. Here the sender may be interrupted at every step: it looks whether the kernel has
//! asked, by a load that may see old values, so that loom tries every step for it; and the caller
//! waits until it was done, or the sender has ended.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use super::Barrier;
use crate::event::{Event, EventModel};
use crate::virt::doorbell::{Doorbell, FRAMES, Sleeper};

loom::lazy_static! {
    static ref KERNEL: Kernel = Kernel::default();
}

#[derive(Default)]
struct Kernel {
    /// Interrupts asked for, by the one who calls.
    asked: AtomicUsize,
    /// The last of them that was taken, by the one interrupted.
    taken: AtomicUsize,
    /// There is nobody to interrupt.
    has_ended: AtomicBool,
}

/// A point at which the kernel may interrupt the thread that does not call.
pub(super) fn may_be_interrupted() {
    let asked = KERNEL.asked.load(Ordering::Relaxed);
    if asked != KERNEL.taken.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
        KERNEL.taken.store(asked, Ordering::Relaxed);
    }
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, by one thread of two.
pub(super) fn membarrier() {
    let number = KERNEL.asked.load(Ordering::Relaxed) + 1;
    KERNEL.asked.store(number, Ordering::Relaxed);
    while KERNEL.taken.load(Ordering::Relaxed) != number
        && !KERNEL.has_ended.load(Ordering::Acquire)
    {
        loom::thread::yield_now();
    }
    fence(Ordering::SeqCst);
}

/// The steps of the receiver before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// The steps of an end of a pair.
    Whole,
    /// Only its own fence comes between the announcement and the look.
    WithoutTheKernel,
    /// It does not look again after the announcement.
    WithoutALook,
    /// It announces itself after the fences.
    Late,
}

/// Sends `items` beside a receiver, with the steps of [`PairEnd`](crate::PairEnd); false if the
/// receiver went to sleep for one and nobody rang.
fn is_heard(items: usize, receiver: Receiver) -> bool {
    let bell = Arc::new(Doorbell::new(EventModel::default()));
    let queue = Arc::new(AtomicUsize::new(0));
    let sender = {
        let (bell, queue) = (Arc::clone(&bell), Arc::clone(&queue));
        loom::thread::spawn(move || {
            for item in 1..=items {
                may_be_interrupted();
                queue.store(item, Ordering::Release);
                Barrier::Process.light();
                bell.notify(FRAMES);
                may_be_interrupted();
            }
            KERNEL.has_ended.store(true, Ordering::Release);
        })
    };
    let mut sleeper = Sleeper::default();
    let mut seen = 0;
    let mut sleeps = false;
    while seen < items && !sleeps {
        if receiver == Receiver::Late {
            assert!(Barrier::Process.heavy());
        }
        sleeper.announce(&bell, FRAMES);
        if !matches!(receiver, Receiver::WithoutTheKernel | Receiver::Late) {
            assert!(Barrier::Process.heavy());
        }
        sleeps = receiver == Receiver::WithoutALook || queue.load(Ordering::Acquire) == seen;
        if !sleeps {
            sleeper.wake(&bell);
            seen = queue.load(Ordering::Acquire);
        }
    }
    // By then the other thread has sent the packet that this one sleeps for.
    sender.join().unwrap();
    !sleeps || bell.event().clear() != 0
}

/// Returns whether all orders of events with up to `preemptions` come to the same good end.
fn is_always_heard(items: usize, receiver: Receiver, preemptions: Option<usize>) -> bool {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    let good = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let all = std::sync::Arc::clone(&good);
    model.check(move || {
        if !is_heard(items, receiver) {
            all.store(false, Ordering::Relaxed);
        }
    });
    good.load(Ordering::Relaxed)
}

#[test]
fn a_sender_without_fences_wakes_a_receiver() {
    assert!(is_always_heard(1, Receiver::Whole, None));
    assert!(is_always_heard(2, Receiver::Whole, Some(3)));
}

/// The model finds what is missing where a step is left out.
#[test]
fn no_step_can_be_left_out() {
    for receiver in [Receiver::WithoutTheKernel, Receiver::WithoutALook, Receiver::Late] {
        assert!(!is_always_heard(1, receiver, None), "{receiver:?}");
    }
}
