//! The counters and states that a running engine publishes for other processes (docs/live.md).
//!
//! Every 10 ms of work, at the begin of a turn, the counters are written into a segment by one
//! system call. An engine that has nothing to do is woken once more to publish what it did last,
//! and then sleeps. Nothing is taken from the heap for it, and nothing walks what grows: the states
//! of connections are counted a few at a time. Off it costs a turn one comparison.

mod answers;
mod clients;
mod config;
mod control;
mod declared;
mod events;
mod id;
mod states;
pub(in crate::engine) mod traces;
mod values;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use millstream_link::sys::{PollEntry, effective_uid};
use millstream_live::{Directory, LiveError, SchemaText, Writer};
use millstream_packet::Instant;

use super::{Engine, Serial};
use crate::engine::context::Context;
use clients::ClientStats;
pub use config::LiveConfig;
use control::Control;
pub use declared::published;
use states::States;
use values::{Names, Values};

/// Links that are published: those in use, of which there are no more.
const LINKS: usize = millstream_link::sys::POLL_LIMIT;

/// Where publication could not begin, it is tried again so much later.
const AGAIN: Duration = Duration::from_secs(1);

/// See the module text.
#[derive(Default)]
pub(super) struct Live {
    /// When to look here next, to publish or to answer; `None`: never.
    due: Option<Instant>,
    publisher: Option<Box<Publisher>>,
    /// The configuration of a publication that could not begin, to be tried again.
    wanted: Option<Box<LiveConfig>>,
    /// Why nothing is published, or was not at last.
    error: Option<LiveError>,
    /// Counts of clients that asked.
    clients: ClientStats,
}

struct Publisher {
    writer: Writer,
    every: Duration,
    /// When to publish next.
    due: Instant,
    /// Answers questions, once there is a segment; unless it cannot be had.
    control: Option<Control>,
    /// The links that the schema names.
    links: Vec<Serial>,
    /// The schema has what is known of sampled packets, and what was counted of connections.
    has: [bool; 2],
    /// Turns that had found something to do when it was published last.
    worked: u64,
    /// Somebody has asked, or was dropped, since.
    has_news: bool,
    states: States,
}

impl Live {
    /// As asked for. Where that cannot be had the reason is kept, and it is tried again, unless the
    /// name is none.
    pub fn new(config: Option<&LiveConfig>, now: Instant) -> Self {
        let Some(config) = config else { return Self::default() };
        let (due, publisher, wanted, error) = match Publisher::new(config, now) {
            Ok(publisher) => (Some(now), Some(Box::new(publisher)), None, None),
            Err(error @ LiveError::Name(_)) => (None, None, None, Some(error)),
            Err(error) => (Some(now + AGAIN), None, Some(Box::new(config.clone())), Some(error)),
        };
        Self { due, publisher, wanted, error, ..Self::default() }
    }

    /// Publishes as `config` says from now on, or with `None` no more.
    pub fn set(&mut self, config: Option<&LiveConfig>, cx: &mut Context) {
        // The old clients are removed first.
        let clients = std::mem::take(self).clients;
        if cx.sink.packets.until.is_some() {
            cx.sample_packets(0);
        }
        *self = Self { clients, ..Self::new(config, cx.now) };
    }

    /// Publishes what there is when that is due, and answers who has asked.
    #[cold]
    #[inline(never)]
    pub fn look(&mut self, engine: &mut Engine, now: Instant) {
        engine.cx.end_leases(now);
        if let Some(wanted) = self.wanted.take() {
            *self = Self { clients: self.clients, ..Self::new(Some(&wanted), now) };
        }
        let Self { due, publisher, error, clients, .. } = self;
        let Some(publisher) = publisher else { return };
        if publisher.due <= now {
            *error = publisher.publish(engine, clients).err();
            publisher.due = now + publisher.every;
        }
        let mut next = publisher.due;
        if let Some(control) = &mut publisher.control {
            let before = *clients;
            control.accept(clients, now);
            control.serve(engine, clients, now);
            publisher.has_news |= *clients != before;
            next = control.next_deadline(now).map_or(next, |answer| answer.min(next));
        }
        *due = Some(next);
    }

