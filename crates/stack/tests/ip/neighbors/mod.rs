//! Neighbours and addresses: what others say of theirs, and what is said of ours. Everything goes
//! by a clock of its own.

mod heard;
mod hub;
mod own;
mod scan;
mod valid;
