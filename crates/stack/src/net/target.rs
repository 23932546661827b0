//! Where a poller hears of news of its sockets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::ready::ReadySet;
use super::waiter::Waiter;

/// The sockets of a poller that have news, by index, and the thread that waits for some.
pub struct Target {
    pub set: ReadySet,
    pub waiter: Waiter,
    /// A wait is to end without news.
    pub is_woken: AtomicBool,
}

/// Where one socket's news go.
pub struct PollTarget {
    pub target: Arc<Target>,
    pub index: u32,
}

impl PollTarget {
    pub fn tell(&self) {
        if self.target.set.add(self.index) {
            self.target.waiter.ring();
        }
    }
}
