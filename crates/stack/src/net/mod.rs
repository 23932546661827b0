//! The engine in a thread of its own.
mod ready;
