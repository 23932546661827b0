//! A CLOG. A historical fault, on purpose, for the laboratory (`millstream clog`). Compiled under
//! the feature `clogs` alone.
//!
//! Tables that are given one [`SharedLock`] look their routes up as the kernels of the time did
//! (FreeBSD: `rtalloc`, then `RTFREE`): under one lock, with a count of the references to what was
//! found. Answers are the same; every core waits for every other. Without one, a look-up writes
//! nothing that is shared.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The lock that look-ups of all tables that share it wait for.
#[derive(Debug, Default)]
pub struct SharedLock {
    lock: Mutex<()>,
    references: AtomicUsize,
}

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of times that the calling thread has taken such a lock.
pub fn locks_taken() -> u64 {
    TAKEN.get()
}

impl SharedLock {
    /// Looks up under the lock and counts a reference to what was found; takes the lock again to
    /// give the reference up.
    pub(crate) fn around<R>(&self, look: impl FnOnce() -> R) -> R {
        let found = self.locked(|| {
            let found = look();
            self.references.fetch_add(1, Ordering::SeqCst);
            found
        });
        self.locked(|| self.references.fetch_sub(1, Ordering::SeqCst));
        found
    }

    fn locked<T>(&self, call: impl FnOnce() -> T) -> T {
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        TAKEN.set(TAKEN.get() + 1);
        let result = call();
        drop(held);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkId, Prefix, Route, RouteTable};
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    #[test]
    fn a_shared_lock_is_taken_twice_for_each_look_up_and_answers_the_same() {
        let lock = Arc::new(SharedLock::default());
        let table = || {
            let mut table = RouteTable::new();
            let net = Prefix { addr: Ipv4Addr::new(10, 0, 0, 0).into(), len: 8 };
            table.insert(net, Route::on_link(LinkId(3))).unwrap();
            table
        };
        let (cured, clogged) = (table(), table());
        clogged.look_up_under(&lock);
        let (cured, clogged) = (cured.reader(), clogged.reader());
        let addresses = (0..100).map(|host| Ipv4Addr::new(10 + host % 2, 0, 0, host).into());
        let mut locks = [0; 2];
        for address in addresses {
            let before = locks_taken();
            let found = cured.lookup(address);
            let between = locks_taken();
            assert_eq!(clogged.lookup(address), found, "{address}");
            locks = [locks[0] + between - before, locks[1] + locks_taken() - between];
        }
        assert_eq!(locks, [0, 200]);
        assert_eq!(lock.references.load(Ordering::SeqCst), 0);
    }
}
