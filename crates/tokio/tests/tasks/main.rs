//! Sockets for tasks, over two engines in memory and against the kernel.

mod cancel;
mod channel;
mod closing;
mod datagrams;
mod engine;
mod examples;
mod flows;
mod forward;
mod idle;
mod incoming;
mod kernel_options;
mod others;
mod streams;
mod support;
