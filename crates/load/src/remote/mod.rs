//! A second host: `millstream serve` there, and the runner's side of it here.
//!
//! Messages have two carriers: a TCP connection to a `serve` that waits there, and the standard
//! input and output of one that a command has started there (`--far-by`).
//!
//! One connection controls a run. Over TCP both sides prove that they know the same [`Token`], then send
//! each other framed messages, each with a code that depends on the token, the direction and its
//! place. They are not encrypted. The far side knows few requests (`Request` in its `message.rs`),
//! checks each number against the limits of the factors, does one run at a time, and ends the load
//! and everything that belongs to it when the connection ends, falls silent or is asked for too
//! long.

mod client;
mod door;
mod last_words;
mod message;
mod process;
mod server;
mod session;
mod started;
mod token;
mod wire;

pub use client::{Clock, FarHost, FarOther, FarSeat};
pub use message::{FarCommand, FarSide, InterfaceBytes, Machine};
pub use process::WorkerProcess;
pub use server::{serve, serve_starter};
pub use token::Token;

#[cfg(test)]
mod tests;

/// Version of the messages. Sides of different versions refuse each other.
pub const VERSION: u16 = 4;
