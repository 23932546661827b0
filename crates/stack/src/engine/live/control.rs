//! The control socket: answers about what lives, for the engine's own user.
//!
//! A client connects to the Unix socket beside the segment, sends one line that asks, and gets lines
//! ([`Record`](millstream_live::Record)) up to `end` or `error`. The engine answers between turns. One client is served a
//! turn, with one page: so many slots of tables, pieces of queues and bytes, whatever there is in all ([`answers`]). A page is
//! made when the one before has left. So no turn is long, and what nobody reads is not made.
//!
//! Few clients are served at once, and only those of the engine's user. One that does not ask, or does not read, is
//! dropped after a while; so is one that says more than its question.

use std::fs::{Permissions, set_permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use millstream_link::sys::{PollEntry, effective_uid, peer_uid};
use millstream_packet::Instant;

use super::answers::Answer;
use crate::engine::Engine;

/// Clients that are served at once; others wait to be accepted.
const CLIENTS: usize = 16;
/// How long one may take to ask, and how long to read something.
const TO_ASK: Duration = Duration::from_millis(250);
const TO_READ: Duration = Duration::from_secs(2);
/// Bytes of a question.
const QUESTION_BYTES: usize = 128;

/// See the module text.
pub(super) struct Control {
    listener: UnixListener,
    clients: Vec<Client>,
    uid: u32,
    /// Whose turn it is.
    next: usize,
}

struct Client {
    stream: UnixStream,
    question: Vec<u8>,
    answer: Option<Answer>,
    /// The page that leaves, and how much of it has.
    page: String,
    sent: usize,
    /// It is dropped then, unless it has done something.
    until: Instant,
    /// It took nothing when it was served last.
    is_full: bool,
}

impl Control {
    /// A socket at `path`, which the engine's user alone may use.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, clients: Vec::with_capacity(CLIENTS), uid: effective_uid(), next: 0 })
    }

    /// Takes in one client that waits, if there is room for it.
    pub fn accept(&mut self, now: Instant) {
        if self.clients.len() == CLIENTS {
            return;
        }
        let Ok((stream, _)) = self.listener.accept() else { return };
        let is_ours = peer_uid(&stream).is_ok_and(|uid| uid == self.uid);
        if is_ours && stream.set_nonblocking(true).is_ok() {
            self.clients.push(Client {
                stream,
                question: Vec::new(),
                answer: None,
                page: String::new(),
                sent: 0,
                until: now + TO_ASK,
                is_full: false,
            });
        }
    }

    /// Serves one client with one page at most, and drops those whose time is up.
    pub fn serve(&mut self, engine: &mut Engine, now: Instant) {
        self.clients.retain(|client| client.until > now);
        if self.clients.is_empty() {
            return;
        }
        let at = self.next % self.clients.len();
        self.next = at + 1;
        if self.clients[at].serve(engine, now).is_none() {
            self.clients.swap_remove(at);
        }
    }

    /// When to look here next, where nothing is heard of the sockets: at once while an answer is made.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let due = |client: &Client| if client.is_busy() { now } else { client.until };
        self.clients.iter().map(due).min()
    }

    /// Clients that are served now.
    #[cfg(test)]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Adds what wakes an engine that sleeps.
    pub fn watch(&self, entries: &mut Vec<PollEntry>) {
        let mut add =
            |fd: RawFd, wants_write| entries.push(PollEntry { fd, wants_write, ready: false });
        if self.clients.len() < CLIENTS {
            add(self.listener.as_raw_fd(), false);
        }
        self.clients.iter().for_each(|client| add(client.stream.as_raw_fd(), client.is_full));
    }
}

impl Client {
    /// Whether it can be told more at once.
    fn is_busy(&self) -> bool {
        self.answer.is_some() && !self.is_full
    }

    /// Hears it, and tells it something; `None` when that is over.
    fn serve(&mut self, engine: &mut Engine, now: Instant) -> Option<()> {
        self.hear()?;
        let Some(answer) = &mut self.answer else { return Some(()) };
        if self.sent == self.page.len() {
            if answer.is_over() {
                return None;
            }
            self.sent = 0;
            answer.fill(engine, &mut self.page);
        }
        self.is_full = false;
        match self.stream.write(&self.page.as_bytes()[self.sent..]) {
            Ok(len) => {
                self.sent += len;
                self.until = now + TO_READ;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_full = true,
            Err(_) => return None,
        }
        Some(())
    }

    /// Reads what it says: its question, and nothing more.
    fn hear(&mut self) -> Option<()> {
        let mut bytes = [0; QUESTION_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(len @ 1..)
                if self.answer.is_none() && self.question.len() + len <= QUESTION_BYTES =>
            {
                self.question.extend_from_slice(&bytes[..len]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // It is gone, or says more.
            _ => return None,
        }
        if let Some(end) = self.question.iter().position(|&byte| byte == b'\n') {
            if end + 1 != self.question.len() {
                return None;
            }
            let question = String::from_utf8_lossy(&self.question[..end]);
            self.answer.get_or_insert_with(|| Answer::to(&question));
        }
        Some(())
    }
}
