//! TCP in the engine: from a segment that was classified to its connection, and from the application to it.
//!
//! `input` hands segments to connections, `admit` to listeners; `api` and `writes` take what the application says;
//! `table` holds all of them. What a connection does is in the crate `millstream-tcp`.

pub(in crate::engine) mod ack_wait;
pub(in crate::engine) mod admit;
pub(in crate::engine) mod api;
mod busy;
pub(in crate::engine) mod configs;
pub(crate) mod ending;
pub(in crate::engine) mod fast_open;
pub(in crate::engine) mod input;
pub(in crate::engine) mod listener;
pub(in crate::engine) mod mini;
pub(in crate::engine) mod options;
pub(in crate::engine) mod orphans;
pub(in crate::engine) mod port_choice;
pub(in crate::engine) mod room;
pub(in crate::engine) mod sources;
pub(in crate::engine) mod table;
pub(in crate::engine) mod time_wait;
pub(in crate::engine) mod writes;
pub(in crate::engine) mod zero_copy;
