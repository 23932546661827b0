//! The control socket: it answers questions about a running engine, for the engine's own user.
//!
//! A client connects to the Unix socket beside the segment, sends a line with its question, and
//! gets lines ([`Record`](millstream_live::Record)) up to `end` or `error`. The engine answers
//! between turns. One client is served a turn, with one page: so many slots of tables, pieces of
//! queues and bytes, whatever there is in all ([`answers`]). Where turns are far apart it gets a
//! few more, for a quarter of the time since it was served. A page is made when the one before has
//! left. So no turn is long for it, and a page that nobody reads is not made.
//!
//! Few clients are served at once, and only those of the engine's user. One that does not ask, or
//! does not read, is dropped after a while; so is one that says more than its question. Each is
//! counted by its reason ([`ClientDrop`]).

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
use super::clients::{ClientDrop, ClientStats};
use crate::engine::Engine;

/// Clients that are served at once; others wait to be accepted.
const CLIENTS: usize = 16;
/// The longest time a client may take to ask, and to read something.
const TO_ASK: Duration = Duration::from_millis(250);
const TO_READ: Duration = Duration::from_secs(2);
/// The part of the time since a client was served that goes into its next pages, beyond the first;
/// and pages of a turn.
const SHARE: u32 = 4;
const PAGES: usize = 8;
/// Bytes of a question.
const QUESTION_BYTES: usize = 128;
/// Time after which the engine tries again to accept a client when it could not (the process has no
/// descriptor left, say). Until then it does not watch the listener, since the waiting client would
/// wake it again and again.
const PAUSE: Duration = Duration::from_millis(100);

/// See the module text.
pub(super) struct Control {
    listener: UnixListener,
    clients: Vec<Client>,
    uid: u32,
    /// The client whose turn it is.
    next: usize,
    /// The time before which no client is accepted.
    deaf_until: Option<Instant>,
}

struct Client {
    stream: UnixStream,
    question: Vec<u8>,
    answer: Option<Answer>,
    /// The page that leaves, and how many bytes of it have.
    page: String,
    sent: usize,
    /// The time at which it is dropped, unless it has done something.
    until: Instant,
    /// It took nothing when it was served last.
    is_full: bool,
    /// The time at which it was served last.
    served: Instant,
}

impl Control {
    /// A socket at `path`, which the engine's user alone may use.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self {
            listener,
            clients: Vec::with_capacity(CLIENTS),
            uid: effective_uid(),
            next: 0,
            deaf_until: None,
        })
    }

    /// Takes in one client that waits, if there is room for it.
    pub fn accept(&mut self, stats: &mut ClientStats, now: Instant) {
        if self.clients.len() == CLIENTS || self.deaf_until.is_some_and(|until| now < until) {
            return;
        }
        self.deaf_until = None;
        let accepted = self.listener.accept().and_then(|(stream, _)| {
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                let is_nobody = [ErrorKind::WouldBlock, ErrorKind::ConnectionAborted];
                if !is_nobody.contains(&error.kind()) {
                    stats.accept_failed += 1;
                    self.deaf_until = Some(now + PAUSE);
                }
                return;
            }
        };
        if !peer_uid(&stream).is_ok_and(|uid| uid == self.uid) {
            return stats.count(ClientDrop::OtherUser);
        }
        self.clients.push(Client {
            stream,
            question: Vec::new(),
            answer: None,
            page: String::new(),
            sent: 0,
            until: now + TO_ASK,
            is_full: false,
            served: now,
        });
        stats.times_full += u64::from(self.clients.len() == CLIENTS);
    }

    /// Serves one client, and drops those whose time is up.
    pub fn serve(&mut self, engine: &mut Engine, stats: &mut ClientStats, now: Instant) {
        self.clients.retain(|client| {
            let is_late = client.until <= now;
            if is_late {
                stats.count(if client.answer.is_some() {
                    ClientDrop::Slow
                } else {
                    ClientDrop::Silent
                });
            }
            !is_late
        });
        if self.clients.is_empty() {
            return;
        }
        let at = self.next % self.clients.len();
        self.next = at + 1;
        match self.clients[at].serve_in_time(engine, now) {
            Ok(Served::InPart) => return,
            Ok(Served::Answered) => stats.answered += 1,
            Ok(Served::Refused) => stats.refused += 1,
            Err(reason) => stats.count(reason),
        }
        self.clients.swap_remove(at);
    }

    /// Returns when to look here next if nothing is heard of the sockets: at once while an answer
    /// is made.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let due = |client: &Client| if client.is_busy() { now } else { client.until };
        self.clients.iter().map(due).chain(self.deaf_until).min()
    }

    /// Returns the number of clients that are served now.
    #[cfg(test)]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Adds the descriptors that wake a sleeping engine.
    pub fn watch(&self, entries: &mut Vec<PollEntry>) {
        let mut add =
            |fd: RawFd, wants_write| entries.push(PollEntry { fd, wants_write, ready: false });
        if self.clients.len() < CLIENTS && self.deaf_until.is_none() {
            add(self.listener.as_raw_fd(), false);
        }
        self.clients.iter().for_each(|client| add(client.stream.as_raw_fd(), client.is_full));
    }
}

impl Client {
    /// Returns true if it can be told more at once.
    fn is_busy(&self) -> bool {
        self.answer.is_some() && !self.is_full
    }

    /// Serves it with a page, and with more of them for its part of the time.
    fn serve_in_time(&mut self, engine: &mut Engine, now: Instant) -> Result<Served, ClientDrop> {
        let share = now.saturating_duration_since(self.served) / SHARE;
        let (until, mut pages) = (engine.clock.now() + share, 1);
        self.served = now;
        let mut served = self.serve(engine, now)?;
        while matches!(served, Served::InPart)
            && self.is_busy()
            && pages < PAGES
            && engine.clock.now() < until
        {
            served = self.serve(engine, now)?;
            pages += 1;
        }
        Ok(served)
    }

    /// Reads its question, and sends part of the answer.
    ///
    /// # Errors
    /// The reason why it is dropped.
    fn serve(&mut self, engine: &mut Engine, now: Instant) -> Result<Served, ClientDrop> {
        self.hear()?;
        let Some(answer) = &mut self.answer else { return Ok(Served::InPart) };
        if self.sent == self.page.len() {
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
            Err(_) => return Err(ClientDrop::Gone),
        }
        Ok(match self.sent == self.page.len() && answer.is_over() {
            false => Served::InPart,
            true if answer.is_refused() => Served::Refused,
            true => Served::Answered,
        })
    }

    /// Reads what it says: its question, and nothing more.
    fn hear(&mut self) -> Result<(), ClientDrop> {
        let mut bytes = [0; QUESTION_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(ClientDrop::Gone),
            Ok(_) if self.answer.is_some() => return Err(ClientDrop::SaidMore),
            Ok(len) if self.question.len() + len > QUESTION_BYTES => {
                return Err(ClientDrop::QuestionTooLong);
            }
            Ok(len) => self.question.extend_from_slice(&bytes[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return Err(ClientDrop::Gone),
        }
        if let Some(end) = self.question.iter().position(|&byte| byte == b'\n') {
            if end + 1 != self.question.len() {
                return Err(ClientDrop::SaidMore);
            }
            let question = String::from_utf8_lossy(&self.question[..end]);
            self.answer.get_or_insert_with(|| Answer::to(&question));
        }
        Ok(())
    }
}

/// The state of a client that was served.
enum Served {
    /// There is more to hear from it, or to tell it.
    InPart,
    /// It has its answer.
    Answered,
    /// It was told why there is none.
    Refused,
}

#[cfg(test)]
mod tests;
