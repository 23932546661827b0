//! TCP Fast Open (RFC 7413): data in the SYN, allowed by a cookie from an earlier connection.
//!
//! ```text
//!   client                                        server
//!     SYN, cookie request             ---->       FastOpenKeys::cookie
//!     FastOpenCache::learn            <----       SYN-ACK, cookie                    Connection::give_cookie
//!   later:
//!     SYN, cookie, data               ---->       FastOpenKeys::check
//!     Connection::offer_fast_open                 data is delivered, may be answered  Connection::open_early
//!                                     <----       SYN-ACK of SYN and data; data
//! ```
//!
//! The owner holds keys and cache, and bounds how many connections it opens early (RFC 7413 section
//! 5.1).

mod cache;
mod keys;

use millstream_wire::tcp::FastOpenCookie;

pub use cache::{FastOpenCache, FastOpenHint};
pub use keys::{FastOpenKeys, FastOpenValidity};

/// Outcome of Fast Open on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FastOpenStatus {
    /// It was not tried.
    #[default]
    None,
    /// Client: a cookie was asked for.
    Requested,
    /// Client: the SYN carried a cookie; no answer yet.
    Offered,
    /// The data of the SYN was taken: all or some of what a client sent, or what a server received.
    DataAccepted,
    /// Client: the server acknowledged the SYN alone.
    DataRefused,
    /// Client: the SYN with the option got no answer, one without it did, or none at all.
    Lost,
    /// Server: the SYN brought no data, or none that was taken; a cookie may have been given.
    Answered,
}

/// Lesson that a client takes from a connection for the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FastOpenOutcome {
    /// How far it came.
    pub status: FastOpenStatus,
    /// A cookie that the server gave.
    pub cookie: Option<FastOpenCookie>,
    /// Size of segments that the server takes, by its MSS option or without one by default, in
    /// bytes; none: it did not answer.
    pub mss: Option<u16>,
}

/// State that exists while a connection opens with the option.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastOpen {
    /// The option in our SYN or SYN-ACK.
    pub(crate) option: Option<FastOpenCookie>,
    /// Client: segment size of the server, of last time.
    pub(crate) mss: u16,
    /// Client: the SYN waits for data to go with it.
    pub(crate) deferred: bool,
    /// Server: data flows before the handshake is done.
    pub(crate) early: bool,
    pub(crate) learnt: Option<FastOpenCookie>,
}
