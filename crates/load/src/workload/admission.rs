//! Admission: which connections and datagrams are the other end's: those that begin with the ticket
//! of the task.
//!
//! The listening end makes it up, and the connecting one hears of it from the runner, with the
//! ports. Whoever else connects, or stays silent, is never taken for the other end, and keeps
//! nobody waiting. Who sees the traffic sees the ticket, too.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::transport::{ConnId, ListenerId, Network, write_all};

/// The begin of a datagram that has a ticket: its first byte begins no other datagram of a
/// workload.
const GREETING: [u8; 6] = *b"\xffmstrm";
const TICKET_BYTES: usize = 16;
/// Length of a datagram that has a ticket; it is longer than the smallest datagrams.
pub(super) const GREETING_BYTES: usize = GREETING.len() + TICKET_BYTES;
/// Connections that have not shown it yet. One more, and the oldest of them is closed.
const UNPROVED: usize = 256;
/// Time between two looks at them.
const LOOK: Duration = Duration::from_millis(1);
/// Connections that may wait to be accepted, at least.
pub(super) const BACKLOG: usize = 128;

/// A secret of both ends of a task, which nobody knows who does not see their traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket([u8; TICKET_BYTES]);

impl Ticket {
    /// A ticket that nobody can foresee.
    pub(super) fn fresh() -> io::Result<Self> {
        let mut bytes = [0; TICKET_BYTES];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Connects, and shows it.
    pub(super) fn connect(&self, network: &mut dyn Network, to: SocketAddr) -> io::Result<ConnId> {
        let conn = network.connect(to)?;
        write_all(network, conn, &self.0)?;
        Ok(conn)
    }

    /// Connects, shows it, and hears that it was seen: later connections from this address are
    /// taken without.
    pub(super) fn announce(&self, network: &mut dyn Network, to: SocketAddr) -> io::Result<()> {
        let conn = self.connect(network, to)?;
        while network.read(conn, &mut [0; 16])? > 0 {}
        network.close(conn);
        Ok(())
    }

    /// The datagram that shows it.
    pub(super) fn greeting(&self) -> [u8; GREETING_BYTES] {
        let mut greeting = [0; GREETING_BYTES];
        greeting[..GREETING.len()].copy_from_slice(&GREETING);
        greeting[GREETING.len()..].copy_from_slice(&self.0);
        greeting
    }
}

/// Returns whether it is such a datagram, of whatever ticket.
pub(super) fn is_greeting(datagram: &[u8]) -> bool {
    datagram.len() == GREETING_BYTES && datagram.starts_with(&GREETING)
}

/// A connection that has not shown the ticket yet.
struct Unproved {
    conn: ConnId,
    peer: SocketAddr,
    shown: [u8; TICKET_BYTES],
    len: usize,
}

/// The connections of a listener: those that show the ticket.
pub(super) struct Admission<'a> {
    ticket: &'a Ticket,
    listener: ListenerId,
    /// The oldest first.
    unproved: VecDeque<Unproved>,
}

impl<'a> Admission<'a> {
    pub(super) fn new(ticket: &'a Ticket, listener: ListenerId) -> Self {
        Self { ticket, listener, unproved: VecDeque::new() }
    }

    /// The next connection that shows it; blocks.
    pub(super) fn accept(&mut self, network: &mut dyn Network) -> io::Result<ConnId> {
        Ok(self.next(network)?.0)
    }

    /// The address of the next one that shows it, which is closed then; blocks.
    pub(super) fn announced(&mut self, network: &mut dyn Network) -> io::Result<IpAddr> {
        let (conn, peer) = self.next(network)?;
        network.close(conn);
        Ok(peer.ip())
    }

    /// Closes those that have not shown it.
    pub(super) fn end(self, network: &mut dyn Network) {
        self.unproved.iter().for_each(|one| network.close(one.conn));
    }

    fn next(&mut self, network: &mut dyn Network) -> io::Result<(ConnId, SocketAddr)> {
        let mut ready = Vec::new();
        loop {
            while let Some((conn, peer)) = network.accept_now(self.listener)? {
                let shown = [0; TICKET_BYTES];
                self.unproved.push_back(Unproved { conn, peer, shown, len: 0 });
                if self.unproved.len() > UNPROVED
                    && let Some(oldest) = self.unproved.pop_front()
                {
                    network.close(oldest.conn);
                }
            }
            let mut at = 0;
            while let Some(one) = self.unproved.get_mut(at) {
                let is_stranger = match network.read_now(one.conn, &mut one.shown[one.len..]) {
                    Ok(None) => false,
                    Ok(Some(0)) | Err(_) => true,
                    Ok(Some(len)) => {
                        one.len += len;
                        one.len == TICKET_BYTES && one.shown != self.ticket.0
                    }
                };
                if !is_stranger && one.len < TICKET_BYTES {
                    at += 1;
                } else if let Some(one) = self.unproved.remove(at) {
                    if !is_stranger {
                        return Ok((one.conn, one.peer));
                    }
                    network.close(one.conn);
                }
            }
            network.wait(LOOK, &mut ready)?;
        }
    }
}
