//! Run to completion: the application's thread is the engine's thread.
//!
//! A blocking call takes turns of the engine until it can be answered, and sleeps with it when
//! there is nothing to do; no other thread is involved, and nothing happens between calls. Several
//! sockets are served from one thread by [`Stack::wait`], bulk of many with one copy by
//! [`Stack::wait_read`]. Names and error kinds are those of `std::net`. Where links have failed, or
//! were removed, and none leads to the socket's peer any more (for a listener: none is left), a
//! call that would wait fails with [`NetworkDown`](io::ErrorKind::NetworkDown), as nobody can add a
//! link meanwhile; its socket stays as it is.
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use millstream::link::{Tap, TapConfig};
//! use millstream::{Engine, EngineConfig, local};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut engine = Engine::new(EngineConfig::default())?;
//! let link = engine.add_link(Box::new(Tap::open(&TapConfig::default())?))?;
//! engine.add_address(link, "10.70.0.2/24".parse().expect("a prefix"))?;
//! let stack = local::Stack::new(engine);
//! let mut stream = local::TcpStream::connect(&stack, "10.70.0.1:7")?;
//! stream.write_all(b"hello")?;
//! let mut answer = [0; 5];
//! stream.read_exact(&mut answer)?;
//! # Ok(())
//! # }
//! ```

mod socket;
mod stack;

pub(crate) use stack::{Drive, WeakStack};
pub use stack::{Event, Stack};

use std::io;

use crate::door;
pub use crate::engine::Received;
use socket::LocalSocket;

/// A TCP connection of an engine in its application's thread; see [`door::TcpStream`].
pub type TcpStream = door::TcpStream<LocalSocket>;

/// A TCP listener of an engine in its application's thread; see [`door::TcpListener`].
pub type TcpListener = door::TcpListener<LocalSocket>;

/// The connections of a listener, see [`door::TcpListener::incoming`].
pub type Incoming<'a> = door::Incoming<'a, LocalSocket>;

/// A UDP socket of an engine in its application's thread; see [`door::UdpSocket`].
pub type UdpSocket = door::UdpSocket<LocalSocket>;

impl TcpStream {
    /// Lets [`Stack::wait_read`] take its data, into the memory given there, or not. Off at first.
    pub fn set_wait_read(&self, on: bool) -> io::Result<()> {
        Ok(self.stack().engine().tcp(self.id()).set_wait_read(on)?)
    }
}