    /// Returns why nothing is published though it was asked for, or was not when that was tried
    /// last.
    pub fn error(&self) -> Option<&LiveError> {
        self.error.as_ref()
    }

    /// Returns where it is published, if it is.
    pub fn path(&self) -> Option<&Path> {
        self.publisher.as_deref().map(|publisher| publisher.writer.path())
    }

    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// When an engine that has found something to do in so many turns is to publish that, or has
    /// somebody to answer.
    #[inline]
    pub fn next_deadline(&self, worked: u64, now: Instant) -> Option<Instant> {
        let publisher = self.publisher.as_deref()?;
        let publish = (publisher.worked != worked || publisher.has_news).then_some(publisher.due);
        let answer = publisher.control.as_ref().and_then(|control| control.next_deadline(now));
        publish.into_iter().chain(answer).min()
    }

    /// Adds what wakes an engine that sleeps.
    pub fn watch(&self, entries: &mut Vec<PollEntry>) {
        let control = self.publisher.as_deref().and_then(|publisher| publisher.control.as_ref());
        control.into_iter().for_each(|control| control.watch(entries));
    }

    /// An engine has slept until `now`: something came for one of these.
    pub fn woken(&mut self, entries: &[PollEntry], now: Instant) {
        if entries.iter().any(|entry| entry.ready) && self.publisher.is_some() {
            self.due = Some(now);
        }
    }
}

impl Publisher {
    fn new(config: &LiveConfig, now: Instant) -> Result<Self, LiveError> {
        let uid = effective_uid();
        let directory = match &config.directory {
            Some(path) => Directory::at(path, uid)?,
            None => Directory::of_user(uid)?,
        };
        let writer = Writer::create(&directory, &config.name, config.every)?;
        Ok(Self {
            writer,
            every: config.every,
            due: now,
            control: None,
            links: Vec::new(),
            has: [false; 2],
            // Not even that nothing was done yet is published.
            worked: u64::MAX,
            has_news: false,
            states: States::default(),
        })
    }

    fn publish(&mut self, engine: &Engine, clients: &ClientStats) -> Result<(), LiveError> {
        self.states.look(engine);
        self.describe(engine, clients);
        self.writer.begin();
        let writer = &mut self.writer;
        values::visit(engine, &self.states, clients, &mut Values(|value| writer.push(value)));
        (self.worked, self.has_news) = (engine.cx.stats.turns_of_work(), false);
        self.writer.publish(engine.cx.now.as_nanos())?;
        if self.control.is_none() {
            // Its name was free, or of an engine that has gone.
            let path = self.writer.socket_path();
            let _ = std::fs::remove_file(&path);
            let bound = Control::bind(&path);
            self.control = Some(bound.map_err(|source| LiveError::File { path, source })?);
        }
        Ok(())
    }

    /// Writes the schema anew where there are other links than it names, where packets are sampled
    /// from now on, or no more, and once connections are counted.
    fn describe(&mut self, engine: &Engine, clients: &ClientStats) {
        let links = || engine.ip.reach.links.used_slots().map(|slot| slot.serial).take(LINKS);
        let has = [engine.cx.sink.packets.is_on(), self.states.counted().is_some()];
        let is_same = self.has == has && links().eq(self.links.iter().copied());
        if self.writer.sequence() != 0 && is_same {
            return;
        }
        self.has = has;
        self.links.clear();
        self.links.extend(links());
        let mut text = SchemaText::default();
        values::visit(engine, &self.states, clients, &mut Names(&mut text));
        // As many links as can be in use fit.
        let _ = self.writer.set_schema(text);
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("due", &self.due).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
