//! State that an application's socket and the engine's side of it share besides their rings.
//!
//! ```text
//!                 application's thread(s)               engine's thread
//!   tx ring       puts                                  takes
//!   rx ring       takes                                 puts
//!   state         read; its ends, want of frames set    bits set, cleared
//!   error         read                                  written
//!   passing error taken, by the state's bit             written
//!   wishes        bits set                              taken (swap)
//!   bulk_bytes    read                                  written
//!   rx_stalled    cleared (swap)                        set when the rx side is full
//!   tx_stalled    set when the tx side is full          cleared (swap)
//!   waiters       armed, then rings and state checked   rung after rings or state changed
//! ```

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::target::{PollTarget, Target};
use super::waiter::Waiter;
use crate::Error;

/// The handshake is done.
pub const CONNECTED: u32 = 1;
/// Nothing will be put into the rx ring any more.
pub const READ_END: u32 = 2;
/// Nothing will be taken from the tx ring any more, or the application has ended its writing side,
/// which it sets itself: calls that take the writer's lock from then on put nothing in.
pub const WRITE_END: u32 = 4;
/// There is an error to be told once.
pub const PASSING_ERROR: u32 = 8;
/// The application has ended its reading side: no read waits any more. It sets this itself.
pub const READ_SHUT: u32 = 16;

/// Beside [`READ_END`]: the peer has ended its side in order, and no error that came later is a
/// matter of reading.
pub const ORDERLY_END: u32 = 32;

/// No link leads to the peer any more: a call that reads and has to wait is told, once. Set behind
/// all that came by one.
pub const CUT_READ: u32 = 64;
/// The same for one that writes.
pub const CUT_WRITE: u32 = 128;

/// A write has found no frame to copy into. The application sets this, with the wish for one; the
/// engine clears it.
pub const STARVED: u32 = 256;
/// The application has it: it was accepted, or asked for.
pub const TAKEN: u32 = 512;
/// It is over, in both directions, or the engine is.
pub const OVER: u32 = 1024;

/// Wish: end the writing side, and wake who waits to write.
pub const SHUTDOWN_WRITE: u8 = 1;
/// Wish: let go of the socket.
pub const CLOSE: u8 = 2;
/// Beside [`CLOSE`]: the application had begun to read what it leaves.
pub const UNREAD: u8 = 8;
/// Wish: wake who waits to read, for what the application's side has set in the state.
pub const LOOK_AGAIN: u8 = 4;

/// Wish: wake who waits to write, once there are frames.
pub const FRAMES: u8 = 16;

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
    passing: Mutex<Option<Error>>,
    pub wishes: AtomicU8,
    /// The best size of a block in bytes, 0 for frames; a hint.
    pub bulk_bytes: AtomicUsize,
    pub rx_stalled: AtomicBool,
    pub tx_stalled: AtomicBool,
    pub reader: Waiter,
    pub writer: Waiter,
    /// Bits for the poller, since it last looked.
    pub news: AtomicU8,
    has_poller: AtomicBool,
    /// The poller that waits for the socket. A thread that adds or removes it locks this for a
    /// moment; so does the engine, for the first news after the poller has looked.
    poller: Mutex<Option<PollTarget>>,
}

impl Shared {
    /// Takes the mark that the engine waits for room in the rx ring; returns true if it was set.
    /// The caller has published what it took from the ring by a sequentially consistent store.
    pub fn takes_stall(&self) -> bool {
        self.rx_stalled.load(Ordering::SeqCst) && self.rx_stalled.swap(false, Ordering::SeqCst)
    }

    /// The engine's side: sets state bits and wakes who waits for them.
    pub fn set_state(&self, bits: u32) {
        self.state.fetch_or(bits, Ordering::AcqRel);
        self.reader.ring();
        self.writer.ring();
        let closed = if bits & OVER != 0 { CLOSED } else { 0 };
        self.tell_poller(READABLE | WRITABLE | closed);
    }

    fn poller(&self) -> MutexGuard<'_, Option<PollTarget>> {
        self.poller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives it a poller, which is told of all that may be so. Fails if it has one.
    pub fn enter(&self, target: PollTarget) -> Result<(), Error> {
        let mut poller = self.poller();
        if poller.is_some() {
            return Err(Error::Invalid("the socket has a poller already"));
        }
        *poller = Some(target);
        drop(poller);
        self.has_poller.store(true, Ordering::SeqCst);
        self.news.store(0, Ordering::SeqCst);
        self.tell_poller(READABLE | WRITABLE | if self.has(OVER) { CLOSED } else { 0 });
        Ok(())
    }

    /// Takes it from its poller, if that is the one of `target`; returns its index there.
    pub fn leave(&self, target: &Arc<Target>) -> Option<u32> {
        let own = self.poller().take_if(|own| Arc::ptr_eq(&own.target, target))?;
        self.has_poller.store(false, Ordering::SeqCst);
        Some(own.index)
    }

    /// Keeps the first error that every call is told.
    pub fn set_error(&self, error: Error) {
        let _ = self.error.set(error);
    }

    pub fn error(&self) -> Option<Error> {
        self.error.get().copied()
    }

    /// The engine's side: an error that is told once, to the next call that meets it. A newer one
    /// takes its place.
    pub fn set_passing_error(&self, error: Error) {
        *self.passing.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.set_state(PASSING_ERROR);
    }

    /// Takes the error that was not told yet.
    pub fn take_passing_error(&self) -> Option<Error> {
        if !self.has(PASSING_ERROR) {
            return None;
        }
        self.state.fetch_and(!PASSING_ERROR, Ordering::AcqRel);
        self.passing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The error that a call has to tell: one that is told once, or that of an engine that is gone.
    pub fn take_error(&self) -> Option<Error> {
        self.take_passing_error().or_else(|| self.error())
    }

    /// The engine's side: a link leads to the peer again.
    pub fn mend(&self) {
        self.state.fetch_and(!(CUT_READ | CUT_WRITE), Ordering::AcqRel);
    }

    /// Takes the error `NetworkDown` for a call that reads or writes (`side`) and would have to
    /// wait, if it is due.
    pub fn take_cut(&self, side: u32) -> Option<Error> {
        let was_cut = self.has(side) && self.state.fetch_and(!side, Ordering::AcqRel) & side != 0;
        was_cut.then_some(Error::NetworkDown)
    }

    pub fn has(&self, bit: u32) -> bool {
        self.state.load(Ordering::Acquire) & bit != 0
    }

    /// The engine's side: news for a poller, if there is one.
    pub fn tell_poller(&self, bits: u8) {
        // What the poller has not taken yet it has been told of.
        if self.has_poller.load(Ordering::SeqCst)
            && self.news.fetch_or(bits, Ordering::SeqCst) & bits != bits
            && let Some(target) = &*self.poller()
        {
            target.tell();
        }
    }

    /// Something arrived in the rx ring.
    pub fn readable(&self) {
        self.reader.ring();
        self.tell_poller(READABLE);
    }

    /// Wakes a writer, as what it waited for may be there, and tells the poller.
    pub fn writable(&self) {
        self.writer.ring();
        self.tell_poller(WRITABLE);
    }

    /// The tx ring is half empty, as a sequentially consistent store has told: who waits is woken,
    /// and a poller is told where somebody has found no room since.
    pub fn has_room(&self) {
        self.writer.ring();
        if self.tx_stalled.load(Ordering::SeqCst) && self.tx_stalled.swap(false, Ordering::SeqCst) {
            self.tell_poller(WRITABLE);
        }
    }
}
