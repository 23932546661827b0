//! Whoever connects, until it has proved that it knows the token: one thread, bounded memory, and
//! nobody waits for another.
//!
//! A stranger costs an accepted connection and 42 bytes sent. Of those that have proved nothing
//! there are `UNPROVED` at most; beyond that the source that has most of them loses its oldest. So
//! strangers from one place displace only each other, and a client that answers as quickly as the
//! network lets it is heard before its place is taken.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{Backlog, listen};

use super::wire::{Challenges, PROOF_TIMEOUT, Unproved};

/// Connections that have proved nothing yet.
pub(super) const UNPROVED: usize = 1024;
/// Connections that are accepted before those that wait are looked at.
const ACCEPTED: usize = 64;
/// Lines about refusals in each stretch of `TOLD_EVERY`; the others are summed up in one at its
/// end.
const TOLD: u64 = 8;
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// The listener's number in the set of events.
const LISTENER: u64 = 0;

struct Waiting {
    unproved: Unproved,
    peer: SocketAddr,
    until: Instant,
}

/// A listener with the clients that have connected and not yet proved that they know the token.
pub(super) struct Door<'a> {
    listener: &'a TcpListener,
    events: Epoll,
    challenges: Challenges,
    number: u64,
    /// Clients by their number, the oldest first.
    waiting: BTreeMap<u64, Waiting>,
    /// The number of each source that wait.
    sources: HashMap<IpAddr, usize>,
    refusals: Refusals<'a>,
}

impl<'a> Door<'a> {
    /// Returns the door of a listener that does not block.
    pub(super) fn new(listener: &'a TcpListener, tell: &'a dyn Fn(String)) -> io::Result<Self> {
        // As many wait to be accepted as the host allows: who finds no room tries again a second
        // later.
        listen(listener, Backlog::MAXALLOWABLE)?;
        let events = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        events.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        Ok(Self {
            listener,
            events,
            challenges: Challenges::new()?,
            number: LISTENER,
            waiting: BTreeMap::new(),
            sources: HashMap::new(),
            refusals: Refusals::new(tell),
        })
    }

    /// Waits so long at most, and hands out those that have said all that there is to say, whatever
    /// that was.
    pub(super) fn wait(&mut self, most: Duration) -> io::Result<Vec<(Unproved, SocketAddr)>> {
        let mut events = [EpollEvent::empty(); 64];
        let timeout = EpollTimeout::try_from(most).unwrap_or(EpollTimeout::ZERO);
        let count = match self.events.wait(&mut events, timeout) {
            Err(nix::errno::Errno::EINTR) => 0,
            count => count?,
        };
        let mut heard = Vec::new();
        for event in &events[..count] {
            match event.data() {
                LISTENER => self.accept(),
                number => heard.extend(self.hear(number)),
            }
        }
        let now = Instant::now();
        while let Some(oldest) = self.waiting.first_entry().filter(|one| one.get().until <= now) {
            let number = *oldest.key();
            self.refuse(number, "no proof in time");
        }
        self.refusals.tell_of_others(now);
        Ok(heard)
    }

    /// Notes that one was turned away that has said all.
    pub(super) fn refused(&mut self, peer: SocketAddr, why: &str) {
        self.refusals.add(peer, why);
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            match self.listener.accept() {
                Ok((stream, peer)) => self.welcome(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // No file is left for it.
                Err(_) => return self.give_way(),
            }
        }
    }

    fn welcome(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.waiting.len() >= UNPROVED {
            self.give_way();
        }
        self.number += 1;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, self.number);
        let nonce = self.challenges.next();
        let prepared = stream.set_nonblocking(true).map(|()| stream.into());
        let begun = prepared.and_then(|stream| Unproved::greet(stream, nonce));
        match begun.and_then(|begun| Ok(self.events.add(begun.stream(), event).map(|()| begun)?)) {
            Ok(unproved) => {
                let until = Instant::now() + PROOF_TIMEOUT;
                self.waiting.insert(self.number, Waiting { unproved, peer, until });
                *self.sources.entry(source(peer)).or_default() += 1;
            }
            Err(_) => self.refusals.add(peer, "it went at once"),
        }
    }

    /// The source that has most of those that wait loses its oldest.
    fn give_way(&mut self) {
        let most = self.sources.iter().max_by_key(|(_, count)| **count).map(|(at, _)| *at);
        let mut all = self.waiting.iter();
        let oldest = all.find(|(_, one)| Some(source(one.peer)) == most).map(|(number, _)| *number);
        match oldest {
            Some(number) => self.refuse(number, "others came before it proved anything"),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }

    fn hear(&mut self, number: u64) -> Option<(Unproved, SocketAddr)> {
        match self.waiting.get_mut(&number)?.unproved.read() {
            Ok(false) => None,
            Ok(true) => self.take(number).map(|one| (one.unproved, one.peer)),
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::InvalidData => error.to_string(),
                    _ => "it went without a proof".to_owned(),
                };
                self.refuse(number, &why);
                None
            }
        }
    }

    fn take(&mut self, number: u64) -> Option<Waiting> {
        let one = self.waiting.remove(&number)?;
        let _ = self.events.delete(one.unproved.stream());
        let source = source(one.peer);
        if let Some(count) = self.sources.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&source);
            }
        }
        Some(one)
    }

    fn refuse(&mut self, number: u64, why: &str) {
        if let Some(one) = self.take(number) {
            self.refusals.add(one.peer, why);
        }
    }
}

/// Returns the source that a peer counts for: an address, of IPv6 its /64.
fn source(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

/// Tells of some refusals, and counts the others.
struct Refusals<'a> {
    tell: &'a dyn Fn(String),
    until: Instant,
    told: u64,
    /// Refusals that are only counted, by the reason, of which there are few.
    others: BTreeMap<String, u64>,
}

impl<'a> Refusals<'a> {
    fn new(tell: &'a dyn Fn(String)) -> Self {
        Self { tell, until: Instant::now(), told: 0, others: BTreeMap::new() }
    }

    fn add(&mut self, peer: SocketAddr, why: &str) {
        self.tell_of_others(Instant::now());
        if self.told < TOLD {
            self.told += 1;
            return (self.tell)(format!("{peer}: refused: {why}"));
        }
        *self.others.entry(why.to_owned()).or_default() += 1;
    }

    /// Sums up, once a stretch is over.
    fn tell_of_others(&mut self, now: Instant) {
        if now < self.until {
            return;
        }
        (self.until, self.told) = (now + TOLD_EVERY, 0);
        if self.others.is_empty() {
            return;
        }
        let all: u64 = self.others.values().sum();
        let each = self.others.iter().map(|(why, count)| format!("{count}: {why}"));
        let each = each.collect::<Vec<_>>().join("; ");
        (self.tell)(format!("{all} more refused in {} s: {each}", TOLD_EVERY.as_secs()));
        self.others.clear();
    }
}
