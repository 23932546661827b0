//! What an application's socket and the engine's side of it share besides their rings.
//!
//! ```text
//!                 application's thread(s)               engine's thread
//!   tx ring       puts                                  takes
//!   rx ring       takes                                 puts
//!   state, error  read                                  written
//!   wishes        bits set                              taken (swap)
//!   tx_taken      read                                  written
//!   bulk_bytes    read                                  written
//!   rx_taken      written                               read
//!   rx_stalled    cleared (swap)                        set when the rx side is full
//!   waiters       armed, then rings and state checked   rung after rings or state changed
//! ```

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant as StdInstant;

use super::poller::PollTarget;
pub use super::waiter::Waiter;
use crate::Error;

/// The handshake is done.
pub const CONNECTED: u32 = 1;
/// Nothing will be put into the rx ring any more.
pub const READ_END: u32 = 2;
/// Nothing will be taken from the tx ring any more.
pub const WRITE_END: u32 = 4;

/// Wish: end the writing side.
pub const SHUTDOWN_WRITE: u8 = 1;
/// Wish: let go of the socket.
pub const CLOSE: u8 = 2;

/// Readiness bits for pollers.
pub const READABLE: u8 = 1;
/// See [`READABLE`].
pub const WRITABLE: u8 = 2;
/// See [`READABLE`].
pub const CLOSED: u8 = 4;

/// See the module text.
#[derive(Default)]
pub struct Shared {
    pub state: AtomicU32,
    error: OnceLock<Error>,
    pub wishes: AtomicU8,
    pub tx_taken: AtomicU64,
    /// What a block is to hold, 0 for frames; a hint.
    pub bulk_bytes: AtomicUsize,
    pub rx_taken: AtomicU64,
    pub rx_stalled: AtomicBool,
    pub reader: Waiter,
    pub writer: Waiter,
    /// Bits for the poller, since it last looked.
    pub news: AtomicU8,
    pub poller: OnceLock<PollTarget>,
}

impl Shared {
    /// The engine's side: sets state bits and wakes who waits for them.
    pub fn set_state(&self, bits: u32) {
        self.state.fetch_or(bits, Ordering::AcqRel);
        self.reader.ring();
        self.writer.ring();
        let closed = if bits & READ_END != 0 { CLOSED } else { 0 };
        self.tell_poller(READABLE | WRITABLE | closed);
    }

    /// Keeps the first error.
    pub fn set_error(&self, error: Error) {
        let _ = self.error.set(error);
    }

    pub fn error(&self) -> Option<Error> {
        self.error.get().copied()
    }

    pub fn has(&self, bit: u32) -> bool {
        self.state.load(Ordering::Acquire) & bit != 0
    }

    /// The engine's side: news for a poller, if there is one.
    pub fn tell_poller(&self, bits: u8) {
        if let Some(target) = self.poller.get() {
            self.news.fetch_or(bits, Ordering::AcqRel);
            target.tell();
        }
    }

    /// Something arrived in the rx ring.
    pub fn readable(&self) {
        self.reader.ring();
        self.tell_poller(READABLE);
    }

    /// The tx ring has room again.
    pub fn writable(&self) {
        self.writer.ring();
        self.tell_poller(WRITABLE);
    }
}

/// An answer that crosses threads once.
pub struct Reply<T> {
    value: Mutex<Option<T>>,
    waiter: Waiter,
}

impl<T> Reply<T> {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { value: Mutex::new(None), waiter: Waiter::default() })
    }

    pub fn set(&self, value: T) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        self.waiter.ring();
    }

    /// Waits for the answer; `gone` is asked whether one can still come.
    pub fn wait(&self, gone: impl Fn() -> bool) -> Option<T> {
        let take = || self.value.lock().unwrap_or_else(PoisonError::into_inner).take();
        loop {
            let mut value = None;
            let deadline = StdInstant::now() + std::time::Duration::from_millis(100);
            self.waiter.wait(Some(deadline), || {
                value = take();
                value.is_some()
            });
            if value.is_some() {
                return value;
            }
            if gone() {
                return take();
            }
        }
    }
}
