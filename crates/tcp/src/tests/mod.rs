//! Conversations and transfers on a virtual clock.

mod goodput;
mod harness;
mod random;
mod script;
mod transfer;
