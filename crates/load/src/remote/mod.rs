//! A second host: `millstream serve` there, and the runner's side of it here.
//!
//! One TCP connection controls a run. Both sides prove that they know the same [`Token`], then send
//! each other framed messages, each with a code that depends on the token, the direction and its
//! place. They are not encrypted. The far side knows few requests (`Request` in its `message.rs`),
//! checks each number against the limits of the factors, does one run at a time, and ends the load
//! and everything that belongs to it when the connection ends, falls silent or is asked for too
//! long.

mod client;
mod door;
mod message;
mod process;
mod server;
mod session;
mod token;
mod wire;

pub use client::FarHost;
pub use client::{Clock, FarSeat};
pub use message::{FarSide, InterfaceBytes};
pub use process::WorkerProcess;
pub use server::serve;
pub use token::Token;

#[cfg(test)]
mod tests;

/// Version of the messages. Sides of different versions refuse each other.
pub const VERSION: u16 = 1;
