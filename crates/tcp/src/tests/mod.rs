//! Conversations and transfers on a virtual clock.

mod harness;
mod script;
mod transfer;
