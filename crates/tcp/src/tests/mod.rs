//! Conversations and transfers on a virtual clock.

mod harness;
mod random;
mod script;
mod transfer;
