//! The body of the engine's thread: takes up the work that applications have left, turns the
//! engine, and sleeps when there is nothing to do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::mailbox::Mailbox;
use super::sockets::Sockets;
use super::waiter::take_woke;
use crate::engine::Sleep;
use crate::engine::tcp::ending::Lingering;
use crate::stats::Undelivered;
use crate::tuning::{GOODBYE, LINGER_LOOK};
use crate::{Engine, SocketKind, Turn};

/// See the module text.
pub struct Worker {
    pub sockets: Sockets,
    pub mailbox: Arc<Mailbox>,
}

impl Worker {
    pub fn new(engine: Engine) -> Self {
        let mailbox = Arc::new(Mailbox::new(&engine));
        Self { sockets: Sockets::new(engine), mailbox }
    }

    /// Runs until told to stop. Returns the data that was not delivered then.
    pub fn run(mut self) -> Undelivered {
        while !self.mailbox.has_stopped() {
            if self.step().is_err() {
                break;
            }
        }
        self.finish()
    }

    /// Does the application's work, a turn, and the sockets' news; then sleeps if there was
    /// nothing, or before that where it is better ([`Engine::run_once`]).
    fn step(&mut self) -> io::Result<()> {
        let mailbox = Arc::clone(&self.mailbox);
        let mut busy = self.begin();
        let max_sleep = self.sockets.streams.starved.rest();
        let mut rested = false;
        if !busy && let Some(quiet) = self.sockets.engine.sleeps_before_turn() {
            self.sockets.engine.idle_unless(quiet, max_sleep, || mailbox.is_busy())?;
            busy = self.application();
            rested = true;
        }
        let quiet = self.turn(busy);
        let engine = &mut self.sockets.engine;
        if let Some(turn) = quiet.filter(|_| !rested) {
            // A thread that was woken may wait for this very core, and polling would keep it from
            // that.
            if take_woke() {
                engine.make_way();
            }
            engine.idle_unless(turn, max_sleep, || mailbox.is_busy())?;
        }
        Ok(())
    }

    /// Does the work that has come since the last turn; returns true if there was any.
    fn begin(&mut self) -> bool {
        self.sockets.engine.refresh_time();
        self.sockets.streams.share_memory(&self.sockets.engine);
        let busy = self.application() | self.sockets.look_at_ways();
        busy | self.sockets.streams.tell_starved(&self.sockets.engine)
    }

    /// Takes a turn, and hands the sockets' news over. Returns the turn if there was nothing.
    fn turn(&mut self, mut busy: bool) -> Option<Turn> {
        let turn = self.sockets.engine.turn(self.sockets.engine.now());
        busy |= self.sockets.deliver();
        busy |= self.sockets.engine.flush_if_due();
        // Sent packets have made room.
        busy |= self.sockets.deliver();
        if busy || turn.progress {
            self.sockets.engine.worked();
            return None;
        }
        Some(turn)
    }

    /// Works as the thread does, up to where that would sleep: returns the sleep that has begun, or
    /// `None` if there was work.
    pub fn work(&mut self) -> io::Result<Option<Sleep>> {
        let busy = self.begin();
        let Some(turn) = self.turn(busy) else { return Ok(None) };
        let (max_sleep, mailbox) = (self.sockets.streams.starved.rest(), &self.mailbox);
        self.sockets.engine.begin_sleep(turn, max_sleep, || mailbox.is_busy())
    }

    /// Takes up the work that the application's threads have left; returns true if there was any.
    fn application(&mut self) -> bool {
        let Self { sockets, mailbox } = self;
        let calls = mailbox.take_calls();
        let mut busy = !calls.is_empty();
        for call in calls {
            call(sockets);
        }
        mailbox.streams.drain(|slot| sockets.streams.list.note(slot));
        busy |= sockets.streams.serve_due(&mut sockets.engine);
        mailbox.datagrams.drain(|slot| sockets.note_datagrams(slot));
        busy |= sockets.datagrams.send_due(&mut sockets.engine);
        mailbox.listeners.drain(|slot| sockets.serve_listener(SocketKind::Listener, slot));
        busy
    }

    /// Closes everything, tells all waiting threads, and lets written data leave. Connections that
    /// are not at their end then are reset.
    pub fn finish(&mut self) -> Undelivered {
        let before = self.undelivered();
        for call in self.mailbox.take_calls() {
            call(&mut self.sockets);
        }
        self.sockets.close_all();
        self.see_through();
        let Sockets { engine, streams, .. } = &mut self.sockets;
        streams.clear(engine);
        engine.flush();
        engine.sockets().reset_all();
        self.undelivered().since(before)
    }

    /// Returns the data that connections had not delivered when they ended.
    fn undelivered(&self) -> Undelivered {
        self.sockets.engine.inspect().undelivered().and(self.sockets.streams.refused)
    }

    /// Waits for delivery for as long as the application allows or peers take data, then for a
    /// moment for the rest.
    fn see_through(&mut self) {
        let mut lingering = Lingering::begin(self.sockets.engine.refresh_time());
        let mut goodbye = None;
        loop {
            let now = self.sockets.engine.now();
            let left = self.to_deliver();
            let wait = if !left.is_none() && self.sockets.engine.inspect().has_links() {
                lingering.wait(now, left, self.mailbox.linger.get())
            } else {
                let until = *goodbye.get_or_insert(now + GOODBYE);
                (now < until).then(|| until.saturating_duration_since(now).min(LINGER_LOOK))
            };
            let Some(wait) = wait else { return };
            let look = now + wait;
            // Each look costs more the more streams there are.
            while self.sockets.engine.now() < look {
                let Sockets { engine, datagrams, .. } = &mut self.sockets;
                let has_datagrams = datagrams.send_last(engine);
                let is_left = engine.inspect().has_waiting() || engine.inspect().has_unfinished();
                if !has_datagrams && !is_left {
                    return;
                }
                let left = look.saturating_duration_since(engine.now());
                let sleep = if has_datagrams { Duration::ZERO } else { left };
                if engine.run_once(Some(sleep)).is_err() {
                    return;
                }
                self.sockets.deliver();
            }
        }
    }

    /// Returns the data that streams and connections have still to deliver.
    fn to_deliver(&self) -> Undelivered {
        let (left, _) = self.sockets.engine.inspect().to_deliver();
        left.and(self.sockets.streams.unwritten())
    }
}

impl Drop for Worker {
    /// Ends the sockets, also if a call that it ran has panicked.
    fn drop(&mut self) {
        self.sockets.tell_end();
        self.mailbox.end();
    }
}
