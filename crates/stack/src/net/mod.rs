//! The engine in a thread of its own, the application in its threads.
//!
//! Every socket has a ring of packets for each direction, with one end in the application and one
//! in the engine. Data never passes a lock that both can hold. A sleeping thread is woken once:
//! when an empty ring gets its first packet, or when a full one is half empty. Names and error
//! kinds are those of `std::net`; all handles are `Send` and `Sync`.
//!
//! Opening and closing go through one queue of calls that the engine's thread takes up between
//! turns.

mod calls;
mod datagrams;
mod listener;
mod mailbox;
mod metered;
mod poller;
mod reach;
mod ready;
mod shared;
mod side;
mod slots;
mod sockets;
mod stack;
mod starved;
mod stream;
mod target;
mod tcp;
mod timeouts;
mod udp;
mod waiter;
mod worker;

pub use listener::{Incoming, TcpListener};
pub use poller::Poller;
pub use stack::{Placement, Stack};
pub use tcp::TcpStream;
pub use udp::UdpSocket;
