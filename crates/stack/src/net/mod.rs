//! The engine in a thread of its own, the application in its threads.
//!
//! Every socket has a ring of packets for each direction, with one end in the application and one
//! in the engine. Data never passes a lock that both can hold. A sleeping thread is woken once:
//! when an empty ring gets its first packet, or when a full one is half empty. Names and error
//! kinds are those of `std::net`; all handles are `Send` and `Sync`.
//!
//! Opening and closing go through one queue of calls that the engine's thread takes up between
//! turns.

#![expect(
    missing_debug_implementations,
    reason = "the parts of a `RingSocket` count as public, as the sockets' types name it"
)]

mod datagrams;
mod engine_task;
mod flows;
mod listener;
mod mailbox;
mod metered;
mod poller;
mod reach;
mod ready;
mod requests;
mod shared;
mod side;
mod slots;
mod socket;
mod sockets;
mod stack;
mod starved;
mod stream;
mod target;
mod task;
mod tcp;
mod udp;
mod waiter;
mod worker;

pub use engine_task::{EngineTask, TaskSleep};
pub use flows::{UdpFlow, UdpFlows};
pub use poller::{Poller, Source};
pub use requests::{TcpRequest, TcpRequests};
pub use stack::{Stack, StackBuilder};

use crate::{WakeStats, door};
use socket::RingSocket;

/// A TCP connection of an engine in a thread of its own; see [`door::TcpStream`].
pub type TcpStream = door::TcpStream<RingSocket<tcp::TcpEnds>>;

/// A TCP listener of an engine in a thread of its own; see [`door::TcpListener`].
pub type TcpListener = door::TcpListener<RingSocket<listener::ListenerEnds>>;

/// The connections of a listener, see [`door::TcpListener::incoming`].
pub type Incoming<'a> = door::Incoming<'a, RingSocket<listener::ListenerEnds>>;

/// A UDP socket of an engine in a thread of its own; see [`door::UdpSocket`].
pub type UdpSocket = door::UdpSocket<RingSocket<udp::UdpEnds>>;

impl TcpStream {
    /// Returns how often the engine told this stream's readers and writers of news, and how often
    /// it woke them.
    pub fn wakeup_stats(&self) -> WakeStats {
        let mut both = self.socket.shared.reader.stats();
        both += self.socket.shared.writer.stats();
        both
    }
}
