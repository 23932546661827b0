//! TCP as a machine without input, output, clock or threads.
//!
//! Segments, calls of the application and the time go into a [`Connection`]; segments to send,
//! data, and the next deadline come out. IPv4 and IPv6 differ here in nothing but the addresses of
//! the [`FourTuple`]. Listeners belong to the owner: it makes a connection from a SYN with
//! [`Connection::accept`], or keeps a [`HalfOpen`] until the handshake is done or nothing at all
//! ([`SynCookies`]), and answers what belongs to no connection with [`reset_for`].
//!
//! ```text
//!            on_segment        on_timer              poll       next_deadline
//!                 |               |                    ^              ^
//!                 v               v                    |              |
//!               input -------> timer <------------- output --------> timers
//!      handshake, acceptable,    |              choose, headers
//!           ack, data            |                     ^
//!                 |              v                     |
//!                 +--------> recovery ----------> scoreboard, congestion
//! ```
//!
//! With the feature `tracing`, events of a connection's life go to the subscriber of the crate
//! `tracing`, under the target `millstream::tcp`.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod ack_policy;
mod config;
pub mod congestion;
mod connection;
mod counters;
mod ecn;
mod error;
mod fast_open;
mod half_open;
mod info;
pub mod isn;
pub mod limits;
mod ordered;
mod pacer;
mod payload;
mod ranges;
mod receiver;
mod reset;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
mod state;
mod stats;
mod stream;
mod syn_cookie;
mod ticks;
mod time_wait;
mod timers;
mod trace;
mod tuning;

pub use ack_policy::LoneAck;
pub use config::{Config, CookieMode, EcnMode, FourTuple, Keepalive, MtuProbing};
pub use congestion::CongestionKind;
pub use connection::{Connection, Progress};
pub use error::{ConnError, Refused};
pub use fast_open::{
    FastOpenCache, FastOpenHint, FastOpenKeys, FastOpenOutcome, FastOpenStatus, FastOpenValidity,
};
pub use half_open::HalfOpen;
pub use info::TcpInfo;
pub use isn::IsnGenerator;
pub use payload::{Payload, Placed};
pub use reset::reset_for;
pub use segment::{PayloadSource, Segment, TransmitLimits};
pub use sender::Widened;
pub use state::{Events, State};
pub use stats::{TcpDrop, TcpStats};
pub use syn_cookie::{COOKIE_LIFETIME, SynCookies};
pub use time_wait::{TimeWait, Wait};
pub use timers::TimerKind;

#[cfg(test)]
extern crate self as millstream_tcp;
#[cfg(test)]
mod tests;
