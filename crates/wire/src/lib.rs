//! Header views and builders, and checksums: pure functions over bytes.
//!
//! A parser reads its header once, at the edge, into a value; nothing panics
//! for any bytes, and what is wrong is said by one [`Malformed`] reason. Where
//! a packet may be a chain of frames, a parser takes the contiguous head and
//! says how long the header was. An `emit` writes into a buffer that the caller
//! has made long enough, and panics when it is not.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod arp;
mod bytes;
pub mod checksum;
pub mod ethernet;
pub mod groups;
pub mod icmp;
pub mod ip;
pub mod limits;
mod malformed;
pub mod ndp;
pub mod tcp;
pub mod udp;

pub use malformed::Malformed;
