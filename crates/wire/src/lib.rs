//! Header views and builders, and checksums: pure functions over bytes.
//!
//! A parser reads its header once, at the edge, into a value; nothing panics
//! for any bytes, and what is wrong is said by one [`Malformed`] reason. Where
//! a packet may be a chain of frames, a parser takes the contiguous head and
//! says how long the header was.

mod bytes;
pub mod limits;
mod malformed;
pub mod tcp;

pub use malformed::Malformed;
